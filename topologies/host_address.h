#pragma once

/// Purpose: addresses as people and launchers write them: "node-a", "10.0.0.1:29500", "::1",
/// "[::1]:29500", "fe80::1%eth0"; and the address of a node whose name the resolver does not know.
///
/// Usage:  const HostAddress address = parse_host_address("MASTER_ADDR", "[::1]:29500");

#include <cstdint>
#include <optional>
#include <string>

namespace stepscope::topologies {

struct HostAddress {
  std::string host;                   ///< IPv6 without brackets
  std::optional<std::uint16_t> port;  ///< where the text had one
};

/// Throws Error naming `variable` where the text is empty, its brackets do not close, its port is
/// no port, or it is a link-local IPv6 address that does not say on which interface.
HostAddress parse_host_address(const std::string& variable, const std::string& text);

/// `node` where this host can resolve it, else the address that Slurm's controller has for it
/// (NodeAddr of `scontrol show node`; clusters exist whose node names are in no DNS). `node` again
/// where neither knows it, so that connecting names it in its error. Waits 5 s at most.
std::string slurm_node_address(const std::string& node);

}  // namespace stepscope::topologies
