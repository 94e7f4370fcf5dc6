#include "topologies/rendezvous.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"

namespace stepscope::topologies {
namespace {

using Variables = std::map<std::string, std::string>;

Variables torchrun_variables() {
  return {{"RANK", "3"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node-a"},
          {"MASTER_PORT", "29501"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_RESTART_COUNT", "2"}};
}

Rendezvous read(const Variables& variables) {
  return rendezvous_from_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string failure(const Variables& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Rendezvous, TakesWhatTorchrunSets) {
  const Rendezvous rendezvous = read(torchrun_variables());
  EXPECT_EQ(rendezvous.rank, 3);
  EXPECT_EQ(rendezvous.world_size, 8);
  EXPECT_EQ(rendezvous.local_rank, 1);
  EXPECT_EQ(rendezvous.local_world_size, 2);
  EXPECT_EQ(rendezvous.master_addr, "node-a");
  EXPECT_EQ(rendezvous.master_port, 29501);
  EXPECT_TRUE(rendezvous.agent_store);
  EXPECT_EQ(rendezvous.restart, 2);
}

TEST(Rendezvous, WithoutALauncherAllRanksAreOnOneHostAndRankZeroServesTheStore) {
  Variables variables = torchrun_variables();
  variables.erase("LOCAL_WORLD_SIZE");
  variables.erase("TORCHELASTIC_USE_AGENT_STORE");
  variables.erase("TORCHELASTIC_RESTART_COUNT");
  const Rendezvous rendezvous = read(variables);
  EXPECT_EQ(rendezvous.local_world_size, 8);
  EXPECT_FALSE(rendezvous.agent_store);
  EXPECT_EQ(rendezvous.restart, 0);
}

TEST(Rendezvous, BracketsOfAnIpv6AddressAreNotPartOfIt) {
  Variables variables = torchrun_variables();
  variables["MASTER_ADDR"] = "[::1]";
  EXPECT_EQ(read(variables).master_addr, "::1");
}

TEST(Rendezvous, NamesTheVariableThatIsMissing) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    Variables variables = torchrun_variables();
    variables.erase(name);
    EXPECT_NE(failure(variables).find(std::string(name) + " is not set"), std::string::npos)
        << name;
  }
}

TEST(Rendezvous, NamesTheVariableThatIsWrong) {
  const std::pair<const char*, const char*> wrong[] = {{"RANK", "-1"},
                                                       {"RANK", "8"},
                                                       {"RANK", "x"},
                                                       {"WORLD_SIZE", "0"},
                                                       {"WORLD_SIZE", "1e3"},
                                                       {"LOCAL_RANK", "2"},
                                                       {"MASTER_PORT", "0"},
                                                       {"MASTER_PORT", "70000"},
                                                       {"MASTER_PORT", "abc"},
                                                       {"LOCAL_WORLD_SIZE", "9"},
                                                       {"TORCHELASTIC_RESTART_COUNT", "many"}};
  for (const auto& [name, value] : wrong) {
    Variables variables = torchrun_variables();
    variables[name] = value;
    const std::string message = failure(variables);
    EXPECT_NE(message.find(name), std::string::npos) << name << "=" << value << ": " << message;
    EXPECT_NE(message.find(value), std::string::npos) << name << "=" << value << ": " << message;
  }
}

}  // namespace
}  // namespace stepscope::topologies
