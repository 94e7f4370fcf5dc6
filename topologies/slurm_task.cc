#include "topologies/slurm_task.h"

#include <initializer_list>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/parse.h"
#include "topologies/slurm_lists.h"

namespace stepscope::topologies {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostJobs = std::int64_t{1} << 40;
const char* const kAdvice = "start the ranks with srun, which sets it";

/// Below the ports that Linux hands out by itself (32768 and up).
constexpr std::int64_t kFirstPort = 10'000;
constexpr std::int64_t kPorts = 20'000;

struct Variable {
  std::string name;
  std::string value;
};

/// The first of `names` that is set.
std::optional<Variable> first_of(const Environment& environment,
                                 std::initializer_list<const char*> names) {
  for (const char* name : names) {
    auto value = environment(name);
    if (value && !value->empty()) return Variable{name, std::move(*value)};
  }
  return std::nullopt;
}

Variable require(const Environment& environment, std::initializer_list<const char*> names) {
  auto variable = first_of(environment, names);
  if (!variable) {
    throw Error(std::string(*names.begin()) + " is not set although SLURM_PROCID is", kAdvice);
  }
  return *variable;
}

std::int64_t number(const Variable& variable, std::int64_t low, std::int64_t high) {
  return parse_int(variable.name, variable.value, low, high);
}

void require_below(const std::string& name, std::int64_t value, const std::string& limit_name,
                   std::int64_t limit) {
  if (value < limit) return;
  throw Error(
      name + " is " + std::to_string(value) + " and " + limit_name + " is " + std::to_string(limit),
      name + " counts from 0 and must be below " + limit_name);
}

/// The port that Slurm reserved for the step (srun --resv-ports), else one that follows from the
/// ids of job and step, so that all tasks find the same one and two steps seldom do.
std::uint16_t step_port(const Environment& environment) {
  if (const auto reserved = first_of(environment, {"SLURM_STEP_RESV_PORTS"})) {
    const Variable first{reserved->name,
                         reserved->value.substr(0, reserved->value.find_first_of("-,"))};
    return static_cast<std::uint16_t>(number(first, 1, 65535));
  }
  const auto job = number(require(environment, {"SLURM_JOB_ID", "SLURM_JOBID"}), 0, kMostJobs);
  const auto step = number(require(environment, {"SLURM_STEP_ID", "SLURM_STEPID"}), 0, kMostJobs);
  return static_cast<std::uint16_t>(kFirstPort + (job * 101 + step) % kPorts);
}

}  // namespace

std::optional<SlurmTask> slurm_task(const Environment& environment) {
  const auto rank = first_of(environment, {"SLURM_PROCID"});
  if (!rank) return std::nullopt;
  SlurmTask task;
  if (!first_of(environment, {"SLURM_STEP_ID", "SLURM_STEPID"})) {
    const auto tasks = first_of(environment, {"SLURM_NTASKS", "SLURM_NPROCS"});
    if (tasks && number(*tasks, 1, kMost) > 1) {
      throw Error(
          "SLURM_PROCID is " + rank->value + " and " + tasks->name + " is " + tasks->value +
              ", but SLURM_STEP_ID is not set: this is the batch script, not one of its tasks",
          "start the ranks with srun");
    }
    return std::nullopt;
  }
  task.rank = number(*rank, 0, kMost);
  const auto tasks = require(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  task.tasks = number(tasks, 1, kMost);
  task.tasks_variable = tasks.name;
  require_below(rank->name, task.rank, tasks.name, task.tasks);
  task.local_rank = number(require(environment, {"SLURM_LOCALID"}), 0, kMost);
  const auto node = number(require(environment, {"SLURM_NODEID"}), 0, kMost);
  const auto by_node = require(environment, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  const auto total = total_tasks(by_node.name, by_node.value);
  if (total != task.tasks) {
    throw Error(by_node.name + " is " + by_node.value + ", which is " + std::to_string(total) +
                    " task(s), and " + tasks.name + " is " + tasks.value,
                "unset the one that was set by hand");
  }
  task.tasks_on_node = topologies::tasks_on_node(by_node.name, by_node.value, node);
  require_below("SLURM_LOCALID", task.local_rank, by_node.name, task.tasks_on_node);
  if (const auto nodes =
          first_of(environment, {"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"})) {
    task.nodes = number(*nodes, 1, kMost);
    require_below("SLURM_NODEID", node, nodes->name, task.nodes);
  }
  const auto list =
      require(environment, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  task.first_node = first_host(list.name, list.value);
  task.port = step_port(environment);
  return task;
}

}  // namespace stepscope::topologies
