#pragma once

/// Purpose: a CUPTI that plays records and launches which a test scripts, through the buffers and
/// callbacks of the real one.
///
/// Usage:
///     auto cupti = std::make_unique<FakeCupti>();
///     FakeCupti& script = *cupti;
///     Capture capture = ...make_cupti_source(std::move(cupti))...;
///     capture.start();
///     script.launch(...);  script.record(kernel);
///     const Trace trace = capture.stop();
///
/// Caveats: for one thread; a record goes to the buffer at once, as if it were flushed each time.

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tracer/cupti_api.h"

namespace stepscope::tracer {

class FakeCupti final : public CuptiApi {
 public:
  CUptiResult fail_subscribe = CUPTI_SUCCESS;
  CUptiResult fail_enable = CUPTI_SUCCESS;
  CUptiResult fail_dropped = CUPTI_SUCCESS;
  std::optional<ParameterPlace> place;
  int* alive = nullptr;  ///< counts subscriptions that were not ended

  CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                        void* user) override {
    if (fail_subscribe != CUPTI_SUCCESS) return fail_subscribe;
    *subscriber = nullptr;
    callback_ = callback;
    user_ = user;
    if (alive != nullptr) ++*alive;
    return CUPTI_SUCCESS;
  }
  CUptiResult unsubscribe(CUpti_SubscriberHandle /*subscriber*/) override {
    callback_ = nullptr;
    if (alive != nullptr) --*alive;
    return CUPTI_SUCCESS;
  }
  CUptiResult enable_callback(CUpti_SubscriberHandle /*subscriber*/,
                              CUpti_CallbackDomain /*domain*/, CUpti_CallbackId /*id*/) override {
    return CUPTI_SUCCESS;
  }
  CUptiResult register_timestamp(CUpti_TimestampCallbackFunc now) override {
    now_ = now;
    return CUPTI_SUCCESS;
  }
  CUptiResult use_system_thread_ids() override { return CUPTI_SUCCESS; }
  CUptiResult register_buffers(CUpti_BuffersCallbackRequestFunc request,
                               CUpti_BuffersCallbackCompleteFunc complete) override {
    request_ = request;
    complete_ = complete;
    return CUPTI_SUCCESS;
  }
  CUptiResult enable(CUpti_ActivityKind kind) override {
    return kind == CUPTI_ACTIVITY_KIND_DRIVER ? fail_enable : CUPTI_SUCCESS;
  }
  CUptiResult disable(CUpti_ActivityKind /*kind*/) override { return CUPTI_SUCCESS; }
  CUptiResult flush() override {
    hand_over();
    return CUPTI_SUCCESS;
  }
  CUptiResult next_record(std::uint8_t* buffer, std::size_t valid,
                          CUpti_Activity** record) override {
    std::size_t at = 0;
    if (*record != nullptr) {
      auto* const last = reinterpret_cast<std::uint8_t*>(*record);
      at = static_cast<std::size_t>(last - buffer) + sizes_.at(last);
    }
    if (at >= valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = reinterpret_cast<CUpti_Activity*>(buffer + at);
    return CUPTI_SUCCESS;
  }
  CUptiResult dropped(CUcontext /*context*/, std::uint32_t /*stream*/,
                      std::size_t* count) override {
    *count = lost_;
    lost_ = 0;
    return fail_dropped;
  }
  std::string api_name(bool runtime, CUpti_CallbackId id) override {
    if (runtime) return "cudaRuntime";
    return id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx ? "cuLaunchKernelEx" : "cuLaunchKernel";
  }
  std::string describe(CUptiResult result) override {
    return "error " + std::to_string(static_cast<int>(result));
  }
  std::optional<ParameterPlace> parameter(CUfunction /*function*/,
                                          std::size_t /*ordinal*/) override {
    return place;
  }

  // The script.

  std::int64_t now() const { return static_cast<std::int64_t>(now_()); }

  /// A record arrives; where there is no buffer for it, it is lost.
  template <typename Record>
  void record(const Record& record) {
    const std::size_t bytes = (sizeof record + 7) / 8 * 8;
    if (buffer_ != nullptr && used_ + bytes > size_) hand_over();
    if (buffer_ == nullptr) {
      std::size_t records = 0;
      request_(&buffer_, &size_, &records);
      used_ = 0;
    }
    if (buffer_ == nullptr) {
      ++lost_;
      return;
    }
    std::memcpy(buffer_ + used_, &record, sizeof record);
    sizes_[buffer_ + used_] = bytes;
    used_ += bytes;
  }

  /// The driver's callbacks around one call.
  void call(CUpti_CallbackId id, const char* symbol, std::uint32_t correlation,
            const void* parameters, CUresult result = CUDA_SUCCESS) {
    std::uint64_t kept = 0;
    CUpti_CallbackData data{};
    data.callbackSite = CUPTI_API_ENTER;
    data.functionParams = parameters;
    data.symbolName = symbol;
    data.correlationData = &kept;
    data.correlationId = correlation;
    callback_(user_, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
    data.callbackSite = CUPTI_API_EXIT;
    data.functionReturnValue = &result;
    callback_(user_, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
  }

 private:
  void hand_over() {
    if (buffer_ != nullptr) complete_(nullptr, 0, buffer_, size_, used_);
    buffer_ = nullptr;
  }

  CUpti_CallbackFunc callback_ = nullptr;
  void* user_ = nullptr;
  CUpti_TimestampCallbackFunc now_ = nullptr;
  CUpti_BuffersCallbackRequestFunc request_ = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete_ = nullptr;
  std::map<const std::uint8_t*, std::size_t> sizes_;
  std::uint8_t* buffer_ = nullptr;
  std::size_t size_ = 0;
  std::size_t used_ = 0;
  std::size_t lost_ = 0;
};

}  // namespace stepscope::tracer
