#pragma once

/// Purpose: a file that is appended to and whose every failure is an Error.
///
/// Usage:  OutputFile file(path); file.append(record); file.sync_and_close();
///
/// Caveats: unbuffered: what `append` returned from survives the death of the process, though not
/// of the machine before `sync_and_close`. A failed append leaves the file as it was before it, as
/// far as the file system allows. Not for use from several threads.

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace stepscope::results::detail {

class OutputFile {
 public:
  /// Creates a file that must not exist, with mode 0644 under the umask.
  explicit OutputFile(std::filesystem::path path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  /// Writes all of `text` behind what is there.
  void append(std::string_view text);

  /// Forces the content to the disk and closes the file. Throws Error too when an earlier append
  /// failed, so that a caller cannot take a file with a gap for a whole one.
  void sync_and_close();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
  bool failed_ = false;
};

/// Forces a file or directory to the disk.
void sync_path(const std::filesystem::path& path);

/// Throws Error with the path and the text of `error_number` (an errno value).
[[noreturn]] void fail_with_errno(const char* what, const std::filesystem::path& path,
                                  int error_number);

}  // namespace stepscope::results::detail
