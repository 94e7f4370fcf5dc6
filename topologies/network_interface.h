#pragma once

/// Purpose: through which of this host's addresses its ranks are reached.
///
/// Usage:
///     for (const std::string& name : gloo_interfaces(std::getenv("GLOO_SOCKET_IFNAME"))) ...
///     require_nccl_interface(std::getenv("NCCL_SOCKET_IFNAME"));
///     const std::string address = own_address_towards(rendezvous.master_addr);
///
/// Caveats: nothing is sent; the kernel's routing table answers.

#include <string>
#include <vector>

namespace stepscope::topologies {

struct HostInterface {
  std::string name;
  bool up = false;
  bool has_address = false;  ///< an IPv4 or IPv6 one
};

/// Every network interface of this host, once. Throws Error where they cannot be listed.
std::vector<HostInterface> host_interfaces();

/// The names, separated by commas, in a value of GLOO_SOCKET_IFNAME, each checked to be on this
/// host, up and with an address; none where `value` is null or empty. Throws Error naming the
/// variable and the interfaces that there are.
std::vector<std::string> gloo_interfaces(
    const char* value, const std::vector<HostInterface>& host = host_interfaces());

/// Checks that NCCL will find an interface by a value of NCCL_SOCKET_IFNAME: beginnings of names
/// separated by commas, whole names behind `=`, all others behind `^` or `^=`. Nothing is checked
/// where `value` is null or empty. Throws Error naming the variable and the interfaces that there
/// are.
void require_nccl_interface(const char* value,
                            const std::vector<HostInterface>& host = host_interfaces());

/// The address of this host from which it reaches `host` (a name or an address), which is the one
/// that other hosts can answer to. Where `host` is a name that means this host's loopback to this
/// host alone (Debian's hosts file maps a host's own name to 127.0.1.1), it is the address of the
/// default route. Throws Error where `host` cannot be resolved or has no route.
std::string own_address_towards(const std::string& host);

/// The interface that has that address, for a library that takes a name. Throws the same Errors,
/// and one where no interface has it.
std::string own_interface_towards(const std::string& host);

}  // namespace stepscope::topologies
