// Communicator over c10d's Gloo; see communicator.h.

#include <ATen/ops/from_blob.h>
#include <c10/util/Logging.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/error.h"
#include "topologies/communicator.h"
#include "topologies/network_interface.h"

namespace stepscope::topologies {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A c10d store answers its handshake at once; something else that holds the port never does.
constexpr milliseconds kHandshake = std::chrono::seconds(5);

// How long the survivors of a failed collective wait for each other to find out who is missing.
constexpr milliseconds kLastWords = std::chrono::seconds(2);

std::string endpoint(const Rendezvous& rendezvous) {
  const bool ipv6 = rendezvous.master_addr.find(':') != std::string::npos;
  const std::string host = ipv6 ? "[" + rendezvous.master_addr + "]" : rendezvous.master_addr;
  return host + ":" + std::to_string(rendezvous.master_port);
}

/// Runs `body`; what c10d or Gloo throw becomes an Error "<doing>: <their message>".
template <typename Body>
auto translated(const Rendezvous& rendezvous, const std::string& doing, const std::string& advice,
                Body&& body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    throw Error(doing + ": " + error.what_without_backtrace(), advice, {.rank = rendezvous.rank});
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(doing + ": " + error.what(), advice, {.rank = rendezvous.rank});
  }
}

struct Addresses {
  addrinfo* list = nullptr;
  ~Addresses() {
    if (list != nullptr) freeaddrinfo(list);
  }
};

/// Resolves MASTER_ADDR now, so that an unknown name fails at once instead of after a timeout.
void resolve(const Rendezvous& rendezvous, Addresses& addresses) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const std::string port = std::to_string(rendezvous.master_port);
  const int status =
      getaddrinfo(rendezvous.master_addr.c_str(), port.c_str(), &hints, &addresses.list);
  if (status != 0) {
    throw Error("MASTER_ADDR \"" + rendezvous.master_addr + "\": " + gai_strerror(status),
                "give a host name or address that this host can resolve",
                {.rank = rendezvous.rank});
  }
}

class Socket {
 public:
  explicit Socket(const addrinfo& address)
      : fd_(socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                   address.ai_protocol)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

bool accepts_connections(const Addresses& addresses) {
  for (const addrinfo* address = addresses.list; address != nullptr; address = address->ai_next) {
    const Socket probe(*address);
    if (probe.fd() < 0) continue;
    if (connect(probe.fd(), address->ai_addr, address->ai_addrlen) == 0) return true;
    if (errno != EINPROGRESS) continue;
    pollfd waiting{.fd = probe.fd(), .events = POLLOUT, .revents = 0};
    if (poll(&waiting, 1, 1000) != 1) continue;
    int failure = 0;
    socklen_t size = sizeof failure;
    if (getsockopt(probe.fd(), SOL_SOCKET, SO_ERROR, &failure, &size) == 0 && failure == 0) {
      return true;
    }
  }
  return false;
}

void wait_until_listening(const Rendezvous& rendezvous, const Addresses& addresses,
                          milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (!accepts_connections(addresses)) {
    if (Clock::now() >= deadline) {
      throw Error(
          "nothing listens on " + endpoint(rendezvous) + " after " +
              std::to_string(timeout.count() / 1000) + " s",
          "check that rank 0 runs and that MASTER_ADDR and MASTER_PORT name its host and port",
          {.rank = rendezvous.rank});
    }
    std::this_thread::sleep_for(milliseconds(100));
  }
}

void require_free_port(const Rendezvous& rendezvous, const Addresses& addresses) {
  for (const addrinfo* address = addresses.list; address != nullptr; address = address->ai_next) {
    const Socket probe(*address);
    if (probe.fd() < 0) continue;
    const int yes = 1;
    setsockopt(probe.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(probe.fd(), address->ai_addr, address->ai_addrlen) != 0 &&
        (errno == EADDRINUSE || errno == EACCES)) {
      throw Error("MASTER_PORT " + std::to_string(rendezvous.master_port) + " on " +
                      rendezvous.master_addr + ": " + std::strerror(errno),
                  "set MASTER_PORT to a free port", {.rank = rendezvous.rank});
    }
  }
}

/// Runs `body` on a thread of its own and returns what it returns. libtorch's calls to the store
/// wait without a timeout when the server is stopped; after `limit` the thread is abandoned with
/// what it owns, and the process ends soon. Throws std::runtime_error then, or what `body` throws.
template <typename Result>
Result bounded(milliseconds limit, std::function<Result()> body) {
  std::packaged_task<Result()> task(std::move(body));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(limit) != std::future_status::ready) {
    throw std::runtime_error("no answer within " + std::to_string(limit.count()) + " ms");
  }
  return result.get();
}

/// libtorch's own warnings about a lost connection would bury the one line that says what happened.
/// A user who sets the variable decides.
void quiet_libtorch() {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
}

