// The contracts of steps on a GPU as optimizer_step gets them, from the records of CUPTI to
// contracts.json: the ranks, the optimizer, the recording and the judging are real, and a scripted
// GPU launches this project's kernel wherever an update is reported, over the blocks of the tensors
// that it is handed.

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/contract_report.h"
#include "bench/step_trace.h"
#include "core/error.h"
#include "kernels/cuda/step_table.h"
#include "results/run_folder.h"
#include "tests/topologies/forked_ranks.h"
#include "tests/tracer/cupti_script.h"
#include "tracer/range.h"
#include "tracer/trace_file.h"
#include "tracer/verdict.h"

namespace stepscope::bench {
namespace {

using tracer::FakeCupti;

/// What launches kernels while it is recorded. One a process.
class ScriptedGpu {
 public:
  ScriptedGpu() : handle_(listen()) { current() = this; }
  ~ScriptedGpu() {
    at::removeCallback(handle_);
    current() = nullptr;
  }
  ScriptedGpu(const ScriptedGpu&) = delete;
  ScriptedGpu& operator=(const ScriptedGpu&) = delete;

  CUptiResult subscription = CUPTI_SUCCESS;  ///< what CUPTI answers to whoever asks for it
  std::int64_t extra_blocks = 0;             ///< that its kernel steps beside those of the tensors

  /// A source for one recording of it.
  std::unique_ptr<tracer::CaptureSource> source() {
    auto cupti = std::make_unique<FakeCupti>();
    cupti->fail_subscribe = subscription;
    return std::make_unique<Source>(*this, std::move(cupti));
  }

  /// Null unless it is being recorded.
  FakeCupti* recorded() const { return recorded_; }
  std::uint32_t next_correlation() { return ++correlations_; }

 private:
  /// The real source, which says when it records.
  class Source final : public tracer::CaptureSource {
   public:
    Source(ScriptedGpu& gpu, std::unique_ptr<FakeCupti> cupti)
        : gpu_(gpu), cupti_(cupti.get()), source_(tracer::make_cupti_source(std::move(cupti))) {}
    ~Source() override { Source::stop(); }
    std::string_view name() const override { return source_->name(); }
    void start() override {
      source_->start();
      gpu_.recorded_ = cupti_;
    }
    void stop() override {
      gpu_.recorded_ = nullptr;
      source_->stop();
    }
    void deliver(tracer::Trace& trace, std::uint32_t process) override {
      source_->deliver(trace, process);
    }

   private:
    ScriptedGpu& gpu_;
    FakeCupti* cupti_;
    std::unique_ptr<tracer::CaptureSource> source_;
  };

  static ScriptedGpu*& current() {
    static ScriptedGpu* gpu = nullptr;
    return gpu;
  }

  /// Callbacks end in the order in which they were added: before the recorder's, and so within the
  /// operator.
  static at::CallbackHandle listen() {
    return at::addGlobalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction&) { return std::unique_ptr<at::ObserverContext>(); },
            [](const at::RecordFunction& update, at::ObserverContext*) {
              if (std::string(update.name()).starts_with("stepscope::")) current()->step(update);
            })
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }

  void step(const at::RecordFunction& update) {
    if (recorded_ == nullptr) return;
    std::int64_t blocks = extra_blocks;
    std::int32_t tensors = 0;
    for (const c10::IValue& input : update.inputs()) {
      blocks += (input.toTensor().numel() + 255) / 256;
      ++tensors;
    }
    constexpr std::int64_t kMostThreadBlocks = 6;
    const std::int64_t grid = std::min(blocks, kMostThreadBlocks);
    kernels::cuda::StepArguments arguments{};
    arguments.blocks_per_thread_block = blocks / grid;
    arguments.extra_blocks = blocks % grid;
    arguments.tensor_count = tensors;
    std::array<void*, 1> parameters = {&arguments};
    cuLaunchKernel_params call{};
    call.gridDimX = static_cast<unsigned>(grid);
    call.kernelParams = parameters.data();
    const std::uint32_t correlation = next_correlation();
    recorded_->call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, kKernel, correlation, &call);
    CUpti_ActivityKernel10 record = tracer::kernel(*recorded_, correlation, static_cast<int>(grid));
    record.name = kKernel;
    recorded_->record(record);
  }

  static constexpr const char* kKernel = "stepscope_adamw_step";
  at::CallbackHandle handle_;
  FakeCupti* recorded_ = nullptr;
  std::uint32_t correlations_ = 0;
};

