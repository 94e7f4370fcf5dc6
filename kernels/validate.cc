#include "kernels/validate.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "core/error.h"

namespace stepscope::kernels {
namespace {

void check_number(const char* name, double value, double low, double below) {
  // The arithmetic casts to float32, so what overflows there is as bad as an infinity.
  const bool fits = std::isfinite(value) && std::isfinite(static_cast<float>(value));
  if (fits && value >= low && value < below) return;
  const std::string range =
      below <= 1.0 ? "at least 0 and below 1" : "finite in float32 and at least 0";
  throw Error(std::string(name) + " is " + std::to_string(value), "it must be " + range);
}

/// One tensor of the shard: an address range that must hold `bytes`.
struct Range {
  const char* name;
  std::uintptr_t begin;
  std::uintptr_t bytes;
};

Range checked_range(const char* name, const void* pointer, std::int64_t count,
                    std::int64_t element_size) {
  if (pointer == nullptr) {
    throw Error(std::string(name) + " is null for a shard of " + std::to_string(count) +
                    " elements or blocks",
                "allocate it, or pass numel 0");
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  if (begin % static_cast<std::uintptr_t>(element_size) != 0) {
    throw Error(std::string(name) + " is not aligned to its element size of " +
                    std::to_string(element_size) + " bytes",
                "pass a pointer to whole elements of the shard's dtype");
  }
  const auto bytes = static_cast<std::uintptr_t>(count) * static_cast<std::uintptr_t>(element_size);
  if (bytes > std::numeric_limits<std::uintptr_t>::max() - begin) {
    throw Error(std::string(name) + " of " + std::to_string(count) +
                    " elements ends beyond the address space",
                "check numel");
  }
  return {name, begin, bytes};
}

void check_absent(const char* name, const void* pointer) {
  if (pointer == nullptr) return;
  throw Error(std::string(name) + " is given, and this algorithm and state format have none",
              "pass null, or check the shard's format");
}

}  // namespace

void validate(const Hyperparameters& h) {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  check_number("the learning rate", h.learning_rate, 0.0, kAny);
  check_number("beta1", h.beta1, 0.0, 1.0);
  check_number("beta2", h.beta2, 0.0, 1.0);
  check_number("epsilon", h.epsilon, 0.0, kAny);
  check_number("weight decay", h.weight_decay, 0.0, kAny);
}

void validate(Algorithm algorithm, const Hyperparameters& hyperparameters,
              const ShardTensors& shard) {
  validate(hyperparameters);
  if (shard.step < 1) {
    throw Error("the step is " + std::to_string(shard.step),
                "steps count from 1: raise the step before the update");
  }
  if (shard.numel < 0 || shard.numel > std::numeric_limits<std::int64_t>::max() / 8) {
    throw Error("numel is " + std::to_string(shard.numel), "pass the shard's local numel");
  }
  if (shard.numel == 0) return;
  if (shard.grad_dtype != shard.dtype) {
    throw Error("the parameter is " + std::string(dtype_name(shard.dtype)) + " and its gradient " +
                    std::string(dtype_name(shard.grad_dtype)),
                "convert the gradient: no kernel steps a mixed pair");
  }

  const bool eight_bit = shard.format == StateFormat::blockwise_8bit;
  const std::int64_t blocks = block_count(shard.numel);
  if (shard.absmax_count != (eight_bit ? blocks : 0)) {
    throw Error("the state has " + std::to_string(shard.absmax_count) + " absmaxes, and " +
                    std::to_string(shard.numel) + " elements with " +
                    (eight_bit ? "8-bit state have " + std::to_string(blocks)
                               : std::string("float32 state have none")),
                "one absmax a block of 256: make or load the state for this numel");
  }
  const bool two_states = algorithm == Algorithm::AdamW;
  const std::int64_t state_size = eight_bit ? 1 : 4;
  Range ranges[6];
  int count = 0;
  ranges[count++] = checked_range("param", shard.param, shard.numel, element_bytes(shard.dtype));
  ranges[count++] = checked_range("grad", shard.grad, shard.numel, element_bytes(shard.dtype));
  ranges[count++] = checked_range("state1", shard.state1, shard.numel, state_size);
  if (two_states) {
    ranges[count++] = checked_range("state2", shard.state2, shard.numel, state_size);
  } else {
    check_absent("state2", shard.state2);
  }
  if (eight_bit) {
    ranges[count++] = checked_range("absmax1", shard.absmax1, blocks, 4);
  } else {
    check_absent("absmax1", shard.absmax1);
  }
  if (eight_bit && two_states) {
    ranges[count++] = checked_range("absmax2", shard.absmax2, blocks, 4);
  } else {
    check_absent("absmax2", shard.absmax2);
  }
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j < i; ++j) {
      const bool apart = ranges[i].begin >= ranges[j].begin + ranges[j].bytes ||
                         ranges[j].begin >= ranges[i].begin + ranges[i].bytes;
      if (!apart) {
        throw Error(std::string(ranges[j].name) + " and " + ranges[i].name + " overlap in memory",
                    "give every tensor of a shard its own memory");
      }
    }
  }
}

}  // namespace stepscope::kernels
