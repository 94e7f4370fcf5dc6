#pragma once

/// Purpose: what a scripted CUPTI (fake_cupti.h) plays for launches and copies as the real one
/// reports them, and the trace that comes of it.
///
/// Usage:
///     const Trace trace = recorded([](FakeCupti& cupti) { step(cupti, 11, 10'000); });
///
/// Caveats: correlations are the script's to choose, each once.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/tracer/fake_cupti.h"
#include "tracer/capture.h"
#include "tracer/cupti_source.h"
#include "tracer/range.h"
#include "tracer/record_buffer.h"

namespace stepscope::tracer {

inline constexpr const char* kUpdate =
    "_Z35kOptimizerStatic8bit2StateBlockwiseIfLi0ELi256ELi1EEvPT_S1_";

inline Capture capture_of(std::unique_ptr<CuptiApi> cupti, const CuptiOptions& options = {}) {
  std::vector<std::unique_ptr<CaptureSource>> sources;
  sources.push_back(make_cupti_source(std::move(cupti), options));
  return {{.rank = 0, .world_size = 1}, std::move(sources)};
}

/// The parameters of a launch, of which one holds n.
struct Parameters {
  explicit Parameters(std::int32_t elements, std::size_t ordinal = 18) : n(elements) {
    pointers.fill(&other);
    pointers[ordinal] = &n;
  }
  std::int32_t n;
  std::int64_t other = -7;
  std::array<void*, 20> pointers{};
};

/// The callbacks around a launch of kUpdate over `n` elements.
inline void launch(FakeCupti& cupti, std::uint32_t correlation, std::int32_t n, unsigned grid,
                   CUresult result = CUDA_SUCCESS) {
  Parameters parameters(n);
  cuLaunchKernel_params call{};
  call.gridDimX = grid;
  call.kernelParams = parameters.pointers.data();
  cupti.call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, kUpdate, correlation, &call, result);
}

/// The record of a kernel, not yet delivered.
inline CUpti_ActivityKernel10 kernel(const FakeCupti& cupti, std::uint32_t correlation, int grid) {
  CUpti_ActivityKernel10 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.start = static_cast<std::uint64_t>(cupti.now());
  record.end = record.start + 10'000;
  record.correlationId = correlation;
  record.streamId = 7;
  record.name = kUpdate;
  record.gridX = grid;
  record.gridY = record.gridZ = record.blockY = record.blockZ = 1;
  record.blockX = 256;
  return record;
}

/// A launch of kUpdate over `n` elements, and its kernel.
inline void step(FakeCupti& cupti, std::uint32_t correlation, std::int32_t n) {
  const int grid = (n + 255) / 256;
  launch(cupti, correlation, n, static_cast<unsigned>(grid));
  cupti.record(kernel(cupti, correlation, grid));
}

/// A launch of any other kernel of one block, and its kernel. `name` must outlive the capture.
inline void other_kernel(FakeCupti& cupti, std::uint32_t correlation, const char* name) {
  cuLaunchKernel_params call{};
  call.gridDimX = 1;
  cupti.call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, name, correlation, &call);
  CUpti_ActivityKernel10 record = kernel(cupti, correlation, 1);
  record.name = name;
  cupti.record(record);
}

/// A copy of `bytes` bytes, delivered before its calls: the driver's and, around it, the runtime's.
inline void copy(FakeCupti& cupti, std::uint32_t correlation, CUpti_ActivityMemcpyKind direction,
                 std::uint64_t bytes) {
  CUpti_ActivityAPI call{};
  call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  call.start = static_cast<std::uint64_t>(cupti.now());
  call.end = call.start + 100;
  call.threadId = static_cast<std::uint32_t>(thread_number());
  call.correlationId = correlation;
  CUpti_ActivityAPI driver = call;
  driver.kind = CUPTI_ACTIVITY_KIND_DRIVER;
  CUpti_ActivityMemcpy6 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  record.copyKind = static_cast<std::uint8_t>(direction);
  record.bytes = bytes;
  record.start = call.start + 50;
  record.end = record.start + 1000;
  record.correlationId = correlation;
  cupti.record(record);
  cupti.record(driver);
  cupti.record(call);
}

/// What a capture holds after `script` in a step of its own.
inline Trace recorded(const std::function<void(FakeCupti&)>& script,
                      const CuptiOptions& options = {}) {
  auto cupti = std::make_unique<FakeCupti>();
  FakeCupti& fake = *cupti;
  Capture capture = capture_of(std::move(cupti), options);
  capture.start();
  {
    const Range range("step 0");
    script(fake);
  }
  return capture.stop();
}

}  // namespace stepscope::tracer
