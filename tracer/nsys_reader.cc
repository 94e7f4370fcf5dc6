#include "tracer/nsys_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "tracer/collective_names.h"
#include "tracer/file_rank.h"
#include "tracer/nsys_tables.h"
#include "tracer/nvtx_text.h"

namespace stepscope::tracer {
namespace {

/// NVTX event types of ranges: push/pop and start/end, and their twins in nsys 2024 and newer.
constexpr std::array<std::int64_t, 4> kRangeTypes = {59, 60, 70, 71};
constexpr std::int64_t kDomainType = 75;

/// A value that a hostile or strange file may hold, in the type that the event has.
template <typename T>
T narrowed(const SqliteRows& rows, int column, std::int64_t missing) {
  const std::int64_t value = rows.integer_or(column, missing);
  if (!std::in_range<T>(value)) rows.fail("holds " + std::to_string(value) + " as a small number");
  return static_cast<T>(value);
}

class Reader {
 public:
  Reader(SqliteFile& file, Trace& trace) : file_(file), trace_(trace) {
    report_.format = "nsys";
    refuse_lost_own_tables();
    read_strings();
    read_own_processes();
    read_wall_clock();
    read_own_health();
    read_own_inputs();
  }

  ReadReport read() {
    std::int64_t expected = 0;
    for (const std::string_view name : kNsysTableNames) {
      if (const auto* table = file_.find_table(name)) expected += file_.row_estimate(*table);
    }
    // Numbers of rows may have gaps, or be made up: an event takes some 20 bytes at the least.
    expected = std::min(expected, file_.max_rows() / 5);
    trace_.reserve(trace_.events().size() + static_cast<std::size_t>(expected));
    // Calls first: they say which processes there are, which naive files leave out elsewhere.
    read_runtime();
    read_nvtx();
    read_kernels();
    read_copies();
    read_sets();
    read_synchronizations();
    refuse_lost_tables();
    return std::move(report_);
  }

  /// Processes that this file added.
  const std::vector<std::uint32_t>& processes() const { return processes_; }

 private:
  /// What STEPSCOPE_EVENT says of one table's rows, read side by side with them.
  class Additions {
   public:
    Additions(Reader& reader, NsysTable table) : reader_(reader) {
      const auto* own = reader.file_.find_table("STEPSCOPE_EVENT");
      if (own == nullptr) return;
      reader.added_to_ += (reader.added_to_.empty() ? "" : ",") + table_id(table);
      rows_.emplace(reader.file_, *own,
                    std::initializer_list<std::string_view>{
                        "row", "kind", "nameId", "value", "valueSource", "collective", "direction",
                        "thread", "device", "stream", "correlation", "inputs", "hasLaunch"},
                    "WHERE tableId=" + table_id(table) + " ORDER BY row");
      advance();
    }

    /// Adds to `event`, which stands in row `row` of the table.
    void apply(std::int64_t row, Event& event) {
      if (rows_ && next_row_ < row) fail_orphan();
      if (!rows_ || next_row_ != row) return;
      const SqliteRows& own = *rows_;
      if (!own.is_null(1)) event.kind = enumerator<EventKind>(1, EventKind::range);
      if (!own.is_null(2)) event.name = reader_.name_of(own, 2);
      event.value = own.integer_or(3, event.value);
      if (!own.is_null(4)) event.value_source = enumerator<ValueSource>(4, ValueSource::grid_bound);
      if (!own.is_null(5)) {
        event.collective = enumerator<CollectiveKind>(5, CollectiveKind::other);
      }
      if (!own.is_null(6)) {
        event.direction = enumerator<CopyDirection>(6, CopyDirection::peer_to_peer);
      }
      if (!own.is_null(7)) event.thread = static_cast<std::uint64_t>(own.integer(7));
      event.device = narrowed<std::int32_t>(own, 8, event.device);
      if (!own.is_null(9)) event.stream = static_cast<std::uint64_t>(own.integer(9));
      if (!own.is_null(10)) event.correlation = static_cast<std::uint64_t>(own.integer(10));
      if (!own.is_null(11)) {
        const auto found = reader_.inputs_.find(own.integer(11));
        if (found == reader_.inputs_.end()) own.fail("names inputs that STEPSCOPE_INPUT lacks");
        if (event.kind == EventKind::kernel) own.fail("gives a kernel an operator's inputs");
        event.detail = found->second;
      }
      if (own.integer_or(12, 1) == 0) event.detail = kNoDetail;
      advance();
    }

