#pragma once

/// Purpose: which task of which Slurm step this process is, from the variables that srun sets.
///
/// Usage:  if (const auto task = slurm_task(environment)) ...
///
/// Caveats: a batch script is not a task: Slurm sets SLURM_PROCID there, too, but no SLURM_STEP_ID.
/// Variables of the step win over those of the job, which may be larger.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace stepscope::topologies {

/// Looks a variable up; std::nullopt when it is not set. Tests hand in their own.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

struct SlurmTask {
  std::int64_t rank = 0;        ///< SLURM_PROCID
  std::int64_t tasks = 1;       ///< of the step
  std::int64_t local_rank = 0;  ///< SLURM_LOCALID
  std::int64_t tasks_on_node = 1;
  std::int64_t nodes = 1;      ///< of the step
  std::string tasks_variable;  ///< where `tasks` came from, for messages
  std::string first_node;      ///< of the step: where rank 0 runs
  std::uint16_t port = 0;      ///< same for all tasks of the step, see slurm_task.cc
};

/// Nothing outside Slurm. Throws Error naming the variables where this is a batch script of several
/// tasks that were not started with srun, and where a variable is missing, malformed, or
/// contradicts another.
std::optional<SlurmTask> slurm_task(const Environment& environment);

}  // namespace stepscope::topologies
