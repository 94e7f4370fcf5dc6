#pragma once

/// Purpose: what a saved state says about itself: the job that wrote it, and where in each rank's
/// file the bytes of which elements are. docs/state-files.md describes the files.
///
/// Usage: internal to state_file.h.
///
/// Caveats: places are not stored but follow from the sizes, in the order of the index, so that
/// they cannot contradict each other. Everything read from a file is checked before it is used as a
/// size, an index or a place.

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/shard_tensors.h"
#include "topologies/model.h"
#include "topologies/shard_plan.h"
#include "topologies/sharded_optimizer.h"

namespace stepscope::topologies {

inline constexpr std::int64_t kStateFormatVersion = 1;

/// A rank's file begins with this line.
inline constexpr std::string_view kStateMagic = "stepscope state\n";

/// Bytes that share one digest: a reader of a part reads and checks the chunks around it.
inline constexpr std::int64_t kChunkBytes = std::int64_t{1} << 18;

inline constexpr std::string_view kManifestName = "manifest.json";

/// Contiguous bytes of a rank's file.
struct SavedArray {
  std::int64_t offset = 0;  ///< within the file
  std::int64_t bytes = 0;
  std::vector<std::string> digests = {};  ///< of each chunk
};

/// The parameters of one local tensor, padding that the optimizer sees included.
struct SavedTensor {
  std::int64_t numel = 0;
  bool stepped =
      false;  ///< whether its elements have state; state that is missing is no zero state
  std::vector<Range> ranges;
  SavedArray param;
};

/// The four arrays of a stepped piece's state, in the order of the file.
enum StateArray : std::size_t { kMoment1, kMoment2, kAbsmax1, kAbsmax2, kStateArrays };

/// The state of one stepped piece (OwnedShard).
struct SavedPiece {
  kernels::StateFormat format = kernels::StateFormat::fp32;
  std::int64_t numel = 0;
  std::int64_t step = 0;  ///< number of the last step
  std::vector<Range> ranges;
  std::array<SavedArray, kStateArrays> arrays;  ///< 0 bytes where it does not exist
};

/// Bytes of each array of a piece.
std::array<std::int64_t, kStateArrays> state_array_bytes(kernels::StateFormat format,
                                                         std::int64_t numel, Optimizer optimizer);

/// Where a parameter's element is: entry of a list, and the entry's range that holds it.
struct Place {
  std::size_t entry = 0;
  Range range;
};

/// Finds elements in a list of entries that have `ranges`.
class Places {
 public:
  /// False where an element of `ranges` was there before: it would have two values.
  bool add(std::size_t entry, const std::vector<Range>& ranges);
  std::optional<Place> find(std::size_t parameter, std::int64_t offset) const;

 private:
  std::map<std::pair<std::size_t, std::int64_t>, Place> places_;  ///< by first element
};

/// The index at the end of a rank's file.
struct StateIndex {
  std::string save;  ///< identity of the save, the same in all its files
  std::int64_t rank = 0;
  nlohmann::json job;
  std::vector<SavedTensor> tensors;
  std::vector<SavedPiece> pieces;

  std::string text() const;

  /// The inverse, with offsets filled in. `data_end`: where the arrays end in the file. Throws
  /// Error naming `file` where the text is not an index of that many bytes for `model`.
  static StateIndex parse(std::string_view text, const std::string& file, std::int64_t data_end,
                          const Model& model, const StepConfig& config);
};

/// What a rank's file is in the manifest.
struct SavedFile {
  std::int64_t bytes = 0;
  std::string index_digest;
};

/// The file that makes a save complete.
struct StateManifest {
  std::string save;
  nlohmann::json job;
  nlohmann::json parameters;
  std::vector<SavedFile> files;  ///< by rank

  std::string text() const;
  /// Throws Error naming `file`.
  static StateManifest parse(std::string_view text, const std::string& file);
};

/// Name, shape and tie of every parameter: what makes two models the same for a saved state.
nlohmann::json describe_parameters(const Model& model);

/// Everything that decides what the files hold, and the hyperparameters.
nlohmann::json describe_job(const Model& model, const ShardPlan& plan, const StepConfig& config);

/// The hyperparameters of a job. Throws Error naming `file`.
kernels::Hyperparameters hyperparameters_of(const nlohmann::json& job, const std::string& file);

/// The plan of the job that saved, for parameters of `model`'s shapes. Throws Error naming `file`.
ShardPlan plan_of(const nlohmann::json& job, Model model, const std::string& file);

/// "fsdp1 (per-module) on 4 ranks".
std::string layout_name(const PlanOptions& options);

/// "rank-1-of-4.<save>.state"
std::string state_file_name(std::int64_t rank, std::int64_t world_size, const std::string& save);

}  // namespace stepscope::topologies
