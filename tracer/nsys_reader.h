#pragma once

/// Purpose: the tables of an nsys SQLite export, and those that we add to our own (nsys_tables.h),
/// as events.
///
/// Usage:  SqliteFile file(path);  const ReadReport report = read_nsys(file, trace, options);
///
/// Caveats: read_trace_file calls this; nothing else should. Each process of the file becomes a
/// Process. Marks, NVTX categories and names of threads are no events. Names lose what would make
/// every one of them different: "cudaLaunchKernel_v7000" becomes "cudaLaunchKernel", and PyTorch's
/// "aten::add, seq = 7, op_id = 12" becomes the operator "aten::add".

#include "tracer/sqlite_file.h"
#include "tracer/trace_file.h"

namespace stepscope::tracer {

/// Whether the file holds any table of nsys or of ours.
bool is_nsys(const SqliteFile& file);

/// Adds the file's events. Throws as read_trace_file does.
ReadReport read_nsys(SqliteFile& file, Trace& trace, const ReadOptions& options);

}  // namespace stepscope::tracer
