#include "tracer/chrome_reader.h"

#include <zlib.h>

#include <fstream>
#include <string>

#include "tests/core/error_text.h"
#include "tests/tracer/same_trace.h"
#include "tests/tracer/trace_files.h"
#include "tracer/chrome_writer.h"

namespace stepscope::tracer {
namespace {

Trace read(const std::string& json, const ReadOptions& options = {}, ReadReport* report = nullptr) {
  const TempFile file("trace.json", json);
  return trace_of(file.path(), options, report);
}

/// The message, without the file's path.
std::string error_of(const std::string& json, const ReadOptions& options = {}) {
  const TempFile file("trace.json", json);
  const std::string error = error_text([&] { trace_of(file.path(), options); });
  EXPECT_TRUE(error.starts_with(file.path() + ": ")) << error;
  return error.substr(std::min(error.size(), file.path().size() + 2));
}

std::string kernel(const std::string& ts, const std::string& dur) {
  return R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":)" + ts + R"(,"dur":)" + dur +
         R"(,"args":{"correlation":9}})";
}

constexpr const char* kAdvice = "; salvage reads the complete events of a damaged file";

TEST(ChromeReader, ReadsARealKinetoTraceExactly) {
  const auto file = real_trace("hta_nccl_parser_config_nccl_data.json");
  ReadReport report;
  const Trace trace = trace_of(file->path(), {}, &report);
  EXPECT_EQ(report.format, "kineto");
  EXPECT_TRUE(report.notes.empty());
  EXPECT_EQ(sum_of(trace, EventKind::kernel), (Sum{2'700, 162'532'340}));
  EXPECT_EQ(sum_of(trace, EventKind::api_call).events, 8'740);
  EXPECT_EQ(sum_of(trace, EventKind::copy).events, 960);
  EXPECT_EQ(sum_of(trace, EventKind::set).events, 114);
  EXPECT_EQ(sum_of(trace, EventKind::host_operator).events, 14'346);
  EXPECT_EQ(sum_of(trace, EventKind::collective).events, 21);
  EXPECT_EQ(sum_of(trace, EventKind::range).events, 21);
  EXPECT_EQ(trace.health().total(), 0);
  ASSERT_EQ(trace.processes().size(), 1U);
  const Process& process = trace.processes()[0];
  EXPECT_EQ(process.rank, 0);
  EXPECT_EQ(process.world_size, 2);
  EXPECT_EQ(process.pid, 2'910'249);
  EXPECT_EQ(process.wall_clock_offset_ns, 1'711'964'646'000'000'000);
  std::int64_t reduces = 0;
  std::int64_t broadcasts = 0;
  for (const Event& event : trace.events()) {
    if (event.kind != EventKind::kernel) continue;
    reduces += event.collective == CollectiveKind::all_reduce;
    broadcasts += event.collective == CollectiveKind::broadcast;
  }
  EXPECT_EQ(reduces, 15);
  EXPECT_EQ(broadcasts, 6);
}

TEST(ChromeReader, ReadsWholeMicrosecondsSince1970) {
  const auto file = real_trace("hta_cuda_event_sync_multi_stream_event_sync_trace.json");
  const Trace trace = trace_of(file->path());
  EXPECT_EQ(sum_of(trace, EventKind::kernel), (Sum{3, 369'000}));
  EXPECT_EQ(sum_of(trace, EventKind::synchronization).events, 5);
  EXPECT_EQ(trace.processes().at(0).wall_clock_offset_ns, 0);
  for (const Event& event : trace.events()) {
    if (event.kind != EventKind::kernel) continue;
    EXPECT_EQ(event.start_ns, 1'712'867'402'348'700'000);
    EXPECT_EQ(event.correlation, 27U);
    EXPECT_EQ(event.stream, 20U);
    EXPECT_EQ(trace.launch(event.detail).grid, (std::array<std::int64_t, 3>{8, 16, 5}));
    EXPECT_EQ(trace.launch(event.detail).registers_per_thread, 122);
    break;
  }
}

TEST(ChromeReader, ReadsGzipAsItReadsPlainText) {
  const auto plain = real_trace("hta_cuda_event_sync_multi_stream_event_sync_trace.json");
  const std::string packed = std::string(STEPSCOPE_TEST_DATA) +
                             "/traces/hta_cuda_event_sync_multi_stream_event_sync_trace.json.gz";
  expect_same(trace_of(plain->path()), trace_of(packed));
}

TEST(ChromeReader, LeavesImpossibleTimesOutAndCountsThem) {
  std::string json = "[";
  for (const char* ts : {"100", "200.5", "300"}) json += kernel(ts, "10") + ",";
  json += kernel("0", "0") + "," + kernel("400", "-5") + "," + kernel("500", "7.4e15") + "," +
          kernel("1e300", "0") + "," + kernel("9223372036854775.807", "9223372036854775") + "]";
  const Trace trace = read(json);
  EXPECT_EQ(sum_of(trace, EventKind::kernel), (Sum{3, 30'000}));
  EXPECT_EQ(trace.events().front().start_ns, 100'000);
  EXPECT_EQ(trace.events()[1].start_ns, 200'500);
  EXPECT_EQ(trace.health().without_time, 1);
  EXPECT_EQ(trace.health().negative_duration, 1);
  EXPECT_EQ(trace.health().impossible_duration, 3);
}

TEST(ChromeReader, TakesTheRankFromTheFileOrTheUser) {
  const std::string events = R"("traceEvents":[)" + kernel("1", "1") + "]}";
  const std::string ranked = R"({"distributedInfo":{"rank":34,"world_size":64},)" + events;
  EXPECT_EQ(read(ranked).processes()[0].rank, 34);
  EXPECT_EQ(read(ranked).processes()[0].world_size, 64);
  EXPECT_EQ(read(ranked, {.rank = 34}).processes()[0].rank, 34);
  EXPECT_EQ(error_of(ranked, {.rank = 3}), "says that it is of rank 34, not 3; leave the rank out");
  ReadReport report;
  EXPECT_FALSE(read("{" + events, {}, &report).processes()[0].rank);
  EXPECT_EQ(report.notes, (std::vector<std::string>{"rank unknown: the file does not say it"}));
  EXPECT_EQ(read("{" + events, {.rank = 3}, &report).processes()[0].rank, 3);
  EXPECT_TRUE(report.notes.empty());
  // A rank that is no number is none.
  EXPECT_FALSE(read(R"({"distributedInfo":{"rank":"34"},)" + events).processes()[0].rank);
}

TEST(ChromeReader, SaysThatNothingRanOnAGpu) {
  ReadReport report;
  const Trace trace = read(
      R"({"distributedInfo":{"rank":34},"traceEvents":[{"ph":"X","cat":"cpu_op","name":"aten::add",
      "pid":12,"tid":13,"ts":1,"dur":2,"args":{"Input Dims":[[2,3],[],[3],[],[[4],[5,6]]],
      "Input type":["float","Scalar","float","long int","TensorList"]}}]})",
      {}, &report);
  EXPECT_EQ(report.notes, (std::vector<std::string>{"no kernels recorded: nothing ran on a GPU"}));
  ASSERT_EQ(trace.events().size(), 1U);
  const Event& add = trace.events()[0];
  EXPECT_EQ(add.value, 6);
  EXPECT_EQ(add.thread, 13U);
  EXPECT_EQ(trace.processes()[0].pid, 12);
  EXPECT_EQ(describe(trace, add).substr(describe(trace, add).find('[')),
            "[float 0 0 2 3 ] [float 2 0 3 ] [long int 3 0 ] [TensorList 4 0 4 ] "
            "[TensorList 4 0 5 6 ] ");
}

TEST(ChromeReader, TakesACopysDirectionFromItsName) {
  const auto direction = [](const std::string& name, const std::string& category = "gpu_memcpy") {
    ReadReport report;
    const Trace trace = read(R"([{"ph":"X","cat":")" + category + R"(","name":")" + name +
                                 R"(","pid":0,"tid":7,"ts":1,"dur":2,"args":{"bytes":12}}])",
                             {}, &report);
    EXPECT_EQ(report.events, 1);
    EXPECT_EQ(trace.events().at(0).value, 12);
    return trace.events().at(0).direction;
  };
  EXPECT_EQ(direction("Memcpy HtoD (Pageable -> Device)"), CopyDirection::host_to_device);
  EXPECT_EQ(direction("Memcpy HtoA (Pinned -> Array)"), CopyDirection::host_to_device);
  EXPECT_EQ(direction("Memcpy DtoH (Device -> Pinned)"), CopyDirection::device_to_host);
  EXPECT_EQ(direction("Memcpy AtoH"), CopyDirection::device_to_host);
  for (const char* name : {"Memcpy DtoD", "Memcpy DtoA", "Memcpy AtoD", "Memcpy AtoA"}) {
    EXPECT_EQ(direction(name), CopyDirection::device_to_device) << name;
  }
  EXPECT_EQ(direction("Memcpy HtoH"), CopyDirection::host_to_host);
  EXPECT_EQ(direction("Memcpy PtoP"), CopyDirection::peer_to_peer);
  for (const char* name : {"Memcpy", "Memcpy XtoY", "HtoD", "copy DtoH", ""}) {
    EXPECT_EQ(direction(name), CopyDirection::unknown) << name;
  }
  EXPECT_EQ(direction("Memcpy HtoD", "gpu_memset"), CopyDirection::unknown);
}

TEST(ChromeReader, LeavesOutWhatAFileOfOursSaysInAnotherType) {
  const std::string events = R"(,"traceEvents":[)" + kernel("1", "1") + "]}";
  const Trace trace = read(R"({"stepscope":{"source":7,"dropped":"3","launched":2.5,)"
                           R"("host_dropped":null,"more":[1]})" +
                           events);
  const Process& process = trace.processes().at(0);
  EXPECT_EQ(process.source, "kineto");
  EXPECT_FALSE(process.dropped);
  EXPECT_FALSE(process.launched);
  EXPECT_FALSE(process.host_dropped);
  const Trace right = read(R"({"stepscope":{"source":"cupti","dropped":3})" + events);
  EXPECT_EQ(right.processes().at(0).source, "cupti");
  EXPECT_EQ(right.processes().at(0).dropped, 3);
}

TEST(ChromeReader, ReadsOtherWritersOfTheFormat) {
  ReadReport report;
  const Trace trace =
      read(R"([{"ph":"X","name":"step 1","pid":"main","tid":"loop","ts":1.5,"dur":2},)"
           R"({"ph":"B","name":"x","ts":1},{"ph":"X","cat":"gpu_user_annotation","ts":1,"dur":1}])",
           {}, &report);
  ASSERT_EQ(trace.events().size(), 1U);
  EXPECT_EQ(trace.events()[0].kind, EventKind::range);
  EXPECT_EQ(trace.events()[0].start_ns, 1'500);
  EXPECT_EQ(trace.events()[0].end_ns, 3'500);
  EXPECT_EQ(report.skipped, 2);
}

TEST(ChromeReader, NamesTheByteOfDamage) {
  const std::string good = R"([{"ph":"X","name":"abc","ts":1,"dur":2}])";
  EXPECT_EQ(read(good).events().size(), 1U);
  std::string control = good;
  control[good.find("bc")] = '\x01';
  EXPECT_EQ(error_of(control), "byte 20: raw control byte 0x01 in a string" + std::string(kAdvice));
  std::string encoding = good;
  encoding[good.find("bc")] = '\xff';
  EXPECT_EQ(error_of(encoding), "byte 20: invalid UTF-8 in a string" + std::string(kAdvice));
  EXPECT_EQ(error_of("[," + good.substr(1)),
            "byte 1: '{' was expected, not ','" + std::string(kAdvice));
  EXPECT_EQ(error_of(good.substr(0, 30)),
            "byte 30: '}' was expected, not the end" + std::string(kAdvice));
  EXPECT_EQ(error_of(good + "x"),
            "byte 40: something follows the end of the JSON" + std::string(kAdvice));
  EXPECT_EQ(error_of("{}"),
            "is JSON without \"traceEvents\"; give Kineto's or Chrome's trace JSON");
  EXPECT_EQ(error_of(R"([{"args":{"a":)" + std::string(100, '[')),
            "byte 76: more than 64 objects or arrays in one another" + std::string(kAdvice));
  EXPECT_EQ(error_of(R"([{"name":"\ud83d"}])"),
            "byte 16: half of a surrogate pair in a string" + std::string(kAdvice));
  EXPECT_EQ(error_of(R"([{"ts":01}])"), "byte 8: '}' was expected, not '1'" + std::string(kAdvice));
}

TEST(ChromeReader, SalvagesCompleteEventsAndCountsTheLostBytes) {
  const std::string event = kernel("1", "2");
  ReadReport report;
  const auto salvaged = [&](const std::string& json) {
    return read(json, {.salvage = true}, &report).events().size();
  };
  // Nothing is lost of a whole file.
  EXPECT_EQ(salvaged("[" + event + "]"), 1U);
  EXPECT_EQ(report.lost_bytes, 0);
  // Cut in the third event.
  const std::string two = "[" + event + "," + kernel("5", "2") + ",";
  EXPECT_EQ(salvaged(two + event.substr(0, 50)), 2U);
  EXPECT_EQ(report.lost_bytes, 50);
  // A leading comma.
  EXPECT_EQ(salvaged("[," + event + "]"), 1U);
  EXPECT_EQ(report.lost_bytes, 1);
  // Damage in the middle: that event is lost with the comma behind it.
  std::string middle = event;
  middle[middle.find("\"k\"") + 1] = '\x01';
  EXPECT_EQ(salvaged("[" + event + "," + middle + "," + kernel("9", "2") + "]"), 2U);
  EXPECT_EQ(report.lost_bytes, static_cast<std::int64_t>(middle.size()) + 1);
  // What comes before the events still counts.
  const TempFile file("trace.json", R"({"distributedInfo": {"rank": 5}, "traceEvents": )" + two);
  EXPECT_EQ(trace_of(file.path(), {.salvage = true}).processes()[0].rank, 5);
}

TEST(ChromeReader, SalvagesACompressedFileThatWasCut) {
  std::ifstream stream(
      std::string(STEPSCOPE_TEST_DATA) + "/traces/hta_nccl_parser_config_nccl_data.json.gz",
      std::ios::binary);
  const std::string packed((std::istreambuf_iterator<char>(stream)), {});
  const TempFile cut("cut.json.gz", packed.substr(0, packed.size() / 2));
  const std::string error = error_text([&] { trace_of(cut.path()); });
  EXPECT_NE(error.find("the compressed file is cut here"), std::string::npos) << error;
  ReadReport report;
  const Trace trace = trace_of(cut.path(), {.salvage = true}, &report);
  EXPECT_GT(trace.events().size(), 10'000U);
  EXPECT_GT(report.lost_bytes, 0);
}

TEST(ChromeReader, RefusesAFileThatUnpacksWithoutEnd) {
  const TempFile file("bomb.json.gz", "");
  gzFile out = gzopen(file.path().c_str(), "wb9");
  ASSERT_NE(out, nullptr);
  const std::string blanks(1 << 20, ' ');
  ASSERT_EQ(gzwrite(out, "[", 1), 1);
  for (int i = 0; i < 200; ++i) {
    ASSERT_GT(gzwrite(out, blanks.data(), static_cast<unsigned>(blanks.size())), 0);
  }
  ASSERT_EQ(gzclose(out), Z_OK);
  const std::string error = error_text([&] { trace_of(file.path(), {.salvage = true}); });
  EXPECT_NE(error.find("unpacks to far more"), std::string::npos) << error;
}

/// What is read back of `trace` after it was written as JSON.
Trace rewritten(const Trace& trace) {
  const TempFile file("written.json", "");
  write_chrome_json(trace, file.path());
  return trace_of(file.path());
}

TEST(ChromeWriter, KeepsARealTraceToTheNanosecond) {
  const auto file = real_trace("hta_nccl_parser_config_nccl_data.json");
  const Trace trace = trace_of(file->path());
  expect_same(trace, rewritten(trace));
}

TEST(ChromeWriter, KeepsWhatARankKnows) {
  Trace trace;
  trace.add_process({.rank = 3,
                     .world_size = 4,
                     .pid = 77,
                     .source = "cupti",
                     .file = "",
                     .wall_clock_offset_ns = 5,
                     .dropped = 1,
                     .launched = 2,
                     .host_dropped = 3});
  const auto launch = trace.add_launch({.grid = {3, 2, 1}, .block = {256, 1, 1}});
  trace.add({.start_ns = -1,
             .end_ns = 1'712'867'402'348'256'123,
             .name = trace.intern("far"),
             .process = 0});
  trace.add(
      {.start_ns = -1'500, .end_ns = -1, .thread = 8, .name = trace.intern("a \"\\\n\x01 b")});
  trace.add({.start_ns = 1'712'867'402'348'256'123,
             .end_ns = 1'712'867'402'348'256'124,
             .value = 62'220'288,
             .correlation = 12,
             .stream = 7,
             .name = trace.intern("kernel"),
             .detail = launch,
             .device = 1,
             .kind = EventKind::kernel,
             .value_source = ValueSource::exact});
  trace.finish();
  EXPECT_EQ(trace.health().impossible_duration, 1);
  trace.health() = {};
  expect_same(trace, rewritten(trace));
}

TEST(ChromeWriter, KeepsWhatAVerdictOnCopiesRestsOn) {
  Trace trace;
  trace.add_process({.rank = 0, .world_size = 1, .pid = 7, .source = "record-function"});
  const auto inputs = trace.add_inputs(
      {{.shape = {4}, .dtype = "float", .argument = 0, .on_device = true},
       {.shape = {}, .dtype = "float", .argument = 2},
       {.shape = {2, 2}, .dtype = "c10::BFloat16", .argument = 3},
       {.shape = {3}, .dtype = "c10::BFloat16", .argument = 3, .on_device = true}});
  std::int64_t now = 1'000;
  const auto add = [&](Event event) {
    event.start_ns = now += 10;
    event.end_ns = now += 5;
    trace.add(event);
  };
  for (const CopyDirection direction :
       {CopyDirection::unknown, CopyDirection::host_to_device, CopyDirection::device_to_host,
        CopyDirection::device_to_device, CopyDirection::host_to_host,
        CopyDirection::peer_to_peer}) {
    // As the host recorded it; and on a device, under a name that says nothing.
    add({.value = 16,
         .thread = 8,
         .name = trace.intern("aten::copy_"),
         .detail = inputs,
         .kind = EventKind::copy,
         .direction = direction});
    add({.value = 16,
         .correlation = 3,
         .stream = 7,
         .name = trace.intern("copy"),
         .device = 0,
         .kind = EventKind::copy,
         .direction = direction});
  }
  add({.value = 4,
       .thread = 8,
       .name = trace.intern("aten::add_"),
       .detail = inputs,
       .kind = EventKind::host_operator,
       .value_source = ValueSource::exact});
  trace.finish();
  trace.health() = {
      .without_time = 1, .negative_duration = 2, .impossible_duration = 3, .duplicates = 4};
  expect_same(trace, rewritten(trace));
}

TEST(ChromeReader, CallsEveryInputOnADeviceWhereTheFileDoesNotSayWhich) {
  const Trace trace = read(
      R"([{"ph":"X","cat":"cpu_op","name":"aten::copy_","pid":1,"tid":7,"ts":1,"dur":2,"args":)"
      R"({"Input Dims":[[2],[3]],"Input type":["float","float"],"Input on device":[0]}}])");
  for (const TensorInput& input : trace.inputs(trace.events().at(0).detail)) {
    EXPECT_TRUE(input.on_device);
  }
}

TEST(ChromeReader, RefusesCountsThatCannotBe) {
  for (const char* count : {"-1", "9223372036854775807,\"duplicates\":1"}) {
    const std::string error =
        error_of(R"({"stepscope":{"duplicates":)" + std::string(count) + R"(},"traceEvents":[]})");
    EXPECT_NE(error.find("holds an impossible count"), std::string::npos) << error;
  }
}

TEST(ChromeWriter, WritesValidUtf8WhateverANameHolds) {
  Trace trace;
  trace.add_process({.rank = 0, .pid = 1});
  trace.add(
      {.start_ns = 1, .end_ns = 2, .name = trace.intern("ok \xc3\xa4 \xff \xed\xa0\x80 \xe2\x82")});
  trace.finish();
  const Trace again = rewritten(trace);
  EXPECT_EQ(
      again.name(again.events().at(0)),
      "ok \xc3\xa4 \xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd");
}

}  // namespace
}  // namespace stepscope::tracer
