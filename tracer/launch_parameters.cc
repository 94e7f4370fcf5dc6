#include "tracer/launch_parameters.h"

#include <array>
#include <cstring>

namespace stepscope::tracer {
namespace {

constexpr std::array<PlaceOfN, 8> kPlaces = {{
    {"_Z35kOptimizerStatic8bit2StateBlockwiseI", 18, 0x6c, 256},
    {"_Z35kOptimizerStatic8bit1StateBlockwiseI", 13, 0x4c, 256},
    {"_Z21kOptimizer32bit2StateI", 17, 0x58, 4096},
    {"_Z21kOptimizer32bit1StateI", 14, 0x48, 4096},
    {"_Z33kPreconditionOptimizer32bit2StateI", 12, 0x44, 4096},
    {"_Z33kPreconditionOptimizer32bit1StateI", 11, 0x3c, 4096},
    {"stepscope_adamw_step", 0, 0, 256, NParameter::block_counts},
    {"stepscope_lion_step", 0, 0, 256, NParameter::block_counts},
}};

/// StepArguments, as far as it is read: behind four pointers, how the blocks of all tensors are
/// dealt out to the thread blocks.
struct BlockCounts {
  std::uint64_t pointers[4];
  std::int64_t blocks_per_thread_block;
  std::int64_t extra_blocks;  ///< so many thread blocks have one more
  std::int32_t tensor_count;
  std::int32_t unused;
};

std::optional<std::int64_t> blocks_numel(const PlaceOfN& place, const void* parameter,
                                         std::int64_t grid_x) {
  BlockCounts counts{};
  std::memcpy(&counts, parameter, sizeof counts);
  if (counts.blocks_per_thread_block < 0 || counts.extra_blocks < 0 ||
      counts.extra_blocks >= grid_x || counts.tensor_count < 1) {
    return std::nullopt;
  }
  std::int64_t blocks = 0;
  std::int64_t numel = 0;
  if (__builtin_mul_overflow(counts.blocks_per_thread_block, grid_x, &blocks) ||
      __builtin_add_overflow(blocks, counts.extra_blocks, &blocks) ||
      __builtin_mul_overflow(blocks, place.elements_per_block, &numel)) {
    return std::nullopt;
  }
  // The table holds no empty tensor, and no thread block is launched for nothing.
  if (counts.tensor_count > blocks || grid_x > blocks) return std::nullopt;
  return numel;
}

}  // namespace

std::size_t PlaceOfN::bytes() const { return exact() ? sizeof(std::int32_t) : sizeof(BlockCounts); }

std::span<const PlaceOfN> places_of_n() { return kPlaces; }

const PlaceOfN* place_of_n(std::string_view mangled_name) {
  for (const PlaceOfN& place : kPlaces) {
    if (mangled_name.starts_with(place.prefix)) return &place;
  }
  return nullptr;
}

std::optional<std::int64_t> read_n(const PlaceOfN& place, void* const* parameters,
                                   std::int64_t grid_x) {
  if (parameters == nullptr || parameters[place.ordinal] == nullptr) return std::nullopt;
  if (!place.exact()) return blocks_numel(place, parameters[place.ordinal], grid_x);
  std::int32_t n = 0;
  std::memcpy(&n, parameters[place.ordinal], sizeof n);
  const std::int64_t blocks =
      (std::int64_t{n} + place.elements_per_block - 1) / place.elements_per_block;
  if (n <= 0 || blocks != grid_x) return std::nullopt;
  return n;
}

}  // namespace stepscope::tracer
