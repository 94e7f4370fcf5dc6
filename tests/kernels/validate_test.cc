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
  EXPECT_NE(refusal([](auto& s, auto&) { s.format = StateFormat::fp32; }), "");
  EXPECT_NE(refusal([](auto& s, auto&) { s.state2 = s.state1; }, Algorithm::Lion), "");
}

TEST(Validate, RefusesMisalignedAndOverlappingTensors) {
  const auto bytes = [](void* p) { return static_cast<unsigned char*>(p); };
  EXPECT_NE(refusal([&](auto& s, auto&) { s.param = bytes(s.param) + 2; }).find("aligned"),
            std::string::npos);
  EXPECT_EQ(refusal([&](auto& s, auto&) {
              s.param = bytes(s.param) + 2;
              s.dtype = DType::bf16;
            }),
            "");
  EXPECT_NE(refusal([](auto& s, auto&) { s.grad = s.param; }).find("overlap"), std::string::npos);
  EXPECT_NE(refusal([&](auto& s, auto&) { s.state2 = bytes(s.state1) + 999; }), "");
  EXPECT_EQ(refusal([&](auto& s, auto&) {
              s.numel = 500;  // both states in the memory of the first
              s.state2 = bytes(s.state1) + 500;
            }),
            "");
  EXPECT_NE(
      refusal([&](auto& s, auto&) { s.absmax1 = reinterpret_cast<float*>(bytes(s.param) + 3996); }),
      "");
}

TEST(Validate, RefusesImpossibleSizesAndSteps) {
  EXPECT_NE(refusal([](auto& s, auto&) { s.numel = -1; }), "");
  EXPECT_NE(refusal([](auto& s, auto&) { s.numel = std::numeric_limits<std::int64_t>::max(); }),
            "");
  EXPECT_NE(refusal([](auto& s, auto&) { s.numel = std::numeric_limits<std::int64_t>::max() / 8; }),
            "");
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

}  // namespace
}  // namespace stepscope::kernels
