// kernel_step: the optimizer kernels alone, on one process, beside the memory bandwidth. See
// --help.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/benchmark_file.h"
#include "bench/benchmark_flags.h"
#include "bench/kernel_backend.h"
#include "bench/usable_cores.h"
#include "core/command_line.h"
#include "core/error.h"
#include "core/program.h"
#include "results/percentile.h"
#include "results/provenance.h"
#include "results/row.h"
#include "results/run_folder.h"

namespace stepscope::bench {
namespace {

using kernels::DType;

struct Options {
  std::vector<std::int64_t> sizes;
  std::vector<std::string> dtypes = {"fp32", "bf16", "fp16"};
  std::int64_t rounds = 15;
  std::string device = "cpu";
  KernelBackendOptions backend = {
      .threads = 0, .python = STEPSCOPE_PYTHON, .site_packages = STEPSCOPE_SITE_PACKAGES};
  std::string out;
  bool quick = false;
  std::vector<std::string> benchmark_flags;
};

/// Everything the benchmarks share. Sizes are measured when the first of their cases runs.
class Session {
 public:
  Session(const Options& options, KernelBackend& backend, results::RunFolder* folder)
      : options_(options), backend_(backend), folder_(folder) {}

  /// Which cases are measured together: all of one size.
  std::vector<KernelCase> cases(std::int64_t numel) const {
    std::vector<KernelCase> all;
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      const bool asked =
          std::count(options_.dtypes.begin(), options_.dtypes.end(), dtype_name(dtype)) > 0;
      // PyTorch in fp32 is what every case is compared with.
      if (asked || dtype == DType::fp32) {
        all.push_back({Implementation::torch, KernelOptimizer::AdamW, dtype, numel});
      }
      if (!asked) continue;
      for (const KernelOptimizer optimizer :
           {KernelOptimizer::AdamW8bit, KernelOptimizer::Lion8bit, KernelOptimizer::AdamW}) {
        all.push_back({Implementation::native, optimizer, dtype, numel});
      }
      for (const KernelCase& c : backend_.peer_cases(dtype, numel)) all.push_back(c);
    }
    return all;
  }

