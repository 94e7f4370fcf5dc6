#pragma once

/// Purpose: the one error type of the project. It says what failed, where, and what to do about it.
///
/// Usage:
///     throw Error("the header is 12 bytes long, its length field says 4096",
///                 "download the file again", {.file = path});
///
/// Caveats: every program prints an Error as one line on stderr and exits with
/// ExitCode::could_not_run (see core/program.h), so neither part may hold a line break; line breaks
/// are replaced by blanks.

#include <cstdint>
#include <stdexcept>
#include <string>

namespace stepscope {

/// Where something failed. Fields that do not apply keep their defaults and are not printed.
struct Where {
  std::int64_t rank = -1;      ///< rank in the job, or -1
  std::string parameter = {};  ///< name of the model's parameter, or empty
  std::string file = {};       ///< path of the input, or empty
  std::int64_t line = 0;       ///< line in `file`, counted from 1, or 0
};

class Error : public std::runtime_error {
 public:
  /// `what_failed` is a clause without a full stop; `advice` says what the user can do (may be
  /// empty).
  explicit Error(std::string what_failed, std::string advice = {}, Where where = {});

  const std::string& what_failed() const noexcept { return what_failed_; }
  const std::string& advice() const noexcept { return advice_; }
  const Where& where() const noexcept { return where_; }

  /// The same error with a rank added, unless it already names one.
  Error with_rank(std::int64_t rank) const;

 private:
  std::string what_failed_;
  std::string advice_;
  Where where_;
};

}  // namespace stepscope
