#pragma once

/// Purpose: what reader and writer of nsys' SQLite schema must agree on: which table holds which
/// event, how ids of processes and threads are packed, and the tables that we add.
///
/// Usage:  const auto table = table_of(event);  const Event plain = plain_event(table, event, ...);
///
/// Caveats: nsys' schema has no place for some of what we know: the n of a kernel, an operator's
/// inputs, ranks, what was lost. That stands in tables STEPSCOPE_*, which other readers ignore:
///
///   STEPSCOPE_PROCESS  a row a process, numbered as in the Trace
///   STEPSCOPE_HEALTH   records that were left out, by reason
///   STEPSCOPE_INPUT    the tensors of an operator, a row each
///   STEPSCOPE_EVENT    what the row `row` of the table `tableId` cannot say; NULL: nothing to add

#include <array>
#include <cstdint>
#include <string_view>

#include "tracer/event.h"

namespace stepscope::tracer {

/// Tables that hold events; the numbers stand in STEPSCOPE_EVENT.tableId.
enum class NsysTable : std::uint8_t { kernel, memcpy, memset, synchronization, runtime, nvtx };
inline constexpr std::size_t kNsysTables = 6;
inline constexpr std::array<std::string_view, kNsysTables> kNsysTableNames = {
    "CUPTI_ACTIVITY_KIND_KERNEL",  "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",  "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"};

/// Our own files have all of these, others none.
inline constexpr std::array<std::string_view, 4> kOwnTableNames = {
    "STEPSCOPE_PROCESS", "STEPSCOPE_HEALTH", "STEPSCOPE_INPUT", "STEPSCOPE_EVENT"};

/// globalTid = process << 24 | tid; globalPid is the same with tid 0.
inline constexpr int kThreadBits = 24;
inline constexpr std::uint64_t kThreadMask = (std::uint64_t{1} << kThreadBits) - 1;

/// The NVTX domain of our own ranges; other domains are part of the name.
inline constexpr std::string_view kOwnDomain = "stepscope";

/// Where the writer puts an event: what runs on a device into that activity's table; what a host
/// thread did into the API calls or the NVTX ranges.

NsysTable table_of(const Event& event);

/// Name of a copy, by nsys' copyKind: "Memcpy HtoD", ...
std::string_view copy_name(std::int64_t copy_kind);
CopyDirection copy_direction(std::int64_t copy_kind);
std::int64_t copy_kind(CopyDirection direction);

/// Name of a synchronization, by nsys' syncType: "Stream sync", ...
std::string_view sync_name(std::int64_t sync_type);
std::int64_t sync_type(std::string_view name);

/// "cudaLaunchKernel" for "cudaLaunchKernel_v7000": the runtime's names carry the version of CUDA
/// that introduced the function. The driver's (cuMemAlloc_v2) say which function, and stay.
std::string_view without_version(std::string_view name);

inline constexpr std::string_view kMemsetName = "Memset";

}  // namespace stepscope::tracer
