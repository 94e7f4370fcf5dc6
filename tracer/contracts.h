#pragma once

/// Purpose: the contracts of an optimizer step, judged on a trace from any source.
///
/// Usage:
///     ContractOptions options{.plan = &plan, .against = &plain_trace};
///     const Judgement judgement = judge(trace, options);
///     if (worst(judgement.verdicts) == Status::broken) ...
///
/// A contract is broken where the trace shows that it does not hold, ok where the trace shows that
/// it does, and unverified otherwise: without a plan, with records that were dropped, with a
/// direction or an n that is not known, or where nothing was recorded in a step.
///
/// Caveats: docs/tracing.md says what each contract looks at. Verdicts of `complete-trace` are also
/// given for each process as a whole (Verdict::ordinal is empty).

#include <cstdint>
#include <optional>
#include <vector>

#include "tracer/expected_plan.h"
#include "tracer/step_ranges.h"
#include "tracer/trace.h"
#include "tracer/verdict.h"

namespace stepscope::tracer {

struct ContractOptions {
  std::vector<Contract> contracts = {};  ///< those to judge; none: all
  const ExpectedPlan* plan = nullptr;    ///< for local-n
  /// What a step has to issue. Nothing given: the plan's; without a plan none.
  std::optional<std::vector<CollectiveKind>> collectives = {};
  const Trace* against = nullptr;  ///< the same steps on plain local tensors, for no-extra-launches
  StepOptions steps = {};
  std::size_t offenders = 3;  ///< kept a verdict, at most
};

/// In how many of a process' steps something ran, and how long an update took there.
struct Coverage {
  std::optional<std::int64_t> rank = {};
  std::int64_t steps = 0;
  std::int64_t covered = 0;  ///< with kernels; in a process without a device: with operators
  bool device = false;       ///< whether that is about kernels
  /// Median over the covered steps of the time of all updates in a step; nothing without any.
  std::optional<std::int64_t> median_update_ns = {};
};

struct Judgement {
  std::vector<Verdict> verdicts;   ///< by process, then step, then contract
  std::vector<Coverage> coverage;  ///< by process
};

/// Judges a finished trace. Throws Error for a pattern of steps that is none.
Judgement judge(const Trace& trace, const ContractOptions& options);

/// broken, if any is; else unverified, if any is or there is none; else ok.
Status worst(const std::vector<Verdict>& verdicts);

}  // namespace stepscope::tracer
