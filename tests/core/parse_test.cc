#include "core/parse.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"

namespace stepscope {
namespace {

TEST(ParseInt, AcceptsTheEndsOfTheRange) {
  EXPECT_EQ(parse_int("port", "0", 0, 65535), 0);
  EXPECT_EQ(parse_int("port", "65535", 0, 65535), 65535);
  EXPECT_EQ(parse_int("n", "-9223372036854775808", std::numeric_limits<std::int64_t>::min(), 0),
            std::numeric_limits<std::int64_t>::min());
}

TEST(ParseInt, RefusesWhatIsNotExactlyANumberInRange) {
  for (const char* text :
       {"", " 1", "1 ", "abc", "1x", "70000", "-1", "+1", "1.0", "0x10", "99999999999999999999"}) {
    EXPECT_THROW(parse_int("port", text, 0, 65535), Error) << text;
  }
}

TEST(ParseDouble, RefusesLocaleFormsAndNonFinite) {
  EXPECT_EQ(parse_double("lr", "1e-3"), 1e-3);
  for (const char* text : {"", "0,1", "nan", "inf", "1e999", "1 "}) {
    EXPECT_THROW(parse_double("lr", text), Error) << text;
  }
}

}  // namespace
}  // namespace stepscope
