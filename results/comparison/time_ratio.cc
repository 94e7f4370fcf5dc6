#include "results/comparison/time_ratio.h"

#include <cmath>
#include <cstddef>
#include <vector>

#include "results/comparison/chi_square.h"
#include "results/comparison/fewest_runs.h"
#include "results/comparison/student_t.h"

namespace stepscope::results {
namespace {

struct Moments {
  double mean = 0;
  double variance = 0;  ///< of the sample; 0 for one value
};

Moments moments(std::span<const double> values) {
  Moments result;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) result.mean += value / count;
  if (values.size() < 2) return result;
  for (const double value : values) {
    result.variance += (value - result.mean) * (value - result.mean) / (count - 1);
  }
  return result;
}

std::vector<double> logarithms(std::span<const double> values) {
  std::vector<double> result;
  for (const double value : values) result.push_back(std::log(value));
  return result;
}

/// Adds interval and p-value of a difference of logarithms with this standard error.
void add_test(TimeRatio& ratio, double difference, double error, double freedom) {
  // Without any spread (equal figures, as in made-up files) every difference is certain.
  if (error <= 0) {
    ratio.low = ratio.high = ratio.ratio;
    ratio.p_value = difference == 0 ? 1 : 0;
    return;
  }
  const double half = student_t_critical(kAlpha, freedom) * error;
  ratio.low = std::exp(difference - half);
  ratio.high = std::exp(difference + half);
  ratio.p_value = student_t_two_sided(difference / error, freedom);
}

}  // namespace

TimeRatio ratio_of_runs(std::span<const double> base_ns, std::span<const double> new_ns,
                        LaunchOrder order) {
  const std::vector<double> all_base = logarithms(base_ns);
  const std::vector<double> all_new = logarithms(new_ns);
  const double difference = moments(all_new).mean - moments(all_base).mean;
  TimeRatio ratio;
  ratio.ratio = std::exp(difference);
  if (base_ns.size() < 2 || new_ns.size() < 2) return ratio;
  ratio.spread = std::sqrt((moments(all_base).variance + moments(all_new).variance) / 2);
  const bool in_turn = order == LaunchOrder::in_turn;
  const std::vector<double> base_units = in_turn ? all_base : means_of_neighbours(all_base);
  const std::vector<double> new_units = in_turn ? all_new : means_of_neighbours(all_new);
  const Moments base = moments(base_units);
  const Moments fresh = moments(new_units);
  const auto m = static_cast<double>(base_units.size());
  const auto n = static_cast<double>(new_units.size());
  const double of_base = base.variance / m;
  const double of_new = fresh.variance / n;
  const double both = of_base + of_new;
  // Welch and Satterthwaite.
  const double freedom =
      both > 0 ? both * both / (of_base * of_base / (m - 1) + of_new * of_new / (n - 1)) : 1;
  add_test(ratio, difference, std::sqrt(both), freedom);
  return ratio;
}

TimeRatio ratio_of_pairs(std::span<const double> base_ns, std::span<const double> new_ns) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < base_ns.size(); ++i) {
    differences.push_back(std::log(new_ns[i]) - std::log(base_ns[i]));
  }
  const Moments all = moments(differences);
  TimeRatio ratio;
  ratio.ratio = std::exp(all.mean);
  if (differences.size() < 2) return ratio;
  const auto count = static_cast<double>(differences.size());
  ratio.spread = std::sqrt(all.variance);
  add_test(ratio, all.mean, std::sqrt(all.variance / count), count - 1);
  return ratio;
}

double cautious_spread(double spread, std::int64_t freedom) {
  return spread * std::sqrt(static_cast<double>(freedom) / chi_square_quantile(0.1, freedom));
}

std::optional<std::int64_t> runs_needed(double spread, double effect, std::int64_t benchmarks,
                                        bool paired) {
  constexpr double kTailOfMissed = 0.1;  // one-sided, so twice that of two sides
  // The strictest step of Holm's correction: the first.
  const double alpha = kAlpha / static_cast<double>(benchmarks);
  const auto enough = [&](std::int64_t runs) {
    const auto n = static_cast<double>(runs);
    const double freedom = paired ? n - 1 : 2 * (n - 1);
    const double error = spread * std::sqrt((paired ? 1 : 2) / n);
    return error * (student_t_critical(alpha, freedom) +
                    student_t_critical(2 * kTailOfMissed, freedom)) <=
           effect;
  };
  return fewest_runs(1, enough);  // nothing can be told from one
}

}  // namespace stepscope::results
