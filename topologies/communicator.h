#pragma once

/// Purpose: the collectives between the ranks of a job, behind one interface, and the rule by which
/// ranks decide errors together.
///
/// Usage:
///     auto communicator = connect_gloo(rendezvous_from_environment(), timeouts);
///     together(*communicator, [&] { allocate(); });   // every rank throws if one rank did
///     communicator->all_gather_into(DType::bf16, shard, numel, whole);
///     auto shard_group = communicator->split(rank / shards);   // hsdp: ranks of one replica
///
/// Caveats: every rank must make the same calls in the same order. Each call throws CollectiveError
/// when a peer is gone or does not arrive within the timeout; after that neither the communicator
/// nor those split from it may be used again. Numbers and texts are in host memory; what
/// all_to_all, all_gather_into, reduce_scatter, all_reduce and broadcast point to is memory of the
/// communicator's device: host memory for Gloo, the rank's GPU for NCCL (connect.h).

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/shard_tensors.h"
#include "topologies/rendezvous.h"

namespace stepscope::topologies {

/// What a reduction makes of the ranks' elements, in their own data type. `mean` is c10d's AVG: the
/// sum, divided once.
enum class Reduction { sum, mean };

/// A collective failed: the ranks can decide nothing together any more.
class CollectiveError : public Error {
 public:
  using Error::Error;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::int64_t rank() const = 0;
  virtual std::int64_t world_size() const = 0;

  /// Returns when every rank has called it.
  virtual void barrier() = 0;

  /// `mine` of every rank, in rank order: world_size() * mine.size() numbers. `mine` has the same
  /// length on every rank.
  virtual std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine) = 0;

  /// `mine` of every rank, in rank order; lengths may differ.
  virtual std::vector<std::string> all_gather_text(const std::string& mine) = 0;

  /// Sends to every rank its part of `send` and receives one part from each into `receive`, both in
  /// rank order without gaps. `send_bytes[r]` and `receive_bytes[r]` are the sizes of the parts to
  /// and from rank r; what one rank sends another must expect.
  virtual void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                          std::span<std::byte> receive,
                          std::span<const std::int64_t> receive_bytes) = 0;

  /// Writes `mine` (`numel` elements, as many on every rank) of all ranks to `all`, in rank order:
  /// world_size() * numel elements.
  virtual void all_gather_into(kernels::DType dtype, const void* mine, std::int64_t numel,
                               void* all) = 0;

  /// Reduces `all` (world_size() * numel elements, rank r's part at r * numel) over the ranks and
  /// writes the caller's part, `numel` elements, to `mine`.
  virtual void reduce_scatter(kernels::DType dtype, Reduction reduction, const void* all,
                              std::int64_t numel, void* mine) = 0;

  /// Reduces `data` (`numel` elements) over the ranks in place.
  virtual void all_reduce(kernels::DType dtype, Reduction reduction, void* data,
                          std::int64_t numel) = 0;

  /// Overwrites `data` (`numel` elements) with that of rank `root`.
  virtual void broadcast(kernels::DType dtype, std::int64_t root, void* data,
                         std::int64_t numel) = 0;

  /// A communicator between the ranks that give the same `group` (at least 0), in the order they
  /// have here. Collective. Its Errors name ranks by their numbers in the whole job.
  virtual std::unique_ptr<Communicator> split(std::int64_t group) = 0;
};

struct Timeouts {
  /// How long a rank waits for the others to appear.
  std::chrono::milliseconds rendezvous = std::chrono::seconds(30);
  /// How long a rank waits inside one collective.
  std::chrono::milliseconds collective = std::chrono::seconds(25);
};

/// Meets the other ranks and connects to them with c10d's Gloo. Throws Error naming the address,
/// the port or the rank that did not arrive.
std::unique_ptr<Communicator> connect_gloo(const Rendezvous& rendezvous, const Timeouts& timeouts);

/// The largest `value` over the ranks.
std::int64_t max_over_ranks(Communicator& communicator, std::int64_t value);

/// Runs `body` on every rank and returns, on every rank, the Error of the lowest rank on which it
/// threw; nothing when it did on none. A CollectiveError of `body` is thrown at once, as there is
/// no asking the others then.
std::optional<Error> first_failure(Communicator& communicator, const std::function<void()>& body);

/// As first_failure, and throws that Error, so that no rank is left waiting in a later collective.
void together(Communicator& communicator, const std::function<void()>& body);

/// Checks that every rank holds the same `text` (lines "key=value"). Throws the same Error on every
/// rank, naming the first line that differs and the two ranks.
void require_same(Communicator& communicator, const std::string& text);

}  // namespace stepscope::topologies
