#pragma once

/// Purpose: one rank's file of a saved state, read in parts: its index when it is opened, then only
/// the chunks that are asked for, each checked against its digest.
///
/// Usage: internal to state_file.h.
///
/// Caveats: the file is open only while something is read, so that any number of readers can exist.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "topologies/state_index.h"

namespace stepscope::topologies {

class StateReader {
 public:
  /// Throws Error naming the file where it is missing, has another size than the manifest says, or
  /// is not the file that the manifest means: another rank's, another save's, or damaged.
  StateReader(const std::string& folder, const StateManifest& manifest, std::int64_t rank,
              const Model& model, const StepConfig& config);

  const StateIndex& index() const noexcept { return index_; }
  const std::string& path() const noexcept { return path_; }

  /// Where the index has an element: its parameter value, and its state if it has any.
  std::optional<Place> find_param(std::size_t parameter, std::int64_t offset) const {
    return tensors_.find(parameter, offset);
  }
  std::optional<Place> find_state(std::size_t parameter, std::int64_t offset) const {
    return pieces_.find(parameter, offset);
  }

  /// Copies bytes [first, first + count) of an array of the index. Throws Error naming the file
  /// where a chunk is not what was saved.
  void read(const SavedArray& array, std::int64_t first, std::int64_t count,
            std::byte* destination);

 private:
  /// The chunk that starts at `offset` of the file; kept until another one is read.
  const std::string& chunk(std::int64_t offset, std::int64_t bytes, const std::string& digest);

  std::string path_;
  StateIndex index_;
  Places tensors_, pieces_;
  std::int64_t chunk_offset_ = -1;
  std::string chunk_;
};

}  // namespace stepscope::topologies
