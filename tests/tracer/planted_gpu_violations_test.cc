// Violations on a GPU as CUPTI reports them, planted one at a time in a step that keeps every
// contract: each breaks exactly its own, with the event that did it.

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/tracer/cupti_script.h"
#include "tracer/contracts.h"

namespace stepscope::tracer {
namespace {

constexpr std::int32_t kFirst = 10'000;
constexpr std::int32_t kSecond = 5'000;
constexpr int kFirstGrid = 40;

using Script = std::function<void(FakeCupti&)>;

/// The step that the plan wants, on plain tensors and on shards alike.
void own_step(FakeCupti& cupti) {
  step(cupti, 1, kFirst);
  step(cupti, 2, kSecond);
}

std::vector<Verdict> judged(const Script& script, const CuptiOptions& options) {
  ExpectedPlan plan;
  plan.ranks[0].tensors = {{.name = "embed", .n = kFirst, .whole = 2 * kFirst},
                           {.name = "head", .n = kSecond, .whole = 2 * kSecond}};
  const Trace plain = recorded(own_step);
  return judge(recorded(script, options), {.plan = &plan, .against = &plain}).verdicts;
}

std::string text(const Verdict& verdict) {
  return std::string(contract_name(verdict.contract)) + " " +
         std::string(status_name(verdict.status)) + ": " + verdict.reason;
}

struct Expected {
  std::set<Contract> broken;
  std::optional<std::string>
      offender;        ///< name of the first event that is shown; none: none can be
  std::string reason;  ///< what that of the first broken contract says
  std::optional<std::int64_t> value = {};  ///< of that event
};

void expect_broken(const Expected& expected, const Script& script,
                   const CuptiOptions& options = {}) {
  for (const Verdict& verdict : judged(own_step, options)) {
    EXPECT_EQ(verdict.status, Status::ok) << "without the violation: " << text(verdict);
  }
  std::set<Contract> broken;
  for (const Verdict& verdict : judged(script, options)) {
    if (verdict.status != Status::broken) continue;
    if (broken.empty()) {
      EXPECT_NE(verdict.reason.find(expected.reason), std::string::npos) << text(verdict);
      ASSERT_NE(verdict.offenders.empty(), expected.offender.has_value()) << text(verdict);
      if (expected.offender) {
        const Offender& offender = verdict.offenders.front();
        EXPECT_EQ(offender.name, expected.offender);
        EXPECT_EQ(offender.value, expected.value) << text(verdict);
        EXPECT_LE(offender.start_ns, offender.end_ns);
      }
    }
    broken.insert(verdict.contract);
  }
  EXPECT_EQ(broken, expected.broken);
}

TEST(PlantedGpuViolation, AGlobalNIsSeen) {
  expect_broken({.broken = {Contract::local_n},
                 .offender = kUpdate,
                 .reason = "n = 20000 is the whole of embed, of which this rank owns 10000",
                 .value = 2 * kFirst},
                [](FakeCupti& cupti) {
                  step(cupti, 1, 2 * kFirst);
                  step(cupti, 2, kSecond);
                });
}

TEST(PlantedGpuViolation, OneMoreAllGatherIsSeen) {
  // NCCL's kernel is one that plain tensors do not launch, too.
  expect_broken(
      {.broken = {Contract::no_all_gather, Contract::no_collectives, Contract::no_extra_launches},
       .offender = "ncclDevKernel_AllGather_RING_LL",
       .reason = "1 all-gather in the step"},
      [](FakeCupti& cupti) {
        own_step(cupti);
        other_kernel(cupti, 3, "ncclDevKernel_AllGather_RING_LL");
      });
}

TEST(PlantedGpuViolation, ACollectiveAParameterIsSeen) {
  expect_broken({.broken = {Contract::no_collectives, Contract::no_extra_launches},
                 .offender = "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                 .reason = "2 all-reduces in the step"},
                [](FakeCupti& cupti) {
                  own_step(cupti);
                  other_kernel(cupti, 3, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
                  other_kernel(cupti, 4, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
                });
}

TEST(PlantedGpuViolation, ACopyToTheHostIsSeen) {
  expect_broken({.broken = {Contract::no_host_device_copies},
                 .offender = "",  // a copy has no name
                 .reason = "1 copy between host and device",
                 .value = 4},
                [](FakeCupti& cupti) {
                  own_step(cupti);
                  copy(cupti, 3, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, 4);
                });
}

TEST(PlantedGpuViolation, ACopyOnTheDeviceIsNone) {
  expect_broken({.broken = {}, .offender = {}, .reason = {}}, [](FakeCupti& cupti) {
    own_step(cupti);
    copy(cupti, 3, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, 4);
  });
}

TEST(PlantedGpuViolation, AnExtraLaunchIsSeen) {
  expect_broken({.broken = {Contract::no_extra_launches},
                 .offender = "elementwise_kernel",
                 .reason = "elementwise_kernel 1 time, 0 on plain tensors"},
                [](FakeCupti& cupti) {
                  own_step(cupti);
                  other_kernel(cupti, 3, "elementwise_kernel");
                });
}

TEST(PlantedGpuViolation, ADroppedRecordIsSeen) {
  // The buffers hold the step's two kernels, and not what comes after the step's work.
  expect_broken({.broken = {Contract::complete_trace},
                 .offender = {},
                 .reason = "device records were dropped"},
                [](FakeCupti& cupti) {
                  own_step(cupti);
                  for (std::uint32_t i = 3; i < 3000; ++i) {
                    copy(cupti, i, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, 4);
                  }
                },
                {.buffer_bytes = 64 << 10, .buffers = 2});
}

TEST(PlantedGpuViolation, ALaunchWithoutItsKernelIsSeen) {
  expect_broken({.broken = {Contract::complete_trace},
                 .offender = "cuLaunchKernel",
                 .reason = "1 launch has no kernel in the trace"},
                [](FakeCupti& cupti) {
                  own_step(cupti);
                  launch(cupti, 3, kFirst, kFirstGrid);
                });
}

TEST(PlantedGpuViolation, AKernelWithoutItsLaunchIsSeen) {
  expect_broken({.broken = {Contract::complete_trace},
                 .offender = kUpdate,
                 .reason = "1 kernel has no launch in the trace"},
                [](FakeCupti& cupti) {
                  own_step(cupti);
                  cupti.record(kernel(cupti, 99, kFirstGrid));
                });
}

}  // namespace
}  // namespace stepscope::tracer