    /// After the table's last row. Throws Error where something is said of a row that is not there:
    /// events that were would be missing.
    void finish() {
      if (rows_) fail_orphan();
    }

   private:
    static std::string table_id(NsysTable table) { return std::to_string(static_cast<int>(table)); }

    [[noreturn]] void fail_orphan() {
      rows_->fail("says something of row " + std::to_string(next_row_) +
                  ", which is not in its table or comes twice");
    }

    template <typename Enum>
    Enum enumerator(int column, Enum last) {
      const auto value = rows_->integer(column);
      if (value < 0 || value > static_cast<std::int64_t>(last)) {
        rows_->fail("holds " + std::to_string(value) + ", which this version does not know");
      }
      return static_cast<Enum>(value);
    }

    void advance() {
      if (rows_->next()) {
        next_row_ = rows_->integer(0);
      } else {
        rows_.reset();
      }
    }

    Reader& reader_;
    std::optional<SqliteRows> rows_;
    std::int64_t next_row_ = std::numeric_limits<std::int64_t>::min();
  };

  void read_strings() {
    const auto* table = file_.find_table("StringIds");
    if (table == nullptr) return;
    SqliteRows rows(file_, *table, {"id", "value"});
    while (rows.next()) strings_[rows.integer(0)] = trace_.intern(rows.text(1));
  }

  void read_wall_clock() {
    const auto* table = file_.find_table("TARGET_INFO_SESSION_START_TIME");
    if (table == nullptr) return;
    SqliteRows rows(file_, *table, {"utcEpochNs"});
    if (rows.next()) wall_clock_offset_ns_ = rows.optional_integer(0);
  }

  void read_own_processes() {
    const auto* table = file_.find_table("STEPSCOPE_PROCESS");
    if (table == nullptr) return;
    report_.format = "stepscope";
    SqliteRows rows(file_, *table,
                    {"globalPid", "pid", "rank", "worldSize", "source", "wallClockOffset",
                     "dropped", "launched", "hostDropped"});
    while (rows.next()) {
      const auto key = static_cast<std::uint64_t>(rows.integer(0)) >> kThreadBits;
      const auto number = trace_.add_process({.rank = rows.optional_integer(2),
                                              .world_size = rows.optional_integer(3),
                                              .pid = rows.integer_or(1, 0),
                                              .source = std::string(rows.text(4)),
                                              .file = file_.path(),
                                              .wall_clock_offset_ns = rows.optional_integer(5),
                                              .dropped = rows.optional_integer(6),
                                              .launched = rows.optional_integer(7),
                                              .host_dropped = rows.optional_integer(8)});
      if (!process_index_.emplace(key, number).second) rows.fail("repeats a globalPid");
      processes_.push_back(number);
    }
  }

  void read_own_health() {
    const auto* table = file_.find_table("STEPSCOPE_HEALTH");
    if (table == nullptr) return;
    SqliteRows rows(file_, *table,
                    {"withoutTime", "negativeDuration", "impossibleDuration", "duplicates"});
    while (rows.next()) {
      int column = 0;
      for (const HealthCount& count : kHealthCounts) {
        if (!trace_.health().add(count.count, rows.integer_or(column++, 0))) {
          rows.fail("holds an impossible count");
        }
      }
    }
  }

  void read_own_inputs() {
    const auto* table = file_.find_table("STEPSCOPE_INPUT");
    if (table == nullptr) return;
    SqliteRows rows(file_, *table, {"id", "argument", "dtype", "onDevice", "shape"},
                    "ORDER BY id,position");
    std::vector<TensorInput> inputs;
    std::int64_t id = -1;
    const auto keep = [&] {
      if (id >= 0) inputs_[id] = trace_.add_inputs(std::exchange(inputs, {}));
    };
    while (rows.next()) {
      const std::int64_t next = rows.integer(0);
      if (next < 0) rows.fail("holds a negative id");
      if (next != id) keep();
      id = next;
      // A row without a shape stands for an operator without tensors.
      if (rows.is_null(4)) continue;
      TensorInput input{.dtype = std::string(rows.text(2)),
                        .argument = narrowed<std::int32_t>(rows, 1, 0),
                        .on_device = rows.integer_or(3, 0) != 0};
      const std::string_view shape = rows.text(4);
      for (std::size_t at = 0; at < shape.size();) {
        std::int64_t extent = 0;
        const auto [end, error] =
            std::from_chars(shape.data() + at, shape.data() + shape.size(), extent);
        if (error != std::errc()) rows.fail("holds no shape: " + printable(shape));
        input.shape.push_back(extent);
        at = static_cast<std::size_t>(end - shape.data()) + 1;
      }
      inputs.push_back(std::move(input));
    }
    keep();
  }

