// trace_speed FILE [EVENTS]: with EVENTS, writes a trace of that many events to FILE (nsys'
// schema); without, reads FILE and prints events, seconds and the process's peak memory.

#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "core/error.h"
#include "core/parse.h"
#include "core/program.h"
#include "tests/tracer/large_trace.h"
#include "tracer/nsys_writer.h"
#include "tracer/trace_file.h"

namespace {

using namespace stepscope;  // NOLINT(google-build-using-namespace)

int run(int argc, char** argv) {
  if (argc < 2) throw Error("usage: trace_speed FILE [EVENTS]");
  if (argc > 2) {
    tracer::write_nsys(tracer::large_trace(parse_int("EVENTS", argv[2], 2, 100'000'000)), argv[1]);
    return kFine;
  }
  const auto start = std::chrono::steady_clock::now();
  tracer::Trace trace;
  tracer::read_trace_file(argv[1], trace);
  const auto read = std::chrono::steady_clock::now();
  trace.finish();
  const auto end = std::chrono::steady_clock::now();
  ::rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const std::chrono::duration<double> reading = read - start;
  const std::chrono::duration<double> all = end - start;
  std::printf("{\"events\": %zu, \"read_s\": %.3f, \"finish_s\": %.3f, \"peak_kib\": %ld}\n",
              trace.events().size(), reading.count(), all.count() - reading.count(),
              usage.ru_maxrss);
  return kFine;
}

}  // namespace

int main(int argc, char** argv) {
  return stepscope::run_program("trace_speed", [&] { return run(argc, argv); });
}
