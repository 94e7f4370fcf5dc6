// planted_traces FOLDER VIOLATION: writes what two ranks on GPUs recorded, rank<r>.sqlite and
// rank<r>.json, three steps each with updates of n = 8192 and n = 5000. VIOLATION is planted in
// rank 1's second step; "none" plants nothing.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "core/error.h"
#include "core/program.h"
#include "tests/tracer/step_trace.h"
#include "tracer/chrome_writer.h"
#include "tracer/nsys_writer.h"

namespace {

using namespace stepscope::tracer;  // NOLINT(google-build-using-namespace)
using Plant = std::function<void(StepTrace&, std::uint32_t)>;

constexpr std::int64_t kRanks = 2;

const std::map<std::string, Plant>& plants() {
  static const std::map<std::string, Plant> all = {
      {"none", [](StepTrace&, std::uint32_t) {}},
      {"global-n", [](StepTrace& trace, std::uint32_t rank) { trace.update(rank, 16384); }},
      {"all-gather",
       [](StepTrace& trace, std::uint32_t rank) {
         trace.launch(rank, "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
       }},
      {"collective-a-parameter",
       [](StepTrace& trace, std::uint32_t rank) {
         for (int parameter = 0; parameter < 2; ++parameter) {
           trace.launch(rank, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)");
         }
       }},
      {"copy-to-host",
       [](StepTrace& trace, std::uint32_t rank) {
         trace.copy(rank, CopyDirection::device_to_host, 4);
       }},
      {"extra-launch", [](StepTrace& trace,
                          std::uint32_t rank) { trace.launch(rank, "void fill<float>(float*)"); }},
      {"dropped-record",
       [](StepTrace& trace, std::uint32_t rank) { trace.trace().process(rank).dropped = 3; }},
      {"kernel-without-launch",
       [](StepTrace& trace, std::uint32_t rank) {
         constexpr std::uint64_t kNoCall = 99'999;
         trace.trace().add(trace.kernel(rank, "void stray<float>(float*)", kNoCall));
         trace.count_launch(rank);
       }},
  };
  return all;
}

void write_rank(std::int64_t number, const Plant& plant, const std::filesystem::path& folder) {
  StepTrace builder;
  const auto rank = builder.gpu_rank(number, kRanks);
  for (int step = 0; step < 3; ++step) {
    builder.begin_step(rank);
    for (const std::int64_t n : {8192, 5000}) builder.update(rank, n);
    if (number == 1 && step == 1) plant(builder, rank);
    builder.end_step(rank);
  }
  const Trace& trace = builder.finish();
  const std::string name = "rank" + std::to_string(number);
  write_nsys(trace, folder / (name + ".sqlite"));
  write_chrome_json(trace, folder / (name + ".json"));
}

}  // namespace

int main(int argc, char** argv) {
  return stepscope::run_program("planted_traces", [&] {
    if (argc != 3 || !plants().contains(argv[2])) {
      throw stepscope::Error("usage: planted_traces FOLDER VIOLATION");
    }
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
      write_rank(rank, plants().at(argv[2]), argv[1]);
    }
    return stepscope::kFine;
  });
}
