#include "tracer/range.h"

#include "tracer/host_recorder.h"
#ifdef STEPSCOPE_WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace stepscope::tracer {
namespace {

#ifdef STEPSCOPE_WITH_NVTX
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("stepscope");
  return handle;
}

void nvtx_push(const std::string& name) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name.c_str();
  nvtxDomainRangePushEx(domain(), &attributes);
}

void nvtx_pop() { nvtxDomainRangePop(domain()); }
#else
// Built without NVTX's headers: only captures of our own see the range.
void nvtx_push(const std::string& /*name*/) {}
void nvtx_pop() {}
#endif

}  // namespace

Range::Range(const std::string& name) {
  nvtx_push(name);
  HostRecorder& recorder = HostRecorder::instance();
  if (recorder.recording()) {
    record_ = recorder.begin({.name = "stepscope:" + name}, epoch_);
  }
}

Range::~Range() {
  HostRecorder::instance().end(record_, epoch_);
  nvtx_pop();
}

}  // namespace stepscope::tracer
