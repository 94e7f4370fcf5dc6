#include "core/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/core/error_text.h"
#include "tests/core/temp_file.h"

namespace stepscope {
namespace {

std::string error_of(const std::string& path) {
  return error_text([&] { InputFile file(path); });
}

TEST(InputFile, ReadsInPieces) {
  const TempFile temp("x.bin", std::string_view("ab\0cd", 5));
  InputFile file(temp.path());
  EXPECT_EQ(file.size(), 5);
  EXPECT_EQ(file.read(2), "ab");
  EXPECT_EQ(file.read(3), std::string("\0cd", 3));
  EXPECT_EQ(file.read(0), "");
}

TEST(InputFile, RefusesToReadPastTheEnd) {
  const TempFile temp("x.bin", "abc");
  EXPECT_EQ(error_text([&] { InputFile(temp.path()).read(4); }),
            temp.path() +
                ": reading stopped after 3 of 4 bytes; the file changed or the disk failed; try "
                "again");
}

TEST(InputFile, SaysWhyAFileCannotBeOpened) {
  const TempFile temp("x.bin", "abc");
  const std::string folder = std::filesystem::path(temp.path()).parent_path();
  EXPECT_EQ(error_of(folder + "/none"), folder + "/none: no such file; check the path");
  EXPECT_EQ(error_of(folder), folder + ": this is a directory; name a file in it");
  EXPECT_EQ(error_of(temp.path() + "/x"), temp.path() + "/x: no such file; check the path");
}

// Opening a pipe would wait until somebody writes to it.
TEST(InputFile, RefusesAPipeWithoutWaiting) {
  const TempFile temp("x.bin", "");
  const std::string pipe = temp.path() + ".pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of(pipe), pipe + ": this is no regular file; copy the data to a file first");
}

TEST(InputFile, RefusesAFileWithoutReadPermission) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const TempFile temp("x.bin", "abc");
  ASSERT_EQ(::chmod(temp.path().c_str(), 0), 0);
  EXPECT_EQ(error_of(temp.path()),
            temp.path() + ": cannot be read: Permission denied; check its permissions");
}

TEST(FileStem, IsTheNameWithoutFolderAndEnding) {
  EXPECT_EQ(file_stem("a/b.c/model.safetensors"), "model");
  EXPECT_EQ(file_stem("m.v2.json"), "m.v2");
}

}  // namespace
}  // namespace stepscope
