// NVTX loads the library that a process names, and the ranges of this test program arrive there.

#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/temp_file.h"
#include "tracer/range.h"
#include "tracer/trace_file.h"
#include "tracer/tracer_library.h"

namespace stepscope::tracer {
namespace {

/// NVTX reads it at its first call in the process.
const bool kInjected = setenv("NVTX_INJECTION64_PATH", STEPSCOPE_TRACER_LIBRARY, 1) == 0;

/// The names of what `body` does, in the order of their starts.
std::vector<std::string> recorded(const std::function<void()>& body) {
  EXPECT_TRUE(kInjected);
  EXPECT_EQ(stepscope_tracer_start("", 0), 0) << stepscope_tracer_error();
  body();
  EXPECT_EQ(stepscope_tracer_stop(), 0) << stepscope_tracer_error();
  const TempFile file("trace.sqlite", "");
  EXPECT_EQ(stepscope_tracer_write(file.path().c_str()), 0) << stepscope_tracer_error();
  Trace trace;
  read_trace_file(file.path(), trace);
  trace.finish();
  std::vector<std::string> names;
  for (const Event& event : trace.events()) {
    EXPECT_EQ(event.kind, EventKind::range);
    EXPECT_GE(event.duration_ns(), 0);
    names.emplace_back(trace.name(event));
  }
  return names;
}

nvtxEventAttributes_t attributes(nvtxMessageType_t type, nvtxMessageValue_t message) {
  nvtxEventAttributes_t result{};
  result.version = NVTX_VERSION;
  result.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  result.messageType = type;
  result.message = message;
  return result;
}

using Names = std::vector<std::string>;

TEST(NvtxInjection, OurOwnRangesHaveTheirDomain) {
  EXPECT_EQ(recorded([] { const Range step("step 4"); }), Names{"stepscope:step 4"});
}

TEST(NvtxInjection, TextsOfEveryTypeAreTaken) {
  nvtxDomainHandle_t domain = nvtxDomainCreateW(L"d\u00e9");
  const auto ascii = attributes(NVTX_MESSAGE_TYPE_ASCII, {.ascii = "ascii"});
  const auto wide = attributes(NVTX_MESSAGE_TYPE_UNICODE, {.unicode = L"\u20ac\U0001F600"});
  const auto kept = attributes(NVTX_MESSAGE_TYPE_REGISTERED,
                               {.registered = nvtxDomainRegisterStringA(domain, "registered")});
  const nvtxEventAttributes_t none{};
  const auto names = recorded([&] {
    for (const auto* each : {&ascii, &wide, &kept, &none}) {
      nvtxDomainRangePushEx(domain, each);
      nvtxDomainRangePop(domain);
    }
    nvtxRangePushEx(&ascii);
    nvtxRangePop();
    nvtxRangePushA(nullptr);
    nvtxRangePop();
    nvtxRangePushW(L"wide");
    nvtxRangePop();
  });
  EXPECT_EQ(names, (Names{"dé:ascii", "dé:€😀", "dé:registered", "dé:", "ascii", "", "wide"}));
}

TEST(NvtxInjection, RangesNestByDomainAndMayBePoppedTooOften) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("other");
  const auto inner = attributes(NVTX_MESSAGE_TYPE_ASCII, {.ascii = "inner"});
  recorded([&] {
    EXPECT_EQ(nvtxRangePushA("a"), 0);
    EXPECT_EQ(nvtxDomainRangePushEx(domain, &inner), 0);
    EXPECT_EQ(nvtxRangePushA("b"), 1);
    EXPECT_EQ(nvtxRangePop(), 1);
    EXPECT_EQ(nvtxRangePop(), 0);
    EXPECT_LT(nvtxRangePop(), 0);
    EXPECT_EQ(nvtxDomainRangePop(domain), 0);
  });
}

TEST(NvtxInjection, AStartedRangeMayEndOnAnotherThreadOrNever) {
  const auto names = recorded([] {
    const nvtxRangeId_t ended = nvtxRangeStartA("ended");
    nvtxRangeStartA("open");
    std::thread([ended] { nvtxRangeEnd(ended); }).join();
    nvtxRangeEnd(ended);
    nvtxRangeEnd(12345678);
  });
  EXPECT_EQ(names, (Names{"ended", "open"}));
}

/// A process that begins anew, whose first range asks the environment.
class NvtxInjectionDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static void ends_well(const char* variable, const char* value) {
    setenv("STEPSCOPE_TRACE_OUT", "/nonexistent/%p.sqlite", 1);
    if (variable != nullptr) setenv(variable, value, 1);
    nvtxRangePushA("range");
    nvtxRangePop();
    std::exit(0);
  }
};

TEST_F(NvtxInjectionDeathTest, WhatCannotBeDoneIsOneLineAndTheProcessGoesOn) {
  const auto fine = ::testing::ExitedWithCode(0);
  EXPECT_EXIT(ends_well("STEPSCOPE_TRACE_OUT", ""), fine,
              "stepscope_tracer: nothing is recorded: STEPSCOPE_TRACE_OUT names no file");
  EXPECT_EXIT(ends_well("STEPSCOPE_TRACE_SOURCES", "all"), fine,
              "stepscope_tracer: there is no source \"all\"");
  EXPECT_EXIT(ends_well("STEPSCOPE_TRACE_BUFFER_MIB", "much"), fine,
              "stepscope_tracer: .*STEPSCOPE_TRACE_BUFFER_MIB");
  EXPECT_EXIT(ends_well(nullptr, nullptr), fine, "stepscope_tracer: .*/nonexistent");
}

}  // namespace
}  // namespace stepscope::tracer
