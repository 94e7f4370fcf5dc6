#include "tracer/cupti_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/cuda/step_table.h"
#include "tests/tracer/cupti_script.h"
#include "tracer/capture.h"
#include "tracer/contracts.h"
#include "tracer/cupti_library.h"
#include "tracer/launch_parameters.h"
#include "tracer/range.h"
#include "tracer/record_buffer.h"

namespace stepscope::tracer {
namespace {

std::vector<Event> kernels(const Trace& trace) {
  std::vector<Event> found;
  for (const Event& event : trace.events()) {
    if (event.kind == EventKind::kernel) found.push_back(event);
  }
  return found;
}

/// The verdict on step 0, or on the whole process.
Verdict verdict(const Trace& trace, Contract contract, std::int64_t n = 10'000,
                bool of_step = true) {
  ExpectedPlan plan;
  plan.ranks[0].tensors = {{.name = "p", .n = n, .whole = 2 * n}};
  for (const Verdict& each : judge(trace, {.plan = &plan}).verdicts) {
    if (each.contract == contract && each.ordinal.has_value() == of_step) return each;
  }
  ADD_FAILURE() << "no verdict on " << contract_name(contract);
  return {};
}

TEST(CuptiSource, AStepKeepsItsContractsFromBufferToVerdict) {
  const Trace trace = recorded([](FakeCupti& cupti) { step(cupti, 11, 10'000); });
  EXPECT_EQ(trace.processes().front().source, "cupti");
  EXPECT_EQ(trace.processes().front().launched, 1);
  EXPECT_EQ(trace.processes().front().dropped, 0);
  ASSERT_EQ(kernels(trace).size(), 1U);
  const Event event = kernels(trace).front();
  EXPECT_EQ(event.value, 10'000);
  EXPECT_EQ(event.value_source, ValueSource::exact);
  EXPECT_EQ(event.stream, 7U);
  EXPECT_NE(event.thread, 0U);
  EXPECT_EQ(trace.launch(event.detail).grid[0], 40);
  for (const Contract contract : {Contract::local_n, Contract::no_all_gather,
                                  Contract::no_host_device_copies, Contract::complete_trace}) {
    const Verdict found = verdict(trace, contract);
    EXPECT_EQ(found.status, Status::ok) << contract_name(contract) << ": " << found.reason;
  }
}

TEST(CuptiSource, AGlobalNBreaksLocalN) {
  const Trace trace = recorded([](FakeCupti& cupti) { step(cupti, 11, 20'000); });
  EXPECT_EQ(verdict(trace, Contract::local_n).status, Status::broken);
}

TEST(CuptiSource, ADeviceToHostCopyIsSeen) {
  const Trace trace = recorded([](FakeCupti& cupti) {
    step(cupti, 11, 10'000);
    copy(cupti, 12, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, 4);
  });
  const Verdict found = verdict(trace, Contract::no_host_device_copies);
  EXPECT_EQ(found.status, Status::broken);
  ASSERT_EQ(found.offenders.size(), 1U);
  EXPECT_EQ(found.offenders.front().value, 4);
  EXPECT_EQ(std::count_if(trace.events().begin(), trace.events().end(),
                          [](const Event& event) { return event.kind == EventKind::api_call; }),
            2)
      << "one call of a correlation: the runtime's, not the driver's as well";
}

TEST(CuptiSource, WhatFoundNoBufferIsCountedAsDropped) {
  constexpr std::uint32_t kLaunches = 10'000;
  const Trace trace = recorded(
      [](FakeCupti& cupti) {
        for (std::uint32_t i = 1; i <= kLaunches; ++i) step(cupti, i, 256);
      },
      {.buffer_bytes = 64 << 10, .buffers = 4});
  const Process& process = trace.processes().front();
  EXPECT_EQ(process.launched, kLaunches);
  EXPECT_GT(process.dropped.value(), 0);
  EXPECT_EQ(static_cast<std::int64_t>(kernels(trace).size()) + process.dropped.value(), kLaunches);
  EXPECT_EQ(verdict(trace, Contract::complete_trace, 256, false).status, Status::broken);
}

TEST(CuptiSource, ACountThatCannotBeHadIsNotZero) {
  const Trace trace = recorded([](FakeCupti& cupti) {
    step(cupti, 11, 10'000);
    cupti.fail_dropped = CUPTI_ERROR_UNKNOWN;
  });
  EXPECT_EQ(trace.processes().front().dropped, std::nullopt);
  EXPECT_EQ(verdict(trace, Contract::complete_trace, 10'000, false).status, Status::unverified);
}

TEST(CuptiSource, ALostKernelBreaksTheTrace) {
  const Trace trace = recorded([](FakeCupti& cupti) {
    step(cupti, 11, 10'000);
    launch(cupti, 12, 10'000, 40);
  });
  EXPECT_EQ(verdict(trace, Contract::complete_trace, 10'000, false).status, Status::broken);
}

TEST(CuptiSource, AKernelWithoutItsLaunchBreaksTheTrace) {
  const Trace trace = recorded([](FakeCupti& cupti) {
    step(cupti, 11, 10'000);
    cupti.record(kernel(cupti, 99, 40));
  });
  EXPECT_NE(verdict(trace, Contract::complete_trace, 10'000, false).status, Status::ok);
}

TEST(CuptiSource, ImpossibleTimesAndDuplicatesAreCountedAndLeftOut) {
  const Trace trace = recorded([](FakeCupti& cupti) {
    const auto good = kernel(cupti, 1, 40);
    auto record = good;
    cupti.record(record);
    cupti.record(record);  // twice
    record.correlationId = 2;
    record.start = record.end = 0;
    cupti.record(record);
    record.correlationId = 3;
    record.start = good.start;
    record.end = good.start - 5;
    cupti.record(record);
    record.correlationId = 4;
    record.end = good.start + 7'400'000'000'000'000ULL;
    cupti.record(record);
  });
  EXPECT_EQ(kernels(trace).size(), 1U);
  EXPECT_EQ(trace.health().duplicates, 1);
  EXPECT_EQ(trace.health().without_time, 1);
  EXPECT_EQ(trace.health().negative_duration, 1);
  EXPECT_EQ(trace.health().impossible_duration, 1);
}

TEST(CuptiSource, RecordsMayComeInAnyOrder) {
  const Trace trace = recorded([](FakeCupti& cupti) {
    for (std::uint32_t i : {3U, 1U, 2U}) launch(cupti, i, 256 * static_cast<int>(i), i);
    std::vector<CUpti_ActivityKernel10> records;
    for (int i : {1, 2, 3}) records.push_back(kernel(cupti, static_cast<std::uint32_t>(i), i));
    for (auto at = records.rbegin(); at != records.rend(); ++at) cupti.record(*at);
  });
  std::vector<std::int64_t> sizes;
  for (const Event& event : kernels(trace)) sizes.push_back(event.value);
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{256, 512, 768}));
}

TEST(CuptiSource, ALaunchThatFailedIsNone) {
  const Trace trace = recorded([](FakeCupti& cupti) {
    step(cupti, 11, 10'000);
    launch(cupti, 12, 10'000, 40, CUDA_ERROR_OUT_OF_MEMORY);
  });
  EXPECT_EQ(trace.processes().front().launched, 1);
}

TEST(CuptiSource, GraphsLeaveTheCountOfLaunchesUnknown) {
  const Trace trace = recorded([](FakeCupti& cupti) {
    cupti.call(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, nullptr, 5, nullptr);
  });
  EXPECT_EQ(trace.processes().front().launched, std::nullopt);
}

TEST(CuptiSource, TheExtendedLaunchHasItsNToo) {
  const Trace trace = recorded([](FakeCupti& cupti) {
    Parameters parameters(10'000);
    CUlaunchConfig config{};
    config.gridDimX = 40;
    cuLaunchKernelEx_params call{};
    call.config = &config;
    call.kernelParams = parameters.pointers.data();
    cupti.call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, kUpdate, 11, &call);
    cupti.record(kernel(cupti, 11, 40));
  });
  EXPECT_EQ(verdict(trace, Contract::local_n).status, Status::ok);
}

TEST(CuptiSource, AnNThatTheGridOrTheDriverContradictsIsNotTaken) {
  const auto value = [](unsigned grid, std::optional<ParameterPlace> place) {
    const Trace trace = recorded([&](FakeCupti& cupti) {
      cupti.place = place;
      launch(cupti, 11, 10'000, grid);
      cupti.record(kernel(cupti, 11, static_cast<int>(grid)));
    });
    return kernels(trace).front().value;
  };
  EXPECT_EQ(value(40, std::nullopt), 10'000);
  EXPECT_EQ(value(40, ParameterPlace{.offset = 0x6c, .bytes = 4}), 10'000);
  EXPECT_EQ(value(40, ParameterPlace{.offset = 0x6c, .bytes = 8}), kNoValue);
  EXPECT_EQ(value(40, ParameterPlace{.offset = 0x70, .bytes = 4}), kNoValue);
  EXPECT_EQ(value(41, std::nullopt), kNoValue);
}

TEST(CuptiSource, WhatCannotStartSaysWhyAndLeavesNothingBehind) {
  int alive = 0;
  for (const bool at_once : {true, false}) {
    auto cupti = std::make_unique<FakeCupti>();
    (at_once ? cupti->fail_subscribe : cupti->fail_enable) = CUPTI_ERROR_UNKNOWN;
    cupti->alive = &alive;
    Capture capture = capture_of(std::move(cupti));
    try {
      capture.start();
      FAIL() << "it started";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("failed with error 999"), std::string::npos)
          << error.what();
    }
    EXPECT_EQ(alive, 0);
    EXPECT_FALSE(capture.running());
  }
}

TEST(LaunchParameters, OtherKernelsHaveNoPlace) {
  EXPECT_EQ(place_of_n("_Z6kernelPf"), nullptr);
  const PlaceOfN* const place = place_of_n("_Z21kOptimizer32bit1StateI6__halfLi5EEvPT_");
  ASSERT_NE(place, nullptr);
  Parameters parameters(5000, place->ordinal);
  EXPECT_EQ(read_n(*place, parameters.pointers.data(), 2), 5000);
  EXPECT_EQ(read_n(*place, parameters.pointers.data(), 1), std::nullopt);
  EXPECT_EQ(read_n(*place, nullptr, 2), std::nullopt);
  parameters.n = -5000;
  EXPECT_EQ(read_n(*place, parameters.pointers.data(), 2), std::nullopt);
}

using kernels::cuda::StepArguments;

TEST(LaunchParameters, OurOwnKernelsSayTheBlocksOfAllTheirTensors) {
  const PlaceOfN* const place = place_of_n("stepscope_adamw_step");
  ASSERT_NE(place, nullptr);
  EXPECT_EQ(place->bytes(), sizeof(StepArguments));
  StepArguments arguments{};
  arguments.blocks_per_thread_block = 3;
  arguments.extra_blocks = 2;
  arguments.tensor_count = 2;
  std::array<void*, 1> parameters = {&arguments};
  EXPECT_EQ(read_n(*place, parameters.data(), 10), 32 * 256);
  EXPECT_EQ(read_n(*place, parameters.data(), 2), std::nullopt);  // extra blocks: fewer than that
  arguments.blocks_per_thread_block = std::numeric_limits<std::int64_t>::max() / 4;
  EXPECT_EQ(read_n(*place, parameters.data(), 10), std::nullopt);
  arguments = {};
  EXPECT_EQ(read_n(*place, parameters.data(), 10), std::nullopt);
}

TEST(LaunchParameters, NoTableHasMoreTensorsOrThreadBlocksThanBlocks) {
  const PlaceOfN* const place = place_of_n("stepscope_lion_step");
  ASSERT_NE(place, nullptr);
  StepArguments arguments{};
  arguments.blocks_per_thread_block = 3;
  arguments.extra_blocks = 2;
  std::array<void*, 1> parameters = {&arguments};
  const auto read = [&](std::int32_t tensors, std::int64_t grid = 10) {
    arguments.tensor_count = tensors;
    return read_n(*place, parameters.data(), grid);
  };
  EXPECT_EQ(read(1), 32 * 256);
  EXPECT_EQ(read(32), 32 * 256) << "a block a tensor";
  for (const std::int32_t tensors : {33, std::numeric_limits<std::int32_t>::max(), 0, -1,
                                     std::numeric_limits<std::int32_t>::min()}) {
    EXPECT_EQ(read(tensors), std::nullopt) << tensors;
  }
  arguments.blocks_per_thread_block = 0;
  EXPECT_EQ(read(1, 3), std::nullopt) << "a thread block would have nothing to do";
  arguments.extra_blocks = 0;
  for (const std::int64_t grid : {1, 0, -1}) EXPECT_EQ(read(1, grid), std::nullopt) << grid;
  arguments.blocks_per_thread_block = 1;
  EXPECT_EQ(read(1, 1), 256);
  EXPECT_EQ(read(1, 0), std::nullopt);
}

TEST(CuptiSource, OurOwnKernelIsHeldToThePlansBlocks) {
  const auto judged = [](std::int64_t blocks) {
    const Trace trace = recorded([&](FakeCupti& cupti) {
      constexpr unsigned kGrid = 6;
      StepArguments arguments{};
      arguments.blocks_per_thread_block = blocks / kGrid;
      arguments.extra_blocks = blocks % kGrid;
      arguments.tensor_count = 1;
      std::array<void*, 1> parameters = {&arguments};
      cuLaunchKernel_params call{};
      call.gridDimX = kGrid;
      call.kernelParams = parameters.data();
      cupti.call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "stepscope_lion_step", 11, &call);
      CUpti_ActivityKernel10 record = kernel(cupti, 11, kGrid);
      record.name = "stepscope_lion_step";
      cupti.record(record);
    });
    return verdict(trace, Contract::local_n);
  };
  EXPECT_EQ(judged(40).status, Status::unverified) << "10,000 elements, or a few fewer";
  EXPECT_TRUE(judged(40).reason.starts_with("bounded: ")) << judged(40).reason;
  EXPECT_EQ(judged(79).status, Status::broken) << "the whole tensor's";
}

/// Where there is neither libcupti nor a driver, or only the one, that is one clear line.
TEST(CuptiLibrary, WithoutADriverRecordingIsRefusedInOneLine) {
  std::unique_ptr<CuptiApi> cupti;
  try {
    cupti = load_cupti();
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("GPU activities cannot be recorded: "));
    GTEST_SKIP() << error.what();
  }
  Capture capture = capture_of(std::move(cupti));
  try {
    capture.start();
    capture.stop();  // there is a GPU
  } catch (const Error& error) {
    const std::string line = error.what();
    EXPECT_TRUE(line.starts_with("GPU activities cannot be recorded: cupti")) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos);
    RecordProperty("refusal", line);
  }
  EXPECT_FALSE(capture.running());
}

}  // namespace
}  // namespace stepscope::tracer
