// Saved states that are damaged, incomplete, or whose saving was killed.

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/durable_file.h"
#include "state_world.h"
#include "tests/core/error_text.h"
#include "tests/topologies/free_port.h"
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

/// A rank's file taken apart, to be put together with another index that the manifest vouches for.
class Forger {
 public:
  Forger(const std::string& folder, int rank)
      : rank_(static_cast<std::size_t>(rank)),
        path_(file_of(folder, rank)),
        manifest_path_(fs::path(folder) / kManifestName),
        good_(content(path_)),
        good_manifest_(content(manifest_path_)) {
    std::uint64_t length = 0;
    std::memcpy(&length, good_.data() + good_.size() - sizeof length, sizeof length);
    begin_ = good_.size() - sizeof length - length;
  }

  const fs::path& path() const { return path_; }
  const fs::path& manifest_path() const { return manifest_path_; }
  std::string index() const { return good_.substr(begin_, good_.size() - 8 - begin_); }
  const std::string& manifest() const { return good_manifest_; }

  void forge(const std::string& index) const {
    const auto length = static_cast<std::uint64_t>(index.size());
    std::string bytes = good_.substr(0, begin_) + index;
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    forge_file(bytes, sha256(index));
  }
  void forge_file(const std::string& bytes, const std::string& digest) const {
    write(path_, bytes);
    StateManifest manifest = StateManifest::parse(good_manifest_, "good");
    manifest.files[rank_] = {.bytes = static_cast<std::int64_t>(bytes.size()),
                             .index_digest = digest};
    write(manifest_path_, manifest.text());
  }
  void repair() const {
    write(path_, good_);
    write(manifest_path_, good_manifest_);
  }

 private:
  std::size_t rank_;
  fs::path path_, manifest_path_;
  std::string good_, good_manifest_;
  std::size_t begin_ = 0;
};

TEST_F(Damages, AnIndexThatLiesIsRefusedThoughItsDigestIsRight) {
  const Forger forger(folder_.path(), 0);
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
      {"[0,0,600,0]", "[0,0,9223372036854775807,0]"},
      {"[0,0,600,0]", "[0,0,0,0]"},
      {"[0,0,600,0]", "[0,0,300,0],[0,300,300,299]"},
      {"[0,0,600,0]", "[0,0,300,0],[0,299,301,299]"},
      {"[0,0,600,0]", "[0,0,600]"},
      {"[0,0,600,0]", "[0,0,600,0,0]"},
      {"[0,0,600,0]", ""},
      {"\"rank\":0", "\"rank\":1"},
      {"\"format_version\":1", "\"format_version\":2"},
      {"\"format\":\"8-bit\"", "\"format\":\"fp32\""},
      {"\"format\":\"8-bit\"", "\"format\":\"4-bit\""},
      {"\"step\":5", "\"step\":-5"},
      {"\"step\":5", "\"step\":9223372036854775807"},
      {"\"param\":[\"", "\"param\":[\"x\",\""},
      {"\"save\":\"", "\"save\":\"0"},
      {"\"job\":{", "\"job\":{\"more\":1,"},
  };
  refuse_all(
      lies.size(),
      [&](std::size_t i) {
        std::string text = forger.index();
        const auto& [from, to] = lies[i];
        ASSERT_TRUE(has(text, from)) << from;
        text.replace(text.find(from), from.size(), to);
        forger.forge(text);
      },
      [&] { forger.repair(); }, forger.path().string());
}

TEST_F(Damages, AFileThatIsNoneOfASavedStateIsRefusedThoughTheManifestVouchesForIt) {
  const Forger forger(folder_.path(), 0);
  const std::string good = content(forger.path());
  const std::string index = forger.index();
  std::string other = good;
  other[0] ^= 1;
  std::string long_index = good;
  long_index.back() = '\x7f';
  std::string negative_index = good;
  negative_index.back() = '\xff';
  const std::vector<std::pair<std::string, std::string>> files = {
      {"", "no file of a saved state"},
      {"12345", "no file of a saved state"},
      {std::string(kStateMagic), "no file of a saved state"},
      {other, "no file of a saved state"},
      {long_index, "impossible length"},
      {negative_index, "impossible length"}};
  for (const auto& [bytes, reason] : files) {
    refuse_all(
        1, [&](std::size_t) { forger.forge_file(bytes, sha256(index)); }, [&] { forger.repair(); },
        reason);
  }
}

