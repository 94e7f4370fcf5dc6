// convert_trace IN OUT.sqlite OUT.json: reads a trace, and writes it as our programs do.

#include <cstdio>
#include <string>

#include "core/error.h"
#include "core/program.h"
#include "tracer/chrome_writer.h"
#include "tracer/nsys_writer.h"
#include "tracer/trace_file.h"

int main(int argc, char** argv) {
  return stepscope::run_program("convert_trace", [&] {
    if (argc != 4) throw stepscope::Error("usage: convert_trace IN OUT.sqlite OUT.json");
    stepscope::tracer::Trace trace;
    stepscope::tracer::read_trace_file(argv[1], trace);
    trace.finish();
    stepscope::tracer::write_nsys(trace, argv[2]);
    stepscope::tracer::write_chrome_json(trace, argv[3]);
    return stepscope::kFine;
  });
}