c10::intrusive_ptr<c10d::Store> open_store(const Rendezvous& rendezvous, const Timeouts& timeouts) {
  quiet_libtorch();
  Addresses addresses;
  resolve(rendezvous, addresses);
  c10d::TCPStoreOptions options;
  options.port = rendezvous.master_port;
  options.isServer = rendezvous.rank == 0 && !rendezvous.agent_store;
  options.waitWorkers = false;  // the roll call below waits, and can say who is missing
  options.timeout = kHandshake;
  if (options.isServer) {
    require_free_port(rendezvous, addresses);
  } else {
    wait_until_listening(rendezvous, addresses, timeouts.rendezvous);
  }
  auto store =
      translated(rendezvous, "the rendezvous store on " + endpoint(rendezvous) + " does not answer",
                 "the port may be held by another program: set MASTER_PORT to a free port", [&] {
                   return bounded<c10::intrusive_ptr<c10d::TCPStore>>(
                       kHandshake, [host = rendezvous.master_addr, options] {
                         return c10::make_intrusive<c10d::TCPStore>(host, options);
                       });
                 });
  store->setTimeout(timeouts.rendezvous);
  return c10::make_intrusive<c10d::PrefixStore>("stepscope/" + std::to_string(rendezvous.restart),
                                                std::move(store));
}

std::string arrival_key(std::int64_t rank) { return "arrived/" + std::to_string(rank); }

using StorePointer = c10::intrusive_ptr<c10d::Store>;

/// Signs in and finds out whether another process has this rank or another world size.
void sign_in(const Rendezvous& rendezvous, const StorePointer& store) {
  const auto arrivals = bounded<std::int64_t>(
      kHandshake, [store, rank = rendezvous.rank] { return store->add(arrival_key(rank), 1); });
  if (arrivals != 1) {
    throw Error("another process has RANK " + std::to_string(rendezvous.rank) + " in this job",
                "give every process its own RANK, and every job its own MASTER_PORT",
                {.rank = rendezvous.rank});
  }
  const std::string mine = std::to_string(rendezvous.world_size);
  const auto first = bounded<std::string>(kHandshake, [store, mine] {
    const std::vector<std::uint8_t> value(mine.begin(), mine.end());
    const auto found = store->compareSet("world_size", {}, value);
    return std::string(found.begin(), found.end());
  });
  if (first != mine) {
    throw Error("WORLD_SIZE is " + mine + " here and " + first + " on the rank that came first",
                "start every rank with the same WORLD_SIZE", {.rank = rendezvous.rank});
  }
}

/// Waits until every rank has signed in; the Error names the first one that did not.
void roll_call(const Rendezvous& rendezvous, const StorePointer& store, const Timeouts& timeouts) {
  translated(rendezvous, "signing in at " + endpoint(rendezvous),
             "check that rank 0 is still running", [&] {
               sign_in(rendezvous, store);
               const auto deadline = Clock::now() + timeouts.rendezvous;
               for (std::int64_t peer = 0; peer < rendezvous.world_size; ++peer) {
                 while (!bounded<bool>(
                     kHandshake, [store, peer] { return store->check({arrival_key(peer)}); })) {
                   if (Clock::now() >= deadline) {
                     throw Error("rank " + std::to_string(peer) + " of " +
                                     std::to_string(rendezvous.world_size) +
                                     " did not arrive within " +
                                     std::to_string(timeouts.rendezvous.count() / 1000) + " s",
                                 "check that it was started and reaches " + endpoint(rendezvous),
                                 {.rank = rendezvous.rank});
                   }
                   std::this_thread::sleep_for(milliseconds(20));
                 }
               }
             });
}

