#pragma once

/// Purpose: a folder of golden vectors: what bitsandbytes and PyTorch computed, to be compared bit
/// for bit.
///
/// Usage:
///     const GoldenDirectory golden = GoldenDirectory::read(path);
///     for (const GoldenCase& c : golden.cases()) ...
///
/// Caveats: the form is that of tests/data/golden: manifest.json names little-endian arrays by
/// their SHA-256, and, where it gives an offset, by their place in a binary file. A folder that is
/// unreadable, cut, or says impossible things is an Error; bytes that do not have their SHA-256 are
/// not: that is for the check to report.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/shard_tensors.h"

namespace stepscope::kernels {

using Sha256 = std::array<unsigned char, 32>;

/// SHA-256 of raw bytes.
Sha256 sha256(std::span<const std::byte> bytes);

/// One expected array: its bytes are known by their hash, and perhaps also themselves.
struct GoldenArray {
  std::int64_t element_bytes = 0;
  std::int64_t bytes = 0;
  Sha256 hash{};
  std::optional<std::span<const std::byte>> stored;
};

/// The inputs for one dtype and size: the parameter before step 1, and the gradient of each step.
struct GoldenInputs {
  GoldenArray param;
  std::vector<GoldenArray> grads;
};

/// What was computed. `torch_adamw` is torch.optim.AdamW; the others are bitsandbytes'.
enum class GoldenRule : std::uint8_t { adamw8, lion8, adamw32, lion32, torch_adamw };

/// The arrays of a step, in this order: param, state1, state2, absmax1, absmax2.
inline constexpr std::array<const char*, 5> kGoldenArrayNames = {"p", "state1", "state2", "absmax1",
                                                                 "absmax2"};

struct GoldenStep {
  std::int64_t step = 0;
  std::array<std::optional<GoldenArray>, 5> arrays;
};

struct GoldenCase {
  GoldenRule rule = GoldenRule::adamw8;
  DType dtype = DType::fp32;
  std::int64_t numel = 0;
  Hyperparameters hyperparameters;
  const GoldenInputs* inputs = nullptr;
  std::vector<GoldenStep> steps;  // in the order of their number
};

/// The rule's, and the data type's, name in manifest.json.
std::string golden_name(GoldenRule rule);
std::string golden_name(DType dtype);

class GoldenDirectory {
 public:
  /// Reads and checks `directory`/manifest.json, the binary files it names, and qmaps.json when
  /// there is one. Throws Error, naming the file.
  static GoldenDirectory read(const std::string& directory);

  const std::map<std::string, GoldenInputs>& inputs() const { return inputs_; }
  const std::vector<GoldenCase>& cases() const { return cases_; }

  /// The float32 bit patterns of qmaps.json: signed, then unsigned codes. Empty without the file.
  const std::vector<std::array<std::uint32_t, 256>>& code_tables() const { return code_tables_; }

 private:
  std::map<std::string, std::unique_ptr<const std::vector<std::byte>>> files_;
  std::map<std::string, GoldenInputs> inputs_;
  std::vector<GoldenCase> cases_;
  std::vector<std::array<std::uint32_t, 256>> code_tables_;

  friend class GoldenReader;
};

}  // namespace stepscope::kernels
