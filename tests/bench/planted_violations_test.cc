// Real ranks over Gloo with the real optimizer, recorded and judged as optimizer_step does it: the
// step as it is keeps every contract, and each violation planted in it breaks exactly its own, with
// the event that did it.

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/recorded_steps.h"
#include "tests/topologies/forked_ranks.h"
#include "tracer/contracts.h"
#include "tracer/range.h"

namespace stepscope::bench {
namespace {

using topologies::Communicator;
using topologies::ShardPlan;
using topologies::StatePolicy;
using topologies::Topology;
using tracer::Contract;
using tracer::Status;
using tracer::Verdict;

topologies::Model model_of(const std::vector<topologies::Parameter>& parameters) {
  return {.name = "planted", .parameters = parameters};
}

topologies::Parameter embed() { return {.name = "embed", .shape = {6, 1000}}; }
topologies::Parameter head() { return {.name = "head", .shape = {5, 1000}}; }

/// One rank's part of a job that steps a model of two parameters, of which every rank owns some.
class Job {
 public:
  explicit Job(Communicator& communicator, StatePolicy policy = StatePolicy::global)
      : communicator_(communicator),
        alone_(communicator.split(communicator.rank())),
        runtime_(topologies::open_device(topologies::Device::cpu, 0)),
        model_(model_of({embed(), head()})),
        plan_(ShardPlan::make(model_, Topology::fsdp2, communicator.world_size())) {
    config_.state_policy = policy;
    optimizer_ = optimizer_of(model_, Topology::fsdp2);
  }

  std::unique_ptr<topologies::ShardedOptimizer> optimizer_of(const topologies::Model& model,
                                                             Topology topology) {
    const auto plan = ShardPlan::make(model, topology, communicator_.world_size());
    auto optimizer =
        topologies::make_sharded_optimizer(model, plan, config_, /*threads=*/1, communicator_);
    optimizer->restart();
    return optimizer;
  }

  void step() { optimizer_->step(); }
  Communicator& communicator() { return communicator_; }

  /// What the contracts say to one recorded step that does `work`.
  std::vector<Verdict> judged(const std::function<void()>& work, std::size_t buffer_bytes) {
    const RecordedCase recorded{.model = model_,
                                .plan = plan_,
                                .config = config_,
                                .communicator = communicator_,
                                .runtime = *runtime_,
                                .threads = 1,
                                .benchmark = "Planted",
                                .buffer_bytes = buffer_bytes};
    const auto expected = expected_plan(recorded);
    const auto trace = record_steps(recorded, 1, [&](std::int64_t) {
      const tracer::Range phase("phase optimizer");
      work();
    });
    const auto plain = record_plain_step(recorded, *expected.rank(communicator_.rank()), *alone_);
    return tracer::judge(trace, {.plan = &expected, .against = &plain}).verdicts;
  }

