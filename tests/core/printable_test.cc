#include "core/printable.h"

#include <gtest/gtest.h>

namespace stepscope {
namespace {

TEST(Printable, LeavesOrdinaryTextAlone) {
  EXPECT_EQ(printable("h.0.attn, \xc3\xa4"), "\"h.0.attn, \xc3\xa4\"");
  EXPECT_TRUE(is_printable("h.0.attn, \xc3\xa4"));
}

TEST(Printable, ShowsControlCharactersAsHex) {
  EXPECT_EQ(printable(std::string_view("a\0b\x1b[2J\n\x7f", 9)), "\"a\\x00b\\x1b[2J\\x0a\\x7f\"");
  // U+009B starts an escape sequence.
  EXPECT_EQ(printable("\xc2\x9b[2J"), "\"\\xc2\\x9b[2J\"");
  for (const char* text : {"\x1f", "\x7f", "\xc2\x80", "\xc2\x9f", "a\n"}) {
    EXPECT_FALSE(is_printable(text)) << text;
  }
  EXPECT_FALSE(is_printable(std::string_view("\0", 1)));
}

TEST(Printable, ShowsWhatIsNotUtf8AsHex) {
  EXPECT_EQ(printable("44]\xcb'"), "\"44]\\xcb'\"");
  EXPECT_EQ(printable("\xe2\x82"), "\"\\xe2\\x82\"");  // must not be read past its end
  // Lone continuation, overlong forms, a surrogate, beyond U+10FFFF, bytes that never occur.
  for (const char* text : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                           "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_FALSE(is_printable(text)) << printable(text);
  }
  // The ends of every range that is text.
  for (const char* text :
       {" ", "~", "\xc2\xa0", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_printable(text)) << printable(text);
  }
}

TEST(Printable, CutsLongTextAtACharacterBorder) {
  EXPECT_EQ(printable(std::string(100, 'x')), "\"" + std::string(100, 'x') + "\"");
  EXPECT_EQ(printable(std::string(101, 'x')), "\"" + std::string(100, 'x') + "\"...");
  EXPECT_EQ(printable(std::string(99, 'x') + "\xc3\xa4"), "\"" + std::string(99, 'x') + "\"...");
}

}  // namespace
}  // namespace stepscope
