#include "topologies/nccl_communicator.h"

#include <cstring>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "topologies/rendezvous_store.h"

namespace stepscope::topologies {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// How often a waiting rank looks whether another one has given up.
constexpr milliseconds kWatchEvery = kGlance;

/// Short work is awaited without sleeping, as a sleep would be longer than it.
constexpr int kEagerPolls = 2000;

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, std::shared_ptr<NcclApi> api,
                   PeerWatch watch, milliseconds timeout, std::vector<std::int64_t> members)
      : host_(std::move(host)),
        api_(std::move(api)),
        watch_(std::move(watch)),
        timeout_(timeout),
        members_(std::move(members)) {}

  ~NcclCommunicator() override {
    if (comm_ == nullptr) return;
    // An orderly end waits for the peers; where they are gone, it ends all the same.
    try {
      const auto deadline = Clock::now() + kLastWords;
      settle(api_->finalize(comm_), deadline);
      require(api_->destroy(comm_));
    } catch (const std::exception&) {
      abort();
    }
  }

  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  std::int64_t rank() const override { return host_->rank(); }
  std::int64_t world_size() const override { return host_->world_size(); }
  void barrier() override { host_->barrier(); }
  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine) override {
    return host_->all_gather(mine);
  }
  std::vector<std::string> all_gather_text(const std::string& mine) override {
    return host_->all_gather_text(mine);
  }

  void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                  std::span<std::byte> receive,
                  std::span<const std::int64_t> receive_bytes) override {
    run("all-to-all", [&] {
      require(api_->group_start());
      const std::byte* out = send.data();
      std::byte* in = receive.data();
      // The group is closed whatever happens in it, or later calls would join it.
      int failure = kNcclSuccess;
      const auto keep_first = [&](int result) {
        if (failure == kNcclSuccess && result != kNcclInProgress) failure = result;
      };
      for (std::int64_t peer = 0; peer < world_size(); ++peer) {
        const auto index = static_cast<std::size_t>(peer);
        if (send_bytes[index] > 0) keep_first(api_->send(out, send_bytes[index], peer, comm_));
        if (receive_bytes[index] > 0) {
          keep_first(api_->receive(in, receive_bytes[index], peer, comm_));
        }
        out += send_bytes[index];
        in += receive_bytes[index];
      }
      const int ended = api_->group_end();
      return failure != kNcclSuccess ? failure : ended;
    });
  }

  void all_gather_into(kernels::DType dtype, const void* mine, std::int64_t numel,
                       void* all) override {
    if (numel == 0) return;
    run("all-gather", [&] { return api_->all_gather(dtype, mine, numel, all, comm_); });
  }

  void reduce_scatter(kernels::DType dtype, Reduction reduction, const void* all,
                      std::int64_t numel, void* mine) override {
    if (numel == 0) return;
    run("reduce-scatter",
        [&] { return api_->reduce_scatter(dtype, reduction, all, numel, mine, comm_); });
  }

  void all_reduce(kernels::DType dtype, Reduction reduction, void* data,
                  std::int64_t numel) override {
    if (numel == 0) return;
    run("all-reduce", [&] { return api_->all_reduce(dtype, reduction, data, numel, comm_); });
  }

  void broadcast(kernels::DType dtype, std::int64_t root, void* data, std::int64_t numel) override {
    if (numel == 0) return;
    run("broadcast", [&] { return api_->broadcast(dtype, root, data, numel, comm_); });
  }

  std::unique_ptr<Communicator> split(std::int64_t group) override {
    auto host = host_->split(group);
    auto members = host->all_gather(std::span(&job_rank(), 1));
    return std::make_unique<NcclCommunicator>(std::move(host), api_, watch_, timeout_,
                                              std::move(members));
  }

 private:
  const std::int64_t& job_rank() const { return members_[static_cast<std::size_t>(rank())]; }

  /// Throws std::runtime_error with NCCL's words unless `result` is success or in progress.
  void require(int result) const {
    if (result == kNcclSuccess || result == kNcclInProgress) return;
    throw std::runtime_error(api_->error_text(result, comm_));
  }

  /// Returns when what `result` began has ended.
  void settle(int result, Clock::time_point deadline) {
    require(result);
    wait(deadline, [&] {
      int state = kNcclSuccess;
      require(api_->async_error(comm_, state));
      require(state);
      return state == kNcclSuccess;
    });
  }

  template <typename Done>
  void wait(Clock::time_point deadline, Done done) {
    auto next_watch = Clock::now() + kWatchEvery;
    for (int polls = 0; !done(); ++polls) {
      const auto now = Clock::now();
      if (now >= deadline) {
        throw std::runtime_error("not done within " + std::to_string(timeout_.count()) + " ms");
      }
      if (now >= next_watch) {
        if (watch_.failure_reported()) throw std::runtime_error("another rank has failed");
        next_watch = now + kWatchEvery;
      }
      if (polls < kEagerPolls) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }

  /// Collective on the host. Its Errors name peers themselves.
  NcclUniqueId agree_on_id() {
    NcclUniqueId id;
    together(*host_, [&] {
      if (rank() == 0) require(api_->get_unique_id(id));
    });
    const std::string mine =
        rank() == 0 ? std::string(id.bytes.data(), id.bytes.size()) : std::string();
    const std::string text = host_->all_gather_text(mine).front();
    std::memcpy(id.bytes.data(), text.data(), id.bytes.size());
    return id;
  }

  /// Runs one collective: `enqueue` returns NCCL's result.
  template <typename Enqueue>
  void run(const std::string& name, Enqueue enqueue) {
    if (failed_) {
      throw CollectiveError(name + " is asked of a communicator that has failed",
                            "start the job again", {.rank = job_rank()});
    }
    std::optional<NcclUniqueId> id;
    if (comm_ == nullptr) id = agree_on_id();
    std::string reason;
    try {
      const auto deadline = Clock::now() + timeout_;
      if (id) settle(api_->init(comm_, world_size(), *id, rank()), deadline);
      settle(enqueue(), deadline);
      api_->mark();
      wait(deadline, [&] {
        int state = kNcclSuccess;
        require(api_->async_error(comm_, state));
        require(state);
        return api_->reached_mark();
      });
      return;
    } catch (const Error& error) {
      reason = error.what_failed();
    } catch (const std::exception& error) {
      reason = error.what();
    }
    failed_ = true;
    const std::string peers = watch_.missing_peers(members_);
    abort();
    throw CollectiveError(name + " failed, " + peers + " (nccl: " + reason + ")",
                          "look at that rank's output; --timeout sets how long a rank waits",
                          {.rank = job_rank()});
  }

  /// ncclCommAbort may itself wait for a device that hangs; the process ends soon then.
  void abort() noexcept {
    if (comm_ == nullptr) return;
    try {
      bounded<int>(kLastWords, [api = api_, comm = comm_] { return api->abort(comm); });
    } catch (const std::exception&) {
      // The failure that led here is what is reported.
    }
    comm_ = nullptr;
  }

  std::unique_ptr<Communicator> host_;
  std::shared_ptr<NcclApi> api_;
  PeerWatch watch_;
  milliseconds timeout_;
  std::vector<std::int64_t> members_;  ///< by rank here, the ranks of the job
  ncclComm* comm_ = nullptr;           ///< null before the first collective and after a failure
  bool failed_ = false;
};

}  // namespace

PeerWatch watch_of(const std::shared_ptr<const RendezvousStore>& store) {
  return {.missing_peers = [store](auto members) { return store->missing_peers(members); },
          .failure_reported = [store] { return store->failure_reported(); }};
}

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     std::shared_ptr<NcclApi> api, PeerWatch watch,
                                                     milliseconds timeout) {
  std::vector<std::int64_t> everyone(static_cast<std::size_t>(host->world_size()));
  std::iota(everyone.begin(), everyone.end(), std::int64_t{0});
  return std::make_unique<NcclCommunicator>(std::move(host), std::move(api), std::move(watch),
                                            timeout, std::move(everyone));
}

}  // namespace stepscope::topologies
