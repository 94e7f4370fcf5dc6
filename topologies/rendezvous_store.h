#pragma once

/// Purpose: the c10d store where the ranks of a job meet: who has arrived, and, after a failure,
/// who does not answer.
///
/// Usage:
///     auto store = std::make_shared<RendezvousStore>(rendezvous, timeouts);   // all ranks meet
///     auto group = ProcessGroupGloo(store->handle(), ...);
///     ... catch (...) { throw Error("barrier failed, " + store->missing_peers(members)); }
///
/// Caveats: includes libtorch; for the implementations of Communicator only.

#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "core/error.h"
#include "topologies/communicator.h"
#include "topologies/rendezvous.h"

namespace stepscope::topologies {

/// Runs `body` on a thread of its own, which nobody has to wait for: libtorch's calls to the store
/// wait without a timeout when the server is stopped.
template <typename Result>
std::future<Result> aside(std::function<Result()> body) {
  std::packaged_task<Result()> task(std::move(body));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  return result;
}

/// Runs `body` aside and returns what it returns. After `limit` the thread is abandoned with what
/// it owns, and the process ends soon. Throws std::runtime_error then, or what `body` throws.
template <typename Result>
Result bounded(std::chrono::milliseconds limit, std::function<Result()> body) {
  auto result = aside<Result>(std::move(body));
  if (result.wait_for(limit) != std::future_status::ready) {
    throw std::runtime_error("no answer within " + std::to_string(limit.count()) + " ms");
  }
  return result.get();
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

/// How long the survivors of a failed collective wait for each other to find out who is missing.
inline constexpr std::chrono::milliseconds kLastWords = std::chrono::seconds(3);

/// How often a rank that waits in a collective looks whether another one has noticed a failure.
/// Twice this and the store's answer are well within kLastWords.
inline constexpr std::chrono::milliseconds kGlance{250};

class RendezvousStore {
 public:
  /// Opens the store (rank 0 serves it, unless a launcher does) and returns when every rank has
  /// signed in. Throws Error naming the address, the port, or the rank that did not arrive.
  RendezvousStore(const Rendezvous& rendezvous, const Timeouts& timeouts);

  const c10::intrusive_ptr<c10d::Store>& handle() const noexcept { return store_; }
  const Rendezvous& rendezvous() const noexcept { return rendezvous_; }

  /// For the message of a failed collective among `members` (ranks of the job): every rank that
  /// noticed the failure signs the store, and those that did not sign within a moment are named.
  /// Where all signed, the failure is another group's, and the ranks that it names are. The rank
  /// that serves the store returns when the others that signed have found out, too. The first call
  /// of a process decides: later ones repeat its answer at once.
  std::string missing_peers(std::span<const std::int64_t> members) const;

  /// Whether some rank is known to have called missing_peers(). Never waits for the store: a call
  /// looks for the answer to what an earlier one asked, and then asks again.
  bool failure_reported() const;

 private:
  std::string find_missing(const std::vector<std::int64_t>& members) const;
  void let_others_find_out() const;

  Rendezvous rendezvous_;
  c10::intrusive_ptr<c10d::Store> store_;
  mutable std::mutex mutex_;                  ///< guards what follows
  mutable std::optional<std::string> found_;  ///< by the first missing_peers()
  mutable std::future<bool> reported_;        ///< what failure_reported() has asked
  mutable bool store_is_gone_ = false;
};

}  // namespace stepscope::topologies
