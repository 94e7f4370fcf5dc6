#include "bench/benchmark_flags.h"

#include <regex.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

#include "core/error.h"
#include "core/parse.h"

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

constexpr std::array<std::string_view, 3> kFormats = {"console", "json", "csv"};

std::string_view value_of(std::string_view word) {
  const auto equals = word.find('=');
  return equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
}

/// Google Benchmark answers a bad value with its usage text and exit code 0, so values are checked
/// here.
void check_value(const std::string& word, std::string_view name) {
  const std::string_view value = value_of(word);
  if (name == "benchmark_format" || name == "benchmark_out_format") {
    if (std::find(kFormats.begin(), kFormats.end(), value) == kFormats.end()) {
      throw Error("\"" + word + "\" names no format", "give console, json or csv");
    }
  } else if (name == "benchmark_repetitions") {
    parse_int("--benchmark_repetitions", value, 1, 100000);
  } else if (name == "benchmark_list_tests") {
    if (word.find('=') != std::string::npos && value != "true") {
      throw Error("\"" + word + "\" is no request", "give --benchmark_list_tests, or leave it out");
    }
  } else if (name == "benchmark_out") {
    // Found out now, not after the measurement.
    std::ofstream file(std::string(value), std::ios::app);
    if (!file) {
      throw Error("--benchmark_out=" + std::string(value) + " cannot be written",
                  "name a file in a folder that exists and is yours");
    }
  }
}

std::string_view name_of(std::string_view word) {
  word.remove_prefix(std::min<std::size_t>(2, word.size()));
  return word.substr(0, word.find('='));
}

/// Names of benchmarks begin with a subject, so people ask for one.
[[noreturn]] void refuse_subject() {
  throw Error(
      "--subject is no option",
      "native and torch are measured unasked; bitsandbytes' CUDA library, which steps one tensor a "
      "call and knows no ranks, by kernel_step --device cuda --peers bitsandbytes, and its "
      "optimizers on PyTorch's FSDP by topologies/pytorch/optimizer_step.py");
}

/// POSIX's extended regular expressions; g++ 12 warns inside std::regex under its sanitizers.
class Regex {
 public:
  explicit Regex(const std::string& pattern)
      : valid_(regcomp(&compiled_, pattern.c_str(), REG_EXTENDED | REG_NOSUB) == 0) {}
  ~Regex() {
    if (valid_) regfree(&compiled_);
  }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;
  bool valid() const { return valid_; }
  bool matches(const std::string& text) const {
    return regexec(&compiled_, text.c_str(), 0, nullptr, 0) == 0;
  }

 private:
  regex_t compiled_{};
  bool valid_;
};

}  // namespace

std::vector<std::string> screen_benchmark_flags(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word.starts_with("--") && name_of(word) == "subject") refuse_subject();
    if (!word.starts_with("--benchmark_")) {
      throw Error("unknown argument \"" + word + "\"", "see --help");
    }
    const std::string_view name = name_of(word);
    if (std::find(kSafe.begin(), kSafe.end(), name) == kSafe.end()) {
      throw Error("--" + std::string(name) + " cannot be used across ranks",
                  "the number of steps is the same on every rank: use --steps and --warmup");
    }
    check_value(word, name);
  }
  return words;
}

bool has_flag(const std::vector<std::string>& flags, const std::string& name) {
  return std::any_of(flags.begin(), flags.end(),
                     [&](const std::string& flag) { return name_of(flag) == name; });
}

std::string flag_value(const std::vector<std::string>& flags, const std::string& name) {
  std::string value;
  for (const std::string& flag : flags) {
    if (name_of(flag) == name) value = value_of(flag);
  }
  return value;
}

void require_match(const std::vector<std::string>& flags, const std::vector<std::string>& names) {
  for (const std::string& flag : flags) {
    if (name_of(flag) != "benchmark_filter") continue;
    std::string pattern(value_of(flag));
    const bool wanted = !pattern.starts_with('-');
    if (!wanted) pattern.erase(0, 1);
    const Regex filter(pattern);
    if (!filter.valid()) {
      throw Error("\"" + flag + "\" is no regular expression", "see --benchmark_list_tests");
    }
    const bool matches = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return filter.matches(name) == wanted;
    });
    if (pattern.empty() || pattern == "all" || matches) continue;
    throw Error("\"" + flag + "\" matches no case", "--benchmark_list_tests lists the names");
  }
}

}  // namespace stepscope::bench
