// NcclCommunicator over a double of NCCL: NcclApi is the seam. What NCCL itself does needs GPUs.

#include "topologies/nccl_communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>

#include "tests/core/error_text.h"
#include "tests/topologies/forked_ranks.h"
#include "tests/topologies/thread_world.h"
#include "topologies/gloo_communicator.h"

namespace stepscope::topologies {
namespace {

using kernels::DType;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kSystemError = 2;
constexpr milliseconds kLong = std::chrono::minutes(10);

}  // namespace
}  // namespace stepscope::topologies

/// What a communicator of the double is.
struct ncclComm {
  std::unique_ptr<stepscope::topologies::Communicator> peers;
};

namespace stepscope::topologies {
namespace {

/// Does at once, between threads, what NCCL would enqueue; goes wrong where it is told to.
class FakeNccl final : public NcclApi {
 public:
  /// `world` joins all ranks of the job; null where nothing is to be moved.
  explicit FakeNccl(Communicator* world = nullptr) : world_(world) {}

  // What goes wrong, and when.
  int id_result = kNcclSuccess;
  int init_result = kNcclSuccess;
  int enqueue_result = kNcclSuccess;
  int polls_in_progress = 0;        ///< async_error() says so many times that work is under way
  int async_result = kNcclSuccess;  ///< then this
  bool stuck = false;               ///< the device never gets to the mark
  bool device_lost = false;         ///< mark() throws
  bool never_finalized = false;

  // What was called.
  int inits = 0, aborts = 0, destroys = 0, open_groups = 0;
  std::deque<std::string> calls;

  int get_unique_id(NcclUniqueId& id) override {
    id.bytes[0] = static_cast<char>('0' + world_rank());
    id.bytes[127] = 'x';
    return id_result;
  }
  int init(ncclComm*& comm, std::int64_t ranks, const NcclUniqueId& id,
           std::int64_t rank) override {
    ++inits;
    EXPECT_EQ(id.bytes[127], 'x');
    if (init_result != kNcclSuccess && init_result != kNcclInProgress) return init_result;
    comms_.push_back(std::make_unique<ncclComm>());
    comm = comms_.back().get();
    if (world_ != nullptr) {
      comm->peers = world_->split(id.bytes[0] - '0');
      EXPECT_EQ(comm->peers->rank(), rank);
      EXPECT_EQ(comm->peers->world_size(), ranks);
    }
    return init_result;
  }
  int async_error(ncclComm* comm, int& result) override {
    EXPECT_NE(comm, nullptr);
    if (finalizing_ && never_finalized) {
      result = kNcclInProgress;
    } else {
      result = polls_in_progress > 0 ? kNcclInProgress : async_result;
      if (polls_in_progress > 0) --polls_in_progress;
    }
    return kNcclSuccess;
  }
  int finalize(ncclComm* /*comm*/) override {
    finalizing_ = true;
    return kNcclInProgress;
  }
  int destroy(ncclComm* /*comm*/) override {
    ++destroys;
    return kNcclSuccess;
  }
  int abort(ncclComm* /*comm*/) override {
    ++aborts;
    return kNcclSuccess;
  }

  int all_gather(DType dtype, const void* mine, std::int64_t numel, void* all,
                 ncclComm* comm) override {
    return enqueue(comm, [&] { comm->peers->all_gather_into(dtype, mine, numel, all); });
  }
  int reduce_scatter(DType dtype, Reduction reduction, const void* all, std::int64_t numel,
                     void* mine, ncclComm* comm) override {
    return enqueue(comm, [&] { comm->peers->reduce_scatter(dtype, reduction, all, numel, mine); });
  }
  int all_reduce(DType dtype, Reduction reduction, void* data, std::int64_t numel,
                 ncclComm* comm) override {
    return enqueue(comm, [&] { comm->peers->all_reduce(dtype, reduction, data, numel); });
  }
  int broadcast(DType dtype, std::int64_t root, void* data, std::int64_t numel,
                ncclComm* comm) override {
    return enqueue(comm, [&] { comm->peers->broadcast(dtype, root, data, numel); });
  }
  int send(const void* data, std::int64_t bytes, std::int64_t peer, ncclComm* comm) override {
    EXPECT_EQ(open_groups, 1);
    comm_of_group_ = comm;
    sends_[peer] = {static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes)};
    return enqueue_result;
  }
  int receive(void* data, std::int64_t bytes, std::int64_t peer, ncclComm* comm) override {
    EXPECT_EQ(open_groups, 1);
    comm_of_group_ = comm;
    receives_[peer] = {static_cast<std::byte*>(data), static_cast<std::size_t>(bytes)};
    return enqueue_result;
  }
  int group_start() override {
    ++open_groups;
    return kNcclSuccess;
  }
  int group_end() override {
    --open_groups;
    if (enqueue_result != kNcclSuccess) return kNcclSuccess;  // what failed was said before
    if (comm_of_group_ != nullptr && comm_of_group_->peers) exchange();
    return kNcclSuccess;
  }

