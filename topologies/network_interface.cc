#include "topologies/network_interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

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

}  // namespace

void require_interface(const std::string& variable, const std::string& name) {
  const InterfaceList list = interfaces();
  std::set<std::string> up;
  bool exists = false;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    exists |= name == entry->ifa_name;
    if ((entry->ifa_flags & IFF_UP) != 0) up.insert(entry->ifa_name);
  }
  if (up.contains(name)) return;
  std::string names;
  for (const std::string& other : up) names += (names.empty() ? "" : ", ") + other;
  throw Error(variable + " is \"" + name + "\", " +
                  (exists ? "which is down on this host" : "which this host does not have"),
              "name the interface that the ranks share; up here: " + names);
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
