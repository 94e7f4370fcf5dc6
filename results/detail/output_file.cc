#include "results/detail/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace stepscope::results::detail {
namespace {

const char* advice_for(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "free space or write to another disk, then run again";
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose a folder that you may write to";
    case EEXIST:
      return "choose another name";
    default:
      return "check the disk and the path, then run again";
  }
}

}  // namespace

void fail_with_errno(const char* what, const std::filesystem::path& path, int error_number) {
  throw Error(std::string(what) + ": " + std::generic_category().message(error_number),
              advice_for(error_number), {.file = path.string()});
}

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_with_errno("cannot be created", path_, errno);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      failed_(other.failed_) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::append(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error_number = written < 0 ? errno : ENOSPC;
      failed_ = true;
      // Half a record would make the whole file unreadable. If this fails too, nothing is left to
      // try, and the error below is the one to tell.
      [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, size_);
      fail_with_errno("cannot be written", path_, error_number);
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  size_ += static_cast<std::int64_t>(text.size());
}

void OutputFile::sync_and_close() {
  if (failed_) {
    throw Error("an earlier write failed, so the file is not whole", "run again",
                {.file = path_.string()});
  }
  if (::fsync(descriptor_) != 0) fail_with_errno("cannot be forced to the disk", path_, errno);
  // Network file systems report a full disk at close.
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    fail_with_errno("cannot be written", path_, errno);
  }
}

void sync_path(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_with_errno("cannot be opened", path, errno);
  const int status = ::fsync(descriptor);
  const int error_number = errno;
  ::close(descriptor);
  // Some file systems have nothing to force for a directory and say so with EINVAL.
  if (status != 0 && error_number != EINVAL) {
    fail_with_errno("cannot be forced to the disk", path, error_number);
  }
}

}  // namespace stepscope::results::detail
