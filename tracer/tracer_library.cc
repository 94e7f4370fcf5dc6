#include "tracer/tracer_library.h"

#include <exception>
#include <string>

#include "core/error.h"
#include "core/program.h"
#include "tracer/process_tracer.h"

namespace {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

/// Runs `body`, and keeps why it failed: no exception may leave a C function.
template <typename Body>
int report(const Body& body) noexcept {
  try {
    last_error().clear();
    body();
    return 0;
  } catch (const std::exception& error) {
    last_error() = error.what();
    return 1;
  }
}

}  // namespace

using stepscope::tracer::ProcessTracer;

const char* stepscope_tracer_version() {
  static const std::string line = stepscope::version_line();
  return line.c_str();
}

int stepscope_tracer_set_rank(int64_t rank, int64_t world_size) {
  return report([&] { ProcessTracer::instance().set_rank(rank, world_size); });
}

int stepscope_tracer_start(const char* sources, int64_t host_buffer_bytes) {
  return report([&] {
    ProcessTracer::instance().start(sources == nullptr ? "auto" : sources, host_buffer_bytes);
  });
}

int stepscope_tracer_stop() {
  return report([] { ProcessTracer::instance().stop(); });
}

int stepscope_tracer_write(const char* path) {
  return report([&] {
    if (path == nullptr)
      throw stepscope::Error("no path was given", "name a .sqlite or .json file");
    ProcessTracer::instance().write(path);
  });
}

const char* stepscope_tracer_error() { return last_error().c_str(); }
