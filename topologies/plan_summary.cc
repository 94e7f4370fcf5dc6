#include "topologies/plan_summary.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "core/error.h"

namespace stepscope::topologies {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// What the bytes of a unit depend on: equal keys, equal bytes on every shard.
std::vector<std::int64_t> key_of(const Model& model, const ShardPlan& plan, std::size_t unit) {
  const LocalTensor first = plan.local_tensor(unit, 0);
  std::vector<std::int64_t> key = {first.padded_numel, first.stepped ? 1 : 0};
  for (const std::size_t i : plan.parameters(unit)) {
    const Parameter& parameter = model.parameters[i];
    key.push_back(kernels::element_bytes(parameter.dtype));
    key.push_back(numel(parameter));
  }
  return key;
}

}  // namespace

const std::vector<PlanColumn>& plan_columns() {
  using P = PlannedBytes;
  static const std::vector<PlanColumn> columns = {
      {"local_numel", "elements owned, padding not counted",
       [](const P& p) { return p.local_numel; }},
      {"numel_8bit", "of these, elements with 8-bit state",
       [](const P& p) { return p.numel_8bit; }},
      {"numel_fp32", "of these, elements with FP32 state",
       [](const P& p) { return p.numel_fp32(); }},
      {"tensors_8bit", "tensors (original: parameters) with 8-bit state",
       [](const P& p) { return p.pieces_8bit; }},
      {"tensors_fp32", "tensors (original: parameters) with FP32 state",
       [](const P& p) { return p.pieces_fp32; }},
      {"state_bytes", "optimizer state, code tables and step counters included",
       [](const P& p) { return p.state(); }},
      {"parameter_bytes", "parameters, padding included", [](const P& p) { return p.parameter; }},
      {"gradient_bytes", "gradients, padding included", [](const P& p) { return p.gradient; }},
      {"total_bytes", "parameters, gradients and state", [](const P& p) { return p.total(); }},
      {"empty_shards", "tensors of which the rank owns no element",
       [](const P& p) { return p.empty_shards; }},
      {"cut_blocks", "blocks that a shard border cuts, by original",
       [](const P& p) { return p.cut_blocks; }},
      {"foreign_numel", "elements of other ranks in cut blocks, whose state is kept, too",
       [](const P& p) { return p.foreign_numel; }},
      {"border_traffic_bytes", "gradients sent a step for cut blocks, in one extra collective",
       [](const P& p) { return p.border_traffic; }},
  };
  return columns;
}