/// A folder that is removed with what it holds.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "device_trace.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Error("no temporary folder");
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// What a run leaves behind, as rank 0 finds it.
struct Left {
  std::vector<CaseContracts> cases;
  nlohmann::json contracts;                         ///< contracts.json
  std::map<std::string, std::set<std::string>> by;  ///< statuses of each contract
  std::vector<tracer::Trace> traces;                ///< those of traces/, by rank
};

Left left_in(const std::filesystem::path& folder, std::vector<CaseContracts> cases) {
  Left left{.cases = std::move(cases), .contracts = {}, .by = {}, .traces = {}};
  write_contracts(folder / "contracts.json", left.cases);
  left.contracts = nlohmann::json::parse(std::ifstream(folder / "contracts.json"));
  for (const auto& verdict : left.contracts["cases"][0]["verdicts"]) {
    left.by[verdict["contract"]].insert(verdict["status"].get<std::string>());
  }
  for (const auto& trace : left.contracts["cases"][0]["traces"]) {
    const std::filesystem::path path = folder / trace.get<std::string>();
    if (!std::filesystem::exists(path)) continue;
    tracer::read_trace_file(path, left.traces.emplace_back());
    left.traces.back().finish();
  }
  return left;
}

/// One rank's part of a job whose steps are recorded as optimizer_step does it.
class Job {
 public:
  explicit Job(topologies::Communicator& communicator)
      : communicator_(communicator),
        runtime_(topologies::open_device(topologies::Device::cpu, 0)),
        plan_(topologies::ShardPlan::make(model_, topologies::Topology::fsdp2,
                                          communicator.world_size())),
        optimizer_(topologies::make_sharded_optimizer(model_, plan_, config_, 1, communicator)) {
    optimizer_->restart();
  }

  ScriptedGpu& gpu() { return gpu_; }
  void step() { optimizer_->step(); }

  /// Two steps that do `work`; what rank 0 finds, on rank 0.
  Left traced(const std::function<void()>& work) {
    const Folder parent;
    std::unique_ptr<results::RunFolder> folder;
    if (communicator_.rank() == 0) {
      folder = std::make_unique<results::RunFolder>(
          results::RunFolder::create(parent.path() / "run", nlohmann::json::object()));
    }
    const RecordedCase recorded{.model = model_,
                                .plan = plan_,
                                .config = config_,
                                .communicator = communicator_,
                                .runtime = *runtime_,
                                .threads = 1,
                                .benchmark = "OptimizerStep/scripted",
                                .buffer_bytes = std::size_t{16} << 20,
                                .device_source = [this] { return gpu_.source(); }};
    CaseContracts contracts{.benchmark = recorded.benchmark};
    contracts.ranks = trace_case(recorded, {.steps = 2,
                                            .run_folder = folder.get(),
                                            .step =
                                                [&](std::int64_t) {
                                                  const tracer::Range phase("phase optimizer");
                                                  work();
                                                },
                                            .release = [] {}});
    Left left;
    if (folder) left = left_in(folder->working_path(), {contracts});
    communicator_.barrier();  // the folder stays until every rank has written
    return left;
  }

 private:
  topologies::Communicator& communicator_;
  ScriptedGpu gpu_;
  std::unique_ptr<topologies::DeviceRuntime> runtime_;
  topologies::Model model_{
      .name = "two",
      .parameters = {{.name = "embed", .shape = {6, 1000}}, {.name = "head", .shape = {5, 1000}}}};
  topologies::StepConfig config_;
  topologies::ShardPlan plan_;
  std::unique_ptr<topologies::ShardedOptimizer> optimizer_;
};

