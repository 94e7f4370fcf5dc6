#pragma once

/// Purpose: JSON text that is read piece by piece from a plain or gzip file, without holding more
/// than one value in memory, and with the byte at which it is damaged.
///
/// Usage:
///     JsonScanner scanner(path);
///     scanner.object([&](std::string_view key) {
///       if (key == "ts") ts = scanner.number(); else scanner.skip();
///     });
///
/// Caveats: strict: raw control bytes, invalid UTF-8, lone surrogates and trailing commas are
/// damage. Numbers are handed out as text, so that nobody's double comes between. Offsets count the
/// unpacked text.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/error.h"

namespace stepscope::tracer {

/// Where and how a text stops to be JSON.
class JsonDamage : public std::runtime_error {
 public:
  JsonDamage(std::int64_t offset, const std::string& what)
      : std::runtime_error(what), offset_(offset) {}
  std::int64_t offset() const noexcept { return offset_; }

 private:
  std::int64_t offset_;
};

class JsonScanner {
 public:
  /// Throws Error naming the file where it cannot be opened.
  explicit JsonScanner(const std::string& path);
  ~JsonScanner();
  JsonScanner(const JsonScanner&) = delete;
  JsonScanner& operator=(const JsonScanner&) = delete;

  /// All functions below throw JsonDamage.

  /// The first byte of the next value, after white space; 0 at the end.
  char peek();

  /// Calls `member(key)` for each member of the object that comes next; it must read the value. The
  /// key is valid until it does.
  template <typename Member>
  void object(Member&& member) {
    const Nested nested(*this);
    take('{');
    if (try_take('}')) return;
    do {
      peek();
      member(string(key_));
    } while (try_take(','));
    take('}');
  }

  /// Calls `element()` for each element of the array that comes next; it must read the value.
  template <typename Element>
  void array(Element&& element) {
    const Nested nested(*this);
    take('[');
    if (try_take(']')) return;
    do {
      element();
    } while (try_take(','));
    take(']');
  }

  /// The string that comes next; valid until the next call.
  std::string_view string() { return string(text_); }

  /// The number that comes next, as it stands there; valid until the next call.
  std::string_view number();

  /// Reads over the value that comes next.
  void skip();

  /// Takes `byte`, after white space.
  void take(char byte);
  bool try_take(char byte);

  /// For salvage: goes on to the next "{" that follows "," or "[", and returns whether there is
  /// one. `previous` is the last byte before that is not white space.
  bool seek_object(char previous);

  /// Bytes read so far.
  std::int64_t offset() const noexcept { return base_ + static_cast<std::int64_t>(at_); }

  [[noreturn]] void fail(const std::string& what) const;

 private:
  /// Counts objects and arrays inside one another.
  class Nested {
   public:
    explicit Nested(JsonScanner& scanner);
    ~Nested() { --scanner_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    JsonScanner& scanner_;
  };

  /// The next byte without taking it; -1 at the end.
  int look() {
    return at_ < piece_.size() || refill() ? static_cast<unsigned char>(piece_[at_]) : -1;
  }
  bool refill();
  std::string_view string(std::string& into);
  void escape(std::string& into);
  std::uint32_t four_hex_digits();
  void character(std::string& into);
  void word(std::string_view letters);

  struct Source;
  std::unique_ptr<Source> source_;
  std::string piece_;
  std::size_t at_ = 0;
  std::int64_t base_ = 0;  ///< offset of piece_'s first byte
  int depth_ = 0;
  std::string key_;
  std::string text_;
};

}  // namespace stepscope::tracer
