// fuzz_trace_file FOLDER SECONDS SEED: reads files that are real traces with random damage, again
// and again, through every reader, with and without salvage. Whatever the bytes are, reading ends
// with a Trace or with an Error of one line; anything else ends this program (the sanitizers'
// builds see more). FOLDER receives the input that is being read, so that it is there after a
// crash.
//
// The inputs depend on SEED alone; SECONDS is how long to go on (0: a fixed, small number).

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/parse.h"
#include "core/program.h"
#include "tests/core/damaged.h"
#include "tests/tracer/large_trace.h"
#include "tracer/align_ranks.h"
#include "tracer/chrome_writer.h"
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

/// Reads one input. Throws where it takes too long, or fails in another way than by an Error.
void read(const fs::path& path) {
  for (const bool salvage : {false, true}) {
    const auto start = std::chrono::steady_clock::now();
    try {
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
    } catch (const Error& error) {
      if (std::string(error.what()).find('\n') != std::string::npos) {
        throw std::runtime_error("an error of several lines");
      }
    }
    if (std::chrono::steady_clock::now() - start > kLongestRead) {
      throw std::runtime_error("reading does not end");
    }
  }
}

int run(int argc, char** argv) {
  if (argc != 4) throw Error("usage: fuzz_trace_file FOLDER SECONDS SEED");
  const fs::path folder = argv[1];
  const std::chrono::seconds limit(parse_int("SECONDS", argv[2], 0, 86'400));
  Damage damage(static_cast<std::uint32_t>(parse_int("SEED", argv[3], 0, 0xffffffff)));

  const Trace trace = seed_trace();
  write_nsys(trace, folder / "seed.sqlite");
  write_chrome_json(trace, folder / "seed.json");
  std::vector<std::string> seeds = {bytes_of(folder / "seed.sqlite"),
                                    bytes_of(folder / "seed.json")};
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("more.")) {
      seeds.push_back(bytes_of(entry.path()));
    }
  }

  const auto start = std::chrono::steady_clock::now();
  std::int64_t rounds = 0;
  for (;
       limit.count() == 0 ? rounds < kFewRounds : std::chrono::steady_clock::now() - start < limit;
       ++rounds) {
    const std::string& good = seeds[static_cast<std::size_t>(rounds) % seeds.size()];
    const bool sqlite = good.starts_with("SQLite");
    std::string bytes =
        sqlite && damage.below(3) > 0 ? damaged_page(good, damage) : damage.of(good);
    if (damage.below(8) == 0) bytes.resize(damage.below(bytes.size() + 1));
    const fs::path input = folder / "input";
    std::ofstream(input, std::ios::binary) << bytes;
    read(input);
  }
  std::printf("%lld inputs\n", static_cast<long long>(rounds));
  return kFine;
}

}  // namespace

int main(int argc, char** argv) {
  return stepscope::run_program("fuzz_trace_file", [&] { return run(argc, argv); });
}
