#include "bench/benchmark_file.h"

#include <ostream>

#include "bench/benchmark_flags.h"
#include "core/error.h"

namespace stepscope::bench {
namespace {

/// A reporter that looks at the end whether its stream took everything.
template <class Reporter>
class Checked final : public Reporter {
 public:
  template <class... Arguments>
  explicit Checked(bool& failed, Arguments... arguments)
      : Reporter(arguments...), failed_(failed) {}

  void Finalize() override {
    Reporter::Finalize();
    failed_ = !this->GetOutputStream().flush().good();
  }

 private:
  bool& failed_;
};

std::unique_ptr<benchmark::BenchmarkReporter> make_reporter(const std::string& format,
                                                            bool& failed) {
  if (format == "console") {
    return std::make_unique<Checked<benchmark::ConsoleReporter>>(
        failed, benchmark::ConsoleReporter::OO_None);
  }
  if (format == "csv") {
#pragma GCC diagnostic push
// It says that it will go, and there is no other that writes CSV.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return std::make_unique<Checked<benchmark::CSVReporter>>(failed);
#pragma GCC diagnostic pop
  }
  return std::make_unique<Checked<benchmark::JSONReporter>>(failed);
}

}  // namespace

BenchmarkFile::BenchmarkFile(const std::vector<std::string>& flags)
    : path_(flag_value(flags, "benchmark_out")) {
  if (path_.empty()) return;
  const std::string format = flag_value(flags, "benchmark_out_format");
  reporter_ = make_reporter(format, failed_);
}

void BenchmarkFile::require_written() const {
  if (!failed_) return;
  throw Error("--benchmark_out could not be written to the end", "make room on its disk",
              {.file = path_});
}

}  // namespace stepscope::bench
