#include "bench/baton.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

namespace stepscope::bench {
namespace {

using std::chrono::milliseconds;

// A message begins with its kind, so that a hello cannot be taken for a turn.
constexpr char kText = 'x';
constexpr std::string_view kTurn = "turn";
constexpr std::string_view kFinished = "finished";
constexpr std::size_t kMostBytes = std::size_t{64} << 10;

// How often the second process looks whether the first has made the socket.
constexpr milliseconds kRetry{20};

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    throw Error("the path of the baton's socket has " + std::to_string(path.size()) + " characters",
                "use one of at most " + std::to_string(sizeof address.sun_path - 1),
                {.file = path});
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw Error(what + ": " + std::strerror(errno),
              "give --baton a path in a folder that both builds can write to, and that no other "
              "pair uses",
              {.file = path});
}

}  // namespace

Baton::Baton(BatonOptions options, milliseconds timeout)
    : options_(std::move(options)), timeout_(timeout), mine_(options_.first) {
  const sockaddr_un address = address_of(options_.socket);
  start_waiting();
  if (!options_.first) return;
  // Packets keep the borders of messages.
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) fail("no socket could be made", options_.socket);
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener_, 1) != 0) {
    const int why = errno;
    close(listener_);
    errno = why;
    fail("the baton's socket could not be made", options_.socket);
  }
}

Baton::~Baton() {
  if (link_ >= 0) close(link_);
  if (listener_ >= 0) {
    close(listener_);
    unlink(options_.socket.c_str());
  }
}

bool Baton::open(milliseconds slice) {
  if (options_.first) {
    if (readable(listener_, slice)) {
      link_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (link_ < 0) fail("the partner could not be connected", options_.socket);
      // One partner only; the name is free for the next pair.
      close(std::exchange(listener_, -1));
      unlink(options_.socket.c_str());
    }
  } else {
    const sockaddr_un address = address_of(options_.socket);
    const auto until = Clock::now() + slice;
    while (link_ < 0 && Clock::now() < until) {
      const int attempt = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
      if (attempt < 0) fail("no socket could be made", options_.socket);
      if (connect(attempt, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        link_ = attempt;
        break;
      }
      const int why = errno;
      close(attempt);
      errno = why;
      // Not there yet; a left-over socket of a killed process refuses too, until the first process
      // complains about it.
      if (why != ENOENT && why != ECONNREFUSED)
        fail("the baton cannot be reached", options_.socket);
      std::this_thread::sleep_for(kRetry);
    }
  }
  if (link_ >= 0) {
    waiting_ = false;
    return true;
  }
  check_deadline("appear");
  return false;
}

void Baton::tell(const std::string& text) {
  if (text.size() >= kMostBytes) {
    throw Error("what the two builds tell each other exceeds 64 KiB",
                "measure fewer cases at once");
  }
  send(kText + text);
}

std::optional<std::string> Baton::hear(milliseconds slice) {
  if (!arrived("answer", slice)) return std::nullopt;
  const std::string answer = receive();
  if (answer.empty() || answer.front() != kText) {
    throw Error("the other build of this pair answers in another way",
                "start two builds of one age", {.file = options_.socket});
  }
  return answer.substr(1);
}

bool Baton::wait(milliseconds slice) {
  if (!mine_ && !partner_finished_) {
    if (!arrived("hand over the turn", slice)) return false;
    const std::string message = receive();
    partner_finished_ = message == kFinished;
    if (!partner_finished_ && message != kTurn) {
      throw Error("the other build of this pair sent something else than a turn",
                  "start two builds of one age", {.file = options_.socket});
    }
  }
  mine_ = true;
  return true;
}

void Baton::pass() {
  mine_ = false;
  if (!partner_finished_) send(kTurn);
}

void Baton::finish() noexcept {
  if (link_ >= 0 && !partner_finished_) {
    // Nothing is wanted from the partner any more, so its end is no failure of this process.
    static_cast<void>(::send(link_, kFinished.data(), kFinished.size(), MSG_NOSIGNAL));
  }
}

bool Baton::readable(int descriptor, milliseconds limit) const {
  pollfd waiting{.fd = descriptor, .events = POLLIN, .revents = 0};
  const int ready = poll(&waiting, 1, static_cast<int>(limit.count()));
  if (ready < 0 && errno != EINTR) fail("waiting for the partner failed", options_.socket);
  return ready > 0;
}

void Baton::send(std::string_view message) {
  if (::send(link_, message.data(), message.size(), MSG_NOSIGNAL) >= 0) return;
  if (errno == EPIPE || errno == ECONNRESET) {
    // Its last words may still be there: a partner that has finished may go.
    if (readable(link_, milliseconds(0)) && receive() == kFinished) {
      partner_finished_ = true;
      return;
    }
    partner_gone();
  }
  fail("the partner cannot be told", options_.socket);
}

std::string Baton::receive() {
  std::vector<char> buffer(kMostBytes);
  const ssize_t size = recv(link_, buffer.data(), buffer.size(), 0);
  if (size == 0 || (size < 0 && errno == ECONNRESET)) partner_gone();
  if (size < 0) fail("the partner cannot be heard", options_.socket);
  return {buffer.data(), static_cast<std::size_t>(size)};
}

void Baton::partner_gone() const {
  throw Error("the other build of this pair ended before the pair was measured",
              "see what it says; if it says nothing, it was killed: measure the pair again",
              {.file = options_.socket});
}

bool Baton::arrived(const char* waited_for, milliseconds slice) {
  if (!waiting_) start_waiting();
  if (!readable(link_, slice)) {
    check_deadline(waited_for);
    return false;
  }
  waiting_ = false;
  return true;
}

void Baton::start_waiting() {
  waiting_ = true;
  deadline_ = Clock::now() + timeout_;
}

void Baton::check_deadline(const char* waited_for) const {
  if (Clock::now() < deadline_) return;
  throw Error("the other build of this pair did not " + std::string(waited_for) + " within " +
                  std::to_string(timeout_.count() / 1000) + " s",
              "check that it runs and was given the same --baton, with the other --turn; "
              "--baton-timeout waits longer",
              {.file = options_.socket});
}

}  // namespace stepscope::bench
