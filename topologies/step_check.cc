#include "topologies/step_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "kernels/bnb_cuda_reference.h"
#include "kernels/element.h"
#include "kernels/reference_step.h"
#include "topologies/synthetic_values.h"

namespace stepscope::topologies {
namespace {

using kernels::DType;
using kernels::ShardTensors;
using kernels::StateFormat;

/// Elements checked between two meetings of the ranks: about a tenth of a second of scalar work,
/// and a multiple of the block size, since a block is quantized as a whole.
constexpr std::int64_t kPieceNumel = std::int64_t{1} << 21;

/// libtorch against the reference, in units of the last place of float32. Its vectorized loop
/// computes the reference's bits; the scalar loop over a tail, or over everything where no vector
/// unit is used, is compiled with contraction and was seen to differ by up to 3.
constexpr double kTorchUnits = 8;

struct Piece {
  std::size_t shard;
  std::int64_t first;  ///< within the shard
  std::int64_t numel;
};

std::vector<Piece> pieces_of(std::span<const OwnedShard> shards) {
  std::vector<Piece> pieces;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    const std::int64_t numel = shards[shard].tensors.numel;
    for (std::int64_t first = 0; first < numel; first += kPieceNumel) {
      pieces.push_back({shard, first, std::min(kPieceNumel, numel - first)});
    }
  }
  return pieces;
}

float value_at(DType dtype, const void* data, std::int64_t i) {
  const auto* bytes = static_cast<const std::byte*>(data) + i * kernels::element_bytes(dtype);
  if (dtype == DType::fp32) {
    float value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  return dtype == DType::bf16 ? kernels::Element<DType::bf16>::to_float(bits)
                              : kernels::Element<DType::fp16>::to_float(bits);
}

/// The unit in the last place of numbers as large as 1, relative to them.
double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return 0x1p-23;
    case DType::bf16:
      return 0x1p-7;
    case DType::fp16:
      return 0x1p-10;
  }
  return 0;
}

/// The scalar reference over one piece at a time, from the same synthetic start.
class Reference {
 public:
  Reference(const StepConfig& config, const Model& model, DeviceRuntime& runtime, std::int64_t rank)
      : config_(config), model_(model), runtime_(runtime), rank_(rank) {}

  /// Steps the piece with the reference and compares `shard` with it.
  void check(const OwnedShard& shard, const Piece& piece) {
    const ShardTensors expected = stepped(shard, piece);
    if (config_.subject == Subject::torch) {
      compare_values("parameter", shard, piece, expected.dtype, expected.param, shard.tensors.param,
                     config_.hyperparameters.learning_rate);
      compare_values("state1", shard, piece, DType::fp32, expected.state1, shard.tensors.state1, 0);
      compare_values("state2", shard, piece, DType::fp32, expected.state2, shard.tensors.state2, 0);
      return;
    }
    const std::int64_t state_bytes = expected.format == StateFormat::fp32 ? 4 : 1;
    const std::int64_t param_bytes = kernels::element_bytes(expected.dtype);
    compare_bits("parameter", shard, piece, 1, param_bytes, expected.param, shard.tensors.param);
    compare_bits("state1", shard, piece, 1, state_bytes, expected.state1, shard.tensors.state1);
    compare_bits("state2", shard, piece, 1, state_bytes, expected.state2, shard.tensors.state2);
    compare_bits("absmax1", shard, piece, kernels::kBlockSize, 4, expected.absmax1,
                 shard.tensors.absmax1);
    compare_bits("absmax2", shard, piece, kernels::kBlockSize, 4, expected.absmax2,
                 shard.tensors.absmax2);
  }

  /// Largest difference met so far, in units in the last place; 0 for native subjects.
  double largest_units() const { return largest_units_; }

