#include "core/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace stepscope {
namespace {

constexpr int kClosed = -1;
constexpr int kMostLinks = 40;  // as Linux follows

[[noreturn]] void fail(const std::string& what, const std::string& file) {
  const int code = errno;
  throw Error(what + ": " + std::generic_category().message(code),
              code == ENOSPC || code == EDQUOT ? "free some space on that disk and save again"
                                               : "check the folder, its permissions and its disk",
              {.file = file});
}

void give_name(const std::string& partial, const std::string& path) {
  if (::rename(partial.c_str(), path.c_str()) != 0) {
    const int code = errno;
    ::unlink(partial.c_str());
    errno = code;
    fail("cannot be given its name", path);
  }
  sync_folder(std::filesystem::path(path).parent_path().string());
}

}  // namespace

std::string replaceable_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw Error(fs::is_directory(status) ? "is a directory" : "is no regular file",
                "name a file to write to", {.file = path});
  }
  // Link by link: the last may name a file that is not there yet.
  fs::path file = path;
  for (int links = 0; fs::is_symlink(file, failure); ++links) {
    if (links == kMostLinks) {
      throw Error("its symbolic links lead nowhere", "name another file", {.file = path});
    }
    file = file.parent_path() / fs::read_symlink(file, failure);
    if (failure) break;
  }
  return file.string();
}

DurableFile::DurableFile(const std::string& path)
    : path_(replaceable_file(path)), partial_(path_ + ".partial"), descriptor_(kClosed) {
  // Made anew, so that neither a link nor a pipe of that name is written to.
  ::unlink(partial_.c_str());
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor_ == kClosed) fail("cannot be created", partial_);
}

DurableFile::~DurableFile() {
  if (descriptor_ == kClosed) return;
  ::close(descriptor_);
  ::unlink(partial_.c_str());
}

void DurableFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ::ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot be written", partial_);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    size_ += count;
  }
}

void DurableFile::commit() {
  if (::fsync(descriptor_) != 0) fail("cannot be forced to the disk", partial_);
  ::close(std::exchange(descriptor_, kClosed));
  give_name(partial_, path_);
}

void commit_file(const std::string& partial, const std::string& path) {
  const int descriptor = ::open(partial.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor == kClosed) fail("cannot be opened", partial);
  const bool failed = ::fsync(descriptor) != 0;
  const int code = errno;
  ::close(descriptor);
  errno = code;
  if (failed) fail("cannot be forced to the disk", partial);
  give_name(partial, path);
}

void sync_folder(const std::string& folder) {
  const std::string path = folder.empty() ? "." : folder;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor == kClosed) fail("cannot be opened", path);
  const bool failed = ::fsync(descriptor) != 0;
  const int code = errno;
  ::close(descriptor);
  errno = code;
  if (failed) fail("cannot be forced to the disk", path);
}

}  // namespace stepscope
