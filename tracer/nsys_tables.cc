#include "tracer/nsys_tables.h"

#include <algorithm>

namespace stepscope::tracer {
namespace {

struct CopyKind {
  std::string_view name;
  CopyDirection direction;
};

// nsys' numbers are CUPTI's; the last three are its own, for managed memory.
constexpr std::array<CopyKind, 14> kCopyKinds = {{
    {"Memcpy", CopyDirection::unknown},
    {"Memcpy HtoD", CopyDirection::host_to_device},
    {"Memcpy DtoH", CopyDirection::device_to_host},
    {"Memcpy HtoA", CopyDirection::host_to_device},
    {"Memcpy AtoH", CopyDirection::device_to_host},
    {"Memcpy AtoA", CopyDirection::device_to_device},
    {"Memcpy AtoD", CopyDirection::device_to_device},
    {"Memcpy DtoA", CopyDirection::device_to_device},
    {"Memcpy DtoD", CopyDirection::device_to_device},
    {"Memcpy HtoH", CopyDirection::host_to_host},
    {"Memcpy PtoP", CopyDirection::peer_to_peer},
    {"Unified memory HtoD", CopyDirection::host_to_device},
    {"Unified memory DtoH", CopyDirection::device_to_host},
    {"Unified memory DtoD", CopyDirection::device_to_device},
}};

constexpr std::array<std::string_view, 5> kSyncNames = {"Sync", "Event sync", "Stream wait sync",
                                                        "Stream sync", "Context sync"};

template <typename Table>
const auto& entry(const Table& table, std::int64_t number) {
  const bool known = number >= 0 && number < std::ssize(table);
  return table[known ? static_cast<std::size_t>(number) : 0];
}

}  // namespace

NsysTable table_of(const Event& event) {
  if (event.kind == EventKind::kernel) return NsysTable::kernel;
  if (event.kind == EventKind::api_call) return NsysTable::runtime;
  if (event.device == kHost) return NsysTable::nvtx;
  switch (event.kind) {
    case EventKind::copy:
      return NsysTable::memcpy;
    case EventKind::set:
      return NsysTable::memset;
    case EventKind::synchronization:
      return NsysTable::synchronization;
    default:
      return NsysTable::nvtx;
  }
}

std::string_view copy_name(std::int64_t copy_kind) { return entry(kCopyKinds, copy_kind).name; }

CopyDirection copy_direction(std::int64_t copy_kind) {
  return entry(kCopyKinds, copy_kind).direction;
}

std::int64_t copy_kind(CopyDirection direction) {
  switch (direction) {
    case CopyDirection::unknown:
      return 0;
    case CopyDirection::host_to_device:
      return 1;
    case CopyDirection::device_to_host:
      return 2;
    case CopyDirection::device_to_device:
      return 8;
    case CopyDirection::host_to_host:
      return 9;
    case CopyDirection::peer_to_peer:
      return 10;
  }
  return 0;
}

std::string_view sync_name(std::int64_t sync_type) { return entry(kSyncNames, sync_type); }

std::string_view without_version(std::string_view name) {
  const auto at = name.rfind("_v");
  if (at == std::string_view::npos || name.size() - at < 6) return name;
  const std::string_view digits = name.substr(at + 2);
  const bool number = std::all_of(digits.begin(), digits.end(),
                                  [](char byte) { return byte >= '0' && byte <= '9'; });
  return number ? name.substr(0, at) : name;
}

std::int64_t sync_type(std::string_view name) {
  const auto* const found = std::find(kSyncNames.begin(), kSyncNames.end(), name);
  return found == kSyncNames.end() ? 0 : found - kSyncNames.begin();
}

}  // namespace stepscope::tracer
