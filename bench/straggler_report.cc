#include "bench/straggler_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "results/stragglers.h"

namespace stepscope::bench {

void print_stragglers(const std::vector<CaseResult>& results) {
  const auto told = [](const CaseResult& result) {
    return result.ranks.size() > 1 && !result.samples.step_ns.empty();
  };
  std::size_t width = 0;
  for (const CaseResult& result : results) {
    if (told(result)) width = std::max(width, result.benchmark.size());
  }
  if (width == 0) return;
  constexpr const char* kRow = "{:<{}}  {:>12} {:>8} {:>8} {:>11} {:>11}\n";
  fmt::print("\n");
  fmt::print(kRow, "straggler, against the middle rank", std::max<std::size_t>(width, 34),
             "slowest rank", "of steps", "if equal", "p50 lead ms", "max lead ms");
  for (const CaseResult& result : results) {
    if (!told(result)) continue;
    const auto& samples = result.samples;
    const auto first =
        results::find_stragglers(samples.step_ns, samples.slowest_rank, samples.middle_rank_ns)
            .front();
    const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
    const auto milliseconds = [](std::int64_t ns) {
      return fmt::format("{:.3f}", static_cast<double>(ns) / 1e6);
    };
    fmt::print(
        kRow, result.benchmark, std::max<std::size_t>(width, 34), first.rank,
        percent(static_cast<double>(first.steps) / static_cast<double>(samples.step_ns.size())),
        percent(1.0 / static_cast<double>(result.ranks.size())), milliseconds(first.p50_lead_ns),
        milliseconds(first.max_lead_ns));
  }
}

}  // namespace stepscope::bench