 private:
  ShardTensors stepped(const OwnedShard& shard, const Piece& piece) {
    ShardTensors tensors = shard.tensors;
    tensors.numel = piece.numel;
    const auto numel = static_cast<std::size_t>(piece.numel);
    const auto blocks = static_cast<std::size_t>(kernels::block_count(piece.numel));
    const bool fp32_state = tensors.format == StateFormat::fp32;
    param_.assign(numel * 4, std::byte{0});
    grad_.assign(numel * 4, std::byte{0});
    state1_.assign(numel * (fp32_state ? 4 : 1), std::byte{0});
    state2_.assign(numel * (fp32_state ? 4 : 1), std::byte{0});
    absmax1_.assign(blocks, 0);
    absmax2_.assign(blocks, 0);
    for (const Range& range : shard.ranges) {
      const std::int64_t begin = std::max(range.position, piece.first);
      const std::int64_t end = std::min(range.position + range.numel, piece.first + piece.numel);
      if (begin >= end) continue;
      const auto place = (begin - piece.first) * kernels::element_bytes(tensors.dtype);
      const std::int64_t first = range.offset + begin - range.position;
      fill_parameter(tensors.dtype, param_.data() + place, range.parameter, first, end - begin);
      fill_gradient(tensors.dtype, grad_.data() + place, range.parameter, first, end - begin);
    }
    tensors.param = param_.data();
    tensors.grad = grad_.data();
    tensors.state1 = state1_.data();
    tensors.state2 = tensors.state2 != nullptr ? state2_.data() : nullptr;
    tensors.absmax1 = tensors.absmax1 != nullptr ? absmax1_.data() : nullptr;
    tensors.absmax2 = tensors.absmax2 != nullptr ? absmax2_.data() : nullptr;
    tensors.absmax_count = fp32_state ? 0 : static_cast<std::int64_t>(blocks);
    for (tensors.step = 1; tensors.step <= kCheckedSteps; ++tensors.step) step(tensors);
    return tensors;
  }

  void step(const ShardTensors& tensors) {
    if (config_.subject != Subject::torch) {
      const auto reference = config_.device == Device::cuda ? kernels::step_bnb_cuda_reference
                                                            : kernels::step_reference;
      reference(algorithm(config_.optimizer), config_.hyperparameters, tensors);
      return;
    }
    if (tensors.dtype == DType::fp32) {
      kernels::step_torch_adamw_reference(config_.hyperparameters, tensors);
      return;
    }
    // As TorchOptimizer: widen, step, narrow.
    const auto numel = static_cast<std::size_t>(tensors.numel);
    wide_param_.resize(numel);
    wide_grad_.resize(numel);
    for (std::size_t i = 0; i < numel; ++i) {
      const auto place = static_cast<std::int64_t>(i);
      wide_param_[i] = value_at(tensors.dtype, tensors.param, place);
      wide_grad_[i] = value_at(tensors.dtype, tensors.grad, place);
    }
    ShardTensors wide = tensors;
    wide.dtype = DType::fp32;
    wide.grad_dtype = DType::fp32;
    wide.param = wide_param_.data();
    wide.grad = wide_grad_.data();
    kernels::step_torch_adamw_reference(config_.hyperparameters, wide);
    for (std::size_t i = 0; i < numel; ++i) {
      const std::uint16_t bits = tensors.dtype == DType::bf16
                                     ? kernels::Element<DType::bf16>::round(wide_param_[i])
                                     : kernels::Element<DType::fp16>::round(wide_param_[i]);
      std::memcpy(param_.data() + 2 * i, &bits, sizeof bits);
    }
  }

  /// Items [first, first + count) of the device array `source`, on the host. Valid until the next
  /// call.
  const std::byte* hosted(const void* source, std::int64_t first, std::int64_t count,
                          std::int64_t item_bytes) {
    found_.resize(static_cast<std::size_t>(count * item_bytes));
    runtime_.copy_to_host(found_.data(), static_cast<const std::byte*>(source) + first * item_bytes,
                          count * item_bytes);
    return found_.data();
  }

  [[noreturn]] void fail(const std::string& what, const OwnedShard& shard, std::int64_t element,
                         const std::string& expected, const std::string& found) const {
    std::string parameter = "(padding)";
    std::int64_t place = element;
    for (const Range& range : shard.ranges) {
      if (element < range.position || element >= range.position + range.numel) continue;
      parameter = model_.parameters[range.parameter].name;
      place = range.offset + element - range.position;
    }
    throw Error(std::string(optimizer_name(config_.optimizer)) +
                    " differs from the reference after " + std::to_string(kCheckedSteps) +
                    " steps: " + what + " at element " + std::to_string(place) + " is " + found +
                    ", expected " + expected,
                "nothing was timed; this is a defect of the subject or of its build",
                {.rank = rank_, .parameter = parameter});
  }