  /// The process that a globalPid or globalTid names; where it is missing, the file's only process.
  std::uint32_t process_of(const SqliteRows& rows, int column) {
    std::uint64_t key = 0;
    if (rows.is_null(column)) {
      if (processes_.size() == 1) return processes_.front();
    } else {
      key = static_cast<std::uint64_t>(rows.integer(column)) >> kThreadBits;
    }
    if (last_process_ && last_process_->first == key) return last_process_->second;
    auto found = process_index_.find(key);
    if (found == process_index_.end()) {
      const auto number = trace_.add_process({.pid = static_cast<std::int64_t>(key & kThreadMask),
                                              .source = "nsys",
                                              .file = file_.path(),
                                              .wall_clock_offset_ns = wall_clock_offset_ns_});
      processes_.push_back(number);
      found = process_index_.emplace(key, number).first;
    }
    last_process_ = {key, found->second};
    return found->second;
  }

  /// Column `column` as the number of a name: an id of StringIds, or in naive files the text.
  std::uint32_t name_of(const SqliteRows& rows, int column) {
    if (rows.is_null(column)) return 0;
    if (rows.is_text(column)) return trace_.intern(rows.text(column));
    const std::int64_t id = rows.integer(column);
    const auto found = strings_.find(id);
    return found == strings_.end() ? trace_.intern("unknown string " + std::to_string(id))
                                   : found->second;
  }

  void add(const Event& event) {
    trace_.add(event);
    ++report_.events;
  }

  void read_runtime() {
    const auto* table = file_.find_table(kNsysTableNames[std::size_t(NsysTable::runtime)]);
    if (table == nullptr) return;
    Additions additions(*this, NsysTable::runtime);
    SqliteRows rows(file_, *table,
                    {"start", "end", "globalTid", "correlationId", "nameId", "rowid"});
    std::unordered_map<std::uint32_t, std::uint32_t> short_names;
    while (rows.next()) {
      Event event{.start_ns = rows.integer(0), .end_ns = rows.integer(1)};
      event.correlation = static_cast<std::uint64_t>(rows.integer_or(3, 0));
      event.thread = static_cast<std::uint64_t>(rows.integer_or(2, 0)) & kThreadMask;
      event.process = process_of(rows, 2);
      const auto name = name_of(rows, 4);
      auto found = short_names.find(name);
      if (found == short_names.end()) {
        found = short_names.emplace(name, trace_.intern(without_version(trace_.text(name)))).first;
      }
      event.name = found->second;
      event.kind = EventKind::api_call;
      additions.apply(rows.integer(5), event);
      add(event);
    }
    additions.finish();
  }

  void read_nvtx() {
    const auto* table = file_.find_table(kNsysTableNames[std::size_t(NsysTable::nvtx)]);
    if (table == nullptr) {
      report_.notes.emplace_back("no annotations: there is no table NVTX_EVENTS");
      return;
    }
    Additions additions(*this, NsysTable::nvtx);
    SqliteRows rows(
        file_, *table,
        {"start", "end", "eventType", "globalTid", "text", "textId", "domainId", "rowid"});
    // A domain is numbered within its process; its name may come after its first range.
    using Domain = std::pair<std::uint32_t, std::int64_t>;
    std::map<Domain, std::string> domains;
    std::vector<std::pair<Event, Domain>> waiting;
    std::int64_t open = 0;
    while (rows.next()) {
      const std::int64_t type = rows.integer_or(2, kRangeTypes[0]);
      const auto process = process_of(rows, 3);
      const Domain domain = {process, rows.integer_or(6, 0)};
      std::string_view text = rows.text(4);
      if (rows.is_null(4)) text = trace_.text(name_of(rows, 5));
      if (type == kDomainType) {
        domains.emplace(domain, text);
        continue;
      }
      if (std::find(kRangeTypes.begin(), kRangeTypes.end(), type) == kRangeTypes.end()) {
        ++report_.skipped;
        continue;
      }
      if (rows.is_null(1)) {
        ++open;
        continue;
      }
      Event event{.start_ns = rows.integer(0), .end_ns = rows.integer(1)};
      event.thread = static_cast<std::uint64_t>(rows.integer_or(3, 0)) & kThreadMask;
      event.process = process;
      describe(parse_nvtx_text(text), event);
      const std::int64_t row = rows.integer(7);
      if (domain.second != 0 && !domains.contains(domain)) {
        additions.apply(row, event);
        waiting.emplace_back(event, domain);
        continue;
      }
      if (domain.second != 0) prefix(domains.at(domain), event);
      additions.apply(row, event);
      add(event);
    }
    for (auto& [event, domain] : waiting) {
      const auto found = domains.find(domain);
      if (found != domains.end()) prefix(found->second, event);
      add(event);
    }
    if (open > 0) report_.notes.push_back(std::to_string(open) + " annotations without an end");
    additions.finish();
  }

