#pragma once

/// Purpose: the two compressed lists in which Slurm tells a task where its job runs: host lists
/// ("gpu[01-04],head") and task counts by node ("4(x2),3").
///
/// Usage:
///     first_host("SLURM_JOB_NODELIST", "gpu-[583,752]");            // "gpu-583"
///     tasks_on_node("SLURM_TASKS_PER_NODE", "4(x2),3", 2);          // 3
///
/// Caveats: the name of the variable is for the error alone.

#include <cstdint>
#include <string>
#include <string_view>

namespace stepscope::topologies {

/// The first host of a Slurm host list. Brackets hold numbers and ranges whose leading zeros are
/// part of the name; several brackets in one name are allowed (rack[0-1]node[0-3]). Throws Error
/// where the list is empty or not well-formed.
std::string first_host(const std::string& variable, std::string_view list);

/// Tasks on the node with this index, counted from 0. Throws Error where the list is not
/// well-formed or has no such node.
std::int64_t tasks_on_node(const std::string& variable, std::string_view list, std::int64_t node);

/// Sum over all nodes. Throws Error where the list is not well-formed or the sum exceeds 2^31 - 1.
std::int64_t total_tasks(const std::string& variable, std::string_view list);

}  // namespace stepscope::topologies
