#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/input_file.h"
#include "core/printable.h"
#include "topologies/state_file.h"
#include "topologies/state_index.h"
#include "topologies/state_reader.h"

namespace stepscope::topologies {
namespace {

namespace fs = std::filesystem;
using kernels::kBlockSize;
using kernels::StateFormat;
using nlohmann::json;
using Bytes = std::vector<std::byte>;

/// Codes that decode to zero.
constexpr std::array<std::byte, 2> kZeroCodes = {std::byte{127}, std::byte{0}};

/// What a rank will hold after the load, in host memory.
struct Staged {
  std::vector<Bytes> params;                           ///< by local view
  std::vector<std::array<Bytes, kStateArrays>> state;  ///< by stepped piece
  std::vector<std::int64_t> steps;                     ///< likewise
};

StateManifest read_manifest(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    throw Error("there is no complete saved state in this folder",
                "a save that was killed leaves none; check the path, or load an earlier one",
                {.file = path});
  }
  InputFile file(path);
  return StateManifest::parse(file.read(file.size()), path);
}

std::string described(const json& parameter) {
  return parameter.is_object() && parameter.contains("name") && parameter["name"].is_string() &&
                 parameter.contains("shape")
             ? printable(parameter["name"].get_ref<const std::string&>()) + " of shape " +
                   printable(parameter["shape"].dump())
             : "no parameter";
}

void require_same_model(const json& saved, const json& here, const std::string& path) {
  if (saved == here) return;
  const char* advice = "load it into the model that saved it";
  if (saved.size() != here.size()) {
    throw Error("the saved state is of another model: it has " + std::to_string(saved.size()) +
                    " parameters, this one " + std::to_string(here.size()),
                advice, {.file = path});
  }
  std::size_t i = 0;
  while (saved[i] == here[i]) ++i;
  throw Error("the saved state is of another model: parameter " + std::to_string(i) + " is " +
                  described(saved[i]) + " in it and " + described(here[i]) + " in this one" +
                  (described(saved[i]) == described(here[i]) ? ", tied differently" : ""),
              advice, {.file = path});
}

void require_same_job(const StateManifest& manifest, const Model& model, const json& here,
                      const std::string& path) {
  require_same_model(manifest.parameters, describe_parameters(model), path);
  for (const auto& [key, name] :
       {std::pair{"optimizer", "optimizer"}, std::pair{"dtype", "data type"},
        std::pair{"state_policy", "state policy"}}) {
    const auto saved = manifest.job.find(key);
    if (saved == manifest.job.end() || !saved->is_string()) {
      throw Error("it has no " + std::string(name), "load another saved state", {.file = path});
    }
    if (*saved == here.at(key)) continue;
    throw Error("the saved state has the " + std::string(name) + " " +
                    printable(saved->get_ref<const std::string&>()) + ", this run " +
                    printable(here.at(key).get_ref<const std::string&>()),
                "run with what was saved, or load another saved state", {.file = path});
  }
}

auto key_of(const Range& range) {
  return std::tuple(range.parameter, range.offset, range.numel, range.position);
}

bool same_ranges(const std::vector<Range>& a, const std::vector<Range>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Range& x, const Range& y) { return key_of(x) == key_of(y); });
}

/// Which elements of which parameters block `number` of a piece holds.
std::vector<Range> block_ranges(const std::vector<Range>& ranges, std::int64_t number) {
  const std::int64_t begin = number * kBlockSize;
  std::vector<Range> result;
  for (const Range& range : ranges) {
    const std::int64_t first = std::max(range.position, begin);
    const std::int64_t end = std::min(range.position + range.numel, begin + kBlockSize);
    if (first >= end) continue;
    result.push_back({.parameter = range.parameter,
                      .offset = range.offset + first - range.position,
                      .numel = end - first,
                      .position = first - begin});
  }
  return result;
}

