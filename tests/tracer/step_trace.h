#pragma once

/// Purpose: traces of optimizer steps as the sources deliver them, made to measure: a rank on a GPU
/// (API calls, kernels, correlation) and a rank on a CPU (operators with their inputs).
///
/// Usage:
///     StepTrace builder;
///     const auto rank = builder.gpu_rank(0, 2);
///     builder.begin_step(rank);
///     builder.update(rank, 4096);
///     builder.end_step(rank);
///     Trace& trace = builder.finish();

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tracer/trace.h"

namespace stepscope::tracer {

inline constexpr const char* kUpdateKernel =
    "void kOptimizerStatic8bit2StateBlockwise<float, 0, 256, 1>(float*, float*)";
inline constexpr const char* kUpdateOperator = "bitsandbytes::optimizer_update_8bit_blockwise";

class StepTrace {
 public:
  std::uint32_t gpu_rank(std::int64_t rank, std::int64_t world_size) {
    return add_rank({.rank = rank, .world_size = world_size, .source = "cupti", .dropped = 0});
  }
  std::uint32_t cpu_rank(std::int64_t rank, std::int64_t world_size) {
    return add_rank(
        {.rank = rank, .world_size = world_size, .source = "record-function", .host_dropped = 0});
  }

  void begin_step(std::uint32_t rank) { starts_[rank] = now_; }
  void end_step(std::uint32_t rank) {
    trace_.add({.start_ns = starts_[rank],
                .end_ns = now_ += 10,
                .thread = 7,
                .name = trace_.intern("stepscope:step " + std::to_string(steps_[rank]++)),
                .process = rank,
                .kind = EventKind::range});
    now_ += 10;
  }

  /// A range around what `body` adds.
  template <typename Body>
  void in_range(std::uint32_t rank, const std::string& name, const Body& body) {
    const std::int64_t start = now_ += 10;
    body();
    trace_.add({.start_ns = start,
                .end_ns = now_ += 10,
                .thread = 7,
                .name = trace_.intern(name),
                .process = rank,
                .kind = EventKind::range});
  }

  /// An API call of the rank's thread; returns its correlation.
  std::uint64_t call(std::uint32_t rank, const std::string& name, std::uint64_t thread = 7) {
    now_ += 10;
    trace_.add({.start_ns = now_,
                .end_ns = now_ + 5,
                .correlation = ++correlation_,
                .thread = thread,
                .name = trace_.intern(name),
                .process = rank,
                .kind = EventKind::api_call});
    now_ += 5;
    return correlation_;
  }

  /// A kernel on stream 13. It runs late: after the step that launched it, where that is short.
  Event kernel(std::uint32_t rank, const std::string& name, std::uint64_t correlation) {
    device_ += 100;
    return {.start_ns = now_ + device_,
            .end_ns = now_ + device_ + 50,
            .correlation = correlation,
            .stream = 13,
            .name = trace_.intern(name),
            .device = static_cast<std::int32_t>(rank),
            .process = rank,
            .kind = EventKind::kernel};
  }

  void launch(std::uint32_t rank, const std::string& name) {
    trace_.add(kernel(rank, name, call(rank, "cudaLaunchKernel_v7000")));
    count_launch(rank);
  }

  /// A launch of bitsandbytes' 8-bit kernel over `n` elements, n known from its parameters.
  void update(std::uint32_t rank, std::int64_t n) {
    Event event = kernel(rank, kUpdateKernel, call(rank, "cudaLaunchKernel_v7000"));
    event.value = n;
    event.value_source = ValueSource::exact;
    trace_.add(event);
    count_launch(rank);
  }

  /// The same where only the grid is known.
  void bounded_update(std::uint32_t rank, std::int64_t n) {
    Event event = kernel(rank, kUpdateKernel, call(rank, "cudaLaunchKernel_v7000"));
    event.detail = trace_.add_launch({.grid = {(n + 255) / 256, 1, 1}, .block = {256, 1, 1}});
    event.value_source = ValueSource::grid_bound;
    trace_.add(event);
    count_launch(rank);
  }

  void copy(std::uint32_t rank, CopyDirection direction, std::int64_t bytes) {
    Event event = kernel(rank, "Memcpy", call(rank, "cudaMemcpyAsync_v3020"));
    event.kind = EventKind::copy;
    event.direction = direction;
    event.value = bytes;
    trace_.add(event);
  }

  /// An operator or a scope on the host, with one tensor an argument.
  Event operation(std::uint32_t rank, const std::string& name,
                  const std::vector<TensorInput>& inputs, std::uint64_t thread = 7) {
    now_ += 10;
    Event event{.start_ns = now_,
                .end_ns = now_ + 5,
                .thread = thread,
                .name = trace_.intern(name),
                .process = rank,
                .kind = EventKind::host_operator};
    if (!inputs.empty()) event.detail = trace_.add_inputs(inputs);
    now_ += 5;
    trace_.add(event);
    return event;
  }

  /// bitsandbytes' operator: gradient and parameter stand behind the optimizer's name.
  void update_operator(std::uint32_t rank, std::int64_t n) {
    operation(rank, kUpdateOperator,
              {{.shape = {n}, .argument = 1},
               {.shape = {n}, .argument = 2},
               {.shape = {n}, .argument = 3},
               {.shape = {256}, .argument = 12}});
  }

  void count_launch(std::uint32_t rank) { ++launched_[rank]; }

  Trace& trace() { return trace_; }
  std::int64_t now() const { return now_; }

  /// Tells each GPU rank how many launches were counted, and sorts.
  Trace& finish() {
    for (std::uint32_t i = 0; i < launched_.size(); ++i) {
      if (trace_.process(i).dropped) trace_.process(i).launched = launched_[i];
    }
    trace_.finish();
    return trace_;
  }

 private:
  std::uint32_t add_rank(Process process) {
    starts_.push_back(0);
    steps_.push_back(0);
    launched_.push_back(0);
    return trace_.add_process(std::move(process));
  }

  Trace trace_;
  std::int64_t now_ = 1'000;
  std::int64_t device_ = 0;
  std::uint64_t correlation_ = 0;
  std::vector<std::int64_t> starts_, steps_, launched_;
};

}  // namespace stepscope::tracer
