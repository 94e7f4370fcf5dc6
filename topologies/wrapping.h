#pragma once

/// Purpose: how fsdp1 groups parameters into flat units, as auto_wrap_policy does for PyTorch's
/// FullyShardedDataParallel with use_orig_params=False.
///
/// Usage:
///     const Wrapping wrapping = load_wrapping("per-module");   // or "units.json"
///     for (const std::vector<std::size_t>& unit : wrap(model, wrapping)) ...
///
/// Caveats: what PyTorch refuses to flatten is refused by name: a scalar, a unit without elements,
/// and a unit whose parameters differ in data type or of which some are frozen and some are not.
/// Where PyTorch's policies wrap the two members of a tie apart it makes two copies of the storage,
/// trained apart, and says nothing (measured on 2.13). Here the storage exists once.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "topologies/model.h"

namespace stepscope::topologies {

enum class WrapPolicy {
  per_parameter,  ///< one unit a parameter
  per_module,     ///< parameters whose names agree up to the last '.': "h.0.ln.weight" and
                  ///< "h.0.ln.bias"; those without a '.' are one unit, too
  whole_model,    ///< one unit
  list,           ///< the user's units
};

/// "per-parameter", "per-module", "whole-model" or "list".
std::string_view wrap_policy_name(WrapPolicy policy);

struct Wrapping {
  WrapPolicy policy = WrapPolicy::per_module;
  /// WrapPolicy::list only: for each unit the names of parameters ("lm_head.weight") or of modules
  /// ("model.layers.0", which stands for every parameter below it).
  std::vector<std::vector<std::string>> units = {};
};

/// The wrapping that a user writes after --wrap: the name of a policy, or a .json file that holds a
/// list of units, each a list of names: [["embed"], ["layers.0", "layers.1"]]. Throws Error.
Wrapping load_wrapping(const std::string& spec);

/// The units of `model` (which must be valid), each a list of indices into Model::parameters in the
/// model's order; units in the order of their first parameter. A tied parameter is in no list: its
/// storage is its owner's, and so is its unit. Throws Error naming the parameter for what PyTorch
/// refuses and, of a list, for a parameter in no unit or in two, a name that stands for nothing,
/// and a tie whose members are in different units (both would hold the storage).
std::vector<std::vector<std::size_t>> wrap(const Model& model, const Wrapping& wrapping);

}  // namespace stepscope::topologies
