#pragma once

/// Purpose: one rank's events as JSON in Chrome's trace format, with Kineto's names, so that
/// Perfetto, chrome://tracing, TensorBoard and HolisticTraceAnalysis open them.
///
/// Usage:  write_chrome_json(trace, folder / "AdamW8bit.rank0.json");
///
/// Caveats: a file is one process's, as those readers want it. Times are microseconds with three
/// decimal places, so exact to the nanosecond. What a verdict rests on is kept, in arguments of
/// ours where Kineto has none (the direction of a copy, which inputs are on a device, records that
/// were left out). Not lossless: unknown streams are left out; write_nsys keeps everything.

#include <cstdint>
#include <filesystem>

#include "tracer/trace.h"

namespace stepscope::tracer {

/// Writes the events of `process` (an index into Trace::processes()) to a temporary name, forces
/// the file to the disk and renames it. Throws Error naming the file where that fails.
void write_chrome_json(const Trace& trace, const std::filesystem::path& path,
                       std::uint32_t process = 0);

}  // namespace stepscope::tracer
