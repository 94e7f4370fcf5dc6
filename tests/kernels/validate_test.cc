#include "kernels/validate.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "core/error.h"
#include "kernels/cpu_step.h"
#include "kernels/reference_step.h"
#include "test_shard.h"

namespace stepscope::kernels {
namespace {

/// The message of the Error that `change` to a valid AdamW shard makes, or empty.
std::string refusal(const std::function<void(ShardTensors&, Hyperparameters&)>& change,
                    Algorithm algorithm = Algorithm::AdamW,
                    StateFormat format = StateFormat::blockwise_8bit) {
  TestShard shard(algorithm, DType::fp32, format, 1000);
  ShardTensors tensors = shard.tensors(1);
  Hyperparameters h;
  change(tensors, h);
  try {
    validate(algorithm, h, tensors);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Validate, AcceptsEveryAlgorithmAndFormatAndAnEmptyShardWithoutTensors) {
  for (const Algorithm algorithm : {Algorithm::AdamW, Algorithm::Lion}) {
    for (const StateFormat format : {StateFormat::blockwise_8bit, StateFormat::fp32}) {
      EXPECT_EQ(refusal([](auto&, auto&) {}, algorithm, format), "");
    }
    EXPECT_NO_THROW(validate(algorithm, {}, {.numel = 0, .step = 1}));
  }
}

TEST(Validate, RefusesNullAndSurplusTensors) {
  EXPECT_NE(refusal([](auto& s, auto&) { s.param = nullptr; }).find("param is null"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& s, auto&) { s.grad = nullptr; }), "");
  EXPECT_NE(refusal([](auto& s, auto&) { s.state1 = nullptr; }), "");
  EXPECT_NE(refusal([](auto& s, auto&) { s.state2 = nullptr; }), "");
  EXPECT_NE(refusal([](auto& s, auto&) { s.absmax1 = nullptr; }), "");
  EXPECT_NE(refusal([](auto& s, auto&) { s.absmax2 = nullptr; }), "");
  // An absmax says 8-bit state, and a second state AdamW: a caller who is wrong about either must
  // not get a step over memory of another form.
  EXPECT_NE(refusal([](auto& s, auto&) {
              s.format = StateFormat::fp32;
              s.absmax_count = 0;
            }).find("absmax1 is given"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& s, auto&) { s.state2 = s.state1; }, Algorithm::Lion), "");
}

TEST(Validate, RefusesMisalignedAndOverlappingTensors) {
  const auto bytes = [](void* p) { return static_cast<unsigned char*>(p); };
  EXPECT_NE(refusal([&](auto& s, auto&) { s.param = bytes(s.param) + 2; }).find("aligned"),
            std::string::npos);
  EXPECT_EQ(refusal([&](auto& s, auto&) {
              s.param = bytes(s.param) + 2;
              s.dtype = s.grad_dtype = DType::bf16;
            }),
            "");
  EXPECT_NE(refusal([](auto& s, auto&) { s.grad = s.param; }).find("overlap"), std::string::npos);
  EXPECT_NE(refusal([&](auto& s, auto&) { s.state2 = bytes(s.state1) + 999; }), "");
  EXPECT_EQ(refusal([&](auto& s, auto&) {
              s.numel = 500;  // both states in the memory of the first
              s.absmax_count = 2;
              s.state2 = bytes(s.state1) + 500;
            }),
            "");
  EXPECT_NE(
      refusal([&](auto& s, auto&) { s.absmax1 = reinterpret_cast<float*>(bytes(s.param) + 3996); }),
      "");
}

// Case B8: a pair of two types is never read as one of them.
TEST(Validate, RefusesAGradientOfAnotherTypeAndNamesBoth) {
  const DType types[] = {DType::fp32, DType::bf16, DType::fp16};
  const std::string names[] = {"fp32", "bf16", "fp16"};
  for (std::size_t param = 0; param < 3; ++param) {
    for (std::size_t grad = 0; grad < 3; ++grad) {
      const std::string message = refusal([&](auto& s, auto&) {
        s.dtype = types[param];
        s.grad_dtype = types[grad];
      });
      if (param == grad) {
        EXPECT_EQ(message, "");
        continue;
      }
      EXPECT_NE(
          message.find("the parameter is " + names[param] + " and its gradient " + names[grad]),
          std::string::npos)
          << message;
    }
  }
}

// A state that was made for another numel, or for other blocks.
TEST(Validate, RefusesANumberOfAbsmaxesThatDoesNotFitTheState) {
  for (const std::int64_t count : {-1, 0, 1, 3, 5, 1000}) {
    EXPECT_NE(refusal([&](auto& s, auto&) { s.absmax_count = count; })
                  .find("has " + std::to_string(count) +
                        " absmaxes, and 1000 elements with 8-bit "
                        "state have 4"),
              std::string::npos);
  }
  EXPECT_NE(refusal([](auto& s, auto&) { s.absmax_count = 4; }, Algorithm::AdamW, StateFormat::fp32)
                .find("float32 state have none"),
            std::string::npos);
}

TEST(Validate, RefusesImpossibleSizesAndSteps) {
  EXPECT_NE(refusal([](auto& s, auto&) { s.numel = -1; }), "");
  EXPECT_NE(refusal([](auto& s, auto&) { s.numel = std::numeric_limits<std::int64_t>::max(); }),
            "");
  EXPECT_NE(refusal([](auto& s, auto&) {
              s.numel = std::numeric_limits<std::int64_t>::max() / 8;
              s.absmax_count = block_count(s.numel);
            }).find("overlap"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& s, auto&) { s.step = 0; }).find("count from 1"), std::string::npos);
}

