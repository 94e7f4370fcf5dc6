#include "bench/step_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "results/percentile.h"

namespace stepscope::bench {
namespace {

constexpr const char* kLayout =
    "{:<12} {:<19} {:<10} {:<8} {:<8} {:<5} {:>9} {:>9} {:>9} {:>12} {:>8} {:>7} {:>6} {:>10}  {}";
/// What stands between PyTorch's FSDP and its optimizer; topologies/pytorch prints rows in the same
/// layout below these.
constexpr const char* kNoAdapter = "-";
constexpr double kMiB = 1024.0 * 1024.0;

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto place = static_cast<std::ptrdiff_t>(digits.size()) - 3; place > 0; place -= 3) {
    digits.insert(static_cast<std::size_t>(place), ",");
  }
  return digits;
}

std::string milliseconds(std::optional<std::int64_t> ns) {
  return ns ? fmt::format("{:.3f}", static_cast<double>(*ns) / 1e6) : "n/a";
}

std::int64_t largest(const CaseResult& result, std::int64_t RankFigures::* figure) {
  std::int64_t value = 0;
  for (const RankFigures& rank : result.ranks) value = std::max(value, rank.*figure);
  return value;
}

/// "62,219,904 + 62,219,904" for up to four ranks, "1 to 3 a rank" beyond.
std::string local_sizes(const CaseResult& result) {
  std::string text;
  std::int64_t low = result.ranks.front().local_numel;
  std::int64_t high = low;
  for (const RankFigures& rank : result.ranks) {
    if (!text.empty()) text += " + ";
    text += grouped(rank.local_numel);
    low = std::min(low, rank.local_numel);
    high = std::max(high, rank.local_numel);
  }
  return result.ranks.size() <= 4 ? text : grouped(low) + " to " + grouped(high) + " a rank";
}

}  // namespace

std::string table_header() {
  return fmt::format(kLayout, "subject", "adapter", "optimizer", "topology", "policy", "dtype",
                     "p10 ms", "p50 ms", "p90 ms", "state MiB/r", "B/param", "saved", "GB/s",
                     "peak MiB/r", "local n by rank");
}

std::string table_row(const CaseResult& result) {
  const auto& config = result.step_case.config;
  const auto subject = topologies::subject_name(config.subject);
  const auto optimizer = topologies::optimizer_name(config.optimizer);
  const auto topology = topologies::topology_name(result.step_case.topology);
  const auto policy = topologies::asks_8bit(config.optimizer)
                          ? topologies::state_policy_name(config.state_policy)
                          : std::string_view("-");
  const auto dtype = kernels::dtype_name(config.dtype);
  if (!result.failure.empty()) {
    return fmt::format("{:<12} {:<19} {:<10} {:<8} {:<8} {:<5} failed: {}", subject, kNoAdapter,
                       optimizer, topology, policy, dtype, result.failure);
  }
  const auto median = results::percentile(result.samples.step_ns, 50);
  std::int64_t moment_bytes = 0;
  std::int64_t numel = 0;
  std::int64_t moved = 0;
  for (const RankFigures& rank : result.ranks) {
    moment_bytes += rank.moment_bytes;
    numel += rank.local_numel;
    moved += rank.bytes_moved;
  }
  const auto& saving = result.savings.front();
  return fmt::format(
      kLayout, subject, kNoAdapter, optimizer, topology, policy, dtype,
      milliseconds(results::percentile(result.samples.step_ns, 10)), milliseconds(median),
      milliseconds(results::percentile(result.samples.step_ns, 90)),
      fmt::format("{:.2f}", static_cast<double>(largest(result, &RankFigures::state_bytes)) / kMiB),
      numel > 0
          ? fmt::format("{:.3f}", static_cast<double>(moment_bytes) / static_cast<double>(numel))
          : "n/a",
      saving ? fmt::format("{:.1f} %", 100 * *saving) : "n/a",
      median && *median > 0
          ? fmt::format("{:.1f}", static_cast<double>(moved) / static_cast<double>(*median))
          : "n/a",
      fmt::format("{:.1f}",
                  static_cast<double>(largest(result, &RankFigures::peak_allocated_bytes)) / kMiB),
      local_sizes(result));
}

bool StepReporter::ReportContext(const Context& /*context*/) {
  const auto& options = session_.options;
  std::printf("%s: %s parameters in %zu tensors, %lld ranks, %s, %lld threads a rank, %lld steps\n",
              session_.model.name.c_str(), grouped(session_.model.numel()).c_str(),
              session_.model.parameters.size(),
              static_cast<long long>(session_.communicator.world_size()),
              std::string(topologies::device_name(options.device)).c_str(),
              static_cast<long long>(session_.threads), static_cast<long long>(options.steps));
  std::printf("%s\n", table_header().c_str());
  std::fflush(stdout);
  return true;
}

void StepReporter::ReportRuns(const std::vector<Run>& /*runs*/) {
  for (; printed_ < session_.completed.size(); ++printed_) {
    std::printf("%s\n", table_row(session_.completed[printed_]).c_str());
  }
  std::fflush(stdout);
}

}  // namespace stepscope::bench
