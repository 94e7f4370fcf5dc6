#include "topologies/slurm_lists.h"

#include <functional>
#include <limits>

#include "core/error.h"
#include "core/parse.h"

namespace stepscope::topologies {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void malformed(const std::string& variable, std::string_view list,
                            const std::string& what) {
  throw Error(variable + " is \"" + std::string(list) + "\": " + what,
              "start the ranks with srun, which sets it");
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The part of `text` before the first of `stops`, which is taken off `text`.
std::string_view take_until(std::string_view& text, std::string_view stops) {
  const auto part = text.substr(0, text.find_first_of(stops));
  text.remove_prefix(part.size());
  return part;
}

/// The first number of a bracket's content, as it is written: "001-003,7" gives "001".
std::string_view first_number(const std::string& variable, std::string_view list,
                              std::string_view content) {
  const auto rest = content.find_first_not_of("0123456789,-");
  const auto number = content.substr(0, content.find_first_of(",-"));
  if (rest != std::string_view::npos || number.empty()) {
    malformed(variable, list, "brackets hold numbers and ranges");
  }
  return number;
}

/// Calls `visit(tasks, nodes)` for every entry: "4(x2)" is 4 tasks on each of 2 nodes.
void for_each_entry(const std::string& variable, std::string_view list,
                    const std::function<void(std::int64_t, std::int64_t)>& visit) {
  std::string_view rest = list;
  do {
    const auto tasks = take_until(rest, "(,");
    std::int64_t nodes = 1;
    if (rest.starts_with("(x")) {
      rest.remove_prefix(2);
      const auto count = take_until(rest, "),");
      if (!rest.starts_with(')')) malformed(variable, list, "a repetition is not closed");
      rest.remove_prefix(1);
      nodes = parse_int(variable, count, 1, kMost);
    }
    if (tasks.empty() || !is_digit(tasks.front()) || (!rest.empty() && rest.front() != ',')) {
      malformed(variable, list, "it should look like 4(x2),3");
    }
    visit(parse_int(variable, tasks, 0, kMost), nodes);
    if (rest.empty()) return;
    rest.remove_prefix(1);
  } while (true);
}

}  // namespace

std::string first_host(const std::string& variable, std::string_view list) {
  std::string_view rest = list;
  std::string host;
  while (!rest.empty() && rest.front() != ',') {
    host += take_until(rest, "[],");
    if (rest.starts_with(']')) malformed(variable, list, "a bracket is not opened");
    if (!rest.starts_with('[')) continue;
    rest.remove_prefix(1);
    const auto content = take_until(rest, "[]");
    if (!rest.starts_with(']')) malformed(variable, list, "a bracket is not closed");
    rest.remove_prefix(1);
    host += first_number(variable, list, content);
  }
  if (host.empty()) malformed(variable, list, "it names no host");
  return host;
}

std::int64_t tasks_on_node(const std::string& variable, std::string_view list, std::int64_t node) {
  std::int64_t first = 0;
  std::int64_t found = -1;
  for_each_entry(variable, list, [&](std::int64_t tasks, std::int64_t nodes) {
    if (node >= first && node < first + nodes) found = tasks;
    first += nodes;
  });
  if (found < 0) {
    malformed(
        variable, list,
        "it names " + std::to_string(first) + " node(s), this is node " + std::to_string(node));
  }
  return found;
}

std::int64_t total_tasks(const std::string& variable, std::string_view list) {
  std::int64_t total = 0;
  for_each_entry(variable, list, [&](std::int64_t tasks, std::int64_t nodes) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(tasks, nodes, &product) || product > kMost - total) {
      malformed(variable, list, "it names more than " + std::to_string(kMost) + " tasks");
    }
    total += product;
  });
  return total;
}

}  // namespace stepscope::topologies
