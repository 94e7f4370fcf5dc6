#include "tracer/record_function_source.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tracer/capture.h"

namespace stepscope::tracer {
namespace {

Capture capture_of_libtorch(const CaptureOptions& options = {}) {
  std::vector<std::unique_ptr<CaptureSource>> sources;
  sources.push_back(make_record_function_source());
  return {options, std::move(sources)};
}

std::vector<Event> named(const Trace& trace, std::string_view name) {
  std::vector<Event> found;
  for (const Event& event : trace.events()) {
    if (trace.name(event) == name) found.push_back(event);
  }
  return found;
}

/// The only event of that name.
Event only(const Trace& trace, std::string_view name) {
  const auto found = named(trace, name);
  EXPECT_EQ(found.size(), 1U) << name;
  return found.empty() ? Event{} : found.front();
}

TEST(RecordFunctionSource, AnOperatorHasShapeTypeAndElements) {
  const at::Tensor a = at::ones({3, 5}, at::kFloat);
  const at::Tensor b = at::ones({5}, at::kFloat);
  Capture capture = capture_of_libtorch();
  capture.start();
  const at::Tensor sum = at::add(a, b);
  const Trace trace = capture.stop();
  EXPECT_EQ(trace.processes().front().source, "record-function");
  const Event event = only(trace, "aten::add");
  EXPECT_EQ(event.kind, EventKind::host_operator);
  EXPECT_EQ(event.value, 15);
  EXPECT_EQ(event.value_source, ValueSource::exact);
  EXPECT_GE(event.duration_ns(), 0);
  EXPECT_NE(event.thread, 0U);
  const auto inputs = trace.inputs(event.detail);
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(inputs[0].shape, (std::vector<std::int64_t>{3, 5}));
  EXPECT_EQ(inputs[0].dtype, "float");
  EXPECT_EQ(inputs[1].argument, 1);
}

TEST(RecordFunctionSource, TheTensorsOfAListShareTheirArgument) {
  const std::vector<at::Tensor> params = {at::zeros({4, 2}), at::zeros({7})};
  const std::vector<at::Tensor> grads = {at::ones({4, 2}), at::ones({7})};
  const std::vector<at::Tensor> first = {at::zeros({4, 2}), at::zeros({7})};
  const std::vector<at::Tensor> second = {at::zeros({4, 2}), at::zeros({7})};
  const std::vector<at::Tensor> steps = {at::ones({}), at::ones({})};
  Capture capture = capture_of_libtorch();
  capture.start();
  at::_fused_adamw_(params, grads, first, second, {}, steps, 1e-3, 0.9, 0.999, 0.01, 1e-8, false,
                    false);
  const Trace trace = capture.stop();
  std::vector<std::int64_t> parameters;
  const auto inputs = trace.inputs(only(trace, "aten::_fused_adamw_").detail);
  for (const TensorInput& input : inputs) {
    if (input.argument == 0) parameters.push_back(input.numel());
  }
  EXPECT_EQ(parameters, (std::vector<std::int64_t>{8, 7}));
  EXPECT_EQ(inputs.size(), 10U);
}

TEST(RecordFunctionSource, RangesWithoutInputsAreNotReadFor) {
  Capture capture = capture_of_libtorch();
  capture.start();
  {
    RECORD_USER_SCOPE("Optimizer.step#AdamW8bit.step");
    at::RecordFunction bare(at::RecordScope::FUNCTION);
    if (bare.isActive()) bare.before("bare");
    at::RecordFunction undefined(at::RecordScope::FUNCTION);
    const std::vector<c10::IValue> inputs = {at::Tensor(), c10::IValue(), c10::IValue(3),
                                             std::vector<std::int64_t>{1, 2}};
    if (undefined.isActive()) {
      undefined.before("undefined", c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
    }
  }
  const Trace trace = capture.stop();
  const Event scope = only(trace, "Optimizer.step#AdamW8bit.step");
  EXPECT_EQ(scope.kind, EventKind::range);
  EXPECT_EQ(scope.detail, kNoDetail);
  for (const char* name : {"bare", "undefined"}) {
    const Event event = only(trace, name);
    EXPECT_EQ(event.kind, EventKind::host_operator);
    EXPECT_EQ(event.value, kNoValue);
    EXPECT_EQ(event.detail, kNoDetail);
  }
}

TEST(RecordFunctionSource, ACopyHasBytesAndDirection) {
  at::Tensor to = at::zeros({100}, at::kFloat);
  const at::Tensor from = at::ones({100}, at::kDouble);
  Capture capture = capture_of_libtorch();
  capture.start();
  to.copy_(from);
  const double value = from[3].item<double>();
  const Trace trace = capture.stop();
  EXPECT_EQ(value, 1);
  const Event copy = only(trace, "aten::copy_");
  EXPECT_EQ(copy.kind, EventKind::copy);
  EXPECT_EQ(copy.value, 400);
  EXPECT_EQ(copy.direction, CopyDirection::host_to_host);
  EXPECT_EQ(only(trace, "aten::_local_scalar_dense").value, 8);
}

/// A scope as a back end of c10d opens it.
void collective_scope(const char* name, const std::vector<c10::IValue>& inputs) {
  at::RecordFunction scope(at::RecordScope::USER_SCOPE);
  if (scope.isActive()) {
    scope.before(name, c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  }
}

TEST(RecordFunctionSource, ACollectiveHasTheBytesHandedInAndIsCountedOnce) {
  const c10::IValue in = at::zeros({10}, at::kFloat);
  const c10::IValue out = at::zeros({40}, at::kFloat);
  Capture capture = capture_of_libtorch();
  capture.start();
  collective_scope("gloo:all_gather", {in});
  collective_scope("gloo:barrier", {});
  {
    at::RecordFunction c10d(at::RecordScope::FUNCTION);
    const std::vector<c10::IValue> inputs = {out, in};
    if (c10d.isActive()) {
      c10d.before("c10d::_allgather_base_",
                  c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
    }
    collective_scope("nccl:_all_gather_base", {in});
  }
  collective_scope("gloo:all_reduce", {in, in});
  const Trace trace = capture.stop();

  const Event gather = only(trace, "gloo:all_gather");
  EXPECT_EQ(gather.kind, EventKind::collective);
  EXPECT_EQ(gather.collective, CollectiveKind::all_gather);
  EXPECT_EQ(gather.value, 40);
  EXPECT_EQ(only(trace, "gloo:barrier").value, 0);
  const Event base = only(trace, "c10d::_allgather_base_");
  EXPECT_EQ(base.collective, CollectiveKind::all_gather);
  EXPECT_EQ(base.value, 40) << "the output of 160 bytes is not handed in";
  EXPECT_EQ(only(trace, "nccl:_all_gather_base").kind, EventKind::range);
  EXPECT_EQ(only(trace, "gloo:all_reduce").value, 80);
}

TEST(RecordFunctionSource, AnAsynchronousScopeMayEndOnAnotherThreadAndAfterTheCapture) {
  Capture capture = capture_of_libtorch();
  capture.start();
  auto ended = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  auto left = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  ended->_setAsync();
  left->_setAsync();
  ended->before("gloo:send");
  left->before("gloo:recv");
  std::thread([&] { ended->end(); }).join();
  const Trace trace = capture.stop();
  EXPECT_LE(only(trace, "gloo:send").end_ns, only(trace, "gloo:recv").end_ns);
  std::thread([&] { left->end(); }).join();

  capture.start();
  EXPECT_TRUE(capture.stop().events().empty());
}

TEST(RecordFunctionSource, WorksOnManyThreadsAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  Capture capture = capture_of_libtorch();
  capture.start();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kEach; ++i) at::ones({3}).zero_();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Trace trace = capture.stop();
  EXPECT_EQ(named(trace, "aten::zero_").size(), std::size_t{kThreads} * kEach);
  EXPECT_EQ(trace.processes().front().host_dropped, 0);
}

TEST(RecordFunctionSource, NothingIsRecordedAfterStop) {
  Capture capture = capture_of_libtorch();
  capture.start();
  capture.stop();
  EXPECT_FALSE(at::hasGlobalCallbacks());
}

}  // namespace
}  // namespace stepscope::tracer
