#include "tracer/cupti_source.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tracer/collective_names.h"
#include "tracer/launch_parameters.h"
#include "tracer/record_buffer.h"

namespace stepscope::tracer {
namespace {

constexpr std::array kKinds = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,  CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,   CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER,
};

constexpr std::array<CUpti_CallbackId, 4> kLaunches = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
};
constexpr std::array<CUpti_CallbackId, 2> kCooperativeLaunches = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
};
constexpr std::array<CUpti_CallbackId, 2> kGraphLaunches = {
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
};

template <std::size_t N>
bool is_one_of(const std::array<CUpti_CallbackId, N>& ids, CUpti_CallbackId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// One launch, as its callback saw it.
struct LaunchRecord {
  std::int64_t start_ns;
  std::int64_t end_ns;
  std::int64_t n;  ///< or kNoValue
  std::uint64_t correlation;
  std::uint64_t callback;
};
static_assert(sizeof(LaunchRecord) == 40);

/// The API call that started something; a launch's callback is preferred to the runtime's record,
/// and that to the driver's.
struct Call {
  Event event;
  int preference = 0;
};

std::uint64_t CUPTIAPI now() { return static_cast<std::uint64_t>(trace_clock_ns()); }

CopyDirection direction_of(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return CopyDirection::host_to_device;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return CopyDirection::device_to_host;
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return CopyDirection::device_to_device;
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return CopyDirection::host_to_host;
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return CopyDirection::peer_to_peer;
    default:
      return CopyDirection::unknown;
  }
}

class CuptiSource final : public CaptureSource {
 public:
  CuptiSource(std::unique_ptr<CuptiApi> cupti, const CuptiOptions& options)
      : cupti_(std::move(cupti)), options_(options) {}
  ~CuptiSource() override { CuptiSource::stop(); }

  std::string_view name() const override { return "cupti"; }
  void start() override;
  void stop() override;
  void deliver(Trace& trace, std::uint32_t process) override;

 private:
  struct Buffer {
    std::unique_ptr<std::uint8_t[]> memory;
    std::size_t valid = 0;
    bool returned = false;  ///< CUPTI writes no longer
  };
  using Calls = std::unordered_map<std::uint64_t, Call>;
  using Sizes = std::unordered_map<std::uint64_t, std::int64_t>;

  void require(CUptiResult result, const char* what) const;
  void enable_all();
  void count_dropped(CUcontext context, std::uint32_t stream);
  void on_launch(CUpti_CallbackId id, const CUpti_CallbackData& data);
  std::int64_t n_of(CUpti_CallbackId id, const CUpti_CallbackData& data);
  template <typename Use>
  void for_each_record(const Use& use);
  void add_call(Trace& trace, std::uint32_t process, Calls& calls, const CUpti_ActivityAPI& record,
                bool runtime);
  void add_activity(Trace& trace, std::uint32_t process, const Calls& calls, const Sizes& sizes,
                    const CUpti_Activity& record);

  static void CUPTIAPI on_request(std::uint8_t** buffer, std::size_t* size, std::size_t* records);
  static void CUPTIAPI on_complete(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                                   std::size_t size, std::size_t valid);
  static void CUPTIAPI on_callback(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                   const void* data);

  std::unique_ptr<CuptiApi> cupti_;
  CuptiOptions options_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  bool subscribed_ = false;
  std::vector<CUpti_ActivityKind> enabled_;
  RecordBuffer launches_;
  std::atomic<std::int64_t> launched_{0};
  std::atomic<bool> graphs_{false};

  std::mutex mutex_;  ///< of what follows: CUPTI hands buffers over on a thread of its own
  std::vector<Buffer> buffers_;
  std::optional<std::int64_t> dropped_ = 0;

  /// CUPTI's buffer callbacks carry no pointer of ours. One Capture runs at a time.
  static std::atomic<CuptiSource*> active_;
};

std::atomic<CuptiSource*> CuptiSource::active_{nullptr};

