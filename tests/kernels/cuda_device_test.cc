#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "core/error.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_step.h"
#include "kernels/cuda/device_info.h"

namespace stepscope::kernels::cuda {
namespace {

bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

TEST(DeviceInfo, SaysInOneLineThatThereIsNoDevice) {
  if (has_device()) GTEST_SKIP() << "this machine has a CUDA device";
  try {
    device_count();
    FAIL() << "found a device";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("no CUDA device: "), 0u) << error.what();
    EXPECT_EQ(error.advice(), "run with --device cpu");
  }
  EXPECT_THROW(device_info(0), Error);
  EXPECT_THROW(CudaStep(Algorithm::AdamW, {}, {}, 3), Error);
}

TEST(DeviceInfo, DescribesEveryDevice) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  for (int i = 0; i < device_count(); ++i) {
    const DeviceInfo info = device_info(i);
    EXPECT_FALSE(info.name.empty());
    EXPECT_EQ(info.uuid.size(), 40u);
    EXPECT_GE(info.compute_major, 7);
    EXPECT_GT(info.memory_bytes, 0);
    EXPECT_GE(info.driver_version, 13000);
  }
  EXPECT_THROW(device_info(device_count()), Error);
}

TEST(DeviceInfo, WritesVersionsAndUuidsAsNvidiaSmiDoes) {
  EXPECT_EQ(version_text(13000), "13.0");
  EXPECT_EQ(version_text(12080), "12.8");
  std::array<unsigned char, 16> bytes{};
  for (unsigned char i = 0; i < 16; ++i) bytes[i] = static_cast<unsigned char>(i * 17);
  EXPECT_EQ(uuid_text(bytes.data()), "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

TEST(CudaCheck, NamesTheCallTheErrorTheLineAndTheRank) {
  check(cudaSuccess, "cudaMalloc(&p, 1)", "step.cu", 12, 3);
  try {
    check(cudaErrorMemoryAllocation, "cudaMalloc(&p, 1)", "step.cu", 12, 3);
    FAIL() << "an error passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.what_failed(), "cudaMalloc failed: out of memory (cudaErrorMemoryAllocation)");
    EXPECT_EQ(error.where().rank, 3);
    EXPECT_EQ(error.where().file, "step.cu");
    EXPECT_EQ(error.where().line, 12);
    EXPECT_FALSE(error.advice().empty());
  }
}

}  // namespace
}  // namespace stepscope::kernels::cuda
