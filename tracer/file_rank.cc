#include "tracer/file_rank.h"

#include "core/error.h"

namespace stepscope::tracer {

void set_rank(Trace& trace, const std::vector<std::uint32_t>& processes, std::int64_t rank,
              const std::string& file) {
  if (processes.size() > 1) {
    throw Error("holds " + std::to_string(processes.size()) + " processes, and one rank was given",
                "leave the rank out, or trace each rank into a file of its own", {.file = file});
  }
  for (const std::uint32_t number : processes) {
    Process& process = trace.process(number);
    if (process.rank && *process.rank != rank) {
      throw Error("says that it is of rank " + std::to_string(*process.rank) + ", not " +
                      std::to_string(rank),
                  "leave the rank out", {.file = file});
    }
    process.rank = rank;
  }
}

}  // namespace stepscope::tracer