void CuptiSource::require(CUptiResult result, const char* what) const {
  if (result == CUPTI_SUCCESS) return;
  throw Error("GPU activities cannot be recorded: " + std::string(what) + " failed with " +
                  cupti_->describe(result),
              "see that a driver for CUDA 13 is installed and no other profiler is attached");
}

void CuptiSource::start() {
  launched_ = 0;
  graphs_ = false;
  {
    const std::scoped_lock lock(mutex_);
    buffers_.clear();
    buffers_.reserve(options_.buffers);  // so that nothing is allocated for the list later
    dropped_ = 0;
  }
  require(cupti_->subscribe(&subscriber_, on_callback, this), "cuptiSubscribe");
  subscribed_ = true;
  active_ = this;
  launches_.start(options_.launch_bytes);
  try {
    enable_all();
  } catch (...) {
    stop();
    throw;
  }
}

void CuptiSource::enable_all() {
  require(cupti_->register_timestamp(now), "cuptiActivityRegisterTimestampCallback");
  require(cupti_->use_system_thread_ids(), "cuptiSetThreadIdType");
  require(cupti_->register_buffers(on_request, on_complete), "cuptiActivityRegisterCallbacks");
  const auto listen = [&](const auto& ids) {
    for (const CUpti_CallbackId id : ids) {
      require(cupti_->enable_callback(subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, id),
              "cuptiEnableCallback");
    }
  };
  listen(kLaunches);
  listen(kCooperativeLaunches);
  listen(kGraphLaunches);
  for (const CUpti_ActivityKind kind : kKinds) {
    require(cupti_->enable(kind), "cuptiActivityEnable");
    enabled_.push_back(kind);
  }
}

void CuptiSource::stop() {
  if (!subscribed_) return;
  subscribed_ = false;
  for (const CUpti_ActivityKind kind : std::exchange(enabled_, {})) cupti_->disable(kind);
  const bool flushed = cupti_->flush() == CUPTI_SUCCESS;
  cupti_->unsubscribe(subscriber_);
  launches_.stop();
  count_dropped(nullptr, 0);
  active_ = nullptr;
  const std::scoped_lock lock(mutex_);
  if (!flushed) dropped_.reset();  // what CUPTI keeps is lost, and nobody knows how much it is
}

void CuptiSource::count_dropped(CUcontext context, std::uint32_t stream) {
  std::size_t count = 0;
  const bool known = cupti_->dropped(context, stream, &count) == CUPTI_SUCCESS;
  const std::scoped_lock lock(mutex_);
  if (!known) {
    dropped_.reset();
  } else if (dropped_) {
    *dropped_ += static_cast<std::int64_t>(count);
  }
}

void CuptiSource::on_request(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  *buffer = nullptr;
  *size = 0;
  *records = 0;  // as many as fit
  CuptiSource* const source = active_;
  if (source == nullptr) return;
  const std::scoped_lock lock(source->mutex_);
  if (source->buffers_.size() >= source->options_.buffers) return;  // CUPTI drops, and counts
  source->buffers_.push_back(
      {.memory = std::make_unique_for_overwrite<std::uint8_t[]>(source->options_.buffer_bytes)});
  *buffer = source->buffers_.back().memory.get();
  *size = source->options_.buffer_bytes;
}

void CuptiSource::on_complete(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                              std::size_t /*size*/, std::size_t valid) {
  CuptiSource* const source = active_;
  if (source == nullptr) return;
  {
    const std::scoped_lock lock(source->mutex_);
    for (Buffer& kept : source->buffers_) {
      if (kept.memory.get() != buffer) continue;
      kept.valid = valid;
      kept.returned = true;
    }
  }
  source->count_dropped(context, stream);
}

void CuptiSource::on_callback(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                              const void* data) {
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API || data == nullptr) return;
  static_cast<CuptiSource*>(user)->on_launch(id, *static_cast<const CUpti_CallbackData*>(data));
}

