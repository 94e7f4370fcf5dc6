#include "tracer/json_scanner.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "core/input_file.h"

namespace stepscope::tracer {
namespace {

constexpr unsigned kPiece = 1 << 18;
constexpr int kDeepest = 64;
constexpr std::size_t kLongestString = std::size_t{1} << 20;

/// gzip makes a text at most 1,032 times smaller, and traces some 20 times. What unpacks to more
/// was made to fill a disk or a memory.
constexpr std::int64_t kMostUnpacked = 200;
constexpr std::int64_t kFreeBytes = std::int64_t{1} << 26;

bool is_space(int byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }
bool is_digit(int byte) { return byte >= '0' && byte <= '9'; }

std::string shown(int byte) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  if (byte < 0) return "the end";
  if (byte > ' ' && byte < 0x7f) return std::string("'") + static_cast<char>(byte) + "'";
  return std::string("byte 0x") + kHex[static_cast<unsigned>(byte) >> 4] +
         kHex[static_cast<unsigned>(byte) & 15];
}

void append_utf8(std::uint32_t code, std::string& into) {
  const auto byte = [&](std::uint32_t value) { into += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6);
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
}

}  // namespace

/// zlib reads plain files as they are.
struct JsonScanner::Source {
  gzFile file = nullptr;
  std::int64_t most = 0;
  Source(gzFile opened, std::int64_t limit) : file(opened), most(limit) {}
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  ~Source() { gzclose(file); }
};

JsonScanner::JsonScanner(const std::string& path) {
  const std::int64_t bytes = InputFile(path).size();
  gzFile file = gzopen(path.c_str(), "rbe");
  if (file == nullptr) throw Error("cannot be opened", "check its permissions", {.file = path});
  source_ = std::make_unique<Source>(file, bytes * kMostUnpacked + kFreeBytes);
}

JsonScanner::~JsonScanner() = default;

JsonScanner::Nested::Nested(JsonScanner& scanner) : scanner_(scanner) {
  if (scanner_.depth_ >= kDeepest) {
    scanner_.fail("more than " + std::to_string(kDeepest) + " objects or arrays in one another");
  }
  ++scanner_.depth_;
}

void JsonScanner::fail(const std::string& what) const { throw JsonDamage(offset(), what); }

bool JsonScanner::refill() {
  base_ += static_cast<std::int64_t>(piece_.size());
  at_ = 0;
  piece_.resize(kPiece);
  const int count = gzread(source_->file, piece_.data(), kPiece);
  piece_.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  int code = Z_OK;
  const std::string message = gzerror(source_->file, &code);
  if (count < 0 || (count == 0 && code != Z_OK && code != Z_STREAM_END)) {
    fail(code == Z_BUF_ERROR ? "the compressed file is cut here"
                             : "the compressed file is damaged: " + message);
  }
  if (base_ > source_->most) fail("the compressed file unpacks to far more than a trace does");
  return count > 0;
}

char JsonScanner::peek() {
  while (is_space(look())) ++at_;
  const int byte = look();
  return byte < 0 ? '\0' : static_cast<char>(byte);
}

void JsonScanner::take(char byte) {
  if (!try_take(byte)) fail(std::string("'") + byte + "' was expected, not " + shown(look()));
}

bool JsonScanner::try_take(char byte) {
  while (is_space(look())) ++at_;
  if (look() != static_cast<unsigned char>(byte)) return false;
  ++at_;
  return true;
}

std::string_view JsonScanner::string(std::string& into) {
  take('"');
  into.clear();
  for (;;) {
    const int byte = look();
    if (byte < 0) fail("a string does not end");
    if (into.size() > kLongestString) fail("a string is longer than 1 MiB");
    if (byte == '"') break;
    if (byte == '\\') {
      ++at_;
      escape(into);
    } else if (byte < 0x20) {
      fail("raw control " + shown(byte) + " in a string");
    } else if (byte < 0x80) {
      into += static_cast<char>(byte);
      ++at_;
    } else {
      character(into);
    }
  }
  ++at_;
  // A key is followed by its value.
  if (&into == &key_) take(':');
  return into;
}