std::shared_ptr<gloo::transport::Device> make_device(const Rendezvous& rendezvous) {
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  }
  // Ranks of one host need no network, and the host's name may not resolve.
  if (rendezvous.local_world_size == rendezvous.world_size) {
    return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  }
  // Not c10d's default: this host's name, which often means loopback to this host alone.
  return c10d::ProcessGroupGloo::createDeviceForHostname(
      own_address_towards(rendezvous.master_addr));
}

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(const Rendezvous& rendezvous, const Timeouts& timeouts)
      : rendezvous_(rendezvous), timeouts_(timeouts), store_(open_store(rendezvous, timeouts)) {
    roll_call(rendezvous_, store_, timeouts_);
    group_ = translated(
        rendezvous_, "connecting to the other ranks with Gloo",
        "set GLOO_SOCKET_IFNAME to the network interface that the ranks share", [&] {
          return bounded<c10::intrusive_ptr<c10d::ProcessGroupGloo>>(
              timeouts_.collective + kLastWords,
              [store = store_, rendezvous = rendezvous_, timeout = timeouts_.collective] {
                auto options = c10d::ProcessGroupGloo::Options::create(timeout);
                options->devices.push_back(make_device(rendezvous));
                return c10::make_intrusive<c10d::ProcessGroupGloo>(
                    store, static_cast<int>(rendezvous.rank),
                    static_cast<int>(rendezvous.world_size), options);
              });
        });
  }

  std::int64_t rank() const override { return rendezvous_.rank; }
  std::int64_t world_size() const override { return rendezvous_.world_size; }

  void barrier() override {
    collective("barrier", [&] { group_->barrier()->wait(); });
  }

  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine) override {
    const auto length = static_cast<std::int64_t>(mine.size());
    std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(world_size()));
    if (length == 0) return all;
    collective("all-gather", [&] {
      // Gloo only reads the input; from_blob has no const form.
      auto input = at::from_blob(const_cast<std::int64_t*>(mine.data()), {length}, at::kLong);
      auto output = at::from_blob(all.data(), {length * world_size()}, at::kLong);
      group_->_allgather_base(output, input)->wait();
    });
    return all;
  }

  std::vector<std::string> all_gather_text(const std::string& mine) override {
    const auto size = static_cast<std::int64_t>(mine.size());
    const auto sizes = all_gather(std::span(&size, 1));
    const auto longest = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
    std::vector<std::int64_t> words((longest + 7) / 8);
    if (!mine.empty()) std::memcpy(words.data(), mine.data(), mine.size());
    const auto all = all_gather(words);
    std::vector<std::string> texts;
    for (std::size_t peer = 0; peer < sizes.size(); ++peer) {
      const auto* begin = reinterpret_cast<const char*>(all.data() + peer * words.size());
      texts.emplace_back(begin, static_cast<std::size_t>(sizes[peer]));
    }
    return texts;
  }

  void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                  std::span<std::byte> receive,
                  std::span<const std::int64_t> receive_bytes) override {
    collective("all-to-all", [&] {
      // Gloo only reads the input; from_blob has no const form.
      auto input = at::from_blob(const_cast<std::byte*>(send.data()),
                                 {static_cast<std::int64_t>(send.size())}, at::kByte);
      auto output =
          at::from_blob(receive.data(), {static_cast<std::int64_t>(receive.size())}, at::kByte);
      std::vector<std::int64_t> input_counts(send_bytes.begin(), send_bytes.end());
      std::vector<std::int64_t> output_counts(receive_bytes.begin(), receive_bytes.end());
      group_->alltoall_base(output, input, output_counts, input_counts)->wait();
    });
  }

 private:
  template <typename Body>
  void collective(const std::string& name, Body&& body) {
    std::string reason;
    try {
      body();
      return;
    } catch (const c10::Error& error) {
      reason = error.what_without_backtrace();
    } catch (const std::exception& error) {
      reason = error.what();
    }
    throw Error(name + " failed, " + missing_peers() + " (Gloo: " + essence(reason) + ")",
                "look at that rank's output; --timeout sets how long a rank waits",
                {.rank = rendezvous_.rank});
  }

  /// Who does not answer, for the message: every rank that noticed the failure signs the store, and
  /// those that did not sign within a moment are named.
  std::string missing_peers() {
    try {
      return bounded<std::string>(
          2 * kLastWords, [store = store_, me = rendezvous_.rank, size = rendezvous_.world_size] {
            store->set(failure_key(me), std::vector<std::uint8_t>{1});
            const auto deadline = Clock::now() + kLastWords;
            std::string names;
            do {
              std::this_thread::sleep_for(milliseconds(50));
              names.clear();
              for (std::int64_t peer = 0; peer < size; ++peer) {
                if (!store->check({failure_key(peer)})) names += " " + std::to_string(peer);
              }
            } while (!names.empty() && Clock::now() < deadline);
            return names.empty() ? "all ranks are alive" : "no answer from peer rank" + names;
          });
    } catch (const std::exception&) {
      // The store itself does not answer: under torchrun it is with the agent, otherwise rank 0.
      return rendezvous_.agent_store ? "the launcher does not answer"
                                     : "no answer from peer rank 0";
    }
  }

  static std::string failure_key(std::int64_t rank) { return "failed/" + std::to_string(rank); }

  /// Gloo's message without its source path and its general advice.
  static std::string essence(std::string text) {
    if (text.starts_with('[')) text.erase(0, std::min(text.find("] ") + 2, text.size()));
    return text.substr(0, text.find(". This is typically"));
  }

  Rendezvous rendezvous_;
  Timeouts timeouts_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::unique_ptr<Communicator> connect_gloo(const Rendezvous& rendezvous, const Timeouts& timeouts) {
  // Before any rank waits for another.
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    require_interface("GLOO_SOCKET_IFNAME", interface);
  }
  return std::make_unique<GlooCommunicator>(rendezvous, timeouts);
}

}  // namespace stepscope::topologies
