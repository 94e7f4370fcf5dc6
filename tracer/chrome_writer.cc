#include "tracer/chrome_writer.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "core/durable_file.h"
#include "core/error.h"
#include "tracer/kernel_name.h"
#include "tracer/nsys_tables.h"

namespace stepscope::tracer {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 18;

constexpr std::string_view kAnnotation = "user_annotation";

/// How Kineto calls the category. It has none for most of what a device does, on the host.
std::string_view category(EventKind kind, bool on_device) {
  switch (kind) {
    case EventKind::kernel:
      return on_device ? "kernel" : kAnnotation;
    case EventKind::copy:
      return on_device ? "gpu_memcpy" : "cpu_op";  // the argument "copy direction" tells our reader
    case EventKind::set:
      return on_device ? "gpu_memset" : kAnnotation;
    case EventKind::synchronization:
      return on_device ? "cuda_sync" : kAnnotation;
    case EventKind::api_call:
      return "cuda_runtime";
    case EventKind::host_operator:
      return "cpu_op";
    case EventKind::collective:
    case EventKind::range:
      return kAnnotation;
  }
  return kAnnotation;
}

class Writer {
 public:
  Writer(const Trace& trace, std::uint32_t process, DurableFile& file)
      : trace_(trace), process_(process), file_(file) {}

  void write() {
    const Process& process = trace_.processes()[process_];
    out_ += "{\n\"schemaVersion\": 1,\n\"displayTimeUnit\": \"ns\",\n";
    // HolisticTraceAnalysis looks for these very characters, and for nothing but a rank.
    if (process.rank) {
      out_ += "\"distributedInfo\": {\"rank\": " + std::to_string(*process.rank);
      if (process.world_size) out_ += ", \"world_size\": " + std::to_string(*process.world_size);
      out_ += "},\n";
    }
    if (process.wall_clock_offset_ns) {
      out_ += "\"baseTimeNanoseconds\": " + std::to_string(*process.wall_clock_offset_ns) + ",\n";
    }
    out_ += "\"stepscope\": {\"source\": ";
    text(process.source);
    for (const auto& [key, value] : {std::pair{"dropped", process.dropped},
                                     {"launched", process.launched},
                                     {"host_dropped", process.host_dropped}}) {
      if (value) out_ += ", \"" + std::string(key) + "\": " + std::to_string(*value);
    }
    left_out(trace_.health());
    out_ += "},\n\"traceEvents\": [";
    name_process(process);
    for (const Event& event : trace_.events()) {
      if (event.process == process_) write_event(event);
    }
    out_ += "\n]}\n";
    flush();
  }

 private:
  void flush() {
    file_.write(std::as_bytes(std::span(out_)));
    out_.clear();
  }

  void begin() {
    out_ += first_ ? "\n{" : ",\n{";
    first_ = false;
    if (out_.size() > kPiece) flush();
  }

  /// JSON wants text as UTF-8; a byte that is none becomes U+FFFD.
  void text(std::string_view bytes) {
    static constexpr std::string_view kHex = "0123456789abcdef";
    out_ += '"';
    for (std::size_t at = 0; at < bytes.size();) {
      const auto byte = static_cast<unsigned char>(bytes[at]);
      if (byte == '"' || byte == '\\') {
        out_ += '\\';
        out_ += bytes[at++];
      } else if (byte < 0x20) {
        out_ += "\\u00";
        out_ += kHex[byte >> 4];
        out_ += kHex[byte & 15];
        ++at;
      } else if (byte < 0x80) {
        out_ += bytes[at++];
      } else if (const std::size_t length = character_length(bytes.substr(at)); length > 0) {
        out_ += bytes.substr(at, length);
        at += length;
      } else {
        out_ += "\xef\xbf\xbd";
        ++at;
      }
    }
    out_ += '"';
  }

