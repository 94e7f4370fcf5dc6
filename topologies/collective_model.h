#pragma once

/// Purpose: what the collectives of a step would take on paper, for world sizes that nobody has at
/// hand. Every figure is a prediction of a stated model; nothing here was measured.
///
/// Usage:
///     predicted_ns(CollectiveKind::all_gather, Algorithm::ring, link, traffic.all_gather);
///
/// The model is alpha-beta (Hockney; collectives as in Thakur, Rabenseifner and Gropp,
/// "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005): a message
/// of b bytes takes alpha + b / B. With p ranks, and m bytes that a rank hands in:
///
///     collective       messages, ring   messages, tree      bytes a rank sends
///     all-gather       p - 1            ceil(log2 p)        (p - 1) m
///     reduce-scatter   p - 1            ceil(log2 p)        (p - 1) m / p
///     all-reduce       2 (p - 1)        2 ceil(log2 p)      2 (p - 1) m / p
///
/// tree is recursive doubling and halving; an all-reduce is a reduce-scatter and an all-gather.
///
/// Caveats: one kind of link for all messages, calls one after another, nothing overlaps with
/// computing, no contention, no slow rank, no time for adding up, and without the exchange of cut
/// blocks. So it shows how calls and bytes
/// grow with the world size, and which of the two decides; a real step may take a multiple, or
/// less where it overlaps.

#include <cstdint>

#include "topologies/collective_kind.h"
#include "topologies/unit_traffic.h"

namespace stepscope::topologies {

enum class Algorithm { ring, tree };

/// The link of every message.
struct LinkModel {
  /// alpha. The default is of the order that a tuner of NCCL assumes for a hop through a network
  /// (aws-ofi-nccl: 19.8 us for a ring); within a node it is a fifth of that.
  std::int64_t latency_ns = 20'000;
  /// B, of one rank in one direction. The default is one 400 Gbit/s network card a rank.
  std::int64_t bytes_per_s = 50'000'000'000;
};

/// Predicted ns of all calls of `traffic`, one after another; each term rounded up. 0 in a group of
/// one, which sends nothing. Throws Error where a number is negative, a group has no rank or a link
/// no bandwidth, and where the result does not fit in 64 bits.
std::int64_t predicted_ns(CollectiveKind kind, Algorithm algorithm, const LinkModel& link,
                          const CollectiveTraffic& traffic);

}  // namespace stepscope::topologies
