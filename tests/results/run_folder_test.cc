#include "results/run_folder.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <set>

#include "core/error.h"
#include "results/csv.h"
#include "results/percentile.h"
#include "tests/results/scratch.h"

namespace stepscope::results {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

nlohmann::json read_json(const fs::path& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

Row result_row(const std::string& benchmark, int rank) {
  Row row(results_table());
  row.set("benchmark", benchmark).set("rank", rank).set("status", "ok").set("p50_ns", 1234);
  return row;
}

Row sample_row(int step) {
  Row row(samples_table());
  row.set("benchmark", "BM, \"x\"").set("step", step).set("step_ns", 1000 + step);
  return row;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// A process that runs `body` and sends back what it returns.
class Child {
 public:
  explicit Child(const std::function<std::string()>& body) {
    std::array<int, 2> ends = {};
    if (::pipe(ends.data()) != 0) throw std::system_error(errno, std::generic_category());
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      out_ = ends[1];
      try {
        send(body());
      } catch (const std::exception& error) {
        send(std::string("escaped: ") + error.what());
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    in_ = ends[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    kill();
    ::close(in_);
  }

  /// What arrives until the child closes its end or `until` arrives; at most 20 seconds.
  std::string receive(const std::string& until = "\n") {
    std::string text;
    std::array<char, 4096> buffer = {};
    while (!text.ends_with(until)) {
      pollfd poll = {.fd = in_, .events = POLLIN, .revents = 0};
      if (::poll(&poll, 1, 20'000) <= 0) return text + " (timed out)";
      const ssize_t got = ::read(in_, buffer.data(), buffer.size());
      if (got <= 0) break;
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    if (text.ends_with('\n')) text.pop_back();
    return text;
  }

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  /// Inside the child: sends a line.
  static void send(std::string text) {
    text += '\n';
    [[maybe_unused]] const ssize_t ignored = ::write(out_, text.data(), text.size());
  }

 private:
  static inline int out_ = -1;
  pid_t pid_ = 0;
  int in_ = -1;
};

class RunFolderTest : public ::testing::Test {
 protected:
  fs::path destination() const { return scratch_.path() / "runs" / "one"; }
  fs::path incomplete() const { return scratch_.path() / "runs" / "one.incomplete"; }
  std::string create_error(const fs::path& path) const {
    return error_of([&] { RunFolder::create(path, nlohmann::json::object()); });
  }

  Scratch scratch_;
};

TEST_F(RunFolderTest, AFinishedRunHasItsNameAndItsRows) {
  RunFolder folder = RunFolder::create(destination(), {{"commit", "abc"}});
  folder.add_result(result_row("a", 0));
  folder.add_result(result_row("a", 1));
  for (int step = 0; step < 3; ++step) folder.add_sample(sample_row(step));
  folder.set("pytorch", "2.13.0");
  EXPECT_FALSE(fs::exists(destination()));
  EXPECT_EQ(folder.finish(), destination());
  EXPECT_FALSE(fs::exists(incomplete()));

  const nlohmann::json manifest = read_json(destination() / "manifest.json");
  EXPECT_EQ(manifest.at("status"), "complete");
  EXPECT_EQ(manifest.at("schema_version"), 1);
  EXPECT_EQ(manifest.at("commit"), "abc");
  EXPECT_EQ(manifest.at("pytorch"), "2.13.0");
  EXPECT_EQ(manifest.at("rows"), (nlohmann::json{{"results", 2}, {"samples", 3}}));
  const CsvTable results = read_csv(destination() / "results.csv");
  ASSERT_EQ(results.header.size(), results_table().columns.size());
  ASSERT_EQ(results.rows.size(), 2u);
  EXPECT_EQ(results.integer(results.rows[1], results.column("rank")), 1);
  EXPECT_EQ(results.integer(results.rows[1], results.column("p90_ns")), std::nullopt);
  const CsvTable samples = read_csv(destination() / "samples.csv");
  ASSERT_EQ(samples.rows.size(), 3u);
  EXPECT_EQ(samples.rows[2].fields[samples.column("benchmark")], "BM, \"x\"");
}

TEST_F(RunFolderTest, RowsCanBeReadWhileTheRunGoesOn) {
  RunFolder folder = RunFolder::create(destination(), nlohmann::json::object());
  EXPECT_EQ(folder.working_path(), incomplete());
  folder.add_sample(sample_row(0));
  EXPECT_EQ(read_csv(incomplete() / "samples.csv").rows.size(), 1u);
  EXPECT_EQ(read_json(incomplete() / "manifest.json").at("status"), "incomplete");
}

TEST_F(RunFolderTest, FilesOfTheCallerMoveAlong) {
  RunFolder folder = RunFolder::create(destination(), nlohmann::json::object());
  fs::create_directory(folder.working_path() / "traces");
  std::ofstream(folder.working_path() / "traces" / "rank0.json") << "{}";
  folder.finish();
  EXPECT_TRUE(fs::exists(destination() / "traces" / "rank0.json"));
}

TEST_F(RunFolderTest, WithoutFinishNothingLooksComplete) {
  {
    RunFolder folder = RunFolder::create(destination(), nlohmann::json::object());
    folder.add_result(result_row("a", 0));
  }
  EXPECT_FALSE(fs::exists(destination()));
  EXPECT_EQ(read_json(incomplete() / "manifest.json").at("status"), "incomplete");
}

TEST_F(RunFolderTest, AKilledRunLeavesItsRowsAndNoCompleteFolder) {
  Child child([&]() -> std::string {
    RunFolder folder = RunFolder::create(destination(), nlohmann::json::object());
    folder.add_result(result_row("a", 0));
    for (int step = 0; step < 50; ++step) folder.add_sample(sample_row(step));
    Child::send("half way");
    while (true) ::pause();
  });
  ASSERT_EQ(child.receive(), "half way");
  EXPECT_THAT(create_error(destination()), HasSubstr("another run is writing to the same"));
  child.kill();

  EXPECT_FALSE(fs::exists(destination()));
  EXPECT_EQ(read_json(incomplete() / "manifest.json").at("status"), "incomplete");
  EXPECT_EQ(read_csv(incomplete() / "results.csv").rows.size(), 1u);
  EXPECT_EQ(read_csv(incomplete() / "samples.csv").rows.size(), 50u);
  const std::string message = create_error(destination());
  EXPECT_THAT(message, HasSubstr(incomplete().string()));
  EXPECT_THAT(message, HasSubstr("a run that was killed"));
  EXPECT_THAT(message, HasSubstr("remove this folder"));
  EXPECT_EQ(read_csv(incomplete() / "samples.csv").rows.size(), 50u)
      << "nothing is removed unasked";
}

TEST_F(RunFolderTest, ALeftoverWhoseWriterIsUnknownIsRefused) {
  fs::create_directories(incomplete());
  EXPECT_THAT(create_error(destination()), HasSubstr("is writing here, or was killed"));
  std::ofstream(incomplete() / "manifest.json") << R"({"writer": {"host": 7, "pid": "x"}})";
  EXPECT_THAT(create_error(destination()), HasSubstr("is writing here, or was killed"));
  std::ofstream(incomplete() / "manifest.json") << R"({"writer": {"host": "elsewhere", "pid": 1}})";
  EXPECT_THAT(create_error(destination()), HasSubstr("(process 1 on elsewhere)"));
}

TEST_F(RunFolderTest, OfManyRunsWithOneDestinationOneWins) {
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(std::make_unique<Child>([&]() -> std::string {
      try {
        RunFolder folder = RunFolder::create(destination(), nlohmann::json::object());
        Child::send("won");
        while (true) ::pause();
      } catch (const Error& error) {
        return error.what();
      }
    }));
  }
  int won = 0;
  for (const auto& child : children) {
    const std::string text = child->receive();
    if (text == "won") {
      ++won;
    } else {
      EXPECT_THAT(text, HasSubstr("another run"));
    }
  }
  EXPECT_EQ(won, 1);
}

TEST_F(RunFolderTest, AnEmptyDestinationIsTakenAndAFullOneRefused) {
  fs::create_directories(destination());
  RunFolder::create(destination() / "", nlohmann::json::object()).finish();
  EXPECT_TRUE(fs::exists(destination() / "manifest.json"));
  EXPECT_THAT(create_error(destination()), HasSubstr("exists and is not empty"));
  const fs::path file = scratch_.path() / "file";
  std::ofstream(file) << "x";
  EXPECT_THAT(create_error(file), HasSubstr("is not a directory"));
  EXPECT_THAT(create_error(file / "run"), HasSubstr("Not a directory"));
  EXPECT_THAT(create_error(scratch_.path() / "x.incomplete"), HasSubstr("choose another name"));
}

TEST_F(RunFolderTest, LinksAndRelativePathsLeadToTheRealFolder) {
  fs::create_directories(scratch_.path() / "real");
  fs::create_directory_symlink(scratch_.path() / "real", scratch_.path() / "link");
  EXPECT_EQ(RunFolder::create(scratch_.path() / "link" / "run", nlohmann::json::object()).finish(),
            scratch_.path() / "real" / "run");
  fs::create_symlink(scratch_.path() / "nowhere", scratch_.path() / "dangling");
  EXPECT_THAT(create_error(scratch_.path() / "dangling"), HasSubstr("dangling"));
  const fs::path before = fs::current_path();
  fs::current_path(scratch_.path());
  RunFolder folder = RunFolder::create("relative", nlohmann::json::object());
  fs::current_path(before);
  EXPECT_EQ(folder.finish(), scratch_.path() / "relative");
}

TEST_F(RunFolderTest, AParentThatMayNotBeWrittenIsNamed) {
  const fs::path parent = scratch_.path() / "locked";
  fs::create_directory(parent);
  fs::permissions(parent, fs::perms(0555));
  Child child([&]() -> std::string {
    // Root may write anywhere; nobody may not.
    if (::geteuid() == 0 &&
        (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0)) {
      return "cannot give up root's rights";
    }
    return create_error(parent / "run") + " & " + create_error(parent / "deep" / "run");
  });
  EXPECT_EQ(child.receive(), (parent / "run.incomplete").string() +
                                 ": cannot be created: Permission denied; choose a folder that you "
                                 "may write to & " +
                                 (parent / "deep").string() +
                                 ": cannot be created: Permission denied; choose a folder that you "
                                 "may write to");
}

TEST_F(RunFolderTest, TheUmaskHolds) {
  const mode_t before = ::umask(0);
  RunFolder::create(destination(), nlohmann::json::object()).finish();
  ::umask(077);
  const fs::path hidden = scratch_.path() / "hidden";
  RunFolder::create(hidden, nlohmann::json::object()).finish();
  ::umask(before);
  const auto mode = [](const fs::path& path) {
    struct stat status = {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  };
  EXPECT_EQ(mode(destination()), 0755u);
  for (const char* file : {"manifest.json", "results.csv", "samples.csv"}) {
    EXPECT_EQ(mode(destination() / file), 0644u);
    EXPECT_EQ(mode(hidden / file), 0600u);
  }
  EXPECT_EQ(mode(hidden), 0700u);
}

/// Adds rows until it fails; the message, and that the folder keeps whole rows and cannot finish.
std::string write_until_full(const fs::path& destination) {
  RunFolder folder = RunFolder::create(destination, nlohmann::json::object());
  std::string message = "no error";
  for (int step = 0; step < 1'000'000 && message == "no error"; ++step) {
    message = error_of([&] { folder.add_sample(sample_row(step)); });
  }
  const std::size_t rows = read_csv(folder.working_path() / "samples.csv").rows.size();
  const std::string finish = error_of([&] { folder.finish(); });
  if (rows < 10) return "only " + std::to_string(rows) + " rows could be read";
  if (finish.find("not whole") == std::string::npos) return "finish: " + finish;
  if (fs::exists(destination)) return "the folder looks complete";
  return message;
}

TEST_F(RunFolderTest, AFileThatCannotGrowIsAnErrorAndKeepsItsRows) {
  Child child([&]() -> std::string {
    const rlimit limit = {.rlim_cur = 10'001, .rlim_max = 10'001};
    ::signal(SIGXFSZ, SIG_IGN);
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return "setrlimit failed";
    return write_until_full(destination());
  });
  EXPECT_EQ(child.receive(), (incomplete() / "samples.csv").string() +
                                 ": cannot be written: File too large; free space or write to "
                                 "another disk, then run again");
}

TEST_F(RunFolderTest, AFullDiskIsAnErrorAndKeepsItsRows) {
  const fs::path disk = scratch_.path() / "disk";
  fs::create_directory(disk);
  Child child([&]() -> std::string {
    // A disk of this process's own: it goes away with it.
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
      return "may not mount";
    }
    const std::string at_mount_point = create_error(disk);
    if (at_mount_point.find("is a mount point") == std::string::npos) return at_mount_point;
    return write_until_full(disk / "run");
  });
  const std::string message = child.receive();
  if (message == "may not mount") GTEST_SKIP() << "mounting a small disk needs root";
  EXPECT_EQ(message, (disk / "run.incomplete" / "samples.csv").string() +
                         ": cannot be written: No space left on device; free space or write to "
                         "another disk, then run again");
}

TEST_F(RunFolderTest, ARunThatCannotStartLeavesNothingBehind) {
  Child child([&]() -> std::string {
    const rlimit limit = {.rlim_cur = 1, .rlim_max = 1};
    ::signal(SIGXFSZ, SIG_IGN);
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return "setrlimit failed";
    return create_error(destination());
  });
  EXPECT_THAT(child.receive(), HasSubstr("cannot be written: File too large"));
  EXPECT_FALSE(fs::exists(incomplete()));
}

TEST_F(RunFolderTest, ADestinationTakenMeanwhileLosesNothing) {
  RunFolder folder = RunFolder::create(destination(), nlohmann::json::object());
  folder.add_result(result_row("a", 0));
  fs::create_directory(destination());
  std::ofstream(destination() / "other") << "x";
  const std::string message = error_of([&] { folder.finish(); });
  EXPECT_THAT(message, HasSubstr(incomplete().string()));
  EXPECT_THAT(message, HasSubstr("rename this folder yourself"));
  EXPECT_EQ(read_csv(incomplete() / "results.csv").rows.size(), 1u);
  EXPECT_TRUE(fs::exists(destination() / "other"));
}

TEST_F(RunFolderTest, MistakesOfTheCallerAreErrors) {
  RunFolder folder = RunFolder::create(destination(), nlohmann::json::object());
  EXPECT_THAT(error_of([&] { folder.add_result(sample_row(0)); }), HasSubstr("table samples"));
  EXPECT_THAT(error_of([&] { folder.add_sample(result_row("a", 0)); }), HasSubstr("table results"));
  EXPECT_THAT(error_of([&] { folder.set("status", "complete"); }), HasSubstr("status"));
  EXPECT_THAT(error_of([&] { RunFolder::create(scratch_.path() / "x", nlohmann::json::array()); }),
              HasSubstr("JSON object"));
  folder.finish();
  EXPECT_THAT(error_of([&] { folder.finish(); }), HasSubstr("finished already"));
}

TEST(DefaultRunName, SortsByTimeAndNamesTheCommit) {
  const auto time = std::chrono::system_clock::from_time_t(1796145300);
  const std::string commit = "0123abcd4567ef890123abcd4567ef890123abcd";
  EXPECT_EQ(default_run_name(time, commit, false), "20261201T171500Z-0123abcd4567");
  EXPECT_EQ(default_run_name(time, commit, true), "20261201T171500Z-0123abcd4567-dirty");
  EXPECT_EQ(default_run_name(time, "unknown", false), "20261201T171500Z-unknown");
}

}  // namespace
}  // namespace stepscope::results