  /// Bytes of the valid UTF-8 character that `bytes` begin with; 0 where they begin with none.
  static std::size_t character_length(std::string_view bytes) {
    const auto at = [&](std::size_t i) {
      return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U;
    };
    const auto within = [&](std::size_t i, unsigned low, unsigned high) {
      return at(i) >= low && at(i) <= high;
    };
    const auto next = [&](std::size_t i) { return within(i, 0x80, 0xbf); };
    const unsigned lead = at(0);
    if (lead >= 0xc2 && lead <= 0xdf) return next(1) ? 2 : 0;
    if (lead >= 0xe0 && lead <= 0xef) {
      const bool second = within(1, lead == 0xe0 ? 0xa0 : 0x80, lead == 0xed ? 0x9f : 0xbf);
      return second && next(2) ? 3 : 0;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
      const bool second = within(1, lead == 0xf0 ? 0x90 : 0x80, lead == 0xf4 ? 0x8f : 0xbf);
      return second && next(2) && next(3) ? 4 : 0;
    }
    return 0;
  }

  /// Nanoseconds as microseconds: "-0.001", "4458676522690.655".
  void microseconds(std::int64_t ns) {
    const bool negative = ns < 0;
    const std::uint64_t size =
        negative ? ~static_cast<std::uint64_t>(ns) + 1 : static_cast<std::uint64_t>(ns);
    if (negative) out_ += '-';
    out_ += std::to_string(size / 1'000) + '.';
    const std::string places = std::to_string(size % 1'000);
    out_.append(3 - places.size(), '0') += places;
  }

  /// A trace that lost records must not look whole in another format.
  void left_out(const Health& health) {
    if (health.total() == 0) return;
    for (const HealthCount& count : kHealthCounts) {
      out_ += ", \"" + std::string(count.name) + "\": " + std::to_string(health.*count.count);
    }
  }

  /// Names of the rows that Perfetto shows.
  void name_process(const Process& process) {
    const std::string rank =
        process.rank ? "rank " + std::to_string(*process.rank) : std::string("process");
    metadata("process_name", std::to_string(process.pid), rank);
    std::set<std::int32_t> devices;
    for (const Event& event : trace_.events()) {
      if (event.process != process_ || event.device == kHost) continue;
      if (devices.insert(event.device).second) {
        metadata("process_name", std::to_string(event.device),
                 rank + ", GPU " + std::to_string(event.device));
      }
    }
  }

  void metadata(std::string_view what, const std::string& pid, std::string_view name) {
    begin();
    out_ += "\"ph\": \"M\", \"name\": \"";
    out_ += what;
    out_ += "\", \"pid\": " + pid + ", \"tid\": 0, \"args\": {\"name\": ";
    text(name);
    out_ += "}}";
  }

  void write_event(const Event& event) {
    const bool on_device = event.device != kHost;
    begin();
    out_ += "\"ph\": \"X\", \"cat\": \"";
    out_ += category(event.kind, on_device);
    out_ += "\", \"name\": ";
    text(event.kind == EventKind::kernel ? std::string_view(demangled_name(trace_.name(event)))
                                         : trace_.name(event));
    out_ += ", \"pid\": ";
    out_ += std::to_string(on_device ? event.device : trace_.processes()[process_].pid);
    out_ += ", \"tid\": " + std::to_string(on_device ? event.stream : event.thread);
    out_ += ", \"ts\": ";
    microseconds(event.start_ns);
    out_ += ", \"dur\": ";
    microseconds(event.duration_ns());
    out_ += ", \"args\": {";
    arguments(event, on_device);
    out_ += "}}";
    if (event.correlation != 0 && event.kind == EventKind::api_call) flow(event, "s");
    if (event.correlation != 0 && on_device) flow(event, "f");
  }

  /// The arrow from a call to what it started.
  void flow(const Event& event, std::string_view phase) {
    begin();
    out_ += "\"ph\": \"";
    out_ += phase;
    out_ +=
        "\", \"cat\": \"ac2g\", \"name\": \"ac2g\", \"id\": " + std::to_string(event.correlation) +
        ", \"pid\": ";
    const bool on_device = event.device != kHost;
    out_ += std::to_string(on_device ? event.device : trace_.processes()[process_].pid);
    out_ += ", \"tid\": " + std::to_string(on_device ? event.stream : event.thread);
    out_ += ", \"ts\": ";
    microseconds(event.start_ns);
    out_ += phase == "f" ? ", \"bp\": \"e\"}" : "}";
  }

  void arguments(const Event& event, bool on_device) {
    bool first = true;
    const auto number = [&](std::string_view key, auto value) {
      out_ += first ? "\"" : ", \"";
      first = false;
      out_ += key;
      out_ += "\": " + std::to_string(value);
    };
    const auto list = [&](std::string_view key, const std::array<std::int64_t, 3>& values) {
      out_ += first ? "\"" : ", \"";
      first = false;
      out_ += key;
      out_ += "\": [" + std::to_string(values[0]) + ", " + std::to_string(values[1]) + ", " +
              std::to_string(values[2]) + "]";
    };
    if (event.correlation != 0) {
      number("External id", event.correlation);
      number("correlation", event.correlation);
    }
    if (on_device) {
      number("device", event.device);
      number("context", 1);
      number("stream", event.stream);
    }
    if (event.kind == EventKind::kernel) {
      if (event.detail != kNoDetail) {
        const Launch& launch = trace_.launch(event.detail);
        list("grid", launch.grid);
        list("block", launch.block);
        number("registers per thread", launch.registers_per_thread);
        number("shared memory", launch.dynamic_shared_bytes);
        number("static shared memory", launch.static_shared_bytes);
      }
      if (event.value_source == ValueSource::exact) number("n", event.value);
      return;
    }
    if (event.kind != EventKind::range && event.detail != kNoDetail) {
      inputs(trace_.inputs(event.detail), first);
    }
    const bool has_bytes = event.kind == EventKind::copy || event.kind == EventKind::set ||
                           event.kind == EventKind::collective;
    if (has_bytes && event.value != kNoValue) number("bytes", event.value);
    if (event.kind == EventKind::copy) {
      out_ += first ? "\"copy direction\": " : ", \"copy direction\": ";
      text(copy_direction_name(event.direction));
    }
  }

  /// Kineto's two lists, an element an argument; and, where any tensor is not in the memory of the
  /// CPU, a list of ours that says so of each tensor.
  void inputs(std::span<const TensorInput> tensors, bool& first) {
    std::string shapes;
    std::vector<std::string_view> types;
    for (std::size_t at = 0; at < tensors.size();) {
      const TensorInput& tensor = tensors[at];
      // Arguments that are no tensors have neither.
      while (std::ssize(types) < tensor.argument && std::ssize(types) < kMostArguments) {
        shapes += types.empty() ? "[]" : ", []";
        types.emplace_back();
      }
      std::size_t end = at + 1;
      while (end < tensors.size() && tensors[end].argument == tensor.argument) ++end;
      shapes += types.empty() ? "" : ", ";
      if (end - at == 1) {
        shapes += shape(tensor);
      } else {
        for (std::size_t i = at; i < end; ++i) shapes += (i == at ? "[" : ", ") + shape(tensors[i]);
        shapes += ']';
      }
      types.emplace_back(tensor.dtype);
      at = end;
    }
    out_ += first ? "\"Input Dims\": [" : ", \"Input Dims\": [";
    first = false;
    out_ += shapes + "], \"Input type\": [";
    for (std::size_t i = 0; i < types.size(); ++i) {
      out_ += i == 0 ? "" : ", ";
      text(types[i]);
    }
    out_ += ']';
    const auto on_device = [](const TensorInput& tensor) { return tensor.on_device; };
    if (std::none_of(tensors.begin(), tensors.end(), on_device)) return;
    out_ += ", \"Input on device\": [";
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      out_ += i == 0 ? "" : ", ";
      out_ += tensors[i].on_device ? '1' : '0';
    }
    out_ += ']';
  }

  static std::string shape(const TensorInput& tensor) {
    std::string list = "[";
    for (const std::int64_t extent : tensor.shape) {
      list += (list.size() == 1 ? "" : ", ") + std::to_string(extent);
    }
    return list + "]";
  }

  static constexpr std::ptrdiff_t kMostArguments = 1'000;

  const Trace& trace_;
  std::uint32_t process_;
  DurableFile& file_;
  std::string out_;
  bool first_ = true;
};

}  // namespace

void write_chrome_json(const Trace& trace, const std::filesystem::path& path,
                       std::uint32_t process) {
  if (process >= trace.processes().size()) {
    throw Error("there is no process " + std::to_string(process) + " in the trace", "",
                {.file = path.string()});
  }
  DurableFile file(path.string());
  Writer(trace, process, file).write();
  file.commit();
}

}  // namespace stepscope::tracer