class Loader {
 public:
  Loader(const std::string& folder, const Model& model, const ShardPlan& plan,
         const StepConfig& config, std::int64_t rank)
      : folder_(folder),
        manifest_path_(fs::path(folder) / kManifestName),
        model_(model),
        plan_(plan),
        config_(config),
        rank_(rank),
        manifest_(read_manifest(manifest_path_)),
        job_(describe_job(model, plan, config)) {
    require_same_job(manifest_, model, job_, manifest_path_);
    saved_plan_.emplace(plan_of(manifest_.job, model, manifest_path_));
    same_layout_ = true;
    for (const char* key : {"topology", "world_size", "replicas", "wrapping"}) {
      same_layout_ = same_layout_ && manifest_.job.at(key) == job_.at(key);
    }
  }

  const std::string& save() const { return manifest_.save; }
  LoadedState loaded() const {
    return {.hyperparameters = hyperparameters_of(manifest_.job, manifest_path_)};
  }

  Staged stage(std::span<const LocalView> views, std::span<const OwnedShard> shards) {
    if (same_layout_ && has_same_entries(reader(rank_).index(), views, shards)) {
      return whole(reader(rank_));
    }
    Staged staged;
    for (const LocalView& view : views) staged.params.push_back(gather_params(view));
    for (const OwnedShard& shard : shards) gather_state(shard, staged);
    return staged;
  }

 private:
  static bool has_same_entries(const StateIndex& index, std::span<const LocalView> views,
                               std::span<const OwnedShard> shards) {
    const auto same_view = [](const SavedTensor& saved, const LocalView& view) {
      return saved.numel == view.numel && same_ranges(saved.ranges, view.ranges);
    };
    const auto same_piece = [](const SavedPiece& saved, const OwnedShard& shard) {
      return saved.numel == shard.tensors.numel && saved.format == shard.tensors.format &&
             same_ranges(saved.ranges, shard.ranges);
    };
    return std::equal(index.tensors.begin(), index.tensors.end(), views.begin(), views.end(),
                      same_view) &&
           std::equal(index.pieces.begin(), index.pieces.end(), shards.begin(), shards.end(),
                      same_piece);
  }

  /// Everything in a file, padding included.
  static Staged whole(StateReader& file) {
    Staged staged;
    const auto all = [&](const SavedArray& array) {
      Bytes bytes(static_cast<std::size_t>(array.bytes));
      file.read(array, 0, array.bytes, bytes.data());
      return bytes;
    };
    for (const SavedTensor& tensor : file.index().tensors) {
      staged.params.push_back(all(tensor.param));
    }
    for (const SavedPiece& piece : file.index().pieces) {
      auto& arrays = staged.state.emplace_back();
      for (std::size_t i = 0; i < kStateArrays; ++i) arrays[i] = all(piece.arrays[i]);
      staged.steps.push_back(piece.step);
    }
    return staged;
  }

  StateReader& reader(std::int64_t rank) {
    const auto known = readers_.find(rank);
    if (known != readers_.end()) return known->second;
    return readers_.emplace(rank, StateReader(folder_, manifest_, rank, model_, config_))
        .first->second;
  }

  /// The file of the rank that owned an element.
  StateReader& owner_of(std::size_t parameter, std::int64_t offset) {
    const std::int64_t shard = saved_plan_->owners(parameter, offset, 1).front().shard;
    // In the same layout a replica takes its own files, which need not equal the first replica's.
    const std::int64_t replica = same_layout_ ? rank_ / plan_.shards() : 0;
    return reader(replica * saved_plan_->shards() + shard);
  }

  Place param_place(StateReader& file, std::size_t parameter, std::int64_t offset) const {
    const auto place = file.find_param(parameter, offset);
    if (place) return *place;
    throw Error("its index lacks element " + std::to_string(offset) + ", which its rank owned",
                "load another saved state", {.parameter = name(parameter), .file = file.path()});
  }

