// convert_trace IN OUT.sqlite: reads a trace, and writes it as our programs do.

#include <cstdio>
#include <string>

#include "core/error.h"
#include "core/program.h"
#include "tracer/nsys_writer.h"
#include "tracer/trace_file.h"

int main(int argc, char** argv) {
  return stepscope::run_program("convert_trace", [&] {
    if (argc != 3) throw stepscope::Error("usage: convert_trace IN OUT.sqlite");
    stepscope::tracer::Trace trace;
    stepscope::tracer::read_trace_file(argv[1], trace);
    trace.finish();
    stepscope::tracer::write_nsys(trace, argv[2]);
    return stepscope::kFine;
  });
}
