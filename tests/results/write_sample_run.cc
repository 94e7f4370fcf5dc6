// Writes a run folder whose names and figures are hard to read, for test_run_folder.py, which
// checks that Python reads what C++ wrote. Usage: write_sample_run DESTINATION
#include <cstdint>
#include <cstdio>

#include "core/error.h"
#include "core/program.h"
#include "results/provenance.h"
#include "results/run_folder.h"

namespace results = stepscope::results;

static int write_sample_run(const std::vector<std::string>& command) {
  if (command.size() != 2) throw stepscope::Error("give one destination");
  results::RunFolder folder =
      results::RunFolder::create(command[1], results::collect_provenance(command));
  folder.add_result(results::Row(results::results_table())
                        .set("benchmark", "BM<int, \"x\">\r\nsecond line")
                        .set("model", "gr\xc3\xb6\xc3\x9f\x65 \xff")
                        .set("local_numel", INT64_MAX)
                        .set("bytes_per_parameter", 2.03125)
                        .set("learning_rate", 1e-7)
                        .set("saving_vs_fp32_adamw", 0.1));
  folder.add_result(results::Row(results::results_table()).set("rank", -1));
  folder.add_sample(results::Row(results::samples_table()).set("step", 0).set("step_ns", 1));
  std::printf("%s\n", folder.finish().c_str());
  return stepscope::kFine;
}

int main(int argc, char** argv) {
  return stepscope::run_program("write_sample_run",
                                [&] { return write_sample_run({argv, argv + argc}); });
}
