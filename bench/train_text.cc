#include "bench/train_text.h"

#include <ATen/ops/empty.h>

#include "bench/train_network.h"
#include "core/error.h"
#include "core/input_file.h"

namespace stepscope::bench {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;
/// Less than this is learnt by heart before the first timed step.
constexpr std::int64_t kFewestBytes = 4096;

/// SplitMix64: a good mixture of the bits of `value`.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

TrainText TrainText::read(const std::string& path) {
  InputFile file(path);
  if (file.size() < kFewestBytes || file.size() > kMostBytes) {
    throw Error("the text has " + std::to_string(file.size()) + " bytes",
                "give one of " + std::to_string(kFewestBytes) + " to " +
                    std::to_string(kMostBytes) + " bytes",
                {.file = path});
  }
  return TrainText(file.read(file.size()));
}

TextBatch TrainText::batch(std::int64_t step, std::int64_t stream, std::int64_t sequences) const {
  TextBatch batch = {.inputs = at::empty({sequences, kContext}, at::kLong),
                     .targets = at::empty({sequences, kContext}, at::kLong)};
  auto* inputs = batch.inputs.data_ptr<std::int64_t>();
  auto* targets = batch.targets.data_ptr<std::int64_t>();
  const std::uint64_t places = bytes_.size() - static_cast<std::size_t>(kContext);
  std::uint64_t seed =
      mixed(mixed(static_cast<std::uint64_t>(step)) ^ static_cast<std::uint64_t>(stream));
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
    seed = mixed(seed);
    const auto first = static_cast<std::size_t>(seed % places);
    for (std::int64_t i = 0; i < kContext; ++i) {
      const auto at = first + static_cast<std::size_t>(i);
      *inputs++ = static_cast<unsigned char>(bytes_[at]);
      *targets++ = static_cast<unsigned char>(bytes_[at + 1]);
    }
  }
  return batch;
}

}  // namespace stepscope::bench
