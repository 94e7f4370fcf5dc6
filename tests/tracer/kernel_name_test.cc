#include "tracer/kernel_name.h"

#include <gtest/gtest.h>

namespace stepscope::tracer {
namespace {

TEST(KernelName, IsDemangledWhereItIsMangled) {
  EXPECT_EQ(demangled_name("_Z35kOptimizerStatic8bit2StateBlockwiseIfLi0ELi256ELi1EEvPT_S1_Pfi"),
            "void kOptimizerStatic8bit2StateBlockwise<float, 0, 256, 1>(float*, float*, float*, "
            "int)");
  EXPECT_EQ(demangled_name("_Znonsense"), "_Znonsense");
  EXPECT_EQ(demangled_name("ampere_sgemm_128x64_nn"), "ampere_sgemm_128x64_nn");
}

TEST(KernelName, HasABaseWithoutNamespacesArgumentsAndParameters) {
  EXPECT_EQ(base_name("void cudnn::bn_bw_1C11_kernel_new<float, a::b<2>, 1>(float, c::d)"),
            "bn_bw_1C11_kernel_new");
  EXPECT_EQ(
      base_name("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<int>(int)"),
      "multi_tensor_apply_kernel");
  EXPECT_EQ(base_name("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)"),
            "ncclDevKernel_AllGather_RING_LL");
  EXPECT_EQ(base_name("ampere_sgemm_128x64_nn"), "ampere_sgemm_128x64_nn");
  EXPECT_EQ(base_name(""), "");
  EXPECT_EQ(base_name("(x)"), "(x)");
}

}  // namespace
}  // namespace stepscope::tracer
