// Files that were changed at random: each is read, or refused with an Error that names it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>

#include "core/error.h"
#include "results/comparison/compare.h"
#include "results/comparison/read_run.h"
#include "results/comparison/write_comparison.h"
#include "scratch.h"

namespace stepscope::results {
namespace {

namespace fs = std::filesystem;

constexpr int kChanged = 600;  // files of each kind

constexpr std::string_view kResults =
    "schema_version,benchmark,repetition,rank,status,p50_ns,p90_ns,state_bytes,contract\n"
    "1,\"BM<int, \"\"x\"\">\",0,0,ok,1000,1200,512,ok\n"
    "1,\"BM<int, \"\"x\"\">\",0,1,ok,1000,1200,256,unverified\n"
    "1,plain,0,0,failed,,,,\n";
constexpr std::string_view kSamples =
    "schema_version,benchmark,repetition,step,step_ns\n1,BM,0,0,1000\n1,BM,0,1,1100\n1,\"a,b\",0,0,"
    "7\n";
constexpr std::string_view kManifest =
    "{\"schema_version\": 1, \"status\": \"complete\", \"rows\": {\"results\": 3, \"samples\": "
    "3},\n"
    " \"commit\": \"0123abcd\", \"dirty\": false, \"created_utc\": \"2026-12-01T17:15:00Z\",\n"
    " \"turns\": {\"pair\": \"one\"}, \"packages\": {\"bitsandbytes\": {\"version\": "
    "\"0.50.2\"}},\n"
    " \"words\": [\"a\", \"b\"], \"cpu_model\": \"Test CPU\"}\n";
constexpr std::string_view kGoogleJson =
    "{\"context\": {\"date\": \"2026-12-01\", \"num_cpus\": 2, \"caches\": [{\"size\": 1}]},\n"
    " \"benchmarks\": [\n"
    "  {\"name\": \"BM\", \"run_name\": \"BM\", \"run_type\": \"iteration\", \"real_time\": 1.5,\n"
    "   \"cpu_time\": 1.25, \"time_unit\": \"us\"},\n"
    "  {\"name\": \"BM_median\", \"run_name\": \"BM\", \"run_type\": \"aggregate\",\n"
    "   \"aggregate_name\": \"median\", \"real_time\": 1.5, \"time_unit\": \"us\"},\n"
    "  {\"name\": \"bad\", \"error_occurred\": true, \"error_message\": \"why\"}]}\n";
constexpr std::string_view kGoogleCsv =
    "2026-12-01T10:00:00+00:00\nRunning x\n"
    "name,iterations,real_time,cpu_time,time_unit,error_occurred,error_message\n"
    "\"BM<int, \"\"x\"\">\",10,2.5,2,us,,\nBM_median,,2.5,2,ns,,\nbroken,,,,,true,\"why, "
    "indeed\"\n";

/// What tears files and numbers, between which a reader has to keep.
constexpr auto kOdd = std::to_array<std::string_view>(
    {"\"",      ",",    "\n",   "\r",       "\r\n",    "\xef\xbb\xbf",
     "\xff",    "-",    "nan",  "inf",      "1e999",   "9223372036854775808",
     "-1",      "0",    "{",    "}",        "[",       "]",
     ":",       "null", "true", "\"\"",     "\\u0000", "\\ud800",
     "\\",      "=1+1", "|",    "\x1b[31m", "1,5",     "ns",
     "_median", ".5",   "/",    ".."});

std::string changed(std::string text, std::mt19937_64& random) {
  const auto below = [&](std::size_t size) { return size == 0 ? 0 : random() % size; };
  for (std::size_t left = 1 + below(3); left > 0; --left) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t size = below(1 + std::min<std::size_t>(24, text.size() - at));
    switch (below(6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, size);
        break;
      case 2:
        text.insert(at, text.substr(at, size));
        break;
      case 3:
        text.insert(at, kOdd[below(kOdd.size())]);
        break;
      case 4:
        text.replace(at, size, kOdd[below(kOdd.size())]);
        break;
      default:
        if (below(4) == 0) text.resize(at);  // rarely: what is left is short
    }
  }
  return text;
}

void write(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Reads `read` after each of many changes of `file`, which held `whole`.
void try_changes(const fs::path& read, const fs::path& file, std::string_view whole) {
  write(file, whole);
  ASSERT_NO_THROW(read_run(read));
  std::mt19937_64 random(whole.size());
  int refused = 0;
  for (int i = 0; i < kChanged; ++i) {
    const std::string text = changed(std::string(whole), random);
    write(file, text);
    try {
      const MeasuredRun run = read_run(read);
      for (const BenchmarkRun& benchmark : run.benchmarks) {
        EXPECT_FALSE(benchmark.benchmark.empty()) << text;
        EXPECT_TRUE(std::isfinite(benchmark.p50_ns.value_or(0))) << text;
        EXPECT_GE(benchmark.p50_ns.value_or(0), 0) << text;
        EXPECT_GE(benchmark.state_bytes.value_or(0), 0) << text;
      }
      // Nor does anything in it break what is written of it.
      const Comparison comparison = compare({run}, {run}, {});
      comparison_markdown(comparison);
      comparison_json(comparison);
      if (text.find("\\u0000") == std::string::npos) comparison_csv(comparison);
    } catch (const Error& error) {
      ++refused;
      EXPECT_TRUE(error.where().file.starts_with(read.string())) << error.what() << '\n' << text;
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << text;
      EXPECT_FALSE(error.what_failed().empty()) << text;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "another exception: " << error.what() << '\n' << text;
    }
    if (::testing::Test::HasFailure()) return;
  }
  // Some changes hurt and some do not, or nothing was tried.
  EXPECT_GT(refused, kChanged / 20);
  EXPECT_LT(refused, kChanged);
}

TEST(ChangedFiles, OfResultsAreReadOrRefused) {
  const Scratch scratch;
  const fs::path file = scratch.path() / "results.csv";
  try_changes(file, file, kResults);
}

TEST(ChangedFiles, OfSamplesAreReadOrRefused) {
  const Scratch scratch;
  const fs::path file = scratch.path() / "samples.csv";
  try_changes(file, file, kSamples);
}

TEST(ChangedFiles, OfGoogleBenchmarksJsonAreReadOrRefused) {
  const Scratch scratch;
  const fs::path file = scratch.path() / "g.json";
  try_changes(file, file, kGoogleJson);
}

TEST(ChangedFiles, OfGoogleBenchmarksCsvAreReadOrRefused) {
  const Scratch scratch;
  const fs::path file = scratch.path() / "g.csv";
  try_changes(file, file, kGoogleCsv);
}

TEST(ChangedFiles, OfARunFolderAreReadOrRefused) {
  for (const char* name : {"manifest.json", "results.csv", "samples.csv"}) {
    const Scratch scratch;
    write(scratch.path() / "manifest.json", kManifest);
    write(scratch.path() / "results.csv", kResults);
    write(scratch.path() / "samples.csv", kSamples);
    const std::string_view whole = std::string_view(name) == "manifest.json" ? kManifest
                                   : std::string_view(name) == "results.csv" ? kResults
                                                                             : kSamples;
    try_changes(scratch.path(), scratch.path() / name, whole);
  }
}

}  // namespace
}  // namespace stepscope::results
