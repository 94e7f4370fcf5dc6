#include "topologies/network_interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "core/error.h"

namespace stepscope::topologies {
namespace {

/// Addresses that are nobody's (RFC 5737, RFC 3849): the route to them is the default route.
constexpr std::array<const char*, 2> kElsewhere = {"192.0.2.1", "2001:db8::1"};

std::string number_of(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return text.data();
}

/// Where a datagram to `target` would leave this host; nothing without a route.
std::optional<std::string> source_towards(const addrinfo& target) {
  const int fd = socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  std::optional<std::string> source;
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (connect(fd, target.ai_addr, target.ai_addrlen) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0) {
    source = number_of(reinterpret_cast<sockaddr*>(&own), size);
  }
  close(fd);
  return source;
}

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Throws Error where `host` cannot be resolved.
AddressList resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  // The port only makes the address complete: nothing is sent to it.
  const int status = getaddrinfo(host.c_str(), "9", &hints, &list);
  if (status != 0) {
    throw Error("MASTER_ADDR \"" + host + "\": " + gai_strerror(status),
                "give a host name or address that this host can resolve");
  }
  return {list, &freeaddrinfo};
}

std::optional<std::string> source_towards(const std::string& host) {
  const AddressList list = resolve(host);
  for (const addrinfo* target = list.get(); target != nullptr; target = target->ai_next) {
    if (auto source = source_towards(*target)) return source;
  }
  return std::nullopt;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

/// Loopback was asked for, so that it means the same to every rank.
bool says_loopback(const std::string& host) { return is_loopback(host) || host == "localhost"; }

using InterfaceList = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

InterfaceList interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    throw Error(std::string("this host's network interfaces cannot be listed: ") +
                std::strerror(errno));
  }
  return {list, &freeifaddrs};
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

/// What to write instead.
std::string usable_here(const std::vector<HostInterface>& host) {
  std::string names;
  for (const HostInterface& one : host) {
    if (one.up && one.has_address) names += (names.empty() ? "" : ", ") + one.name;
  }
  return "name the interface that the ranks share; up here: " + names;
}

/// Why the interface cannot carry anything; nothing where it can.
std::string why_unusable(const HostInterface& one) {
  if (!one.up) return "is down on this host";
  return one.has_address ? "" : "has no address on this host";
}

/// One name or beginning of a name of NCCL's list, perhaps with a port behind it, which NCCL reads
/// and does not use for sockets.
bool matches(const std::string& listed, const std::string& name, bool exactly) {
  const std::string wanted = listed.substr(0, listed.find(':'));
  return exactly ? name == wanted : name.starts_with(wanted);
}

}  // namespace

std::vector<HostInterface> host_interfaces() {
  const InterfaceList list = interfaces();
  std::map<std::string, HostInterface> by_name;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    HostInterface& one = by_name[entry->ifa_name];
    one.name = entry->ifa_name;
    one.up |= (entry->ifa_flags & IFF_UP) != 0;
    one.has_address |= entry->ifa_addr != nullptr && (entry->ifa_addr->sa_family == AF_INET ||
                                                      entry->ifa_addr->sa_family == AF_INET6);
  }
  std::vector<HostInterface> all;
  for (const auto& [name, one] : by_name) all.push_back(one);
  return all;
}

std::vector<std::string> gloo_interfaces(const char* value,
                                         const std::vector<HostInterface>& host) {
  if (value == nullptr || *value == '\0') return {};
  const std::vector<std::string> names = split_at_commas(value);
  for (const std::string& name : names) {
    const auto one = std::ranges::find(host, name, &HostInterface::name);
    std::string why = one == host.end() ? "is not on this host" : why_unusable(*one);
    if (why.empty()) continue;
    if (name.starts_with('^') || name.starts_with('=')) {
      why += ": Gloo takes whole names, ^ and = are for NCCL alone";
    }
    throw Error("GLOO_SOCKET_IFNAME is \"" + std::string(value) + "\", and \"" + name + "\" " + why,
                usable_here(host));
  }
  return names;
}

void require_nccl_interface(const char* value, const std::vector<HostInterface>& host) {
  if (value == nullptr || *value == '\0') return;
  const std::string whole = "NCCL_SOCKET_IFNAME is \"" + std::string(value) + "\"";
  std::string_view rest = value;
  if (rest.size() == 1) {
    throw Error(whole + ", and NCCL ignores a value of one character", usable_here(host));
  }
  const bool all_but = rest.starts_with('^');
  if (all_but) rest.remove_prefix(1);
  const bool exactly = rest.starts_with('=');
  if (exactly) rest.remove_prefix(1);
  std::vector<std::string> listed = split_at_commas(rest);
  std::erase(listed, "");
  if (listed.empty()) throw Error(whole + ", which names no interface", usable_here(host));
  std::string unusable;
  for (const HostInterface& one : host) {
    const bool is_listed = std::ranges::any_of(
        listed, [&](const std::string& entry) { return matches(entry, one.name, exactly); });
    if (is_listed == all_but) continue;
    const std::string why = why_unusable(one);
    if (why.empty()) return;
    unusable += ": " + one.name + " " + why;
  }
  throw Error(whole + (all_but ? ", which leaves none on this host" : ", which none here matches") +
                  unusable,
              usable_here(host));
}

std::string own_address_towards(const std::string& host) {
  const auto source = source_towards(host);
  if (!source) {
    throw Error("this host has no route to MASTER_ADDR " + host,
                "set GLOO_SOCKET_IFNAME to the network interface that the ranks share");
  }
  if (!is_loopback(*source) || says_loopback(host)) return *source;
  for (const char* elsewhere : kElsewhere) {
    if (auto outward = source_towards(std::string(elsewhere))) return *outward;
  }
  return *source;
}

std::string own_interface_towards(const std::string& host) {
  const std::string address = own_address_towards(host);
  const InterfaceList list = interfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (number_of(entry->ifa_addr, size) == address) return entry->ifa_name;
  }
  throw Error("no network interface of this host has the address " + address,
              "set GLOO_SOCKET_IFNAME to the network interface that the ranks share");
}

}  // namespace stepscope::topologies
