#pragma once

/// Purpose: a port of this host on which the ranks of a test can meet.
///
/// Usage:  rendezvous.master_port = free_port();
///
/// Caveats: nothing holds it. The kernel gives the ports of its ephemeral range to whatever
/// connects next, which is why it is chosen elsewhere, at random, so that two tests at once differ.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <random>
#include <stdexcept>
#include <vector>

namespace stepscope::topologies {

struct PortRange {
  int first = 0;
  int last = 0;
};

inline PortRange ephemeral_ports() {
  PortRange range;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> range.first >> range.last;
  return range;
}

inline std::uint16_t free_port() {
  const PortRange ephemeral = ephemeral_ports();
  std::vector<int> ports;
  for (int port = 10'000; port < 65'536; ++port) {
    if (port < ephemeral.first || port > ephemeral.last) ports.push_back(port);
  }
  std::shuffle(ports.begin(), ports.end(), std::random_device());
  for (const int port : ports) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (free) return static_cast<std::uint16_t>(port);
  }
  throw std::runtime_error("no free port");
}

}  // namespace stepscope::topologies