  std::string error_text(int result, ncclComm* /*comm*/) override {
    return "nccl error " + std::to_string(result);
  }
  void mark() override {
    if (device_lost) throw Error("cudaEventRecord failed: the device is lost");
  }
  bool reached_mark() override { return !stuck; }

 private:
  std::int64_t world_rank() const { return world_ == nullptr ? 0 : world_->rank(); }

  template <typename Do>
  int enqueue(const ncclComm* comm, Do move) {
    if (enqueue_result != kNcclSuccess) return enqueue_result;
    if (comm->peers) move();
    return kNcclInProgress;
  }

  /// The sends and receives of a group, with what they tell of each peer.
  void exchange() {
    Communicator& peers = *comm_of_group_->peers;
    std::vector<std::byte> out, in;
    std::vector<std::int64_t> out_bytes, in_bytes;
    for (std::int64_t peer = 0; peer < peers.world_size(); ++peer) {
      const auto& part = sends_[peer];
      out.insert(out.end(), part.begin(), part.end());
      out_bytes.push_back(static_cast<std::int64_t>(part.size()));
      in_bytes.push_back(static_cast<std::int64_t>(receives_[peer].size()));
      in.resize(in.size() + receives_[peer].size());
    }
    peers.all_to_all(out, out_bytes, in, in_bytes);
    const std::byte* next = in.data();
    for (auto& [peer, part] : receives_) {
      std::copy_n(next, part.size(), part.data());
      next += part.size();
    }
    sends_.clear();
    receives_.clear();
  }

