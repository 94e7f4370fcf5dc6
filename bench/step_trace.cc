#include "bench/step_trace.h"

#include <filesystem>
#include <sstream>
#include <utility>

#include "bench/expected_steps.h"
#include "topologies/step_layout.h"
#include "tracer/capture.h"
#include "tracer/contracts.h"
#include "tracer/nsys_writer.h"
#include "tracer/range.h"
#include "tracer/record_function_source.h"
#include "tracer/verdict_json.h"

namespace stepscope::bench {
namespace {

using topologies::ShardedOptimizer;
using topologies::ShardPlan;

constexpr std::size_t kBufferBytes = std::size_t{16} << 20;

/// The trace of `steps` steps of `optimizer`; of empty ones where it is null.
tracer::Trace record(const StepSession& session, const std::string& benchmark, std::int64_t steps,
                     ShardedOptimizer* optimizer) {
  std::vector<std::unique_ptr<tracer::CaptureSource>> sources;
  sources.push_back(tracer::make_record_function_source());
  tracer::Capture capture({.rank = session.communicator.rank(),
                           .world_size = session.communicator.world_size(),
                           .host_buffer_bytes = kBufferBytes},
                          std::move(sources));
  capture.start();
  {
    const tracer::Range model("model " + session.model.name);
    const tracer::Range benchmark_case("case " + benchmark);
    for (std::int64_t i = 0; i < steps; ++i) {
      const tracer::Range step("step " + std::to_string(i));
      const tracer::Range phase("phase optimizer");
      if (optimizer != nullptr) optimizer->step();
      session.runtime.synchronize();
    }
  }
  return capture.stop();
}

/// Every tensor that the rank steps, whole and alone: no shards, no other ranks.
std::unique_ptr<ShardedOptimizer> plain_optimizer(const StepSession& session,
                                                  const StepCase& step_case,
                                                  const tracer::ExpectedRank& expected,
                                                  topologies::Communicator& alone) {
  topologies::Model model{.name = "plain local tensors", .parameters = {}};
  for (const tracer::ExpectedTensor& tensor : expected.tensors) {
    model.parameters.push_back({.name = "tensor" + std::to_string(model.parameters.size()),
                                .shape = {tensor.n},
                                .dtype = step_case.config.dtype});
  }
  if (model.parameters.empty()) return nullptr;
  topologies::StepConfig config = step_case.config;
  config.state_policy = topologies::StatePolicy::local;
  const auto plan = ShardPlan::make(model, topologies::Topology::single, 1);
  auto optimizer = topologies::make_sharded_optimizer(model, plan, config, session.threads, alone);
  optimizer->restart();
  return optimizer;
}

tracer::ExpectedPlan expected_plan(StepSession& session, const StepCase& step_case,
                                   const ShardPlan& plan) {
  const auto& config = step_case.config;
  const std::int64_t rank = session.communicator.rank();
  tracer::ExpectedPlan expected;
  expected.world_size = session.communicator.world_size();
  expected.ranks[rank] = expected_rank(session.model, plan, rank,
                                       {.optimizer = config.optimizer,
                                        .policy = config.state_policy,
                                        .min_8bit_size = config.min_8bit_size});
  const auto layout = topologies::step_layout(session.model, plan, rank, config.optimizer,
                                              config.state_policy, config.min_8bit_size);
  const auto cut = static_cast<std::int64_t>(layout.borders.blocks.size());
  // Where no border of any rank cuts a block, nothing is exchanged.
  if (topologies::max_over_ranks(session.communicator, cut) > 0) {
    expected.collectives.push_back(kBorderCollective);
  }
  return expected;
}

/// The folder for traces, as rank 0 has made it; empty where this rank's host has none.
std::filesystem::path trace_folder(StepSession& session) {
  std::string path;
  topologies::together(session.communicator, [&] {
    if (session.run_folder == nullptr) return;
    path = (session.run_folder->working_path() / "traces").string();
    std::filesystem::create_directory(path);
  });
  path = session.communicator.all_gather_text(path).front();
  return std::filesystem::is_directory(path) ? path : "";
}

}  // namespace

std::vector<RankContracts> trace_case(StepSession& session, const StepCase& step_case,
                                      const ShardPlan& plan,
                                      std::unique_ptr<ShardedOptimizer> optimizer,
                                      const std::string& name) {
  auto& communicator = session.communicator;
  const std::int64_t rank = communicator.rank();
  const std::string benchmark = step_case.benchmark_name(session.model.name);
  const std::filesystem::path folder = trace_folder(session);
  const tracer::ExpectedPlan expected = expected_plan(session, step_case, plan);
  const auto alone = communicator.split(rank);
  RankContracts mine;
  tracer::Trace trace;
  topologies::together(communicator, [&] {
    trace = record(session, benchmark, session.options.trace_steps, optimizer.get());
  });
  topologies::together(communicator, [&] {
    optimizer.reset();
    const auto on_plain = plain_optimizer(session, step_case, *expected.rank(rank), *alone);
    const tracer::Trace plain = record(session, benchmark, 1, on_plain.get());
    const auto judgement = tracer::judge(trace, {.plan = &expected, .against = &plain});
    mine.status = tracer::status_name(tracer::worst(judgement.verdicts));
    std::ostringstream text;
    tracer::write_verdicts(text, judgement.verdicts);
    mine.verdicts = nlohmann::ordered_json::parse(text.str());
    const std::string file = name + ".rank" + std::to_string(rank) + ".sqlite";
    if (folder.empty()) {
      mine.trace = "not written: the run folder is on another host";
    } else {
      tracer::write_nsys(trace, folder / file);
      mine.trace = "traces/" + file;
    }
  });
  const nlohmann::ordered_json message = {
      {"status", mine.status}, {"trace", mine.trace}, {"verdicts", mine.verdicts}};
  std::vector<RankContracts> ranks;
  for (const std::string& text : communicator.all_gather_text(tracer::one_line(message))) {
    const auto json = nlohmann::ordered_json::parse(text);
    ranks.push_back({.status = json["status"].get<std::string>(),
                     .trace = json["trace"].get<std::string>(),
                     .verdicts = json["verdicts"]});
  }
  return ranks;
}

}  // namespace stepscope::bench