  /// Of an element that had no state.
  Place unstepped_place(StateReader& file, std::size_t parameter, std::int64_t offset) const {
    const Place place = param_place(file, parameter, offset);
    if (!file.index().tensors[place.entry].stepped) return place;
    throw Error("its index lacks the state of element " + std::to_string(offset),
                "load another saved state", {.parameter = name(parameter), .file = file.path()});
  }

  Bytes gather_params(const LocalView& view) {
    const std::int64_t element = kernels::element_bytes(config_.dtype);
    Bytes bytes(static_cast<std::size_t>(view.numel * element));
    for (const Range& range : view.ranges) {
      for (std::int64_t done = 0; done < range.numel;) {
        const std::int64_t offset = range.offset + done;
        StateReader& file = owner_of(range.parameter, offset);
        const Place place = param_place(file, range.parameter, offset);
        const std::int64_t within = offset - place.range.offset;
        const std::int64_t count = std::min(range.numel - done, place.range.numel - within);
        file.read(file.index().tensors[place.entry].param,
                  (place.range.position + within) * element, count * element,
                  bytes.data() + (range.position + done) * element);
        if (view.grad == nullptr && file.find_state(range.parameter, offset)) {
          throw Error(
              "it has optimizer state in the saved state and is not stepped in this run, "
              "which would lose it",
              "step it, as the run that saved did",
              {.parameter = name(range.parameter), .file = file.path()});
        }
        done += count;
      }
    }
    return bytes;
  }

  void gather_state(const OwnedShard& shard, Staged& staged) {
    const kernels::ShardTensors& tensors = shard.tensors;
    const auto bytes = state_array_bytes(tensors.format, tensors.numel, config_.optimizer);
    auto& arrays = staged.state.emplace_back();
    std::int64_t unpadded = 0;
    for (const Range& range : shard.ranges) unpadded += range.numel;
    for (std::size_t i = 0; i < kStateArrays; ++i) {
      // Padding in a block of nonzero absmax must decode to zero.
      const bool codes = i <= kMoment2 && tensors.format == StateFormat::blockwise_8bit;
      arrays[i].resize(static_cast<std::size_t>(bytes[i]),
                       codes && unpadded < tensors.numel ? kZeroCodes[i] : std::byte{0});
    }
    std::optional<std::int64_t> step;
    for (const Range& range : shard.ranges) {
      for (std::int64_t done = 0; done < range.numel;) {
        const std::int64_t offset = range.offset + done;
        StateReader& file = owner_of(range.parameter, offset);
        const auto state = file.find_state(range.parameter, offset);
        const Place place = state ? *state : unstepped_place(file, range.parameter, offset);
        const std::int64_t within = offset - place.range.offset;
        const std::int64_t count = std::min(range.numel - done, place.range.numel - within);
        const std::int64_t saved_step = state ? file.index().pieces[place.entry].step : 0;
        if (step.value_or(saved_step) != saved_step) {
          refuse("it is at step " + std::to_string(saved_step) +
                     ", and what it would share a step count with is at step " +
                     std::to_string(*step),
                 range.parameter);
        }
        step = saved_step;
        if (state) {
          copy_state(shard, range, range.position + done, file, place,
                     place.range.position + within, count, arrays);
        }
        done += count;
      }
    }
    staged.steps.push_back(step.value_or(0));
  }

