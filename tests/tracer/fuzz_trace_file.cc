// fuzz_trace_file FOLDER SECONDS SEED: reads files that are real traces or shard plans with random
// damage, again and again, each through its reader: SQLite of nsys and of our own, JSON of Kineto
// and of our own, plain and compressed, with and without salvage; and plans. Whatever the bytes
// are, reading ends with what the file holds or with an Error of one line; anything else ends this
// program (the sanitizers' builds see more). FOLDER receives the input that is being read, so that
// it is there after a crash.
//
// The inputs depend on SEED alone; SECONDS is how long to go on (0: a fixed, small number). Says
// how many inputs each reader was given, and how many it refused.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/parse.h"
#include "core/program.h"
#include "tests/core/damaged.h"
#include "tests/tracer/large_trace.h"
#include "tracer/align_ranks.h"
#include "tracer/chrome_writer.h"
#include "tracer/expected_plan.h"
#include "tracer/nsys_writer.h"
#include "tracer/trace_file.h"

namespace {

using namespace stepscope;          // NOLINT(google-build-using-namespace)
using namespace stepscope::tracer;  // NOLINT(google-build-using-namespace)
namespace fs = std::filesystem;

constexpr int kFewRounds = 2'000;
constexpr auto kLongestRead = std::chrono::seconds(20);

std::string bytes_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// A trace with all that a file can hold.
Trace seed_trace() {
  Trace trace = large_trace(40);
  const auto inputs = trace.add_inputs({{.shape = {2, 3}, .dtype = "float"}, {.shape = {}}});
  for (const auto kind : {EventKind::host_operator, EventKind::collective, EventKind::copy}) {
    trace.add({.start_ns = 5'000,
               .end_ns = 6'000,
               .value = 6,
               .thread = 12,
               .name = trace.intern("gloo:all_gather"),
               .detail = kind == EventKind::copy ? kNoDetail : inputs,
               .device = kind == EventKind::copy ? 0 : kHost,
               .kind = kind,
               .direction = CopyDirection::device_to_host});
  }
  trace.finish();
  return trace;
}

/// One of SQLite's own fields: whole bytes replaced in the page headers and cells by values that
/// have a meaning there, which random damage to a large file seldom hits.
std::string damaged_page(const std::string& good, Damage& damage) {
  std::string bytes = good;
  constexpr std::size_t kPage = 512;
  for (std::size_t changes = 1 + damage.below(6); changes > 0; --changes) {
    const std::size_t page = damage.below(bytes.size() / kPage) * kPage;
    const std::size_t at = std::min(page + damage.below(40), bytes.size() - 1);
    static constexpr char kMeant[] = "\x00\x01\x02\x05\x0a\x0d\x7f\x80\x81\xff";
    bytes[at] = kMeant[damage.below(sizeof kMeant - 1)];
  }
  return bytes;
}

/// Some values of valid JSON replaced by others, so that what stands behind the syntax is reached.
std::string damaged_value(const std::string& good, Damage& damage) {
  static constexpr std::array kValues = {
      "-1",          "0",    "1e999",      "9223372036854775807",
      "1.5",         "null", "\"\"",       "18446744073709551616",
      "[]",          "{}",   "[[1],2]",    "-9223372036854775808",
      "\"\\ud800\"", "true", "4294967296", "7.4e15"};
  std::string bytes = good;
  for (std::size_t changes = 1 + damage.below(4); changes > 0; --changes) {
    const std::size_t colon = bytes.find(':', damage.below(bytes.size()));
    const std::size_t end = bytes.find_first_of(",}]", colon);
    if (end == std::string::npos) continue;
    bytes.replace(colon + 1, end - colon - 1, kValues[damage.below(kValues.size())]);
  }
  return bytes;
}

void read_trace(const fs::path& path, bool salvage) {
  Trace trace;
  read_trace_file(path, trace, {.salvage = salvage});
  align_ranks(trace);
  trace.finish();
  // Every number that an event carries must lead somewhere.
  std::size_t sum = 0;
  for (const Event& event : trace.events()) {
    sum += trace.name(event).size() + trace.processes().at(event.process).file.size();
    if (event.detail == kNoDetail) continue;
    sum += event.kind == EventKind::kernel
               ? static_cast<std::size_t>(trace.launch(event.detail).registers_per_thread)
               : trace.inputs(event.detail).size();
  }
  if (sum == 1) std::puts("");  // the sum must not be optimized away
}

/// A plan that was taken promises nothing impossible.
void read_plan(const fs::path& path) {
  const ExpectedPlan plan = read_plan_file(path);
  for (const auto& [number, rank] : plan.ranks) {
    if (number < 0 || number >= plan.world_size) throw std::runtime_error("an impossible rank");
    for (const ExpectedTensor& tensor : rank.tensors) {
      if (tensor.n < 0 || tensor.whole < 0) throw std::runtime_error("an impossible size");
    }
  }
}

/// Runs `body`, whether it ended with an Error. Throws where it takes too long, or fails in another
/// way.
bool refuses(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  bool refused = false;
  try {
    body();
  } catch (const Error& error) {
    refused = true;
    if (std::string(error.what()).find('\n') != std::string::npos) {
      throw std::runtime_error("an error of several lines");
    }
  }
  if (std::chrono::steady_clock::now() - start > kLongestRead) {
    throw std::runtime_error("reading does not end");
  }
  return refused;
}

enum class Format : std::uint8_t { sqlite, json, gzip, plan };
constexpr std::array kFormats = {"sqlite", "json", "gzip", "plan"};

Format format_of(const std::string& good) {
  if (good.starts_with("SQLite")) return Format::sqlite;
  if (good.starts_with("\x1f\x8b")) return Format::gzip;
  return good.find("\"stepscope shard plan\"") != std::string::npos ? Format::plan : Format::json;
}

struct Count {
  std::int64_t inputs = 0;
  std::int64_t refused = 0;
};

int run(int argc, char** argv) {
  if (argc != 4) throw Error("usage: fuzz_trace_file FOLDER SECONDS SEED");
  const fs::path folder = argv[1];
  const std::chrono::seconds limit(parse_int("SECONDS", argv[2], 0, 86'400));
  Damage damage(static_cast<std::uint32_t>(parse_int("SEED", argv[3], 0, 0xffffffff)));

  const Trace trace = seed_trace();
  write_nsys(trace, folder / "seed.sqlite");
  write_chrome_json(trace, folder / "seed.json");
  ExpectedPlan plan{.world_size = 3, .collectives = {CollectiveKind::all_to_all}};
  plan.ranks[0].tensors = {{.name = "embed", .n = 4'097, .whole = 8'194}};
  plan.ranks[2].tensors = {{.name = "head \"of\"", .n = 0, .whole = 1}};
  write_plan_file(plan, folder / "seed.plan");
  std::vector<std::string> seeds;
  for (const char* name : {"seed.sqlite", "seed.json", "seed.plan"}) {
    seeds.push_back(bytes_of(folder / name));
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("more.")) {
      seeds.push_back(bytes_of(entry.path()));
    }
  }

  const auto start = std::chrono::steady_clock::now();
  std::array<Count, kFormats.size()> counts{};
  std::int64_t rounds = 0;
  for (;
       limit.count() == 0 ? rounds < kFewRounds : std::chrono::steady_clock::now() - start < limit;
       ++rounds) {
    const std::string& good = seeds[static_cast<std::size_t>(rounds) % seeds.size()];
    const Format format = format_of(good);
    const bool text = format == Format::json || format == Format::plan;
    const bool meant = damage.below(3) > 0;
    std::string bytes = meant && format == Format::sqlite ? damaged_page(good, damage)
                        : meant && text                   ? damaged_value(good, damage)
                                                          : damage.of(good);
    if (damage.below(8) == 0) bytes.resize(damage.below(bytes.size() + 1));
    const fs::path input = folder / "input";
    std::ofstream(input, std::ios::binary) << bytes;
    Count& count = counts[static_cast<std::size_t>(format)];
    ++count.inputs;
    if (format == Format::plan) {
      count.refused += refuses([&] { read_plan(input); });
    } else {
      count.refused += refuses([&] { read_trace(input, false); });
      refuses([&] { read_trace(input, true); });
    }
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::printf("%s: %lld inputs, %lld refused\n", kFormats[i],
                static_cast<long long>(counts[i].inputs),
                static_cast<long long>(counts[i].refused));
  }
  return kFine;
}

}  // namespace

int main(int argc, char** argv) {
  return stepscope::run_program("fuzz_trace_file", [&] { return run(argc, argv); });
}
