#include "topologies/network_interface.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/core/error_text.h"

namespace stepscope::topologies {
namespace {

TEST(NetworkInterface, LoopbackIsUp) {
  EXPECT_NO_THROW(require_interface("GLOO_SOCKET_IFNAME", "lo"));
}

TEST(NetworkInterface, AnUnknownOneIsNamedWithTheVariableAndThoseThatExist) {
  const std::string message =
      error_text([] { require_interface("GLOO_SOCKET_IFNAME", "nosuch0"); });
  EXPECT_NE(message.find("GLOO_SOCKET_IFNAME"), std::string::npos) << message;
  EXPECT_NE(message.find("nosuch0"), std::string::npos) << message;
  EXPECT_NE(message.find("up here: "), std::string::npos) << message;
  EXPECT_NE(message.find("lo"), std::string::npos) << message;
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
