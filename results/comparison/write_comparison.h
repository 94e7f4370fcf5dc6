#pragma once

/// Purpose: a comparison as text: Markdown for a pull request, CSV, and JSON for plot/report.py.
///
/// Usage:  std::cout << comparison_markdown(comparison);
///
/// Caveats: what was not measured is "n/a" in Markdown, empty in CSV and null in JSON, never 0.

#include <string>

#include "results/comparison/compare.h"

namespace stepscope::results {

std::string comparison_markdown(const Comparison& comparison);

/// One record per benchmark, times in nanoseconds, sizes in bytes.
std::string comparison_csv(const Comparison& comparison);

std::string comparison_json(const Comparison& comparison);

}  // namespace stepscope::results
