#include "tracer/host_recorder.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

namespace stepscope::tracer {

/// Followed by its tensors and its name.
struct HostRecord {
  std::int64_t start_ns;
  std::int64_t end_ns;  ///< 0 as long as it has not ended; written by any thread
  std::int64_t value;
  std::uint64_t correlation;
  std::uint32_t bytes;  ///< of the whole record, up to the next
  std::uint32_t tensors;
  std::uint32_t name_bytes;
  EventKind kind;
  CopyDirection direction;
  CollectiveKind collective;
  ValueSource value_source;
};
static_assert(sizeof(HostRecord) == 48);

namespace {

/// Followed by its sizes.
struct TensorRecord {
  const char* dtype;
  std::uint32_t dtype_bytes;
  std::int32_t argument;
  std::uint32_t dimensions;
  std::uint32_t on_device;  ///< 0 or 1
};
static_assert(sizeof(TensorRecord) == 24);

/// Longer names are cut: a hostile or generated one must not fill the buffer.
constexpr std::size_t kLongestName = 4096;

std::size_t record_bytes(const HostActivity& activity) {
  std::size_t bytes = sizeof(HostRecord) + std::min(activity.name.size(), kLongestName);
  for (const TensorView& tensor : activity.tensors) {
    bytes += sizeof(TensorRecord) + tensor.sizes.size_bytes();
  }
  return (bytes + 7) / 8 * 8;
}

/// Reads values one after the other out of a record.
class Cursor {
 public:
  explicit Cursor(const std::byte* at) : at_(at) {}

  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, std::exchange(at_, at_ + sizeof value), sizeof value);
    return value;
  }

  std::string_view text(std::size_t bytes) {
    return {reinterpret_cast<const char*>(std::exchange(at_, at_ + bytes)), bytes};
  }

 private:
  const std::byte* at_;
};

std::vector<TensorInput> read_tensors(Cursor& cursor, std::uint32_t count) {
  std::vector<TensorInput> inputs(count);
  for (TensorInput& input : inputs) {
    const auto tensor = cursor.take<TensorRecord>();
    input.dtype.assign(tensor.dtype, tensor.dtype_bytes);
    input.argument = tensor.argument;
    input.on_device = tensor.on_device != 0;
    input.shape.resize(tensor.dimensions);
    for (std::int64_t& extent : input.shape) extent = cursor.take<std::int64_t>();
  }
  return inputs;
}

}  // namespace

HostRecorder& HostRecorder::instance() {
  static auto* const recorder = new HostRecorder;
  return *recorder;
}

void HostRecorder::start(std::size_t bytes) { buffer_.start(bytes); }

void HostRecorder::stop() noexcept {
  buffer_.stop();
  stop_ns_ = trace_clock_ns();
}

HostRecord* HostRecorder::write(const RecordBuffer::Writer& writer, const HostActivity& activity,
                                std::int64_t start_ns, std::int64_t end_ns) noexcept {
  const std::size_t bytes = record_bytes(activity);
  std::byte* room = writer.reserve(bytes);
  if (room == nullptr) return nullptr;
  const std::string_view name = activity.name.substr(0, kLongestName);
  const HostRecord record{.start_ns = start_ns,
                          .end_ns = end_ns,
                          .value = activity.value,
                          .correlation = activity.correlation,
                          .bytes = static_cast<std::uint32_t>(bytes),
                          .tensors = static_cast<std::uint32_t>(activity.tensors.size()),
                          .name_bytes = static_cast<std::uint32_t>(name.size()),
                          .kind = activity.kind,
                          .direction = activity.direction,
                          .collective = activity.collective,
                          .value_source = activity.value_source};
  auto* const written = new (room) HostRecord(record);
  std::byte* at = room + sizeof record;
  const auto put = [&at](const void* from, std::size_t size) {
    if (size != 0) std::memcpy(std::exchange(at, at + size), from, size);
  };
  for (const TensorView& tensor : activity.tensors) {
    const TensorRecord head{.dtype = tensor.dtype.data(),
                            .dtype_bytes = static_cast<std::uint32_t>(tensor.dtype.size()),
                            .argument = tensor.argument,
                            .dimensions = static_cast<std::uint32_t>(tensor.sizes.size()),
                            .on_device = tensor.on_device ? 1U : 0U};
    put(&head, sizeof head);
    put(tensor.sizes.data(), tensor.sizes.size_bytes());
  }
  put(name.data(), name.size());
  return written;
}

HostRecord* HostRecorder::begin(const HostActivity& activity, std::uint64_t& epoch) noexcept {
  const RecordBuffer::Writer writer(buffer_);
  if (!writer) return nullptr;
  epoch = buffer_.epoch();
  return write(writer, activity, trace_clock_ns(), 0);
}

void HostRecorder::end(HostRecord* record, std::uint64_t epoch) noexcept {
  if (record == nullptr) return;
  const RecordBuffer::Writer writer(buffer_);
  if (!writer || buffer_.epoch() != epoch) return;
  std::atomic_ref(record->end_ns).store(trace_clock_ns(), std::memory_order_relaxed);
}

void HostRecorder::add(const HostActivity& activity, std::int64_t start_ns,
                       std::int64_t end_ns) noexcept {
  const RecordBuffer::Writer writer(buffer_);
  if (writer) write(writer, activity, start_ns, end_ns);
}

void HostRecorder::deliver(Trace& trace, std::uint32_t process) {
  buffer_.for_each_chunk([&](std::uint64_t thread, std::span<std::byte> records) {
    while (!records.empty()) {
      Cursor cursor(records.data());
      const auto record = cursor.take<HostRecord>();
      Event event{.start_ns = record.start_ns,
                  .end_ns = record.end_ns != 0 ? record.end_ns : stop_ns_,
                  .value = record.value,
                  .correlation = record.correlation,
                  .thread = thread,
                  .process = process,
                  .kind = record.kind,
                  .direction = record.direction,
                  .collective = record.collective,
                  .value_source = record.value_source};
      if (record.tensors != 0)
        event.detail = trace.add_inputs(read_tensors(cursor, record.tensors));
      event.name = trace.intern(cursor.text(record.name_bytes));
      trace.add(event);
      records = records.subspan(record.bytes);
    }
  });
}

}  // namespace stepscope::tracer
