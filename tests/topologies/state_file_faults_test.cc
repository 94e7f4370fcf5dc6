// Saved states that are damaged, incomplete, or whose saving was killed.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

#include "core/durable_file.h"
#include "state_world.h"
#include "tests/core/error_text.h"
#include "topologies/sha256.h"
#include "topologies/state_index.h"

namespace stepscope::topologies {
namespace {

namespace fs = std::filesystem;
using kernels::DType;

const PlanOptions kTwoRanks{.topology = Topology::fsdp2, .world_size = 2};
const PlanOptions kOneRank{.topology = Topology::single};

StepConfig adam() {
  return awkward_config(Optimizer::AdamW8bit, DType::fp32, StatePolicy::original);
}

/// 8-bit and FP32 state, small enough for a look at every byte.
Model tiny_model() {
  return {.name = "tiny",
          .parameters = {{.name = "a", .shape = {600}}, {.name = "b", .shape = {7}}}};
}

Held save(const Model& model, const PlanOptions& options, const std::string& folder,
          int steps = 5) {
  return hold(model, options, adam(), [&](StateRank& rank) {
    rank.step(steps);
    rank.save(folder);
  });
}

std::string content(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// The file of a rank in a folder that holds one save.
fs::path file_of(const std::string& folder, int rank) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("rank-" + std::to_string(rank) + "-")) {
      return entry.path();
    }
  }
  throw Error("rank " + std::to_string(rank) + " has no file");
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Loads the folder on every rank of a world that has taken 2 steps. Returns what every rank says,
/// which must be the same; nothing may change where it is an error.
std::string load_text(const Model& model, const PlanOptions& options, const std::string& folder) {
  const ShardPlan plan = ShardPlan::make(model, options);
  const StepConfig config = adam();
  std::vector<std::string> texts(static_cast<std::size_t>(options.world_size));
  ThreadWorld(options.world_size).run([&](Communicator& communicator) {
    StateRank rank(model, plan, config, communicator);
    rank.step(2);
    const auto before = raw(rank);
    std::string& text = texts[static_cast<std::size_t>(communicator.rank())];
    text = error_text([&] { rank.load(folder); });
    EXPECT_EQ(raw(rank) == before, text != "no error") << text;
  });
  for (const std::string& text : texts) EXPECT_EQ(text, texts.front());
  return texts.front();
}

/// Many damaged folders against one optimizer: each must be refused, with the file named and
/// nothing changed.
class Damages : public testing::Test {
 protected:
  Damages() { save(tiny_model(), kOneRank, folder_.path()); }

  /// `damage(i)` prepares the i-th; `repair` undoes all.
  void refuse_all(std::size_t count, const std::function<void(std::size_t)>& damage,
                  const std::function<void()>& repair, const std::string& named) {
    const ShardPlan plan = ShardPlan::make(tiny_model(), kOneRank);
    const Model model = tiny_model();
    const StepConfig config = adam();
    ThreadWorld(1).run([&](Communicator& communicator) {
      StateRank rank(model, plan, config, communicator);
      rank.step(3);
      const auto before = raw(rank);
      for (std::size_t i = 0; i < count; ++i) {
        damage(i);
        const std::string text = error_text([&] { rank.load(folder_.path()); });
        EXPECT_TRUE(has(text, named)) << i << ": " << text;
        EXPECT_EQ(raw(rank), before) << i;
      }
      repair();
      EXPECT_EQ(error_text([&] { rank.load(folder_.path()); }), "no error");
    });
  }

