#include "tracer/chrome_reader.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "core/error.h"
#include "tracer/collective_names.h"
#include "tracer/decimal.h"
#include "tracer/file_rank.h"
#include "tracer/json_scanner.h"
#include "tracer/nvtx_text.h"

namespace stepscope::tracer {
namespace {

constexpr std::int64_t kYear2001 = 1'000'000'000'000'000'000;  // in ns since 1970
constexpr int kMicroseconds = 3;  // decimal places from microseconds to nanoseconds

/// Kineto's categories; the names in capitals are PyTorch's before 1.12.
struct Category {
  std::string_view name;
  EventKind kind;
};
constexpr std::array<Category, 14> kCategories = {{
    {"kernel", EventKind::kernel},
    {"gpu_memcpy", EventKind::copy},
    {"gpu_memset", EventKind::set},
    {"cuda_sync", EventKind::synchronization},
    {"cuda_runtime", EventKind::api_call},
    {"cuda_driver", EventKind::api_call},
    {"cpu_op", EventKind::host_operator},
    {"user_annotation", EventKind::range},
    {"python_function", EventKind::range},
    {"Kernel", EventKind::kernel},
    {"Memcpy", EventKind::copy},
    {"Memset", EventKind::set},
    {"Runtime", EventKind::api_call},
    {"Operator", EventKind::host_operator},
}};

/// Bytes of an element of a dtype, as NCCL's and c10d's records name it.
std::int64_t element_bytes(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, std::int64_t>, 10> kTypes = {{
      {"Float", 4},
      {"BFloat16", 2},
      {"Half", 2},
      {"Double", 8},
      {"Long", 8},
      {"Int", 4},
      {"Short", 2},
      {"Char", 1},
      {"Byte", 1},
      {"Bool", 1},
  }};
  for (const auto& [name, bytes] : kTypes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

/// "Memcpy HtoD (Pageable -> Device)".
CopyDirection direction_of(std::string_view name) {
  constexpr std::string_view kMemcpy = "Memcpy ";
  if (!name.starts_with(kMemcpy)) return CopyDirection::unknown;
  const std::string_view word = name.substr(kMemcpy.size(), 4);
  // "A" is an array in the device's memory.
  if (word == "HtoD" || word == "HtoA") return CopyDirection::host_to_device;
  if (word == "DtoH" || word == "AtoH") return CopyDirection::device_to_host;
  if (word == "DtoD" || word == "DtoA" || word == "AtoD" || word == "AtoA") {
    return CopyDirection::device_to_device;
  }
  if (word == "HtoH") return CopyDirection::host_to_host;
  if (word == "PtoP") return CopyDirection::peer_to_peer;
  return CopyDirection::unknown;
}

/// "device-to-host": as our own files say it.
CopyDirection named_direction(std::string_view name) {
  for (const CopyDirection direction :
       {CopyDirection::host_to_device, CopyDirection::device_to_host,
        CopyDirection::device_to_device, CopyDirection::host_to_host,
        CopyDirection::peer_to_peer}) {
    if (name == copy_direction_name(direction)) return direction;
  }
  return CopyDirection::unknown;
}

/// What the JSON says of one event.
struct Record {
  std::string phase;
  std::string category;
  std::string name;
  std::optional<std::int64_t> start_ns;
  std::int64_t duration_ns = 0;
  bool impossible = false;  ///< a time does not fit into 64 bits
  std::optional<std::int64_t> pid;
  std::optional<std::int64_t> tid;
  std::optional<std::int64_t> correlation;
  std::optional<std::int64_t> device;
  std::optional<std::int64_t> stream;
  std::optional<std::int64_t> bytes;
  std::optional<std::int64_t> n;
  std::optional<std::int64_t> message_elements;
  std::string message_dtype;
  Launch launch;
  bool has_launch = false;
  std::vector<TensorInput> inputs;
  std::vector<std::string> types;
  std::vector<std::int64_t> scalars;   ///< arguments whose list of extents is empty
  std::string copy_direction;          ///< ours, of copies
  std::vector<bool> inputs_on_device;  ///< ours, a tensor after the other
};

class Reader {
 public:
  Reader(const std::string& path, Trace& trace, bool salvage)
      : scanner_(path), trace_(trace), salvage_(salvage) {
    report_.format = "kineto";
    process_ = trace.add_process({.source = "kineto", .file = path});
  }

  ReadReport read() {
    if (scanner_.peek() == '[') {
      events();
    } else {
      file_object();
    }
    if (!lost_end_ && scanner_.peek() != '\0') {
      damaged([&] { scanner_.fail("something follows the end of the JSON"); });
    }
    finish_process();
    return std::move(report_);
  }

  std::uint32_t process() const { return process_; }

 private:
  void file_object() {
    damaged([&] {
      scanner_.object([&](std::string_view key) {
        if (key == "traceEvents") {
          found_events_ = true;
          events();
          // What follows cannot be found again after damage.
          if (lost_end_) throw JsonDamage(scanner_.offset(), "");
        } else if (key == "distributedInfo" && scanner_.peek() == '{') {
          scanner_.object([&](std::string_view inner) {
            if (inner == "rank") {
              rank_ = integer();
            } else if (inner == "world_size") {
              world_size_ = integer();
            } else {
              scanner_.skip();
            }
          });
        } else if (key == "stepscope" && scanner_.peek() == '{') {
          own_object();
        } else if (key == "baseTimeNanoseconds") {
          base_ns_ = integer();
        } else {
          scanner_.skip();
        }
      });
    });
    if (!found_events_ && !lost_end_) {
      throw Error("is JSON without \"traceEvents\"", "give Kineto's or Chrome's trace JSON",
                  {.file = trace_.processes()[process_].file});
    }
  }

  /// What our own files say of the process, and what its trace had left out.
  void own_object() {
    Process& process = trace_.process(process_);
    scanner_.object([&](std::string_view key) {
      const auto count = std::ranges::find(kHealthCounts, key, &HealthCount::name);
      if (key == "source" && scanner_.peek() == '"') {
        process.source = std::string(scanner_.string());
      } else if (key == "dropped") {
        process.dropped = integer();
      } else if (key == "launched") {
        process.launched = integer();
      } else if (key == "host_dropped") {
        process.host_dropped = integer();
      } else if (count != kHealthCounts.end()) {
        if (!trace_.health().add(count->count, integer().value_or(0))) {
          throw JsonDamage(scanner_.offset(), "holds an impossible count");
        }
      } else {
        scanner_.skip();
      }
    });
  }

  /// Runs `body`; with salvage, damage ends it and is counted.
  template <typename Body>
  void damaged(Body&& body) {
    try {
      body();
    } catch (const JsonDamage&) {
      if (!salvage_) throw;
      if (lost_end_) return;
      const std::int64_t start = scanner_.offset();
      lose_rest(start);
    }
  }

  /// Counts what is from `start` to the end as lost.
  void lose_rest(std::int64_t start) {
    try {
      while (scanner_.seek_object('\0')) scanner_.take('{');
    } catch (const JsonDamage&) {
      // The compressed file ends here.
    }
    report_.lost_bytes += scanner_.offset() - start;
    lost_end_ = true;
  }

  void events() {
    scanner_.take('[');
    if (scanner_.try_take(']')) return;
    for (;;) {
      scanner_.peek();
      std::int64_t start = scanner_.offset();
      try {
        Record record;
        read_record(record);
        add(record);
        start = scanner_.offset();
        if (scanner_.try_take(',')) continue;
        scanner_.take(']');
        return;
      } catch (const JsonDamage&) {
        if (!salvage_) throw;
        if (!resume(start)) return;
      }
    }
  }

  /// Finds the next event after damage in what begins at `start`; false where there is none.
  bool resume(std::int64_t start) {
    bool found = false;
    try {
      found = scanner_.seek_object(scanner_.offset() == start ? ',' : '\0');
    } catch (const JsonDamage&) {
      // The compressed file ends here.
    }
    report_.lost_bytes += scanner_.offset() - start;
    lost_end_ = !found;
    return found;
  }

  /// The integer that comes next; nothing for other values.
  std::optional<std::int64_t> integer() {
    const char byte = scanner_.peek();
    if (byte != '-' && (byte < '0' || byte > '9')) {
      scanner_.skip();
      return {};
    }
    return whole_number(scanner_.number());
  }

  void text(std::string& into) {
    if (scanner_.peek() == '"') {
      into = scanner_.string();
    } else {
      scanner_.skip();
    }
  }

  /// Microseconds; a value of another type is none.
  std::optional<std::int64_t> time(Record& record) {
    const char byte = scanner_.peek();
    if (byte != '-' && (byte < '0' || byte > '9')) {
      scanner_.skip();
      return {};
    }
    const auto ns = scaled_decimal(scanner_.number(), kMicroseconds);
    record.impossible |= !ns;
    return ns.value_or(0);
  }

  void read_record(Record& record) {
    scanner_.object([&](std::string_view key) {
      if (key == "ph") {
        text(record.phase);
      } else if (key == "cat") {
        text(record.category);
      } else if (key == "name") {
        text(record.name);
      } else if (key == "ts") {
        record.start_ns = time(record);
      } else if (key == "dur") {
        record.duration_ns = time(record).value_or(0);
      } else if (key == "pid") {
        record.pid = integer();
      } else if (key == "tid") {
        record.tid = integer();
      } else if (key == "args" && scanner_.peek() == '{') {
        scanner_.object([&](std::string_view argument) { read_argument(argument, record); });
      } else {
        scanner_.skip();
      }
    });
  }

  void read_argument(std::string_view key, Record& record) {
    if (key == "correlation") {
      record.correlation = integer();
    } else if (key == "device") {
      record.device = integer();
    } else if (key == "stream") {
      record.stream = integer();
    } else if (key == "bytes") {
      record.bytes = integer();
    } else if (key == "n") {
      record.n = integer();
    } else if (key == "In msg nelems") {
      record.message_elements = integer();
    } else if (key == "dtype") {
      text(record.message_dtype);
    } else if (key == "grid") {
      record.has_launch |= extents(record.launch.grid);
    } else if (key == "block") {
      record.has_launch |= extents(record.launch.block);
    } else if (key == "shared memory") {
      record.launch.dynamic_shared_bytes = integer().value_or(0);
    } else if (key == "static shared memory") {
      record.launch.static_shared_bytes = integer().value_or(0);
    } else if (key == "registers per thread") {
      const std::int64_t registers = integer().value_or(0);
      if (std::in_range<std::int32_t>(registers)) {
        record.launch.registers_per_thread = static_cast<std::int32_t>(registers);
      }
    } else if (key == "Input Dims" && scanner_.peek() == '[') {
      read_shapes(record);
    } else if (key == "Input type" && scanner_.peek() == '[') {
      scanner_.array([&] { text(record.types.emplace_back()); });
    } else if (key == "Input on device" && scanner_.peek() == '[') {
      scanner_.array([&] { record.inputs_on_device.push_back(integer().value_or(1) != 0); });
    } else if (key == "copy direction") {
      text(record.copy_direction);
    } else {
      scanner_.skip();
    }
  }

  bool extents(std::array<std::int64_t, 3>& into) {
    if (scanner_.peek() != '[') {
      scanner_.skip();
      return false;
    }
    std::size_t at = 0;
    scanner_.array([&] {
      const auto extent = integer();
      if (extent && at < into.size()) into[at] = *extent;
      ++at;
    });
    return true;
  }

  /// [[2, 3], [], [[4], [5]]]: an element an argument, tensors of a list one deeper.
  void read_shapes(Record& record) {
    std::int32_t argument = 0;
    scanner_.array([&] {
      if (scanner_.peek() != '[') {
        scanner_.skip();
      } else {
        TensorInput tensor{.argument = argument};
        bool is_list = false;
        scanner_.array([&] {
          if (scanner_.peek() != '[') {
            if (const auto extent = integer()) tensor.shape.push_back(*extent);
            return;
          }
          is_list = true;
          TensorInput& inner = record.inputs.emplace_back(TensorInput{.argument = argument});
          scanner_.array([&] {
            if (const auto extent = integer()) inner.shape.push_back(*extent);
          });
        });
        if (!is_list) {
          if (tensor.shape.empty()) record.scalars.push_back(argument);
          record.inputs.push_back(std::move(tensor));
        }
      }
      ++argument;
    });
  }

  void add(Record& record) {
    if (record.phase != "X") {
      ++report_.skipped;
      return;
    }
    std::optional<EventKind> kind;
    for (const Category& category : kCategories) {
      if (category.name == record.category) kind = category.kind;
    }
    // Other writers of Chrome's format name no category.
    if (record.category.empty()) kind = EventKind::range;
    if (!kind) {
      ++report_.skipped;
      return;
    }
    ++report_.events;
    Event event;
    event.kind = *kind;
    event.process = process_;
    event.name = trace_.intern(record.name);
    event.start_ns = record.start_ns.value_or(0);
    record.impossible |= __builtin_add_overflow(event.start_ns, record.duration_ns, &event.end_ns);
    if (record.impossible) {
      event.start_ns = std::numeric_limits<std::int64_t>::min();
      event.end_ns = std::numeric_limits<std::int64_t>::max();
    }
    event.correlation = static_cast<std::uint64_t>(record.correlation.value_or(0));
    if (event.kind == EventKind::kernel || event.kind == EventKind::copy ||
        event.kind == EventKind::set || event.kind == EventKind::synchronization) {
      on_device(record, event);
    } else {
      on_host(record, event);
    }
    if (record.start_ns.value_or(0) != 0 && !record.impossible) {
      first_ns_ = std::min(first_ns_, event.start_ns);
      last_ns_ = std::max(last_ns_, event.start_ns);
    }
    trace_.add(event);
  }

  void on_device(const Record& record, Event& event) {
    ++device_events_;
    kernels_ += event.kind == EventKind::kernel;
    const std::int64_t device = record.device.value_or(record.pid.value_or(0));
    event.device = std::in_range<std::int32_t>(device) ? static_cast<std::int32_t>(device) : 0;
    // Kineto writes CUPTI's "no stream" (2^32 - 1) as -1.
    const std::int64_t stream = record.stream.value_or(record.tid.value_or(0));
    event.stream = stream < 0 ? 0xffffffffU : static_cast<std::uint64_t>(stream);
    if (event.kind == EventKind::kernel) {
      event.collective = collective_of_kernel(trace_.name(event));
      if (record.has_launch) event.detail = trace_.add_launch(record.launch);
      if (record.n) {
        event.value = *record.n;
        event.value_source = ValueSource::exact;
      }
      return;
    }
    event.value = record.bytes.value_or(kNoValue);
    if (event.kind == EventKind::copy) {
      event.direction = record.copy_direction.empty() ? direction_of(trace_.name(event))
                                                      : named_direction(record.copy_direction);
    }
  }

  void on_host(Record& record, Event& event) {
    Process& process = trace_.process(process_);
    if (process.pid == 0) process.pid = record.pid.value_or(0);
    event.thread = static_cast<std::uint64_t>(record.tid.value_or(0));
    if (event.kind == EventKind::api_call) return;
    if (is_collective_scope(record.name)) {
      event.kind = EventKind::collective;
      event.collective = collective_of_host(record.name);
      event.value = record.bytes.value_or(kNoValue);
    }
    const std::int64_t bytes = element_bytes(record.message_dtype);
    if (event.kind == EventKind::collective && bytes > 0 && record.message_elements &&
        !__builtin_mul_overflow(*record.message_elements, bytes, &event.value)) {
      event.value_source = ValueSource::exact;
    }
    if (event.kind == EventKind::range) return;
    if (event.kind == EventKind::host_operator && !record.copy_direction.empty()) {
      event.kind = EventKind::copy;
      event.direction = named_direction(record.copy_direction);
      event.value = record.bytes.value_or(kNoValue);
    }
    keep_inputs(record, event);
  }

  void keep_inputs(Record& record, Event& event) {
    const auto type_of = [&](const TensorInput& input) -> std::string_view {
      const auto at = static_cast<std::size_t>(input.argument);
      return at < record.types.size() ? std::string_view(record.types[at]) : "";
    };
    // Without extents an argument is a scalar tensor, or no tensor: only its type tells.
    std::erase_if(record.inputs, [&](const TensorInput& input) {
      const std::string_view type = type_of(input);
      const bool bare = std::find(record.scalars.begin(), record.scalars.end(), input.argument) !=
                        record.scalars.end();
      return bare && (type.empty() || type == "Scalar" || type == "ScalarList" ||
                      type == "GenericList" || type == "TensorList");
    });
    if (record.inputs.empty()) return;
    const std::vector<bool>& on_device = record.inputs_on_device;
    for (std::size_t i = 0; i < record.inputs.size(); ++i) {
      TensorInput& input = record.inputs[i];
      input.dtype = type_of(input);
      // A list that does not fit the tensors says only that one is on a device: none may hide.
      input.on_device =
          on_device.size() == record.inputs.size() ? on_device[i] : !on_device.empty();
    }
    if (event.kind == EventKind::host_operator) {
      event.value = record.inputs.front().numel();
      if (event.value != kNoValue) event.value_source = ValueSource::exact;
    }
    event.detail = trace_.add_inputs(std::move(record.inputs));
  }

  void finish_process() {
    Process& process = trace_.process(process_);
    process.rank = rank_;
    process.world_size = world_size_;
    process.wall_clock_offset_ns = base_ns_;
    // Kineto wrote times since 1970 before it had a base.
    if (!base_ns_ && first_ns_ >= kYear2001 && first_ns_ <= last_ns_) {
      process.wall_clock_offset_ns = 0;
    }
    if (kernels_ == 0) {
      report_.notes.emplace_back(device_events_ == 0 ? "no kernels recorded: nothing ran on a GPU"
                                                     : "no kernels recorded");
    }
  }

  JsonScanner scanner_;
  Trace& trace_;
  bool salvage_;
  ReadReport report_;
  std::uint32_t process_ = 0;
  bool found_events_ = false;
  bool lost_end_ = false;  ///< salvage ran into the end of the file
  std::int64_t kernels_ = 0;
  std::int64_t device_events_ = 0;
  std::int64_t first_ns_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t last_ns_ = std::numeric_limits<std::int64_t>::min();
  std::optional<std::int64_t> rank_;
  std::optional<std::int64_t> world_size_;
  std::optional<std::int64_t> base_ns_;
};

}  // namespace

ReadReport read_chrome_json(const std::string& path, Trace& trace, const ReadOptions& options) {
  try {
    Reader reader(path, trace, options.salvage);
    ReadReport report = reader.read();
    if (options.rank) set_rank(trace, {reader.process()}, *options.rank, path);
    if (!trace.processes()[reader.process()].rank) {
      report.notes.emplace_back("rank unknown: the file does not say it");
    }
    return report;
  } catch (const JsonDamage& damage) {
    throw Error("byte " + std::to_string(damage.offset()) + ": " + damage.what(),
                "salvage reads the complete events of a damaged file", {.file = path});
  }
}

}  // namespace stepscope::tracer
