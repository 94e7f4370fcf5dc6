#pragma once

/// Purpose: files for the tests of readers: the real ones of tests/data/traces, and small SQLite
/// files made of SQL.
///
/// Usage:  const auto file = real_trace("nsysai_healthy_1pct.sqlite");  read(file->path());

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/core/temp_file.h"
#include "tracer/trace_file.h"

namespace stepscope::tracer {

/// The bytes of tests/data/traces/<name>.gz, unpacked.
inline std::string real_trace_bytes(const std::string& name) {
  const std::string path = std::string(STEPSCOPE_TEST_DATA) + "/traces/" + name + ".gz";
  std::string bytes;
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    ADD_FAILURE() << "cannot open " << path;
    return bytes;
  }
  std::string piece(1 << 16, '\0');
  int count = 0;
  while ((count = gzread(file, piece.data(), static_cast<unsigned>(piece.size()))) > 0) {
    bytes.append(piece, 0, static_cast<std::size_t>(count));
  }
  EXPECT_EQ(count, 0) << path;
  gzclose(file);
  return bytes;
}

inline std::unique_ptr<TempFile> real_trace(const std::string& name) {
  return std::make_unique<TempFile>(name, real_trace_bytes(name));
}

/// Executes `sql` in the file at `path`.
inline void change_sqlite(const std::string& path, const std::string& sql) {
  sqlite3* connection = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &connection), SQLITE_OK);
  char* message = nullptr;
  EXPECT_EQ(sqlite3_exec(connection, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK)
      << (message == nullptr ? "" : message);
  sqlite3_free(message);
  EXPECT_EQ(sqlite3_close(connection), SQLITE_OK);
}

/// A file in which `sql` has been executed.
inline std::unique_ptr<TempFile> sqlite_of(const std::string& sql) {
  auto file = std::make_unique<TempFile>("made.sqlite", "");
  change_sqlite(file->path(), sql);
  return file;
}

/// A finished trace of one file.
inline Trace trace_of(const std::string& path, const ReadOptions& options = {},
                      ReadReport* report = nullptr) {
  Trace trace;
  ReadReport read = read_trace_file(path, trace, options);
  if (report != nullptr) *report = std::move(read);
  trace.finish();
  return trace;
}

struct Sum {
  std::int64_t events = 0;
  std::int64_t ns = 0;
  bool operator==(const Sum&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const Sum& sum) {
  return out << sum.events << " events, " << sum.ns << " ns";
}

/// How many events of a kind there are, and how long they take together.
inline Sum sum_of(const Trace& trace, EventKind kind) {
  Sum sum;
  for (const Event& event : trace.events()) {
    if (event.kind != kind) continue;
    ++sum.events;
    sum.ns += event.duration_ns();
  }
  return sum;
}

}  // namespace stepscope::tracer
