#include "bench/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/error.h"

extern "C" char** environ;

namespace stepscope::bench {
namespace {

constexpr std::size_t kMaxAnswer = 4096;

std::string error_text(int code) { return std::generic_category().message(code); }

struct Pipe {
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) throw Error("pipe: " + error_text(errno));
  }
  ~Pipe() {
    for (const int end : ends) {
      if (end >= 0) close(end);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int release(int end) { return std::exchange(ends[end], -1); }
  int ends[2] = {-1, -1};
};

}  // namespace

PeerProcess::PeerProcess(std::vector<std::string> command) : program_(command.at(0)) {
  Pipe requests;
  Pipe answers;
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, requests.ends[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, answers.ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  // A group of its own, so that what it starts can be ended with it.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  const int failed =
      posix_spawnp(&pid_, program_.c_str(), &files, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    throw Error(program_ + " cannot be started: " + error_text(failed),
                "name a program that exists");
  }
  requests_ = requests.release(1);
  answers_ = answers.release(0);
}

PeerProcess::~PeerProcess() {
  close(requests_);
  close(answers_);
  if (pid_ < 0) return;
  kill(-pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::string PeerProcess::how_it_ended() {
  // Its output is closed, so its end is near, but need not have come yet.
  kill(-pid_, SIGTERM);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit code " + std::to_string(WEXITSTATUS(status));
}

std::string PeerProcess::read_line(const std::string& request, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::array<char, 512> buffer{};
  while (pending_.find('\n') == std::string::npos) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd ready{.fd = answers_, .events = POLLIN, .revents = 0};
    const int count = poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (count == 0) {
      throw Error(program_ + " has not answered \"" + request + "\" for " +
                      std::to_string(timeout.count() / 1000) + " s",
                  "measure smaller sizes, or leave this peer out");
    }
    if (count < 0 && errno == EINTR) continue;
    const ssize_t got = count < 0 ? -1 : read(answers_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || pending_.size() > kMaxAnswer) {
      throw Error(program_ + " ended without an answer to \"" + request + "\": " + how_it_ended(),
                  "check that it is the Python of the environment that cmake/setup.sh made");
    }
    pending_.append(buffer.data(), static_cast<std::size_t>(got));
  }
  const std::size_t end = pending_.find('\n');
  std::string line = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  return line;
}

std::string PeerProcess::ask(const std::string& request, std::chrono::milliseconds timeout) {
  const std::string line = request + "\n";
  // Requests are far shorter than a pipe, and there is one at a time: this cannot block. A program
  // that has ended shows when its answer is read.
  if (pid_ < 0) throw Error(program_ + " has ended");
  static_cast<void>(!write(requests_, line.data(), line.size()));
  const std::string answer = read_line(request, timeout);
  if (answer.starts_with("ok ")) return answer.substr(3);
  if (answer.starts_with("error ")) throw Error(answer.substr(6));
  throw Error(program_ + " answered \"" + answer + "\" to \"" + request + "\"");
}

}  // namespace stepscope::bench
