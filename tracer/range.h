#pragma once

/// Purpose: a named range of this program's work, for a Capture of our own and for any NVTX tool
/// (`nsys profile`): NVTX domain "stepscope".
///
/// Usage:
///     const Range step("step 3");   // until the end of the scope
///
/// A Capture's event is named "stepscope:step 3". The ranges of a program, from the outside in:
/// model <name>, case <benchmark>, step <n>, phase <name>, group <n>: <what it steps>.
///
/// Caveats: begins and ends on one thread. Where nothing records and no tool is attached it costs
/// some nanoseconds. The text is copied.

#include <cstdint>
#include <string>

namespace stepscope::tracer {

struct HostRecord;

class Range {
 public:
  explicit Range(const std::string& name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  HostRecord* record_ = nullptr;
  std::uint64_t epoch_ = 0;
};

}  // namespace stepscope::tracer
