#include "tracer/nsys_writer.h"

#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/durable_file.h"
#include "core/error.h"
#include "tracer/collective_names.h"
#include "tracer/kernel_name.h"
#include "tracer/nsys_schema.h"
#include "tracer/nsys_tables.h"
#include "tracer/nvtx_text.h"

namespace stepscope::tracer {
namespace {

constexpr std::int64_t kPushPopRange = 59;
constexpr std::int64_t kDomainCreate = 75;
constexpr std::int64_t kOwnDomainId = 1;
/// vmId of real exports; a globalPid of 0 would look like none.
constexpr std::uint64_t kVm = std::uint64_t{1} << 48;
constexpr std::uint64_t kNextHost = std::uint64_t{1} << 56;

/// The connection; one transaction from opening to close().
class Database {
 public:
  explicit Database(std::string file) : file_(std::move(file)) {
    ::unlink(file_.c_str());
    sqlite3* connection = nullptr;
    const int opened =
        sqlite3_open_v2(file_.c_str(), &connection,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
    connection_.reset(connection);
    if (opened != SQLITE_OK) fail("cannot be created");
    // The file has its final name only once it is whole and on the disk: no journal is needed.
    execute(
        "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA page_size=16384;"
        "PRAGMA locking_mode=EXCLUSIVE; BEGIN;");
  }

  void execute(const char* sql) {
    if (sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
      fail("cannot be written");
    }
  }

  void close() {
    execute("COMMIT");
    // Nothing is written at the closing: without a journal the pages are in the file by now.
    connection_.reset();
  }

  [[noreturn]] void fail(const char* what) const {
    const std::string reason =
        connection_ ? sqlite3_errmsg(connection_.get()) : "there is not enough memory";
    throw Error(std::string(what) + ": " + reason,
                "check the folder, its permissions and the space on its disk", {.file = file_});
  }

  sqlite3* get() const { return connection_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
  };
  std::string file_;
  std::unique_ptr<sqlite3, Close> connection_;
};

/// INSERT INTO a table, by position.
class Insert {
 public:
  Insert(Database& database, const std::string& table, int values) : database_(database) {
    std::string sql = "INSERT INTO " + table + " VALUES(?";
    for (int i = 1; i < values; ++i) sql += ",?";
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(database.get(), (sql + ")").c_str(), -1, &statement, nullptr) !=
        SQLITE_OK) {
      database.fail("cannot be written");
    }
    statement_.reset(statement);
  }

  struct Null {};

  /// One row; values that are left out at the end are NULL.
  template <typename... Values>
  void operator()(const Values&... values) {
    int place = 0;
    (bind(++place, values), ...);
    if (sqlite3_step(statement_.get()) != SQLITE_DONE) database_.fail("cannot be written");
    sqlite3_reset(statement_.get());
  }

