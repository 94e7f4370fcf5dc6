#include "topologies/gradient_buckets.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <utility>

#include "core/error.h"
#include "topologies/gradient_bucket_plan.h"
#include "topologies/torch_types.h"

namespace stepscope::topologies {
GradientBuckets::GradientBuckets(std::vector<std::int64_t> numels, kernels::DType dtype,
                                 c10::Device device, Communicator& communicator)
    : numels_(std::move(numels)),
      places_(numels_.size()),
      dtype_(dtype),
      communicator_(communicator) {
  std::vector<std::int64_t> bytes;
  for (const std::int64_t numel : numels_) bytes.push_back(numel * kernels::element_bytes(dtype));
  const std::vector<std::size_t> bucket_of = plan_gradient_buckets(bytes);
  for (std::size_t i = numels_.size(); i-- > 0;) {
    if (numels_[i] == 0) continue;
    if (bucket_of[i] >= buckets_.size()) buckets_.resize(bucket_of[i] + 1);
    Bucket& bucket = buckets_[bucket_of[i]];
    places_[i] = {bucket_of[i], bucket.numel};
    bucket.numel += numels_[i];
    ++bucket.tensors;
  }
  for (Bucket& bucket : buckets_) {
    bucket.data =
        at::empty({bucket.numel}, at::TensorOptions().dtype(scalar_type(dtype)).device(device));
  }
}

std::int64_t GradientBuckets::put(std::size_t tensor, const at::Tensor& gradient) {
  if (numels_[tensor] == 0) return 0;
  Bucket& bucket = buckets_[places_[tensor].bucket];
  const auto place = part(tensor);
  const double share = 1.0 / static_cast<double>(communicator_.world_size());
  if (gradient.defined()) {
    place.copy_(at::mul(gradient.reshape(-1), share));
  } else {
    place.zero_();
  }
  if (++bucket.filled < bucket.tensors || communicator_.world_size() == 1) return 0;
  communicator_.all_reduce(dtype_, Reduction::sum, bucket.data.data_ptr(), bucket.numel);
  return bucket.numel;
}

void GradientBuckets::take(std::size_t tensor, const at::Tensor& destination) const {
  destination.copy_(part(tensor));
}

void GradientBuckets::reset() {
  for (Bucket& bucket : buckets_) {
    if (bucket.filled != bucket.tensors) {
      throw Error(std::to_string(bucket.tensors - bucket.filled) + " gradients of " +
                  std::to_string(bucket.tensors) + " in a bucket were not put into it");
    }
    bucket.filled = 0;
  }
}

at::Tensor GradientBuckets::part(std::size_t tensor) const {
  const Place& place = places_[tensor];
  return buckets_[place.bucket].data.narrow(0, place.start, numels_[tensor]);
}

}  // namespace stepscope::topologies
