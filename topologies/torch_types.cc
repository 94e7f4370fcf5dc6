#include "topologies/torch_types.h"

#include "core/error.h"

namespace stepscope::topologies {

c10::ScalarType scalar_type(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::fp32:
      return c10::kFloat;
    case kernels::DType::bf16:
      return c10::kBFloat16;
    case kernels::DType::fp16:
      return c10::kHalf;
  }
  throw Error("unknown data type");
}

}  // namespace stepscope::topologies
