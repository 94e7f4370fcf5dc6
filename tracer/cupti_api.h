#pragma once

/// Purpose: the part of CUPTI that recording needs, behind virtual functions: the real one is
/// libcupti (cupti_library.h), tests play records and launches of their own.
///
/// Usage:  make_cupti_source(load_cupti())
///
/// Caveats: one function here is one of CUPTI's, with its arguments and results; nothing is decided
/// here.

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace stepscope::tracer {

/// Where a kernel has a parameter, in bytes.
struct ParameterPlace {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

class CuptiApi {
 public:
  virtual ~CuptiApi() = default;

  virtual CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                                void* user) = 0;
  virtual CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber) = 0;
  virtual CUptiResult enable_callback(CUpti_SubscriberHandle subscriber,
                                      CUpti_CallbackDomain domain, CUpti_CallbackId id) = 0;
  virtual CUptiResult register_timestamp(CUpti_TimestampCallbackFunc now) = 0;
  virtual CUptiResult use_system_thread_ids() = 0;
  virtual CUptiResult register_buffers(CUpti_BuffersCallbackRequestFunc request,
                                       CUpti_BuffersCallbackCompleteFunc complete) = 0;
  virtual CUptiResult enable(CUpti_ActivityKind kind) = 0;
  virtual CUptiResult disable(CUpti_ActivityKind kind) = 0;
  virtual CUptiResult flush() = 0;  ///< also buffers that are not full
  virtual CUptiResult next_record(std::uint8_t* buffer, std::size_t valid,
                                  CUpti_Activity** record) = 0;
  virtual CUptiResult dropped(CUcontext context, std::uint32_t stream, std::size_t* count) = 0;

  /// Of the driver's (`runtime` false) or the runtime's function; empty where it is not known.
  virtual std::string api_name(bool runtime, CUpti_CallbackId id) = 0;
  virtual std::string describe(CUptiResult result) = 0;

  /// cuFuncGetParamInfo; nothing where the driver has no such function or it fails.
  virtual std::optional<ParameterPlace> parameter(CUfunction function, std::size_t ordinal) = 0;
};

}  // namespace stepscope::tracer
