#include "tracer/cupti_library.h"

#include <dlfcn.h>

#include <string>

#include "core/error.h"

namespace stepscope::tracer {
namespace {

constexpr const char* kLibrary = "libcupti.so.13";

template <typename Function>
void look_up(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) {
    throw Error(std::string(kLibrary) + " has no function " + name, "install CUPTI of CUDA 13");
  }
}

class CuptiLibrary final : public CuptiApi {
 public:
  explicit CuptiLibrary(void* library) {
    look_up(library, "cuptiSubscribe", subscribe_);
    look_up(library, "cuptiUnsubscribe", unsubscribe_);
    look_up(library, "cuptiEnableCallback", enable_callback_);
    look_up(library, "cuptiActivityRegisterTimestampCallback", register_timestamp_);
    look_up(library, "cuptiSetThreadIdType", set_thread_id_type_);
    look_up(library, "cuptiActivityRegisterCallbacks", register_buffers_);
    look_up(library, "cuptiActivityEnable", enable_);
    look_up(library, "cuptiActivityDisable", disable_);
    look_up(library, "cuptiActivityFlushAll", flush_all_);
    look_up(library, "cuptiActivityGetNextRecord", next_record_);
    look_up(library, "cuptiActivityGetNumDroppedRecords", dropped_);
    look_up(library, "cuptiGetCallbackName", callback_name_);
    look_up(library, "cuptiGetResultString", result_string_);
  }

  CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                        void* user) override {
    return subscribe_(subscriber, callback, user);
  }
  CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber) override {
    return unsubscribe_(subscriber);
  }
  CUptiResult enable_callback(CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                              CUpti_CallbackId id) override {
    return enable_callback_(1, subscriber, domain, id);
  }
  CUptiResult register_timestamp(CUpti_TimestampCallbackFunc now) override {
    return register_timestamp_(now);
  }
  CUptiResult use_system_thread_ids() override {
    return set_thread_id_type_(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  }
  CUptiResult register_buffers(CUpti_BuffersCallbackRequestFunc request,
                               CUpti_BuffersCallbackCompleteFunc complete) override {
    return register_buffers_(request, complete);
  }
  CUptiResult enable(CUpti_ActivityKind kind) override { return enable_(kind); }
  CUptiResult disable(CUpti_ActivityKind kind) override { return disable_(kind); }
  CUptiResult flush() override { return flush_all_(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); }
  CUptiResult next_record(std::uint8_t* buffer, std::size_t valid,
                          CUpti_Activity** record) override {
    return next_record_(buffer, valid, record);
  }
  CUptiResult dropped(CUcontext context, std::uint32_t stream, std::size_t* count) override {
    return dropped_(context, stream, count);
  }
  std::string api_name(bool runtime, CUpti_CallbackId id) override {
    const char* name = nullptr;
    const auto domain = runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API;
    return callback_name_(domain, id, &name) == CUPTI_SUCCESS && name != nullptr ? name : "";
  }
  std::string describe(CUptiResult result) override {
    const char* text = nullptr;
    const std::string number = std::to_string(static_cast<int>(result));
    return result_string_(result, &text) == CUPTI_SUCCESS && text != nullptr
               ? std::string(text) + " (" + number + ")"
               : "error " + number;
  }
  std::optional<ParameterPlace> parameter(CUfunction function, std::size_t ordinal) override {
    // Launches come from the driver, so it is in the process by now.
    static const auto get = reinterpret_cast<decltype(&cuFuncGetParamInfo)>(
        dlsym(RTLD_DEFAULT, "cuFuncGetParamInfo") != nullptr
            ? dlsym(RTLD_DEFAULT, "cuFuncGetParamInfo")
            : driver_function("cuFuncGetParamInfo"));
    ParameterPlace place;
    if (get == nullptr || get(function, ordinal, &place.offset, &place.bytes) != CUDA_SUCCESS) {
      return std::nullopt;
    }
    return place;
  }

 private:
  /// The driver may be loaded where RTLD_DEFAULT does not look.
  static void* driver_function(const char* name) {
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    return driver != nullptr ? dlsym(driver, name) : nullptr;
  }

  decltype(cuptiSubscribe)* subscribe_ = nullptr;
  decltype(cuptiUnsubscribe)* unsubscribe_ = nullptr;
  decltype(cuptiEnableCallback)* enable_callback_ = nullptr;
  decltype(cuptiActivityRegisterTimestampCallback)* register_timestamp_ = nullptr;
  decltype(cuptiSetThreadIdType)* set_thread_id_type_ = nullptr;
  decltype(cuptiActivityRegisterCallbacks)* register_buffers_ = nullptr;
  decltype(cuptiActivityEnable)* enable_ = nullptr;
  decltype(cuptiActivityDisable)* disable_ = nullptr;
  decltype(cuptiActivityFlushAll)* flush_all_ = nullptr;
  decltype(cuptiActivityGetNextRecord)* next_record_ = nullptr;
  decltype(cuptiActivityGetNumDroppedRecords)* dropped_ = nullptr;
  decltype(cuptiGetCallbackName)* callback_name_ = nullptr;
  decltype(cuptiGetResultString)* result_string_ = nullptr;
};

}  // namespace

bool cuda_is_loaded() {
  void* const handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  dlclose(handle);  // counts alone: the process keeps its own
  return true;
}

std::unique_ptr<CuptiApi> load_cupti() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    throw Error("GPU activities cannot be recorded: " +
                    std::string(reason != nullptr ? reason : "CUPTI was not found"),
                "install CUPTI of CUDA 13 and name its folder in LD_LIBRARY_PATH");
  }
  return std::make_unique<CuptiLibrary>(library);
}

}  // namespace stepscope::tracer