void CuptiSource::on_launch(CUpti_CallbackId id, const CUpti_CallbackData& data) {
  if (data.callbackSite == CUPTI_API_ENTER) {
    if (data.correlationData != nullptr) *data.correlationData = now();
    return;
  }
  if (data.functionReturnValue != nullptr &&
      *static_cast<const CUresult*>(data.functionReturnValue) != CUDA_SUCCESS) {
    return;
  }
  if (is_one_of(kGraphLaunches, id)) {
    graphs_ = true;
    return;
  }
  launched_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t end = trace_clock_ns();
  const auto start =
      data.correlationData != nullptr ? static_cast<std::int64_t>(*data.correlationData) : end;
  const std::int64_t n = is_one_of(kLaunches, id) ? n_of(id, data) : kNoValue;
  const RecordBuffer::Writer writer(launches_);
  if (!writer) return;
  if (std::byte* const room = writer.reserve(sizeof(LaunchRecord))) {
    new (room) LaunchRecord{.start_ns = start,
                            .end_ns = end,
                            .n = n,
                            .correlation = data.correlationId,
                            .callback = id};
  }
}

std::int64_t CuptiSource::n_of(CUpti_CallbackId id, const CUpti_CallbackData& data) {
  if (data.symbolName == nullptr || data.functionParams == nullptr) return kNoValue;
  const PlaceOfN* const place = place_of_n(data.symbolName);
  if (place == nullptr) return kNoValue;
  CUfunction function = nullptr;
  void** parameters = nullptr;
  std::int64_t grid = 0;
  if (id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx ||
      id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz) {
    const auto& call = *static_cast<const cuLaunchKernelEx_params*>(data.functionParams);
    if (call.config == nullptr) return kNoValue;
    function = call.f;
    parameters = call.kernelParams;
    grid = call.config->gridDimX;
  } else {
    const auto& call = *static_cast<const cuLaunchKernel_params*>(data.functionParams);
    function = call.f;
    parameters = call.kernelParams;
    grid = call.gridDimX;
  }
  const auto found = cupti_->parameter(function, place->ordinal);
  if (found && (found->bytes != place->bytes() || found->offset != place->offset)) {
    return kNoValue;  // another version of the kernel
  }
  return read_n(*place, parameters, grid).value_or(kNoValue);
}

template <typename Use>
void CuptiSource::for_each_record(const Use& use) {
  for (const Buffer& buffer : buffers_) {
    CUpti_Activity* record = nullptr;
    while (cupti_->next_record(buffer.memory.get(), buffer.valid, &record) == CUPTI_SUCCESS) {
      use(*record);
    }
  }
}

void CuptiSource::add_call(Trace& trace, std::uint32_t process, Calls& calls,
                           const CUpti_ActivityAPI& record, bool runtime) {
  const Event event{.start_ns = static_cast<std::int64_t>(record.start),
                    .end_ns = static_cast<std::int64_t>(record.end),
                    .correlation = record.correlationId,
                    .thread = record.threadId,
                    .name = trace.intern(cupti_->api_name(runtime, record.cbid)),
                    .process = process,
                    .kind = EventKind::api_call};
  const int preference = runtime ? 2 : 1;
  Call& call = calls[record.correlationId];
  if (call.preference < preference) call = {.event = event, .preference = preference};
}

