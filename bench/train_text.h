#pragma once

/// Purpose: the text that train_step learns, and which bytes of it each step shows which rank.
///
/// Usage:
///     const TrainText text = TrainText::read("/usr/share/common-licenses/GPL-3");
///     const TextBatch batch = text.batch(step, rank, sequences);
///
/// Caveats: includes libtorch. A batch depends on its arguments alone, so that training goes on
/// after a stop as if there had been none.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace stepscope::bench {

struct TextBatch {
  at::Tensor inputs;   ///< [sequences, kContext] int64: bytes
  at::Tensor targets;  ///< the same, one byte further on
};

class TrainText {
 public:
  /// Throws Error where the file cannot be read, is larger than 64 MiB, or has too few bytes to be
  /// learnt from.
  static TrainText read(const std::string& path);

  /// `sequences` pieces from places of the text that are drawn anew for every step and `stream`.
  TextBatch batch(std::int64_t step, std::int64_t stream, std::int64_t sequences) const;

  const std::string& bytes() const noexcept { return bytes_; }

 private:
  explicit TrainText(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string bytes_;
};

}  // namespace stepscope::bench
