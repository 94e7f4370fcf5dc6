#include "results/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "core/error.h"
#include "results/csv.h"
#include "results/provenance.h"

namespace stepscope::results {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIncompleteSuffix = ".incomplete";
constexpr std::array kOwnKeys = {"schema_version", "status", "writer", "rows", "finished_utc"};

bool is_own_key(std::string_view key) {
  return std::find(kOwnKeys.begin(), kOwnKeys.end(), key) != kOwnKeys.end();
}

/// The absolute destination, free of links and trailing slashes. Throws Error unless a finished
/// folder can be renamed to it.
fs::path check_destination(const fs::path& destination) {
  fs::path path = fs::weakly_canonical(fs::absolute(destination));
  if (!path.has_filename()) path = path.parent_path();
  const auto refuse = [&path](const char* what, const char* advice) {
    throw Error(what, advice, {.file = path.string()});
  };
  if (path.filename().string().ends_with(kIncompleteSuffix)) {
    refuse("a run folder's name may not end in .incomplete", "choose another name");
  }
  const fs::file_status status = fs::symlink_status(path);
  if (!fs::exists(status)) return path;
  if (!fs::is_directory(status)) {
    refuse("exists and is not a directory", "choose another name for the run folder");
  }
  if (!fs::is_empty(path)) {
    refuse("exists and is not empty", "choose another name for the run folder");
  }
  struct stat self = {};
  struct stat parent = {};
  if (::stat(path.c_str(), &self) == 0 && ::stat(path.parent_path().c_str(), &parent) == 0 &&
      self.st_dev != parent.st_dev) {
    refuse("is a mount point, which a finished run cannot replace", "choose a folder inside it");
  }
  return path;
}

/// Who left `working_path` behind, as far as its manifest tells.
[[noreturn]] void refuse_leftover(const fs::path& working_path) {
  std::ifstream in(working_path / "manifest.json");
  const nlohmann::json manifest = nlohmann::json::parse(in, nullptr, false);
  std::string host;
  std::int64_t pid = 0;
  try {
    host = manifest.at("writer").at("host").get<std::string>();
    pid = manifest.at("writer").at("pid").get<std::int64_t>();
  } catch (const nlohmann::json::exception&) {
    // Not written yet, or damaged: the writer stays unknown.
  }
  const std::string writer = pid > 0 ? fmt::format(" (process {} on {})", pid, host) : "";
  const bool here = pid > 0 && host == host_name();
  const bool alive = here && (::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM);
  const Where where{.file = working_path.string()};
  if (alive) {
    throw Error("another run is writing to the same destination" + writer,
                "choose another name for the run folder, or wait for that run to end", where);
  }
  if (here) {
    throw Error("a run that was killed" + writer + " left its partial results here",
                "remove this folder, or choose another name for the run folder", where);
  }
  throw Error("another run" + writer + " is writing here, or was killed while it did",
              "remove this folder if that run is gone, or choose another name for the run folder",
              where);
}

fs::path make_working_path(const fs::path& destination) {
  fs::path working_path = destination;
  working_path += kIncompleteSuffix;
  std::error_code failed;
  fs::create_directories(destination.parent_path(), failed);
  if (failed) {
    detail::fail_with_errno("cannot be created", destination.parent_path(), failed.value());
  }
  // mkdir is the lock: of two runs with one destination, one gets the folder.
  if (::mkdir(working_path.c_str(), 0755) != 0) {
    if (errno == EEXIST) refuse_leftover(working_path);
    detail::fail_with_errno("cannot be created", working_path, errno);
  }
  return working_path;
}

std::string header(const Table& table) {
  std::vector<std::string> names;
  for (const Column& column : table.columns) names.push_back(column.name);
  return csv_record(names);
}

void check_table(const Row& row, const Table& table) {
  if (&row.table() != &table) {
    throw Error("a row of table " + row.table().name + " was added to " + table.file);
  }
}

}  // namespace

