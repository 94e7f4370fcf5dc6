// What only a GPU can show: the CUDA back end against the scalar oracle bit for bit, CUDA graphs,
// more than 2^31 elements, and parity with bitsandbytes' own kernels. Every test skips where there
// is no GPU.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/bitsandbytes_abi.h"
#include "kernels/bnb_cuda_reference.h"
#include "kernels/code_tables.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_step.h"
#include "kernels/cuda/device_info.h"
#include "kernels/element.h"

namespace stepscope::kernels::cuda {
namespace {

#define CUDA_OK(call) STEPSCOPE_CUDA_CHECK(call, -1)

using Bytes = std::vector<std::byte>;

/// Device memory with a copy of `host` in it, `offset` bytes behind its start.
class DeviceCopy {
 public:
  explicit DeviceCopy(std::int64_t bytes, std::int64_t offset = 0) : offset_(offset) {
    CUDA_OK(
        cudaMalloc(&base_, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1) + offset)));
  }
  ~DeviceCopy() { static_cast<void>(cudaFree(base_)); }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  void* get() const { return static_cast<char*>(base_) + offset_; }
  void upload(const Bytes& host) const {
    CUDA_OK(cudaMemcpy(get(), host.data(), host.size(), cudaMemcpyHostToDevice));
  }
  void download(Bytes& host) const {
    CUDA_OK(cudaMemcpy(host.data(), get(), host.size(), cudaMemcpyDeviceToHost));
  }

 private:
  void* base_ = nullptr;
  std::int64_t offset_;
};

enum Part { kParam, kGrad, kState1, kState2, kAbsmax1, kAbsmax2, kParts };
constexpr const char* kPartNames[] = {"param", "grad", "state1", "state2", "absmax1", "absmax2"};

/// One shard on the host and, with the same contents, on the device.
class Shard {
 public:
  Shard(Algorithm algorithm, std::int64_t numel, DType dtype, StateFormat format,
        std::int64_t offset, std::int64_t step)
      : algorithm_(algorithm), numel_(numel), dtype_(dtype), format_(format), step_(step) {
    for (int part = 0; part < kParts; ++part) {
      const std::int64_t size = element_size(part);
      host_[part].resize(static_cast<std::size_t>(size * count(part)));
      if (size > 0) device_[part] = std::make_unique<DeviceCopy>(size * count(part), size * offset);
    }
  }

  /// Bytes of one value of a part; 0 where the shard has no such part.
  std::int64_t element_size(int part) const {
    const bool two = algorithm_ == Algorithm::AdamW;
    const bool codes = format_ == StateFormat::blockwise_8bit;
    switch (part) {
      case kParam:
      case kGrad:
        return element_bytes(dtype_);
      case kState1:
        return codes ? 1 : 4;
      case kState2:
        return two ? (codes ? 1 : 4) : 0;
      case kAbsmax1:
        return codes ? 4 : 0;
      default:
        return two && codes ? 4 : 0;
    }
  }
  std::int64_t count(int part) const {
    return part == kAbsmax1 || part == kAbsmax2 ? block_count(numel_) : numel_;
  }

  /// `wild`: with gradients of Inf.
  template <class Random>
  void randomize(Random& random, bool wild) {
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> exponent(-20.0f, 3.0f);
    std::uniform_int_distribution<int> code(0, 255);
    for (int part = 0; part < kParts; ++part) {
      const std::int64_t size = element_size(part);
      for (std::int64_t i = 0; size > 0 && i < count(part); ++i) {
        const bool state_code = size == 1;
        float x = normal(random);
        if (part == kGrad) x *= std::exp2(exponent(random));
        if (part == kGrad && i % 97 == 5) x = 0.0f;
        if (part == kGrad && wild && i % 1009 == 77) x = std::numeric_limits<float>::infinity();
        if (part == kState2) x = std::abs(x) * 1e-3f;
        if (part >= kAbsmax1) x = std::exp2(exponent(random));
        store(part, i, state_code ? static_cast<float>(code(random)) : x);
      }
    }
    upload();
  }

  void upload() const {
    for (int part = 0; part < kParts; ++part) {
      if (device_[part] && !host_[part].empty()) device_[part]->upload(host_[part]);
    }
  }

  ShardTensors on_host() {
    return tensors([&](int part) -> void* { return host_[part].data(); });
  }
  ShardTensors on_device() const {
    return tensors([&](int part) -> void* { return device_[part]->get(); });
  }

  void step_on_host(const Hyperparameters& h) {
    step_bnb_cuda_reference(algorithm_, h, on_host());
    ++step_;
  }

