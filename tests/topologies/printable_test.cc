#include "topologies/printable.h"

#include <gtest/gtest.h>

namespace stepscope::topologies {
namespace {

TEST(Printable, LeavesOrdinaryTextAlone) {
  EXPECT_EQ(printable("h.0.attn, \xc3\xa4"), "\"h.0.attn, \xc3\xa4\"");
  EXPECT_FALSE(has_control_character("h.0.attn, \xc3\xa4"));
}

TEST(Printable, ShowsControlCharactersAsHex) {
  EXPECT_EQ(printable(std::string_view("a\0b\x1b[2J\n\x7f", 9)), "\"a\\x00b\\x1b[2J\\x0a\\x7f\"");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\"\\xc2\\x9b"
            "2J\"");  // U+009B starts an escape sequence
  EXPECT_TRUE(has_control_character("\xc2\x9b"));
  EXPECT_TRUE(has_control_character("\x7f"));
  EXPECT_FALSE(has_control_character("\xc2\xa0"));  // a no-break space
  EXPECT_EQ(printable("\xc2"), "\"\xc2\"");         // a character cut short must not be read past
}

TEST(Printable, CutsLongTextAtACharacterBorder) {
  EXPECT_EQ(printable(std::string(100, 'x')), "\"" + std::string(100, 'x') + "\"");
  EXPECT_EQ(printable(std::string(101, 'x')), "\"" + std::string(100, 'x') + "\"...");
  EXPECT_EQ(printable(std::string(99, 'x') + "\xc3\xa4"), "\"" + std::string(99, 'x') + "\"...");
}

}  // namespace
}  // namespace stepscope::topologies
