#include "tracer/collective_names.h"

#include <array>
#include <string>
#include <utility>

namespace stepscope::tracer {
namespace {

constexpr std::array<std::string_view, 4> kKernelPrefixes = {
    "ncclDevKernel_", "ncclKernel_", "ncclSymkDevKernel_", "ncclSymDevKernel_"};

constexpr std::array<std::string_view, 9> kHostPrefixes = {"gloo:",
                                                           "nccl:",
                                                           "ucc:",
                                                           "mpi:",
                                                           "xccl:",
                                                           "c10d::",
                                                           "_c10d_functional::",
                                                           "c10d_functional::",
                                                           "NCCL:nccl"};

/// By the beginning of the name in lower case without underscores. The longer come first.
constexpr std::array<std::pair<std::string_view, CollectiveKind>, 15> kJobs = {{
    {"allgather", CollectiveKind::all_gather},
    {"reducescatter", CollectiveKind::reduce_scatter},
    {"allreduce", CollectiveKind::all_reduce},
    {"sparseallreduce", CollectiveKind::all_reduce},
    {"alltoall", CollectiveKind::all_to_all},
    {"broadcast", CollectiveKind::broadcast},
    {"bcast", CollectiveKind::broadcast},
    {"barrier", CollectiveKind::barrier},
    {"monitoredbarrier", CollectiveKind::barrier},
    {"send", CollectiveKind::send_receive},
    {"recv", CollectiveKind::send_receive},
    {"reduce", CollectiveKind::other},
    {"gather", CollectiveKind::other},
    {"scatter", CollectiveKind::other},
    {"coalesced", CollectiveKind::other},
}};

CollectiveKind job(std::string_view text) {
  constexpr std::size_t kLongest = 24;
  std::string word;
  for (const char letter : text) {
    if (word.size() == kLongest) break;
    if (letter == '_') continue;
    word += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  for (const auto& [beginning, kind] : kJobs) {
    if (word.starts_with(beginning)) return kind;
  }
  return CollectiveKind::none;
}

}  // namespace

CollectiveKind collective_of_kernel(std::string_view name) {
  for (const std::string_view prefix : kKernelPrefixes) {
    if (!name.starts_with(prefix)) continue;
    const CollectiveKind kind = job(name.substr(prefix.size()));
    return kind == CollectiveKind::none ? CollectiveKind::other : kind;
  }
  return CollectiveKind::none;
}

CollectiveKind collective_of_host(std::string_view name) {
  for (const std::string_view prefix : kHostPrefixes) {
    if (name.starts_with(prefix)) return job(name.substr(prefix.size()));
  }
  return CollectiveKind::none;
}

}  // namespace stepscope::tracer