  /// Throws Error where the file has some of our own tables and not all: read without the others,
  /// it would be a trace of steps that did nothing.
  void refuse_lost_own_tables() const {
    const auto lost = [&](std::string_view name) { return file_.find_table(name) == nullptr; };
    const auto first = std::find_if(kOwnTableNames.begin(), kOwnTableNames.end(), lost);
    if (first == kOwnTableNames.end() ||
        std::all_of(kOwnTableNames.begin(), kOwnTableNames.end(), lost)) {
      return;
    }
    throw Error("is a trace of stepscope and lacks its table \"" + std::string(*first) + "\"",
                "copy the file again, or record the trace again", {.file = file_.path()});
  }

  /// Throws Error where STEPSCOPE_EVENT says something of a table that the file lacks: all of its
  /// events would be missing.
  void refuse_lost_tables() {
    const auto* own = file_.find_table("STEPSCOPE_EVENT");
    if (own == nullptr) return;
    SqliteRows lost(file_, *own, {"row"},
                    "WHERE tableId IS NULL OR tableId NOT IN (" + added_to_ + ") LIMIT 1");
    if (lost.next()) lost.fail("says something of a table that is not there");
  }

  void describe(const NvtxText& text, Event& event) {
    event.name = trace_.intern(text.name);
    describe_host_event(text, event);
    if (!text.inputs.empty() && event.kind != EventKind::range) {
      event.detail = trace_.add_inputs(text.inputs);
    }
  }

  void prefix(const std::string& domain, Event& event) {
    const std::string name(trace_.name(event));
    event.name = trace_.intern(domain + ":" + name);
  }

  void read_kernels() {
    const auto* table = file_.find_table(kNsysTableNames[std::size_t(NsysTable::kernel)]);
    if (table == nullptr) {
      report_.notes.emplace_back(
          "no kernels recorded: there is no table CUPTI_ACTIVITY_KIND_KERNEL");
      return;
    }
    Additions additions(*this, NsysTable::kernel);
    SqliteRows rows(
        file_, *table,
        {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName",
         "shortName", "mangledName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
         "staticSharedMemory", "dynamicSharedMemory", "registersPerThread", "rowid"});
    const bool has_grid = rows.has(9) && rows.has(12);
    std::unordered_map<std::uint32_t, CollectiveKind> collectives;
    while (rows.next()) {
      Event event = device_event(rows, EventKind::kernel);
      event.name = name_of(rows, rows.has(6) ? 6 : rows.has(7) ? 7 : 8);
      auto found = collectives.find(event.name);
      if (found == collectives.end()) {
        found = collectives.emplace(event.name, collective_of_kernel(trace_.name(event))).first;
      }
      event.collective = found->second;
      if (has_grid) {
        event.detail = trace_.add_launch(
            {.grid = {rows.integer_or(9, 1), rows.integer_or(10, 1), rows.integer_or(11, 1)},
             .block = {rows.integer_or(12, 1), rows.integer_or(13, 1), rows.integer_or(14, 1)},
             .static_shared_bytes = rows.integer_or(15, 0),
             .dynamic_shared_bytes = rows.integer_or(16, 0),
             .registers_per_thread = narrowed<std::int32_t>(rows, 17, 0)});
      }
      additions.apply(rows.integer(18), event);
      add(event);
    }
    additions.finish();
  }

