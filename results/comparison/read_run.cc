#include "results/comparison/read_run.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "results/comparison/read_folder.h"
#include "results/comparison/read_google_benchmark.h"

namespace stepscope::results {

namespace fs = std::filesystem;

namespace {

/// Whether the first character that is no blank is that of an object or list, as no CSV's is.
bool starts_as_json(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  char first = '\0';
  return (in >> first) && (first == '{' || first == '[');
}

}  // namespace

MeasuredRun read_run(const fs::path& path) {
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (fs::is_directory(status)) return read_folder(path);
  if (!fs::exists(status)) {
    throw Error("there is no such file or folder", "check the path", {.file = path.string()});
  }
  // A pipe or device would never end.
  if (!fs::is_regular_file(status)) {
    throw Error("is no regular file", "give a run folder or a file", {.file = path.string()});
  }
  if (path.extension() == ".json" || starts_as_json(path)) return read_google_benchmark_json(path);
  if (is_google_benchmark_csv(path)) return read_google_benchmark_csv(path);
  return read_table_file(path);
}

std::vector<MeasuredRun> read_runs(const std::vector<fs::path>& paths) {
  std::vector<MeasuredRun> runs(paths.size());
  std::vector<std::exception_ptr> failures(paths.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < paths.size(); i = next++) {
      try {
        runs[i] = read_run(paths[i]);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(cores, paths.size()); ++i) threads.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return runs;
}

}  // namespace stepscope::results
