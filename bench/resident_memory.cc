#include "bench/resident_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace stepscope::bench {
namespace {

/// The value of a line "Key:   123 kB" in bytes.
std::optional<std::int64_t> kilobytes_line(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::int64_t kilobytes = 0;
    if (word == key && file >> kilobytes) return kilobytes * 1024;
  }
  return std::nullopt;
}

std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

/// What is left below the limit of the control group (version 2) this process is in.
std::optional<std::int64_t> control_group_available() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::")) continue;
    const std::string folder = "/sys/fs/cgroup" + line.substr(3);
    const auto limit = number_in(folder + "/memory.max");  // "max" where there is none
    const auto used = number_in(folder + "/memory.current");
    if (limit && used) return std::max<std::int64_t>(0, *limit - *used);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> resident_bytes() {
  return kilobytes_line("/proc/self/status", "VmRSS:");
}

std::optional<std::int64_t> peak_resident_bytes() {
  return kilobytes_line("/proc/self/status", "VmHWM:");
}

bool reset_peak_resident() {
  std::ofstream file("/proc/self/clear_refs");
  file << 5 << std::flush;
  return file.good();
}

std::optional<std::int64_t> available_bytes() {
  auto available = kilobytes_line("/proc/meminfo", "MemAvailable:");
  if (const auto group = control_group_available()) {
    available = available ? std::min(*available, *group) : *group;
  }
  return available;
}

}  // namespace stepscope::bench