  /// What differs between device and host, bit for bit but for NaN; empty if nothing.
  std::string difference() const {
    for (int part = 0; part < kParts; ++part) {
      if (!device_[part] || host_[part].empty()) continue;
      Bytes found(host_[part].size());
      device_[part]->download(found);
      for (std::int64_t i = 0; i < count(part); ++i) {
        const float mine = load(host_[part], part, i);
        const float theirs = load(found, part, i);
        const bool same = float_bits(mine) == float_bits(theirs);
        if (!same && !(std::isnan(mine) && std::isnan(theirs))) {
          return std::string(kPartNames[part]) + "[" + std::to_string(i) + "] of " +
                 std::to_string(numel_) + ": " + std::to_string(theirs) + " on the device, " +
                 std::to_string(mine) + " wanted";
        }
      }
    }
    return {};
  }

  /// The device's values of a part.
  std::vector<float> values(int part) const {
    Bytes found(host_[part].size());
    device_[part]->download(found);
    std::vector<float> result;
    for (std::int64_t i = 0; i < count(part); ++i) result.push_back(load(found, part, i));
    return result;
  }

 private:
  template <class Address>
  ShardTensors tensors(Address address) const {
    const auto part = [&](int p) { return device_[p] ? address(p) : nullptr; };
    return {.param = part(kParam),
            .grad = part(kGrad),
            .numel = numel_,
            .dtype = dtype_,
            .grad_dtype = dtype_,
            .format = format_,
            .step = step_,
            .state1 = part(kState1),
            .state2 = part(kState2),
            .absmax1 = static_cast<float*>(part(kAbsmax1)),
            .absmax2 = static_cast<float*>(part(kAbsmax2)),
            .absmax_count = format_ == StateFormat::fp32 ? 0 : block_count(numel_)};
  }

  bool is_half(int part) const { return part <= kGrad && dtype_ != DType::fp32; }

  void store(int part, std::int64_t i, float x) {
    std::byte* const at = host_[part].data() + i * element_size(part);
    if (element_size(part) == 1) {
      *at = static_cast<std::byte>(x);
    } else if (is_half(part)) {
      const std::uint16_t bits =
          dtype_ == DType::bf16 ? Element<DType::bf16>::round(x) : Element<DType::fp16>::round(x);
      std::memcpy(at, &bits, 2);
    } else {
      std::memcpy(at, &x, 4);
    }
  }
  float load(const Bytes& bytes, int part, std::int64_t i) const {
    const std::byte* const at = bytes.data() + i * element_size(part);
    if (element_size(part) == 1) return static_cast<float>(*at);
    if (is_half(part)) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, at, 2);
      return dtype_ == DType::bf16 ? Element<DType::bf16>::to_float(bits)
                                   : Element<DType::fp16>::to_float(bits);
    }
    float x = 0;
    std::memcpy(&x, at, 4);
    return x;
  }

  Algorithm algorithm_;
  std::int64_t numel_;
  DType dtype_;
  StateFormat format_;
  std::int64_t step_;
  Bytes host_[kParts];
  std::unique_ptr<DeviceCopy> device_[kParts];
};

using Shards = std::vector<std::unique_ptr<Shard>>;

/// The same numbers in every run.
std::mt19937 seeded(unsigned seed) { return std::mt19937(seed); }

Shards random_shards(Algorithm algorithm, const std::vector<std::int64_t>& sizes,
                     std::int64_t offset = 0, bool wild = true) {
  std::mt19937 random = seeded(42);
  Shards shards;
  for (const std::int64_t numel : sizes) {
    for (const auto dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      for (const auto format : {StateFormat::blockwise_8bit, StateFormat::fp32}) {
        const auto step = static_cast<std::int64_t>(1 + shards.size() * 7);
        shards.push_back(std::make_unique<Shard>(algorithm, numel, dtype, format, offset, step));
        shards.back()->randomize(random, wild);
      }
    }
  }
  return shards;
}

std::vector<ShardTensors> device_tensors(const Shards& shards) {
  std::vector<ShardTensors> tensors;
  for (const auto& shard : shards) tensors.push_back(shard->on_device());
  return tensors;
}

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no CUDA device";
    CUDA_OK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  void TearDown() override {
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  }
  void expect_equal(const Shards& shards) {
    CUDA_OK(cudaStreamSynchronize(stream_));
    for (const auto& shard : shards) ASSERT_EQ(shard->difference(), "");
  }

  Hyperparameters hyperparameters_{.learning_rate = 1e-2, .beta2 = 0.99, .weight_decay = 0.1};
  cudaStream_t stream_ = nullptr;
};

