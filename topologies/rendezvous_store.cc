#include "topologies/rendezvous_store.h"

#include <c10/util/Logging.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace stepscope::topologies {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A c10d store answers its handshake at once, though on a machine with many more ranks than cores
// seconds later; something else that holds the port never does.
constexpr milliseconds kHandshake = std::chrono::seconds(10);

std::string endpoint(const Rendezvous& rendezvous) {
  const bool ipv6 = rendezvous.master_addr.find(':') != std::string::npos;
  const std::string host = ipv6 ? "[" + rendezvous.master_addr + "]" : rendezvous.master_addr;
  return host + ":" + std::to_string(rendezvous.master_port);
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

/// libtorch's own warnings about a lost connection would bury the one line that says what happened.
/// A user who sets the variable decides.
void quiet_libtorch() {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
}

/// The store's and Gloo's sockets raise SIGPIPE where a peer has just left. By default that would
/// end this rank without a word; ignored, the write fails and becomes an Error that names the peer.
void survive_lost_peers() {
  struct sigaction current{};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

c10::intrusive_ptr<c10d::Store> open_store(const Rendezvous& rendezvous, const Timeouts& timeouts) {
  survive_lost_peers();
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
/// Set by the first rank that cannot take part: "<its rank> <its world size>".
constexpr const char* kRefusal = "refusal";
/// Set by every rank that stops for the refusal, its own or another's.
std::string heard_key(std::int64_t rank) { return "heard/" + std::to_string(rank); }

using StorePointer = c10::intrusive_ptr<c10d::Store>;

std::vector<std::uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<std::uint8_t>& value) { return {value.begin(), value.end()}; }

/// Waits a moment until every other rank has heard of the refusal.
void let_others_hear(const Rendezvous& rendezvous, const StorePointer& store) {
  bounded<bool>(2 * kLastWords, [rendezvous, store] {
    const auto deadline = Clock::now() + kLastWords;
    for (std::int64_t peer = 0; peer < rendezvous.world_size; ++peer) {
      while (peer != rendezvous.rank && !store->check({heard_key(peer)})) {
        if (Clock::now() >= deadline) return false;
        std::this_thread::sleep_for(milliseconds(20));
      }
    }
    return true;
  });
}

/// Ends this rank for a refusal. One that serves the store stays until the others know, too.
[[noreturn]] void stop_for_refusal(const Rendezvous& rendezvous, const StorePointer& store,
                                   const std::string& theirs) {
  if (rendezvous.rank == 0 && !rendezvous.agent_store) let_others_hear(rendezvous, store);
  throw Error("WORLD_SIZE is " + std::to_string(rendezvous.world_size) + " here and " + theirs,
              "start every rank with the same WORLD_SIZE", {.rank = rendezvous.rank});
}

/// Signs in and finds out whether another process has this rank or another world size.
void sign_in(const Rendezvous& rendezvous, const StorePointer& store) {
  const std::string mine = std::to_string(rendezvous.world_size);
  const auto first = bounded<std::string>(kHandshake, [store, mine] {
    return text_of(store->compareSet("world_size", {}, bytes(mine)));
  });
  if (first != mine) {
    bounded<bool>(kHandshake, [store, rank = rendezvous.rank, mine] {
      store->compareSet(kRefusal, {}, bytes(std::to_string(rank) + " " + mine));
      store->set(heard_key(rank), bytes("1"));
      return true;
    });
    stop_for_refusal(rendezvous, store, first + " on the rank that came first");
  }
  const auto arrivals = bounded<std::int64_t>(
      kHandshake, [store, rank = rendezvous.rank] { return store->add(arrival_key(rank), 1); });
  if (arrivals != 1) {
    throw Error("another process has RANK " + std::to_string(rendezvous.rank) + " in this job",
                "give every process its own RANK, and every job its own MASTER_PORT",
                {.rank = rendezvous.rank});
  }
}

/// Whether `peer` has signed in. Throws where a rank that has not was refused: it will not come.
bool has_arrived(const Rendezvous& rendezvous, const StorePointer& store, std::int64_t peer) {
  using Answer = std::pair<bool, std::string>;
  const auto [arrived, refusal] = bounded<Answer>(kHandshake, [store, peer]() -> Answer {
    if (store->check({arrival_key(peer)})) return {true, ""};
    return {false, store->check({kRefusal}) ? text_of(store->get(kRefusal)) : ""};
  });
  if (arrived || refusal.empty()) return arrived;
  std::istringstream words(refusal);
  std::int64_t rank = 0;
  std::int64_t world_size = 0;
  words >> rank >> world_size;
  const bool stays_away = bounded<bool>(kHandshake, [store, rank, self = rendezvous.rank] {
    if (store->check({arrival_key(rank)})) return false;  // it was another process with its number
    store->set(heard_key(self), bytes("1"));
    return true;
  });
  if (!stays_away) return false;
  stop_for_refusal(rendezvous, store,
                   std::to_string(world_size) + " on rank " + std::to_string(rank));
}

/// Waits until every rank has signed in; the Error names the first one that did not.
void roll_call(const Rendezvous& rendezvous, const StorePointer& store, const Timeouts& timeouts) {
  translated(rendezvous, "signing in at " + endpoint(rendezvous),
             "check that rank 0 is still running", [&] {
               sign_in(rendezvous, store);
               const auto deadline = Clock::now() + timeouts.rendezvous;
               for (std::int64_t peer = 0; peer < rendezvous.world_size; ++peer) {
                 while (!has_arrived(rendezvous, store, peer)) {
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

/// Set by every rank that notices a failure.
constexpr const char* kFailureOfAny = "failed/any";
std::string failure_key(std::int64_t rank) { return "failed/" + std::to_string(rank); }
/// Set by such a rank when it has found out who is missing: their numbers, or none.
std::string blame_key(std::int64_t rank) { return "blames/" + std::to_string(rank); }

/// Waits a moment for `members` to sign that they noticed a failure; those that did not.
std::set<std::int64_t> unsigned_members(c10d::Store& store,
                                        const std::vector<std::int64_t>& members) {
  const auto deadline = Clock::now() + kLastWords;
  std::set<std::int64_t> missing(members.begin(), members.end());
  while (true) {
    std::erase_if(missing, [&](std::int64_t peer) { return store.check({failure_key(peer)}); });
    if (missing.empty() || Clock::now() >= deadline) return missing;
    std::this_thread::sleep_for(milliseconds(50));
  }
}

/// The ranks that `members` found missing, in groups of theirs.
std::set<std::int64_t> blamed_by(c10d::Store& store, const std::vector<std::int64_t>& members,
                                 std::int64_t self) {
  const auto deadline = Clock::now() + kLastWords;
  std::set<std::int64_t> blamed;
  for (const std::int64_t peer : members) {
    if (peer == self) continue;
    while (!store.check({blame_key(peer)}) && Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(50));
    }
    if (!store.check({blame_key(peer)})) continue;
    const auto text = store.get(blame_key(peer));
    std::istringstream words(std::string(text.begin(), text.end()));
    for (std::int64_t rank = 0; words >> rank;) blamed.insert(rank);
  }
  return blamed;
}

/// Waits a moment until every rank that noticed the failure has found out who is missing; false
/// where one has not.
bool all_have_found_out(c10d::Store& store, std::int64_t world_size) {
  const auto deadline = Clock::now() + 2 * kLastWords;
  for (std::int64_t peer = 0; peer < world_size; ++peer) {
    while (store.check({failure_key(peer)}) && !store.check({blame_key(peer)})) {
      if (Clock::now() >= deadline) return false;
      std::this_thread::sleep_for(milliseconds(50));
    }
  }
  return true;
}

std::string joined(const std::set<std::int64_t>& ranks) {
  std::string text;
  for (const std::int64_t rank : ranks) text += " " + std::to_string(rank);
  return text;
}

}  // namespace

RendezvousStore::RendezvousStore(const Rendezvous& rendezvous, const Timeouts& timeouts)
    : rendezvous_(rendezvous), store_(open_store(rendezvous, timeouts)) {
  roll_call(rendezvous_, store_, timeouts);
}

std::string RendezvousStore::missing_peers(std::span<const std::int64_t> members) const {
  const std::scoped_lock lock(mutex_);
  if (!found_) found_ = find_missing({members.begin(), members.end()});
  return *found_;
}

std::string RendezvousStore::find_missing(const std::vector<std::int64_t>& members) const {
  std::string found;
  try {
    found = bounded<std::string>(3 * kLastWords, [store = store_, place = rendezvous_, members] {
      store->set(failure_key(place.rank), bytes("1"));
      store->set(kFailureOfAny, bytes("1"));
      std::set<std::int64_t> missing = unsigned_members(*store, members);
      if (missing.empty()) missing = blamed_by(*store, members, place.rank);
      store->set(blame_key(place.rank), bytes(joined(missing)));
      return missing.empty() ? "all ranks are alive" : "no answer from peer rank" + joined(missing);
    });
  } catch (const std::exception&) {
    // The store itself does not answer: under torchrun it is with the agent, otherwise rank 0.
    return rendezvous_.agent_store ? "the launcher does not answer" : "no answer from peer rank 0";
  }
  const bool serves_store = rendezvous_.rank == 0 && !rendezvous_.agent_store;
  if (serves_store) let_others_find_out();
  return found;
}

void RendezvousStore::let_others_find_out() const {
  // The store ends with this process: whoever still asks would take this rank for the lost one.
  try {
    bounded<bool>(3 * kLastWords, [store = store_, world_size = rendezvous_.world_size] {
      return all_have_found_out(*store, world_size);
    });
  } catch (const std::exception&) {
    // Then they will.
  }
}

bool RendezvousStore::failure_reported() const {
  const std::scoped_lock lock(mutex_);
  bool reported = false;
  if (reported_.valid()) {
    if (reported_.wait_for(milliseconds(0)) != std::future_status::ready) return false;
    try {
      reported = reported_.get();
    } catch (const std::exception&) {
      store_is_gone_ = true;  // which is no failure: the rank that served it may have done its work
    }
  }
  if (store_is_gone_) return false;
  reported_ = aside<bool>([store = store_] { return store->check({kFailureOfAny}); });
  return reported;
}

}  // namespace stepscope::topologies
