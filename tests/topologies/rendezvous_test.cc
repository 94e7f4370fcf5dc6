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

Variables slurm_variables() {
  return {{"SLURM_JOB_ID", "7"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "5"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_STEP_NUM_TASKS", "8"},
          {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
          {"SLURM_STEP_NODELIST", "gpu[03-04]"}};
}

Rendezvous read(const Variables& variables) {
  return rendezvous_from_environment(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      },
      [](const std::string& node) { return node + ".cluster"; });
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

TEST(Rendezvous, TakesAnAddressWithAPort) {
  Variables variables = torchrun_variables();
  variables["MASTER_ADDR"] = "[::1]:29501";
  EXPECT_EQ(read(variables).master_addr, "::1");
  EXPECT_EQ(read(variables).master_port, 29501);
  variables.erase("MASTER_PORT");
  EXPECT_EQ(read(variables).master_port, 29501);
  variables["MASTER_PORT"] = "29502";
  EXPECT_NE(failure(variables).find("MASTER_ADDR's port is 29501 and MASTER_PORT is 29502"),
            std::string::npos)
      << failure(variables);
}

TEST(Rendezvous, TakesWhatSrunSets) {
  const Rendezvous rendezvous = read(slurm_variables());
  EXPECT_EQ(rendezvous.launcher, "slurm");
  EXPECT_EQ(rendezvous.rank, 5);
  EXPECT_EQ(rendezvous.world_size, 8);
  EXPECT_EQ(rendezvous.local_rank, 1);
  EXPECT_EQ(rendezvous.local_world_size, 4);
  EXPECT_EQ(rendezvous.master_addr, "gpu03.cluster");
  EXPECT_GT(rendezvous.master_port, 0);
  EXPECT_FALSE(rendezvous.agent_store);
}

TEST(Rendezvous, OnOneNodeOfSlurmTheRanksMeetOnLoopback) {
  Variables variables = slurm_variables();
  variables["SLURM_NODEID"] = "0";
  variables["SLURM_STEP_NUM_NODES"] = "1";
  variables["SLURM_STEP_TASKS_PER_NODE"] = "8";
  variables["SLURM_STEP_NODELIST"] = "gpu03";
  EXPECT_EQ(read(variables).master_addr, "127.0.0.1");
}

TEST(Rendezvous, UnderSlurmTheUserMaySayWhereTheRanksMeet) {
  Variables variables = slurm_variables();
  variables["MASTER_ADDR"] = "10.1.1.1";
  variables["MASTER_PORT"] = "4711";
  EXPECT_EQ(read(variables).master_addr, "10.1.1.1");
  EXPECT_EQ(read(variables).master_port, 4711);
  variables.erase("MASTER_PORT");
  EXPECT_GE(read(variables).master_port, 10'000);
  variables["MASTER_ADDR"] = "10.1.1.1:4712";
  EXPECT_EQ(read(variables).master_port, 4712);
}

TEST(Rendezvous, RanksSetByHandMustBeThoseOfTheSlurmStep) {
  Variables variables = slurm_variables();
  variables.insert({{"RANK", "5"},
                    {"WORLD_SIZE", "8"},
                    {"LOCAL_RANK", "1"},
                    {"MASTER_ADDR", "gpu03"},
                    {"MASTER_PORT", "29500"}});
  EXPECT_EQ(read(variables).launcher, "environment");
  EXPECT_EQ(read(variables).local_world_size, 4);
  variables["RANK"] = "0";
  EXPECT_NE(failure(variables).find("RANK is 0 and SLURM_PROCID is 5"), std::string::npos)
      << failure(variables);
  variables["RANK"] = "5";
  variables["WORLD_SIZE"] = "16";
  EXPECT_NE(failure(variables).find("WORLD_SIZE is 16 and SLURM_STEP_NUM_TASKS is 8"),
            std::string::npos)
      << failure(variables);
}

TEST(Rendezvous, UnderTorchrunSlurmsTasksAreOnlyTheAgents) {
  Variables variables = slurm_variables();
  for (const auto& [name, value] : torchrun_variables()) variables[name] = value;
  variables["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(read(variables).launcher, "torchrun");
  EXPECT_EQ(read(variables).rank, 3);
}

TEST(Rendezvous, ABatchScriptMayStartRanksByItself) {
  Variables variables = torchrun_variables();
  variables.insert({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}});
  EXPECT_EQ(read(variables).rank, 3);
}

}  // namespace
}  // namespace stepscope::topologies
