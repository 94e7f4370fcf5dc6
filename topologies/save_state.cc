#include <algorithm>
#include <bit>
#include <cstddef>
#include <filesystem>
#include <random>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "core/durable_file.h"
#include "core/error.h"
#include "core/input_file.h"
#include "topologies/sha256.h"
#include "topologies/state_file.h"
#include "topologies/state_index.h"

namespace stepscope::topologies {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little,
              "the files are little-endian, and arrays are written as they are in memory");

/// 16 hexadecimal digits that no earlier save has.
std::string new_identity() {
  std::random_device random;
  const std::uint32_t words[] = {random(), random(), random(), random()};
  return sha256(std::as_bytes(std::span(words))).substr(0, 16);
}

/// Writes arrays one after another, in chunks with a digest each.
class ArrayWriter {
 public:
  ArrayWriter(DurableFile& file, DeviceRuntime& runtime) : file_(file), runtime_(runtime) {}

  SavedArray write(const void* data, std::int64_t bytes) {
    SavedArray array{.offset = file_.size(), .bytes = bytes};
    for (std::int64_t done = 0; done < bytes; done += kChunkBytes) {
      const std::int64_t count = std::min(kChunkBytes, bytes - done);
      runtime_.copy_to_host(buffer_.data(), static_cast<const std::byte*>(data) + done, count);
      const auto chunk = std::span(buffer_).first(static_cast<std::size_t>(count));
      array.digests.push_back(sha256(chunk));
      file_.write(chunk);
    }
    return array;
  }

 private:
  DurableFile& file_;
  DeviceRuntime& runtime_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kChunkBytes);
};

/// Writes this rank's file and returns what the manifest says of it.
SavedFile write_rank(const std::string& path, StateIndex index, const StepConfig& config,
                     const ShardedOptimizer& optimizer, DeviceRuntime& runtime) {
  DurableFile file(path);
  file.write(std::as_bytes(std::span(kStateMagic)));
  ArrayWriter writer(file, runtime);
  for (const LocalView& view : optimizer.local_views()) {
    index.tensors.push_back(
        {.numel = view.numel,
         .stepped = view.grad != nullptr,
         .ranges = view.ranges,
         .param = writer.write(view.param, view.numel * kernels::element_bytes(config.dtype))});
  }
  for (const OwnedShard& shard : optimizer.shards()) {
    const kernels::ShardTensors& tensors = shard.tensors;
    SavedPiece piece{.format = tensors.format,
                     .numel = tensors.numel,
                     .step = tensors.step,
                     .ranges = shard.ranges,
                     .arrays = {}};
    const std::array<const void*, kStateArrays> data = {tensors.state1, tensors.state2,
                                                        tensors.absmax1, tensors.absmax2};
    const auto bytes = state_array_bytes(tensors.format, tensors.numel, config.optimizer);
    for (std::size_t i = 0; i < kStateArrays; ++i) {
      piece.arrays[i] = writer.write(data[i], bytes[i]);
    }
    index.pieces.push_back(std::move(piece));
  }
  const std::string text = index.text();
  const auto length = static_cast<std::uint64_t>(text.size());
  file.write(std::as_bytes(std::span(text)));
  file.write(std::as_bytes(std::span(&length, 1)));
  file.commit();
  return {.bytes = file.size(), .index_digest = sha256(text)};
}

/// Whether `name` is one of a rank's file, finished or not, of any save.
bool is_state_file(std::string_view name) {
  return name.starts_with("rank-") && name.find("-of-") != name.npos &&
         (name.ends_with(".state") || name.ends_with(".state.partial"));
}

/// Removes the files of saves other than the one that the manifest names: replaced ones, and those
/// that were killed. Leaves everything where the manifest cannot be read. What cannot be removed
/// stays: it takes space and does no other harm.
void remove_leftovers(const fs::path& folder) {
  try {
    std::string keep;
    const std::string manifest = folder / kManifestName;
    if (fs::exists(manifest)) {
      InputFile file(manifest);
      keep = "." + StateManifest::parse(file.read(file.size()), manifest).save + ".state";
    }
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (!is_state_file(name) || (!keep.empty() && name.ends_with(keep))) continue;
      std::error_code ignored;
      fs::remove(entry.path(), ignored);
    }
  } catch (const std::exception&) {
    return;
  }
}

void make_folder(const std::string& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) {
    throw Error("the folder cannot be made: " + failure.message(),
                "choose another folder, or check its permissions", {.file = folder});
  }
  sync_folder(fs::absolute(folder).parent_path());
  remove_leftovers(folder);
}

/// What rank 0 sees must be what the ranks say they have written.
void require_visible(const fs::path& path, std::int64_t bytes) {
  std::error_code failure;
  const auto size = fs::file_size(path, failure);
  if (!failure && static_cast<std::int64_t>(size) == bytes) return;
  throw Error("rank 0 does not see this file as it was written",
              "save to a folder that all ranks share", {.file = path});
}

}  // namespace

void save_state(const std::string& folder, const Model& model, const ShardPlan& plan,
                const StepConfig& config, const ShardedOptimizer& optimizer, DeviceRuntime& runtime,
                Communicator& communicator) {
  const std::int64_t rank = communicator.rank();
  const std::int64_t world_size = communicator.world_size();
  const nlohmann::json job = describe_job(model, plan, config);
  require_same(communicator, job.dump(1));
  const std::string save = communicator.all_gather_text(rank == 0 ? new_identity() : "").front();
  together(communicator, [&] {
    if (rank == 0) make_folder(folder);
  });

  const std::string path = fs::path(folder) / state_file_name(rank, world_size, save);
  SavedFile mine;
  const auto failure = first_failure(communicator, [&] {
    runtime.synchronize();
    mine = write_rank(path, {.save = save, .rank = rank, .job = job, .tensors = {}, .pieces = {}},
                      config, optimizer, runtime);
  });
  if (failure) {
    std::error_code ignored;
    fs::remove(path, ignored);
    throw Error(*failure);
  }

  const auto sizes = communicator.all_gather(std::span(&mine.bytes, 1));
  const auto digests = communicator.all_gather_text(mine.index_digest);
  together(communicator, [&] {
    if (rank != 0) return;
    StateManifest manifest{
        .save = save, .job = job, .parameters = describe_parameters(model), .files = {}};
    for (std::size_t r = 0; r < digests.size(); ++r) {
      require_visible(
          fs::path(folder) / state_file_name(static_cast<std::int64_t>(r), world_size, save),
          sizes[r]);
      manifest.files.push_back({.bytes = sizes[r], .index_digest = digests[r]});
    }
    const std::string text = manifest.text();
    DurableFile file(fs::path(folder) / kManifestName);
    file.write(std::as_bytes(std::span(text)));
    file.commit();
    remove_leftovers(folder);
  });
}

}  // namespace stepscope::topologies
