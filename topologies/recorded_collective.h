#pragma once

/// Purpose: reports a collective to whoever records libtorch's operators, under the name and with
/// the tensors of c10d's own operator, on the thread that calls it. A back end that is called
/// directly opens a scope of its own, but on the thread that does the work, so that a recording
/// could not tell which step it belongs to.
///
/// Usage:
///     const RecordedCollective report("c10d::alltoall_base_", {output, input});
///     backend.alltoall_base(output, input, ...)->wait();
///
/// Caveats: costs next to nothing while nobody records. Tensors in the order of the operator's
/// arguments.

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <initializer_list>
#include <vector>

namespace stepscope::topologies {

class RecordedCollective {
 public:
  RecordedCollective(const char* name, std::initializer_list<at::Tensor> tensors)
      : report_(at::RecordScope::FUNCTION) {
    if (!report_.isActive()) return;
    inputs_.assign(tensors.begin(), tensors.end());
    report_.before(name, c10::ArrayRef<const c10::IValue>(inputs_.data(), inputs_.size()));
  }

 private:
  std::vector<c10::IValue> inputs_;  ///< outlive the report
  at::RecordFunction report_;
};

}  // namespace stepscope::topologies