TEST(Validate, RefusesHyperparametersOutOfRange) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double bad : {-1e-3, kInf, -kInf, std::nan(""), 1e39}) {
    EXPECT_NE(refusal([&](auto&, auto& h) { h.learning_rate = bad; }), "") << bad;
    EXPECT_NE(refusal([&](auto&, auto& h) { h.epsilon = bad; }), "") << bad;
    EXPECT_NE(refusal([&](auto&, auto& h) { h.weight_decay = bad; }), "") << bad;
  }
  for (const double bad : {-0.1, 1.0, 1.5, std::nan("")}) {
    EXPECT_NE(refusal([&](auto&, auto& h) { h.beta1 = bad; }), "") << bad;
    EXPECT_NE(refusal([&](auto&, auto& h) { h.beta2 = bad; }), "") << bad;
  }
  EXPECT_EQ(refusal([](auto&, auto& h) { h.beta1 = h.beta2 = h.learning_rate = 0; }), "");
}

TEST(Validate, StopsBothBackEndsBeforeAnythingChanges) {
  TestShard good(Algorithm::AdamW, DType::fp32, StateFormat::blockwise_8bit, 1000);
  good.fill(1.0f, 1.0f);
  const TestShard before = good;
  ShardTensors shards[] = {good.tensors(1), good.tensors(1)};
  shards[1].grad = nullptr;
  ThreadPool pool(2);
  EXPECT_THROW(step_cpu(pool, Algorithm::AdamW, {}, shards), Error);
  EXPECT_THROW(step_reference(Algorithm::AdamW, {}, shards[1]), Error);
  EXPECT_EQ(good.difference(before), "");
}

TEST(Validate, StopsTheCpuBackEndWhereTwoShardsOverlap) {
  TestShard first(Algorithm::AdamW, DType::fp32, StateFormat::blockwise_8bit, 1000);
  TestShard second(Algorithm::AdamW, DType::fp32, StateFormat::blockwise_8bit, 1000);
  first.fill(1.0f, 1.0f);
  second.fill(1.0f, 1.0f);
  const TestShard before_first = first;
  const TestShard before_second = second;
  ThreadPool pool(2);
  const auto message = [&](const ShardTensors& a, const ShardTensors& b) -> std::string {
    const ShardTensors shards[] = {{.numel = 0, .step = 1}, a, b};
    try {
      step_cpu(pool, Algorithm::AdamW, {}, shards);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_NE(message(first.tensors(1), first.tensors(1)).find("shards 1 and 2"), std::string::npos);
  // One tensor in common is enough, and one byte of it.
  ShardTensors shared = second.tensors(1);
  shared.grad = first.tensors(1).grad;
  EXPECT_NE(message(first.tensors(1), shared).find("overlap"), std::string::npos);
  shared = second.tensors(1);
  shared.state2 = static_cast<std::uint8_t*>(first.tensors(1).state1) + 999;
  EXPECT_NE(message(first.tensors(1), shared).find("overlap"), std::string::npos);
  EXPECT_EQ(first.difference(before_first), "");
  EXPECT_EQ(second.difference(before_second), "");
  EXPECT_EQ(message(first.tensors(1), second.tensors(1)), "");
  EXPECT_NE(first.difference(before_first), "");
}

}  // namespace
}  // namespace stepscope::kernels
