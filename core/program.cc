#include "core/program.h"

#include <csignal>
#include <cstdio>
#include <exception>

#include "core/error.h"
#include "stepscope_build_info.h"  // made by cmake/BuildInfo.cmake

namespace stepscope {

std::string build_commit() { return STEPSCOPE_COMMIT; }
bool build_dirty() { return STEPSCOPE_DIRTY != 0; }
std::string build_type() { return STEPSCOPE_BUILD_TYPE; }

std::string version_line() {
  return std::string("stepscope ") + STEPSCOPE_VERSION + " (commit " +
         build_commit().substr(0, 12) + (build_dirty() ? ", dirty" : "") + ", " + build_type() +
         ")";
}

int run_program(const std::string& program, const std::function<int()>& body) {
  // A closed pipe or a file-size limit is an error that a write reports, not a silent end.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  int code = kCouldNotRun;
  std::string message;
  try {
    code = body();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw Error("writing to standard output failed", "check the disk or the pipe it goes to");
    }
    return code;
  } catch (const Error& error) {
    message = error.what();
  } catch (const std::exception& error) {
    // Foreign exceptions may hold several lines; Error folds them into one.
    message = Error(error.what()).what();
  }
  std::fprintf(stderr, "%s: %s\n", program.c_str(), message.c_str());
  return kCouldNotRun;
}

}  // namespace stepscope
