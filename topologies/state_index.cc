#include "topologies/state_index.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "topologies/sha256.h"
#include "topologies/strict_json.h"

namespace stepscope::topologies {
namespace {

using kernels::StateFormat;
using nlohmann::json;

constexpr const char* kDamaged = "the file is damaged or no saved state; load another one";
/// More than any run takes, and few enough to count on from.
constexpr std::int64_t kMaxStep = std::int64_t{1} << 53;
constexpr JsonLimits kLimits{.max_depth = 8, .max_values = 100'000'000};
constexpr std::array<const char*, kStateArrays> kArrayNames = {"moment1", "moment2", "absmax1",
                                                               "absmax2"};

[[noreturn]] void damaged(const std::string& what, const std::string& file) {
  throw Error(what, kDamaged, {.file = file});
}

const json& member(const json& object, const char* key, const std::string& file) {
  if (!object.is_object() || !object.contains(key)) {
    damaged("it has no \"" + std::string(key) + "\"", file);
  }
  return object[key];
}

std::string text_of(const json& object, const char* key, const std::string& file) {
  const json& value = member(object, key, file);
  if (!value.is_string()) damaged("its \"" + std::string(key) + "\" is no string", file);
  return value.get<std::string>();
}

std::int64_t number_of(const json& object, const char* key, const std::string& file) {
  return non_negative_integer(member(object, key, file), "its \"" + std::string(key) + "\"",
                              {.file = file});
}

bool flag_of(const json& object, const char* key, const std::string& file) {
  const json& value = member(object, key, file);
  if (!value.is_boolean()) damaged("its \"" + std::string(key) + "\" is no flag", file);
  return value.get<bool>();
}

const json& list_of(const json& object, const char* key, const std::string& file) {
  const json& value = member(object, key, file);
  if (!value.is_array()) damaged("its \"" + std::string(key) + "\" is no list", file);
  return value;
}

void require_version(const json& root, const std::string& file) {
  const std::int64_t version = number_of(root, "format_version", file);
  if (version == kStateFormatVersion) return;
  throw Error("its format has version " + std::to_string(version) + ", this program reads " +
                  std::to_string(kStateFormatVersion),
              "load it with the program that saved it", {.file = file});
}

json describe(const std::vector<Range>& ranges) {
  json list = json::array();
  for (const Range& range : ranges) {
    list.push_back({range.parameter, range.offset, range.numel, range.position});
  }
  return list;
}

std::vector<Range> parse_ranges(const json& entry, std::int64_t numel, const Model& model,
                                const std::string& file) {
  std::vector<Range> ranges;
  std::int64_t free = 0;  // first position that no range has taken
  for (const json& item : list_of(entry, "ranges", file)) {
    if (!item.is_array() || item.size() != 4) damaged("a range of it is not four numbers", file);
    std::array<std::int64_t, 4> n{};
    for (std::size_t i = 0; i < 4; ++i) {
      n[i] = non_negative_integer(item[i], "a number of a range", {.file = file});
    }
    const auto [parameter, offset, count, position] = n;
    if (parameter >= static_cast<std::int64_t>(model.parameters.size())) {
      damaged("a range of it names parameter " + std::to_string(parameter), file);
    }
    const auto index = static_cast<std::size_t>(parameter);
    const std::int64_t size = topologies::numel(model.parameters[index]);
    if (count < 1 || count > size - offset || position < free || count > numel - position) {
      damaged("a range of it lies outside its parameter or its entry", file);
    }
    free = position + count;
    ranges.push_back({.parameter = index, .offset = offset, .numel = count, .position = position});
  }
  return ranges;
}

/// The array at `offset`, of which `bytes` must lie before `data_end`.
SavedArray parse_array(const json& entry, const char* key, std::int64_t bytes, std::int64_t& offset,
                       std::int64_t data_end, const std::string& file) {
  SavedArray array{.offset = offset, .bytes = bytes};
  if (bytes > data_end - offset) {
    damaged("it holds " + std::to_string(data_end) + " bytes, its index speaks of more", file);
  }
  offset += bytes;
  if (bytes == 0) return array;
  for (const json& digest : list_of(entry, key, file)) {
    if (!digest.is_string()) damaged("a digest of it is no string", file);
    array.digests.push_back(digest.get<std::string>());
  }
  const std::int64_t chunks = bytes / kChunkBytes + (bytes % kChunkBytes != 0 ? 1 : 0);
  if (static_cast<std::int64_t>(array.digests.size()) != chunks) {
    damaged("its \"" + std::string(key) + "\" has " + std::to_string(array.digests.size()) +
                " digests for " + std::to_string(bytes) + " bytes",
            file);
  }
  return array;
}

std::int64_t parse_numel(const json& entry, const std::string& file) {
  const std::int64_t numel = number_of(entry, "numel", file);
  // So that no product below can overflow.
  if (numel > kMaxModelNumel) damaged("an entry of it is too large", file);
  return numel;
}

StateFormat parse_format(const json& entry, const std::string& file) {
  const std::string name = text_of(entry, "format", file);
  if (name == "8-bit") return StateFormat::blockwise_8bit;
  if (name != "fp32") damaged("its state format " + printable(name) + " is unknown", file);
  return StateFormat::fp32;
}

Wrapping parse_wrapping(const json& job, const std::string& file) {
  const json& described = member(job, "wrapping", file);
  if (described.is_null()) return {};
  Wrapping wrapping;
  const std::string policy = text_of(described, "policy", file);
  for (const WrapPolicy each : {WrapPolicy::per_parameter, WrapPolicy::per_module,
                                WrapPolicy::whole_model, WrapPolicy::list}) {
    if (policy != wrap_policy_name(each)) continue;
    wrapping.policy = each;
    for (const json& unit : list_of(described, "units", file)) {
      if (!unit.is_array()) damaged("a unit of its wrapping is no list", file);
      auto& names = wrapping.units.emplace_back();
      for (const json& name : unit) {
        if (!name.is_string()) damaged("a name in its wrapping is no string", file);
        names.push_back(name.get<std::string>());
      }
    }
    return wrapping;
  }
  damaged("its wrapping " + printable(policy) + " is unknown", file);
}

}  // namespace

std::array<std::int64_t, kStateArrays> state_array_bytes(StateFormat format, std::int64_t numel,
                                                         Optimizer optimizer) {
  const bool two = moment_count(optimizer) == 2;
  if (format == StateFormat::fp32) return {numel * 4, two ? numel * 4 : 0, 0, 0};
  const std::int64_t absmax = kernels::block_count(numel) * 4;
  return {numel, two ? numel : 0, absmax, two ? absmax : 0};
}

bool Places::add(std::size_t entry, const std::vector<Range>& ranges) {
  for (const Range& range : ranges) {
    // Those that are there are apart: whatever overlaps holds the last element or begins before it.
    const auto after = places_.upper_bound({range.parameter, range.offset + range.numel - 1});
    if (after != places_.begin()) {
      const Range& before = std::prev(after)->second.range;
      if (before.parameter == range.parameter && before.offset + before.numel > range.offset) {
        return false;
      }
    }
    places_[{range.parameter, range.offset}] = {.entry = entry, .range = range};
  }
  return true;
}

std::optional<Place> Places::find(std::size_t parameter, std::int64_t offset) const {
  auto after = places_.upper_bound({parameter, offset});
  if (after == places_.begin()) return std::nullopt;
  const Place& place = std::prev(after)->second;
  const Range& range = place.range;
  if (range.parameter != parameter || offset - range.offset >= range.numel) return std::nullopt;
  return place;
}

std::string StateIndex::text() const {
  json described_tensors = json::array();
  for (const SavedTensor& tensor : tensors) {
    described_tensors.push_back({{"numel", tensor.numel},
                                 {"stepped", tensor.stepped},
                                 {"ranges", describe(tensor.ranges)},
                                 {"param", tensor.param.digests}});
  }
  json described_pieces = json::array();
  for (const SavedPiece& piece : pieces) {
    json entry = {{"format", piece.format == StateFormat::fp32 ? "fp32" : "8-bit"},
                  {"numel", piece.numel},
                  {"step", piece.step},
                  {"ranges", describe(piece.ranges)}};
    for (std::size_t i = 0; i < kStateArrays; ++i) {
      if (piece.arrays[i].bytes > 0) entry[kArrayNames[i]] = piece.arrays[i].digests;
    }
    described_pieces.push_back(std::move(entry));
  }
  return json{{"format_version", kStateFormatVersion},
              {"save", save},
              {"rank", rank},
              {"job", job},
              {"tensors", described_tensors},
              {"pieces", described_pieces}}
      .dump();
}

StateIndex StateIndex::parse(std::string_view text, const std::string& file, std::int64_t data_end,
                             const Model& model, const StepConfig& config) {
  const json root = parse_strict_json(text, file, kLimits);
  require_version(root, file);
  StateIndex index{.save = text_of(root, "save", file),
                   .rank = number_of(root, "rank", file),
                   .job = member(root, "job", file),
                   .tensors = {},
                   .pieces = {}};
  auto offset = static_cast<std::int64_t>(kStateMagic.size());
  for (const json& entry : list_of(root, "tensors", file)) {
    const std::int64_t numel = parse_numel(entry, file);
    index.tensors.push_back(
        {.numel = numel,
         .stepped = flag_of(entry, "stepped", file),
         .ranges = parse_ranges(entry, numel, model, file),
         .param = parse_array(entry, "param", numel * kernels::element_bytes(config.dtype), offset,
                              data_end, file)});
  }
  for (const json& entry : list_of(root, "pieces", file)) {
    SavedPiece piece{.format = parse_format(entry, file),
                     .numel = parse_numel(entry, file),
                     .step = number_of(entry, "step", file),
                     .ranges = {},
                     .arrays = {}};
    if (piece.step > kMaxStep) damaged("a step count of it is too large", file);
    piece.ranges = parse_ranges(entry, piece.numel, model, file);
    const auto bytes = state_array_bytes(piece.format, piece.numel, config.optimizer);
    for (std::size_t i = 0; i < kStateArrays; ++i) {
      piece.arrays[i] = parse_array(entry, kArrayNames[i], bytes[i], offset, data_end, file);
    }
    index.pieces.push_back(std::move(piece));
  }
  if (offset != data_end) {
    damaged("its index speaks of " + std::to_string(offset) + " bytes, it holds " +
                std::to_string(data_end),
            file);
  }
  return index;
}

std::string StateManifest::text() const {
  json described = json::array();
  for (const SavedFile& file : files) described.push_back({file.bytes, file.index_digest});
  return json{{"format_version", kStateFormatVersion},
              {"save", save},
              {"job", job},
              {"parameters", parameters},
              {"files", described}}
             .dump() +
         "\n";
}

StateManifest StateManifest::parse(std::string_view text, const std::string& file) {
  const json root = parse_strict_json(text, file, kLimits);
  require_version(root, file);
  StateManifest manifest{.save = text_of(root, "save", file),
                         .job = member(root, "job", file),
                         .parameters = list_of(root, "parameters", file),
                         .files = {}};
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  // It becomes part of file names.
  if (manifest.save.empty() || !std::all_of(manifest.save.begin(), manifest.save.end(), is_digit)) {
    damaged("its \"save\" is " + printable(manifest.save), file);
  }
  for (const json& entry : list_of(root, "files", file)) {
    if (!entry.is_array() || entry.size() != 2 || !entry[1].is_string()) {
      damaged("an entry of its \"files\" is not size and digest", file);
    }
    manifest.files.push_back(
        {.bytes = non_negative_integer(entry[0], "the size of a file", {.file = file}),
         .index_digest = entry[1].get<std::string>()});
  }
  if (number_of(manifest.job, "world_size", file) !=
      static_cast<std::int64_t>(manifest.files.size())) {
    damaged("it lists " + std::to_string(manifest.files.size()) + " files for another world size",
            file);
  }
  return manifest;
}

json describe_parameters(const Model& model) {
  json list = json::array();
  for (const Parameter& parameter : model.parameters) {
    list.push_back(
        {{"name", parameter.name}, {"shape", parameter.shape}, {"tied_to", parameter.tied_to}});
  }
  return list;
}

json describe_job(const Model& model, const ShardPlan& plan, const StepConfig& config) {
  const PlanOptions& options = plan.options();
  json wrapping;
  if (options.topology == Topology::fsdp1) {
    wrapping = {{"policy", wrap_policy_name(options.wrapping.policy)},
                {"units", options.wrapping.units}};
  }
  const kernels::Hyperparameters& h = config.hyperparameters;
  return {{"topology", topology_name(options.topology)},
          {"world_size", options.world_size},
          {"replicas", plan.replicas()},
          {"wrapping", wrapping},
          {"optimizer", optimizer_name(config.optimizer)},
          {"dtype", dtype_name(config.dtype)},
          {"state_policy", state_policy_name(config.state_policy)},
          {"min_8bit_size", config.min_8bit_size},
          {"hyperparameters",
           {{"learning_rate", h.learning_rate},
            {"beta1", h.beta1},
            {"beta2", h.beta2},
            {"epsilon", h.epsilon},
            {"weight_decay", h.weight_decay}}},
          {"parameters", sha256(describe_parameters(model).dump())}};
}

kernels::Hyperparameters hyperparameters_of(const json& job, const std::string& file) {
  const json& described = member(job, "hyperparameters", file);
  const auto number = [&](const char* key) {
    const json& value = member(described, key, file);
    if (!value.is_number()) damaged("its \"" + std::string(key) + "\" is no number", file);
    return value.get<double>();
  };
  return {.learning_rate = number("learning_rate"),
          .beta1 = number("beta1"),
          .beta2 = number("beta2"),
          .epsilon = number("epsilon"),
          .weight_decay = number("weight_decay")};
}

ShardPlan plan_of(const json& job, Model model, const std::string& file) {
  // Who owns what depends on shapes and ties alone; what was frozen then does not matter now.
  for (Parameter& parameter : model.parameters) {
    parameter.dtype = kernels::DType::fp32;
    parameter.requires_grad = parameter.has_gradient = true;
  }
  PlanOptions options{.topology = Topology::single,
                      .world_size = number_of(job, "world_size", file),
                      .replicas = number_of(job, "replicas", file),
                      .wrapping = parse_wrapping(job, file)};
  try {
    options.topology = parse_topology(text_of(job, "topology", file));
    return ShardPlan::make(model, options);
  } catch (const Error& error) {
    throw Error("its layout is not valid: " + error.what_failed(), kDamaged,
                {.parameter = error.where().parameter, .file = file});
  }
}

std::string layout_name(const PlanOptions& options) {
  std::string name(topology_name(options.topology));
  if (options.topology == Topology::fsdp1) {
    name += " (" + std::string(wrap_policy_name(options.wrapping.policy)) + ")";
  }
  if (options.topology == Topology::hsdp) {
    name += " (" + std::to_string(options.replicas) + " replicas)";
  }
  return name + (options.world_size == 1 ? " on 1 rank"
                                         : " on " + std::to_string(options.world_size) + " ranks");
}

std::string state_file_name(std::int64_t rank, std::int64_t world_size, const std::string& save) {
  return "rank-" + std::to_string(rank) + "-of-" + std::to_string(world_size) + "." + save +
         ".state";
}

}  // namespace stepscope::topologies
