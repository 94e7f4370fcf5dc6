#pragma once

/// Purpose: the samples of a case: for every timed step the time of the slowest rank.
///
/// Usage:
///     StepTimer timer;
///     communicator.barrier(); timer.start(); work(); timer.stop();   // every step, on every rank
///     const StepSamples samples = timer.gather(communicator);
///
/// Caveats: gather() is collective; every rank has timed as many steps.

#include <chrono>
#include <cstdint>
#include <vector>

#include "topologies/communicator.h"

namespace stepscope::bench {

struct StepSamples {
  std::vector<std::int64_t> step_ns;         ///< max over ranks
  std::vector<std::int64_t> slowest_rank;    ///< the lowest one where several were
  std::vector<std::int64_t> middle_rank_ns;  ///< median over ranks, of two the lower
  std::vector<std::int64_t> start_ns;        ///< since the first step's, by rank 0's clock
};

class StepTimer {
 public:
  using Clock = std::chrono::steady_clock;

  /// Makes room, so that nothing is allocated between the steps.
  void reserve(std::int64_t steps);

  void start() { begin_ = Clock::now(); }

  /// Ends a step. Returns its time on this rank.
  Clock::duration stop();

  StepSamples gather(topologies::Communicator& communicator) const;

 private:
  Clock::time_point begin_, first_begin_;
  std::vector<std::int64_t> own_ns_, start_ns_;
};

}  // namespace stepscope::bench
