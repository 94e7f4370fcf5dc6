#include "tracer/local_n.h"

#include <algorithm>
#include <limits>
#include <queue>

namespace stepscope::tracer {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::string plural(std::size_t count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

std::string described(const UpdateSize& update, std::span<const ExpectedTensor> expected) {
  if (!update.low || !update.high) return "an update whose n is not known is one too many";
  if (*update.low != *update.high) {
    return "n from " + std::to_string(*update.low) + " to " + std::to_string(*update.high) +
           " is not in the plan, or once too often";
  }
  const std::string n = "n = " + std::to_string(*update.low);
  if (*update.low == 0) return n + ": an empty shard was stepped";
  bool planned = false;
  for (const ExpectedTensor& tensor : expected) planned = planned || tensor.n == *update.low;
  if (planned) return n + " is there more often than in the plan";
  for (const ExpectedTensor& tensor : expected) {
    if (tensor.whole != *update.low) continue;
    return n + " is the whole of " + tensor.name + ", of which this rank owns " +
           std::to_string(tensor.n);
  }
  return n + " is not in the plan";
}

}  // namespace

SizeVerdict compare_sizes(std::span<const ExpectedTensor> expected,
                          std::span<const UpdateSize> updates) {
  std::vector<const ExpectedTensor*> wanted;
  for (const ExpectedTensor& tensor : expected) {
    if (tensor.n > 0) wanted.push_back(&tensor);
  }
  std::stable_sort(wanted.begin(), wanted.end(),
                   [](const ExpectedTensor* a, const ExpectedTensor* b) { return a->n < b->n; });

  // Each wanted size takes, of the updates that may have it, the one with the least room: this
  // leaves over as few as any assignment does.
  const auto low = [&](std::size_t i) { return updates[i].low.value_or(1); };
  const auto high = [&](std::size_t i) { return updates[i].high.value_or(kMost); };
  std::vector<std::size_t> by_low(updates.size());
  for (std::size_t i = 0; i < by_low.size(); ++i) by_low[i] = i;
  std::stable_sort(by_low.begin(), by_low.end(),
                   [&](std::size_t a, std::size_t b) { return low(a) < low(b); });
  const auto roomier = [&](std::size_t a, std::size_t b) {
    return high(a) != high(b) ? high(a) > high(b) : a > b;
  };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(roomier)> open(roomier);
  std::vector<bool> taken(updates.size());
  std::vector<const ExpectedTensor*> missing;
  std::size_t next = 0;
  for (const ExpectedTensor* tensor : wanted) {
    while (next < by_low.size() && low(by_low[next]) <= tensor->n) open.push(by_low[next++]);
    while (!open.empty() && high(open.top()) < tensor->n) open.pop();
    if (open.empty()) {
      missing.push_back(tensor);
      continue;
    }
    taken[open.top()] = true;
    open.pop();
  }

  SizeVerdict verdict;
  bool exact = true;
  bool known = true;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    exact = exact && low(i) == high(i);
    known = known && updates[i].high.has_value();
    if (!taken[i]) verdict.offenders.push_back(updates[i]);
  }
  if (!verdict.offenders.empty() || !missing.empty()) {
    verdict.status = Status::broken;
    if (!verdict.offenders.empty()) {
      verdict.reason = described(verdict.offenders.front(), expected);
      if (const std::size_t more = verdict.offenders.size() - 1; more > 0) {
        verdict.reason += ", and " + plural(more, "more update") + " that the plan has not";
      }
    }
    if (!missing.empty()) {
      if (!verdict.reason.empty()) verdict.reason += "; ";
      verdict.reason += "no update has n = " + std::to_string(missing.front()->n) + " (" +
                        missing.front()->name + ")";
      if (missing.size() > 1) verdict.reason += ", and " + plural(missing.size() - 1, "more size");
      if (missing.size() > 1)
        verdict.reason += missing.size() == 2 ? " is missing" : " are missing";
    }
  } else if (!exact) {
    verdict.status = Status::unverified;
    verdict.reason = known ? "bounded: the grids allow the plan's sizes, but do not show them"
                           : "the n of some updates is not known; their number is the plan's";
  }
  return verdict;
}

SizeVerdict compare_blocks(std::span<const ExpectedTensor> expected, std::uint32_t event,
                           std::int64_t blocks, std::int64_t block) {
  std::int64_t wanted = 0;
  for (const ExpectedTensor& tensor : expected) {
    wanted += tensor.n / block + (tensor.n % block > 0 ? 1 : 0);
  }
  if (blocks == wanted) {
    return {.status = Status::unverified,
            .reason = "bounded: one kernel steps all tensors, and its " + std::to_string(blocks) +
                      " blocks of " + std::to_string(block) + " are the plan's",
            .offenders = {}};
  }
  return {.status = Status::broken,
          .reason = std::to_string(blocks) + " blocks of " + std::to_string(block) +
                    " are stepped; the plan has " + std::to_string(wanted),
          .offenders = {{.event = event, .low = {}, .high = blocks * block}}};
}

}  // namespace stepscope::tracer
