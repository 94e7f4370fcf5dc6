#include "topologies/state_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/input_file.h"
#include "topologies/sha256.h"

namespace stepscope::topologies {
namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr const char* kLoadAnother = "load another saved state, or copy this file again";

std::int64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return static_cast<std::int64_t>(value);
}

}  // namespace

StateReader::StateReader(const std::string& folder, const StateManifest& manifest,
                         std::int64_t rank, const Model& model, const StepConfig& config) {
  const auto world_size = static_cast<std::int64_t>(manifest.files.size());
  const SavedFile& expected = manifest.files.at(static_cast<std::size_t>(rank));
  path_ = (std::filesystem::path(folder) / state_file_name(rank, world_size, manifest.save));
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored)) {
    throw Error("this file is missing, the manifest beside it names it", kLoadAnother,
                {.file = path_});
  }
  InputFile file(path_);
  if (file.size() != expected.bytes) {
    throw Error("it is " + std::to_string(file.size()) + " bytes long, " +
                    std::to_string(expected.bytes) + " were saved",
                kLoadAnother, {.file = path_});
  }
  const auto magic = static_cast<std::int64_t>(kStateMagic.size());
  if (file.size() < magic + kLengthBytes || file.read(magic) != kStateMagic) {
    throw Error("this is no file of a saved state", kLoadAnother, {.file = path_});
  }
  const std::int64_t index_end = file.size() - kLengthBytes;
  file.seek(index_end);
  const std::int64_t index_bytes = little_endian(file.read(kLengthBytes));
  if (index_bytes < 0 || index_bytes > index_end - magic) {
    throw Error("its index has an impossible length", kLoadAnother, {.file = path_});
  }
  file.seek(index_end - index_bytes);
  const std::string text = file.read(index_bytes);
  if (sha256(text) != expected.index_digest) {
    throw Error(
        "its index is not the one that the manifest means: it is damaged, or the file of "
        "another rank or save",
        kLoadAnother, {.file = path_});
  }
  index_ = StateIndex::parse(text, path_, index_end - index_bytes, model, config);
  if (index_.rank != rank || index_.save != manifest.save || index_.job != manifest.job) {
    throw Error("it belongs to another rank or save", kLoadAnother, {.file = path_});
  }
  bool apart = true;
  for (std::size_t i = 0; i < index_.tensors.size(); ++i) {
    apart = apart && tensors_.add(i, index_.tensors[i].ranges);
  }
  for (std::size_t i = 0; i < index_.pieces.size(); ++i) {
    apart = apart && pieces_.add(i, index_.pieces[i].ranges);
  }
  if (!apart) throw Error("its index has an element twice", kLoadAnother, {.file = path_});
}

void StateReader::read(const SavedArray& array, std::int64_t first, std::int64_t count,
                       std::byte* destination) {
  while (count > 0) {
    const std::int64_t number = first / kChunkBytes;
    const std::int64_t start = number * kChunkBytes;
    const std::int64_t bytes = std::min(kChunkBytes, array.bytes - start);
    const std::string& data =
        chunk(array.offset + start, bytes, array.digests.at(static_cast<std::size_t>(number)));
    const std::int64_t part = std::min(count, start + bytes - first);
    std::memcpy(destination, data.data() + (first - start), static_cast<std::size_t>(part));
    destination += part;
    first += part;
    count -= part;
  }
}

const std::string& StateReader::chunk(std::int64_t offset, std::int64_t bytes,
                                      const std::string& digest) {
  if (offset == chunk_offset_) return chunk_;
  InputFile file(path_);
  file.seek(offset);
  chunk_ = file.read(bytes);
  if (sha256(chunk_) != digest) {
    chunk_offset_ = -1;
    throw Error("its bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) +
                    " are not those that were saved",
                kLoadAnother, {.file = path_});
  }
  chunk_offset_ = offset;
  return chunk_;
}

}  // namespace stepscope::topologies
