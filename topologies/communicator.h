#pragma once

/// Purpose: the collectives between the ranks of a job, behind one interface, and the rule by which
/// ranks decide errors together.
///
/// Usage:
///     auto communicator = connect_gloo(rendezvous_from_environment(), timeouts);
///     together(*communicator, [&] { allocate(); });   // every rank throws if one rank did
///
/// Caveats: every rank must make the same calls in the same order. Each call throws Error when a
/// peer is gone or does not arrive within the timeout; after that the communicator must not be used
/// again.

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
#include "topologies/rendezvous.h"

namespace stepscope::topologies {

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
/// threw; nothing when it did on none.
std::optional<Error> first_failure(Communicator& communicator, const std::function<void()>& body);

/// As first_failure, and throws that Error, so that no rank is left waiting in a later collective.
void together(Communicator& communicator, const std::function<void()>& body);

/// Checks that every rank holds the same `text` (lines "key=value"). Throws the same Error on every
/// rank, naming the first line that differs and the two ranks.
void require_same(Communicator& communicator, const std::string& text);

}  // namespace stepscope::topologies
