#pragma once

/// Purpose: the Google Benchmark fixture that measures one case: allocate, check against the
/// reference, warm up, time every step, gather, write rows.
///
/// Usage:  register_step_benchmarks(session);   // then benchmark::RunSpecifiedBenchmarks
///
/// Caveats: collective; every rank runs the same benchmarks in the same order with the same number
/// of iterations. A sample is the time of one step as the slowest rank saw it: the ranks start a
/// step together (a barrier, not timed), each times its own step, and the maximum over the ranks is
/// taken afterwards, so that no communication lies inside a sample.

#include "bench/step_session.h"

namespace stepscope::bench {

/// Registers one benchmark a case of the session's options. `session` must outlive the run.
void register_step_benchmarks(StepSession& session);

}  // namespace stepscope::bench
