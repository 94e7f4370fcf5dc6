#include "tracer/tracer_library.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/core/temp_file.h"
#include "tracer/output_name.h"
#include "tracer/trace_file.h"

namespace stepscope::tracer {
namespace {

/// A library that a test linked stays for all its tests: each begins and ends without a recording.
class TracerLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"}) unsetenv(name);
  }
  void TearDown() override { stepscope_tracer_stop(); }
};

TEST_F(TracerLibrary, WritesWhatItRecordedWithTheRankInBothFormats) {
  ASSERT_EQ(stepscope_tracer_start("", 0), 0) << stepscope_tracer_error();
  ASSERT_EQ(stepscope_tracer_stop(), 0) << stepscope_tracer_error();
  ASSERT_EQ(stepscope_tracer_set_rank(3, 4), 0) << stepscope_tracer_error();
  for (const char* suffix : {".sqlite", ".json"}) {
    const TempFile file("rank3" + std::string(suffix), "");
    std::string pattern = file.path();
    pattern.replace(pattern.rfind('3'), 1, "%r");
    ASSERT_EQ(stepscope_tracer_write(pattern.c_str()), 0) << stepscope_tracer_error();
    Trace trace;
    read_trace_file(file.path(), trace);
    ASSERT_EQ(trace.processes().size(), 1U);
    EXPECT_EQ(trace.processes().front().rank, 3);
    EXPECT_EQ(trace.processes().front().world_size, 4);
    if (suffix == std::string(".sqlite")) {
      EXPECT_EQ(trace.processes().front().pid, getpid());
    }
  }
}

TEST_F(TracerLibrary, EveryFailureHasAText) {
  const auto fails_with = [](int status, const std::string& part) {
    EXPECT_EQ(status, 1);
    EXPECT_NE(std::string(stepscope_tracer_error()).find(part), std::string::npos)
        << stepscope_tracer_error();
  };
  fails_with(stepscope_tracer_stop(), "not being recorded");
  fails_with(stepscope_tracer_set_rank(2, 2), "rank 2 of 2");
  fails_with(stepscope_tracer_set_rank(-1, 2), "rank -1 of 2");
  fails_with(stepscope_tracer_start("kineto", 0), "no source \"kineto\"");
  fails_with(stepscope_tracer_start("torch", 0), "libtorch is not in this process");
  fails_with(stepscope_tracer_start("", -1), "-1 bytes");
  ASSERT_EQ(stepscope_tracer_start("auto", 1 << 20), 0) << stepscope_tracer_error();
  EXPECT_STREQ(stepscope_tracer_error(), "");
  fails_with(stepscope_tracer_start(nullptr, 0), "recorded already");
  fails_with(stepscope_tracer_write("x.sqlite"), "no recording to write");
  ASSERT_EQ(stepscope_tracer_stop(), 0) << stepscope_tracer_error();
  fails_with(stepscope_tracer_write(nullptr), "no path");
  fails_with(stepscope_tracer_write(""), "no trace file is named");
  fails_with(stepscope_tracer_write("x.txt"), "suffix that says no format");
  fails_with(stepscope_tracer_write("/nonexistent/x.sqlite"), "/nonexistent/x.sqlite");
}

TEST_F(TracerLibrary, AnErrorBelongsToItsThread) {
  EXPECT_EQ(stepscope_tracer_stop(), 1);
  std::thread([] { EXPECT_STREQ(stepscope_tracer_error(), ""); }).join();
  EXPECT_STRNE(stepscope_tracer_error(), "");
}

TEST(OutputName, HasProcessAndRank) {
  EXPECT_EQ(output_name("run/%r-of-%p.json", 42, 7), "run/7-of-42.json");
  EXPECT_EQ(output_name("100%%.%r", 1, std::nullopt), "100%.unknown");
  EXPECT_ANY_THROW(output_name("a%q", 1, 1));
  EXPECT_ANY_THROW(output_name("a%", 1, 1));
}

}  // namespace
}  // namespace stepscope::tracer
