#pragma once

/// Purpose: a file that appears under its name whole and on the disk, or not at all.
///
/// Usage:
///     DurableFile file("folder/manifest.json");
///     file.write(bytes);
///     file.commit();
///
/// Caveats: until commit() the bytes are in "<path>.partial", which a killed process leaves behind
/// and the destructor removes. A file that has the name is replaced; symbolic links are followed.
/// What is no regular file is refused: to give its name away would take /dev/null from the machine.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace stepscope {

class DurableFile {
 public:
  /// Throws Error naming the file where it cannot be created.
  explicit DurableFile(const std::string& path);
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;
  ~DurableFile();

  /// Appends. Throws Error naming the file, for example where the disk is full.
  void write(std::span<const std::byte> bytes);

  /// Bytes written so far.
  std::int64_t size() const noexcept { return size_; }

  /// Forces the bytes to the disk, gives the file its name, and forces the folder to the disk.
  void commit();

 private:
  std::string path_;
  std::string partial_;
  int descriptor_;
  std::int64_t size_ = 0;
};

/// The file that `path` names, symbolic links followed. Throws Error naming it where something is
/// there that is no regular file.
std::string replaceable_file(const std::string& path);

/// For files that another library writes, both of the same folder: forces the finished file
/// `partial` to the disk, gives it the name `path`, and forces the folder to the disk. Throws Error
/// naming the file.
void commit_file(const std::string& partial, const std::string& path);

/// Forces the entries of a folder to the disk. Throws Error naming it.
void sync_folder(const std::string& folder);

}  // namespace stepscope