class GpuOfBoth : public Gpu, public testing::WithParamInterface<Algorithm> {};

TEST_P(GpuOfBoth, StepsAllKindsOfTensorsAsTheOracleDoes) {
  for (const std::int64_t offset : {0, 1}) {
    const Shards shards =
        random_shards(GetParam(), {1, 255, 256, 257, 0, 4095, 4096, 4097, 100003}, offset);
    CudaStep step(GetParam(), hyperparameters_, device_tensors(shards), 0);
    EXPECT_EQ(step.launches_per_step(), 1);
    for (int i = 0; i < 4; ++i) {
      step.enqueue(stream_);
      for (const auto& shard : shards) shard->step_on_host(hyperparameters_);
      expect_equal(shards);
    }
  }
}

TEST_P(GpuOfBoth, StepsALargeTensorAsTheOracleDoes) {
  const Shards shards = random_shards(GetParam(), {(1 << 21) + 300});
  CudaStep step(GetParam(), hyperparameters_, device_tensors(shards), 0);
  for (int i = 0; i < 2; ++i) {
    step.enqueue(stream_);
    for (const auto& shard : shards) shard->step_on_host(hyperparameters_);
  }
  expect_equal(shards);
}

TEST_P(GpuOfBoth, ReplaysACapturedGraphWithStepsAndHyperparametersOfTheTime) {
  const Shards shards = random_shards(GetParam(), {257, 10000});
  CudaStep step(GetParam(), hyperparameters_, device_tensors(shards), 0);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CUDA_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  step.enqueue(stream_);
  CUDA_OK(cudaStreamEndCapture(stream_, &graph));
  std::size_t nodes = 0;
  CUDA_OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 1u);
  CUDA_OK(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 5; ++i) {
    if (i == 3) {
      hyperparameters_.learning_rate = 5e-2;
      step.set_hyperparameters(hyperparameters_, stream_);
    }
    CUDA_OK(cudaGraphLaunch(executable, stream_));
    for (const auto& shard : shards) shard->step_on_host(hyperparameters_);
  }
  expect_equal(shards);
  CUDA_OK(cudaGraphExecDestroy(executable));
  CUDA_OK(cudaGraphDestroy(graph));
}

TEST_P(GpuOfBoth, LaunchesNothingForEmptyShards) {
  const Shards shards = random_shards(GetParam(), {0});
  CudaStep step(GetParam(), hyperparameters_, device_tensors(shards), 0);
  EXPECT_EQ(step.launches_per_step(), 0);
  step.enqueue(stream_);
  CUDA_OK(cudaStreamSynchronize(stream_));
}

// n in 64 bits: the last blocks of a tensor of 2^31 + 300 elements. Blocks do not know of each
// other, so the oracle steps the last 300 elements alone.
TEST_F(Gpu, StepsMoreThan32BitsOfElements) {
  constexpr std::int64_t kNumel = (std::int64_t{1} << 31) + 300;
  constexpr std::int64_t kTail = 300;
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  CUDA_OK(cudaMemGetInfo(&free_bytes, &total));
  if (free_bytes < std::size_t{13} << 30) GTEST_SKIP() << "needs 13 GiB of device memory";
  const DeviceCopy param(kNumel * 2);
  const DeviceCopy grad(kNumel * 2);
  const DeviceCopy codes(kNumel);
  const DeviceCopy absmax(block_count(kNumel) * 4);
  CUDA_OK(cudaMemset(param.get(), 0x3f, static_cast<std::size_t>(kNumel * 2)));
  CUDA_OK(cudaMemset(grad.get(), 0x3e, static_cast<std::size_t>(kNumel * 2)));
  CUDA_OK(cudaMemset(codes.get(), 0x40, static_cast<std::size_t>(kNumel)));
  CUDA_OK(cudaMemset(absmax.get(), 0x3d, static_cast<std::size_t>(block_count(kNumel) * 4)));
  ShardTensors shard{.param = param.get(),
                     .grad = grad.get(),
                     .numel = kNumel,
                     .dtype = DType::bf16,
                     .grad_dtype = DType::bf16,
                     .format = StateFormat::blockwise_8bit,
                     .step = 1,
                     .state1 = codes.get(),
                     .absmax1 = static_cast<float*>(absmax.get()),
                     .absmax_count = block_count(kNumel)};
  Bytes param_tail(kTail * 2, std::byte{0x3f});
  Bytes grad_tail(kTail * 2, std::byte{0x3e});
  Bytes codes_tail(kTail, std::byte{0x40});
  std::vector<float> absmax_tail(2, std::bit_cast<float>(0x3d3d3d3du));
  ShardTensors small = shard;
  small.param = param_tail.data();
  small.grad = grad_tail.data();
  small.numel = kTail;
  small.state1 = codes_tail.data();
  small.absmax1 = absmax_tail.data();
  small.absmax_count = 2;
  CudaStep step(Algorithm::Lion, hyperparameters_, {&shard, 1}, 0);
  step.enqueue(stream_);
  CUDA_OK(cudaStreamSynchronize(stream_));
  step_bnb_cuda_reference(Algorithm::Lion, hyperparameters_, small);
  Bytes found(kTail * 2);
  CUDA_OK(cudaMemcpy(found.data(), static_cast<char*>(param.get()) + (kNumel - kTail) * 2,
                     found.size(), cudaMemcpyDeviceToHost));
  EXPECT_EQ(found, param_tail);
  found.resize(kTail);
  CUDA_OK(cudaMemcpy(found.data(), static_cast<char*>(codes.get()) + kNumel - kTail, found.size(),
                     cudaMemcpyDeviceToHost));
  EXPECT_EQ(found, codes_tail);
}

