#include "topologies/rendezvous.h"

#include <cstdlib>
#include <limits>

#include "core/error.h"
#include "core/parse.h"
#include "topologies/host_address.h"

namespace stepscope::topologies {
namespace {

constexpr auto kMaxRanks = std::numeric_limits<std::int32_t>::max();

bool is_set(const Environment& environment, const std::string& name) {
  return !environment(name).value_or("").empty();
}

std::string require(const Environment& environment, const std::string& name) {
  auto value = environment(name);
  if (!value || value->empty()) {
    throw Error(name + " is not set",
                "start the ranks with torchrun (./bench.sh does) or srun, or set RANK, WORLD_SIZE, "
                "LOCAL_RANK, MASTER_ADDR and MASTER_PORT for every rank");
  }
  return *value;
}

[[noreturn]] void contradiction(const std::string& one, const std::string& one_value,
                                const std::string& other, const std::string& other_value) {
  throw Error(one + " is " + one_value + " and " + other + " is " + other_value,
              "unset the one that is wrong");
}

void require_below(const std::string& name, std::int64_t value, const std::string& limit_name,
                   std::int64_t limit) {
  if (value < limit) return;
  throw Error(
      name + " is " + std::to_string(value) + " and " + limit_name + " is " + std::to_string(limit),
      name + " counts from 0 and must be below " + limit_name);
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

namespace {

std::uint16_t parse_port(const std::string& text) {
  return static_cast<std::uint16_t>(parse_int("MASTER_PORT", text, 1, 65535));
}

/// Where the ranks meet: MASTER_ADDR, which may carry a port, and MASTER_PORT.
void read_meeting_point(const Environment& environment, Rendezvous& result) {
  const auto address = parse_host_address("MASTER_ADDR", require(environment, "MASTER_ADDR"));
  result.master_addr = address.host;
  if (!address.port || is_set(environment, "MASTER_PORT")) {
    result.master_port = parse_port(require(environment, "MASTER_PORT"));
  }
  if (!address.port) return;
  if (result.master_port != 0 && result.master_port != *address.port) {
    contradiction("MASTER_ADDR's port", std::to_string(*address.port), "MASTER_PORT",
                  std::to_string(result.master_port));
  }
  result.master_port = *address.port;
}

Rendezvous from_slurm(const Environment& environment, const SlurmTask& task,
                      const NodeAddress& node_address) {
  Rendezvous result;
  result.launcher = "slurm";
  result.rank = task.rank;
  result.world_size = task.tasks;
  result.local_rank = task.local_rank;
  result.local_world_size = task.tasks_on_node;
  const auto with_defaults = [&](const std::string& name) -> std::optional<std::string> {
    if (is_set(environment, name)) return environment(name);
    if (name == "MASTER_PORT") return std::to_string(task.port);
    // Ranks of one host need no network, and the host's name may not resolve.
    if (name == "MASTER_ADDR" && task.nodes == 1) return "127.0.0.1";
    if (name == "MASTER_ADDR") return node_address(task.first_node);
    return std::nullopt;
  };
  const auto address = parse_host_address("MASTER_ADDR", *with_defaults("MASTER_ADDR"));
  const bool port_is_given = is_set(environment, "MASTER_PORT");
  read_meeting_point(address.port && !port_is_given ? environment : with_defaults, result);
  return result;
}

/// Where ranks are set by hand inside a Slurm step, they must be those of the step: one RANK for
/// all tasks, set in the job script, is a mistake that would otherwise wait for ranks that never
/// come.
void check_against_step(const Environment& environment, const SlurmTask& task, Rendezvous& result) {
  if (task.tasks == 1) return;
  if (result.rank != task.rank) {
    contradiction("RANK", std::to_string(result.rank), "SLURM_PROCID", std::to_string(task.rank));
  }
  if (result.world_size != task.tasks) {
    contradiction("WORLD_SIZE", std::to_string(result.world_size), task.tasks_variable,
                  std::to_string(task.tasks));
  }
  if (!is_set(environment, "LOCAL_WORLD_SIZE")) result.local_world_size = task.tasks_on_node;
}

Rendezvous from_variables(const Environment& environment) {
  Rendezvous result;
  result.launcher = is_set(environment, "TORCHELASTIC_RUN_ID") ? "torchrun" : "environment";
  result.rank = parse_int("RANK", require(environment, "RANK"), 0, kMaxRanks);
  result.world_size = parse_int("WORLD_SIZE", require(environment, "WORLD_SIZE"), 1, kMaxRanks);
  require_below("RANK", result.rank, "WORLD_SIZE", result.world_size);
  result.local_rank = parse_int("LOCAL_RANK", require(environment, "LOCAL_RANK"), 0, kMaxRanks);
  if (const auto local_world_size = environment("LOCAL_WORLD_SIZE")) {
    result.local_world_size = parse_int("LOCAL_WORLD_SIZE", *local_world_size, 1, kMaxRanks);
    if (result.local_world_size > result.world_size) {
      throw Error("LOCAL_WORLD_SIZE is " + std::to_string(result.local_world_size) +
                      " and WORLD_SIZE is " + std::to_string(result.world_size),
                  "a host cannot hold more ranks than the job");
    }
    require_below("LOCAL_RANK", result.local_rank, "LOCAL_WORLD_SIZE", result.local_world_size);
  } else {
    result.local_world_size = result.world_size;
    require_below("LOCAL_RANK", result.local_rank, "WORLD_SIZE", result.world_size);
  }
  read_meeting_point(environment, result);
  result.agent_store = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  if (const auto restart = environment("TORCHELASTIC_RESTART_COUNT")) {
    result.restart = parse_int("TORCHELASTIC_RESTART_COUNT", *restart, 0, kMaxRanks);
  }
  return result;
}

}  // namespace

Rendezvous rendezvous_from_environment(const Environment& environment,
                                       const NodeAddress& node_address) {
  const bool told = is_set(environment, "RANK") || is_set(environment, "WORLD_SIZE") ||
                    is_set(environment, "LOCAL_RANK");
  if (!told) {
    const auto task = slurm_task(environment);
    if (task) return from_slurm(environment, *task, node_address);
    return from_variables(environment);  // names what is missing
  }
  Rendezvous result = from_variables(environment);
  // torchrun's ranks are not Slurm's tasks (srun starts one torchrun a node), nor are those that a
  // batch script starts by itself.
  if (result.launcher == "torchrun" || !is_set(environment, "SLURM_STEP_ID")) return result;
  if (const auto task = slurm_task(environment)) check_against_step(environment, *task, result);
  return result;
}

}  // namespace stepscope::topologies
