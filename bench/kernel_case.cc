#include "bench/kernel_case.h"

#include <numeric>

namespace stepscope::bench {

std::string KernelCase::benchmark_name() const {
  std::string name = "KernelStep/";
  name.append(implementation_name(implementation)).append("/");
  name.append(optimizer_name(optimizer)).append("/");
  return name.append(dtype_name(dtype)).append("/").append(std::to_string(numel));
}

std::array<std::int64_t, 6> KernelCase::tensor_bytes() const {
  const std::int64_t element = kernels::element_bytes(dtype) * numel;
  const std::int64_t absmax = 4 * kernels::block_count(numel);
  switch (optimizer) {
    case KernelOptimizer::AdamW8bit:
      return {element, element, numel, numel, absmax, absmax};
    case KernelOptimizer::Lion8bit:
      return {element, element, numel, 0, absmax, 0};
    case KernelOptimizer::AdamW:
      break;
  }
  const std::int64_t moment = implementation == Implementation::torch ? element : 4 * numel;
  return {element, element, moment, moment, 0, 0};
}

std::int64_t KernelCase::moved_bytes() const {
  const auto bytes = tensor_bytes();
  return 2 * std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}) - bytes[1];
}

std::int64_t KernelCase::moment_bytes() const {
  const auto bytes = tensor_bytes();
  return std::accumulate(bytes.begin() + 2, bytes.end(), std::int64_t{0});
}

std::string_view implementation_name(Implementation implementation) {
  switch (implementation) {
    case Implementation::native:
      return "native";
    case Implementation::torch:
      return "torch";
    case Implementation::bitsandbytes:
      return "bitsandbytes";
    case Implementation::torchao:
      return "torchao";
  }
  return "";
}

std::string_view optimizer_name(KernelOptimizer optimizer) {
  switch (optimizer) {
    case KernelOptimizer::AdamW8bit:
      return "AdamW8bit";
    case KernelOptimizer::Lion8bit:
      return "Lion8bit";
    case KernelOptimizer::AdamW:
      return "AdamW";
  }
  return "";
}

}  // namespace stepscope::bench
