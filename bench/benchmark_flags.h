#pragma once

/// Purpose: which of Google Benchmark's flags may be used when several ranks run the same
/// benchmarks.
///
/// Usage:  options.benchmark_flags = screen_benchmark_flags(remaining);
///
/// Caveats: a benchmark whose number of iterations depends on its own timing, or whose order is
/// random, makes ranks wait for each other for ever; such flags are refused by name.

#include <string>
#include <vector>

namespace stepscope::bench {

/// Returns `words` if each is a Google Benchmark flag that is safe across ranks. Throws Error
/// naming the first that is not, or that is no known flag at all; for --subject it says which
/// programs measure bitsandbytes.
std::vector<std::string> screen_benchmark_flags(const std::vector<std::string>& words);

/// Throws Error when a --benchmark_filter among `flags` is no regular expression or matches none of
/// `names`, so that nothing is made for a run that would measure nothing.
void require_match(const std::vector<std::string>& flags, const std::vector<std::string>& names);

/// Whether `flags` hold --<name> or --<name>=value.
bool has_flag(const std::vector<std::string>& flags, const std::string& name);

/// The last value that --<name>=value gives in `flags`, or empty.
std::string flag_value(const std::vector<std::string>& flags, const std::string& name);

}  // namespace stepscope::bench