  TempFolder folder_;
};

TEST_F(Damages, AFlippedBitAnywhereInARanksFileIsRefused) {
  const fs::path path = file_of(folder_.path(), 0);
  const std::string good = content(path);
  // Parameters, moments, absmax of both formats, the index, its length, the first line.
  ASSERT_GT(good.size(), 3000U);
  refuse_all(
      good.size() / 7,
      [&](std::size_t i) {
        std::string bad = good;
        bad[7 * i] = static_cast<char>(bad[7 * i] ^ (1 << (i % 8)));
        write(path, bad);
      },
      [&] { write(path, good); }, path.string());
}

TEST_F(Damages, EveryKindOfArrayIsCovered) {
  const fs::path path = file_of(folder_.path(), 0);
  const std::string good = content(path);
  // By the layout in docs/state-files.md: 600 and 7 parameters, then moments and absmax of a, then
  // moments of b. One byte of each, the last.
  std::size_t at = kStateMagic.size();
  std::vector<std::size_t> ends;
  for (const std::size_t bytes : {600U * 4, 7U * 4, 600U, 600U, 3U * 4, 3U * 4, 7U * 4, 7U * 4}) {
    at += bytes;
    ends.push_back(at - 1);
  }
  ASSERT_EQ(good[at], '{') << "the index begins there";
  refuse_all(
      ends.size(),
      [&](std::size_t i) {
        std::string bad = good;
        bad[ends[i]] = static_cast<char>(bad[ends[i]] ^ 1);
        write(path, bad);
      },
      [&] { write(path, good); }, "are not those that were saved");
}

TEST_F(Damages, AFileCutAtAnyLengthIsRefused) {
  const fs::path path = file_of(folder_.path(), 0);
  const std::string good = content(path);
  refuse_all((good.size() + 10) / 11, [&](std::size_t i) { write(path, good.substr(0, 11 * i)); },
             [&] { write(path, good); }, path.string());
  refuse_all(
      2, [&](std::size_t i) { write(path, good + std::string(i + 1, '\0')); },
      [&] { write(path, good); }, path.string());
}

TEST_F(Damages, AManifestCutAtAnyLengthIsRefused) {
  const fs::path path = fs::path(folder_.path()) / kManifestName;
  const std::string good = content(path);
  // The last two bytes are "}\n": without the line break nothing is lost.
  refuse_all(
      good.size() - 1, [&](std::size_t i) { write(path, good.substr(0, i)); },
      [&] { write(path, good); }, path.string());
}

TEST_F(Damages, AFlippedBitInTheManifestIsRefusedByNamingAFile) {
  const fs::path path = fs::path(folder_.path()) / kManifestName;
  const std::string good = content(path);
  refuse_all(
      good.size() - 1,
      [&](std::size_t i) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 7)));
        write(path, bad);
      },
      [&] { write(path, good); }, folder_.path());
}

TEST_F(Damages, TwoManifestsInOneFileOrOneOfAnotherSaveAreRefused) {
  const fs::path path = fs::path(folder_.path()) / kManifestName;
  const std::string good = content(path);
  const TempFolder other;
  save(tiny_model(), kOneRank, other.path(), 6);
  const std::string foreign = content(fs::path(other.path()) / kManifestName);
  refuse_all(
      2, [&](std::size_t i) { write(path, i == 0 ? good + good : foreign); },
      [&] { write(path, good); }, folder_.path());
}

TEST_F(Damages, TheFileOfAnotherSaveUnderTheRightNameIsRefused) {
  const fs::path path = file_of(folder_.path(), 0);
  const std::string good = content(path);
  const TempFolder other;
  // The same number of steps: even the size is equal.
  save(tiny_model(), kOneRank, other.path());
  const std::string foreign = content(file_of(other.path(), 0));
  ASSERT_EQ(foreign.size(), good.size());
  refuse_all(
      1, [&](std::size_t) { write(path, foreign); }, [&] { write(path, good); }, path.string());
}

