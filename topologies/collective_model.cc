#include "topologies/collective_model.h"

#include <bit>
#include <limits>

#include "core/error.h"

namespace stepscope::topologies {
namespace {

__extension__ using Wide = unsigned __int128;

Wide divided_up(Wide number, Wide by) { return (number + by - 1) / by; }

}  // namespace

std::int64_t predicted_ns(CollectiveKind kind, Algorithm algorithm, const LinkModel& link,
                          const CollectiveTraffic& traffic) {
  if (traffic.ranks < 1 || traffic.calls < 0 || traffic.bytes < 0 || link.latency_ns < 0 ||
      link.bytes_per_s < 1) {
    throw Error("no time can be predicted for these numbers",
                "give at least one rank and a bandwidth of at least 1 B/s");
  }
  if (traffic.ranks == 1) return 0;
  const auto ranks = static_cast<std::uint64_t>(traffic.ranks);
  const Wide others = ranks - 1;
  const Wide rounds =
      algorithm == Algorithm::ring ? others : static_cast<Wide>(std::bit_width(ranks - 1));
  const Wide passes = kind == CollectiveKind::all_reduce ? 2 : 1;
  // A rank hands in its part of an all-gather, and all parts of the other two.
  const Wide parts = kind == CollectiveKind::all_gather ? 1 : ranks;
  constexpr Wide kMost = std::numeric_limits<std::int64_t>::max();
  const auto too_long = [] {
    return Error("the predicted time of a collective does not fit in 64 bits of ns",
                 "ask for fewer ranks, or a faster link");
  };
  // Each factor is below 2^64, so products of two cannot overflow; what is more is refused.
  const Wide messages = passes * rounds * static_cast<Wide>(traffic.calls);
  if (messages > kMost) throw too_long();
  const Wide latency = messages * static_cast<Wide>(link.latency_ns);
  const Wide sent = divided_up(passes * others * static_cast<Wide>(traffic.bytes), parts);
  if (latency > kMost || sent > kMost) throw too_long();
  const Wide transfer = divided_up(sent * 1'000'000'000, static_cast<Wide>(link.bytes_per_s));
  if (latency + transfer > kMost) throw too_long();
  return static_cast<std::int64_t>(latency + transfer);
}

}  // namespace stepscope::topologies
