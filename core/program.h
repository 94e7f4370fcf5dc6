#pragma once

/// Purpose: what every program shares: exit codes, version, and the one place that turns an
/// exception into one line on stderr.
///
/// Usage:
///     int main(int argc, char** argv) {
///       return stepscope::run_program("plan_state", [&] { return run(argc, argv); });
///     }
///
/// Caveats: stdout is for results only; messages go to stderr.

#include <functional>
#include <string>

namespace stepscope {

/// The meaning of exit codes, the same for every program. "Nothing was checked" is never `fine`.
enum ExitCode : int {
  kFine = 0,         ///< did what was asked, and it holds
  kCheckFailed = 1,  ///< ran, and the check failed (regression, broken contract, mismatch)
  kCouldNotRun = 2,  ///< could not run: usage, unreadable input, environment
};

/// "stepscope 0.1.0 (commit 0123abc, dirty)": what `--version` prints after the program's name.
std::string version_line();

/// The commit the build was made from, 40 hex digits, or "unknown" outside a git checkout.
std::string build_commit();

/// Whether tracked files differed from `build_commit()` when the build was made.
bool build_dirty();

/// "Release", "Debug", ...: the CMake build type.
std::string build_type();

/// Runs `body`, flushes stdout, and returns its exit code. An exception becomes one line
/// "<program>: <message>" on stderr and kCouldNotRun; a failed write to stdout does too.
int run_program(const std::string& program, const std::function<int()>& body);

}  // namespace stepscope
