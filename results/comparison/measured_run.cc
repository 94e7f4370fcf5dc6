#include "results/comparison/measured_run.h"

#include <algorithm>
#include <cstddef>

namespace stepscope::results {

const BenchmarkRun* find_benchmark(const MeasuredRun& run, const std::string& name) {
  for (const BenchmarkRun& candidate : run.benchmarks) {
    if (candidate.benchmark == name) return &candidate;
  }
  return nullptr;
}

BenchmarkRun& find_or_add_benchmark(MeasuredRun& run, const std::string& name) {
  for (BenchmarkRun& candidate : run.benchmarks) {
    if (candidate.benchmark == name) return candidate;
  }
  run.benchmarks.emplace_back().benchmark = name;
  return run.benchmarks.back();
}

std::optional<double> quantile(std::vector<double> values, double fraction) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const double position = static_cast<double>(values.size() - 1) * fraction;
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace stepscope::results
