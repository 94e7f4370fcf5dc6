#pragma once

/// Purpose: the turns that the ranks of this build take with those of another build on the same
/// host, so that both see the same phase of a noisy machine.
///
/// Usage:
///     Turns turns(communicator, options, timeout);         // no --baton: every call is free
///     turns.meet(what_is_measured);                        // throws where the builds differ
///     turns.begin(); ... all ranks work ... turns.end();
///     turns.finish();
///
/// Caveats: every call is collective. While the other build has its turn, the ranks sleep in a
/// collective of this build, again and again for a part of the communicator's timeout, so that none
/// runs into it. A failure of the link is the same Error on every rank.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "bench/baton.h"
#include "topologies/communicator.h"

namespace stepscope::bench {

struct TurnOptions {
  BatonOptions baton;
  std::int64_t steps = 10;   ///< timed steps in a turn
  std::int64_t dropped = 2;  ///< steps before them in every turn: the caches were the other build's
  std::chrono::milliseconds timeout = std::chrono::seconds(300);

  bool taken() const { return !baton.socket.empty(); }
};

class Turns {
 public:
  /// `collective` is the communicator's timeout. Returns when the partner is there; throws Error
  /// when it is not within the options' timeout.
  Turns(topologies::Communicator& communicator, const TurnOptions& options,
        std::chrono::milliseconds collective);

  /// Tells the partner what this build measures (lines "key=value") and throws Error, in both
  /// builds, unless the partner measures the same: it names the first line that differs.
  void meet(const std::string& measured);

  /// Returns when the partner has reached its call of the same number.
  void synchronize();

  /// Returns when it is this build's turn.
  void begin();

  /// Ends the turn once every rank has called it.
  void end();

  /// Tells the partner that this build needs no more turns.
  void finish();

  bool taken() const { return options_.taken(); }
  const TurnOptions& options() const { return options_; }

  /// Names the pair: the same text in both builds, and in no other pair. Empty without turns.
  const std::string& pair() const { return pair_; }

 private:
  std::string exchange(const std::string& mine);

  topologies::Communicator& communicator_;
  TurnOptions options_;
  std::chrono::milliseconds slice_;
  std::unique_ptr<Baton> baton_;  ///< on rank 0
  std::string pair_;
};

}  // namespace stepscope::bench
