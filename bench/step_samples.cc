#include "bench/step_samples.h"

#include <algorithm>
#include <cstddef>

namespace stepscope::bench {
namespace {

std::int64_t nanoseconds(StepTimer::Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

}  // namespace

void StepTimer::reserve(std::int64_t steps) {
  own_ns_.reserve(static_cast<std::size_t>(steps));
  start_ns_.reserve(static_cast<std::size_t>(steps));
}

StepTimer::Clock::duration StepTimer::stop() {
  const auto end = Clock::now();
  if (own_ns_.empty()) first_begin_ = begin_;
  own_ns_.push_back(nanoseconds(end - begin_));
  start_ns_.push_back(nanoseconds(begin_ - first_begin_));
  return end - begin_;
}

StepSamples StepTimer::gather(topologies::Communicator& communicator) const {
  StepSamples samples;
  const auto all = communicator.all_gather(own_ns_);
  const auto steps = own_ns_.size();
  const auto world_size = static_cast<std::size_t>(communicator.world_size());
  std::vector<std::int64_t> by_rank(world_size);
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t rank = 0; rank < world_size; ++rank) by_rank[rank] = all[rank * steps + step];
    const auto slowest = std::ranges::max_element(by_rank);
    samples.step_ns.push_back(*slowest);
    samples.slowest_rank.push_back(slowest - by_rank.begin());
    const auto middle = by_rank.begin() + static_cast<std::ptrdiff_t>((world_size - 1) / 2);
    std::ranges::nth_element(by_rank, middle);
    samples.middle_rank_ns.push_back(*middle);
  }
  // Start times are rank 0's on every rank: the clocks of two hosts need not agree.
  const auto starts = communicator.all_gather(start_ns_);
  samples.start_ns.assign(starts.begin(), starts.begin() + static_cast<std::ptrdiff_t>(steps));
  return samples;
}

}  // namespace stepscope::bench
