#include "core/input_file.h"

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "core/error.h"

namespace stepscope {

InputFile::InputFile(const std::string& path) : path_(path) {
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw Error("no such file", "check the path", {.file = path});
  }
  if (status.type() == std::filesystem::file_type::directory) {
    throw Error("this is a directory", "name a file in it", {.file = path});
  }
  if (failure) throw Error("cannot be read: " + failure.message(), "", {.file = path});
  if (status.type() != std::filesystem::file_type::regular) {
    throw Error("this is no regular file", "copy the data to a file first", {.file = path});
  }
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  errno = 0;
  if (!failure) stream_.open(path, std::ios::binary);
  if (failure || !stream_) {
    const std::error_code why = failure ? failure : std::error_code(errno, std::generic_category());
    throw Error("cannot be read: " + why.message(), "check its permissions", {.file = path});
  }
  size_ = static_cast<std::int64_t>(size);
}

std::string InputFile::read(std::int64_t count) {
  std::string bytes(static_cast<std::size_t>(count), '\0');
  stream_.read(bytes.data(), count);
  if (stream_.gcount() != count) {
    throw Error("reading stopped after " + std::to_string(stream_.gcount()) + " of " +
                    std::to_string(count) + " bytes",
                "the file changed or the disk failed; try again", {.file = path_});
  }
  return bytes;
}

std::string file_stem(const std::string& path) {
  return std::filesystem::path(path).stem().string();
}

}  // namespace stepscope
