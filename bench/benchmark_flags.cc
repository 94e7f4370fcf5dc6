#include "bench/benchmark_flags.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.h"

namespace stepscope::bench {
namespace {

constexpr std::array<std::string_view, 12> kSafe = {"benchmark_filter",
                                                    "benchmark_repetitions",
                                                    "benchmark_list_tests",
                                                    "benchmark_format",
                                                    "benchmark_out",
                                                    "benchmark_out_format",
                                                    "benchmark_counters_tabular",
                                                    "benchmark_color",
                                                    "benchmark_context",
                                                    "benchmark_time_unit",
                                                    "benchmark_display_aggregates_only",
                                                    "benchmark_report_aggregates_only"};

std::string_view name_of(std::string_view word) {
  word.remove_prefix(std::min<std::size_t>(2, word.size()));
  return word.substr(0, word.find('='));
}

}  // namespace

std::vector<std::string> screen_benchmark_flags(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (!word.starts_with("--benchmark_")) {
      throw Error("unknown argument \"" + word + "\"", "see optimizer_step --help");
    }
    const std::string_view name = name_of(word);
    if (std::find(kSafe.begin(), kSafe.end(), name) == kSafe.end()) {
      throw Error("--" + std::string(name) + " cannot be used across ranks",
                  "the number of steps is the same on every rank: use --steps and --warmup");
    }
  }
  return words;
}

bool has_flag(const std::vector<std::string>& flags, const std::string& name) {
  return std::any_of(flags.begin(), flags.end(),
                     [&](const std::string& flag) { return name_of(flag) == name; });
}

}  // namespace stepscope::bench
