#include "topologies/host_address.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "tests/core/error_text.h"

namespace stepscope::topologies {
namespace {

HostAddress parse(const std::string& text) { return parse_host_address("MASTER_ADDR", text); }

TEST(HostAddress, TakesNamesAndAddressesWithAndWithoutAPort) {
  EXPECT_EQ(parse("node-a").host, "node-a");
  EXPECT_FALSE(parse("node-a").port);
  EXPECT_EQ(parse("10.0.0.1:29500").host, "10.0.0.1");
  EXPECT_EQ(parse("10.0.0.1:29500").port, 29500);
  EXPECT_EQ(parse("::1").host, "::1");
  EXPECT_FALSE(parse("::1").port);
  EXPECT_EQ(parse("[::1]").host, "::1");
  EXPECT_EQ(parse("[::1]:29500").host, "::1");
  EXPECT_EQ(parse("[::1]:29500").port, 29500);
  EXPECT_EQ(parse("fe80::1%eth0").host, "fe80::1%eth0");
}

TEST(HostAddress, ALinkLocalAddressNeedsItsInterface) {
  const std::string message = error_text([] { parse("FE80::1"); });
  EXPECT_NE(message.find("FE80::1"), std::string::npos) << message;
  EXPECT_NE(message.find("%eth0"), std::string::npos) << message;
  EXPECT_EQ(parse("fec0::1").host, "fec0::1");
}

TEST(HostAddress, RefusesWhatIsNoAddress) {
  for (const char* text :
       {"", ":29500", "[::1", "[::1]29500", "[]:1", "node:abc", "node:70000", "node:0", "node:"}) {
    EXPECT_THROW(parse(text), Error) << text;
  }
}

/// Puts a program named scontrol first on PATH; Slurm's words are the seam.
class SlurmNodeAddress : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("stepscope-scontrol-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    path_ = std::getenv("PATH");
    setenv("PATH", (folder_.string() + ":" + path_).c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  void scontrol(const std::string& body) {
    const auto file = folder_ / "scontrol";
    std::ofstream(file) << "#!/bin/sh\n" << body << "\n";
    chmod(file.c_str(), 0755);
  }

 private:
  std::filesystem::path folder_;
  std::string path_;
};

// A name that no resolver knows (RFC 6761).
constexpr const char* kNode = "n1.invalid";

TEST_F(SlurmNodeAddress, IsTheNameWhereItResolves) {
  scontrol("echo 'NodeName=127.0.0.1 NodeAddr=10.9.9.9'");
  EXPECT_EQ(slurm_node_address("127.0.0.1"), "127.0.0.1");
}

TEST_F(SlurmNodeAddress, IsWhatTheControllerSaysWhereTheNameDoesNotResolve) {
  scontrol("echo \"NodeName=$4 Arch=x86_64 NodeAddr=10.0.0.7 NodeHostName=$4\"");
  EXPECT_EQ(slurm_node_address(kNode), "10.0.0.7");
}

TEST_F(SlurmNodeAddress, IsTheNameWhereNobodyKnowsIt) {
  scontrol("echo 'Node not found'; exit 1");
  EXPECT_EQ(slurm_node_address(kNode), kNode);
}

TEST_F(SlurmNodeAddress, DoesNotWaitForAControllerThatHangs) {
  scontrol("exec sleep 60");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(slurm_node_address(kNode), kNode);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
}

}  // namespace
}  // namespace stepscope::topologies