/// Every text that `text` becomes when one of its members, however deep, is left out or has
/// another type.
std::vector<std::string> with_one_member_changed(const std::string& text) {
  using nlohmann::json;
  const json root = json::parse(text);
  std::vector<json::json_pointer> places;
  const std::function<void(const json&, const json::json_pointer&)> collect =
      [&](const json& value, const json::json_pointer& place) {
        for (const auto& [key, member] : value.items()) {
          const json::json_pointer inner =
              value.is_array() ? place / static_cast<std::size_t>(std::stoul(key)) : place / key;
          places.push_back(inner);
          if (member.is_structured()) collect(member, inner);
        }
      };
  collect(root, json::json_pointer());
  std::vector<std::string> changed;
  for (const auto& place : places) {
    const json without = root.patch(json::array({{{"op", "remove"}, {"path", place.to_string()}}}));
    changed.push_back(without.dump());
    const std::vector<json> others = {nullptr, true, "x", -1, 0.5, json::array(), json::object()};
    for (const json& other : others) {
      if (root[place].type() == other.type()) continue;
      json copy = root;
      copy[place] = other;
      changed.push_back(copy.dump());
    }
  }
  return changed;
}

TEST_F(Damages, AnIndexWithAMemberMissingOrOfAnotherTypeIsRefusedThoughItsDigestIsRight) {
  const Forger forger(folder_.path(), 0);
  const auto texts = with_one_member_changed(forger.index());
  ASSERT_GT(texts.size(), 300U);
  refuse_all(
      texts.size(), [&](std::size_t i) { forger.forge(texts[i]); }, [&] { forger.repair(); },
      forger.path().string());
}

TEST_F(Damages, AManifestWithAMemberMissingOrOfAnotherTypeIsRefused) {
  const Forger forger(folder_.path(), 0);
  const auto texts = with_one_member_changed(forger.manifest());
  ASSERT_GT(texts.size(), 200U);
  refuse_all(
      texts.size(), [&](std::size_t i) { write(forger.manifest_path(), texts[i]); },
      [&] { forger.repair(); }, folder_.path());
}

/// A change of an index or a manifest, and what must be said of it.
struct Lie {
  std::function<void(nlohmann::json&)> tell;
  std::string reason;
};

TEST_F(Damages, EachLieOfAnIndexIsCalledByItsName) {
  using nlohmann::json;
  const Forger forger(folder_.path(), 0);
  const auto range_lie = [](json range, const std::string& reason) {
    return Lie{[range](json& index) { index["tensors"][0]["ranges"][0] = range; }, reason};
  };
  const std::string outside = "lies outside its parameter or its entry";
  static constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::vector<Lie> lies = {
      range_lie({9, 0, 600, 0}, "names parameter 9"),
      range_lie({0, 0, 0, 0}, outside),
      range_lie({0, 1, 600, 0}, outside),
      range_lie({0, 601, 1, 0}, outside),
      range_lie({0, kMost, kMost, 0}, outside),
      range_lie({0, 0, 600, 1}, outside),
      range_lie({0, 0, 1, kMost}, outside),
      range_lie({0, 0, 600}, "is not four numbers"),
      range_lie({{"a", 0}, {"b", 0}, {"c", 600}, {"d", 0}}, "is not four numbers"),
      {[](json& index) { index["tensors"][0]["ranges"] = 7; }, "is no list"},
      {[](json& index) { index["tensors"] = json::object(); }, "is no list"},
      {[](json& index) { index["tensors"][0]["numel"] = kMost; }, "is too large"},
      {[](json& index) { index["tensors"][0]["numel"] = 1 << 30; }, "its index speaks of more"},
      {[](json& index) {
         index["tensors"][1]["numel"] = 6;
         index["tensors"][1]["ranges"] = json::array({{1, 0, 6, 0}});
       },
       "bytes, it holds"},
      {[](json& index) { index["pieces"][0]["format"] = "4-bit"; }, "\"4-bit\" is unknown"},
      {[](json& index) { index["pieces"][0]["step"] = kMost; }, "step count of it is too large"},
      {[](json& index) { index["pieces"] = json::array({7}); }, "it has no "}};
  for (const Lie& lie : lies) {
    refuse_all(
        1,
        [&](std::size_t) {
          json index = json::parse(forger.index());
          lie.tell(index);
          forger.forge(index.dump());
        },
        [&] { forger.repair(); }, lie.reason);
  }
}

