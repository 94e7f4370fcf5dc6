#include "results/csv_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace stepscope::results {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool is_plain(const char* begin, std::size_t size) {
  return std::memchr(begin, '"', size) == nullptr && std::memchr(begin, '\r', size) == nullptr &&
         std::memchr(begin, '\0', size) == nullptr;
}

}  // namespace

CsvStream::CsvStream(std::filesystem::path path, std::int64_t preamble)
    : path_(std::move(path)), buffer_(kBuffer) {
  std::error_code status;
  if (std::filesystem::is_directory(path_, status)) {
    throw Error("is a directory", "give the path of a CSV file", {.file = path_.string()});
  }
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  try {
    while (end_ < kByteOrderMark.size() && refill()) {
    }
    if (std::string_view(buffer_.data(), end_).starts_with(kByteOrderMark)) {
      begin_ = kByteOrderMark.size();
    }
    for (std::int64_t i = 0; i < preamble; ++i) skip_line();
  } catch (...) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw;
  }
}

CsvStream::~CsvStream() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void CsvStream::fail(std::int64_t line, std::string what, std::string advice) const {
  throw Error(std::move(what), std::move(advice), {.file = path_.string(), .line = line});
}

bool CsvStream::next() {
  std::size_t searched = 0;  // of the bytes from begin_ on
  while (true) {
    const char* start = buffer_.data() + begin_;
    const auto* end =
        static_cast<const char*>(std::memchr(start + searched, '\n', end_ - begin_ - searched));
    if (end == nullptr && !at_end_of_file_) {
      searched = end_ - begin_;
      refill();
      continue;
    }
    if (begin_ == end_) return false;
    record_line_ = line_;
    const auto size =
        static_cast<std::size_t>((end == nullptr ? buffer_.data() + end_ : end) - start);
    if (end != nullptr && (plain_ || is_plain(start, size))) {
      split({start, size});
      begin_ += size + 1;
      ++line_;
      return true;
    }
    if (parse_record() == Parsed::record) return true;
    searched = 0;
    refill();
  }
}

void CsvStream::skip_line() {
  const void* end = nullptr;
  while ((end = std::memchr(buffer_.data() + begin_, '\n', end_ - begin_)) == nullptr && refill()) {
  }
  begin_ = end == nullptr
               ? end_
               : static_cast<std::size_t>(static_cast<const char*>(end) - buffer_.data()) + 1;
  ++line_;
}

bool CsvStream::refill() {
  if (at_end_of_file_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    plain_ = plain_ || is_plain(buffer_.data(), end_);
  }
  if (end_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);
  ssize_t got = 0;
  do {
    got = ::read(descriptor_, buffer_.data() + end_, buffer_.size() - end_);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    throw Error("cannot be read", "check the path and its permissions", {.file = path_.string()});
  }
  const auto size = static_cast<std::size_t>(got);
  if (size == 0) at_end_of_file_ = true;
  plain_ = plain_ && is_plain(buffer_.data() + end_, size);
  end_ += size;
  return size > 0;
}

void CsvStream::split(std::string_view line) {
  fields_.clear();
  while (true) {
    const void* comma = std::memchr(line.data(), ',', line.size());
    if (comma == nullptr) break;
    const auto size = static_cast<std::size_t>(static_cast<const char*>(comma) - line.data());
    fields_.push_back(line.substr(0, size));
    line.remove_prefix(size + 1);
  }
  fields_.push_back(line);
}

/// The general case, byte by byte. Consumes nothing when the record does not end in the buffer.
CsvStream::Parsed CsvStream::parse_record() {
  const std::string_view text(buffer_.data() + begin_, end_ - begin_);
  std::size_t next = 0;
  std::int64_t line = line_;
  const auto peek = [&] {
    return next == text.size() ? -1 : static_cast<unsigned char>(text[next]);
  };
  const auto check_not_nul = [&](char c) {
    if (c == '\0') fail(line, "the line holds a NUL byte", "this is not a CSV file");
  };
  unquoted_.clear();
  while (true) {
    std::string& field = unquoted_.emplace_back();
    if (peek() == '"') {
      bool closed = false;
      for (++next; next < text.size() && !closed; ++next) {
        const char c = text[next];
        check_not_nul(c);
        if (c == '"') {
          if (next + 1 == text.size() && !at_end_of_file_) return Parsed::need_more;
          if (next + 1 < text.size() && text[next + 1] == '"') {
            ++next;
          } else {
            closed = true;
            continue;
          }
        }
        if (c == '\n') ++line;
        field += c;
      }
      if (!closed) {
        if (!at_end_of_file_) return Parsed::need_more;
        fail(record_line_, "a quote opened in this record is never closed",
             "the file was cut off or a quote is not doubled");
      }
      const int after = peek();
      if (after != -1 && after != ',' && after != '\r' && after != '\n') {
        fail(line, "text follows a closing quote", "double the quotes inside the field");
      }
    } else {
      const std::size_t start = next;
      for (; next < text.size(); ++next) {
        const char c = text[next];
        if (c == ',' || c == '\r' || c == '\n') break;
        if (c == '"') {
          fail(line, "a quote stands inside an unquoted field", "quote the whole field");
        }
        check_not_nul(c);
      }
      field = text.substr(start, next - start);
    }
    if (next == text.size()) {
      if (!at_end_of_file_) return Parsed::need_more;
      fail(line, "the last line has no line end, so the file was cut off",
           "write the file again, or, if it is whole, end it with a line break");
    }
    const char separator = text[next++];
    if (separator == ',') continue;
    if (separator == '\r') {
      if (peek() == -1 && !at_end_of_file_) return Parsed::need_more;
      if (peek() != '\n') fail(line, "a carriage return stands alone", "quote the field");
      ++next;
    }
    break;
  }
  fields_.assign(unquoted_.begin(), unquoted_.end());
  begin_ += next;
  line_ = line + 1;
  return Parsed::record;
}

}  // namespace stepscope::results
