#pragma once

/// Purpose: a helper program that answers requests, one line each, on its standard input and
/// output.
///
/// Usage:
///     PeerProcess peer({"python3", "kernel_peer.py"});
///     const std::string version = peer.ask("open bitsandbytes 2", std::chrono::seconds(60));
///
/// Caveats: its standard error is thrown away: what it has to say it must answer. It is killed, and
/// with it what it started, when the object goes; if this process is killed, it sees the end of its
/// input.

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace stepscope::bench {

class PeerProcess {
 public:
  /// Starts `command` (program first, searched in PATH). Throws Error when that fails.
  explicit PeerProcess(std::vector<std::string> command);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  /// Sends `request` and returns what follows "ok " in the answer. Throws Error for an answer
  /// "error TEXT" (with that text), one of another form, the program's end, and when no answer has
  /// come after `timeout`.
  std::string ask(const std::string& request, std::chrono::milliseconds timeout);

 private:
  std::string read_line(const std::string& request, std::chrono::milliseconds timeout);
  std::string how_it_ended();

  std::string program_;
  pid_t pid_ = -1;
  int requests_ = -1;
  int answers_ = -1;
  std::string pending_;  ///< read, and not yet part of an answer
};

}  // namespace stepscope::bench