TEST_F(Damages, AnIndexThatLiesAboutSizesIsRefusedThoughItsDigestIsRight) {
  const fs::path path = file_of(folder_.path(), 0);
  const fs::path manifest_path = fs::path(folder_.path()) / kManifestName;
  const std::string good = content(path);
  const std::string good_manifest = content(manifest_path);
  const std::size_t begin = good.find("{\"format_version\"") == std::string::npos
                                ? good.find("{\"job\"")
                                : good.find("{\"format_version\"");
  ASSERT_NE(begin, std::string::npos);
  const std::string index = good.substr(begin, good.size() - 8 - begin);
  const std::vector<std::pair<std::string, std::string>> lies = {
      {"\"numel\":600", "\"numel\":601"},
      {"\"numel\":600", "\"numel\":9223372036854775807"},
      {"\"numel\":600", "\"numel\":36028797018963968"},
      {"\"numel\":600", "\"numel\":-1"},
      {"\"numel\":600", "\"numel\":1e3"},
      {"[0,0,600,0]", "[9,0,600,0]"},
      {"[0,0,600,0]", "[0,1,600,0]"},
      {"[0,0,600,0]", "[0,0,600,9223372036854775807]"},
      {"[0,0,600,0]", "[0,9223372036854775807,600,0]"},
      {"[0,0,600,0]", "[0,0,0,0]"},
      {"[0,0,600,0]", "[0,0,300,0],[0,300,300,299]"},
      {"[0,0,600,0]", "[0,0,600]"},
      {"[0,0,600,0]", ""},
      {"\"rank\":0", "\"rank\":1"},
      {"\"format_version\":1", "\"format_version\":2"},
      {"\"format\":\"8-bit\"", "\"format\":\"fp32\""},
      {"\"step\":5", "\"step\":-5"},
      {"\"param\":[\"", "\"param\":[\"x\",\""},
  };
  refuse_all(
      lies.size(),
      [&](std::size_t i) {
        std::string text = index;
        const auto& [from, to] = lies[i];
        ASSERT_TRUE(has(text, from)) << from;
        text.replace(text.find(from), from.size(), to);
        const auto length = static_cast<std::uint64_t>(text.size());
        std::string bytes = good.substr(0, begin) + text;
        bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
        write(path, bytes);
        StateManifest manifest = StateManifest::parse(good_manifest, "good");
        manifest.files[0] = {.bytes = static_cast<std::int64_t>(bytes.size()),
                             .index_digest = sha256(text)};
        write(manifest_path, manifest.text());
      },
      [&] {
        write(path, good);
        write(manifest_path, good_manifest);
      },
      path.string());
}

TEST(OneRanksFile, TruncatedMissingOrForeignStopsEveryRankWithThatRanksReason) {
  const Model model = awkward_model();
  const TempFolder folder;
  save(model, kTwoRanks, folder.path());
  const fs::path path = file_of(folder.path(), 1);
  const std::string good = content(path);
  const auto expect = [&](const std::string& reason) {
    const std::string text = load_text(model, kTwoRanks, folder.path());
    EXPECT_TRUE(has(text, reason)) << text;
    EXPECT_TRUE(has(text, "rank 1")) << text;
    EXPECT_TRUE(has(text, path.string())) << text;
  };
  write(path, good.substr(0, good.size() / 2));
  expect("bytes long");
  fs::remove(path);
  expect("missing");
  const std::string other = content(file_of(folder.path(), 0));
  write(path, other);
  expect("bytes long");
  // The same size, as equal shards would have.
  write(path, other.substr(0, good.size()) +
                  std::string(good.size() - std::min(good.size(), other.size()), ' '));
  expect("index");
  fs::remove(path);
  fs::create_directory(path);
  expect("directory");
  fs::remove(path);
  write(path, good);
  EXPECT_EQ(load_text(model, kTwoRanks, folder.path()), "no error");
}

TEST(OneRanksFile, OfAnotherRankOfEqualShapeIsRefused) {
  const Model model = state_model_of(8192);
  const PlanOptions replicas{.topology = Topology::ddp, .world_size = 2};
  const TempFolder folder;
  save(model, replicas, folder.path());
  ASSERT_EQ(fs::file_size(file_of(folder.path(), 0)), fs::file_size(file_of(folder.path(), 1)));
  write(file_of(folder.path(), 1), content(file_of(folder.path(), 0)));
  const std::string text = load_text(model, replicas, folder.path());
  EXPECT_TRUE(has(text, "another rank")) << text;
}

TEST(Folder, WithoutAManifestIsNoSavedState) {
  const TempFolder folder;
  EXPECT_TRUE(has(load_text(tiny_model(), kTwoRanks, folder.path()), "no complete saved state"));
  save(tiny_model(), kTwoRanks, folder.path());
  fs::remove(fs::path(folder.path()) / kManifestName);
  EXPECT_TRUE(has(load_text(tiny_model(), kTwoRanks, folder.path()), "no complete saved state"));
}

