#pragma once

/// Purpose: an update of this project's own optimizers as an operator of libtorch, so that whoever
/// records operators (PyTorch's profiler, the tracer) sees the n of every tensor that is stepped.
///
/// Usage:
///     const RecordedUpdate report(Optimizer::AdamW8bit, params);   // until the update is enqueued
///
/// Caveats: includes libtorch. Where nobody records it costs some nanoseconds.

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <vector>

#include "topologies/optimizer.h"

namespace stepscope::topologies {

class RecordedUpdate {
 public:
  /// The operator "stepscope::<optimizer>_step" over `params`, tensors that must outlive this.
  /// Nothing is reported where there are none.
  RecordedUpdate(Optimizer optimizer, const std::vector<c10::IValue>& params);

 private:
  at::RecordFunction report_;
};

}  // namespace stepscope::topologies