 private:
  Communicator& communicator_;
  std::unique_ptr<Communicator> alone_;
  std::unique_ptr<topologies::DeviceRuntime> runtime_;
  topologies::Model model_;
  topologies::StepConfig config_;
  ShardPlan plan_;
  std::unique_ptr<topologies::ShardedOptimizer> optimizer_;
};

struct Expected {
  std::set<Contract> broken;
  std::string offender;  ///< name of the first event that is shown; empty: none can be named
  std::string reason;    ///< what that of the first broken contract says
  StatePolicy policy = StatePolicy::global;
  std::size_t buffer_bytes = std::size_t{16} << 20;
};

std::string text(const Verdict& verdict) {
  return std::string(contract_name(verdict.contract)) + " " +
         std::string(status_name(verdict.status)) + ": " + verdict.reason;
}

/// Expects every contract to be ok on the step as it is, and on `planted` exactly those of
/// `expected` to be broken; on every one of two ranks.
void expect_broken(const Expected& expected, const std::function<void(Job&)>& planted) {
  const bool as_expected = topologies::on_ranks(2, [&](Communicator& communicator) {
    Job job(communicator, expected.policy);
    const auto clean = job.judged([&] { job.step(); }, expected.buffer_bytes);
    EXPECT_EQ(clean.size(), 6U);
    for (const Verdict& verdict : clean) EXPECT_EQ(verdict.status, Status::ok) << text(verdict);
    std::set<Contract> broken;
    for (const Verdict& verdict : job.judged([&] { planted(job); }, expected.buffer_bytes)) {
      if (verdict.status != Status::broken) continue;
      EXPECT_TRUE(!broken.empty() || verdict.reason.find(expected.reason) != std::string::npos)
          << text(verdict);
      broken.insert(verdict.contract);
      EXPECT_EQ(verdict.rank, communicator.rank());
      EXPECT_EQ(verdict.offenders.empty(), expected.offender.empty()) << text(verdict);
      for (const auto& offender : verdict.offenders) {
        EXPECT_EQ(offender.name, expected.offender) << text(verdict);
        EXPECT_EQ(offender.range, "model planted > case Planted > step 0 > phase optimizer");
        EXPECT_LE(offender.start_ns, offender.end_ns);
        EXPECT_NE(offender.thread, 0U);
      }
    }
    EXPECT_EQ(broken, expected.broken);
    return !testing::Test::HasFailure();
  });
  EXPECT_TRUE(as_expected);
}

TEST(PlantedViolation, OneMoreAllGatherIsSeen) {
  expect_broken({.broken = {Contract::no_all_gather, Contract::no_collectives},
                 .offender = "c10d::_allgather_base_",
                 .reason = "1 all-gather in the step"},
                [](Job& job) {
                  job.step();
                  const std::array<float, 8> mine{};
                  std::array<float, 16> all{};
                  job.communicator().all_gather_into(kernels::DType::fp32, mine.data(), 8,
                                                     all.data());
                });
}

TEST(PlantedViolation, TheGlobalTensorsInPlaceOfTheShardsAreSeen) {
  expect_broken({.broken = {Contract::local_n},
                 .offender = "stepscope::adamw8bit_step",
                 .reason = "n = 6000 is the whole of embed, of which this rank owns 3000"},
                [](Job& job) {
                  // ddp hands every rank the whole tensors, in one launch like the shards.
                  job.optimizer_of(model_of({embed(), head()}), Topology::ddp)->step();
                });
}

TEST(PlantedViolation, ACollectiveAParameterIsSeen) {
  expect_broken({.broken = {Contract::no_collectives},
                 .offender = "c10d::allreduce_",
                 .reason = "2 all-reduces in the step"},
                [](Job& job) {
                  for (int parameter = 0; parameter < 2; ++parameter) {
                    float norm = 1;
                    job.communicator().all_reduce(kernels::DType::fp32, topologies::Reduction::sum,
                                                  &norm, 1);
                  }
                  job.step();
                });
}

TEST(PlantedViolation, OneMoreExchangeThanDeclaredIsSeen) {
  expect_broken({.broken = {Contract::no_collectives},
                 .offender = "c10d::alltoall_base_",
                 .reason = "1 all-to-all in the step beside what is declared",
                 .policy = StatePolicy::original},
                [](Job& job) {
                  job.step();
                  const std::vector<std::int64_t> bytes = {4, 4};
                  const std::array<std::byte, 8> send{};
                  std::array<std::byte, 8> receive{};
                  job.communicator().all_to_all(send, bytes, receive, bytes);
                });
}

TEST(PlantedViolation, AStepThatDoesNothingIsSeen) {
  expect_broken(
      {.broken = {Contract::local_n, Contract::no_collectives, Contract::no_extra_launches},
       .offender = "",
       .reason = "nothing was stepped; the plan has local tensors",
       .policy = StatePolicy::original},
      [](Job& /*job*/) {});
}

TEST(PlantedViolation, ALaunchAParameterIsSeen) {
  expect_broken({.broken = {Contract::no_extra_launches},
                 .offender = "stepscope::adamw8bit_step",
                 .reason = "stepscope::adamw8bit_step 2 times, 1 on plain tensors"},
                [](Job& job) {
                  job.optimizer_of(model_of({embed()}), Topology::fsdp2)->step();
                  job.optimizer_of(model_of({head()}), Topology::fsdp2)->step();
                });
}

/// A tensor without memory stands for one on a GPU: like that it is not on the CPU.
TEST(PlantedViolation, ACopyToADeviceIsSeen) {
  expect_broken({.broken = {Contract::no_host_device_copies},
                 .offender = "aten::copy_",
                 .reason = "1 copy between host and device"},
                [](Job& job) {
                  job.step();
                  at::empty({4}, at::kMeta).copy_(at::ones({4}));
                });
}

TEST(PlantedViolation, ARecordThatFoundNoRoomIsSeen) {
  constexpr std::size_t kRoom = std::size_t{1} << 20;
  expect_broken({.broken = {Contract::complete_trace},
                 .offender = "",
                 .reason = "host records were dropped",
                 .buffer_bytes = kRoom},
                [](Job& job) {
                  job.step();
                  for (std::size_t i = 0; i < kRoom / 48; ++i) const tracer::Range range("small");
                });
}

}  // namespace
}  // namespace stepscope::bench