/// What save_state says on every rank.
std::string save_text(const Model& model, const std::string& folder) {
  const ShardPlan plan = ShardPlan::make(model, kTwoRanks);
  const StepConfig config = adam();
  std::vector<std::string> texts(2);
  ThreadWorld(2).run([&](Communicator& communicator) {
    StateRank rank(model, plan, config, communicator);
    rank.step(1);
    texts[static_cast<std::size_t>(communicator.rank())] = error_text([&] { rank.save(folder); });
  });
  EXPECT_EQ(texts[0], texts[1]);
  return texts[0];
}

void expect_only_the_old_state(const Model& model, const std::string& folder, const Held& old) {
  EXPECT_EQ(hold(model, kOneRank, adam(), [&](StateRank& rank) { rank.load(folder); }), old);
  for (const auto& entry : fs::directory_iterator(folder)) {
    EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
  }
}

TEST(SaveThatCannotWrite, StopsEveryRankAndLeavesTheOldState) {
  // A limit on the size of files stands for every failing write; the second rank's file is larger.
  const Model model = state_model_of(8192);
  const TempFolder folder;
  const Held old = save(model, kTwoRanks, folder.path());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 8192, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string text = save_text(model, folder.path());
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(has(text, "cannot be written: File too large")) << text;
  expect_only_the_old_state(model, folder.path(), old);
}

