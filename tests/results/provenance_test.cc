#include "results/provenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>

#include <array>
#include <fstream>
#include <memory>

#include "core/program.h"
#include "results/run_folder.h"
#include "tests/results/scratch.h"

namespace stepscope::results {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(Provenance, SaysWhatWasRunWhereAndOfWhichBuild) {
  const nlohmann::json json = collect_provenance({"optimizer_step", "--model", "my model"});
  EXPECT_EQ(json.at("schema_version"), 1);
  EXPECT_THAT(json.at("created_utc").get<std::string>(),
              testing::MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"));
  EXPECT_EQ(json.at("command"), (nlohmann::json{"optimizer_step", "--model", "my model"}));
  EXPECT_EQ(json.at("command_line"), "optimizer_step --model 'my model'");
  EXPECT_EQ(json.at("commit"), build_commit());
  EXPECT_EQ(json.at("dirty"), build_dirty());
  EXPECT_EQ(json.at("build_type"), build_type());
  EXPECT_THAT(version_line(),
              testing::HasSubstr("stepscope " + json.at("version").get<std::string>() + " "));
  EXPECT_THAT(json.at("compiler").get<std::string>(), testing::MatchesRegex("(gcc|clang) [0-9].*"));
  EXPECT_THAT(json.at("kernel").get<std::string>(), testing::StartsWith("Linux "));
  EXPECT_GE(json.at("cpus_usable").get<int>(), 1);
  EXPECT_GT(json.at("memory_total_bytes").get<std::int64_t>(), 1 << 20);
  EXPECT_FALSE(json.at("host").get<std::string>().empty());
}

TEST(Provenance, TakesListedVariablesAndNoSecret) {
  const std::vector<std::pair<const char*, const char*>> listed = {{"SLURM_JOB_ID", "4711"},
                                                                   {"NCCL_SOCKET_IFNAME", "ib0"},
                                                                   {"GLOO_SOCKET_IFNAME", "lo"},
                                                                   {"CUDA_VISIBLE_DEVICES", "0,1"},
                                                                   {"OMP_NUM_THREADS", "2"}};
  const std::vector<const char*> secrets = {"SLURM_JWT",
                                            "SLURM_JOB_PASSWORD",
                                            "AWS_SECRET_ACCESS_KEY",
                                            "NCCL_AUTH_TOKEN",
                                            "NCCL_SECRET",
                                            "GLOO_PASSWORD",
                                            "HF_TOKEN",
                                            "OMP_NUM_THREADS_SECRET",
                                            "XSLURM_JOB_ID"};
  for (const auto& [name, text] : listed) ::setenv(name, text, 1);
  for (const char* name : secrets) ::setenv(name, "planted-secret", 1);
  const nlohmann::json json = collect_provenance({"x"});
  for (const char* name : secrets) ::unsetenv(name);
  for (const auto& [name, text] : listed) {
    EXPECT_EQ(json.at("environment").at(name), text);
    ::unsetenv(name);
  }
  EXPECT_THAT(json.dump(), testing::Not(testing::HasSubstr("planted-secret")));
  for (const char* name : secrets) EXPECT_FALSE(json.at("environment").contains(name)) << name;
}

TEST(Machine, IsReadFromProcAndSys) {
  const Scratch root;
  write(root.path() / "proc/cpuinfo",
        "processor\t: 0\nmodel\t\t: 2\nmodel name\t: Some CPU: 64-Core\nflags\t\t: fpu\n");
  write(root.path() / "proc/meminfo", "MemFree:  1 kB\nMemTotal:       24684092 kB\n");
  write(root.path() / "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  write(root.path() / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
  const nlohmann::json json = describe_machine(root.path());
  EXPECT_EQ(json.at("cpu_model"), "Some CPU: 64-Core");
  EXPECT_EQ(json.at("memory_total_bytes"), 24684092LL * 1024);
  EXPECT_EQ(json.at("transparent_hugepage"), "madvise");
  EXPECT_EQ(json.at("cpu_governor"), "performance");
  EXPECT_TRUE(json.at("cgroup_memory_limit_bytes").is_null());
}

TEST(Machine, HasNullForWhatCannotBeFoundOut) {
  const Scratch root;
  write(root.path() / "proc/cpuinfo", ": no key\n\n:\nmodel name\t:\n");
  write(root.path() / "proc/meminfo", "MemTotal: much\n");
  write(root.path() / "sys/kernel/mm/transparent_hugepage/enabled", "]always[\n");
  const nlohmann::json json = describe_machine(root.path());
  for (const char* key : {"cpu_model", "memory_total_bytes", "transparent_hugepage", "cpu_governor",
                          "cgroup_memory_limit_bytes"}) {
    EXPECT_TRUE(json.at(key).is_null()) << key;
  }
}

TEST(CgroupLimit, IsTheSmallestOnTheWayToTheRoot) {
  const Scratch root;
  write(root.path() / "proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  const fs::path top = root.path() / "sys/fs/cgroup";
  write(top / "slurm/job_7/step_0/memory.max", "max\n");
  write(top / "slurm/job_7/memory.max", "8589934592\n");
  write(top / "slurm/memory.max", "17179869184\n");
  EXPECT_EQ(describe_machine(root.path()).at("cgroup_memory_limit_bytes"), 8589934592);
}

TEST(CgroupLimit, OfVersion1IsReadAndItsLargestValueIsNoLimit) {
  const Scratch root;
  const fs::path top = root.path() / "sys/fs/cgroup/memory";
  write(root.path() / "proc/self/cgroup", "9:cpu,memory:/docker/abc\n0::/\n");
  write(top / "memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_TRUE(describe_machine(root.path()).at("cgroup_memory_limit_bytes").is_null());
  // As a container sees it: its own group is mounted at the top, its path leads nowhere.
  write(top / "memory.limit_in_bytes", "4294967296\n");
  EXPECT_EQ(describe_machine(root.path()).at("cgroup_memory_limit_bytes"), 4294967296);
}

TEST(ShellQuote, GivesTheShellTheSameWords) {
  const std::vector<std::string> words = {"printf",
                                          "%s|",
                                          "plain",
                                          "",
                                          "two words",
                                          "it's",
                                          "$HOME `id` \\ \"q\"",
                                          "a=b",
                                          "--x=y*",
                                          "ü",
                                          "line\nbreak",
                                          "--model=gpt2"};
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(shell_quote(words).c_str(), "r"),
                                                   ::pclose);
  ASSERT_NE(pipe, nullptr);
  std::array<char, 4096> text = {};
  const std::size_t size = ::fread(text.data(), 1, text.size(), pipe.get());
  std::string expected;
  for (std::size_t i = 2; i < words.size(); ++i) expected += words[i] + "|";
  EXPECT_EQ(std::string(text.data(), size), expected);
}

TEST(ShellQuote, LeavesPlainWordsReadable) {
  EXPECT_EQ(shell_quote({"build/bin/optimizer_step", "--model=gpt2", "--ranks", "2"}),
            "build/bin/optimizer_step --model=gpt2 --ranks 2");
  EXPECT_EQ(shell_quote({"A=1", "x"}), "'A=1' x");
}

}  // namespace
}  // namespace stepscope::results
