#include "tracer/launch_parameters.h"

#include <array>
#include <cstring>

namespace stepscope::tracer {
namespace {

constexpr std::array<PlaceOfN, 6> kPlaces = {{
    {"_Z35kOptimizerStatic8bit2StateBlockwiseI", 18, 0x6c, 256},
    {"_Z35kOptimizerStatic8bit1StateBlockwiseI", 13, 0x4c, 256},
    {"_Z21kOptimizer32bit2StateI", 17, 0x58, 4096},
    {"_Z21kOptimizer32bit1StateI", 14, 0x48, 4096},
    {"_Z33kPreconditionOptimizer32bit2StateI", 12, 0x44, 4096},
    {"_Z33kPreconditionOptimizer32bit1StateI", 11, 0x3c, 4096},
}};

}  // namespace

const PlaceOfN* place_of_n(std::string_view mangled_name) {
  for (const PlaceOfN& place : kPlaces) {
    if (mangled_name.starts_with(place.prefix)) return &place;
  }
  return nullptr;
}

std::optional<std::int64_t> read_n(const PlaceOfN& place, void* const* parameters,
                                   std::int64_t grid_x) {
  if (parameters == nullptr || parameters[place.ordinal] == nullptr) return std::nullopt;
  std::int32_t n = 0;
  std::memcpy(&n, parameters[place.ordinal], sizeof n);
  const std::int64_t blocks =
      (std::int64_t{n} + place.elements_per_block - 1) / place.elements_per_block;
  if (n <= 0 || blocks != grid_x) return std::nullopt;
  return n;
}

}  // namespace stepscope::tracer