TEST(SaveThatCannotWrite, OnAFullDiskSaysSoAndLeavesTheOldState) {
  const TempFolder folder;
  fs::create_directories(folder.path());
  if (mount("stepscope", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "mounting a small file system needs root";
  }
  const Model model = state_model_of(20'000);  // 125 kB a save
  const Held old = save(model, kTwoRanks, folder.path());
  std::string text = save_text(model, folder.path());
  for (int i = 0; i < 3 && text == "no error"; ++i) text = save_text(model, folder.path());
  const bool fits = text == "no error";
  if (!fits) {
    EXPECT_TRUE(has(text, "No space left on device")) << text;
    EXPECT_TRUE(has(text, "free some space")) << text;
    expect_only_the_old_state(model, folder.path(), old);
  }
  EXPECT_EQ(umount(folder.path().c_str()), 0);
  EXPECT_FALSE(fits) << "the file system is too large for this test";
}

TEST(SaveThatCannotWrite, OntoAFileSaysSo) {
  const TempFolder folder;
  write(folder.path(), "a file");
  const std::string text = save_text(tiny_model(), folder.path());
  EXPECT_TRUE(has(text, "folder cannot be made")) << text;
}

/// The optimizers of two ranks after some steps, kept to be saved again and again.
class Kept {
 public:
  Kept(const Model& model, int steps) : model_(model) {
    ThreadWorld(2).run([&](Communicator& communicator) {
      auto rank = std::make_unique<StateRank>(model_, plan_, config_, communicator);
      rank->step(steps);
      const std::lock_guard lock(mutex_);
      ranks_[static_cast<std::size_t>(communicator.rank())] = std::move(rank);
    });
  }
  void save(const std::string& folder) {
    ThreadWorld(2).run([&](Communicator& communicator) {
      StateRank& rank = *ranks_[static_cast<std::size_t>(communicator.rank())];
      save_state(folder, model_, plan_, config_, *rank.optimizer, *rank.runtime, communicator);
    });
  }

 private:
  Model model_;
  StepConfig config_ = adam();
  ShardPlan plan_ = ShardPlan::make(model_, kTwoRanks);
  std::mutex mutex_;
  std::array<std::unique_ptr<StateRank>, 2> ranks_;
};

TEST(SaveThatIsKilled, LeavesAStateThatWasCompleteOrNothingThatLoads) {
  const Model model = state_model_of(30'000);
  const Held three = hold(model, kOneRank, adam(), [](StateRank& rank) { rank.step(3); });
  const Held four = hold(model, kOneRank, adam(), [](StateRank& rank) { rank.step(4); });
  Kept a(model, 3);
  Kept b(model, 4);
  // How long one save takes here, so that kills fall into all parts of it.
  const TempFolder timed;
  const auto start = std::chrono::steady_clock::now();
  a.save(timed.path());
  const auto one_save = std::chrono::steady_clock::now() - start;

  int refused = 0;
  int loaded = 0;
  int leftovers = 0;
  for (int kill_number = 0; kill_number < 24; ++kill_number) {
    const TempFolder folder;
    const pid_t child = fork();
    if (child == 0) {
      try {
        for (;;) {
          a.save(folder.path());
          b.save(folder.path());
        }
      } catch (const std::exception&) {
        _exit(3);
      }
    }
    if (kill_number % 2 == 1) {
      // In or after a later save, however slow this machine is now.
      for (int i = 0; i < 10'000 && !fs::exists(fs::path(folder.path()) / kManifestName); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    std::this_thread::sleep_for(one_save * (kill_number % 12) * 17 / 100);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    std::string text;
    const Held held = hold(model, kOneRank, adam(), [&](StateRank& rank) {
      text = error_text([&] { rank.load(folder.path()); });
    });
    if (text == "no error") {
      ++loaded;
      EXPECT_TRUE(held == three || held == four) << kill_number;
    } else {
      ++refused;
      EXPECT_TRUE(has(text, "no complete saved state")) << text;
    }
    // The next save works and clears what the killed one left.
    if (fs::exists(folder.path())) {
      std::size_t files = 0;
      for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder.path())) ++files;
      if (files != 3) ++leftovers;
    }
    if (kill_number % 6 != 5) continue;
    a.save(folder.path());
    std::size_t files = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder.path())) ++files;
    EXPECT_EQ(files, 3U);
    EXPECT_EQ(load_text(model, kTwoRanks, folder.path()), "no error");
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(loaded, 0);
  EXPECT_GT(leftovers, 0) << "no kill fell into a save";
}

TEST(DurableFile, ThatIsNotCommittedLeavesTheOldFileAndNothingElse) {
  const TempFolder folder;
  fs::create_directories(folder.path());
  const std::string path = folder.path() + "/file";
  write(path, "old");
  {
    DurableFile file(path);
    file.write(std::as_bytes(std::span("new", 3)));
  }
  EXPECT_EQ(content(path), "old");
  EXPECT_FALSE(fs::exists(path + ".partial"));
  DurableFile file(path);
  file.write(std::as_bytes(std::span("new", 3)));
  EXPECT_EQ(content(path), "old");
  file.commit();
  EXPECT_EQ(content(path), "new");
}

TEST(Processes, OverGlooAllStopWithTheReasonOfTheRankWhoseFileIsTruncated) {
  const Model model = awkward_model();
  const TempFolder folder;
  save(model, kTwoRanks, folder.path());
  const fs::path path = file_of(folder.path(), 1);
  const std::string good = content(path);
  for (const bool damaged : {true, false}) {
    write(path, damaged ? good.substr(0, good.size() - 100) : good);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ASSERT_GE(fd, 0);
    ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    close(fd);
    std::vector<pid_t> children;
    for (int rank = 0; rank < 2; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        bool right = false;
        try {
          Rendezvous rendezvous;
          rendezvous.world_size = rendezvous.local_world_size = 2;
          rendezvous.master_addr = "127.0.0.1";
          rendezvous.master_port = ntohs(address.sin_port);
          rendezvous.rank = rendezvous.local_rank = rank;
          Timeouts timeouts;
          timeouts.collective = std::chrono::seconds(10);
          const auto communicator = connect_gloo(rendezvous, timeouts);
          const ShardPlan plan = ShardPlan::make(model, kTwoRanks);
          const StepConfig config = adam();
          StateRank mine(model, plan, config, *communicator);
          mine.step(2);
          const auto before = raw(mine);
          const std::string text = error_text([&] { mine.load(folder.path()); });
          right = damaged ? has(text, "rank 1") && has(text, path.string()) && raw(mine) == before
                          : text == "no error";
          mine.step(1);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        }
        _exit(right ? 0 : 1);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << damaged;
    }
  }
}

}  // namespace
}  // namespace stepscope::topologies
