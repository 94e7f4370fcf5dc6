#pragma once

/// Purpose: a trace as an SQLite file in nsys' schema, which nsys' reports and other people's
/// readers open, and which read_trace_file reads back without loss: it is our own format.
///
/// Usage:  trace.finish();  write_nsys(trace, folder / "AdamW8bit.rank0.sqlite");
///
/// Caveats: `nsys stats` and `nsys analyze` read it; nothing turns it into an .nsys-rep. Operators
/// of libtorch and collectives become NVTX ranges. Nothing of the traced process but its events is
/// written: no environment, no list of processes, no paths (so not Process::file either).

#include <filesystem>

#include "tracer/trace.h"

namespace stepscope::tracer {

/// Writes the file to a temporary name, forces it to the disk and renames it. Throws Error naming
/// the file where that fails.
void write_nsys(const Trace& trace, const std::filesystem::path& path);

}  // namespace stepscope::tracer