/// Runs `work` in every step of two ranks, and hands rank 0 what it left.
void on_a_scripted_gpu(const std::function<void(Job&)>& prepare,
                       const std::function<void(Job&)>& work,
                       const std::function<void(const Left&)>& check) {
  EXPECT_TRUE(topologies::on_ranks(2, [&](topologies::Communicator& communicator) {
    Job job(communicator);
    prepare(job);
    const Left left = job.traced([&] { work(job); });
    if (communicator.rank() == 0) check(left);
    return !testing::Test::HasFailure();
  }));
}

void nothing(Job& /*job*/) {}

using Statuses = std::map<std::string, std::set<std::string>>;
Statuses all_ok() {
  Statuses statuses;
  for (const tracer::Contract contract : tracer::all_contracts()) {
    statuses[std::string(tracer::contract_name(contract))] = {"ok"};
  }
  return statuses;
}

Statuses all_ok_but(const std::set<std::string>& broken) {
  Statuses statuses = all_ok();
  for (const std::string& name : broken) statuses[name] = {"broken"};
  return statuses;
}

/// The first verdict on `contract` that is not ok.
nlohmann::json first_against(const Left& left, const std::string& contract) {
  for (const auto& verdict : left.contracts["cases"][0]["verdicts"]) {
    if (verdict["contract"] == contract && verdict["status"] != "ok") return verdict;
  }
  return {};
}

TEST(DeviceTrace, AStepOverTheShardsKeepsEveryContractInTheRunFolder) {
  on_a_scripted_gpu(nothing, &Job::step, [](const Left& left) {
    EXPECT_EQ(left.by, all_ok()) << left.contracts.dump(1);
    EXPECT_FALSE(any_broken(left.cases));
    EXPECT_EQ(why_unrecorded(left.cases), "");
    for (const std::size_t rank : {0U, 1U}) EXPECT_EQ(left.cases.front().status(rank), "ok");
    ASSERT_EQ(left.traces.size(), 2U);
    for (const tracer::Trace& trace : left.traces) {
      const tracer::Process& process = trace.processes().front();
      EXPECT_EQ(process.source, "record-function+cupti");
      EXPECT_EQ(process.launched, 2);
      EXPECT_EQ(process.dropped, 0);
      EXPECT_EQ(std::count_if(trace.events().begin(), trace.events().end(),
                              [](const tracer::Event& event) {
                                return event.kind == tracer::EventKind::kernel;
                              }),
                2);
    }
  });
}

TEST(DeviceTrace, AKernelOverMoreThanTheShardsBreaksLocalN) {
  on_a_scripted_gpu([](Job& job) { job.gpu().extra_blocks = 24; }, &Job::step,
                    [](const Left& left) {
                      EXPECT_EQ(left.by, all_ok_but({"local-n"})) << left.contracts.dump(1);
                      EXPECT_TRUE(any_broken(left.cases));
                      const auto verdict = first_against(left, "local-n");
                      EXPECT_EQ(verdict["reason"], "48 blocks of 256 are stepped; the plan has 24");
                      EXPECT_EQ(verdict["events"][0]["name"], "stepscope_adamw_step");
                      EXPECT_EQ(verdict["events"][0]["range"],
                                "model two > case OptimizerStep/scripted > step 0 > "
                                "phase optimizer > stepscope::adamw8bit_step");
                    });
}

TEST(DeviceTrace, ACopyToTheHostBreaksItsContract) {
  on_a_scripted_gpu(
      nothing,
      [](Job& job) {
        job.step();
        tracer::copy(*job.gpu().recorded(), job.gpu().next_correlation(),
                     CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, 4);
      },
      [](const Left& left) {
        EXPECT_EQ(left.by, all_ok_but({"no-host-device-copies"})) << left.contracts.dump(1);
        EXPECT_EQ(first_against(left, "no-host-device-copies")["events"][0]["bytes"], 4);
      });
}

