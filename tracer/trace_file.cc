#include "tracer/trace_file.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/input_file.h"
#include "tracer/chrome_reader.h"
#include "tracer/nsys_reader.h"
#include "tracer/sqlite_file.h"

namespace stepscope::tracer {
namespace {

constexpr std::string_view kSqliteMagic("SQLite format 3\0", 16);
constexpr const char* kFormats =
    "give an nsys SQLite export, a trace of stepscope, or Kineto's JSON";

}  // namespace

ReadReport read_trace_file(const std::filesystem::path& path, Trace& trace,
                           const ReadOptions& options) {
  std::string start;
  {
    InputFile file(path.string());
    if (file.size() == 0) throw Error("is empty", kFormats, {.file = path.string()});
    start = file.read(std::min<std::int64_t>(file.size(), 16));
  }
  if (start == kSqliteMagic) {
    SqliteFile file(path);
    if (!is_nsys(file)) {
      throw Error("is an SQLite file without any table of nsys", kFormats, {.file = path.string()});
    }
    return read_nsys(file, trace, options);
  }
  const bool gzip = start.starts_with("\x1f\x8b");
  const auto content = start.find_first_not_of(" \t\r\n");
  const char byte = content == std::string::npos ? '\0' : start[content];
  if (gzip || byte == '{' || byte == '[') return read_chrome_json(path.string(), trace, options);
  throw Error("is neither SQLite nor JSON", kFormats, {.file = path.string()});
}

}  // namespace stepscope::tracer