 private:
  void bind(int place, std::int64_t value) { sqlite3_bind_int64(statement_.get(), place, value); }
  void bind(int place, std::uint64_t value) { bind(place, static_cast<std::int64_t>(value)); }
  void bind(int place, int value) { bind(place, static_cast<std::int64_t>(value)); }
  void bind(int place, std::uint32_t value) { bind(place, static_cast<std::int64_t>(value)); }
  void bind(int place, Null /*null*/) { sqlite3_bind_null(statement_.get(), place); }
  void bind(int place, const std::optional<std::int64_t>& value) {
    value ? bind(place, *value) : bind(place, Null{});
  }
  /// The bytes must live until the row is written.
  void bind(int place, std::string_view text) {
    sqlite3_bind_text64(statement_.get(), place, text.empty() ? "" : text.data(), text.size(),
                        SQLITE_STATIC, SQLITE_UTF8);
  }

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  Database& database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

constexpr Insert::Null kNull{};

std::string utc_text(std::int64_t epoch_ns) {
  const std::time_t seconds = static_cast<std::time_t>(epoch_ns / 1'000'000'000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return text.data();
}

class Writer {
 public:
  Writer(const Trace& trace, Database& database) : trace_(trace), database_(database) {
    database.execute(kNsysSchema);
    database.execute(kOwnSchema);
    number_processes();
  }

  void write() {
    write_domains();
    write_events();
    write_inputs();
    write_targets();
    write_own_tables();
    write_strings();
  }

 private:
  /// What is written of one process, and how its threads are numbered in 24 bits.
  struct ProcessIds {
    std::uint64_t global_pid = 0;
    std::map<std::uint64_t, std::uint64_t> tids = {};  ///< of threads that do not fit
    std::set<std::uint64_t> threads = {};              ///< as written
    std::uint64_t last_thread = kThreadMask + 1;       ///< given to the latest that did not fit
  };

  void number_processes() {
    std::set<std::uint64_t> taken;
    for (const Process& process : trace_.processes()) {
      const bool fits = process.pid > 0 && process.pid <= static_cast<std::int64_t>(kThreadMask);
      const auto pid = fits ? static_cast<std::uint64_t>(process.pid) : processes_.size() + 1;
      std::uint64_t global = kVm | (pid & kThreadMask) << kThreadBits;
      // Ranks of two machines may have one pid; then they are processes of two "hosts".
      while (!taken.insert(global).second) {
        if (global > std::numeric_limits<std::int64_t>::max() - kNextHost) {
          throw Error("the trace has too many processes with pid " + std::to_string(process.pid),
                      "write fewer ranks into one file");
        }
        global += kNextHost;
      }
      processes_.push_back({.global_pid = global});
    }
  }

  /// A host thread's globalTid. A thread whose number does not fit gets one from the top.
  std::uint64_t global_tid(const Event& event) {
    ProcessIds& ids = processes_[event.process];
    std::uint64_t tid = event.thread;
    if (tid > kThreadMask) {
      auto found = ids.tids.find(tid);
      if (found == ids.tids.end()) found = ids.tids.emplace(tid, --ids.last_thread).first;
      tid = found->second;
    }
    if (ids.threads.empty() || last_thread_ != std::pair{event.process, tid}) {
      ids.threads.insert(tid);
      last_thread_ = {event.process, tid};
    }
    return ids.global_pid | tid;
  }

  /// The id in StringIds of a name of the trace.
  std::int64_t string_id(std::uint32_t number) {
    // Id 0 means "[Unknown]" to nsys, so that the empty name needs another.
    if (number == 0) return string_id("");
    if (number >= used_.size()) used_.resize(trace_.text_count(), false);
    used_[number] = true;
    return number;
  }

  std::int64_t string_id(std::string_view text) {
    auto found = more_strings_.find(std::string(text));
    if (found == more_strings_.end()) {
      const auto id = static_cast<std::int64_t>(trace_.text_count() + more_strings_.size());
      found = more_strings_.emplace(text, id).first;
    }
    return found->second;
  }

  void write_domains() {
    Insert insert(database_, kNvtx, 19);
    for (const ProcessIds& ids : processes_) {
      insert(std::int64_t{0}, kNull, kDomainCreate, kNull, kNull, kNull, kOwnDomain, ids.global_pid,
             kNull, kNull, kOwnDomainId);
      ++rows_[std::size_t(NsysTable::nvtx)];
    }
  }

  void write_events() {
    Insert kernels(database_, "CUPTI_ACTIVITY_KIND_KERNEL", 28);
    Insert copies(database_, "CUPTI_ACTIVITY_KIND_MEMCPY", 20);
    Insert sets(database_, "CUPTI_ACTIVITY_KIND_MEMSET", 12);
    Insert synchronizations(database_, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", 10);
    Insert calls(database_, "CUPTI_ACTIVITY_KIND_RUNTIME", 8);
    Insert ranges(database_, kNvtx, 19);
    Insert additions(database_, "STEPSCOPE_EVENT", 14);
    for (const Event& event : trace_.events()) {
      first_ns_ = std::min(first_ns_, event.start_ns);
      last_ns_ = std::max(last_ns_, event.end_ns);
      const NsysTable table = table_of(event);
      const std::int64_t row = ++rows_[std::size_t(table)];
      // What a reader makes of the row alone.
      Event plain{.start_ns = event.start_ns, .end_ns = event.end_ns, .process = event.process};
      bool plain_launch = false;
      bool plain_inputs = false;
      std::string_view plain_name;
      const std::int64_t device = event.device;
      const std::int64_t context = device + 1;
      const std::uint64_t global_pid = processes_[event.process].global_pid;
      if (table != NsysTable::runtime && table != NsysTable::nvtx) {
        plain.kind = event.kind;
        plain.device = event.device;
        plain.stream = event.stream;
        plain.correlation = event.correlation;
        use_stream(event);
      }
      switch (table) {
        case NsysTable::kernel: {
          const KernelNames& names = kernel_names(event.name);
          plain_launch = event.detail != kNoDetail;
          const Launch launch = plain_launch ? trace_.launch(event.detail) : Launch{};
          plain_name = names.demangled;
          plain.collective = names.collective;
          kernels(event.start_ns, event.end_ns, device, context, kNull, event.stream,
                  event.correlation, global_pid, names.demangled_id, names.short_id,
                  names.mangled_id, 1, 0, std::int64_t{launch.registers_per_thread}, launch.grid[0],
                  launch.grid[1], launch.grid[2], launch.block[0], launch.block[1], launch.block[2],
                  launch.static_shared_bytes, launch.dynamic_shared_bytes, 0, 0, row, 0, kNull, 0);
          break;
        }
        case NsysTable::memcpy: {
          const std::int64_t kind = copy_kind(event.direction);
          plain.value = std::max<std::int64_t>(event.value, 0);
          plain.direction = event.direction;
          plain_name = copy_name(kind);
          const auto [from, to] = memory_kinds(event.direction);
          copies(event.start_ns, event.end_ns, device, context, kNull, event.stream,
                 event.correlation, global_pid, plain.value, kind, kNull, from, to, kNull, kNull,
                 kNull, kNull, kNull, kNull, kNull);
          break;
        }
        case NsysTable::memset:
          plain.value = std::max<std::int64_t>(event.value, 0);
          plain_name = kMemsetName;
          sets(event.start_ns, event.end_ns, device, context, kNull, event.stream,
               event.correlation, global_pid, 0, plain.value, kNull, kDeviceMemory);
          break;
        case NsysTable::synchronization: {
          const std::int64_t type = sync_type(trace_.name(event));
          plain_name = sync_name(type);
          synchronizations(event.start_ns, event.end_ns, device, context, kNull, event.stream,
                           event.correlation, global_pid, type, 0);
          break;
        }
        case NsysTable::runtime: {
          const std::string_view name = trace_.name(event);
          const bool driver =
              name.size() > 2 && name.starts_with("cu") && name[2] >= 'A' && name[2] <= 'Z';
          plain.kind = EventKind::api_call;
          plain.thread = std::min(event.thread, kThreadMask);
          plain.correlation = event.correlation;
          plain_name = without_version(name);
          calls(event.start_ns, event.end_ns, driver ? 1 : 0, global_tid(event), event.correlation,
                string_id(event.name), 0, kNull);
          break;
        }
        case NsysTable::nvtx: {
          const std::string_view name = trace_.name(event);
          const bool own = name.size() > kOwnDomain.size() + 1 && name.starts_with(kOwnDomain) &&
                           name[kOwnDomain.size()] == ':' && name[kOwnDomain.size() + 1] != ':';
          const std::string_view text = own ? name.substr(kOwnDomain.size() + 1) : name;
          const NvtxText parsed = parse_nvtx_text(text);
          describe_host_event(parsed, plain);
          plain.thread = std::min(event.thread, kThreadMask);
          plain_inputs = !parsed.inputs.empty() && plain.kind != EventKind::range;
          plain_name = parsed.name.size() == text.size() ? name : parsed.name;
          ranges(event.start_ns, event.end_ns, kPushPopRange, kNull, kNull, kNull, text,
                 global_tid(event), kNull, kNull, own ? kOwnDomainId : 0, kNull, kNull, kNull,
                 kNull, kNull, kNull, kNull, kNull);
          break;
        }
      }
      const auto unless = [](bool same, auto value) -> std::optional<std::int64_t> {
        if (same) return {};
        return static_cast<std::int64_t>(value);
      };
      const auto different = [&](auto Event::* member) {
        return unless(event.*member == plain.*member, event.*member);
      };
      const bool same_name = trace_.name(event) == plain_name;
      const bool has_inputs = event.kind != EventKind::kernel && event.detail != kNoDetail;
      std::optional<std::int64_t> no_detail;
      if (table == NsysTable::kernel && !plain_launch) no_detail = 0;
      if (plain_inputs && !has_inputs) no_detail = 0;
      const std::array<std::optional<std::int64_t>, 12> columns = {
          different(&Event::kind),
          same_name ? std::optional<std::int64_t>() : string_id(event.name),
          different(&Event::value),
          different(&Event::value_source),
          different(&Event::collective),
          different(&Event::direction),
          different(&Event::thread),
          different(&Event::device),
          different(&Event::stream),
          different(&Event::correlation),
          has_inputs ? std::optional<std::int64_t>(event.detail) : std::nullopt,
          no_detail};
      if (has_inputs) used_inputs_.insert(event.detail);
      if (std::any_of(columns.begin(), columns.end(),
                      [](const auto& c) { return c.has_value(); })) {
        std::apply(
            [&](const auto&... column) {
              additions(static_cast<std::int64_t>(table), row, column...);
            },
            columns);
      }
    }
  }

  struct KernelNames {
    std::string demangled;
    std::int64_t demangled_id = 0;
    std::int64_t short_id = 0;
    std::optional<std::int64_t> mangled_id;
    CollectiveKind collective = CollectiveKind::none;
  };

  const KernelNames& kernel_names(std::uint32_t number) {
    const auto found = kernel_names_.find(number);
    if (found != kernel_names_.end()) return found->second;
    const std::string_view name = trace_.text(number);
    KernelNames names;
    names.demangled = demangled_name(name);
    if (names.demangled == name) {
      names.demangled_id = string_id(number);
    } else {
      names.demangled_id = string_id(std::string_view(names.demangled));
      names.mangled_id = string_id(number);
    }
    names.short_id = string_id(base_name(names.demangled));
    names.collective = collective_of_kernel(names.demangled);
    return kernel_names_.emplace(number, std::move(names)).first->second;
  }

  static constexpr int kDeviceMemory = 2;

  /// srcKind and dstKind; the host's memory counts as pageable.
  static std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>> memory_kinds(
      CopyDirection direction) {
    switch (direction) {
      case CopyDirection::host_to_device:
        return {0, 2};
      case CopyDirection::device_to_host:
        return {2, 0};
      case CopyDirection::device_to_device:
      case CopyDirection::peer_to_peer:
        return {2, 2};
      case CopyDirection::host_to_host:
        return {0, 0};
      case CopyDirection::unknown:
        return {7, 7};
    }
    return {7, 7};
  }

  void use_stream(const Event& event) {
    const std::tuple stream(event.process, std::int64_t{event.device}, event.stream);
    if (last_stream_ == stream) return;
    last_stream_ = stream;
    streams_.insert(stream);
  }

  void write_inputs() {
    Insert insert(database_, "STEPSCOPE_INPUT", 6);
    for (const std::uint32_t detail : used_inputs_) {
      const auto inputs = trace_.inputs(detail);
      std::int64_t position = 0;
      if (inputs.empty()) insert(detail, position, kNull, kNull, kNull, kNull);
      for (const TensorInput& input : inputs) {
        std::string shape;
        for (const std::int64_t extent : input.shape) {
          shape += shape.empty() ? "" : ",";
          shape += std::to_string(extent);
        }
        insert(detail, position++, std::int64_t{input.argument}, std::string_view(input.dtype),
               input.on_device ? 1 : 0, std::string_view(shape));
      }
    }
  }

  void write_targets() {
    Insert gpus(database_, "TARGET_INFO_GPU(vmId,id,name,isDiscrete,cuDevice)", 5);
    Insert devices(database_, "TARGET_INFO_CUDA_DEVICE(gpuId,cudaId,pid)", 3);
    Insert contexts(database_, "TARGET_INFO_CUDA_CONTEXT_INFO", 8);
    Insert streams(database_, "TARGET_INFO_CUDA_STREAM", 7);
    std::set<std::int64_t> seen_devices;
    std::set<std::pair<std::uint32_t, std::int64_t>> seen_contexts;
    for (const auto& [process, device, stream] : streams_) {
      const std::uint64_t global = processes_[process].global_pid;
      const auto pid = static_cast<std::int64_t>(global >> kThreadBits & kThreadMask);
      const auto host = static_cast<std::int64_t>(global >> 56);
      if (seen_devices.insert(device).second) {
        const std::string name = "GPU " + std::to_string(device);
        gpus(1, device, std::string_view(name), 1, device);
      }
      if (seen_contexts.emplace(process, device).second) {
        devices(device, device, pid);
        contexts(kDefaultStream, host, 1, pid, device, device + 1, kNull, 0);
      }
      streams(stream, host, 1, pid, device + 1, 0, 1);
    }

    Insert processes(database_, "PROCESSES", 3);
    Insert threads(database_, "ThreadNames", 3);
    std::optional<std::int64_t> epoch;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      const Process& process = trace_.processes()[i];
      const ProcessIds& ids = processes_[i];
      if (!epoch) epoch = process.wall_clock_offset_ns;
      const std::string name =
          process.rank ? "rank " + std::to_string(*process.rank) : "process " + std::to_string(i);
      processes(ids.global_pid,
                static_cast<std::int64_t>(ids.global_pid >> kThreadBits & kThreadMask),
                std::string_view(name));
      for (const std::uint64_t tid : ids.threads) {
        threads(string_id(name), 0, ids.global_pid | tid);
      }
    }
    if (epoch) {
      const std::string utc = utc_text(*epoch);
      Insert(database_, "TARGET_INFO_SESSION_START_TIME", 3)(*epoch, std::string_view(utc),
                                                             std::string_view(utc));
    }
    if (first_ns_ <= last_ns_) {
      Insert(database_, "ANALYSIS_DETAILS", 4)(kVm, last_ns_ - first_ns_, first_ns_, last_ns_);
    }
    Insert meta(database_, "META_DATA_EXPORT", 2);
    for (const auto& [name, value] :
         {std::pair<std::string_view, std::string_view>{"EXPORT_PRODUCT_NAME", "stepscope"},
          {"EXPORT_SCHEMA_VERSION", "3.7.2"},
          {"EXPORT_SCHEMA_VERSION_MAJOR", "3"},
          {"EXPORT_SCHEMA_VERSION_MINOR", "7"},
          {"EXPORT_SCHEMA_VERSION_MICRO", "2"}}) {
      meta(name, value);
    }
  }

  void write_own_tables() {
    Insert processes(database_, "STEPSCOPE_PROCESS", 10);
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      const Process& process = trace_.processes()[i];
      processes(static_cast<std::int64_t>(i), processes_[i].global_pid, process.pid, process.rank,
                process.world_size, std::string_view(process.source), process.wall_clock_offset_ns,
                process.dropped, process.launched, process.host_dropped);
    }
    const Health& health = trace_.health();
    Insert(database_, "STEPSCOPE_HEALTH", 4)(health.without_time, health.negative_duration,
                                             health.impossible_duration, health.duplicates);
  }

  void write_strings() {
    Insert strings(database_, "StringIds", 2);
    strings(0, std::string_view("[Unknown]"));
    for (std::uint32_t number = 1; number < used_.size(); ++number) {
      if (used_[number]) strings(number, trace_.text(number));
    }
    for (const auto& [text, id] : more_strings_) strings(id, std::string_view(text));
  }

  static constexpr const char* kNvtx = "NVTX_EVENTS";
  static constexpr int kDefaultStream = 7;

  const Trace& trace_;
  Database& database_;
  std::vector<ProcessIds> processes_;
  std::array<std::int64_t, kNsysTables> rows_ = {};
  std::vector<bool> used_;
  std::unordered_map<std::string, std::int64_t> more_strings_;
  std::unordered_map<std::uint32_t, KernelNames> kernel_names_;
  std::set<std::uint32_t> used_inputs_;
  std::set<std::tuple<std::uint32_t, std::int64_t, std::uint64_t>> streams_;
  std::tuple<std::uint32_t, std::int64_t, std::uint64_t> last_stream_ = {0, -2, 0};
  std::pair<std::uint32_t, std::uint64_t> last_thread_ = {0, 0};
  std::int64_t first_ns_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t last_ns_ = std::numeric_limits<std::int64_t>::min();
};

}  // namespace

void write_nsys(const Trace& trace, const std::filesystem::path& path) {
  const std::string file = replaceable_file(path.string());
  const std::string partial = file + ".partial";
  try {
    Database database(partial);
    Writer(trace, database).write();
    database.close();
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
  commit_file(partial, file);
}

}  // namespace stepscope::tracer
