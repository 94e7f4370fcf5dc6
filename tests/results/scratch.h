#pragma once

/// Purpose: a folder for one test, removed with everything in it when the test ends.
///
/// Usage:  Scratch scratch; write(scratch.path() / "table.csv");
///
/// Caveats: others may read it (mode 0755), since some tests give up root's rights.

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace stepscope::results {

class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "stepscope_test_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), name);
    }
    path_ = std::filesystem::canonical(name);
    std::filesystem::permissions(path_, std::filesystem::perms(0755));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace stepscope::results
