#pragma once

/// Purpose: the folder that a run leaves behind: manifest.json, results.csv, samples.csv, and what
/// the caller adds to it (traces, contracts.json).
///
/// Usage:
///     RunFolder folder = RunFolder::create("runs/" + default_run_name(now, build_commit(),
///                                          build_dirty()), collect_provenance(command));
///     folder.add_result(row);
///     std::cout << folder.finish() << '\n';
///
/// Caveats: everything is written to a sibling folder, "<destination>.incomplete", whose manifest
/// says "incomplete"; only `finish` gives it its name. A run that was killed leaves that sibling
/// with the rows written until then: readers refuse it, and so does the next run with the same
/// destination, since only the user can say whether the rows are still wanted. One rank writes a
/// folder; not for use from several threads. Folders get mode 0755 and files 0644, under the umask.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "results/detail/output_file.h"
#include "results/row.h"

namespace stepscope::results {

class RunFolder {
 public:
  /// Starts a run folder. `manifest` is an object, as collect_provenance returns it. Missing parent
  /// folders are made. Throws Error when the destination exists and is not an empty directory, is a
  /// mount point, or ends in ".incomplete"; when another run is writing to it or was killed while
  /// it did (the message says which); and when nothing can be written there.
  static RunFolder create(const std::filesystem::path& destination, nlohmann::json manifest);

  /// Appends a row of results_table() or samples_table(). It is in the file when the call returns.
  /// Throws Error when the row is of another table or cannot be written, such as on a full disk.
  void add_result(const Row& row);
  void add_sample(const Row& row);

  /// Sets a value of the manifest and writes the manifest anew. Throws Error for the keys that this
  /// class sets itself: schema_version, status, writer, rows, finished_utc.
  void set(const std::string& key, nlohmann::json value);

  /// Marks the run complete, forces all files to the disk, renames the folder to the destination
  /// and returns that path, absolute. Nothing may be added afterwards. Throws Error when an earlier
  /// row could not be written, or when the destination has been taken meanwhile.
  std::filesystem::path finish();

  /// Where the files are until `finish`: "<destination>.incomplete", absolute.
  const std::filesystem::path& working_path() const noexcept { return working_path_; }

 private:
  RunFolder(std::filesystem::path destination, std::filesystem::path working_path,
            nlohmann::json manifest);
  void write_manifest() const;

  std::filesystem::path destination_;
  std::filesystem::path working_path_;
  nlohmann::json manifest_;
  detail::OutputFile results_;
  detail::OutputFile samples_;
  std::int64_t result_rows_ = 0;
  std::int64_t sample_rows_ = 0;
  bool finished_ = false;
};

/// "20261201T171500Z-0123abcd4567", with "-dirty" behind it when `dirty`: the time a run started
/// and the first 12 digits of the commit it was built from.
std::string default_run_name(std::chrono::system_clock::time_point utc_time,
                             std::string_view commit, bool dirty);

}  // namespace stepscope::results
