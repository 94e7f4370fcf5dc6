#include "bench/kernel_measure.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>

#include "bench/resident_memory.h"
#include "core/error.h"

namespace stepscope::bench {
namespace {

constexpr double kSampleNs = 1e6;
constexpr std::int64_t kMaxStepsASample = 100'000;
/// A step as long as this is a sample by itself and needs no further warm-up: those of torchao and
/// bitsandbytes take seconds.
constexpr double kLongStepNs = 1e8;
/// FP32 copies of the tensor that bitsandbytes' and torchao's CPU steps hold at one time, at most.
constexpr std::int64_t kPeerScratchTensors = 8;
/// OpenMP's threads, which PyTorch uses, spin for some milliseconds after their last work, on cores
/// that the next case needs.
constexpr std::chrono::milliseconds kUntilOpenMpSleeps{10};

/// ns a step.
double time_steps(KernelSubject& subject, std::int64_t steps) {
  return subject.timed_steps(steps) / static_cast<double>(steps);
}

/// How many steps make a sample long enough; also the warm-up.
std::int64_t steps_a_sample(KernelSubject& subject) {
  if (time_steps(subject, 1) >= kLongStepNs) return 1;
  time_steps(subject, 1);
  const double ns = std::max(1.0, time_steps(subject, 3));
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(kSampleNs / ns), 1, kMaxStepsASample);
}

void require_memory(const std::vector<KernelCase>& cases) {
  std::int64_t needed = 0;
  for (const KernelCase& c : cases) {
    const auto bytes = c.tensor_bytes();
    const auto own = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
    // A peer has its tensors in a process of its own, and works in FP32 copies of them.
    needed += is_peer(c.implementation) ? 2 * own + kPeerScratchTensors * 4 * c.numel : own;
  }
  const auto available = available_bytes();
  if (!available || needed < *available - *available / 8) return;
  throw Error("the cases of " + std::to_string(cases.front().numel) + " elements need " +
                  std::to_string(needed) + " bytes at once, and " + std::to_string(*available) +
                  " are free",
              "measure smaller sizes (--sizes) or fewer data types (--dtypes)");
}

struct Entry {
  Entry(const KernelCase& c, kernels::ThreadPool& pool, KernelPeers& peers)
      : tensors(c),
        subject(is_peer(c.implementation) ? peers.make_subject(c) : make_subject(c, tensors, pool)),
        traffic(make_traffic_loop(tensors, pool)) {}
  KernelTensors tensors;
  std::unique_ptr<KernelSubject> subject;
  std::unique_ptr<KernelSubject> traffic;
  std::int64_t traffic_steps = 0;
};

}  // namespace

std::vector<KernelResult> measure_interleaved(const std::vector<KernelCase>& cases,
                                              std::int64_t rounds, kernels::ThreadPool& pool,
                                              KernelPeers& peers) {
  require_memory(cases);
  std::vector<std::unique_ptr<Entry>> entries;
  std::vector<KernelResult> results;
  for (const KernelCase& c : cases) {
    entries.push_back(std::make_unique<Entry>(c, pool, peers));
    Entry& entry = *entries.back();
    KernelResult result;
    result.kernel_case = c;
    result.moved_bytes = c.moved_bytes();
    result.moment_bytes = c.moment_bytes();
    result.steps_a_sample = steps_a_sample(*entry.subject);
    entry.traffic_steps = steps_a_sample(*entry.traffic);
    results.push_back(std::move(result));
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      results[i].step_ns.push_back(time_steps(*entries[i]->subject, results[i].steps_a_sample));
      if (cases[i].implementation != Implementation::native) {
        std::this_thread::sleep_for(kUntilOpenMpSleeps);
      }
      results[i].traffic_ns.push_back(time_steps(*entries[i]->traffic, entries[i]->traffic_steps));
    }
  }
  return results;
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  if (samples.size() % 2 == 1) return samples[middle];
  return (samples[middle - 1] + samples[middle]) / 2;
}

}  // namespace stepscope::bench
