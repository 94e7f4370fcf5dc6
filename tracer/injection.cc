#include "tracer/injection.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>

#include "core/error.h"
#include "core/parse.h"
#include "tracer/process_tracer.h"

namespace stepscope::tracer {
namespace {

void say(const char* text) {
  static_cast<void>(std::fprintf(stderr, "stepscope_tracer: %s\n", text));
}

const char* variable(const char* name, const char* otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr && *text != '\0' ? text : otherwise;
}

/// What was asked for; a forked child that comes to its end the usual way is not meant.
struct Asked {
  std::string out;
  pid_t process = 0;
};
Asked& asked() {
  static auto* const kept = new Asked;
  return *kept;
}

void write_at_exit() {
  if (getpid() != asked().process) return;
  try {
    ProcessTracer::instance().stop();
    ProcessTracer::instance().write(asked().out);
  } catch (const std::exception& error) {
    say(error.what());
  }
}

void start() {
  const char* const out = variable("STEPSCOPE_TRACE_OUT", nullptr);
  if (out == nullptr) {
    say("nothing is recorded: STEPSCOPE_TRACE_OUT names no file; set it, for example to "
        "rank%r.sqlite");
    return;
  }
  const char* const sources = variable("STEPSCOPE_TRACE_SOURCES", "auto");
  const std::int64_t mib = parse_int("STEPSCOPE_TRACE_BUFFER_MIB",
                                     variable("STEPSCOPE_TRACE_BUFFER_MIB", "64"), 1, 1 << 20);
  ProcessTracer::instance().start(sources, mib << 20);
  asked() = {.out = out, .process = getpid()};
  if (std::atexit(write_at_exit) != 0) throw Error("nothing can be done when this process exits");
}

}  // namespace

void start_from_environment() noexcept {
  static std::once_flag once;
  std::call_once(once, [] {
    try {
      start();
    } catch (const std::exception& error) {
      say(error.what());
    }
  });
}

}  // namespace stepscope::tracer