TEST_F(Damages, EachLieOfAManifestIsCalledByItsName) {
  using nlohmann::json;
  const Forger forger(folder_.path(), 0);
  const auto wrapping_lie = [](json wrapping, const std::string& reason) {
    return Lie{[wrapping](json& manifest) { manifest["job"]["wrapping"] = wrapping; }, reason};
  };
  const std::vector<Lie> lies = {
      {[](json& manifest) { manifest["save"] = ""; }, "its \"save\" is"},
      {[](json& manifest) { manifest["save"] = "../x"; }, "its \"save\" is"},
      {[](json& manifest) { manifest["files"][0] = "x"; }, "is not size and digest"},
      {[](json& manifest) { manifest["files"][0].erase(1); }, "is not size and digest"},
      {[](json& manifest) { manifest["files"][0].push_back(1); }, "is not size and digest"},
      {[](json& manifest) { manifest["files"].push_back({1, "x"}); }, "for another world size"},
      {[](json& manifest) { manifest["job"]["world_size"] = 1 << 20; }, "for another world size"},
      {[](json& manifest) { manifest["job"].erase("optimizer"); }, "it has no optimizer"},
      {[](json& manifest) { manifest["job"] = 7; }, "it has no \"world_size\""},
      {[](json& manifest) { manifest["job"]["topology"] = "ring"; }, "its layout is not valid"},
      wrapping_lie({{"policy", "by-mood"}}, "\"by-mood\" is unknown"),
      wrapping_lie({{"policy", "list"}, {"units", {7}}}, "a unit of its wrapping is no list"),
      wrapping_lie({{"policy", "list"}, {"units", json::array({json::array({7})})}},
                   "a name in its wrapping is no string")};
  for (const Lie& lie : lies) {
    refuse_all(
        1,
        [&](std::size_t) {
          json manifest = json::parse(forger.manifest());
          lie.tell(manifest);
          write(forger.manifest_path(), manifest.dump());
        },
        [&] { forger.repair(); }, lie.reason);
  }
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

TEST(OneRanksFile, ThatHasAnElementTwiceIsRefused) {
  // 607 elements over two ranks: the second one's last position is padding, and free to claim.
  const PlanOptions flat{.topology = Topology::fsdp1,
                         .world_size = 2,
                         .wrapping = {.policy = WrapPolicy::whole_model}};
  const TempFolder folder;
  save(tiny_model(), flat, folder.path());
  const Forger forger(folder.path(), 1);
  const std::string tensor = "[1,0,7,296]";
  ASSERT_TRUE(has(forger.index(), tensor));
  for (const std::string again : {"[1,6,1,303]", "[1,0,1,303]", "[0,304,1,303]"}) {
    std::string text = forger.index();
    text.replace(text.find(tensor), tensor.size(), tensor + "," + again);
    forger.forge(text);
    const std::string said = load_text(tiny_model(), flat, folder.path());
    EXPECT_TRUE(has(said, "its index has an element twice")) << said;
    EXPECT_TRUE(has(said, "rank 1")) << said;
  }
  forger.repair();
  EXPECT_EQ(load_text(tiny_model(), flat, folder.path()), "no error");
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
    const std::uint16_t port = free_port();
    std::vector<pid_t> children;
    for (int rank = 0; rank < 2; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        bool right = false;
        try {
          Rendezvous rendezvous;
          rendezvous.world_size = rendezvous.local_world_size = 2;
          rendezvous.master_addr = "127.0.0.1";
          rendezvous.master_port = port;
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
