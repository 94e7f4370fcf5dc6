#pragma once

/// Purpose: opening input files that a user named, with an error that says what is wrong with them.
///
/// Usage:
///     InputFile file(path);
///     const std::string bytes = file.read(file.size());
///
/// Caveats: regular files only. A pipe, which could make the program wait for ever, is refused.

#include <cstdint>
#include <fstream>
#include <string>

namespace stepscope {

class InputFile {
 public:
  /// Throws Error naming the file where it does not exist, is no regular file, or cannot be opened.
  explicit InputFile(const std::string& path);

  /// Bytes, as of the opening.
  std::int64_t size() const noexcept { return size_; }

  /// The next read() starts at byte `offset`, at most size().
  void seek(std::int64_t offset) { stream_.seekg(offset); }

  /// The next `count` bytes. Throws Error naming the file where there are fewer.
  std::string read(std::int64_t count);

 private:
  std::string path_;
  std::int64_t size_ = 0;
  std::ifstream stream_;
};

/// "model" for "dir/model.safetensors": what a model read from `path` is called.
std::string file_stem(const std::string& path);

}  // namespace stepscope
