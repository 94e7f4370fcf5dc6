#include "bench/kernel_subject.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>

#include "kernels/cpu_step.h"
#include "kernels/half.h"

namespace stepscope::bench {
namespace {

using kernels::Algorithm;
using kernels::DType;
using kernels::StateFormat;

void fill(void* base, DType dtype, std::int64_t numel, std::uint32_t seed) {
  std::minstd_rand random(seed);
  for (std::int64_t i = 0; i < numel; ++i) {
    // A product of two uniform numbers: many small ones and few large ones, as gradients have.
    const float a = static_cast<float>(random()) * 0x1p-30f - 1.0f;
    const float b = static_cast<float>(random()) * 0x1p-30f - 1.0f;
    const float value = 0.1f * a * b;
    if (dtype == DType::fp32) {
      static_cast<float*>(base)[i] = value;
    } else {
      static_cast<std::uint16_t*>(base)[i] =
          dtype == DType::bf16 ? kernels::float_to_bf16(value) : kernels::float_to_fp16(value);
    }
  }
}

class NativeSubject final : public LocalSubject {
 public:
  NativeSubject(const KernelCase& c, const KernelTensors& tensors, kernels::ThreadPool& pool)
      : algorithm_(algorithm_of(c.optimizer)),
        hyperparameters_(hyperparameters_of(c.optimizer)),
        pool_(pool),
        shard_(shard_of(c, tensors.addresses())) {}

 private:
  void step() override {
    ++shard_.step;
    kernels::step_cpu(pool_, algorithm_, hyperparameters_, {&shard_, 1});
  }

  Algorithm algorithm_;
  kernels::Hyperparameters hyperparameters_;
  kernels::ThreadPool& pool_;
  kernels::ShardTensors shard_;
};

class TorchSubject final : public LocalSubject {
 public:
  TorchSubject(const KernelCase& c, const KernelTensors& tensors, int threads)
      : step_(make_torch_step(c, tensors.addresses(), topologies::Device::cpu)) {
    set_torch_threads(threads);
  }

 private:
  void step() override { step_(); }

  std::function<void()> step_;
};

// One version per width of the registers. Not under ThreadSanitizer: the choice is made before it
// starts.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define STEPSCOPE_CLONED [[gnu::target_clones("avx512f", "avx2", "default")]]
#else
#define STEPSCOPE_CLONED
#endif

/// Reads `grad` and both reads and writes `data`, changing nothing since `zero` is 0, which the
/// compiler must not know.
STEPSCOPE_CLONED
void touch(std::uint64_t* data, std::int64_t words, std::uint64_t zero) noexcept {
  for (std::int64_t i = 0; i < words; ++i) data[i] ^= zero;
}

STEPSCOPE_CLONED
void touch(std::uint64_t* data, const std::uint64_t* read, std::int64_t words,
           std::uint64_t zero) noexcept {
  for (std::int64_t i = 0; i < words; ++i) data[i] ^= read[i] & zero;
}

class TrafficLoop final : public LocalSubject {
 public:
  TrafficLoop(const KernelTensors& tensors, kernels::ThreadPool& pool)
      : tensors_(tensors), pool_(pool) {}

 private:
  static constexpr std::int64_t kPieceWords = 8192;  // 64 KiB of the parameter

  void step() override {
    const std::int64_t param_words = words(0);
    const std::int64_t pieces = std::clamp<std::int64_t>(param_words / kPieceWords, 1, 1 << 20);
    const std::uint64_t zero = zero_;
    std::atomic<std::int64_t> next{0};
    const auto work = [&]() noexcept {
      for (std::int64_t piece = next.fetch_add(1); piece < pieces; piece = next.fetch_add(1)) {
        for (std::size_t i = 0; i < tensors_.buffers().size(); ++i) {
          if (i == 1) continue;  // the gradient is read beside the parameter
          const std::int64_t begin = words(i) * piece / pieces;
          const std::int64_t count = words(i) * (piece + 1) / pieces - begin;
          if (i == 0) {
            touch(base(0) + begin, base(1) + begin, count, zero);
          } else {
            touch(base(i) + begin, count, zero);
          }
        }
      }
    };
    if (pieces == 1) return work();
    pool_.run([&](int) noexcept { work(); });
  }

  std::int64_t words(std::size_t i) const { return tensors_.buffers()[i]->bytes() / 8; }
  std::uint64_t* base(std::size_t i) const {
    return static_cast<std::uint64_t*>(tensors_.buffers()[i]->data());
  }

  const KernelTensors& tensors_;
  kernels::ThreadPool& pool_;
  volatile std::uint64_t zero_ = 0;
};

}  // namespace

double LocalSubject::timed_steps(std::int64_t steps) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < steps; ++i) step();
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

KernelTensors::KernelTensors(const KernelCase& kernel_case) {
  for (const std::int64_t bytes : kernel_case.tensor_bytes()) {
    buffers_.push_back(std::make_unique<HugeBuffer>(bytes));
  }
  fill(buffers_[0]->data(), kernel_case.dtype, kernel_case.numel, 1);
  fill(buffers_[1]->data(), kernel_case.dtype, kernel_case.numel, 2);
}

kernels::Algorithm algorithm_of(KernelOptimizer optimizer) {
  return optimizer == KernelOptimizer::Lion8bit ? Algorithm::Lion : Algorithm::AdamW;
}

kernels::Hyperparameters hyperparameters_of(KernelOptimizer optimizer) {
  kernels::Hyperparameters hyperparameters;
  if (optimizer == KernelOptimizer::Lion8bit) hyperparameters.beta2 = 0.99;
  return hyperparameters;
}

kernels::ShardTensors shard_of(const KernelCase& c, const TensorAddresses& tensors) {
  const bool eight_bit = c.optimizer != KernelOptimizer::AdamW;
  return {.param = tensors.param,
          .grad = tensors.grad,
          .numel = c.numel,
          .dtype = c.dtype,
          .grad_dtype = c.dtype,
          .format = eight_bit ? StateFormat::blockwise_8bit : StateFormat::fp32,
          .state1 = tensors.state1,
          .state2 = tensors.state2,
          .absmax1 = tensors.absmax1,
          .absmax2 = tensors.absmax2,
          .absmax_count = c.tensor_bytes()[4] / 4};
}

std::unique_ptr<KernelSubject> make_subject(const KernelCase& kernel_case,
                                            const KernelTensors& tensors,
                                            kernels::ThreadPool& pool) {
  if (kernel_case.implementation == Implementation::torch) {
    return std::make_unique<TorchSubject>(kernel_case, tensors, pool.size());
  }
  return std::make_unique<NativeSubject>(kernel_case, tensors, pool);
}

std::unique_ptr<KernelSubject> make_traffic_loop(const KernelTensors& tensors,
                                                 kernels::ThreadPool& pool) {
  return std::make_unique<TrafficLoop>(tensors, pool);
}

}  // namespace stepscope::bench