RunFolder RunFolder::create(const fs::path& destination, nlohmann::json manifest) {
  if (!manifest.is_object()) throw Error("the manifest of a run folder must be a JSON object");
  try {
    fs::path checked = check_destination(destination);
    const fs::path working_path = make_working_path(checked);
    try {
      return RunFolder(std::move(checked), working_path, std::move(manifest));
    } catch (...) {
      // Nothing was measured yet, so nothing is lost, and the next try finds its way free.
      std::error_code ignored;
      fs::remove_all(working_path, ignored);
      throw;
    }
  } catch (const fs::filesystem_error& error) {
    detail::fail_with_errno("cannot be used as a run folder", destination, error.code().value());
  }
}

RunFolder::RunFolder(fs::path destination, fs::path working_path, nlohmann::json manifest)
    : destination_(std::move(destination)),
      working_path_(std::move(working_path)),
      manifest_(std::move(manifest)),
      results_(working_path_ / results_table().file),
      samples_(working_path_ / samples_table().file) {
  manifest_["schema_version"] = schema_version();
  manifest_["status"] = "incomplete";
  manifest_["writer"] = {{"host", host_name()}, {"pid", ::getpid()}};
  write_manifest();
  results_.append(header(results_table()));
  samples_.append(header(samples_table()));
}

void RunFolder::add_result(const Row& row) {
  check_table(row, results_table());
  results_.append(csv_record(row.values()));
  ++result_rows_;
}

void RunFolder::add_sample(const Row& row) {
  check_table(row, samples_table());
  samples_.append(csv_record(row.values()));
  ++sample_rows_;
}

void RunFolder::set(const std::string& key, nlohmann::json value) {
  if (is_own_key(key))
    throw Error("the manifest's key " + key + " is set by the run folder itself");
  manifest_[key] = std::move(value);
  write_manifest();
}

fs::path RunFolder::finish() {
  if (finished_) throw Error("is finished already", {}, {.file = destination_.string()});
  results_.sync_and_close();
  samples_.sync_and_close();
  manifest_["rows"] = {{"results", result_rows_}, {"samples", sample_rows_}};
  manifest_["finished_utc"] = utc_text(std::chrono::system_clock::now());
  manifest_["status"] = "complete";
  write_manifest();
  try {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(working_path_)) {
      const fs::file_status status = entry.symlink_status();
      if (fs::is_regular_file(status) || fs::is_directory(status)) detail::sync_path(entry.path());
    }
  } catch (const fs::filesystem_error& error) {
    detail::fail_with_errno("cannot be read", error.path1(), error.code().value());
  }
  detail::sync_path(working_path_);
  if (std::rename(working_path_.c_str(), destination_.c_str()) != 0) {
    const int error_number = errno;
    throw Error("the finished run cannot be renamed to " + destination_.string() + ": " +
                    std::generic_category().message(error_number),
                "its results are whole; rename this folder yourself",
                {.file = working_path_.string()});
  }
  finished_ = true;
  detail::sync_path(destination_.parent_path());
  return destination_;
}

void RunFolder::write_manifest() const {
  // A reader must never see half a manifest: write beside it, then rename.
  const fs::path path = working_path_ / "manifest.json";
  fs::path fresh = path;
  fresh += ".new";
  {
    std::error_code ignored;  // left by a write that failed
    fs::remove(fresh, ignored);
    detail::OutputFile file(fresh);
    file.append(manifest_.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    file.sync_and_close();
  }
  if (std::rename(fresh.c_str(), path.c_str()) != 0) {
    detail::fail_with_errno("cannot be written", path, errno);
  }
}

std::string default_run_name(std::chrono::system_clock::time_point utc_time,
                             std::string_view commit, bool dirty) {
  return fmt::format("{:%Y%m%dT%H%M%SZ}-{}{}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(utc_time)),
                     commit.substr(0, 12), dirty ? "-dirty" : "");
}

}  // namespace stepscope::results