void CuptiSource::add_activity(Trace& trace, std::uint32_t process, const Calls& calls,
                               const Sizes& sizes, const CUpti_Activity& record) {
  Event event{.process = process};
  const auto fill = [&event](const auto& activity) {
    event.start_ns = static_cast<std::int64_t>(activity.start);
    event.end_ns = static_cast<std::int64_t>(activity.end);
    event.correlation = activity.correlationId;
    event.stream = activity.streamId;
  };
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL: {
      const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
      fill(kernel);
      event.kind = EventKind::kernel;
      event.device = static_cast<std::int32_t>(kernel.deviceId);
      const std::string_view name = kernel.name != nullptr ? kernel.name : "";
      event.name = trace.intern(name);
      event.collective = collective_of_kernel(name);
      event.detail = trace.add_launch({.grid = {kernel.gridX, kernel.gridY, kernel.gridZ},
                                       .block = {kernel.blockX, kernel.blockY, kernel.blockZ},
                                       .static_shared_bytes = kernel.staticSharedMemory,
                                       .dynamic_shared_bytes = kernel.dynamicSharedMemory,
                                       .registers_per_thread = kernel.registersPerThread});
      if (const auto n = sizes.find(event.correlation); n != sizes.end()) {
        event.value = n->second;
        const PlaceOfN* const place = place_of_n(kernel.name == nullptr ? "" : kernel.name);
        const bool exact = place == nullptr || place->exact();
        event.value_source = exact ? ValueSource::exact : ValueSource::grid_bound;
      }
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record);
      fill(copy);
      event.kind = EventKind::copy;
      event.device = static_cast<std::int32_t>(copy.deviceId);
      event.value = static_cast<std::int64_t>(copy.bytes);
      event.direction = direction_of(copy.copyKind);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& set = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
      fill(set);
      event.kind = EventKind::set;
      event.device = static_cast<std::int32_t>(set.deviceId);
      event.value = static_cast<std::int64_t>(set.bytes);
      break;
    }
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
      fill(reinterpret_cast<const CUpti_ActivitySynchronization2&>(record));
      event.kind = EventKind::synchronization;
      break;
    }
    default:
      return;
  }
  const auto call = calls.find(event.correlation);
  if (call != calls.end()) event.thread = call->second.event.thread;
  trace.add(event);
}

void CuptiSource::deliver(Trace& trace, std::uint32_t process) {
  const std::scoped_lock lock(mutex_);
  Calls calls;
  Sizes sizes;
  launches_.for_each_chunk([&](std::uint64_t thread, std::span<std::byte> records) {
    for (; records.size() >= sizeof(LaunchRecord);
         records = records.subspan(sizeof(LaunchRecord))) {
      LaunchRecord launch{};
      std::memcpy(&launch, records.data(), sizeof launch);
      if (launch.n != kNoValue) sizes[launch.correlation] = launch.n;
      const std::string name =
          cupti_->api_name(false, static_cast<CUpti_CallbackId>(launch.callback));
      calls[launch.correlation] = {.event = {.start_ns = launch.start_ns,
                                             .end_ns = launch.end_ns,
                                             .correlation = launch.correlation,
                                             .thread = thread,
                                             .name = trace.intern(name),
                                             .process = process,
                                             .kind = EventKind::api_call},
                                   .preference = 3};
    }
  });
  for_each_record([&](const CUpti_Activity& record) {
    if (record.kind == CUPTI_ACTIVITY_KIND_RUNTIME || record.kind == CUPTI_ACTIVITY_KIND_DRIVER) {
      add_call(trace, process, calls, reinterpret_cast<const CUpti_ActivityAPI&>(record),
               record.kind == CUPTI_ACTIVITY_KIND_RUNTIME);
    }
  });
  for_each_record(
      [&](const CUpti_Activity& record) { add_activity(trace, process, calls, sizes, record); });
  for (const auto& [correlation, call] : calls) trace.add(call.event);
  for (Buffer& buffer : buffers_) {
    if (!buffer.returned) static_cast<void>(buffer.memory.release());  // CUPTI may still write
  }
  buffers_.clear();

  Process& lost = trace.process(process);
  lost.dropped = dropped_;
  if (!graphs_) lost.launched = launched_.load();
}

}  // namespace

std::unique_ptr<CaptureSource> make_cupti_source(std::unique_ptr<CuptiApi> cupti,
                                                 const CuptiOptions& options) {
  return std::make_unique<CuptiSource>(std::move(cupti), options);
}

}  // namespace stepscope::tracer