  void register_benchmarks() {
    for (const std::int64_t numel : options_.sizes) {
      for (const KernelCase& c : cases(numel)) {
        benchmark::RegisterBenchmark(c.benchmark_name().c_str(),
                                     [this, c](benchmark::State& state) { run(state, c); })
            ->Iterations(options_.rounds)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }

  bool anything_measured() const { return measured_ > 0; }
  const std::string& failure() const { return failure_; }
  const std::map<std::string, KernelResult>& results() const { return results_; }

  /// The median step of PyTorch's fused FP32 AdamW of the same size, in ns.
  double torch_ns(std::int64_t numel) const {
    const KernelCase torch{Implementation::torch, KernelOptimizer::AdamW, DType::fp32, numel};
    return median(results_.at(torch.benchmark_name()).step_ns);
  }

 private:
  void run(benchmark::State& state, const KernelCase& c) {
    try {
      measure(c.numel);
    } catch (const Error& error) {
      // Google Benchmark cannot carry an exception; main() reports the first one.
      if (failure_.empty()) failure_ = error.what();
      state.SkipWithError(error.what());
      return;
    }
    const KernelResult& result = results_.at(c.benchmark_name());
    std::size_t round = 0;
    for ([[maybe_unused]] const auto _ : state)
      state.SetIterationTime(result.step_ns[round++] * 1e-9);
    const double ns = median(result.step_ns);
    state.counters["ns_per_param"] = ns / static_cast<double>(c.numel);
    state.counters["GB_per_s"] = static_cast<double>(result.moved_bytes) / ns;
    state.counters["of_bandwidth"] = median(result.traffic_ns) / ns;
    state.counters["vs_torch_adamw_fp32"] = ns / torch_ns(c.numel);
    ++measured_;
    if (folder_ != nullptr) write_rows(result);
  }

  void measure(std::int64_t numel) {
    const auto all = cases(numel);
    if (results_.count(all.front().benchmark_name()) > 0) return;
    for (KernelResult& result : backend_.measure(all, options_.rounds)) {
      results_.emplace(result.kernel_case.benchmark_name(), std::move(result));
    }
  }

  void write_rows(const KernelResult& result) {
    std::vector<std::int64_t> ns;
    for (const double sample : result.step_ns) ns.push_back(std::llround(sample));
    const KernelCase& c = result.kernel_case;
    results::Row row(results::results_table());
    row.set("benchmark", c.benchmark_name())
        .set("repetition", 0)
        .set("subject", implementation_name(c.implementation))
        .set("optimizer", optimizer_name(c.optimizer))
        .set("topology", "single")
        .set("dtype", dtype_name(c.dtype))
        .set("device", topologies::device_name(options_.backend.device))
        .set("world_size", 1)
        .set("rank", 0)
        .set("threads", threads())
        .set("build_type", build_type())
        .set("status", "ok")
        .set("steps", static_cast<std::int64_t>(ns.size()))
        .set("p10_ns", results::percentile(ns, 10))
        .set("p50_ns", results::percentile(ns, 50))
        .set("p90_ns", results::percentile(ns, 90))
        .set("percentile_method", results::kPercentileMethod)
        .set("local_numel", c.numel)
        .set("global_numel", c.numel)
        .set("moment_bytes", result.moment_bytes)
        .set("bytes_per_parameter",
             static_cast<double>(result.moment_bytes) / static_cast<double>(c.numel))
        .set("bytes_moved", result.moved_bytes)
        .set("effective_bandwidth_bytes_per_s",
             std::llround(static_cast<double>(result.moved_bytes) * 1e9 / median(result.step_ns)))
        .set("bandwidth_fraction", median(result.traffic_ns) / median(result.step_ns))
        .set("contract", "unverified");
    folder_->add_result(row);
    for (std::size_t i = 0; i < ns.size(); ++i) {
      results::Row sample(results::samples_table());
      sample.set("benchmark", c.benchmark_name())
          .set("repetition", 0)
          .set("step", static_cast<std::int64_t>(i))
          .set("step_ns", ns[i])
          .set("slowest_rank", 0);
      if (!result.clocks.empty()) {
        sample.set("sm_mhz", result.clocks[i].sm_mhz)
            .set("memory_mhz", result.clocks[i].memory_mhz)
            .set("clock_limits", limits_text(result.clocks[i].limits));
      }
      folder_->add_sample(sample);
    }
  }

  std::optional<std::int64_t> threads() const {
    if (backend_.threads() == 0) return std::nullopt;
    return backend_.threads();
  }

  const Options& options_;
  KernelBackend& backend_;
  results::RunFolder* folder_;
  std::map<std::string, KernelResult> results_;
  std::string failure_;
  std::int64_t measured_ = 0;
};

/// One line a case, while they finish.
class TableReporter final : public benchmark::BenchmarkReporter {
 public:
  TableReporter(const Session& session, bool on_gpu) : session_(session), on_gpu_(on_gpu) {}

  bool ReportContext(const Context& /*context*/) override {
    fmt::print("{:<46} {:>12} {:>8} {:>14} {:>12}{}\n", "benchmark", "ns/parameter", "GB/s",
               "of bandwidth", "x torch fp32", on_gpu_ ? "  SM MHz, and what limited it" : "");
    return true;
  }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.error_occurred) {
        fmt::print("{:<46} {}\n", run.run_name.function_name, run.error_message);
        continue;
      }
      const KernelResult& result = session_.results().at(run.run_name.function_name);
      const double ns = median(result.step_ns);
      const auto numel = static_cast<double>(result.kernel_case.numel);
      fmt::print("{:<46} {:>12.4g} {:>8.3g} {:>13.3g}% {:>12.3g}{}\n", run.run_name.function_name,
                 ns / numel, static_cast<double>(result.moved_bytes) / ns,
                 100 * median(result.traffic_ns) / ns,
                 ns / session_.torch_ns(result.kernel_case.numel),
                 result.clocks.empty() ? "" : "  " + clocks_text(result.clocks));
      std::fflush(stdout);
    }
  }

 private:
  const Session& session_;
  bool on_gpu_;
};

