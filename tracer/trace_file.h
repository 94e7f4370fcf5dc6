#pragma once

/// Purpose: reading a trace that somebody recorded, whatever wrote it: an nsys SQLite export of
/// schema 3.0 or newer, our own files (the same, with tables of our own), or the JSON of Kineto and
/// other writers of Chrome's trace format, plain or compressed with gzip.
///
/// Usage:
///     Trace trace;
///     for (const auto& file : files) report(read_trace_file(file, trace, {}));
///     trace.finish();
///
/// Caveats: the content decides what a file is, not its name. Each process in a file becomes a
/// Process of the trace. Whoever reads several files calls align_ranks (align_ranks.h) behind the
/// last, which refuses a rank that comes twice. A file is foreign and may be hostile: it costs
/// memory in proportion to its size, and a damaged one is an Error with the place.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tracer/trace.h"

namespace stepscope::tracer {

struct ReadOptions {
  /// The rank of the file's process, where the file does not say it.
  std::optional<std::int64_t> rank = {};
  /// JSON alone: keep the complete events of a file that was cut or has damaged bytes in it.
  bool salvage = false;
};

/// What a reader has to say about a file besides its events.
struct ReadReport {
  std::string format = {};              ///< "nsys", "stepscope" or "kineto"
  std::int64_t events = 0;              ///< rows or objects that were understood
  std::int64_t skipped = 0;             ///< of a kind that the event model has no place for
  std::int64_t lost_bytes = 0;          ///< with salvage: bytes that no event was read from
  std::vector<std::string> notes = {};  ///< clauses such as "no annotations: ..."
};

/// Adds the events of the file to `trace`. Throws Error naming the file and the place (table and
/// row, or byte) where it cannot be read, is damaged, or is in none of the formats; where the file
/// says a rank and `options` another one; and where `options` gives a rank for several processes.
/// `trace` is then to be thrown away.
ReadReport read_trace_file(const std::filesystem::path& path, Trace& trace,
                           const ReadOptions& options = {});

}  // namespace stepscope::tracer
