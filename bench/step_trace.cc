#include "bench/step_trace.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "tracer/contracts.h"
#include "tracer/nsys_writer.h"
#include "tracer/verdict_json.h"

namespace stepscope::bench {
namespace {

/// The folder for traces, as rank 0 has made it; empty where this rank's host has none.
std::filesystem::path trace_folder(const RecordedCase& recorded, const TraceRequest& request) {
  std::string path;
  topologies::together(recorded.communicator, [&] {
    if (request.run_folder == nullptr) return;
    path = (request.run_folder->working_path() / "traces").string();
    // Whatever the umask, nobody else may write what a run recorded.
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
      throw Error("cannot be created: " + std::generic_category().message(errno),
                  "check the folder, its permissions and its disk", {.file = path});
    }
  });
  path = recorded.communicator.all_gather_text(path).front();
  return std::filesystem::is_directory(path) ? path : "";
}

std::string file_name(const RecordedCase& recorded, const TraceRequest& request) {
  std::string name = recorded.benchmark;
  std::replace(name.begin(), name.end(), '/', '.');
  if (request.repetition > 0) name += ".repetition" + std::to_string(request.repetition);
  return name + ".rank" + std::to_string(recorded.communicator.rank()) + ".sqlite";
}

/// What every rank has where `refusal` keeps the steps from being recorded.
std::vector<RankContracts> unrecorded(const topologies::Communicator& communicator,
                                      const std::string& refusal) {
  std::vector<RankContracts> ranks;
  for (std::int64_t rank = 0; rank < communicator.world_size(); ++rank) {
    RankContracts contracts{.status = std::string(tracer::status_name(tracer::Status::unverified)),
                            .trace = "not recorded",
                            .verdicts = nlohmann::ordered_json::array(),
                            .unrecorded = refusal};
    for (const tracer::Contract contract : tracer::all_contracts()) {
      contracts.verdicts.push_back(tracer::verdict_json({.contract = contract,
                                                         .rank = rank,
                                                         .status = tracer::Status::unverified,
                                                         .reason = refusal}));
    }
    ranks.push_back(std::move(contracts));
  }
  return ranks;
}

}  // namespace

std::vector<RankContracts> trace_case(const RecordedCase& recorded, const TraceRequest& request) {
  auto& communicator = recorded.communicator;
  if (recorded.device_source) {
    const auto refusal =
        topologies::first_failure(communicator, [&] { require_recordable(recorded); });
    if (refusal) return unrecorded(communicator, refusal->what());
  }
  const std::int64_t rank = communicator.rank();
  const std::filesystem::path folder = trace_folder(recorded, request);
  const tracer::ExpectedPlan expected = expected_plan(recorded);
  const auto alone = communicator.split(rank);
  RankContracts mine;
  tracer::Trace trace;
  topologies::together(communicator,
                       [&] { trace = record_steps(recorded, request.steps, request.step); });
  topologies::together(communicator, [&] {
    request.release();
    const tracer::Trace plain = record_plain_step(recorded, *expected.rank(rank), *alone);
    const auto judgement = tracer::judge(trace, {.plan = &expected, .against = &plain});
    mine.status = tracer::status_name(tracer::worst(judgement.verdicts));
    std::ostringstream text;
    tracer::write_verdicts(text, judgement.verdicts);
    mine.verdicts = nlohmann::ordered_json::parse(text.str());
    if (folder.empty()) {
      mine.trace = "not written: the run folder is on another host";
    } else {
      const std::string file = file_name(recorded, request);
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
