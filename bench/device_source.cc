#include "bench/device_source.h"

#ifdef STEPSCOPE_WITH_CUPTI
#include "tracer/cupti_library.h"
#include "tracer/cupti_source.h"
#else
#include "core/error.h"
#endif

namespace stepscope::bench {
namespace {

std::unique_ptr<tracer::CaptureSource> make_cuda_source() {
#ifdef STEPSCOPE_WITH_CUPTI
  return tracer::make_cupti_source(tracer::load_cupti());
#else
  throw Error("GPU activities cannot be recorded: this build has no CUPTI",
              "configure where the headers of CUDA 13's CUPTI are found (cmake/setup.sh)");
#endif
}

}  // namespace

DeviceSource device_source(topologies::Device device) {
  return device == topologies::Device::cuda ? DeviceSource(make_cuda_source) : DeviceSource();
}

}  // namespace stepscope::bench
