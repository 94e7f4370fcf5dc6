#pragma once

/// Purpose: which names stand for a collective: NCCL's kernels and NVTX ranges, c10d's operators
/// and the scopes that its Gloo and NCCL back ends open.
///
/// Usage:  if (collective_of_kernel(name) == CollectiveKind::all_gather) ...
///
/// Caveats: names are all that a trace has. A collective that somebody wrote as a plain kernel is
/// not seen.

#include <string_view>

#include "tracer/event.h"

namespace stepscope::tracer {

/// Of a device kernel, such as "ncclDevKernel_AllGather_RING_LL(...)". NCCL kernels of an unknown
/// job are CollectiveKind::other.
CollectiveKind collective_of_kernel(std::string_view name);

/// Of an operator or a range on the host, such as "gloo:all_gather", "nccl:_all_gather_base",
/// "c10d::allgather_", "_c10d_functional::all_reduce" or NCCL's own range "NCCL:ncclAllGather".
CollectiveKind collective_of_host(std::string_view name);

}  // namespace stepscope::tracer
