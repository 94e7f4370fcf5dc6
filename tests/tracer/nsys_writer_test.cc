#include "tracer/nsys_writer.h"

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <string_view>

#include "tests/core/error_text.h"
#include "tests/tracer/same_trace.h"
#include "tests/tracer/trace_files.h"
#include "tracer/nsys_tables.h"

namespace stepscope::tracer {
namespace {

/// What is read back of `trace` after it was written.
Trace written(const Trace& trace) {
  const TempFile file("written.sqlite", "");
  write_nsys(trace, file.path());
  ReadReport report;
  Trace again = trace_of(file.path(), {}, &report);
  EXPECT_EQ(report.format, "stepscope");
  EXPECT_EQ(report.notes.size(), 0U);
  return again;
}

/// Every kind of event with every combination of what may surprise a table.
Trace odd_trace() {
  Trace trace;
  trace.add_process({.rank = 0,
                     .world_size = 2,
                     .pid = 4'711,
                     .source = "cupti",
                     .file = "",
                     .wall_clock_offset_ns = 1'800'000'000'000'000'000,
                     .dropped = 0,
                     .launched = 12,
                     .host_dropped = 3});
  trace.add_process({.rank = 1, .pid = 4'711, .source = "record-function"});
  trace.add_process({.pid = 0});
  trace.add_process({.pid = std::int64_t{1} << 40});
  trace.health() = {
      .without_time = 1, .negative_duration = 2, .impossible_duration = 3, .duplicates = 4};
  const std::array<std::string, 18> names = {
      "",
      "aten::add",
      "aten::add, seq = 7, op_id = 12",
      "aten::add, op_id = 12, sizes = [[2, 3]]",
      "nccl:all_gather, op_id = 12, sizes = [[2, 3]]",
      "my range, op_id = 3",
      "gloo:all_gather",
      "nccl:all_reduce",
      "stepscope:step 3",
      "stepscope:",
      "stepscope::adamw8bit_step",
      "cudaLaunchKernel",
      "cudaLaunchKernel_v7000",
      "_Z35kOptimizerStatic8bit2StateBlockwiseIfLi0ELi256ELi1EEvPT_S1_Pfi",
      "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)",
      "Memcpy HtoD",
      "Stream sync",
      std::string("raw \x01 bytes \xff and \0 a NUL", 25)};
  std::vector<std::uint32_t> inputs = {
      trace.add_inputs({}), trace.add_inputs({{.shape = {}, .dtype = "float"}}),
      trace.add_inputs({{.shape = {3, 0, 5}, .dtype = "c10::BFloat16", .argument = 2},
                        {.shape = {std::int64_t{1} << 40}, .dtype = "", .on_device = true}})};
  const auto launch = trace.add_launch({.grid = {17, 2, 3},
                                        .block = {256, 1, 1},
                                        .static_shared_bytes = 48,
                                        .dynamic_shared_bytes = std::int64_t{1} << 33,
                                        .registers_per_thread = 32});
  std::mt19937 random(5);  // NOLINT(bugprone-random-generator-seed): the same events every time
  const auto one_of = [&]<typename T>(std::initializer_list<T> list) {
    return list.begin()[random() % list.size()];
  };
  using U = std::uint64_t;
  for (int i = 0; i < 4'000; ++i) {
    Event event;
    event.start_ns = 1'000 * i - 5'000;
    event.end_ns = event.start_ns + one_of({0, 1, 999, 123'456'789});
    event.kind = static_cast<EventKind>(i % 8);
    event.name = trace.intern(names[random() % names.size()]);
    event.value =
        one_of({kNoValue, std::int64_t{0}, std::int64_t{62'220'288}, std::int64_t{1} << 40});
    event.correlation = one_of({U{0}, U{7}, std::numeric_limits<U>::max()});
    event.thread =
        one_of({U{0}, U{4'711}, U{0xffffff}, U{0x1000000}, std::numeric_limits<U>::max()});
    event.stream = one_of({U{0}, U{7}, U{0xffffffff}, U{0x7f00deadbeef}});
    event.device = one_of({kHost, 0, 5});
    event.process = static_cast<std::uint32_t>(random() % 4);
    event.direction = static_cast<CopyDirection>(random() % 6);
    event.collective = static_cast<CollectiveKind>(random() % 9);
    event.value_source = static_cast<ValueSource>(random() % 3);
    if (random() % 2 == 0) {
      event.detail = event.kind == EventKind::kernel ? launch : inputs[random() % inputs.size()];
    }
    trace.add(event);
  }
  trace.finish();
  return trace;
}

TEST(NsysWriter, LosesNothingOfAnyEvent) {
  const Trace trace = odd_trace();
  ASSERT_EQ(trace.events().size(), 4'000U);
  expect_same(trace, written(trace));
}

TEST(NsysWriter, LosesNothingOfARealTrace) {
  for (const char* name : {"nsysai_mfu_2gpu_before.sqlite", "nsysai_healthy_1pct.sqlite",
                           "own_cpu_nvtx_nsys2023.4.sqlite"}) {
    const auto file = real_trace(name);
    const Trace trace = trace_of(file->path());
    expect_same(trace, written(trace));
  }
}

TEST(NsysWriter, WritesATraceWithoutEvents) {
  Trace trace;
  trace.add_process({.rank = 0, .pid = 1});
  expect_same(trace, written(trace));
}

TEST(NsysWriter, LeavesTheOldFileWhereItCannotWrite) {
  const TempFile file("trace.sqlite", "old");
  // A folder that has the temporary name, so that it fails for root as well.
  std::filesystem::create_directory(file.path() + ".partial");
  const std::string error = error_text([&] { write_nsys(odd_trace(), file.path()); });
  EXPECT_TRUE(error.starts_with(file.path() + ".partial: cannot be created: ")) << error;
  EXPECT_EQ(std::filesystem::file_size(file.path()), 3U);
}

TEST(NsysWriter, LeavesNoTemporaryFile) {
  const TempFile file("trace.sqlite", "old");
  write_nsys(odd_trace(), file.path());
  EXPECT_FALSE(std::filesystem::exists(file.path() + ".partial"));
  EXPECT_GT(std::filesystem::file_size(file.path()), 3U);
}

TEST(NsysWriter, AFileThatHasLostEventsOfItsOwnIsRefusedAndNotReadShort) {
  const Trace trace = odd_trace();
  for (const char* loss : {
           "DELETE FROM NVTX_EVENTS WHERE rowid = (SELECT max(rowid) FROM NVTX_EVENTS)",
           "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL",
           "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL",
           "UPDATE STEPSCOPE_EVENT SET row = row + 1000000",
           "UPDATE STEPSCOPE_EVENT SET tableId = tableId + 99",
       }) {
    const TempFile file("written.sqlite", "");
    write_nsys(trace, file.path());
    change_sqlite(file.path(), loss);
    const std::string text = error_text([&] { trace_of(file.path()); });
    EXPECT_NE(text.find("STEPSCOPE_EVENT"), std::string::npos) << loss << ": " << text;
    EXPECT_NE(text.find("says something of"), std::string::npos) << loss << ": " << text;
  }
}

// Without what says which ranges are operators, a step would have none, and keep every contract
// that forbids something.
TEST(NsysWriter, AFileThatHasLostATableOfItsOwnIsRefusedByTheTablesName) {
  const Trace trace = odd_trace();
  for (const std::string_view name : kOwnTableNames) {
    const TempFile file("written.sqlite", "");
    write_nsys(trace, file.path());
    change_sqlite(file.path(), "DROP TABLE " + std::string(name));
    EXPECT_EQ(error_text([&] { trace_of(file.path()); }),
              file.path() + ": is a trace of stepscope and lacks its table \"" + std::string(name) +
                  "\"; copy the file again, or record the trace again");
  }
}

TEST(NsysWriter, WritesNoPathOfTheFileItWasReadFrom) {
  const auto source = real_trace("nsysai_healthy_1pct.sqlite");
  const TempFile file("trace.sqlite", "");
  write_nsys(trace_of(source->path()), file.path());
  std::ifstream stream(file.path(), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
  EXPECT_EQ(bytes.find(std::filesystem::path(source->path()).parent_path().string()),
            std::string::npos);
}

}  // namespace
}  // namespace stepscope::tracer