  void read_copies() {
    const auto* table = file_.find_table(kNsysTableNames[std::size_t(NsysTable::memcpy)]);
    if (table == nullptr) return;
    Additions additions(*this, NsysTable::memcpy);
    SqliteRows rows(file_, *table,
                    {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes",
                     "copyKind", "srcKind", "dstKind", "rowid"});
    while (rows.next()) {
      Event event = device_event(rows, EventKind::copy);
      event.value = rows.integer_or(6, kNoValue);
      const std::int64_t kind = rows.integer_or(7, 0);
      event.direction = copy_direction(kind);
      if (event.direction == CopyDirection::unknown) {
        event.direction = direction_between(rows.integer_or(8, 7), rows.integer_or(9, 7));
      }
      event.name = trace_.intern(copy_name(kind));
      additions.apply(rows.integer(10), event);
      add(event);
    }
    additions.finish();
  }

  /// From the kinds of memory at both ends: 0 and 1 are the host's, 2, 3 and 5 a device's.
  static CopyDirection direction_between(std::int64_t source, std::int64_t destination) {
    const auto on_host = [](std::int64_t kind) { return kind == 0 || kind == 1; };
    const auto on_device = [](std::int64_t kind) { return kind == 2 || kind == 3 || kind == 5; };
    if (on_host(source) && on_device(destination)) return CopyDirection::host_to_device;
    if (on_device(source) && on_host(destination)) return CopyDirection::device_to_host;
    if (on_device(source) && on_device(destination)) return CopyDirection::device_to_device;
    if (on_host(source) && on_host(destination)) return CopyDirection::host_to_host;
    return CopyDirection::unknown;
  }

  void read_sets() {
    const auto* table = file_.find_table(kNsysTableNames[std::size_t(NsysTable::memset)]);
    if (table == nullptr) return;
    Additions additions(*this, NsysTable::memset);
    SqliteRows rows(
        file_, *table,
        {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "rowid"});
    while (rows.next()) {
      Event event = device_event(rows, EventKind::set);
      event.value = rows.integer_or(6, kNoValue);
      event.name = trace_.intern(kMemsetName);
      additions.apply(rows.integer(7), event);
      add(event);
    }
    additions.finish();
  }

  void read_synchronizations() {
    const auto* table = file_.find_table(kNsysTableNames[std::size_t(NsysTable::synchronization)]);
    if (table == nullptr) return;
    Additions additions(*this, NsysTable::synchronization);
    SqliteRows rows(file_, *table,
                    {"start", "end", "deviceId", "streamId", "correlationId", "globalPid",
                     "syncType", "rowid"});
    while (rows.next()) {
      Event event = device_event(rows, EventKind::synchronization);
      event.name = trace_.intern(sync_name(rows.integer_or(6, 0)));
      additions.apply(rows.integer(7), event);
      add(event);
    }
    additions.finish();
  }

  /// What the first six columns of a device's activity say.
  Event device_event(const SqliteRows& rows, EventKind kind) {
    Event event{.start_ns = rows.integer(0), .end_ns = rows.integer(1)};
    event.device = narrowed<std::int32_t>(rows, 2, 0);
    event.stream = static_cast<std::uint64_t>(rows.integer_or(3, 0));
    event.correlation = static_cast<std::uint64_t>(rows.integer_or(4, 0));
    event.process = process_of(rows, 5);
    event.kind = kind;
    return event;
  }

  SqliteFile& file_;
  Trace& trace_;
  ReadReport report_;
  std::string added_to_;  ///< ids of the tables whose rows STEPSCOPE_EVENT was read with
  std::unordered_map<std::int64_t, std::uint32_t> strings_;
  std::unordered_map<std::int64_t, std::uint32_t> inputs_;
  std::unordered_map<std::uint64_t, std::uint32_t> process_index_;
  std::vector<std::uint32_t> processes_;
  std::optional<std::pair<std::uint64_t, std::uint32_t>> last_process_;
  std::optional<std::int64_t> wall_clock_offset_ns_;
};

}  // namespace

bool is_nsys(const SqliteFile& file) {
  return file.find_table("StringIds") != nullptr ||
         std::any_of(kNsysTableNames.begin(), kNsysTableNames.end(),
                     [&](std::string_view name) { return file.find_table(name) != nullptr; });
}

ReadReport read_nsys(SqliteFile& file, Trace& trace, const ReadOptions& options) {
  Reader reader(file, trace);
  ReadReport report = reader.read();
  if (options.rank) set_rank(trace, reader.processes(), *options.rank, file.path());
  return report;
}

}  // namespace stepscope::tracer
