// A durable file: whole under its name or not there, and never in the place of what is no file.

#include "core/durable_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "tests/core/error_text.h"
#include "tests/core/temp_file.h"

namespace stepscope {
namespace {

namespace fs = std::filesystem;

void write(DurableFile& file, std::string_view text) { file.write(std::as_bytes(std::span(text))); }

void save(const fs::path& path, std::string_view text) {
  DurableFile file(path.string());
  write(file, text);
  file.commit();
}

std::string content(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// A folder of a test's own, with one file in it.
class DurableFileTest : public ::testing::Test {
 protected:
  fs::path in_folder(const std::string& name) const {
    return fs::path(file_.path()).parent_path() / name;
  }
  std::size_t entries() const {
    const fs::directory_iterator folder(in_folder("."));
    return static_cast<std::size_t>(std::distance(fs::begin(folder), fs::end(folder)));
  }

  const TempFile file_{"old", "old"};
};

TEST_F(DurableFileTest, ReplacesAFileAtCommitAndNotBefore) {
  {
    DurableFile file(file_.path());
    write(file, "new ");
    EXPECT_EQ(content(file_.path()), "old");
    write(file, "text");
    EXPECT_EQ(file.size(), 8);
    file.commit();
  }
  EXPECT_EQ(content(file_.path()), "new text");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(DurableFileTest, LeavesNothingBehindWithoutACommit) {
  {
    DurableFile file(in_folder("never").string());
  }
  EXPECT_EQ(content(file_.path()), "old");
  EXPECT_EQ(entries(), 1U);
}

// As root, a rename would put a file in the place of /dev/null.
TEST_F(DurableFileTest, LeavesWhatIsNoRegularFileInItsPlace) {
  const fs::path pipe = in_folder("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_text([&] { save(pipe, "x"); }),
            pipe.string() + ": is no regular file; name a file to write to");
  EXPECT_TRUE(fs::is_fifo(pipe));

  const fs::path device = in_folder("device");
  fs::create_symlink("/dev/null", device);
  EXPECT_EQ(error_text([&] { save(device, "x"); }),
            device.string() + ": is no regular file; name a file to write to");
  EXPECT_TRUE(fs::is_symlink(device));

  const fs::path folder = in_folder("folder");
  fs::create_directory(folder);
  EXPECT_EQ(error_text([&] { save(folder, "x"); }),
            folder.string() + ": is a directory; name a file to write to");
  EXPECT_EQ(entries(), 4U);
}

TEST_F(DurableFileTest, WritesToTheFileThatALinkNames) {
  const fs::path link = in_folder("link");
  const fs::path links = in_folder("links");
  fs::create_symlink("old", link);
  fs::create_symlink(link, links);
  save(links, "by two links");
  EXPECT_EQ(content(file_.path()), "by two links");
  EXPECT_TRUE(fs::is_symlink(link) && fs::is_symlink(links));

  const fs::path dangling = in_folder("dangling");
  fs::create_symlink("absent", dangling);
  save(dangling, "made");
  EXPECT_EQ(content(in_folder("absent")), "made");

  const fs::path loop = in_folder("loop");
  fs::create_symlink("loop", loop);
  EXPECT_EQ(error_text([&] { save(loop, "x"); }),
            loop.string() + ": its symbolic links lead nowhere; name another file");
}

TEST_F(DurableFileTest, DoesNotWriteThroughWhatHasTheTemporaryName) {
  const fs::path target = in_folder("new");
  fs::create_symlink("old", in_folder("new.partial"));
  save(target, "new");
  EXPECT_EQ(content(target), "new");
  EXPECT_EQ(content(file_.path()), "old");

  // Opening it would wait for a reader.
  ASSERT_EQ(::mkfifo(in_folder("new.partial").c_str(), 0600), 0);
  save(target, "newer");
  EXPECT_EQ(content(target), "newer");
  EXPECT_EQ(entries(), 2U);
}

}  // namespace
}  // namespace stepscope
