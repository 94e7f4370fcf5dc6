#pragma once

/// Purpose: what an Error says, for tests that check the whole message.
///
/// Usage:  EXPECT_EQ(error_text([&] { load_model("x"); }), "unknown model ...");

#include <string>

#include "core/error.h"

namespace stepscope {

/// The message of the Error that `body` throws, or "no error".
template <typename Body>
std::string error_text(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace stepscope
