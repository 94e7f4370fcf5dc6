#include "topologies/slurm_task.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/core/error_text.h"

namespace stepscope::topologies {
namespace {

using Variables = std::map<std::string, std::string>;

/// As Slurm 22.05 sets them for the third task of `srun -N2 -n3` in an allocation of four nodes.
Variables step_variables() {
  return {{"SLURM_JOB_ID", "77"},
          {"SLURM_JOB_NODELIST", "gpu-[07-10]"},
          {"SLURM_JOB_NUM_NODES", "4"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "1"},
          {"SLURM_NTASKS", "8"},
          {"SLURM_PROCID", "2"},
          {"SLURM_STEP_ID", "3"},
          {"SLURM_STEP_NODELIST", "gpu-[08-09]"},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_STEP_NUM_TASKS", "3"},
          {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
          {"SLURM_TASKS_PER_NODE", "2(x4)"}};
}

std::optional<SlurmTask> read(const Variables& variables) {
  return slurm_task([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

void expect_names(const Variables& variables, std::initializer_list<const char*> names) {
  const std::string message = error_text([&] { read(variables); });
  for (const char* name : names) {
    EXPECT_NE(message.find(name), std::string::npos) << name << " is not in: " << message;
  }
}

TEST(SlurmTask, TheStepsVariablesWinOverTheJobs) {
  const auto task = read(step_variables());
  ASSERT_TRUE(task);
  EXPECT_EQ(task->rank, 2);
  EXPECT_EQ(task->tasks, 3);
  EXPECT_EQ(task->tasks_variable, "SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(task->local_rank, 0);
  EXPECT_EQ(task->tasks_on_node, 1);
  EXPECT_EQ(task->nodes, 2);
  EXPECT_EQ(task->first_node, "gpu-08");
}

TEST(SlurmTask, TheJobsVariablesServeWhereTheStepHasNone) {
  Variables variables = step_variables();
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE",
                           "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES"}) {
    variables.erase(name);
  }
  const auto task = read(variables);
  ASSERT_TRUE(task);
  EXPECT_EQ(task->tasks, 8);
  EXPECT_EQ(task->tasks_on_node, 2);
  EXPECT_EQ(task->nodes, 4);
  EXPECT_EQ(task->first_node, "gpu-07");
}

TEST(SlurmTask, AllTasksOfAStepFindOnePortAndTheNextStepAnother) {
  Variables variables = step_variables();
  const auto port = read(variables)->port;
  variables["SLURM_PROCID"] = "0";
  EXPECT_EQ(read(variables)->port, port);
  variables["SLURM_STEP_ID"] = "4";
  EXPECT_NE(read(variables)->port, port);
  variables["SLURM_JOB_ID"] = "2147483647";
  EXPECT_GE(read(variables)->port, 10'000);
  EXPECT_LT(read(variables)->port, 30'000);
}

TEST(SlurmTask, APortThatSlurmReservedIsUsed) {
  Variables variables = step_variables();
  variables["SLURM_STEP_RESV_PORTS"] = "12005-12006";
  EXPECT_EQ(read(variables)->port, 12'005);
}

TEST(SlurmTask, OutsideSlurmThereIsNone) { EXPECT_FALSE(read({})); }

TEST(SlurmTask, ABatchScriptOfSeveralTasksIsToldToUseSrun) {
  const Variables batch = {{"SLURM_JOB_ID", "77"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "3"}};
  expect_names(batch, {"SLURM_PROCID is 0", "SLURM_NTASKS is 3", "SLURM_STEP_ID", "srun"});
}

TEST(SlurmTask, ABatchScriptOfOneTaskIsNoTask) {
  EXPECT_FALSE(read({{"SLURM_JOB_ID", "77"}, {"SLURM_PROCID", "0"}}));
}

TEST(SlurmTask, NamesBothVariablesThatContradictEachOther) {
  Variables variables = step_variables();
  variables["SLURM_STEP_TASKS_PER_NODE"] = "2(x2)";
  expect_names(variables, {"SLURM_STEP_TASKS_PER_NODE is 2(x2)", "SLURM_STEP_NUM_TASKS is 3"});
  variables = step_variables();
  variables["SLURM_PROCID"] = "3";
  expect_names(variables, {"SLURM_PROCID is 3", "SLURM_STEP_NUM_TASKS is 3"});
  variables = step_variables();
  variables["SLURM_LOCALID"] = "1";
  expect_names(variables, {"SLURM_LOCALID is 1", "SLURM_STEP_TASKS_PER_NODE is 1"});
  variables = step_variables();
  variables["SLURM_NODEID"] = "2";
  expect_names(variables, {"SLURM_STEP_TASKS_PER_NODE", "this is node 2"});
}

TEST(SlurmTask, NamesTheVariableThatIsMissing) {
  for (const char* name : {"SLURM_LOCALID", "SLURM_NODEID", "SLURM_JOB_ID"}) {
    Variables variables = step_variables();
    variables.erase(name);
    expect_names(variables, {name});
  }
}

}  // namespace
}  // namespace stepscope::topologies