PlanSummary::PlanSummary(const Model& model, const ShardPlan& plan, const StateOptions& options)
    : shards_(plan.shards()), replicas_(plan.replicas()) {
  std::map<std::vector<std::int64_t>, std::pair<std::size_t, std::int64_t>> kinds;
  for (std::size_t unit = 0; unit < plan.unit_count(); ++unit) {
    ++kinds.emplace(key_of(model, plan, unit), std::pair(unit, 0)).first->second.second;
  }
  for (const auto& [key, kind] : kinds) {
    add_stretches(model, plan, options, kind.first, kind.second);
  }
  std::stable_sort(stretches_.begin(), stretches_.end(),
                   [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
}

void PlanSummary::add_stretches(const Model& model, const ShardPlan& plan,
                                const StateOptions& options, std::size_t unit, std::int64_t count) {
  const std::size_t kind = distinct_units_++;
  const std::int64_t chunk = plan.local_tensor(unit, 0).padded_numel;
  const bool by_block = options.policy == StatePolicy::original && asks_8bit(options.optimizer);
  // After this many shards a border is again at the same place in a block.
  const std::int64_t period =
      by_block && chunk > 0 ? kernels::kBlockSize / std::gcd(chunk, kernels::kBlockSize) : 1;
  std::vector<std::int64_t> begins = {0};
  std::int64_t start = 0;
  for (const std::size_t i : plan.parameters(unit)) {
    const std::int64_t size = numel(model.parameters[i]);
    if (size == 0) continue;
    const std::int64_t end = start + size;
    for (const std::int64_t border : {start, end}) {
      begins.push_back(border / chunk);
      begins.push_back(ceil_div(border, chunk));
    }
    // Before the end, shards whose last block is the parameter's last one, which is not full: at
    // most 255 of them, each a case for itself.
    if (by_block) {
      const std::int64_t full = start + size / kernels::kBlockSize * kernels::kBlockSize;
      for (std::int64_t shard = full / chunk; shard < end / chunk; ++shard) begins.push_back(shard);
    }
    start = end;
  }
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  while (begins.back() >= shards_) begins.pop_back();
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::int64_t begin = begins[i];
    const std::int64_t end = i + 1 < begins.size() ? begins[i + 1] : shards_;
    Stretch stretch{.begin = begin, .units = count, .kind = kind, .bytes = {}};
    const bool single = end - begin == 1;
    stretch.bytes.resize(single ? 1 : static_cast<std::size_t>(period));
    for (std::int64_t shard = begin; shard < std::min(end, begin + period); ++shard) {
      stretch.bytes[static_cast<std::size_t>(shard) % stretch.bytes.size()] =
          planned_tensor_bytes(model, plan, plan.local_tensor(unit, shard), options);
    }
    period_ = std::max(period_, stretch.bytes.size());
    stretches_.push_back(std::move(stretch));
  }
}

void PlanSummary::sweep(const std::function<void(std::int64_t, std::int64_t,
                                                 const std::vector<PlannedBytes>&)>& visit) const {
  std::vector<PlannedBytes> sums(period_);
  std::vector<const Stretch*> current(distinct_units_, nullptr);
  for (std::size_t i = 0; i < stretches_.size();) {
    const std::int64_t begin = stretches_[i].begin;
    for (; i < stretches_.size() && stretches_[i].begin == begin; ++i) {
      const Stretch& next = stretches_[i];
      const Stretch* const previous = std::exchange(current[next.kind], &next);
      for (std::size_t residue = 0; residue < period_; ++residue) {
        if (previous != nullptr) {
          sums[residue].add(previous->bytes[residue % previous->bytes.size()], -previous->units);
        }
        sums[residue].add(next.bytes[residue % next.bytes.size()], next.units);
      }
    }
    for (PlannedBytes& sum : sums) sum.set_code_tables();
    visit(begin, i < stretches_.size() ? stretches_[i].begin : shards_, sums);
  }
}

std::vector<PlanExtent> PlanSummary::extents() const {
  const std::vector<PlanColumn>& columns = plan_columns();
  std::vector<PlanExtent> extents(
      columns.size(), {.min = std::numeric_limits<std::int64_t>::max(), .max = 0, .total = 0});
  sweep([&](std::int64_t begin, std::int64_t end, const std::vector<PlannedBytes>& sums) {
    const auto period = static_cast<std::int64_t>(period_);
    const std::int64_t length = end - begin;
    for (std::int64_t i = 0; i < std::min(length, period); ++i) {
      const PlannedBytes& bytes = sums[static_cast<std::size_t>((begin + i) % period)];
      const std::int64_t ranks = length / period + (i < length % period ? 1 : 0);
      for (std::size_t c = 0; c < columns.size(); ++c) {
        const std::int64_t value = columns[c].value(bytes);
        extents[c].min = std::min(extents[c].min, value);
        extents[c].max = std::max(extents[c].max, value);
        std::int64_t product = 0;
        if (__builtin_mul_overflow(value, ranks, &product) ||
            __builtin_mul_overflow(product, replicas_, &product) ||
            __builtin_add_overflow(extents[c].total, product, &extents[c].total)) {
          throw Error("the total of " + std::string(columns[c].name) +
                          " over all ranks does not fit in 64 bits",
                      "plan fewer ranks");
        }
      }
    }
  });
  for (PlanExtent& extent : extents) {
    if (extent.total == 0) continue;
    const double mean = static_cast<double>(extent.total) /
                        (static_cast<double>(shards_) * static_cast<double>(replicas_));
    extent.imbalance = static_cast<double>(extent.max) / mean;
  }
  return extents;
}

void PlanSummary::for_each_rank(
    const std::function<void(std::int64_t, const PlannedBytes&)>& visit) const {
  for (std::int64_t replica = 0; replica < replicas_; ++replica) {
    sweep([&](std::int64_t begin, std::int64_t end, const std::vector<PlannedBytes>& sums) {
      for (std::int64_t shard = begin; shard < end; ++shard) {
        visit(replica * shards_ + shard, sums[static_cast<std::size_t>(shard) % period_]);
      }
    });
  }
}

}  // namespace stepscope::topologies
