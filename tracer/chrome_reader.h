#pragma once

/// Purpose: Chrome's trace format, as Kineto (PyTorch's profiler) and we write it, as events.
///
/// Usage:  const ReadReport report = read_chrome_json(path, trace, options);
///
/// Caveats: read_trace_file calls this; nothing else should. Complete events ("ph": "X") are read;
/// flows, marks and metadata are counted as skipped, and so are annotations that Kineto projects
/// onto a device. A file is one process's.

#include <string>

#include "tracer/trace_file.h"

namespace stepscope::tracer {

/// Adds the file's events. Throws as read_trace_file does; the place is the byte.
ReadReport read_chrome_json(const std::string& path, Trace& trace, const ReadOptions& options);

}  // namespace stepscope::tracer
