// describe_run: what a run's manifest says of machine, build and job, and what a model consists of,
// as JSON. The programs in Python get from here what C++ defines once. See --help.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/command_line.h"
#include "core/error.h"
#include "core/program.h"
#include "results/provenance.h"
#include "results/run_folder.h"
#include "topologies/load_model.h"
#include "topologies/network_interface.h"
#include "topologies/rendezvous.h"

namespace stepscope::bench {
namespace {

constexpr const char* kFooter = R"(Examples:
  describe_run --model gpt2
  describe_run --rank
  describe_run --model my-model.safetensors -- topologies/pytorch/optimizer_step.py --model my-model.safetensors

Prints {"run_name": ..., "provenance": {...}, "model": {"name": ..., "skipped": [...], "parameters": [...]}}.
--rank prints who this process is in its job instead, by the rules of optimizer_step: {"rank": ..., "world_size": ...,
"local_rank": ..., "local_world_size": ..., "master_addr": ..., "master_port": ..., "launcher": ..., "interface": ...}.
"provenance" is what every manifest.json starts with; its command is what follows --.
Exit code: 0 fine, 2 could not run.)";

struct Options {
  std::string model = "gpt2";
  std::vector<std::string> command;
  bool rank = false;
  std::string device = "cpu";
};

std::optional<Options> parse(int argc, const char* const* argv) {
  Options options;
  CLI::App app("Describes a run: machine, build, job and model.", "describe_run");
  app.footer(kFooter);
  app.add_option("--model", options.model,
                 "preset, .json list or .safetensors file (default gpt2)");
  app.add_option("command", options.command, "the command to describe, after --");
  app.add_flag("--rank", options.rank, "who this process is in its job, and where the ranks meet");
  app.add_option("--device", options.device,
                 "with --rank: cpu, or cuda, whose ranks also need the interfaces that "
                 "NCCL_SOCKET_IFNAME names (default cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  if (!parse_command_line(app, argc, argv)) return std::nullopt;
  return options;
}

nlohmann::json describe(const topologies::Model& model) {
  nlohmann::json parameters = nlohmann::json::array();
  for (const auto& parameter : model.parameters) {
    parameters.push_back({{"name", parameter.name},
                          {"shape", parameter.shape},
                          {"dtype", kernels::dtype_name(parameter.dtype)},
                          {"requires_grad", parameter.requires_grad},
                          {"has_gradient", parameter.has_gradient},
                          {"tied_to", parameter.tied_to}});
  }
  return {{"name", model.name},
          {"numel", model.numel()},
          {"skipped", model.skipped},
          {"parameters", parameters}};
}

nlohmann::json describe(const topologies::Rendezvous& rank) {
  std::string interface;
  if (const char* given = std::getenv("GLOO_SOCKET_IFNAME");
      !topologies::gloo_interfaces(given).empty()) {
    interface = given;
  } else {
    interface = topologies::own_interface_towards(rank.master_addr);
  }
  return {{"rank", rank.rank},
          {"world_size", rank.world_size},
          {"local_rank", rank.local_rank},
          {"local_world_size", rank.local_world_size},
          {"master_addr", rank.master_addr},
          {"master_port", rank.master_port},
          {"launcher", rank.launcher},
          {"interface", interface}};
}

int run(int argc, char** argv) {
  const auto options = parse(argc, argv);
  if (!options) return kFine;
  if (options->rank) {
    const topologies::Rendezvous rank = topologies::rendezvous_from_environment();
    if (options->device == "cuda") {
      topologies::require_nccl_interface(std::getenv("NCCL_SOCKET_IFNAME"));
    }
    std::cout << describe(rank).dump() << '\n';
    return kFine;
  }
  const topologies::Model model = topologies::load_model(options->model);
  const nlohmann::json json = {
      {"run_name",
       results::default_run_name(std::chrono::system_clock::now(), build_commit(), build_dirty())},
      {"provenance", results::collect_provenance(options->command)},
      {"model", describe(model)}};
  std::cout << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  return kFine;
}

}  // namespace
}  // namespace stepscope::bench

int main(int argc, char** argv) {
  return stepscope::run_program("describe_run", [&] { return stepscope::bench::run(argc, argv); });
}
