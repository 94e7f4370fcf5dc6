// judge_trace PLAN FILE...: the verdicts on traces as JSON, for tests that record in Python.

#include <iostream>
#include <string>

#include "core/error.h"
#include "core/program.h"
#include "tracer/contracts.h"
#include "tracer/expected_plan.h"
#include "tracer/trace_file.h"
#include "tracer/verdict_json.h"

namespace tracer = stepscope::tracer;

int main(int argc, char** argv) {
  return stepscope::run_program("judge_trace", [&] {
    if (argc < 3) throw stepscope::Error("usage: judge_trace PLAN FILE...");
    const tracer::ExpectedPlan plan = tracer::read_plan_file(argv[1]);
    tracer::Trace trace;
    for (int i = 2; i < argc; ++i) tracer::read_trace_file(argv[i], trace);
    trace.finish();
    tracer::write_verdicts(std::cout, tracer::judge(trace, {.plan = &plan}).verdicts);
    return stepscope::kFine;
  });
}
