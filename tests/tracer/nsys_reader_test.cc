#include "tracer/nsys_reader.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>

#include "tests/core/error_text.h"
#include "tests/tracer/trace_files.h"
#include "tracer/nsys_tables.h"

namespace stepscope::tracer {
namespace {

std::string error_of(const std::string& path) {
  return error_text([&] { trace_of(path); });
}

const Event& first(const Trace& trace, EventKind kind) {
  const auto found = std::find_if(trace.events().begin(), trace.events().end(),
                                  [&](const Event& event) { return event.kind == kind; });
  if (found == trace.events().end()) throw std::runtime_error("no such event");
  return *found;
}

constexpr const char* kStrings =
    "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);"
    "INSERT INTO StringIds VALUES(1,'kernel(int)'),(2,'cudaLaunchKernel_v7000'),(3,'optimizer');";
constexpr const char* kKernels =
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER,"
    " gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL "
    "VALUES(100,150,0,7,9,281475043819520,1,17,1,1,256,1,1);";

TEST(NsysReader, ReadsARealExportOfTwoProcesses) {
  const auto file = real_trace("nsysai_mfu_2gpu_before.sqlite");
  ReadReport report;
  const Trace trace = trace_of(file->path(), {}, &report);
  EXPECT_EQ(report.format, "nsys");
  EXPECT_EQ(report.events, 32'249);
  EXPECT_EQ(trace.health().total(), 0);
  ASSERT_EQ(trace.processes().size(), 2U);
  std::set<std::int64_t> pids;
  for (const Process& process : trace.processes()) {
    pids.insert(process.pid);
    EXPECT_EQ(process.wall_clock_offset_ns, 1'779'782'330'176'752'435);
    EXPECT_FALSE(process.rank);
    EXPECT_FALSE(process.dropped);
  }
  EXPECT_EQ(pids, (std::set<std::int64_t>{144, 145}));
  EXPECT_EQ(sum_of(trace, EventKind::kernel), (Sum{4'010, 270'875'926 + 264'324'724}));
  EXPECT_EQ(sum_of(trace, EventKind::copy).events, 1'020);
  EXPECT_EQ(sum_of(trace, EventKind::set).events, 269);
  EXPECT_EQ(sum_of(trace, EventKind::synchronization).events, 366);
  EXPECT_EQ(sum_of(trace, EventKind::api_call).events, 7'466);
  EXPECT_EQ(sum_of(trace, EventKind::collective).events, 66);
  EXPECT_EQ(std::count_if(trace.events().begin(), trace.events().end(),
                          [](const Event& event) {
                            return event.kind == EventKind::kernel &&
                                   event.collective == CollectiveKind::send_receive;
                          }),
            66);
  // Every device activity's thread and process agree with the call that started it.
  const Event& copy = first(trace, EventKind::copy);
  EXPECT_EQ(copy.value, 95'846'400);
  EXPECT_EQ(copy.direction, CopyDirection::device_to_device);
  EXPECT_EQ(trace.name(copy), "Memcpy DtoD");
}

TEST(NsysReader, TakesTheNumbersOutOfThePyTorchNames) {
  const auto file = real_trace("nsysai_mfu_2gpu_before.sqlite");
  const Trace trace = trace_of(file->path());
  std::set<std::string> operators;
  for (const Event& event : trace.events()) {
    EXPECT_EQ(trace.name(event).find("op_id"), std::string_view::npos) << trace.name(event);
    if (event.kind == EventKind::host_operator) operators.insert(std::string(trace.name(event)));
    if (event.kind == EventKind::api_call) {
      EXPECT_EQ(trace.name(event).find("_v7000"), std::string_view::npos);
    }
  }
  EXPECT_TRUE(operators.contains("aten::empty"));
  EXPECT_LT(operators.size(), 100U);
}

TEST(NsysReader, JoinsNamesOfDomainsAndRegisteredStrings) {
  const auto file = real_trace("own_cpu_nvtx_nsys2023.4.sqlite");
  ReadReport report;
  const Trace trace = trace_of(file->path(), {}, &report);
  std::vector<std::string_view> names;
  for (const Event& event : trace.events()) {
    EXPECT_EQ(event.kind, EventKind::range);
    names.push_back(trace.name(event));
  }
  const std::vector<std::string_view> step = {"step", "optimizer", "optbench:registered step",
                                              "optbench:start-end bucket", "default start/end"};
  ASSERT_EQ(names.size(), 16U);
  for (std::size_t i = 0; i < 15; ++i) EXPECT_EQ(names[i], step[i % 5]);
  EXPECT_EQ(names[15], "worker range");
  // The first step: 37,523,355 to 39,187,102 ns, on thread 14232 of process 14232.
  EXPECT_EQ(trace.events()[0].start_ns, 37'523'355);
  EXPECT_EQ(trace.events()[0].end_ns, 39'187'102);
  EXPECT_EQ(trace.events()[0].thread, 14'232U);
  EXPECT_EQ(trace.processes().at(0).pid, 14'232);
  // Three marks, two categories and a thread's name are no ranges.
  EXPECT_EQ(report.skipped, 6);
  EXPECT_EQ(report.notes,
            (std::vector<std::string>{
                "no kernels recorded: there is no table CUPTI_ACTIVITY_KIND_KERNEL"}));
}

TEST(NsysReader, SurvivesAFileWithFewTablesAndColumns) {
  const auto file = real_trace("nsysai_healthy_1pct.sqlite");
  ReadReport report;
  const Trace trace = trace_of(file->path(), {.rank = 3}, &report);
  EXPECT_EQ(sum_of(trace, EventKind::kernel), (Sum{400, 400'000'000}));
  EXPECT_EQ(sum_of(trace, EventKind::api_call), (Sum{400, 1'000'000}));
  ASSERT_EQ(trace.processes().size(), 1U);
  EXPECT_EQ(trace.processes()[0].rank, 3);
  EXPECT_EQ(report.notes,
            (std::vector<std::string>{"no annotations: there is no table NVTX_EVENTS"}));
  const Event& kernel = first(trace, EventKind::kernel);
  EXPECT_EQ(trace.launch(kernel.detail).grid[0], 128);
  EXPECT_EQ(trace.launch(kernel.detail).block[0], 256);
}

TEST(NsysReader, FindsTablesWithASuffix) {
  const auto file = sqlite_of(
      std::string(kStrings) + kKernels +
      "CREATE TABLE NVTX_EVENTS_V2(start INTEGER, end INTEGER, eventType INTEGER, textId INTEGER);"
      "INSERT INTO NVTX_EVENTS_V2 VALUES(90,200,59,3);"
      "CREATE TABLE NVTX_EVENTS_VX(a);"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME_V3(start INTEGER, end INTEGER, globalTid INTEGER,"
      " correlationId INTEGER, nameId INTEGER);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME_V3 VALUES(95,99,281475043819525,9,2);");
  ReadReport report;
  const Trace trace = trace_of(file->path(), {}, &report);
  EXPECT_TRUE(report.notes.empty());
  EXPECT_EQ(trace.name(first(trace, EventKind::range)), "optimizer");
  const Event& call = first(trace, EventKind::api_call);
  EXPECT_EQ(trace.name(call), "cudaLaunchKernel");
  EXPECT_EQ(call.thread, 5U);
  const Event& kernel = first(trace, EventKind::kernel);
  EXPECT_EQ(kernel.process, call.process);
  EXPECT_EQ(kernel.correlation, 9U);
  EXPECT_EQ(kernel.value, kNoValue);
  EXPECT_EQ(trace.launch(kernel.detail).grid[0], 17);
}

/// The same step of one process, exported with the tables and columns of one schema.
struct Schema {
  const char* version;
  const char* context;      ///< columns of device activities behind contextId
  const char* kernel;       ///< further columns of kernels
  const char* nvtx;         ///< further columns of NVTX_EVENTS
  const char* other;        ///< tables that other schemas lack
  const char* suffix = "";  ///< of the tables that hold events
};

std::string exported(const Schema& schema) {
  const std::string context = std::string(" INTEGER, contextId INTEGER,") + schema.context;
  const std::string behind = schema.suffix;
  const std::string activity = "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId" + context +
                               " streamId INTEGER, correlationId INTEGER, globalPid INTEGER,";
  const std::string pid = "281475043819520";  // process 4 of virtual machine 1
  const std::string tid = "281475043819525";  // its thread 5
  std::string sql = kStrings;
  sql +=
      "INSERT INTO StringIds VALUES(4,'_Z6kerneli'),(5,'kernel'),(6,'cudaMemcpyAsync_v3020'),"
      "(7,'cudaStreamSynchronize_v3020'),(8,'stepscope:step 0');";
  sql += schema.other;
  sql +=
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL" + behind + "(" + activity +
      " demangledName INTEGER, shortName INTEGER, mangledName INTEGER, launchType INTEGER,"
      " registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER,"
      " blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER" +
      schema.kernel + ");";
  const std::string place = "(start,end,deviceId,contextId,streamId,correlationId,globalPid,";
  sql += "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL" + behind + place +
         "demangledName,shortName,mangledName,launchType,registersPerThread,gridX,gridY,gridZ,"
         "blockX,blockY,blockZ,staticSharedMemory,dynamicSharedMemory) VALUES(120,150,2,1,7,9," +
         pid + ",1,5,4,1,40,17,2,3,256,4,5,48,1024);";
  sql += "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY" + behind + "(" + activity +
         " bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);"
         "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY" +
         behind + place + "bytes,copyKind,srcKind,dstKind) VALUES(160,170,2,1,7,10," + pid +
         ",4096,2,2,1);";
  sql += "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET" + behind + "(" + activity +
         " value INTEGER, bytes INTEGER, memKind INTEGER);"
         "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET" +
         behind + place + "value,bytes,memKind) VALUES(171,172,2,1,7,11," + pid + ",0,64,2);";
  sql += "CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION" + behind + "(" + activity +
         " syncType INTEGER, eventId INTEGER);"
         "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION" +
         behind + place + "syncType,eventId) VALUES(173,180,2,1,7,12," + pid + ",3,0);";
  sql += "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME" + behind +
         "(start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,"
         " correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER);"
         "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME" +
         behind + " VALUES(100,105,0," + tid + ",9,2,0,NULL),(106,110,0," + tid +
         ",10,6,0,NULL),(111,115,0," + tid + ",12,7,0,NULL);";
  sql += "CREATE TABLE NVTX_EVENTS" + behind +
         "(start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER,"
         " color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,"
         " domainId INTEGER" +
         schema.nvtx +
         ");"
         "INSERT INTO NVTX_EVENTS" +
         behind + "(start,end,eventType,text,globalTid,textId,domainId) VALUES(90,200,59,NULL," +
         tid + ",8,0),(91,NULL,34,'mark'," + tid + ",NULL,0);";
  return sql;
}

TEST(NsysReader, ReadsTheSameOutOfEverySchemaFrom3_0To3_28) {
  constexpr std::array kSchemas = {
      Schema{"3.0.0", "", "", "",
             "CREATE TABLE EXPORT_META_DATA(name TEXT, value TEXT);"
             "INSERT INTO EXPORT_META_DATA VALUES('EXPORT_SCHEMA_VERSION','3.0.0');"
             "CREATE TABLE ENUM_CUDA_KRENEL_LAUNCH_TYPE(id INTEGER, name TEXT, label TEXT);"},
      Schema{"3.7.2", " greenContextId INTEGER,", ", graphNodeId INTEGER", "",
             "CREATE TABLE META_DATA_EXPORT(name TEXT, value TEXT);"
             "INSERT INTO META_DATA_EXPORT VALUES('EXPORT_SCHEMA_VERSION','3.7.2');"
             "CREATE TABLE CUDA_GRAPH_EVENTS(start INTEGER, end INTEGER);"},
      Schema{"3.25.0", " greenContextId INTEGER,",
             ", graphNodeId INTEGER, graphId INTEGER, clusterX INTEGER, clusterY INTEGER,"
             " clusterZ INTEGER, tensorSizeMinusOneElements TEXT NOT NULL DEFAULT '[]'",
             ", binaryData BLOB",
             "CREATE TABLE META_DATA_EXPORT(name TEXT, value TEXT);"
             "INSERT INTO META_DATA_EXPORT VALUES('EXPORT_SCHEMA_VERSION','3.25.0');"
             "CREATE TABLE CUPTI_ACTIVITY_KIND_OVERHEAD(start INTEGER, end INTEGER);"
             "CREATE TABLE CUDA_GRAPH_NODE_EVENTS(start INTEGER, end INTEGER);"},
      Schema{"3.28.1, tables with a suffix", " greenContextId INTEGER,",
             ", aColumnOfTomorrow TEXT DEFAULT 'x'", ", binaryData BLOB, another BLOB",
             "CREATE TABLE META_DATA_EXPORT(name TEXT, value TEXT);"
             "INSERT INTO META_DATA_EXPORT VALUES('EXPORT_SCHEMA_VERSION','3.28.1');"
             "CREATE TABLE A_TABLE_OF_TOMORROW(start INTEGER, end INTEGER);",
             "_V2"},
  };
  for (const Schema& schema : kSchemas) {
    SCOPED_TRACE(schema.version);
    const auto file = sqlite_of(exported(schema));
    ReadReport report;
    const Trace trace = trace_of(file->path(), {}, &report);
    EXPECT_EQ(report.events, 8);
    EXPECT_EQ(report.skipped, 1) << "the mark";
    EXPECT_TRUE(report.notes.empty());
    EXPECT_EQ(trace.processes().size(), 1U);
    EXPECT_EQ(trace.processes().front().pid, 4);
    const Event& kernel = first(trace, EventKind::kernel);
    EXPECT_EQ(trace.name(kernel), "kernel(int)");
    EXPECT_EQ(kernel.start_ns, 120);
    EXPECT_EQ(kernel.end_ns, 150);
    EXPECT_EQ(kernel.device, 2);
    EXPECT_EQ(kernel.stream, 7U);
    EXPECT_EQ(kernel.correlation, 9U);
    const Launch& launch = trace.launch(kernel.detail);
    EXPECT_EQ(launch.grid, (std::array<std::int64_t, 3>{17, 2, 3}));
    EXPECT_EQ(launch.block, (std::array<std::int64_t, 3>{256, 4, 5}));
    EXPECT_EQ(launch.static_shared_bytes, 48);
    EXPECT_EQ(launch.dynamic_shared_bytes, 1'024);
    EXPECT_EQ(launch.registers_per_thread, 40);
    const Event& copy = first(trace, EventKind::copy);
    EXPECT_EQ(copy.value, 4'096);
    EXPECT_EQ(copy.direction, CopyDirection::device_to_host);
    EXPECT_EQ(trace.name(copy), "Memcpy DtoH");
    EXPECT_EQ(first(trace, EventKind::set).value, 64);
    EXPECT_EQ(trace.name(first(trace, EventKind::synchronization)), "Stream sync");
    const Event& call = first(trace, EventKind::api_call);
    EXPECT_EQ(trace.name(call), "cudaLaunchKernel");
    EXPECT_EQ(call.thread, 5U);
    const Event& range = first(trace, EventKind::range);
    EXPECT_EQ(trace.name(range), "stepscope:step 0");
    EXPECT_EQ(range.end_ns, 200);
  }
}

TEST(NsysReader, TakesACopysDirectionFromTheMemoryAtItsEndsWhereItsKindIsUnknown) {
  // Pageable, pinned, device, array, managed, device static, managed static, unknown.
  const auto direction = [](const std::string& source, const std::string& destination) {
    const auto file = sqlite_of(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER, end INTEGER,"
        " deviceId INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES(1,2,0,0," +
        source + "," + destination + ");");
    return first(trace_of(file->path()), EventKind::copy).direction;
  };
  for (const char* host : {"0", "1"}) {
    for (const char* device : {"2", "3", "5"}) {
      EXPECT_EQ(direction(host, device), CopyDirection::host_to_device);
      EXPECT_EQ(direction(device, host), CopyDirection::device_to_host);
      EXPECT_EQ(direction(device, "2"), CopyDirection::device_to_device);
      for (const char* either : {"4", "6", "7", "8", "-1", "NULL"}) {
        EXPECT_EQ(direction(host, either), CopyDirection::unknown) << either;
        EXPECT_EQ(direction(either, device), CopyDirection::unknown) << either;
        EXPECT_EQ(direction(device, either), CopyDirection::unknown) << either;
        EXPECT_EQ(direction(either, host), CopyDirection::unknown) << either;
      }
    }
    EXPECT_EQ(direction(host, "0"), CopyDirection::host_to_host);
  }
}

TEST(NsysReader, TakesWhatAKernelsRowLeavesOutForTheLeastThereIs) {
  const auto file = sqlite_of(
      std::string(kStrings) +
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER,"
      " demangledName INTEGER, gridX INTEGER, blockX INTEGER);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(100,150,0,1,17,256),(160,170,0,1,NULL,NULL);");
  const Trace trace = trace_of(file->path());
  ASSERT_EQ(trace.events().size(), 2U);
  const Launch& launch = trace.launch(trace.events()[0].detail);
  EXPECT_EQ(launch.grid, (std::array<std::int64_t, 3>{17, 1, 1}));
  EXPECT_EQ(launch.block, (std::array<std::int64_t, 3>{256, 1, 1}));
  EXPECT_EQ(launch.static_shared_bytes, 0);
  EXPECT_EQ(launch.dynamic_shared_bytes, 0);
  EXPECT_EQ(launch.registers_per_thread, 0);
  EXPECT_EQ(trace.launch(trace.events()[1].detail).grid[0], 1);
}

TEST(NsysReader, GivesWhatNamesNoProcessToTheOnlyOneAndOtherwiseToOneOfItsOwn) {
  const std::string unnamed =
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL(start,end,deviceId) VALUES(300,301,0);";
  const auto one = sqlite_of(std::string(kStrings) + kKernels + unnamed);
  EXPECT_EQ(trace_of(one->path()).processes().size(), 1U);
  const auto two = sqlite_of(std::string(kStrings) + kKernels +
                             "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL "
                             "VALUES(200,250,0,7,9,281475060596736,1,1,1,1,1,1,1);" +
                             unnamed);
  const Trace trace = trace_of(two->path());
  ASSERT_EQ(trace.processes().size(), 3U);
  EXPECT_EQ(trace.processes()[2].pid, 0);
}

TEST(NsysTables, HoldWhatADeviceDidApartFromWhatTheHostDid) {
  const auto table = [](EventKind kind, std::int32_t device) {
    return table_of({.device = device, .kind = kind});
  };
  EXPECT_EQ(table(EventKind::kernel, 0), NsysTable::kernel);
  EXPECT_EQ(table(EventKind::copy, 0), NsysTable::memcpy);
  EXPECT_EQ(table(EventKind::set, 0), NsysTable::memset);
  EXPECT_EQ(table(EventKind::synchronization, 0), NsysTable::synchronization);
  for (const EventKind kind : {EventKind::copy, EventKind::set, EventKind::synchronization,
                               EventKind::range, EventKind::host_operator, EventKind::collective}) {
    EXPECT_EQ(table(kind, kHost), NsysTable::nvtx);
  }
  EXPECT_EQ(table(EventKind::api_call, kHost), NsysTable::runtime);
}

TEST(NsysTables, NameKindsAndKnowThemByTheirNames) {
  for (const std::int64_t type : {0, 1, 2, 3, 4}) EXPECT_EQ(sync_type(sync_name(type)), type);
  for (const std::int64_t type : {-1, 5}) EXPECT_EQ(sync_name(type), "Sync");
  EXPECT_EQ(sync_type("no such thing"), 0);
  EXPECT_EQ(copy_name(1), "Memcpy HtoD");
  EXPECT_EQ(copy_name(13), "Unified memory DtoD");
  for (const std::int64_t kind : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{14}, INT64_MAX}) {
    EXPECT_EQ(copy_name(kind), "Memcpy");
    EXPECT_EQ(copy_direction(kind), CopyDirection::unknown);
  }
  EXPECT_EQ(copy_direction(11), CopyDirection::host_to_device);
  EXPECT_EQ(copy_direction(12), CopyDirection::device_to_host);
  for (const CopyDirection direction :
       {CopyDirection::unknown, CopyDirection::host_to_device, CopyDirection::device_to_host,
        CopyDirection::device_to_device, CopyDirection::host_to_host,
        CopyDirection::peer_to_peer}) {
    EXPECT_EQ(copy_direction(copy_kind(direction)), direction);
  }
}

TEST(NsysTables, TakeTheVersionOffAnApiCallsNameAndNothingElse) {
  EXPECT_EQ(without_version("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
  EXPECT_EQ(without_version("cudaLaunchKernelExC_v11060"), "cudaLaunchKernelExC");
  for (const char* whole : {"cuLaunchKernel", "cuMemAlloc_v2", "cudaFree_v70x0", "cudaFree_v",
                            "cudaFree_vABCD", "", "_v", "cuda_v:999", "cuda_v/999"}) {
    EXPECT_EQ(without_version(whole), whole);
  }
}

TEST(NsysReader, KeepsEqualCorrelationsOfTwoProcessesApart) {
  const auto file = sqlite_of(std::string(kStrings) + kKernels +
                              "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL "
                              "VALUES(100,150,0,7,9,281475060596736,1,1,1,1,1,1,1);");
  const Trace trace = trace_of(file->path());
  ASSERT_EQ(trace.events().size(), 2U);
  EXPECT_NE(trace.events()[0].process, trace.events()[1].process);
  EXPECT_EQ(error_text([&] { trace_of(file->path(), {.rank = 0}); }),
            file->path() +
                ": holds 2 processes, and one rank was given; leave the rank out, or "
                "trace each rank into a file of its own");
}

TEST(NsysReader, LeavesOutImpossibleTimesAndCountsThem) {
  const auto file =
      sqlite_of(std::string(kStrings) + kKernels +
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL(start,end,deviceId) VALUES"
                "(0,0,0),(100,95,0),(100,7400000000000000000,0),(-9223372036854775808,5,0);");
  const Trace trace = trace_of(file->path());
  EXPECT_EQ(sum_of(trace, EventKind::kernel), (Sum{1, 50}));
  EXPECT_EQ(trace.health().without_time, 1);
  EXPECT_EQ(trace.health().negative_duration, 1);
  EXPECT_EQ(trace.health().impossible_duration, 2);
}

TEST(NsysReader, NamesThePlaceOfAValueThatIsNoInteger) {
  for (const char* value : {"'soon'", "1.5", "x'00'"}) {
    const auto file = sqlite_of(std::string(kStrings) + kKernels +
                                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL(start,end,deviceId) "
                                "VALUES(1,CAST(" +
                                value + " AS BLOB),0);");
    EXPECT_EQ(error_of(file->path()),
              file->path() +
                  ": row 2 of table \"CUPTI_ACTIVITY_KIND_KERNEL\" has no integer in "
                  "column \"end\"; export the trace again, or copy the file again");
  }
}

TEST(NsysReader, DoesNotRunWhatASchemaHolds) {
  // A view in a table's place, a virtual table, and a column that is computed.
  const auto view = sqlite_of(
      std::string(kStrings) +
      "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT "
      "x+1 FROM n) SELECT x AS start, x AS end, 0 AS deviceId FROM n;");
  ReadReport report;
  EXPECT_EQ(trace_of(view->path(), {}, &report).events().size(), 0U);
  EXPECT_EQ(report.notes.size(), 2U);
  const auto computed =
      sqlite_of(std::string(kStrings) +
                "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, deviceId INTEGER,"
                " end INTEGER GENERATED ALWAYS AS (start+1));"
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL(start) VALUES(1);");
  EXPECT_EQ(error_of(computed->path()),
            computed->path() +
                ": row 1 of table \"CUPTI_ACTIVITY_KIND_KERNEL\" has no integer in "
                "column \"end\"; export the trace again, or copy the file again");
}

TEST(NsysReader, RefusesWhatIsNoTraceWithOneLine) {
  const TempFile empty("empty.sqlite", "");
  EXPECT_EQ(error_of(empty.path()), empty.path() +
                                        ": is empty; give an nsys SQLite export, a trace "
                                        "of stepscope, or Kineto's JSON");
  const TempFile text("notes.sqlite", "measured on Tuesday\n");
  EXPECT_EQ(error_of(text.path()), text.path() +
                                       ": is neither SQLite nor JSON; give an nsys SQLite "
                                       "export, a trace of stepscope, or Kineto's JSON");
  const auto other = sqlite_of("CREATE TABLE songs(title TEXT);");
  EXPECT_EQ(error_of(other->path()),
            other->path() +
                ": is an SQLite file without any table of nsys; give an "
                "nsys SQLite export, a trace of stepscope, or Kineto's JSON");
  const std::string bytes = real_trace_bytes("nsysai_healthy_1pct.sqlite");
  ASSERT_EQ(bytes.size(), 57'344U);
  const TempFile half("half.sqlite", bytes.substr(0, bytes.size() / 2));
  EXPECT_EQ(error_of(half.path()), half.path() +
                                       ": was cut: it has 28672 of 57344 bytes; export the trace "
                                       "again, or copy the file again");
  const TempFile magic("magic.sqlite", bytes.substr(0, 16));
  const std::string error = error_of(magic.path());
  EXPECT_TRUE(error.starts_with(magic.path() + ": ")) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

TEST(NsysReader, NamesTableAndRowOfADamagedPage) {
  std::string bytes = real_trace_bytes("nsysai_healthy_1pct.sqlite");
  const std::string good = bytes;
  // Each page in turn becomes zeros; the first holds the schema.
  std::size_t named = 0;
  for (std::size_t page = 4'096; page < bytes.size(); page += 4'096) {
    bytes = good;
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(page), 4'096, '\0');
    const TempFile file("page.sqlite", bytes);
    named += error_of(file.path()).find("of table \"") != std::string::npos;
  }
  EXPECT_GE(named, 8U);
}

}  // namespace
}  // namespace stepscope::tracer
