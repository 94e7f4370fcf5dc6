#include "kernels/cpu_step.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <new>
#include <set>

#include "core/error.h"
#include "kernels/quantizer.h"
#include "kernels/reference_step.h"
#include "test_shard.h"

namespace {
// Counts allocations of the whole process, to show that a step makes none.
std::atomic<std::int64_t> allocations{0};
}  // namespace

// noinline: GCC would see malloc and free through new and delete, and warn about a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* pointer = std::malloc(size == 0 ? 1 : size)) return pointer;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept { std::free(pointer); }
[[gnu::noinline]] void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }

namespace stepscope::kernels {
namespace {

constexpr Algorithm kAlgorithms[] = {Algorithm::AdamW, Algorithm::Lion};
constexpr DType kDTypes[] = {DType::fp32, DType::bf16, DType::fp16};
constexpr StateFormat kFormats[] = {StateFormat::blockwise_8bit, StateFormat::fp32};
constexpr Hyperparameters kHyperparameters{.learning_rate = 3e-2, .weight_decay = 0.1};

/// Runs its tests on every instruction set of this processor.
class CpuStep : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_cpu_step_target(GetParam()); }
  void TearDown() override { force_cpu_step_target(""); }
};

INSTANTIATE_TEST_SUITE_P(Targets, CpuStep, ::testing::ValuesIn(cpu_step_targets()),
                         [](const auto& target) {
                           std::string name;
                           for (const char c : target.param) {
                             if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
                           }
                           return name;
                         });

TEST_P(CpuStep, UsesTheForcedInstructionSet) { EXPECT_EQ(cpu_step_target(), GetParam()); }

TEST_P(CpuStep, EqualsTheReferenceForEverySizeDTypeFormatAndPlacement) {
  std::mt19937 random(1);
  ThreadPool alone(1);
  for (const Algorithm algorithm : kAlgorithms) {
    for (const DType dtype : kDTypes) {
      for (const StateFormat format : kFormats) {
        for (const std::int64_t numel :
             {1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 511, 513, 1000, 4095, 4096, 4097}) {
          const std::size_t shift = random() % 17;
          TestShard expected(algorithm, dtype, format, numel, shift);
          expected.randomize(random);
          TestShard got = expected;
          for (std::int64_t step = 1; step <= 3; ++step) {
            step_reference(algorithm, kHyperparameters, expected.tensors(step));
            const ShardTensors tensors = got.tensors(step);
            step_cpu(alone, algorithm, kHyperparameters, {&tensors, 1});
            ASSERT_EQ(got.difference(expected), "") << describe(algorithm, dtype, format, numel)
                                                    << " shift " << shift << " step " << step;
          }
          ASSERT_TRUE(got.guards_are_whole()) << describe(algorithm, dtype, format, numel);
        }
      }
    }
  }
}

