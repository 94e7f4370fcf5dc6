#include "results/comparison/runs_to_settle.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "results/comparison/chi_square.h"
#include "results/comparison/fewest_runs.h"
#include "results/comparison/normal.h"
#include "results/comparison/student_t.h"
#include "results/comparison/time_ratio.h"

namespace stepscope::results {
namespace {

constexpr int kSpreads = 10;

/// Spreads that the runs may really have, each as likely as the others, by what was seen.
std::vector<double> likely_spreads(const UncertainTime& time) {
  std::vector<double> all;
  for (int i = 0; i < kSpreads; ++i) {
    const double chi_square = chi_square_quantile((i + 0.5) / kSpreads, time.freedom);
    all.push_back(time.spread * std::sqrt(static_cast<double>(time.freedom) / chi_square));
  }
  return all;
}

/// The probability that the verdict is settled with `more` runs a side, or pairs.
double settled(const UncertainTime& time, const std::vector<double>& spreads, std::int64_t more) {
  const double sides = time.paired ? 1 : 2;
  const auto have = static_cast<double>(time.have);
  const auto added = static_cast<double>(more);
  const double all = time.kept ? have + added : added;
  const double freedom = sides * (all - 1);
  const double corrected =
      student_t_critical(kAlpha / static_cast<double>(time.benchmarks), freedom);
  const double alone = student_t_critical(kAlpha, freedom);
  double probability = 0;
  for (const double spread : spreads) {
    const double error = spread * std::sqrt(sides / all);
    // Where the change will be seen then. It is `change` with the error of the runs so far and that
    // of the new ones, or, over all of them together, with the part that the new ones have in it.
    const double shift =
        spread * std::sqrt(sides * (time.kept ? added / (all * have) : 1 / have + 1 / added));
    const auto below = [&](double value) { return normal_below((value - time.change) / shift); };
    const double certain = std::max(time.threshold, corrected * error);
    probability += below(-certain) + 1 - below(certain);
    const double within = time.threshold - alone * error;
    if (within > 0) probability += below(within) - below(-within);
  }
  return probability / static_cast<double>(spreads.size());
}

}  // namespace

std::optional<std::int64_t> runs_to_settle(const UncertainTime& time) {
  const std::vector<double> spreads = likely_spreads(time);
  // One a side tells nothing, and with none added it is uncertain.
  return fewest_runs(time.kept ? 0 : 1,
                     [&](std::int64_t more) { return settled(time, spreads, more) >= kSettles; });
}

}  // namespace stepscope::results
