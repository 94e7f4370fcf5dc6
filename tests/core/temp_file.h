#pragma once

/// Purpose: a file that exists for the time of one test.
///
/// Usage:  const TempFile file("broken.json", "[");  read(file.path());

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace stepscope {

class TempFile {
 public:
  /// Writes `bytes` to a file called `name` in a folder of its own.
  TempFile(const std::string& name, std::string_view bytes) {
    static int serial = 0;
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("stepscope." + std::to_string(::getpid()) + "." + std::to_string(serial++));
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / name).string();
    write(bytes);
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  ~TempFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void write(std::string_view bytes) const {
    std::ofstream stream(path_, std::ios::binary | std::ios::trunc);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(stream.flush()) << path_;
  }
  const std::string& path() const { return path_; }

 private:
  std::filesystem::path folder_;
  std::string path_;
};

}  // namespace stepscope
