#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/error.h"
#include "kernels/bitsandbytes_abi.h"

namespace stepscope::kernels {
namespace {

/// Calls the recorder through the class and returns what arrived there.
class BitsandbytesAbi : public testing::Test {
 protected:
  std::string call(Algorithm algorithm, const ShardTensors& shard) {
    forget_();
    library_.step(algorithm, {.learning_rate = 0.5, .epsilon = 0.25, .weight_decay = 2}, shard,
                  at<float>(7000), at<float>(8000));
    return recorded_();
  }

  template <class T>
  static T* at(std::uintptr_t address) {
    // The recorder only writes addresses down.
    return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
  }

  static ShardTensors adam_8bit() {
    return {.param = at<void>(1000000),
            .grad = at<void>(2000000),
            .numel = 300,
            .dtype = DType::bf16,
            .grad_dtype = DType::bf16,
            .format = StateFormat::blockwise_8bit,
            .step = 9,
            .state1 = at<void>(3000000),
            .state2 = at<void>(4000000),
            .absmax1 = at<float>(5000000),
            .absmax2 = at<float>(6000000),
            .absmax_count = 2};
  }

 private:
  BitsandbytesCuda library_{STEPSCOPE_ABI_RECORDER};
  void* handle_ = dlopen(STEPSCOPE_ABI_RECORDER, RTLD_NOW);
  const char* (*recorded_)() = reinterpret_cast<const char* (*)()>(dlsym(handle_, "recorded_call"));
  void (*forget_)() = reinterpret_cast<void (*)()>(dlsym(handle_, "forget_call"));
};

TEST_F(BitsandbytesAbi, PassesParamThenGradWith8BitState) {
  EXPECT_EQ(call(Algorithm::AdamW, adam_8bit()),
            "cadam_8bit_blockwise_grad_bf16 @1000000 @2000000 @3000000 @4000000 0.900000 0.999000 "
            "0.000000 0.000000 0.250000 9 0.500000 @7000 @8000 @5000000 @6000000 2.000000 "
            "1.000000 0 300");
}

TEST_F(BitsandbytesAbi, PassesGradThenParamWithFp32State) {
  ShardTensors shard = adam_8bit();
  shard.format = StateFormat::fp32;
  shard.dtype = shard.grad_dtype = DType::fp16;
  shard.absmax_count = 0;
  shard.absmax1 = nullptr;
  shard.absmax2 = nullptr;
  EXPECT_EQ(call(Algorithm::AdamW, shard),
            "cadam32bit_grad_fp16 @2000000 @1000000 @3000000 @4000000 @0 0.000000 0.000000 "
            "0.900000 0.999000 0.000000 0.000000 0.250000 2.000000 9 0.500000 1.000000 0 300");
}

TEST_F(BitsandbytesAbi, PassesNullForWhatLionHasNot) {
  ShardTensors shard = adam_8bit();
  shard.dtype = shard.grad_dtype = DType::fp32;
  shard.state2 = nullptr;
  shard.absmax2 = nullptr;
  EXPECT_EQ(call(Algorithm::Lion, shard),
            "clion_8bit_blockwise_grad_fp32 @1000000 @2000000 @3000000 @0 0.900000 0.999000 "
            "0.000000 0.000000 0.250000 9 0.500000 @7000 @0 @5000000 @0 2.000000 1.000000 0 300");
}

TEST_F(BitsandbytesAbi, NeverPassesAnEmptyShardOn) {
  EXPECT_EQ(call(Algorithm::AdamW, {.numel = 0, .step = 1}), "none");
}

// Case A12: the library would take 2^31 elements for -2^31.
TEST_F(BitsandbytesAbi, RefusesMoreThan32BitsOfElementsOrSteps) {
  ShardTensors shard = adam_8bit();
  std::uintptr_t next = 1;
  shard.param = at<void>(next++ << 40);
  shard.grad = at<void>(next++ << 40);
  shard.state1 = at<void>(next++ << 40);
  shard.state2 = at<void>(next++ << 40);
  shard.absmax1 = at<float>(next++ << 40);
  shard.absmax2 = at<float>(next++ << 40);
  shard.numel = (std::int64_t{1} << 31) - 1;
  shard.absmax_count = std::int64_t{1} << 23;
  EXPECT_TRUE(call(Algorithm::AdamW, shard).ends_with(" 2147483647"));
  shard.numel += 1;
  EXPECT_THROW(call(Algorithm::AdamW, shard), Error);
  shard.numel = 300;
  shard.absmax_count = 2;
  shard.step = std::int64_t{1} << 31;
  EXPECT_THROW(call(Algorithm::AdamW, shard), Error);
}

TEST_F(BitsandbytesAbi, RefusesTensorsThatCannotBeSteppedAndMissingTables) {
  ShardTensors shard = adam_8bit();
  shard.state1 = nullptr;
  EXPECT_THROW(call(Algorithm::AdamW, shard), Error);
  shard = adam_8bit();
  shard.grad_dtype = DType::fp32;
  EXPECT_THROW(call(Algorithm::AdamW, shard), Error);
  shard = adam_8bit();
  shard.absmax_count = 3;
  EXPECT_THROW(call(Algorithm::AdamW, shard), Error);
  shard = adam_8bit();
  shard.grad = shard.param;
  EXPECT_THROW(call(Algorithm::AdamW, shard), Error);
  shard = adam_8bit();
  shard.param = at<void>(1000001);
  EXPECT_THROW(call(Algorithm::AdamW, shard), Error);
  const BitsandbytesCuda library(STEPSCOPE_ABI_RECORDER);
  EXPECT_THROW(library.step(Algorithm::AdamW, {}, adam_8bit(), at<float>(7000), nullptr), Error);
}

TEST(BitsandbytesLibrary, MissingFunctionIsNamed) {
  try {
    BitsandbytesCuda library(STEPSCOPE_ABI_RECORDER_INCOMPLETE);
    FAIL() << "loaded " << library.library();
  } catch (const Error& error) {
    EXPECT_EQ(error.what_failed(),
              "the CUDA library of bitsandbytes has no function clion32bit_grad_fp16");
  }
}

TEST(BitsandbytesLibrary, MissingLibraryIsOneLineWithAdvice) {
  for (const char* folder : {"/nonexistent", "/"}) {
    try {
      BitsandbytesCuda::from_site_packages(folder);
      FAIL() << "found a library in " << folder;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("bitsandbytes"), std::string::npos);
      EXPECT_EQ(message.find('\n'), std::string::npos);
      EXPECT_FALSE(error.advice().empty());
    }
  }
  EXPECT_THROW(BitsandbytesCuda("/nonexistent.so"), Error);
}

TEST(BitsandbytesLibrary, AnotherVersionAndAnUnknownOneAreRefused) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "stepscope-site-packages";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "bitsandbytes");
  std::filesystem::copy_file(STEPSCOPE_ABI_RECORDER,
                             folder / "bitsandbytes" / "libbitsandbytes_cuda130.so");
  const auto refusal = [&]() -> std::string {
    try {
      BitsandbytesCuda::from_site_packages(folder);
    } catch (const Error& error) {
      return error.what_failed();
    }
    return "";
  };
  EXPECT_NE(refusal().find("version of bitsandbytes is not known"), std::string::npos);
  std::filesystem::create_directory(folder / "bitsandbytes-0.49.0.dist-info");
  EXPECT_NE(refusal().find("bitsandbytes 0.49.0 is installed"), std::string::npos);
  std::filesystem::rename(folder / "bitsandbytes-0.49.0.dist-info",
                          folder / "bitsandbytes-0.50.2.dist-info");
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(BitsandbytesCuda::from_site_packages(folder).version(), "0.50.2");
  std::filesystem::remove_all(folder);
}

