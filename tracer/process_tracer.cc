#include "tracer/process_tracer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "tracer/chrome_writer.h"
#include "tracer/nsys_writer.h"
#include "tracer/output_name.h"
#include "tracer/torch_library.h"
#ifdef STEPSCOPE_WITH_CUPTI
#include "tracer/cupti_library.h"
#include "tracer/cupti_source.h"
#endif

namespace stepscope::tracer {
namespace {

/// The first of the variables that holds a whole number from 0 on.
std::optional<std::int64_t> from_environment(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    const char* const text = std::getenv(variable);
    if (text == nullptr) continue;
    const std::string_view digits = text;
    std::int64_t value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc() && end == digits.data() + digits.size() && value >= 0) return value;
  }
  return std::nullopt;
}

using Sources = std::vector<std::unique_ptr<CaptureSource>>;

struct NamedSource {
  std::string_view name;
  bool (*is_there)();  ///< in this process, for "auto"
  std::unique_ptr<CaptureSource> (*make)();
};
constexpr std::array kSources = {
    NamedSource{"torch", torch_is_loaded, load_torch_source},
#ifdef STEPSCOPE_WITH_CUPTI
    NamedSource{"cupti", cuda_is_loaded, [] { return make_cupti_source(load_cupti()); }},
#endif
};

Sources make_sources(std::string_view names) {
  Sources sources;
  if (names == "auto") {
    for (const NamedSource& source : kSources) {
      if (source.is_there()) sources.push_back(source.make());
    }
    return sources;
  }
  std::vector<std::string_view> taken;
  while (!names.empty()) {
    const std::size_t comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 1);
    const auto* const source =
        std::find_if(kSources.begin(), kSources.end(),
                     [&](const NamedSource& each) { return each.name == name; });
    if (source == kSources.end()) {
      std::string known;
      for (const NamedSource& each : kSources) known += std::string(each.name) + ", ";
      throw Error("there is no source " + printable(name) + " to record",
                  "take " + known + "auto, or an empty text for NVTX ranges alone");
    }
    if (std::find(taken.begin(), taken.end(), name) != taken.end()) {
      throw Error("source " + printable(name) + " is named twice", "name it once");
    }
    taken.push_back(name);
    sources.push_back(source->make());
  }
  return sources;
}

}  // namespace

ProcessTracer& ProcessTracer::instance() {
  static auto* const tracer = new ProcessTracer;
  return *tracer;
}

std::optional<std::int64_t> ProcessTracer::rank() const {
  return rank_ ? rank_ : from_environment({"RANK", "SLURM_PROCID"});
}

std::optional<std::int64_t> ProcessTracer::world_size() const {
  return world_size_ ? world_size_ : from_environment({"WORLD_SIZE", "SLURM_NTASKS"});
}

void ProcessTracer::set_rank(std::int64_t rank, std::int64_t world_size) {
  if (rank < 0 || rank >= world_size) {
    throw Error("rank " + std::to_string(rank) + " of " + std::to_string(world_size) +
                    " ranks does not exist",
                "ranks are counted from 0, and below the world size");
  }
  const std::scoped_lock lock(mutex_);
  rank_ = rank;
  world_size_ = world_size;
}

void ProcessTracer::start(std::string_view sources, std::int64_t host_buffer_bytes) {
  const std::scoped_lock lock(mutex_);
  if (capture_) throw Error("this process is being recorded already", "stop that first");
  if (host_buffer_bytes < 0) {
    throw Error("a buffer of " + std::to_string(host_buffer_bytes) + " bytes cannot be had",
                "give 0 for 64 MiB, or more");
  }
  CaptureOptions options;
  if (host_buffer_bytes > 0) {
    options.host_buffer_bytes = static_cast<std::size_t>(host_buffer_bytes);
  }
  auto capture = std::make_unique<Capture>(options, make_sources(sources));
  capture->start();
  capture_ = std::move(capture);
  trace_.reset();
}

void ProcessTracer::stop() {
  const std::scoped_lock lock(mutex_);
  if (!capture_) throw Error("this process is not being recorded", "start that first");
  trace_ = std::make_unique<Trace>(capture_->stop());
  capture_.reset();
}

void ProcessTracer::write(std::string_view pattern) {
  const std::scoped_lock lock(mutex_);
  if (!trace_) throw Error("there is no recording to write", "start and stop one first");
  Process& process = trace_->process(0);
  process.rank = rank();
  process.world_size = world_size();
  const std::filesystem::path path = output_name(pattern, process.pid, process.rank);
  if (path.extension() == ".sqlite") {
    write_nsys(*trace_, path);
  } else if (path.extension() == ".json") {
    write_chrome_json(*trace_, path);
  } else {
    throw Error(printable(path.string()) + " has a suffix that says no format",
                "name a .sqlite or a .json file");
  }
}

}  // namespace stepscope::tracer