TEST(DeviceTrace, AnAllGatherOfNcclBreaksItsContracts) {
  on_a_scripted_gpu(
      nothing,
      [](Job& job) {
        job.step();
        tracer::other_kernel(*job.gpu().recorded(), job.gpu().next_correlation(),
                             "ncclDevKernel_AllGather_RING_LL");
      },
      [](const Left& left) {
        EXPECT_EQ(left.by, all_ok_but({"no-all-gather", "no-collectives", "no-extra-launches"}))
            << left.contracts.dump(1);
      });
}

TEST(DeviceTrace, AKernelThatCuptiLostBreaksCompleteTrace) {
  on_a_scripted_gpu(
      nothing,
      [](Job& job) {
        job.step();
        tracer::launch(*job.gpu().recorded(), job.gpu().next_correlation(), 256, 1);
      },
      [](const Left& left) {
        EXPECT_EQ(left.by.at("complete-trace"), std::set<std::string>{"broken"});
        EXPECT_FALSE(left.by.at("no-all-gather").contains("ok")) << "what was lost may be one";
      });
}

/// As beside another profiler, or without a driver.
TEST(DeviceTrace, WhereARankCannotRecordItsGpuEveryContractIsUnverifiedForThatReason) {
  on_a_scripted_gpu(
      [](Job& job) { job.gpu().subscription = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED; },
      [](Job& /*job*/) { FAIL() << "no step is taken that nobody records"; },
      [](const Left& left) {
        Statuses unverified = all_ok();
        for (auto& [name, statuses] : unverified) statuses = {"unverified"};
        EXPECT_EQ(left.by, unverified) << left.contracts.dump(1);
        EXPECT_EQ(left.contracts["cases"][0]["verdicts"].size(), 12U);
        EXPECT_EQ(left.contracts["cases"][0]["traces"],
                  (nlohmann::json{"not recorded", "not recorded"}));
        EXPECT_FALSE(any_broken(left.cases));
        const std::string why = why_unrecorded(left.cases);
        EXPECT_TRUE(
            why.starts_with("rank 0: GPU activities cannot be recorded: cuptiSubscribe "
                            "failed with error "))
            << why;
        EXPECT_EQ(why.find('\n'), std::string::npos);
        for (const auto& verdict : left.contracts["cases"][0]["verdicts"]) {
          EXPECT_EQ(verdict["reason"], why);
        }
        for (const std::size_t rank : {0U, 1U}) {
          EXPECT_EQ(left.cases.front().status(rank), "unverified");
        }
      });
}

TEST(DeviceTrace, OneRankThatCannotRecordKeepsNoOtherWaiting) {
  EXPECT_TRUE(topologies::on_ranks(2, [](topologies::Communicator& communicator) {
    Job job(communicator);
    if (communicator.rank() == 1) job.gpu().subscription = CUPTI_ERROR_NOT_INITIALIZED;
    const Left left = job.traced([&] { job.step(); });
    if (communicator.rank() == 0) {
      EXPECT_EQ(left.by.at("local-n"), std::set<std::string>{"unverified"});
      EXPECT_TRUE(why_unrecorded(left.cases).starts_with("rank 1: GPU activities"))
          << why_unrecorded(left.cases);
    }
    return !testing::Test::HasFailure();
  }));
}

/// The program's own source: the real libcupti where it is found, on a machine with or without a
/// driver.
TEST(DeviceTrace, TheProgramsSourceStartsOrSaysInOneLineWhyNot) {
  EXPECT_FALSE(device_source(topologies::Device::cpu));
  const DeviceSource make = device_source(topologies::Device::cuda);
  ASSERT_TRUE(make);
  try {
    const auto source = make();
    EXPECT_EQ(source->name(), "cupti");
    source->start();  // there is a GPU
    source->stop();
  } catch (const Error& error) {
    const std::string line = error.what();
    EXPECT_TRUE(line.starts_with("GPU activities cannot be recorded: ")) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    RecordProperty("refusal", line);
  }
}

}  // namespace
}  // namespace stepscope::bench
