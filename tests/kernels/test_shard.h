#pragma once

/// Purpose: a shard in host memory for tests: random or given contents, any placement, and guard
/// bytes that show a write outside of a tensor.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/half.h"
#include "kernels/shard_tensors.h"

namespace stepscope::kernels {

/// Memory for one tensor, `shift` elements past a 64-byte border, between guard bytes.
class TestTensor {
 public:
  TestTensor(std::size_t elements, std::size_t element_bytes, std::size_t shift)
      : bytes_(elements * element_bytes),
        storage_(bytes_ + 3 * kGuard + shift * element_bytes, kFill) {
    const auto base = reinterpret_cast<std::uintptr_t>(storage_.data());
    offset_ = (kGuard + 63) / 64 * 64 + (64 - base % 64) % 64 + shift * element_bytes;
    for (std::size_t i = 0; i < bytes_; ++i) data()[i] = 0;
  }

  unsigned char* data() { return storage_.data() + offset_; }
  const unsigned char* data() const { return storage_.data() + offset_; }
  std::size_t bytes() const { return bytes_; }

  bool guards_are_whole() const {
    for (std::size_t i = 0; i < storage_.size(); ++i) {
      const bool inside = i >= offset_ && i < offset_ + bytes_;
      if (!inside && storage_[i] != kFill) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kFill = 0xa5;
  std::size_t bytes_;
  std::vector<unsigned char> storage_;
  std::size_t offset_ = 0;
};

/// A shard that owns its tensors. Copies have their own memory at the same placement.
class TestShard {
 public:
  TestShard(Algorithm algorithm, DType dtype, StateFormat format, std::int64_t numel,
            std::size_t shift = 0)
      : dtype_(dtype),
        format_(format),
        numel_(numel),
        adamw_(algorithm == Algorithm::AdamW),
        param_(size(numel), width(dtype), shift),
        grad_(size(numel), width(dtype), shift),
        state1_(size(numel), state_width(format), shift),
        state2_(adamw_ ? size(numel) : 0, state_width(format), shift),
        absmax1_(eight_bit() ? size(block_count(numel)) : 0, 4, shift),
        absmax2_(eight_bit() && adamw_ ? size(block_count(numel)) : 0, 4, shift) {}

  ShardTensors tensors(std::int64_t step) {
    const auto floats = [](TestTensor& t) {
      return t.bytes() == 0 ? nullptr : reinterpret_cast<float*>(t.data());
    };
    return {.param = param_.data(),
            .grad = grad_.data(),
            .numel = numel_,
            .dtype = dtype_,
            .grad_dtype = dtype_,
            .format = format_,
            .step = step,
            .state1 = state1_.data(),
            .state2 = adamw_ ? state2_.data() : nullptr,
            .absmax1 = floats(absmax1_),
            .absmax2 = floats(absmax2_),
            .absmax_count = eight_bit() ? block_count(numel_) : 0};
  }

  float param(std::int64_t i) const { return get(param_, i); }
  void set_param(std::int64_t i, float value) { set(param_, i, value); }
  void set_grad(std::int64_t i, float value) { set(grad_, i, value); }
  std::uint8_t code1(std::int64_t i) const { return state1_.data()[i]; }
  std::uint8_t code2(std::int64_t i) const { return state2_.data()[i]; }
  float absmax1(std::int64_t block) const { return number(absmax1_, block); }
  float absmax2(std::int64_t block) const { return number(absmax2_, block); }

  void fill(float param, float grad) {
    for (std::int64_t i = 0; i < numel_; ++i) {
      set_param(i, param);
      set_grad(i, grad);
    }
  }

  /// Parameters and states of a run that has gone on for a while.
  void randomize(std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < numel_; ++i) set_param(i, normal(random));
    randomize_grad(random);
    for (std::size_t i = 0; i < state1_.bytes(); ++i) {
      if (eight_bit()) state1_.data()[i] = static_cast<unsigned char>(random());
    }
    for (std::size_t i = 0; i < state2_.bytes(); ++i) {
      if (eight_bit()) state2_.data()[i] = static_cast<unsigned char>(random());
    }
    if (!eight_bit()) {
      for (std::int64_t i = 0; i < numel_; ++i) {
        put(state1_, i, 0.1f * normal(random));
        if (adamw_) put(state2_, i, 0.01f * normal(random) * normal(random));
        if (adamw_ && number(state2_, i) < 0) put(state2_, i, -number(state2_, i));
      }
    }
    for (std::size_t i = 0; i < absmax1_.bytes() / 4; ++i) {
      const bool fresh = random() % 8 == 0;  // a block that no gradient has reached yet
      const auto at = static_cast<std::int64_t>(i);
      put(absmax1_, at, fresh ? 0.0f : std::exp2(4.0f * normal(random)));
      if (adamw_) put(absmax2_, at, fresh ? 0.0f : std::exp2(8.0f * normal(random)));
    }
  }

  /// Gradients over many magnitudes, with exact zeros of both signs and blocks of zeros.
  void randomize_grad(std::mt19937& random) {
    std::normal_distribution<float> normal;
    bool zeros = false;
    for (std::int64_t i = 0; i < numel_; ++i) {
      if (i % kBlockSize == 0) zeros = random() % 6 == 0;
      float value = normal(random) * std::exp2(3.0f * normal(random));
      if (random() % 11 == 0) value = 0.0f;
      if (random() % 97 == 0) value = -0.0f;
      set_grad(i, zeros ? 0.0f : value);
    }
  }

  /// One line about the first difference, or empty when every byte of the results is the same.
  /// NaN payloads count in bf16 parameters, where they are stated (kernels/half.h), and nowhere
  /// else.
  std::string difference(const TestShard& other) const {
    const std::pair<const char*, std::pair<const TestTensor*, const TestTensor*>> pairs[] = {
        {"param", {&param_, &other.param_}},       {"grad", {&grad_, &other.grad_}},
        {"state1", {&state1_, &other.state1_}},    {"state2", {&state2_, &other.state2_}},
        {"absmax1", {&absmax1_, &other.absmax1_}}, {"absmax2", {&absmax2_, &other.absmax2_}}};
    for (const auto& [name, tensors] : pairs) {
      if (std::memcmp(tensors.first->data(), tensors.second->data(), tensors.first->bytes()) == 0) {
        continue;
      }
      const bool is_param = tensors.first == &param_;
      const bool codes = eight_bit() && (tensors.first == &state1_ || tensors.first == &state2_);
      const auto step =
          is_param || tensors.first == &grad_ ? width(dtype_) : std::size_t{codes ? 1u : 4u};
      for (std::size_t i = 0; i < tensors.first->bytes() / step; ++i) {
        const auto at = static_cast<std::int64_t>(i);
        if (std::memcmp(tensors.first->data() + i * step, tensors.second->data() + i * step,
                        step) == 0) {
          continue;
        }
        const float a = codes ? 0.0f : (is_param ? param(at) : number(*tensors.first, at));
        const float b = codes ? 0.0f : (is_param ? other.param(at) : number(*tensors.second, at));
        const bool stated = codes || (is_param && dtype_ == DType::bf16);
        if (!stated && std::isnan(a) && std::isnan(b)) continue;
        return std::string(name) + " differs at element " + std::to_string(i) + ": " +
               (codes ? std::to_string(tensors.first->data()[i]) + " and " +
                            std::to_string(tensors.second->data()[i])
                      : std::to_string(a) + " and " + std::to_string(b));
      }
    }
    return {};
  }

  bool guards_are_whole() const {
    return param_.guards_are_whole() && grad_.guards_are_whole() && state1_.guards_are_whole() &&
           state2_.guards_are_whole() && absmax1_.guards_are_whole() && absmax2_.guards_are_whole();
  }

 private:
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
  static std::size_t width(DType dtype) { return static_cast<std::size_t>(element_bytes(dtype)); }
  static std::size_t state_width(StateFormat format) {
    return format == StateFormat::blockwise_8bit ? 1 : 4;
  }
  bool eight_bit() const { return format_ == StateFormat::blockwise_8bit; }

  static float number(const TestTensor& tensor, std::int64_t i) {
    float value = 0;
    std::memcpy(&value, tensor.data() + 4 * size(i), 4);
    return value;
  }
  static void put(TestTensor& tensor, std::int64_t i, float value) {
    std::memcpy(tensor.data() + 4 * size(i), &value, 4);
  }

  float get(const TestTensor& tensor, std::int64_t i) const {
    if (dtype_ == DType::fp32) return number(tensor, i);
    std::uint16_t bits = 0;
    std::memcpy(&bits, tensor.data() + 2 * size(i), 2);
    return dtype_ == DType::bf16 ? bf16_to_float(bits) : fp16_to_float(bits);
  }

  void set(TestTensor& tensor, std::int64_t i, float value) {
    if (dtype_ == DType::fp32) return put(tensor, i, value);
    const std::uint16_t bits = dtype_ == DType::bf16 ? float_to_bf16(value) : float_to_fp16(value);
    std::memcpy(tensor.data() + 2 * size(i), &bits, 2);
  }

  DType dtype_;
  StateFormat format_;
  std::int64_t numel_;
  bool adamw_;
  TestTensor param_, grad_, state1_, state2_, absmax1_, absmax2_;
};

inline std::string describe(Algorithm algorithm, DType dtype, StateFormat format,
                            std::int64_t numel) {
  const char* dtypes[] = {"fp32", "bf16", "fp16"};
  return std::string(algorithm == Algorithm::AdamW ? "AdamW" : "Lion") +
         (format == StateFormat::blockwise_8bit ? " 8-bit " : " fp32-state ") +
         dtypes[static_cast<int>(dtype)] + " n=" + std::to_string(numel);
}

}  // namespace stepscope::kernels
