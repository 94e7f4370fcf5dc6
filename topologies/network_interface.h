#pragma once

/// Purpose: through which of this host's addresses its ranks are reached.
///
/// Usage:
///     require_interfaces("GLOO_SOCKET_IFNAME", names);
///     const std::string address = own_address_towards(rendezvous.master_addr);
///
/// Caveats: nothing is sent; the kernel's routing table answers.

#include <string>

namespace stepscope::topologies {

/// Checks that this host has the interface `name`, and that it is up. Throws Error naming
/// `variable` and the interfaces that there are.
void require_interface(const std::string& variable, const std::string& name);

/// The address of this host from which it reaches `host` (a name or an address), which is the one
/// that other hosts can answer to. Where `host` is a name that means this host's loopback to this
/// host alone (Debian's hosts file maps a host's own name to 127.0.1.1), it is the address of the
/// default route. Throws Error where `host` cannot be resolved or has no route.
std::string own_address_towards(const std::string& host);

/// The interface that has that address, for a library that takes a name. Throws the same Errors,
/// and one where no interface has it.
std::string own_interface_towards(const std::string& host);

}  // namespace stepscope::topologies
