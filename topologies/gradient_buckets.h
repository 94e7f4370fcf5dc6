#pragma once

/// Purpose: ddp's reduction: gradients are laid into buckets in the reverse order of the
/// parameters (gradient_bucket_plan.h), and a bucket is all-reduced as soon as its gradients are
/// there, as PyTorch's DistributedDataParallel does by default.
///
/// Usage:
///     GradientBuckets buckets(numels, DType::fp32, at::kCPU, communicator);
///     buckets.put(tensor, gradient);           // for every tensor
///     buckets.take(tensor, destination);       // once all are in
///
/// Caveats: includes libtorch. Collective: every rank puts the same tensors in the same order.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "topologies/communicator.h"

namespace stepscope::topologies {

class GradientBuckets {
 public:
  /// `numels[i]` are the elements of tensor i; 0 for one without a gradient.
  GradientBuckets(std::vector<std::int64_t> numels, kernels::DType dtype, c10::Device device,
                  Communicator& communicator);

  /// Lays the mean's share of `gradient` into its bucket; an undefined gradient counts as zero. The
  /// last one of a bucket reduces it. Returns the elements that were reduced, 0 for none.
  std::int64_t put(std::size_t tensor, const at::Tensor& gradient);

  /// Writes the reduced gradient to `destination`.
  void take(std::size_t tensor, const at::Tensor& destination) const;

  /// Makes all buckets empty again. Throws Error where one was not filled.
  void reset();

 private:
  struct Bucket {
    std::int64_t numel = 0;
    std::size_t tensors = 0;
    std::size_t filled = 0;
    at::Tensor data;
  };
  struct Place {
    std::size_t bucket = 0;
    std::int64_t start = 0;
  };
  at::Tensor part(std::size_t tensor) const;

  std::vector<std::int64_t> numels_;
  std::vector<Place> places_;  ///< by tensor
  std::vector<Bucket> buckets_;
  kernels::DType dtype_;
  Communicator& communicator_;
};

}  // namespace stepscope::topologies
