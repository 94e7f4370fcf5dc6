#pragma once

/// Purpose: what a figure depends on besides the code: the machine, the build, the command and the
/// settings of the job, for the manifest of a run folder.
///
/// Usage:
///     RunFolder folder = RunFolder::create(path, collect_provenance({argv, argv + argc}));
///     folder.set("pytorch", TORCH_VERSION);
///
/// Caveats: what cannot be found out is null, never 0 or a guess. Environment variables are taken
/// from an explicit list, since the environment of a job holds tokens and passwords.

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace stepscope::results {

/// The manifest's first content: schema_version, created_utc, version, commit, dirty, build_type,
/// compiler, command (the words), command_line (the same, quoted for a POSIX shell), environment,
/// and all of describe_machine. `command` is argv, program first.
nlohmann::json collect_provenance(const std::vector<std::string>& command);

/// host, kernel, cpu_model, cpus_usable (logical cores in this process's affinity mask),
/// memory_total_bytes, cgroup_memory_limit_bytes, transparent_hugepage and cpu_governor. /proc and
/// /sys are read below `root`, which tests set.
nlohmann::json describe_machine(const std::filesystem::path& root = "/");

/// The variables of the list that are set, as an object.
nlohmann::json allowed_environment();

/// `words` as one line that a POSIX shell splits into the same words again.
std::string shell_quote(const std::vector<std::string>& words);

/// "2026-12-01T17:15:00Z" (ISO 8601).
std::string utc_text(std::chrono::system_clock::time_point time);

/// This machine's name, or "unknown".
std::string host_name();

}  // namespace stepscope::results
