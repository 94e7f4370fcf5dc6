#pragma once

/// Purpose: the link between two processes of one host that take turns on it: only the one that
/// holds the baton works, the other waits.
///
/// Usage:
///     Baton baton({.socket = "runs/pair.sock", .first = true}, timeout);
///     while (!baton.open(slice)) {}
///     baton.tell(mine);                                    // once or more, before the first turn
///     while (!(theirs = baton.hear(slice))) {}
///     while (!baton.wait(slice)) {}
///     work();
///     baton.pass();
///     ...
///     baton.finish();                                      // no more turns are wanted
///
/// Caveats: a Unix socket, so both processes are on one host. The kernel tells at once when the
/// partner ends; one that is stopped is noticed after `timeout`. Not for use from several threads.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace stepscope::bench {

struct BatonOptions {
  std::string socket;  ///< path of the Unix socket; empty: no turn-taking
  bool first = true;   ///< this process makes the socket and has the first turn
};

class Baton {
 public:
  /// `timeout` bounds every wait for the partner. Throws Error when the socket's path is too long
  /// or cannot be used.
  Baton(BatonOptions options, std::chrono::milliseconds timeout);
  ~Baton();
  Baton(const Baton&) = delete;
  Baton& operator=(const Baton&) = delete;

  /// Waits up to `slice` for the partner to appear; whether it did. Throws Error when it has not
  /// after the timeout.
  bool open(std::chrono::milliseconds slice);

  /// Sends `text`, at most 64 KiB, to the partner's next `hear`. Throws Error when it ended.
  void tell(const std::string& text);

  /// Waits up to `slice` for what the partner tells; nothing when it has not yet. Throws Error when
  /// the partner ended, or has told nothing after the timeout.
  std::optional<std::string> hear(std::chrono::milliseconds slice);

  /// Waits up to `slice` for the turn; whether it came. Throws Error when the partner ended without
  /// finishing, or when the turn has not come after the timeout.
  bool wait(std::chrono::milliseconds slice);

  /// Hands the turn to the partner. Throws Error when it is gone.
  void pass();

  /// Says that this process wants no more turns; the partner then has all of them. The partner may
  /// be gone already: that is no error any more.
  void finish() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  bool readable(int descriptor, std::chrono::milliseconds limit) const;
  void send(std::string_view message);
  std::string receive();
  [[noreturn]] void partner_gone() const;
  bool arrived(const char* waited_for, std::chrono::milliseconds slice);
  void start_waiting();
  void check_deadline(const char* waited_for) const;

  BatonOptions options_;
  std::chrono::milliseconds timeout_;
  int listener_ = -1;
  int link_ = -1;
  bool mine_ = false;              ///< this process has the turn
  bool partner_finished_ = false;  ///< the partner wants no more turns
  bool waiting_ = false;
  Clock::time_point deadline_;
};

}  // namespace stepscope::bench
