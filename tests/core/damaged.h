#pragma once

/// Purpose: random, repeatable damage to the text of an input file.
///
/// Usage:
///     Damage damage(1);
///     for (int i = 0; i < 1000; ++i) read(damage.of(good));

#include <cstdint>
#include <random>
#include <string>

namespace stepscope {

class Damage {
 public:
  // NOLINTNEXTLINE(bugprone-random-generator-seed): a failure must come again in the next run.
  explicit Damage(std::uint32_t seed) : random_(seed) {}

  /// `text` with one to four changes: a byte replaced, bytes cut, bytes repeated from elsewhere, or
  /// a byte replaced by one that JSON gives a meaning.
  std::string of(const std::string& good) {
    std::string text = good;
    for (std::size_t changes = 1 + below(4); changes > 0 && !text.empty(); --changes) {
      const std::size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = byte();
          break;
        case 1:
          text.erase(at, 1 + below(8));
          break;
        case 2:
          text.insert(at, good, below(good.size()), below(16));
          break;
        default:
          text[at] = "[]{}\",:0-9e."[below(12)];
      }
    }
    return text;
  }

  /// A number from 0 to `count` - 1.
  std::size_t below(std::size_t count) { return random_() % count; }
  char byte() { return static_cast<char>(random_()); }

 private:
  std::mt19937 random_;
};

}  // namespace stepscope
