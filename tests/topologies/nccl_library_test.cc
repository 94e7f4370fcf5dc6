#include "topologies/nccl_library.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "tests/core/error_text.h"

namespace stepscope::topologies {
namespace {

TEST(NcclLibrary, LibtorchsNcclHasEveryFunctionAndAMissingDriverIsSaidPlainly) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
    NcclUniqueId id;
    EXPECT_EQ(load_nccl()->get_unique_id(id), kNcclSuccess);
    return;
  }
  // All functions are looked up before the device is asked for anything.
  const std::string text = error_text([] { load_nccl(); });
  EXPECT_NE(text.find("cudaEventCreate"), std::string::npos) << text;
}

}  // namespace
}  // namespace stepscope::topologies
