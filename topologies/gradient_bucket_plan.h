#pragma once

/// Purpose: which gradients ddp reduces together: PyTorch's DistributedDataParallel fills buckets
/// in the reverse order of the parameters, the first to 1 MiB so that communication begins early,
/// the others to 25 MiB.
///
/// Usage:  const std::vector<std::size_t> bucket = plan_gradient_buckets(bytes_of_each_tensor);

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace stepscope::topologies {

/// The bucket of each tensor, numbered in the order in which they fill. `bytes[i]` are those of
/// tensor i's gradient; one of 0 bytes is in none, and its number means nothing.
std::vector<std::size_t> plan_gradient_buckets(std::span<const std::int64_t> bytes);

}  // namespace stepscope::topologies
