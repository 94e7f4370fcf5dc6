#pragma once

/// Purpose: parsing a command line the same way in every program: --help and --version go to stdout
/// and end it well, and what cannot be parsed, or is empty, is one line that names the help.
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
#include <cstddef>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/program.h"

namespace stepscope {

/// Throws Error if a word is empty, or has nothing behind the = of one of the app's options. No
/// program has a use for either; a shell makes them of a variable that is not set, and as a path
/// an empty word would mean a folder that nobody named.
inline void refuse_empty_words(const CLI::App& app, const std::vector<std::string>& words) {
  const auto refuse = [&](const std::string& what) {
    throw Error(what + " is empty",
                "a variable of the command may not be set; see " + app.get_name() + " --help");
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.empty()) {
      const bool of_option = i > 0 && words[i - 1].rfind("--", 0) == 0 && words[i - 1] != "--";
      refuse(of_option ? words[i - 1] : "argument " + std::to_string(i + 1));
    }
    if (word.back() != '=') continue;
    const std::string name = word.substr(0, word.size() - 1);
    if (app.get_option_no_throw(name) != nullptr) refuse(name);
  }
}

/// `words` are those after the program's name. Returns whether there is something to run. Throws
/// Error for a bad option or value, and for one that is empty.
inline bool parse_command_line(CLI::App& app, std::vector<std::string> words) {
  refuse_empty_words(app, words);
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
