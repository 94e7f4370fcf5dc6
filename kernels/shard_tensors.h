#pragma once

/// Purpose: the words every optimizer kernel shares: data type, algorithm, state format,
/// hyperparameters, and the tensors of one shard.
///
/// Usage: fill one ShardTensors per parameter shard of a rank, raise `step` by one, hand the whole
/// list to a back end (kernels/cpu_step.h, kernels/cuda/cuda_step.h).
///
/// Caveats: a kernel sees local sizes only. It never learns the global numel, the rank or the world
/// size: which elements a rank owns is the business of topologies/.

#include <cstdint>
#include <string_view>

namespace stepscope::kernels {

/// Elements that share one absmax. The same in bitsandbytes' CPU and CUDA back ends.
inline constexpr std::int64_t kBlockSize = 256;

/// Element type of a parameter and of its gradient.
enum class DType : std::uint8_t { fp32, bf16, fp16 };

/// The update rule; `AdamW` is Adam with decoupled weight decay.
enum class Algorithm : std::uint8_t { AdamW, Lion };

/// How the moments are stored.
enum class StateFormat : std::uint8_t {
  blockwise_8bit,  ///< one uint8 code an element, one float32 absmax a block of 256
  fp32,            ///< one float32 an element
};

/// Hyperparameters of a step, in double as Python holds them; each arithmetic states how it rounds
/// them.
struct Hyperparameters {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;  ///< unused by Lion
  double weight_decay = 0.01;
};

/// The tensors of one shard. Pointers are to host or device memory, as the back end says. All are
/// contiguous and must not overlap. `numel` = 0 is allowed: nothing is read, written or launched.
/// A pointer says nothing about what it points to, so the gradient's type and the number of
/// absmaxes are told as well: kernels/validate.h refuses those that do not go with the rest.
struct ShardTensors {
  void* param = nullptr;       ///< numel elements of `dtype`, updated in place
  const void* grad = nullptr;  ///< numel elements of `grad_dtype`
  std::int64_t numel = 0;      ///< local n
  DType dtype = DType::fp32;
  DType grad_dtype = DType::fp32;  ///< the same: no kernel converts a gradient
  StateFormat format = StateFormat::blockwise_8bit;
  std::int64_t step = 0;          ///< this step's number, counted from 1
  void* state1 = nullptr;         ///< first moment: numel codes (uint8) or numel float32
  void* state2 = nullptr;         ///< second moment, likewise; null for Lion
  float* absmax1 = nullptr;       ///< ceil(numel / 256) float32; null for fp32 state
  float* absmax2 = nullptr;       ///< likewise; null for Lion and for fp32 state
  std::int64_t absmax_count = 0;  ///< of each of the two: ceil(numel / 256), or 0 for fp32 state
};

/// Bytes of one element of `dtype`.
constexpr std::int64_t element_bytes(DType dtype) { return dtype == DType::fp32 ? 4 : 2; }

/// "fp32", "bf16" or "fp16".
constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::fp16:
      return "fp16";
  }
  return "of no known type";
}

/// Blocks that cover `numel` elements: ceil(numel / 256). No overflow for any numel >= 0.
constexpr std::int64_t block_count(std::int64_t numel) {
  return numel / kBlockSize + (numel % kBlockSize != 0 ? 1 : 0);
}

}  // namespace stepscope::kernels