/// A character of UTF-8 that is longer than one byte.
void JsonScanner::character(std::string& into) {
  const auto lead = static_cast<unsigned>(look());
  const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
  std::uint32_t code = lead & (0x3fU >> more);
  const bool known = lead >= 0xc2 && lead <= 0xf4;
  const std::int64_t start = offset();
  ++at_;
  for (int i = 0; known && i < more; ++i, ++at_) {
    const int next = look();
    if ((next & 0xc0) != 0x80 || next < 0) throw JsonDamage(start, "invalid UTF-8 in a string");
    code = code << 6 | (static_cast<unsigned>(next) & 0x3f);
  }
  static constexpr std::array<std::uint32_t, 4> kLeast = {0, 0x80, 0x800, 0x10000};
  if (!known || code < kLeast[static_cast<std::size_t>(more)] || code > 0x10ffff ||
      (code >= 0xd800 && code < 0xe000)) {
    throw JsonDamage(start, "invalid UTF-8 in a string");
  }
  append_utf8(code, into);
}

void JsonScanner::escape(std::string& into) {
  static constexpr std::string_view kNames = "\"\\/bfnrt";
  static constexpr std::string_view kBytes = "\"\\/\b\f\n\r\t";
  const int byte = look();
  if (byte == 'u') {
    ++at_;
    std::uint32_t code = four_hex_digits();
    if (code >= 0xd800 && code < 0xdc00) {
      if (look() != '\\') fail("half of a surrogate pair in a string");
      ++at_;
      if (look() != 'u') fail("half of a surrogate pair in a string");
      ++at_;
      const std::uint32_t low = four_hex_digits();
      if (low < 0xdc00 || low >= 0xe000) fail("half of a surrogate pair in a string");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      fail("half of a surrogate pair in a string");
    }
    append_utf8(code, into);
    return;
  }
  const auto found = byte < 0 ? std::string_view::npos : kNames.find(static_cast<char>(byte));
  if (found == std::string_view::npos) fail("no escape of JSON: " + shown(byte) + " after '\\'");
  into += kBytes[found];
  ++at_;
}

std::uint32_t JsonScanner::four_hex_digits() {
  std::uint32_t code = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const int byte = look();
    int digit = -1;
    if (is_digit(byte)) digit = byte - '0';
    if (byte >= 'a' && byte <= 'f') digit = byte - 'a' + 10;
    if (byte >= 'A' && byte <= 'F') digit = byte - 'A' + 10;
    if (digit < 0) fail("four hex digits were expected, not " + shown(byte));
    code = code << 4 | static_cast<std::uint32_t>(digit);
  }
  return code;
}

std::string_view JsonScanner::number() {
  peek();
  text_.clear();
  const auto digits = [&] {
    if (!is_digit(look())) fail("a number was expected, not " + shown(look()));
    while (is_digit(look())) {
      if (text_.size() > 1'000) fail("a number is longer than 1,000 digits");
      text_ += piece_[at_++];
    }
  };
  const auto take_one_of = [&](std::string_view bytes) {
    const int byte = look();
    if (byte < 0 || bytes.find(static_cast<char>(byte)) == std::string_view::npos) return false;
    text_ += piece_[at_++];
    return true;
  };
  take_one_of("-");
  if (!take_one_of("0")) digits();
  if (take_one_of(".")) digits();
  if (take_one_of("eE")) {
    take_one_of("+-");
    digits();
  }
  return text_;
}

void JsonScanner::word(std::string_view letters) {
  for (const char letter : letters) {
    if (look() != letter) fail("a value was expected, not " + shown(look()));
    ++at_;
  }
}

void JsonScanner::skip() {
  switch (peek()) {
    case '{':
      object([this](std::string_view) { skip(); });
      break;
    case '[':
      array([this] { skip(); });
      break;
    case '"':
      string();
      break;
    case 't':
      word("true");
      break;
    case 'f':
      word("false");
      break;
    case 'n':
      word("null");
      break;
    default:
      number();
  }
}

bool JsonScanner::seek_object(char previous) {
  depth_ = 0;
  for (int byte = look(); byte >= 0; byte = look()) {
    if (byte == '{' && (previous == ',' || previous == '[')) return true;
    if (!is_space(byte)) previous = static_cast<char>(byte);
    ++at_;
  }
  return false;
}

}  // namespace stepscope::tracer
