#include "tracer/event.h"

namespace stepscope::tracer {

std::string_view event_kind_name(EventKind kind) {
  switch (kind) {
    case EventKind::kernel:
      return "kernel";
    case EventKind::copy:
      return "copy";
    case EventKind::set:
      return "set";
    case EventKind::synchronization:
      return "synchronization";
    case EventKind::api_call:
      return "api_call";
    case EventKind::collective:
      return "collective";
    case EventKind::host_operator:
      return "host_operator";
    case EventKind::range:
      return "range";
  }
  return "unknown";
}

std::string_view copy_direction_name(CopyDirection direction) {
  switch (direction) {
    case CopyDirection::unknown:
      return "unknown";
    case CopyDirection::host_to_device:
      return "host-to-device";
    case CopyDirection::device_to_host:
      return "device-to-host";
    case CopyDirection::device_to_device:
      return "device-to-device";
    case CopyDirection::host_to_host:
      return "host-to-host";
    case CopyDirection::peer_to_peer:
      return "peer-to-peer";
  }
  return "unknown";
}

std::string_view collective_kind_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::none:
      return "none";
    case CollectiveKind::all_gather:
      return "all-gather";
    case CollectiveKind::reduce_scatter:
      return "reduce-scatter";
    case CollectiveKind::all_reduce:
      return "all-reduce";
    case CollectiveKind::all_to_all:
      return "all-to-all";
    case CollectiveKind::broadcast:
      return "broadcast";
    case CollectiveKind::barrier:
      return "barrier";
    case CollectiveKind::send_receive:
      return "send-receive";
    case CollectiveKind::other:
      return "other";
  }
  return "unknown";
}

}  // namespace stepscope::tracer
