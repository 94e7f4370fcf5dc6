#include "kernels/bitsandbytes_abi.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/validate.h"

namespace stepscope::kernels {
namespace {

constexpr std::string_view kVersion = "0.50.2";
constexpr const char* kAdvice = "install bitsandbytes 0.50.2 into the environment (cmake/setup.sh)";
constexpr std::int64_t kMostElements = std::numeric_limits<std::int32_t>::max();

// The C interface. Pointers to parameters and gradients are float*, half* or bfloat16* there. Mind
// that param comes first with 8-bit state, and grad with float32 state.
using Step8bit = void (*)(void* param, void* grad, std::uint8_t* state1, std::uint8_t* state2,
                          float beta1, float beta2, float beta3, float alpha, float epsilon,
                          int step, float learning_rate, float* codes1, float* codes2,
                          float* absmax1, float* absmax2, float weight_decay, float gnorm_scale,
                          bool skip_zeros, int numel);
using StepFp32 = void (*)(void* grad, void* param, float* state1, float* state2, float* norm,
                          float max_norm, float param_norm, float beta1, float beta2, float beta3,
                          float alpha, float epsilon, float weight_decay, int step,
                          float learning_rate, float gnorm_scale, bool skip_zeros, int numel);

std::string function_name(Algorithm algorithm, StateFormat format, DType dtype) {
  std::string name = algorithm == Algorithm::AdamW ? "cadam" : "clion";
  name += format == StateFormat::blockwise_8bit ? "_8bit_blockwise_grad_" : "32bit_grad_";
  switch (dtype) {
    case DType::fp32:
      return name + "fp32";
    case DType::bf16:
      return name + "bf16";
    case DType::fp16:
      return name + "fp16";
  }
  return name;
}

std::string last_dl_error() {
  const char* message = dlerror();
  return message != nullptr ? message : "unknown error";
}

std::filesystem::path find_library(const std::filesystem::path& site_packages) {
  const std::filesystem::path folder = site_packages / "bitsandbytes";
  std::error_code error;
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libbitsandbytes_cuda13") && name.ends_with(".so")) {
      found.push_back(entry.path());
    }
  }
  if (error) {
    throw Error("bitsandbytes is not installed: " + error.message(), kAdvice,
                {.file = folder.string()});
  }
  if (found.empty()) {
    throw Error("bitsandbytes has no libbitsandbytes_cuda13*.so", kAdvice,
                {.file = folder.string()});
  }
  return *std::ranges::min_element(found);
}

/// The functions' arguments are not part of their names, so the version alone says what they are.
void require_version(const std::filesystem::path& site_packages) {
  const std::string prefix = "bitsandbytes-";
  const std::string suffix = ".dist-info";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(site_packages, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    const std::string version =
        name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
    if (version == kVersion) return;
    throw Error("bitsandbytes " + version + " is installed, and its C interface is known of " +
                    std::string(kVersion) + " alone",
                kAdvice, {.file = site_packages.string()});
  }
  throw Error("the version of bitsandbytes is not known: there is no bitsandbytes-*.dist-info",
              kAdvice, {.file = site_packages.string()});
}

}  // namespace

BitsandbytesCuda BitsandbytesCuda::from_site_packages(const std::filesystem::path& site_packages) {
  std::filesystem::path library = find_library(site_packages);
  require_version(site_packages);
  // The wheel looks for these in the folder of its build machine. Where loading one fails, loading
  // the library itself says which is missing.
  for (const char* needed : {"libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13"}) {
    const std::filesystem::path path = site_packages / "nvidia" / "cu13" / "lib" / needed;
    static_cast<void>(dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL));
  }
  BitsandbytesCuda loaded(std::move(library));
  loaded.version_ = kVersion;
  return loaded;
}

BitsandbytesCuda::BitsandbytesCuda(std::filesystem::path library) : library_(std::move(library)) {
  void* const handle = dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw Error("cannot load the CUDA library of bitsandbytes: " + last_dl_error(), kAdvice,
                {.file = library_.string()});
  }
  handle_ = std::shared_ptr<void>(handle, [](void* open) { dlclose(open); });
  for (const auto algorithm : {Algorithm::AdamW, Algorithm::Lion}) {
    for (const auto format : {StateFormat::blockwise_8bit, StateFormat::fp32}) {
      for (const auto dtype : {DType::fp32, DType::bf16, DType::fp16}) {
        const std::string name = function_name(algorithm, format, dtype);
        void* const symbol = dlsym(handle, name.c_str());
        if (symbol == nullptr) {
          throw Error("the CUDA library of bitsandbytes has no function " + name, kAdvice,
                      {.file = library_.string()});
        }
        function(algorithm, format, dtype) = reinterpret_cast<Function>(symbol);
      }
    }
  }
}

