#include "topologies/collective_kind.h"

#include "core/error.h"

namespace stepscope::topologies {

std::string_view collective_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case CollectiveKind::all_reduce:
      return "all_reduce";
  }
  throw Error("unknown kind of collective");
}

}  // namespace stepscope::topologies
