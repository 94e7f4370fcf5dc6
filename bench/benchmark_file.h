#pragma once

/// Purpose: the file of --benchmark_out, and whether all of it was written: Google Benchmark looks
/// for errors only when it opens the file.
///
/// Usage:
///     BenchmarkFile file(options.benchmark_flags);
///     benchmark::RunSpecifiedBenchmarks(display, file.reporter());
///     file.require_written();
///
/// Caveats: Google Benchmark opens the file and hands it to the reporter; a run that it ends before
/// it has reported anything leaves the file as it was opened, which is no error here.

#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

namespace stepscope::bench {

class BenchmarkFile {
 public:
  /// `flags` are screened (bench/benchmark_flags.h). Without --benchmark_out there is no reporter.
  explicit BenchmarkFile(const std::vector<std::string>& flags);

  benchmark::BenchmarkReporter* reporter() { return reporter_.get(); }

  /// Throws Error naming the file where a write to it failed.
  void require_written() const;

 private:
  std::string path_;
  bool failed_ = false;
  std::unique_ptr<benchmark::BenchmarkReporter> reporter_;
};

}  // namespace stepscope::bench
