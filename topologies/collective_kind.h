#pragma once

/// Purpose: the collectives of a training step, by name.
///
/// Usage:  table.add(collective_name(CollectiveKind::all_gather));

#include <string_view>

namespace stepscope::topologies {

enum class CollectiveKind { all_gather, reduce_scatter, all_reduce };

/// "all_gather", "reduce_scatter" or "all_reduce".
std::string_view collective_name(CollectiveKind kind);

}  // namespace stepscope::topologies