  void compare_bits(const std::string& what, const OwnedShard& shard, const Piece& piece,
                    std::int64_t elements_an_item, std::int64_t item_bytes, const void* expected,
                    const void* found) {
    if (expected == nullptr) return;
    const auto items = (piece.numel + elements_an_item - 1) / elements_an_item;
    const auto* want = static_cast<const std::byte*>(expected);
    const auto* have = hosted(found, piece.first / elements_an_item, items, item_bytes);
    const auto bytes = static_cast<std::size_t>(items * item_bytes);
    if (std::memcmp(want, have, bytes) == 0) return;
    const auto place = std::mismatch(want, want + bytes, have).first - want;
    const std::int64_t item = place / item_bytes;
    const auto show = [&](const std::byte* data) {
      std::uint32_t bits = 0;
      static_assert(std::endian::native == std::endian::little);
      std::memcpy(&bits, data + item * item_bytes, static_cast<std::size_t>(item_bytes));
      return "bits " + std::to_string(bits);
    };
    fail(what, shard, piece.first + item * elements_an_item, show(want), show(have));
  }

  void compare_values(const std::string& what, const OwnedShard& shard, const Piece& piece,
                      DType dtype, const void* expected, const void* found, double floor) {
    const auto* have = hosted(found, piece.first, piece.numel, kernels::element_bytes(dtype));
    const double limit = dtype == DType::fp32 ? kTorchUnits : 1;
    for (std::int64_t i = 0; i < piece.numel; ++i) {
      const double want = value_at(dtype, expected, i);
      const double is = value_at(dtype, have, i);
      if (want == is) continue;
      const double units =
          std::abs(want - is) / (epsilon_of(dtype) * std::max(std::abs(want), floor));
      // Written so that a NaN fails.
      if (!(units <= limit)) {
        fail(what, shard, piece.first + i, std::to_string(want), std::to_string(is));
      }
      largest_units_ = std::max(largest_units_, units);
    }
  }

  const StepConfig& config_;
  const Model& model_;
  DeviceRuntime& runtime_;
  std::int64_t rank_;
  double largest_units_ = 0;
  std::vector<std::byte> param_, grad_, state1_, state2_, found_;
  std::vector<float> absmax1_, absmax2_, wide_param_, wide_grad_;
};

}  // namespace

StepCheck check_against_reference(ShardedOptimizer& optimizer, const StepConfig& config,
                                  const Model& model, DeviceRuntime& runtime,
                                  Communicator& communicator) {
  together(communicator, [&] {
    optimizer.restart();
    for (std::int64_t step = 0; step < kCheckedSteps; ++step) optimizer.step();
    runtime.synchronize();
  });
  const auto shards = optimizer.shards();
  const auto pieces = pieces_of(shards);
  const std::int64_t rounds =
      max_over_ranks(communicator, static_cast<std::int64_t>(pieces.size()));
  Reference reference(config, model, runtime, communicator.rank());
  StepCheck result;
  for (std::int64_t round = 0; round < rounds && !result.difference; ++round) {
    result.difference = first_failure(communicator, [&] {
      const auto index = static_cast<std::size_t>(round);
      if (index < pieces.size()) reference.check(shards[pieces[index].shard], pieces[index]);
    });
  }
  together(communicator, [&] { optimizer.restart(); });
  const auto thousandths = max_over_ranks(
      communicator, static_cast<std::int64_t>(std::ceil(reference.largest_units() * 1000)));
  result.checked = "reference: all elements, " + std::to_string(kCheckedSteps) + " steps, ";
  result.checked += thousandths == 0 ? "every bit"
                                     : "within " + std::to_string((thousandths + 999) / 1000) +
                                           " units in the last place";
  return result;
}

}  // namespace stepscope::topologies