  Communicator* world_;
  std::vector<std::unique_ptr<ncclComm>> comms_;
  bool finalizing_ = false;
  ncclComm* comm_of_group_ = nullptr;
  std::map<std::int64_t, std::span<const std::byte>> sends_;
  std::map<std::int64_t, std::span<std::byte>> receives_;
};

/// Knows of no failure of others, and finds rank 7 missing.
PeerWatch watch(std::shared_ptr<std::atomic<bool>> reported = nullptr) {
  return {.missing_peers = [](auto) { return std::string("no answer from peer rank 7"); },
          .failure_reported = [reported] { return reported && *reported; }};
}

/// Runs `body` on ranks that are threads, over the double.
void on_threads(std::int64_t size, const std::function<void(Communicator&)>& body) {
  ThreadWorld(size).run([&](Communicator& world) {
    const auto api = std::make_shared<FakeNccl>(&world);
    const auto communicator = make_nccl_communicator(world.split(0), api, watch(), kLong);
    body(*communicator);
    EXPECT_EQ(api->aborts, 0);
  });
}

/// One rank that is alone, whose double `api` is; `act` must throw. Its Error's text.
std::string failure(const std::shared_ptr<FakeNccl>& api, milliseconds timeout = kLong,
                    PeerWatch peers = watch()) {
  std::string text;
  ThreadWorld(1).run([&](Communicator& world) {
    const auto communicator =
        make_nccl_communicator(world.split(0), api, std::move(peers), timeout);
    float value = 1;
    text = error_text([&] { communicator->all_reduce(DType::fp32, Reduction::sum, &value, 1); });
    // Neither a hang nor a result follows.
    const std::string next =
        error_text([&] { communicator->all_gather_into(DType::fp32, &value, 1, &value); });
    EXPECT_NE(next.find("all-gather is asked of a communicator that has failed"), std::string::npos)
        << next;
  });
  return text;
}

TEST(NcclCommunicator, CollectivesMoveWhatCommunicatorPromises) {
  on_threads(3, [](Communicator& communicator) {
    const auto rank = static_cast<float>(communicator.rank());
    const float mine[] = {rank, 10 * rank};
    float all[6];
    communicator.all_gather_into(DType::fp32, mine, 2, all);
    EXPECT_EQ(std::vector<float>(all, all + 6), (std::vector<float>{0, 0, 1, 10, 2, 20}));
    float part = 0;
    const float parts[] = {3, 6 + rank, 9};
    communicator.reduce_scatter(DType::fp32, Reduction::mean, parts, 1, &part);
    EXPECT_EQ(part, (std::vector<float>{3, 7, 9})[static_cast<std::size_t>(rank)]);
    float sum = 1 + rank;
    communicator.all_reduce(DType::fp32, Reduction::sum, &sum, 1);
    EXPECT_EQ(sum, 6);
    float told = rank;
    communicator.broadcast(DType::fp32, 1, &told, 1);
    EXPECT_EQ(told, 1);
    EXPECT_EQ(max_over_ranks(communicator, communicator.rank()), 2);
  });
}

TEST(NcclCommunicator, AllToAllHandsPartsOfAnySizeToTheRightRank) {
  on_threads(3, [](Communicator& communicator) {
    // Rank s sends s + 2 r bytes, all of them 10 s + r, to rank r; rank 0 sends itself nothing.
    const auto me = communicator.rank();
    std::vector<std::byte> send, expected;
    std::vector<std::int64_t> send_bytes, receive_bytes;
    for (std::int64_t peer = 0; peer < 3; ++peer) {
      send_bytes.push_back(me + 2 * peer);
      send.insert(send.end(), static_cast<std::size_t>(me + 2 * peer), std::byte(10 * me + peer));
      receive_bytes.push_back(peer + 2 * me);
      expected.insert(expected.end(), static_cast<std::size_t>(peer + 2 * me),
                      std::byte(10 * peer + me));
    }
    std::vector<std::byte> receive(expected.size());
    for (int twice = 0; twice < 2; ++twice) {
      std::fill(receive.begin(), receive.end(), std::byte(0));
      communicator.all_to_all(send, send_bytes, receive, receive_bytes);
      EXPECT_EQ(receive, expected);
    }
  });
}

TEST(NcclCommunicator, ASplitJoinsTheRanksOfOneGroup) {
  on_threads(4, [](Communicator& communicator) {
    const auto half = communicator.split(communicator.rank() / 2);
    float sum = static_cast<float>(communicator.rank());
    half->all_reduce(DType::fp32, Reduction::sum, &sum, 1);
    EXPECT_EQ(sum, communicator.rank() < 2 ? 1 : 5);
  });
}

TEST(NcclCommunicator, NcclIsJoinedOnceAndLeftInOrder) {
  const auto api = std::make_shared<FakeNccl>();
  ThreadWorld(1).run([&](Communicator& world) {
    const auto communicator = make_nccl_communicator(world.split(0), api, watch(), kLong);
    communicator->all_gather_into(DType::fp32, nullptr, 0, nullptr);
    communicator->barrier();
    EXPECT_EQ(api->inits, 0) << "numbers and nothing need no NCCL";
    float value = 1;
    api->init_result = kNcclInProgress;
    api->polls_in_progress = 3;
    communicator->all_reduce(DType::fp32, Reduction::sum, &value, 1);
    EXPECT_EQ(api->polls_in_progress, 0) << "what is under way is awaited";
    communicator->all_reduce(DType::fp32, Reduction::sum, &value, 1);
  });
  EXPECT_EQ(api->inits, 1);
  EXPECT_EQ(api->destroys, 1);
  EXPECT_EQ(api->aborts, 0);
}

TEST(NcclCommunicator, WhereAnOrderlyEndHasNoEndItIsAborted) {
  const auto api = std::make_shared<FakeNccl>();
  api->never_finalized = true;
  ThreadWorld(1).run([&](Communicator& world) {
    const auto communicator = make_nccl_communicator(world.split(0), api, watch(), kLong);
    float value = 1;
    communicator->all_reduce(DType::fp32, Reduction::sum, &value, 1);
  });
  EXPECT_EQ(api->destroys, 0);
  EXPECT_EQ(api->aborts, 1);
}

TEST(NcclCommunicator, AnErrorOfNcclNamesTheCollectiveThePeerAndNcclsWords) {
  const auto api = std::make_shared<FakeNccl>();
  api->enqueue_result = kSystemError;
  EXPECT_EQ(failure(api),
            "rank 0: all-reduce failed, no answer from peer rank 7 (nccl: nccl error 2); look at "
            "that rank's output; --timeout sets how long a rank waits");
  EXPECT_EQ(api->aborts, 1);
  EXPECT_EQ(api->destroys, 0);
}

TEST(NcclCommunicator, AnErrorThatComesLaterIsNoticedWhileWaiting) {
  const auto api = std::make_shared<FakeNccl>();
  api->polls_in_progress = 1;
  api->async_result = kSystemError;
  EXPECT_NE(failure(api).find("nccl error 2"), std::string::npos);
  EXPECT_EQ(api->aborts, 1);
}

TEST(NcclCommunicator, WorkThatDoesNotEndIsAbortedAfterTheTimeout) {
  const auto api = std::make_shared<FakeNccl>();
  api->stuck = true;
  const std::string text = failure(api, milliseconds(30));
  EXPECT_NE(text.find("peer rank 7 (nccl: not done within 30 ms)"), std::string::npos) << text;
  EXPECT_EQ(api->aborts, 1);
}

TEST(NcclCommunicator, AFailureOfAnotherRankEndsTheWaitBeforeTheTimeout) {
  const auto api = std::make_shared<FakeNccl>();
  api->stuck = true;
  const std::string text = failure(api, kLong, watch(std::make_shared<std::atomic<bool>>(true)));
  EXPECT_NE(text.find("nccl: another rank has failed"), std::string::npos) << text;
  EXPECT_EQ(api->aborts, 1);
}

TEST(NcclCommunicator, AnErrorOfTheDeviceIsAFailureOfTheCollective) {
  const auto api = std::make_shared<FakeNccl>();
  api->device_lost = true;
  const std::string text = failure(api);
  EXPECT_NE(text.find("all-reduce failed"), std::string::npos) << text;
  EXPECT_NE(text.find("the device is lost"), std::string::npos) << text;
  EXPECT_EQ(api->aborts, 1);
}

TEST(NcclCommunicator, AGroupThatCannotBeJoinedIsAFailureWithNothingToAbort) {
  const auto api = std::make_shared<FakeNccl>();
  api->init_result = kSystemError;
  EXPECT_NE(failure(api).find("nccl error 2"), std::string::npos);
  EXPECT_EQ(api->aborts, 0);
}

TEST(NcclCommunicator, AFailedExchangeLeavesNoGroupOpen) {
  const auto api = std::make_shared<FakeNccl>();
  api->enqueue_result = kSystemError;
  ThreadWorld(1).run([&](Communicator& world) {
    const auto communicator = make_nccl_communicator(world.split(0), api, watch(), kLong);
    const std::byte send[1] = {};
    std::byte receive[1] = {};
    const std::int64_t one[] = {1};
    EXPECT_NE(error_text([&] {
                communicator->all_to_all(send, one, receive, one);
              }).find("all-to-all failed"),
              std::string::npos);
  });
  EXPECT_EQ(api->open_groups, 0);
}

TEST(NcclCommunicator, AllRanksFailWhereTheFirstCannotMakeAnId) {
  ThreadWorld(2).run([&](Communicator& world) {
    const auto api = std::make_shared<FakeNccl>(&world);
    api->id_result = kSystemError;
    const auto communicator = make_nccl_communicator(world.split(0), api, watch(), kLong);
    float value = 1;
    const std::string text =
        error_text([&] { communicator->all_reduce(DType::fp32, Reduction::sum, &value, 1); });
    EXPECT_EQ(text, "rank 0: nccl error 2");
    EXPECT_EQ(api->inits, 0);
  });
}

TEST(NcclCommunicator, ADeadPeerIsNamedByTheRanksThatWaitedForIt) {
  EXPECT_TRUE(on_forked_ranks(3, [](const Rendezvous& rendezvous, const Timeouts& timeouts) {
    const auto store = meet_for_gloo(rendezvous, timeouts);
    const auto api = std::make_shared<FakeNccl>();
    const auto communicator = make_nccl_communicator(connect_gloo(store, timeouts), api,
                                                     watch_of(store), milliseconds(1500));
    float value = 1;
    communicator->all_reduce(DType::fp32, Reduction::sum, &value, 1);
    communicator->barrier();
    if (rendezvous.rank == 2) return true;  // and leaves
    api->stuck = true;  // what a kernel does that waits for a GPU whose process is gone
    const std::string text =
        error_text([&] { communicator->all_reduce(DType::fp32, Reduction::sum, &value, 1); });
    const bool right =
        text.find("all-reduce failed, no answer from peer rank 2 (nccl: ") != std::string::npos;
    if (!right) std::fprintf(stderr, "%s\n", text.c_str());
    // Rank 0 serves the store that rank 1 asks.
    if (rendezvous.rank == 1)
      store->handle()->set("rank 1 has its answer", std::vector<std::uint8_t>{1});
    if (rendezvous.rank == 0) store->handle()->wait({"rank 1 has its answer"});
    return right && api->aborts == 1;
  }));
}

}  // namespace
}  // namespace stepscope::topologies