  /// Elements [from, from + count) of the saved piece to [to, to + count) of the new one.
  void copy_state(const OwnedShard& shard, const Range& range, std::int64_t to, StateReader& file,
                  const Place& place, std::int64_t from, std::int64_t count,
                  std::array<Bytes, kStateArrays>& arrays) const {
    const SavedPiece& piece = file.index().pieces[place.entry];
    const bool blockwise = shard.tensors.format == StateFormat::blockwise_8bit;
    if (piece.format != shard.tensors.format) {
      refuse(blockwise ? "its state is FP32 in the saved state and 8-bit here"
                       : "its state is 8-bit in the saved state and FP32 here",
             range.parameter);
    }
    const auto copy = [&](std::size_t array, std::int64_t source, std::int64_t destination,
                          std::int64_t elements, std::int64_t size) {
      if (arrays[array].empty()) return;
      file.read(piece.arrays[array], source * size, elements * size,
                arrays[array].data() + destination * size);
    };
    if (!blockwise) {
      copy(kMoment1, from, to, count, 4);
      copy(kMoment2, from, to, count, 4);
      return;
    }
    const std::int64_t first = to / kBlockSize;
    const std::int64_t last = (to + count - 1) / kBlockSize;
    const std::int64_t saved_first = from / kBlockSize;
    // Blocks between these two lie in the segment on both sides.
    if (!same_ranges(block_ranges(shard.ranges, first), block_ranges(piece.ranges, saved_first)) ||
        !same_ranges(block_ranges(shard.ranges, last),
                     block_ranges(piece.ranges, saved_first + last - first))) {
      refuse(
          "a border of one layout lies inside a block of 256 elements of the other, which share "
          "one absmax",
          range.parameter);
    }
    copy(kMoment1, from, to, count, 1);
    copy(kMoment2, from, to, count, 1);
    copy(kAbsmax1, saved_first, first, last - first + 1, 4);
    copy(kAbsmax2, saved_first, first, last - first + 1, 4);
  }

  [[noreturn]] void refuse(const std::string& why, std::size_t parameter) const {
    const std::string saved = layout_name(saved_plan_->options());
    throw Error("the state was saved by " + saved + " and cannot be carried over exactly to " +
                    layout_name(plan_.options()) + " under the state policy " +
                    std::string(state_policy_name(config_.state_policy)) + ": " + why,
                "load it into " + saved +
                    " with the same options; a state saved under the state policy original can be "
                    "loaded into any layout",
                {.parameter = name(parameter), .file = manifest_path_});
  }

  const std::string& name(std::size_t parameter) const { return model_.parameters[parameter].name; }

  std::string folder_, manifest_path_;
  const Model& model_;
  const ShardPlan& plan_;
  const StepConfig& config_;
  std::int64_t rank_;
  StateManifest manifest_;
  json job_;
  std::optional<ShardPlan> saved_plan_;
  bool same_layout_ = false;
  std::map<std::int64_t, StateReader> readers_;
};

void commit(const Staged& staged, ShardedOptimizer& optimizer, DeviceRuntime& runtime) {
  const auto copy = [&](void* destination, const Bytes& bytes) {
    if (bytes.empty()) return;
    runtime.copy_to_device(destination, bytes.data(), static_cast<std::int64_t>(bytes.size()));
  };
  runtime.synchronize();
  const auto views = optimizer.local_views();
  for (std::size_t i = 0; i < views.size(); ++i) copy(views[i].param, staged.params[i]);
  const auto shards = optimizer.shards();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const kernels::ShardTensors& tensors = shards[i].tensors;
    copy(tensors.state1, staged.state[i][kMoment1]);
    copy(tensors.state2, staged.state[i][kMoment2]);
    copy(tensors.absmax1, staged.state[i][kAbsmax1]);
    copy(tensors.absmax2, staged.state[i][kAbsmax2]);
  }
  optimizer.resume(staged.steps);
}

}  // namespace

LoadedState load_state(const std::string& folder, const Model& model, const ShardPlan& plan,
                       const StepConfig& config, ShardedOptimizer& optimizer,
                       DeviceRuntime& runtime, Communicator& communicator) {
  Staged staged;
  LoadedState loaded;
  std::string save;
  together(communicator, [&] {
    Loader loader(folder, model, plan, config, communicator.rank());
    staged = loader.stage(optimizer.local_views(), optimizer.shards());
    loaded = loader.loaded();
    save = loader.save();
  });
  // A save that ended meanwhile, or folders that are not shared.
  require_same(communicator, "saved state=" + save);
  commit(staged, optimizer, runtime);
  return loaded;
}

}  // namespace stepscope::topologies
