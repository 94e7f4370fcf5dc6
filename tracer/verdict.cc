#include "tracer/verdict.h"

#include "core/error.h"

namespace stepscope::tracer {

const std::vector<Contract>& all_contracts() {
  static const std::vector<Contract> contracts = {
      Contract::local_n,           Contract::no_all_gather,
      Contract::no_collectives,    Contract::no_host_device_copies,
      Contract::no_extra_launches, Contract::complete_trace};
  return contracts;
}

std::string_view contract_name(Contract contract) {
  switch (contract) {
    case Contract::local_n:
      return "local-n";
    case Contract::no_all_gather:
      return "no-all-gather";
    case Contract::no_collectives:
      return "no-collectives";
    case Contract::no_host_device_copies:
      return "no-host-device-copies";
    case Contract::no_extra_launches:
      return "no-extra-launches";
    case Contract::complete_trace:
      return "complete-trace";
  }
  return "unknown";
}

Contract parse_contract(std::string_view name) {
  std::string names;
  for (const Contract contract : all_contracts()) {
    if (contract_name(contract) == name) return contract;
    names += (names.empty() ? "" : ", ") + std::string(contract_name(contract));
  }
  throw Error("\"" + std::string(name) + "\" is no contract", "give one of " + names);
}

std::string_view status_name(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::broken:
      return "broken";
    case Status::unverified:
      return "unverified";
  }
  return "unknown";
}

}  // namespace stepscope::tracer
