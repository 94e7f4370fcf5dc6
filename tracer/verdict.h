#pragma once

/// Purpose: what is said about a contract: on one rank and step, whether it holds, and if not,
/// because of which events.
///
/// Usage:  if (verdict.status == Status::broken) show(verdict.reason, verdict.offenders);

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tracer/event.h"

namespace stepscope::tracer {

enum class Contract : std::uint8_t {
  local_n,                ///< the optimizer's n are the shard plan's local sizes
  no_all_gather,          ///< no all-gather of any kind
  no_collectives,         ///< no collective, or exactly the declared ones
  no_host_device_copies,  ///< no copy between host and device
  no_extra_launches,      ///< the launches of the same step on plain local tensors, no other
  complete_trace,         ///< nothing is missing from the trace
};

/// All of them, in the order of the enumeration.
const std::vector<Contract>& all_contracts();

/// "local-n", "no-all-gather", ...
std::string_view contract_name(Contract contract);

/// The inverse of contract_name. Throws Error listing the names otherwise.
Contract parse_contract(std::string_view name);

enum class Status : std::uint8_t {
  ok,
  broken,
  unverified,  ///< the trace cannot show it
};
std::string_view status_name(Status status);

/// An event that speaks against a contract.
struct Offender {
  std::string name;
  EventKind kind = EventKind::kernel;
  std::optional<std::int64_t> value = {};  ///< n of a kernel or operator, bytes of a copy
  CopyDirection direction = CopyDirection::unknown;
  CollectiveKind collective = CollectiveKind::none;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::int32_t device = kHost;
  std::uint64_t stream = 0;
  std::uint64_t thread = 0;  ///< of the host side; 0: not known
  std::string range;         ///< ranges around the host side, outermost first; empty: none
};

struct Verdict {
  Contract contract = Contract::local_n;
  std::optional<std::int64_t> rank = {};
  std::uint32_t process = 0;                 ///< index into Trace::processes()
  std::optional<std::int64_t> ordinal = {};  ///< of the step; nothing: of the whole trace
  std::string step = {};                     ///< its label
  Status status = Status::ok;
  std::string reason = {};               ///< empty where it is ok
  std::vector<Offender> offenders = {};  ///< the first of them
  std::int64_t offender_count = 0;       ///< all of them
};

}  // namespace stepscope::tracer