TEST_P(CpuStep, EqualsTheReferenceOnManyRandomBlocks) {
  std::mt19937 random(2);
  ThreadPool pool(2);
  for (const Algorithm algorithm : kAlgorithms) {
    for (const DType dtype : kDTypes) {
      TestShard expected(algorithm, dtype, StateFormat::blockwise_8bit, 100'003, 3);
      expected.randomize(random);
      TestShard got = expected;
      for (const std::int64_t step : {1, 2, 1000}) {
        expected.randomize_grad(random);
        TestShard next = expected;
        step_reference(algorithm, kHyperparameters, expected.tensors(step));
        const ShardTensors tensors = next.tensors(step);
        step_cpu(pool, algorithm, kHyperparameters, {&tensors, 1});
        ASSERT_EQ(next.difference(expected), "")
            << describe(algorithm, dtype, StateFormat::blockwise_8bit, 100'003);
      }
    }
  }
}

TEST_P(CpuStep, EqualsTheReferenceForEveryEntryOfTheQuantizer) {
  // The new moments are the gradient and its square, and every block's absmax is 1.
  const Hyperparameters h{.learning_rate = 1e-3, .beta1 = 0, .beta2 = 0};
  constexpr std::int64_t kBlocks = 258;
  ThreadPool alone(1);
  for (const Algorithm algorithm : kAlgorithms) {
    for (const bool squares : {false, true}) {
      TestShard expected(algorithm, DType::fp32, StateFormat::blockwise_8bit, 256 * kBlocks);
      std::set<int> signed_entries, unsigned_entries;
      int next = 0;
      for (std::int64_t i = 0; i < 256 * kBlocks; ++i) {
        float g = 1.0f;
        if (i % 256 != 0) {
          const int entry = next++ % kEncodeEntries;
          g = static_cast<float>(2 * entry - 65535) / 65535.0f;
          if (squares) g = std::copysign(std::sqrt(std::fabs(g)), g);
        }
        expected.set_grad(i, g);
        signed_entries.insert(encode_index(g, 1.0f));
        unsigned_entries.insert(encode_index(g * g, 1.0f));
      }
      ASSERT_EQ((squares ? unsigned_entries : signed_entries).size(), squares ? 32768u : 65536u);
      TestShard got = expected;
      step_reference(algorithm, h, expected.tensors(1));
      const ShardTensors tensors = got.tensors(1);
      step_cpu(alone, algorithm, h, {&tensors, 1});
      ASSERT_EQ(got.difference(expected), "");
    }
  }
}

TEST_P(CpuStep, EqualsTheReferenceForNansOfABf16Parameter) {
  ThreadPool alone(1);
  for (const Algorithm algorithm : kAlgorithms) {
    for (const StateFormat format : kFormats) {
      TestShard shard(algorithm, DType::bf16, format, 512);
      shard.fill(0.25f, 0.5f);
      // Written as words: a number that set_param() rounds is 0xffff already.
      auto* words = static_cast<std::uint16_t*>(shard.tensors(1).param);
      for (std::uint32_t i = 0; i < 512; i += 3) {
        const std::uint32_t sign = i % 2 == 0 ? 0 : 0x8000u;
        words[i] = static_cast<std::uint16_t>(sign | 0x7f80u | (i % 127 + 1));
      }
      TestShard expected = shard;
      const ShardTensors tensors = shard.tensors(1);
      step_cpu(alone, algorithm, kHyperparameters, {&tensors, 1});
      step_reference(algorithm, kHyperparameters, expected.tensors(1));
      EXPECT_EQ(shard.difference(expected), "") << describe(algorithm, DType::bf16, format, 512);
      for (std::int64_t i = 0; i < 512; ++i) {
        EXPECT_EQ(std::isnan(shard.param(i)), i % 3 == 0)
            << describe(algorithm, DType::bf16, format, 512) << " element " << i;
      }
    }
  }
}

TEST_P(CpuStep, KeepsEveryNanOfFp32StateInABf16Parameter) {
  ThreadPool alone(1);
  TestShard shard(Algorithm::AdamW, DType::bf16, StateFormat::fp32, 512);
  shard.fill(0.25f, 0.5f);
  const ShardTensors tensors = shard.tensors(1);
  const std::uint32_t nans[] = {0x7fffffffu, 0xffffffffu, 0x7fc08000u, 0x7fffffffu};
  for (std::size_t i = 0; i < 512; ++i) {
    std::memcpy(static_cast<float*>(tensors.state1) + i, &nans[i % std::size(nans)], 4);
  }
  step_cpu(alone, Algorithm::AdamW, kHyperparameters, {&tensors, 1});
  for (std::int64_t i = 0; i < 512; ++i) EXPECT_TRUE(std::isnan(shard.param(i))) << i;
}

TEST_P(CpuStep, EqualsTheReferenceForNanInfinityAndTinyGradients) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float specials[] = {nan,    -nan,    kInf,   -kInf, 0.0f,   -0.0f,    1e-45f, -1e-45f,
                            1e-38f, -3e-39f, 1e-20f, 3e38f, -3e38f, 65504.0f, 1.0f};
  std::mt19937 random(3);
  ThreadPool alone(1);
  for (const Algorithm algorithm : kAlgorithms) {
    for (const DType dtype : kDTypes) {
      for (const StateFormat format : kFormats) {
        for (int mix = 0; mix < 40; ++mix) {
          TestShard expected(algorithm, dtype, format, 517);
          expected.fill(0.25f, 0.0f);
          TestShard got = expected;
          for (std::int64_t step = 1; step <= 3; ++step) {
            // One special value, or a block made of two of them.
            const float a = specials[random() % std::size(specials)];
            const float b = specials[random() % std::size(specials)];
            for (std::int64_t i = 0; i < 517; ++i) {
              const float ordinary = std::ldexp(1.0f, static_cast<int>(random() % 40) - 30);
              const float value =
                  mix % 2 == 0 ? (i % 97 == 5 ? a : ordinary) : (i % 3 == 0 ? a : b);
              expected.set_grad(i, value);
              got.set_grad(i, value);
            }
            step_reference(algorithm, kHyperparameters, expected.tensors(step));
            const ShardTensors tensors = got.tensors(step);
            step_cpu(alone, algorithm, kHyperparameters, {&tensors, 1});
            ASSERT_EQ(got.difference(expected), "")
                << describe(algorithm, dtype, format, 517) << " mix " << mix << " step " << step
                << " specials " << a << " " << b;
          }
        }
      }
    }
  }
}

TEST_P(CpuStep, EqualsTheReferenceWithExtremeHyperparameters) {
  std::mt19937 random(4);
  ThreadPool alone(1);
  const Hyperparameters extremes[] = {
      {.learning_rate = 0, .beta1 = 0, .beta2 = 0, .epsilon = 0, .weight_decay = 0},
      {.learning_rate = 1, .beta1 = 0.5, .beta2 = 0.5, .epsilon = 1, .weight_decay = 1},
      {.learning_rate = 1e-30, .beta1 = 0.99999, .beta2 = 0.9999999, .epsilon = 1e-30},
      {.learning_rate = 1e30,
       .beta1 = 1e-30,
       .beta2 = 1e-30,
       .epsilon = 1e30,
       .weight_decay = 1e3}};
  for (const Algorithm algorithm : kAlgorithms) {
    for (const StateFormat format : kFormats) {
      for (const Hyperparameters& h : extremes) {
        for (const std::int64_t step : {std::int64_t{1}, std::int64_t{100'000'000'000}}) {
          TestShard expected(algorithm, DType::fp32, format, 2048);
          expected.randomize(random);
          TestShard got = expected;
          step_reference(algorithm, h, expected.tensors(step));
          const ShardTensors tensors = got.tensors(step);
          step_cpu(alone, algorithm, h, {&tensors, 1});
          ASSERT_EQ(got.difference(expected), "") << describe(algorithm, DType::fp32, format, 2048)
                                                  << " lr " << h.learning_rate << " step " << step;
        }
      }
    }
  }
}

TEST_P(CpuStep, GivesTheSameBitsForAnyThreadCountAndManyShards) {
  for (const Algorithm algorithm : kAlgorithms) {
    std::mt19937 random(5);
    std::vector<TestShard> expected;
    for (const std::int64_t numel : {0, 1, 70'000, 3, 0, 256, 4097, 100, 0, 9'000, 255, 0}) {
      for (const StateFormat format : kFormats) {
        expected.emplace_back(algorithm, kDTypes[expected.size() % 3], format, numel,
                              expected.size() % 5);
        expected.back().randomize(random);
      }
    }
    const std::vector<TestShard> start = expected;
    std::int64_t step = 1;
    for (TestShard& shard : expected) {
      step_reference(algorithm, kHyperparameters, shard.tensors(step++));  // steps differ by shard
    }
    for (const int threads : {1, 2, 3, 7}) {
      ThreadPool pool(threads);
      std::vector<TestShard> got = start;
      std::vector<ShardTensors> tensors;
      step = 1;
      for (TestShard& shard : got) tensors.push_back(shard.tensors(step++));
      step_cpu(pool, algorithm, kHyperparameters, tensors);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].difference(expected[i]), "") << "shard " << i << ", threads " << threads;
        ASSERT_TRUE(got[i].guards_are_whole()) << "shard " << i;
      }
    }
  }
}

