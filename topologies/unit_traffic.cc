#include "topologies/unit_traffic.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "topologies/gradient_bucket_plan.h"

namespace stepscope::topologies {
namespace {

/// The modules that a parameter is in, outermost first: "h.0.ln.weight" -> h, 0, ln.
std::vector<std::string_view> modules_of(std::string_view name) {
  std::vector<std::string_view> modules;
  while (true) {
    const auto dot = name.find('.');
    if (dot == std::string_view::npos) return modules;
    modules.push_back(name.substr(0, dot));
    name.remove_prefix(dot + 1);
  }
}

bool is_number(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

/// The numbered module that a parameter is in, as a prefix of its name; empty for none.
std::string_view numbered_module(std::string_view name) {
  std::size_t end = 0;
  for (const std::string_view module : modules_of(name)) {
    end += module.size();
    if (is_number(module)) return name.substr(0, end);
    ++end;
  }
  return {};
}

/// The number of modules that all of `names` are in.
std::size_t common_modules(const std::vector<std::string_view>& names) {
  auto common = modules_of(names.front());
  for (const std::string_view name : names) {
    const auto modules = modules_of(name);
    const auto size = std::min(common.size(), modules.size());
    const auto end = common.begin() + static_cast<std::ptrdiff_t>(size);
    common.erase(std::mismatch(common.begin(), end, modules.begin()).first, common.end());
  }
  return common.size();
}

std::vector<std::string_view> names_of(const Model& model, const std::vector<std::size_t>& unit) {
  std::vector<std::string_view> names;
  for (const std::size_t parameter : unit) names.push_back(model.parameters[parameter].name);
  return names;
}

std::vector<TrafficUnit> flat_units(const Model& model, const ShardPlan& plan) {
  std::vector<TrafficUnit> units;
  std::vector<std::string_view> all;
  std::vector<std::size_t> common;
  for (std::size_t unit = 0; unit < plan.unit_count(); ++unit) {
    const auto names = names_of(model, plan.parameters(unit));
    all.insert(all.end(), names.begin(), names.end());
    common.push_back(common_modules(names));
    units.push_back({.tensors = {unit}});
  }
  const std::size_t whole = common_modules(all);
  if (std::count(common.begin(), common.end(), whole) == 1) {
    const auto root = std::find(common.begin(), common.end(), whole) - common.begin();
    units[static_cast<std::size_t>(root)].root = true;
  }
  return units;
}

std::vector<TrafficUnit> module_units(const Model& model, const ShardPlan& plan) {
  std::vector<TrafficUnit> units;
  std::map<std::string_view, std::size_t> places;
  for (std::size_t tensor = 0; tensor < plan.unit_count(); ++tensor) {
    const auto module = numbered_module(model.parameters[plan.parameters(tensor).front()].name);
    const auto [place, is_new] = places.emplace(module, units.size());
    if (is_new) units.push_back({.tensors = {}, .root = module.empty()});
    units[place->second].tensors.push_back(tensor);
  }
  return units;
}

/// total += a * b.
void add_product(std::int64_t& total, std::int64_t a, std::int64_t b = 1) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(total, product, &total)) {
    throw Error("the bytes of a training step's collectives do not fit in 64 bits",
                "plan fewer ranks");
  }
}

/// Bytes of one shard's storage.
std::int64_t chunk_bytes(const Model& model, const ShardPlan& plan, std::size_t tensor,
                         std::int64_t numel) {
  std::int64_t bytes = 0;
  add_product(bytes, numel,
              kernels::element_bytes(model.parameters[plan.parameters(tensor).front()].dtype));
  return bytes;
}

void add_buckets(const Model& model, const ShardPlan& plan, CollectiveTraffic& all_reduce) {
  std::vector<std::int64_t> bytes;
  for (std::size_t tensor = 0; tensor < plan.unit_count(); ++tensor) {
    const LocalTensor local = plan.local_tensor(tensor, 0);
    bytes.push_back(local.stepped ? chunk_bytes(model, plan, tensor, local.numel) : 0);
    add_product(all_reduce.bytes, bytes.back());
  }
  if (all_reduce.bytes == 0) return;
  const auto buckets = plan_gradient_buckets(bytes);
  all_reduce.calls =
      static_cast<std::int64_t>(*std::max_element(buckets.begin(), buckets.end())) + 1;
}

}  // namespace

std::vector<TrafficUnit> traffic_units(const Model& model, const ShardPlan& plan) {
  return plan.topology() == Topology::fsdp1 ? flat_units(model, plan) : module_units(model, plan);
}

UnitTraffic plan_unit_traffic(const Model& model, const ShardPlan& plan) {
  UnitTraffic traffic;
  const std::int64_t shards = plan.shards();
  traffic.all_gather.ranks = traffic.reduce_scatter.ranks = shards;
  traffic.all_reduce.ranks = plan.replicas();
  if (plan.topology() == Topology::ddp) {
    if (plan.replicas() > 1) add_buckets(model, plan, traffic.all_reduce);
    return traffic;
  }
  for (const TrafficUnit& unit : traffic_units(model, plan)) {
    std::int64_t whole = 0;
    std::int64_t stepped = 0;
    for (const std::size_t tensor : unit.tensors) {
      const LocalTensor local = plan.local_tensor(tensor, 0);
      const std::int64_t bytes = chunk_bytes(model, plan, tensor, local.padded_numel);
      add_product(whole, bytes);
      if (local.stepped) add_product(stepped, bytes);
    }
    if (shards > 1 && whole > 0) {
      const std::int64_t times = unit.root ? 1 : 2;
      traffic.all_gather.calls += times;
      add_product(traffic.all_gather.bytes, whole, times);
    }
    if (shards > 1 && stepped > 0) {
      ++traffic.reduce_scatter.calls;
      add_product(traffic.reduce_scatter.bytes, stepped, shards);
    }
    if (plan.replicas() > 1 && stepped > 0) {
      ++traffic.all_reduce.calls;
      add_product(traffic.all_reduce.bytes, stepped);
    }
  }
  return traffic;
}

}  // namespace stepscope::topologies