TEST(BitsandbytesLibrary, WhatIsNoLibraryOrLacksOneIsOneLineThatNamesTheFile) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "stepscope-site-packages-bad";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "bitsandbytes");
  std::filesystem::create_directory(folder / "bitsandbytes-0.50.2.dist-info");
  const std::filesystem::path library = folder / "bitsandbytes" / "libbitsandbytes_cuda130.so";
  const auto refusal = [&]() -> std::string {
    try {
      BitsandbytesCuda::from_site_packages(folder);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto expect_one_line = [&](const std::string& cause) {
    const std::string message = refusal();
    EXPECT_NE(message.find("cannot load the CUDA library of bitsandbytes"), std::string::npos)
        << message;
    EXPECT_NE(message.find(library.string()), std::string::npos) << message;
    EXPECT_NE(message.find(cause), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  std::ofstream(library) << "a download's\nerror page\n";
  expect_one_line("");
  std::filesystem::remove(library);
  std::filesystem::copy_file(STEPSCOPE_ABI_RECORDER_NEEDY, library);
  expect_one_line("libbnb_cuda_missing_library.so");
  std::filesystem::remove_all(folder);
}

TEST(BitsandbytesLibrary, RealOneHasEveryFunction) {
  const std::filesystem::path site_packages = STEPSCOPE_SITE_PACKAGES;
  if (!std::filesystem::exists(site_packages / "bitsandbytes" / "libbitsandbytes_cuda130.so") ||
      !std::filesystem::exists(site_packages / "nvidia" / "cu13" / "lib" / "libcublas.so.13")) {
    GTEST_SKIP() << "bitsandbytes or NVIDIA's libraries are not installed for CUDA 13";
  }
  const BitsandbytesCuda library = BitsandbytesCuda::from_site_packages(site_packages);
  EXPECT_EQ(library.library().filename(), "libbitsandbytes_cuda130.so");
}

}  // namespace
}  // namespace stepscope::kernels