TEST_P(CpuStep, GivesTheSameBitsWhereAShardIsCutBetweenBlocks) {
  std::mt19937 random(6);
  ThreadPool pool(2);
  for (const Algorithm algorithm : kAlgorithms) {
    TestShard whole(algorithm, DType::fp32, StateFormat::blockwise_8bit, 20'000);
    whole.randomize(random);
    TestShard cut = whole;
    const ShardTensors all = whole.tensors(1);
    step_cpu(pool, algorithm, kHyperparameters, {&all, 1});
    const ShardTensors base = cut.tensors(1);
    std::vector<ShardTensors> parts;
    for (std::int64_t first = 0; first < base.numel;) {
      ShardTensors part = base;
      part.numel =
          std::min(base.numel - first, kBlockSize * (1 + static_cast<std::int64_t>(random() % 20)));
      part.param = static_cast<float*>(base.param) + first;
      part.grad = static_cast<const float*>(base.grad) + first;
      part.state1 = static_cast<std::uint8_t*>(base.state1) + first;
      part.absmax1 = base.absmax1 + first / kBlockSize;
      part.absmax_count = block_count(part.numel);
      if (algorithm == Algorithm::AdamW) {
        part.state2 = static_cast<std::uint8_t*>(base.state2) + first;
        part.absmax2 = base.absmax2 + first / kBlockSize;
      }
      parts.push_back(part);
      first += part.numel;
    }
    step_cpu(pool, algorithm, kHyperparameters, parts);
    EXPECT_EQ(cut.difference(whole), "");
  }
}

TEST_P(CpuStep, AllocatesNothing) {
  std::mt19937 random(7);
  ThreadPool pool(3);
  for (const Algorithm algorithm : kAlgorithms) {
    TestShard shard(algorithm, DType::bf16, StateFormat::blockwise_8bit, 50'000);
    shard.randomize(random);
    ShardTensors tensors = shard.tensors(1);
    step_cpu(pool, algorithm, kHyperparameters, {&tensors, 1});  // builds the tables
    const std::int64_t before = allocations.load();
    for (tensors.step = 2; tensors.step < 20; ++tensors.step) {
      step_cpu(pool, algorithm, kHyperparameters, {&tensors, 1});
    }
    EXPECT_EQ(allocations.load(), before);
  }
}

TEST(CpuStepOfManyShards, AllocatesNothingAndRefusesAnOverlapThatComesInALaterStep) {
  std::mt19937 random(8);
  ThreadPool pool(2);
  std::vector<TestShard> shards;
  for (int i = 0; i < 20; ++i) {
    shards.emplace_back(Algorithm::AdamW, DType::fp32, StateFormat::blockwise_8bit, 300);
    shards.back().randomize(random);
  }
  std::vector<ShardTensors> tensors;
  for (TestShard& shard : shards) tensors.push_back(shard.tensors(1));
  const auto step = [&] { step_cpu(pool, Algorithm::AdamW, kHyperparameters, tensors); };
  step();
  const std::int64_t before = allocations.load();
  for (ShardTensors& t : tensors) t.step = 2;
  step();
  EXPECT_EQ(allocations.load(), before);
  // One change at a time to a list that was fine, each refused again when it comes again.
  const std::vector<ShardTensors> fine = tensors;
  const auto refused = [&](const auto& change) {
    tensors = fine;
    change(tensors[7], tensors[3]);
    EXPECT_THROW(step(), Error);
    EXPECT_THROW(step(), Error);
    tensors = fine;
    EXPECT_NO_THROW(step());
  };
  refused([](ShardTensors& a, const ShardTensors& b) { a.param = b.param; });
  refused([](ShardTensors& a, const ShardTensors& b) { a.grad = b.grad; });
  refused([](ShardTensors& a, const ShardTensors& b) { a.state1 = b.state1; });
  refused([](ShardTensors& a, const ShardTensors& b) { a.state2 = b.state2; });
  refused([](ShardTensors& a, const ShardTensors& b) { a.absmax1 = b.absmax1; });
  refused([](ShardTensors& a, const ShardTensors& b) { a.absmax2 = b.absmax2; });
  // The same pointers, but more of what lies behind them.
  tensors.resize(2);
  tensors[1].param = static_cast<float*>(tensors[0].param) + 100;
  tensors[0].numel = 100;
  tensors[1].numel = 200;
  tensors[0].absmax_count = tensors[1].absmax_count = 1;
  EXPECT_NO_THROW(step());
  tensors[0].numel = 101;
  EXPECT_THROW(step(), Error);
}

TEST(CpuStepTargets, EndWithTheBaselineAndRefuseWhatIsUnknown) {
  ASSERT_FALSE(cpu_step_targets().empty());
  EXPECT_EQ(cpu_step_targets().front(), cpu_step_target());
  EXPECT_THROW(force_cpu_step_target("AVX-1024"), Error);
  EXPECT_EQ(cpu_step_targets().front(), cpu_step_target());
}

TEST(CpuStepTargets, AcceptNoShardsAtAll) {
  ThreadPool pool(2);
  EXPECT_NO_THROW(step_cpu(pool, Algorithm::AdamW, {}, {}));
}

}  // namespace
}  // namespace stepscope::kernels
