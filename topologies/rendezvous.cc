#include "topologies/rendezvous.h"

#include <cstdlib>
#include <limits>

#include "core/error.h"
#include "core/parse.h"

namespace stepscope::topologies {
namespace {

constexpr auto kMaxRanks = std::numeric_limits<std::int32_t>::max();

std::string require(const Environment& environment, const std::string& name) {
  auto value = environment(name);
  if (!value || value->empty()) {
    throw Error(
        name + " is not set",
        "start the ranks with torchrun (./bench.sh does), or set RANK, WORLD_SIZE, LOCAL_RANK, "
        "MASTER_ADDR and MASTER_PORT for every rank");
  }
  return *value;
}

std::string without_brackets(std::string host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    return host.substr(1, host.size() - 2);
  }
  return host;
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

Rendezvous rendezvous_from_environment(const Environment& environment) {
  Rendezvous result;
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
  result.master_addr = without_brackets(require(environment, "MASTER_ADDR"));
  result.master_port = static_cast<std::uint16_t>(
      parse_int("MASTER_PORT", require(environment, "MASTER_PORT"), 1, 65535));
  result.agent_store = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  if (const auto restart = environment("TORCHELASTIC_RESTART_COUNT")) {
    result.restart = parse_int("TORCHELASTIC_RESTART_COUNT", *restart, 0, kMaxRanks);
  }
  return result;
}

}  // namespace stepscope::topologies
