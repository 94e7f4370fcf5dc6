// This project's own CUDA kernels, which step every tensor in one launch: the launch's parameters
// say how many blocks, and the operator that launches them says each tensor's n.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/step_table.h"
#include "tests/tracer/cupti_script.h"
#include "tracer/contracts.h"
#include "tracer/host_recorder.h"

namespace stepscope::tracer {
namespace {

using kernels::cuda::StepArguments;

/// What each tensor of the plan has on this rank; the whole parameters have twice as much.
constexpr std::array<std::int64_t, 5> kPlanned = {10'000, 5'000, 300, 4'097, 4'097};

std::int64_t blocks_of(std::span<const std::int64_t> sizes) {
  std::int64_t blocks = 0;
  for (const std::int64_t n : sizes) blocks += (n + 255) / 256;
  return blocks;
}

/// The launch over `blocks` blocks, and its kernel.
void launch_blocks(FakeCupti& cupti, std::int64_t blocks) {
  constexpr unsigned kGrid = 6;
  StepArguments arguments{};
  arguments.blocks_per_thread_block = blocks / kGrid;
  arguments.extra_blocks = blocks % kGrid;
  arguments.tensor_count = static_cast<std::int32_t>(kPlanned.size());
  std::array<void*, 1> parameters = {&arguments};
  cuLaunchKernel_params call{};
  call.gridDimX = kGrid;
  call.kernelParams = parameters.data();
  cupti.call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "stepscope_adamw_step", 11, &call);
  CUpti_ActivityKernel10 record = kernel(cupti, 11, kGrid);
  record.name = "stepscope_adamw_step";
  cupti.record(record);
}

enum class Launch { within_the_operator, after_it };

/// local-n of a step whose operator is handed tensors of `sizes` and whose kernel does `blocks`.
Verdict local_n(std::span<const std::int64_t> sizes, std::int64_t blocks,
                Launch where = Launch::within_the_operator) {
  const Trace trace = recorded([&](FakeCupti& cupti) {
    std::vector<TensorView> tensors;
    for (const std::int64_t& n : sizes) {
      tensors.push_back({.sizes = {&n, 1},
                         .dtype = "float",
                         .argument = static_cast<std::int32_t>(tensors.size()),
                         .on_device = true});
    }
    HostRecorder& recorder = HostRecorder::instance();
    std::uint64_t epoch = 0;
    HostRecord* const report = recorder.begin(
        {.kind = EventKind::host_operator, .name = "stepscope::adamw8bit_step", .tensors = tensors},
        epoch);
    if (where == Launch::within_the_operator) launch_blocks(cupti, blocks);
    recorder.end(report, epoch);
    if (where == Launch::after_it) launch_blocks(cupti, blocks);
  });
  ExpectedPlan plan;
  for (const std::int64_t n : kPlanned) {
    plan.ranks[0].tensors.push_back({.name = "p" + std::to_string(n), .n = n, .whole = 2 * n});
  }
  for (const Verdict& each : judge(trace, {.plan = &plan}).verdicts) {
    if (each.contract == Contract::local_n && each.ordinal) return each;
  }
  ADD_FAILURE() << "no verdict";
  return {};
}

TEST(OwnKernel, LocalNIsOkWhereTheOperatorsSizesAndTheLaunchsBlocksAreThePlans) {
  const Verdict found = local_n(kPlanned, blocks_of(kPlanned));
  EXPECT_EQ(found.status, Status::ok) << found.reason;
}

TEST(OwnKernel, AGlobalNInOneTensorOfManyBreaksLocalN) {
  auto sizes = kPlanned;
  sizes[2] *= 2;
  const Verdict found = local_n(sizes, blocks_of(sizes));
  EXPECT_EQ(found.status, Status::broken);
  EXPECT_TRUE(found.reason.starts_with("n = 600 is the whole of p300, of which this rank owns 300"))
      << found.reason;
  ASSERT_FALSE(found.offenders.empty());
  EXPECT_EQ(found.offenders.front().name, "stepscope::adamw8bit_step");
  EXPECT_EQ(found.offenders.front().value, 600);
}

TEST(OwnKernel, AnNThatIsWrongWithinItsLastBlockBreaksLocalN) {
  auto sizes = kPlanned;
  sizes[0] += 7;
  ASSERT_EQ(blocks_of(sizes), blocks_of(kPlanned)) << "the blocks alone cannot tell";
  EXPECT_EQ(local_n(sizes, blocks_of(sizes)).status, Status::broken);
}

TEST(OwnKernel, AKernelThatDoesMoreThanItsOperatorSaysBreaksLocalN) {
  const std::int64_t planned = blocks_of(kPlanned);
  for (const std::int64_t blocks : {planned - 1, planned + 2, 2 * planned}) {
    const Verdict found = local_n(kPlanned, blocks);
    EXPECT_EQ(found.status, Status::broken) << blocks;
    ASSERT_FALSE(found.offenders.empty());
    EXPECT_EQ(found.offenders.front().name, "stepscope_adamw_step");
  }
}

TEST(OwnKernel, ALaunchOutsideOfTheOperatorStaysBounded) {
  const Verdict found = local_n(kPlanned, blocks_of(kPlanned), Launch::after_it);
  EXPECT_EQ(found.status, Status::unverified);
  EXPECT_TRUE(found.reason.starts_with("bounded: ")) << found.reason;
}

}  // namespace
}  // namespace stepscope::tracer