/// Device copies of the two code tables, as bitsandbytes takes them.
struct CodeTables {
  DeviceCopy first{1024};
  DeviceCopy second{1024};
  CodeTables() {
    CUDA_OK(cudaMemcpy(first.get(), kSignedCodeBits.data(), 1024, cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemcpy(second.get(), kUnsignedCodeBits.data(), 1024, cudaMemcpyHostToDevice));
  }
};

/// Largest difference of two lists relative to the largest value of the second, and how many
/// differ.
struct Drift {
  double largest = 0;
  std::int64_t differing = 0;
};
Drift drift(const std::vector<float>& a, const std::vector<float>& b) {
  Drift result;
  double scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::isfinite(b[i])) scale = std::max(scale, std::abs(double{b[i]}));
    if (a[i] == b[i]) continue;
    ++result.differing;
    result.largest = std::max(result.largest, std::abs(double{a[i]} - double{b[i]}));
  }
  result.largest /= std::max(scale, 1e-30);
  return result;
}

// The wheel is built with fast maths: the last bits differ, and so, next to a border, does a code.
// One step only, because from the second on such a code makes updates of its own.
TEST_P(GpuOfBoth, StaysWithinRoundingOfBitsandbytes) {
  const std::filesystem::path site_packages = STEPSCOPE_SITE_PACKAGES;
  if (!std::filesystem::exists(site_packages / "bitsandbytes")) {
    GTEST_SKIP() << "bitsandbytes is not installed";
  }
  const BitsandbytesCuda library = BitsandbytesCuda::from_site_packages(site_packages);
  const CodeTables tables;
  const std::vector<std::int64_t> sizes = {1, 255, 257, 4096, 100003};
  const Shards ours = random_shards(GetParam(), sizes, 0, false);
  const Shards theirs = random_shards(GetParam(), sizes, 0, false);
  CudaStep step(GetParam(), hyperparameters_, device_tensors(ours), 0);
  step.enqueue(stream_);
  for (const auto& shard : theirs) {
    library.step(GetParam(), hyperparameters_, shard->on_device(),
                 static_cast<const float*>(tables.first.get()),
                 static_cast<const float*>(tables.second.get()));
  }
  CUDA_OK(cudaDeviceSynchronize());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const ShardTensors tensors = ours[i]->on_device();
    const Drift of_param = drift(ours[i]->values(kParam), theirs[i]->values(kParam));
    const Drift of_state = drift(ours[i]->values(kState1), theirs[i]->values(kState1));
    std::cout << "n " << tensors.numel << " dtype " << static_cast<int>(tensors.dtype) << " format "
              << static_cast<int>(tensors.format) << ": " << of_param.differing
              << " parameters differ, by " << of_param.largest << " of the largest at most; "
              << of_state.differing << " first moments differ, by " << of_state.largest << "\n";
    EXPECT_LT(of_param.largest, tensors.dtype == DType::fp32 ? 1e-3 : 2e-2);
    if (tensors.format == StateFormat::blockwise_8bit) {
      EXPECT_LE(static_cast<double>(of_state.differing),
                2 + 0.02 * static_cast<double>(tensors.numel));
    } else {
      EXPECT_LT(of_state.largest, 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, GpuOfBoth, testing::Values(Algorithm::AdamW, Algorithm::Lion),
                         [](const auto& chosen) {
                           return chosen.param == Algorithm::AdamW ? "AdamW" : "Lion";
                         });

}  // namespace
}  // namespace stepscope::kernels::cuda
