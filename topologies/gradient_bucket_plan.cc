#include "topologies/gradient_bucket_plan.h"

namespace stepscope::topologies {
namespace {

// PyTorch's defaults.
constexpr std::int64_t kFirstBucketBytes = std::int64_t{1} << 20;
constexpr std::int64_t kBucketBytes = std::int64_t{25} << 20;

}  // namespace

std::vector<std::size_t> plan_gradient_buckets(std::span<const std::int64_t> bytes) {
  std::vector<std::size_t> buckets(bytes.size());
  std::size_t bucket = 0;
  std::int64_t filled = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    if (bytes[i] == 0) continue;
    if (filled >= (bucket == 0 ? kFirstBucketBytes : kBucketBytes)) {
      ++bucket;
      filled = 0;
    }
    buckets[i] = bucket;
    filled += bytes[i];
  }
  return buckets;
}

}  // namespace stepscope::topologies
