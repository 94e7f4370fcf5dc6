#include "topologies/network_interface.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/core/error_text.h"

namespace stepscope::topologies {
namespace {

using Names = std::vector<std::string>;

/// A node of a cluster: the fabric's interfaces, one that is down, and one without an address.
std::vector<HostInterface> node() {
  return {
      {.name = "bond0", .up = true, .has_address = true},
      {.name = "docker0", .up = true, .has_address = true},
      {.name = "eth0", .up = true, .has_address = true},
      {.name = "eth01", .up = true, .has_address = true},
      {.name = "ib0", .up = false, .has_address = true},
      {.name = "ib1", .up = true, .has_address = false},
      {.name = "lo", .up = true, .has_address = true},
  };
}

std::string gloo_error(const char* value) {
  return error_text([&] { gloo_interfaces(value, node()); });
}

std::string nccl_error(const char* value) {
  return error_text([&] { require_nccl_interface(value, node()); });
}

void expect_in(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST(HostInterfaces, LoopbackIsThereOnceUpAndHasAnAddress) {
  const auto host = host_interfaces();
  EXPECT_EQ(std::ranges::count(host, "lo", &HostInterface::name), 1);
  const auto loopback = std::ranges::find(host, "lo", &HostInterface::name);
  ASSERT_NE(loopback, host.end());
  EXPECT_TRUE(loopback->up && loopback->has_address);
  EXPECT_EQ(gloo_interfaces("lo"), Names{"lo"});
  EXPECT_NO_THROW(require_nccl_interface("lo"));
}

TEST(GlooInterfaces, AreNamesWithCommas) {
  EXPECT_EQ(gloo_interfaces("eth0", node()), Names{"eth0"});
  EXPECT_EQ(gloo_interfaces("bond0,eth01", node()), (Names{"bond0", "eth01"}));
}

TEST(GlooInterfaces, AnUnsetOrEmptyVariableAsksForNone) {
  EXPECT_TRUE(gloo_interfaces(nullptr, node()).empty());
  EXPECT_TRUE(gloo_interfaces("", node()).empty());
}

TEST(GlooInterfaces, AnUnknownOneIsNamedWithTheVariableAndThoseThatCanBeUsed) {
  const std::string message = gloo_error("eth0,nosuch0");
  expect_in(message, {"GLOO_SOCKET_IFNAME is \"eth0,nosuch0\"", "\"nosuch0\" is not on this host",
                      "up here: bond0, docker0, eth0, eth01, lo"});
  for (const char* wrong : {"eth", "eth0,", ",eth0", " eth0", "ETH0", "eth0:1"}) {
    expect_in(gloo_error(wrong), {"GLOO_SOCKET_IFNAME", wrong, "is not on this host"});
  }
}

TEST(GlooInterfaces, OneThatIsDownOrHasNoAddressIsSaidToBe) {
  expect_in(gloo_error("ib0"), {"\"ib0\" is down on this host"});
  expect_in(gloo_error("ib1"), {"\"ib1\" has no address on this host"});
}

TEST(GlooInterfaces, TheSignsOfNcclAreNotGloos) {
  expect_in(gloo_error("^docker0"), {"\"^docker0\" is not on this host", "are for NCCL alone"});
  expect_in(gloo_error("=eth0"), {"\"=eth0\" is not on this host", "are for NCCL alone"});
  EXPECT_EQ(gloo_error("nosuch0").find("NCCL"), std::string::npos);
}

TEST(RequireNcclInterface, BeginningsWholeNamesAndAllOthersAreFound) {
  for (const char* value :
       {"eth0", "eth", "bo", "=eth0", "=nosuch0,eth01", "nosuch,bond", "^docker,lo", "^=eth0",
        "^eth", "eth0:1234", "ib,eth", "^eth,bond,docker,ib"}) {
    EXPECT_NO_THROW(require_nccl_interface(value, node())) << value;
  }
}

TEST(RequireNcclInterface, AnUnsetOrEmptyVariableLeavesTheChoiceToNccl) {
  EXPECT_NO_THROW(require_nccl_interface(nullptr, node()));
  EXPECT_NO_THROW(require_nccl_interface("", node()));
}

TEST(RequireNcclInterface, WhatMatchesNothingIsNamedWithTheVariable) {
  for (const char* value : {"nosuch0", "=eth", "=et,bond", "eth0x", "wlan,en"}) {
    expect_in(nccl_error(value), {"NCCL_SOCKET_IFNAME", value, "which none here matches",
                                  "up here: bond0, docker0, eth0, eth01, lo"});
  }
  for (const char* value : {"^eth,bond,docker,ib,lo", "^=bond0,docker0,eth0,eth01,lo"}) {
    expect_in(nccl_error(value), {"NCCL_SOCKET_IFNAME", value, "which leaves none on this host"});
  }
}

TEST(RequireNcclInterface, OneThatIsDownOrHasNoAddressIsNoMatch) {
  expect_in(nccl_error("ib"), {"ib0 is down on this host", "ib1 has no address on this host"});
  expect_in(nccl_error("=ib1"), {"ib1 has no address"});
  EXPECT_EQ(nccl_error("=ib1").find("ib0 is down"), std::string::npos);
}

TEST(RequireNcclInterface, AListOfNothingAndWhatNcclIgnoresAreRefused) {
  for (const char* value : {"^=", ",,", "^,", "=,"}) {
    expect_in(nccl_error(value), {"NCCL_SOCKET_IFNAME", "names no interface"});
  }
  expect_in(nccl_error("e"), {"ignores a value of one character"});
}

TEST(OwnAddressTowards, LoopbackIsReachedFromLoopback) {
  EXPECT_EQ(own_address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_TRUE(own_address_towards("localhost").starts_with("127.") ||
              own_address_towards("localhost") == "::1");
}

TEST(OwnInterfaceTowards, LoopbackHasItsOwn) {
  EXPECT_EQ(own_interface_towards("127.0.0.1"), "lo");
}

TEST(OwnAddressTowards, AnUnknownHostIsNamed) {
  const std::string message = error_text([] { own_address_towards("nobody.invalid"); });
  EXPECT_NE(message.find("nobody.invalid"), std::string::npos) << message;
}

}  // namespace
}  // namespace stepscope::topologies
