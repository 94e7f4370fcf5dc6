#include "topologies/host_address.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>

#include "core/error.h"
#include "core/parse.h"

extern char** environ;

namespace stepscope::topologies {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPatience = std::chrono::seconds(5);

/// fe80::/10, whose addresses mean something on one interface only.
bool is_link_local(const std::string& host) {
  std::string start = host.substr(0, 3);
  std::transform(start.begin(), start.end(), start.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return start == "fe8" || start == "fe9" || start == "fea" || start == "feb";
}

bool resolves(const std::string& host) {
  addrinfo* list = nullptr;
  const int status = getaddrinfo(host.c_str(), nullptr, nullptr, &list);
  if (status == 0) freeaddrinfo(list);
  return status == 0;
}

/// What `scontrol show node <node>` prints; nothing where it cannot be run, fails, or takes too
/// long.
std::string show_node(const std::string& node) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::array<std::string, 5> words = {"scontrol", "--oneliner", "show", "node", node};
  std::array<char*, 6> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  pid_t pid = -1;
  const bool started =
      posix_spawnp(&pid, "scontrol", &actions, nullptr, arguments.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  bool ended = false;
  const auto deadline = Clock::now() + kPatience;
  while (started && !ended) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{.fd = ends[0], .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) != 1) break;
    std::array<char, 4096> part{};
    const auto size = read(ends[0], part.data(), part.size());
    if (size > 0) text.append(part.data(), static_cast<std::size_t>(size));
    ended = size <= 0;
  }
  close(ends[0]);
  if (!started) return "";
  if (!ended) kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  return ended && status == 0 ? text : "";
}

}  // namespace

HostAddress parse_host_address(const std::string& variable, const std::string& text) {
  const auto wrong = [&](const std::string& why, const std::string& advice) {
    return Error(variable + " is \"" + text + "\": " + why, advice);
  };
  const auto port_after = [&](std::size_t colon) {
    return static_cast<std::uint16_t>(
        parse_int(variable + "'s port", std::string_view(text).substr(colon + 1), 1, 65535));
  };
  HostAddress address;
  const auto colon = text.find(':');
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    const bool ends = close != std::string::npos && close + 1 == text.size();
    if (!ends && (close == std::string::npos || text[close + 1] != ':')) {
      throw wrong("its bracket is not closed", "write [::1] or [::1]:29500");
    }
    address.host = text.substr(1, close - 1);
    if (!ends) address.port = port_after(close + 1);
  } else if (colon != std::string::npos && text.find(':', colon + 1) == std::string::npos) {
    address.host = text.substr(0, colon);
    address.port = port_after(colon);
  } else {
    address.host = text;
  }
  if (address.host.empty()) throw wrong("it names no host", "give a host name or address");
  if (address.host.find(':') != std::string::npos && is_link_local(address.host) &&
      address.host.find('%') == std::string::npos) {
    throw wrong("a link-local address means nothing without its interface",
                "append it, as in fe80::1%eth0, or give another address");
  }
  return address;
}

std::string slurm_node_address(const std::string& node) {
  if (resolves(node)) return node;
  const std::string text = show_node(node);
  const std::string key = " NodeAddr=";
  const auto found = text.find(key);
  if (found == std::string::npos) return node;
  const auto begin = found + key.size();
  const auto end = text.find_first_of(" \n", begin);
  return text.substr(begin, end == std::string::npos ? std::string::npos : end - begin);
}

}  // namespace stepscope::topologies
