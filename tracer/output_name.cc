#include "tracer/output_name.h"

#include <string>

#include "core/error.h"
#include "core/printable.h"

namespace stepscope::tracer {

std::filesystem::path output_name(std::string_view pattern, std::int64_t pid,
                                  std::optional<std::int64_t> rank) {
  if (pattern.empty()) throw Error("no trace file is named", "name a .sqlite or .json file");
  std::string name;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      name += pattern[i];
      continue;
    }
    const char field = ++i < pattern.size() ? pattern[i] : '\0';
    if (field == 'p') {
      name += std::to_string(pid);
    } else if (field == 'r') {
      name += rank ? std::to_string(*rank) : "unknown";
    } else if (field == '%') {
      name += '%';
    } else {
      throw Error("the file name " + printable(pattern) + " has a % that means nothing",
                  "write %p for the process' number, %r for its rank, %% for a percent sign");
    }
  }
  return name;
}

}  // namespace stepscope::tracer
