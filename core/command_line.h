#pragma once

/// Purpose: parsing a command line the same way in every program: --help and --version go to stdout
/// and end it well, and what cannot be parsed is one line that names the help.
///
/// Usage:
///     CLI::App app("Does this.", "program_name");
///     app.add_option(...);
///     if (!parse_command_line(app, argc, argv)) return kFine;  // --help or --version was printed
///
/// Caveats: the app must have been given the program's name. Header only, so that core needs no
/// CLI11.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/program.h"

namespace stepscope {

/// `words` are those after the program's name. Returns whether there is something to run. Throws
/// Error for a bad option or value.
inline bool parse_command_line(CLI::App& app, std::vector<std::string> words) {
  app.set_version_flag("--version", app.get_name() + ", " + version_line(),
                       "print version and commit");
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(std::move(words));
  } catch (const CLI::Success& success) {
    app.exit(success);
    return false;
  } catch (const CLI::ParseError& error) {
    throw Error(error.what(), "see " + app.get_name() + " --help");
  }
  return true;
}

inline bool parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  return parse_command_line(app, std::vector<std::string>(argv + 1, argv + argc));
}

}  // namespace stepscope
