#include "topologies/slurm_lists.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace stepscope::topologies {
namespace {

std::string first(std::string_view list) { return first_host("SLURM_JOB_NODELIST", list); }

TEST(FirstHost, IsTheOneThatSlurmNamesFirst) {
  EXPECT_EQ(first("linux[1,2]"), "linux1");
  EXPECT_EQ(first("alpha,beta,gamma"), "alpha");
  EXPECT_EQ(first("gpu-node-[583,752]"), "gpu-node-583");
  EXPECT_EQ(first("nodeA,nodeB[001,003],nodeC"), "nodeA");
  EXPECT_EQ(first("host-[001-002]"), "host-001");
  EXPECT_EQ(first("rack[0-1]node[02-13,40]"), "rack0node02");
  EXPECT_EQ(first("gpu[7-9]-ib"), "gpu7-ib");
  EXPECT_EQ(first("one"), "one");
  EXPECT_EQ(first("x[1-2],y"), "x1");
}

TEST(FirstHost, RefusesWhatIsNoList) {
  for (const char* list :
       {"", ",a", "a[", "a]1", "a[]", "a[x]", "a[1", "a[1,b", "a[[1]]", "a[-3]"}) {
    EXPECT_THROW(first(list), Error) << list;
  }
}

std::int64_t tasks(std::string_view list, std::int64_t node) {
  return tasks_on_node("SLURM_TASKS_PER_NODE", list, node);
}

TEST(TasksOnNode, RepeatsACountOverItsNodes) {
  EXPECT_EQ(tasks("4(x2)", 0), 4);
  EXPECT_EQ(tasks("4(x2)", 1), 4);
  EXPECT_EQ(tasks("2,1", 1), 1);
  EXPECT_EQ(tasks("4(x2),3,1(x3)", 2), 3);
  EXPECT_EQ(tasks("4(x2),3,1(x3)", 5), 1);
  EXPECT_EQ(tasks("8", 0), 8);
}

TEST(TasksOnNode, RefusesANodeThatIsNotInTheList) {
  EXPECT_THROW(tasks("4(x2)", 2), Error);
  EXPECT_THROW(tasks("4(x2)", -1), Error);
}

TEST(TotalTasks, AddsUpAllNodes) {
  EXPECT_EQ(total_tasks("V", "4(x2),3,1(x3)"), 14);
  EXPECT_EQ(total_tasks("V", "8(x2048)"), 16'384);
}

TEST(TotalTasks, RefusesWhatIsNoListOrTooLarge) {
  for (const char* list : {"", "x", "4(", "4(x", "4(x2", "4(2)", "4(x0)", "4(x2),", ",4", "4 ",
                           "-1", "2147483647(x2)", "99999999999999999999"}) {
    EXPECT_THROW(total_tasks("V", list), Error) << list;
  }
}

}  // namespace
}  // namespace stepscope::topologies
