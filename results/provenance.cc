#include "results/provenance.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "core/error.h"
#include "core/parse.h"
#include "core/program.h"
#include "results/schema.h"

namespace stepscope::results {
namespace {

namespace fs = std::filesystem;

/// What shapes the figures of a job. Not a prefix match: SLURM_JWT is a password.
constexpr auto kAllowedVariables = std::to_array<const char*>({
    "SLURM_CLUSTER_NAME",
    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPU_BIND",
    "SLURM_DISTRIBUTION",
    "SLURM_GPUS_ON_NODE",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_MEM_PER_NODE",
    "SLURM_NNODES",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_COLLNET_ENABLE",
    "NCCL_CROSS_NIC",
    "NCCL_CUMEM_ENABLE",
    "NCCL_DEBUG",
    "NCCL_IB_DISABLE",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_HCA",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_IB_RETRY_CNT",
    "NCCL_IB_TC",
    "NCCL_IB_TIMEOUT",
    "NCCL_LAUNCH_MODE",
    "NCCL_MAX_CTAS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NET",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_PLUGIN",
    "NCCL_NSOCKS_PERTHREAD",
    "NCCL_NTHREADS",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_PROTO",
    "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_FAMILY",
    "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_NTHREADS",
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_BLOCKING_WAIT",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "MKL_CBWR",
    "MKL_NUM_THREADS",
    "ATEN_CPU_CAPABILITY",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
});

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

/// The text behind "<key> :" in a file of such lines, /proc/cpuinfo or /proc/meminfo.
std::optional<std::string> value_of(const fs::path& path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t key_end = line.find_last_not_of(" \t", colon - 1);
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    if (value != std::string::npos && key_end != std::string::npos &&
        std::string_view(line).substr(0, key_end + 1) == key) {
      return line.substr(value);
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> number_in(const fs::path& path) {
  const std::optional<std::string> line = first_line(path);
  if (!line) return std::nullopt;
  try {
    return parse_int(path.string(), *line, 0, INT64_MAX);
  } catch (const Error&) {
    return std::nullopt;  // "max": no limit
  }
}

/// The smallest limit on the way from this process's memory control group to the root, of either
/// version of control groups. Inside a container the path in /proc/self/cgroup may not exist below
/// /sys/fs/cgroup; the walk upwards then meets the container's own group at the root.
std::optional<std::int64_t> cgroup_memory_limit(const fs::path& root) {
  // Version 1 has no "max": no limit is the largest multiple of the page size.
  constexpr std::int64_t kNoLimit = std::int64_t{1} << 62;
  std::optional<std::int64_t> limit;
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // <id>:<controllers>:<path>
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool version2 = controllers == ",,";
    if (!version2 && controllers.find(",memory,") == std::string::npos) continue;
    const fs::path top = version2 ? root / "sys/fs/cgroup" : root / "sys/fs/cgroup/memory";
    const char* file = version2 ? "memory.max" : "memory.limit_in_bytes";
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    while (true) {
      const std::optional<std::int64_t> found = number_in(top / group / file);
      if (found && *found < kNoLimit && (!limit || *found < *limit)) limit = found;
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return limit;
}

/// "madvise" out of "always [madvise] never".
std::optional<std::string> chosen_of(const std::optional<std::string>& line) {
  if (!line) return std::nullopt;
  const std::size_t open = line->find('[');
  const std::size_t close = line->find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  return line->substr(open + 1, close - open - 1);
}

std::optional<std::int64_t> memory_total(const fs::path& root) {
  const std::optional<std::string> text = value_of(root / "proc/meminfo", "MemTotal");
  if (!text || !text->ends_with(" kB")) return std::nullopt;
  try {
    return parse_int("MemTotal", text->substr(0, text->size() - 3), 0, INT64_MAX / 1024) * 1024;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<std::int64_t> usable_cpus() {
  // The kernel refuses a mask smaller than its own with EINVAL, and does not say how large that is.
  for (std::size_t cpus = 1024; cpus <= (std::size_t{1} << 20); cpus *= 2) {
    std::vector<cpu_set_t> mask(CPU_ALLOC_SIZE(cpus) / sizeof(cpu_set_t));
    const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, mask.data()) == 0) return CPU_COUNT_S(bytes, mask.data());
    if (errno != EINVAL) break;
  }
  return std::nullopt;
}

template <typename T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "gcc " __VERSION__;
#endif
}

}  // namespace

nlohmann::json collect_provenance(const std::vector<std::string>& command) {
  nlohmann::json json = describe_machine();
  json["schema_version"] = schema_version();
  json["created_utc"] = utc_text(std::chrono::system_clock::now());
  json["version"] = STEPSCOPE_VERSION;
  json["commit"] = build_commit();
  json["dirty"] = build_dirty();
  json["build_type"] = build_type();
  json["compiler"] = compiler();
  json["command"] = command;
  json["command_line"] = shell_quote(command);
  json["environment"] = allowed_environment();
  return json;
}

nlohmann::json describe_machine(const fs::path& root) {
  struct utsname system = {};
  const bool named = ::uname(&system) == 0;
  nlohmann::json json;
  json["host"] = host_name();
  json["kernel"] =
      named
          ? nlohmann::json(fmt::format("{} {} {}", system.sysname, system.release, system.machine))
          : nlohmann::json(nullptr);
  json["cpu_model"] = or_null(value_of(root / "proc/cpuinfo", "model name"));
  json["cpus_usable"] = or_null(usable_cpus());
  json["memory_total_bytes"] = or_null(memory_total(root));
  json["cgroup_memory_limit_bytes"] = or_null(cgroup_memory_limit(root));
  json["transparent_hugepage"] =
      or_null(chosen_of(first_line(root / "sys/kernel/mm/transparent_hugepage/enabled")));
  json["cpu_governor"] =
      or_null(first_line(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  return json;
}

nlohmann::json allowed_environment() {
  nlohmann::json json = nlohmann::json::object();
  for (const char* name : kAllowedVariables) {
    if (const char* value = std::getenv(name)) json[name] = value;
  }
  return json;
}

std::string shell_quote(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+:,./-";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    // "a=b" as the first word would set a variable; behind a dash it cannot.
    const std::size_t special = word.starts_with('-')
                                    ? word.find_first_not_of(std::string(kPlain) + "=")
                                    : word.find_first_not_of(kPlain);
    if (!word.empty() && special == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) {
      if (c == '\'') {
        line += "'\\''";
      } else {
        line += c;
      }
    }
    line += '\'';
  }
  return line;
}

std::string utc_text(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

std::string host_name() {
  std::array<char, 256> name = {};  // Linux allows 64 bytes
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

}  // namespace stepscope::results