BitsandbytesCuda::Function& BitsandbytesCuda::function(Algorithm algorithm, StateFormat format,
                                                       DType dtype) {
  const auto index =
      (static_cast<std::size_t>(algorithm) * 2 + static_cast<std::size_t>(format)) * 3 +
      static_cast<std::size_t>(dtype);
  return functions_[index];
}

BitsandbytesCuda::Function BitsandbytesCuda::function(Algorithm algorithm, StateFormat format,
                                                      DType dtype) const {
  return const_cast<BitsandbytesCuda*>(this)->function(algorithm, format, dtype);
}

void BitsandbytesCuda::step(Algorithm algorithm, const Hyperparameters& hyperparameters,
                            const ShardTensors& shard, const float* signed_codes,
                            const float* unsigned_codes) const {
  validate(algorithm, hyperparameters, shard);
  if (shard.numel == 0) return;
  if (shard.numel > kMostElements) {
    throw Error("a shard has " + std::to_string(shard.numel) +
                    " elements, and bitsandbytes' CUDA interface counts them in 32 bits",
                "use more ranks, so that no shard has more than 2147483647 elements");
  }
  if (shard.step > kMostElements) {
    throw Error("step " + std::to_string(shard.step) + " does not fit bitsandbytes' CUDA interface",
                "it counts steps in 32 bits");
  }
  const bool adam = algorithm == Algorithm::AdamW;
  const bool eight_bit = shard.format == StateFormat::blockwise_8bit;
  if (eight_bit && (signed_codes == nullptr || (adam && unsigned_codes == nullptr))) {
    throw Error("a code table is null for a shard with 8-bit state",
                "pass both tables, in device memory");
  }
  const auto beta1 = static_cast<float>(hyperparameters.beta1);
  const auto beta2 = static_cast<float>(hyperparameters.beta2);
  const auto epsilon = static_cast<float>(hyperparameters.epsilon);
  const auto learning_rate = static_cast<float>(hyperparameters.learning_rate);
  const auto weight_decay = static_cast<float>(hyperparameters.weight_decay);
  const auto step = static_cast<int>(shard.step);
  const auto numel = static_cast<int>(shard.numel);
  // beta3 and alpha belong to AdEMAMix; the gradient is not scaled and zeros are not skipped.
  constexpr float kBeta3 = 0.0f;
  constexpr float kAlpha = 0.0f;
  constexpr float kGnormScale = 1.0f;
  constexpr bool kSkipZeros = false;
  // The library reads gradients and tables, and declares both without const.
  void* const grad = const_cast<void*>(shard.grad);
  const Function plain = function(algorithm, shard.format, shard.dtype);
  if (eight_bit) {
    float* const codes1 = const_cast<float*>(signed_codes);
    float* const codes2 = adam ? const_cast<float*>(unsigned_codes) : nullptr;
    reinterpret_cast<Step8bit>(plain)(shard.param, grad, static_cast<std::uint8_t*>(shard.state1),
                                      static_cast<std::uint8_t*>(shard.state2), beta1, beta2,
                                      kBeta3, kAlpha, epsilon, step, learning_rate, codes1, codes2,
                                      shard.absmax1, shard.absmax2, weight_decay, kGnormScale,
                                      kSkipZeros, numel);
  } else {
    constexpr float kMaxNorm = 0.0f;  // no clipping of the update's norm
    reinterpret_cast<StepFp32>(plain)(grad, shard.param, static_cast<float*>(shard.state1),
                                      static_cast<float*>(shard.state2), nullptr, kMaxNorm, 0.0f,
                                      beta1, beta2, kBeta3, kAlpha, epsilon, weight_decay, step,
                                      learning_rate, kGnormScale, kSkipZeros, numel);
  }
}

}  // namespace stepscope::kernels
