#pragma once

/// Purpose: lets whoever watches a step know when an optimizer updates a parameter group, which is
/// what is stepped with one set of hyperparameters; this folder knows no tracer.
///
/// Usage:
///     void step() override {
///       exchange();
///       const GroupScope group(listener());
///       update();
///     }
///
/// Caveats: within the timed step, so a listener must cost nanoseconds. Where nothing is stepped no
/// group is told of.

namespace stepscope::topologies {

class GroupListener {
 public:
  virtual ~GroupListener() = default;
  virtual void begin_group() noexcept = 0;
  virtual void end_group() noexcept = 0;
};

/// A group's update, as long as it lives; `listener` may be null.
class GroupScope {
 public:
  explicit GroupScope(GroupListener* listener) noexcept : listener_(listener) {
    if (listener_ != nullptr) listener_->begin_group();
  }
  ~GroupScope() {
    if (listener_ != nullptr) listener_->end_group();
  }
  GroupScope(const GroupScope&) = delete;
  GroupScope& operator=(const GroupScope&) = delete;

 private:
  GroupListener* listener_;
};

}  // namespace stepscope::topologies