void initialize_benchmark(const Options& options) {
  // Flags that this program cannot honour are fixed, whatever the environment says.
  // Google Benchmark keeps the pointer to the first word, and reads it when it writes a file.
  static char program[] = "kernel_step";
  std::vector<std::string> words = {
      "--benchmark_filter=", "--benchmark_repetitions=1",
      "--benchmark_out=", "--benchmark_enable_random_interleaving=false",
      "--benchmark_min_warmup_time=0"};
  words.insert(words.end(), options.benchmark_flags.begin(), options.benchmark_flags.end());
  std::vector<char*> arguments = {program};
  for (std::string& word : words) arguments.push_back(word.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (count > 1) throw Error(std::string("bad benchmark flag ") + arguments[1]);
}

int measure(const Options& options, const std::vector<std::string>& command) {
  const bool only_list = has_flag(options.benchmark_flags, "benchmark_list_tests");
  if (build_type() != "Release" && !only_list) {
    throw Error("this is a " + build_type() + " build, whose times mean nothing",
                "measure with a Release build: cmake --preset release");
  }
  const std::unique_ptr<KernelBackend> backend = open_kernel_backend(options.backend);
  std::unique_ptr<results::RunFolder> folder;
  if (!options.out.empty() && !only_list) {
    nlohmann::json manifest = results::collect_provenance(command);
    manifest["program"] = "kernel_step";
    manifest["world_size"] = 1;
    manifest["quick"] = options.quick;
    manifest.update(backend->description());
    folder = std::make_unique<results::RunFolder>(
        results::RunFolder::create(options.out, std::move(manifest)));
  }
  Session session(options, *backend, folder.get());
  initialize_benchmark(options);
  session.register_benchmarks();
  TableReporter table(session, options.backend.device == topologies::Device::cuda);
  const bool own_table = !has_flag(options.benchmark_flags, "benchmark_format") && !only_list;
  if (own_table) {
    std::string separator = fmt::format("; medians of {} interleaved rounds", options.rounds);
    for (const std::string& line : backend->headlines()) {
      fmt::print("{}{}\n", line, std::exchange(separator, ""));
    }
  }
  BenchmarkFile file(options.benchmark_flags);
  benchmark::RunSpecifiedBenchmarks(own_table ? &table : nullptr, file.reporter());
  if (only_list) return kFine;
  if (!session.failure().empty()) throw Error(session.failure());
  if (!session.anything_measured()) {
    throw Error("no case was measured",
                "check --benchmark_filter; --benchmark_list_tests lists the names");
  }
  file.require_written();
  if (folder) std::printf("%s\n", folder->finish().c_str());
  return kFine;
}

std::vector<std::int64_t> default_sizes(bool quick) {
  std::vector<std::int64_t> sizes;
  for (int power = 8; power <= 25; ++power) {
    if (!quick || (power <= 20 && power % 6 == 2)) sizes.push_back(std::int64_t{1} << power);
  }
  return sizes;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Measures the optimizer kernels alone: this project's AdamW8bit, Lion8bit and AdamW with\n"
      "FP32 state, and PyTorch's fused AdamW, beside a loop that moves the same bytes.",
      "kernel_step");
  app.footer(
      "Also --benchmark_filter, --benchmark_list_tests, --benchmark_format, --benchmark_out.\n"
      "All cases of a size are timed in interleaved rounds; figures are medians. 'of bandwidth' "
      "is\n"
      "the time of the loop over that of the step; 'x torch fp32' is the step over that of\n"
      "PyTorch's fused AdamW in fp32, of the same size and in the same rounds.\n"
      "On CUDA a sample is one step by the device's clock, with nothing in the L2 cache, and the\n"
      "GPU's clocks stand beside it.\n"
      "Exit code: 0 measured, 2 could not run.\n"
      "Examples:\n"
      "  kernel_step                                 # all sizes from 256 to 33,554,432\n"
      "  kernel_step --sizes 33554432 --dtypes fp32 --rounds 31\n"
      "  kernel_step --sizes 33554432 --dtypes fp32 --rounds 5 --peers bitsandbytes\n"
      "  kernel_step --cpu-target AVX2 --out runs/kernels-avx2\n"
      "  kernel_step --device cuda --sizes 33554432,134217728 --peers bitsandbytes");
  app.add_option("--sizes", options.sizes, "elements of the tensor (default 2^8 to 2^25)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32))
      ->delimiter(',');
  app.add_option("--dtypes", options.dtypes, "fp32, bf16, fp16 (default all)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->delimiter(',');
  app.add_option("--rounds", options.rounds, "timed samples a case (default 15)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100'000}));
  app.add_option("--device", options.device, "cpu, or cuda: the first GPU (default cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--threads", options.backend.threads, "threads (default: the usable cores)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--cpu-target", options.backend.cpu_target,
                 "instruction set of this project's kernels (default: the best)");
  app.add_option("--peers", options.backend.peers,
                 "also bitsandbytes and torchao: on the CPU their Python optimizers (slow), on\n"
                 "CUDA the C interface of bitsandbytes")
      ->check(CLI::IsMember({"bitsandbytes", "torchao"}))
      ->delimiter(',');
  app.add_option("--python", options.backend.python, "the Python that has the peers")
      ->capture_default_str();
  app.add_option("--site-packages", options.backend.site_packages,
                 "the folder that has bitsandbytes' CUDA library")
      ->capture_default_str();
  app.add_option("--out", options.out, "run folder to write (default: none)");
  app.add_flag("--quick", options.quick, "three sizes, 3 rounds: shows that all works");
  app.allow_extras();
  if (!parse_command_line(app, argc, argv)) return kFine;
  options.benchmark_flags = screen_benchmark_flags(app.remaining());
  if (has_flag(options.benchmark_flags, "benchmark_repetitions")) {
    throw Error("--benchmark_repetitions would show the same rounds again", "use --rounds");
  }
  if (options.sizes.empty()) options.sizes = default_sizes(options.quick);
  if (options.quick && app.count("--rounds") == 0) options.rounds = 3;
  options.backend.device = topologies::parse_device(options.device);
  if (options.backend.threads == 0) options.backend.threads = static_cast<int>(usable_cores());
  return measure(options, {argv, argv + argc});
}

}  // namespace
}  // namespace stepscope::bench

int main(int argc, char** argv) {
  return stepscope::run_program("kernel_step", [&] { return stepscope::bench::run(argc, argv); });
}
