#include "topologies/strict_json.h"

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <vector>

#include "topologies/printable.h"

namespace stepscope::topologies {
namespace {

std::int64_t line_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  return 1 + std::count(before.begin(), before.end(), '\n');
}

// nlohmann's message after "syntax error ", e.g. "while parsing value - unexpected ']'". The token
// it ends with ("last read: ...") can be as long as the file, hence printable().
std::string reason(const std::string& message) {
  constexpr std::size_t kMaxBytes = 200;
  const std::size_t start = message.find("syntax error ");
  return printable(std::string_view(message).substr(start == std::string::npos ? 0 : start),
                   kMaxBytes);
}

}  // namespace

nlohmann::json parse_strict_json(std::string_view text, const std::string& file,
                                 const JsonLimits& limits) {
  using Event = nlohmann::json::parse_event_t;
  // nlohmann takes a NUL byte for the end of the text and would ignore what follows.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw Error("not JSON: a NUL byte", "", {.file = file, .line = line_of(text, nul)});
  }
  std::size_t depth = 0;
  std::size_t values = 0;
  std::vector<std::unordered_set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int, Event event, nlohmann::json& value) {
    if (++values > limits.max_values) {
      throw Error("the JSON has more than " + std::to_string(limits.max_values) + " values",
                  "this is no description of a model", {.file = file});
    }
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        if (++depth > limits.max_depth) {
          throw Error("the JSON is nested deeper than " + std::to_string(limits.max_depth),
                      "this is no description of a model", {.file = file});
        }
        if (event == Event::object_start) keys.emplace_back();
        break;
      case Event::object_end:
        keys.pop_back();
        --depth;
        break;
      case Event::array_end:
        --depth;
        break;
      case Event::key: {
        const auto& key = value.get_ref<const std::string&>();
        if (!keys.back().insert(key).second) {
          throw Error("the key " + printable(key) + " occurs twice in one object",
                      "keep one of the two", {.file = file});
        }
        break;
      }
      case Event::value:
        break;
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), watch);
  } catch (const nlohmann::json::parse_error& error) {
    throw Error("not JSON: " + reason(error.what()), "",
                {.file = file, .line = line_of(text, error.byte)});
  } catch (const nlohmann::json::exception& error) {  // e.g. a number beyond double
    throw Error("not JSON: " + printable(error.what()), "", {.file = file});
  }
}

std::int64_t non_negative_integer(const nlohmann::json& value, const std::string& what,
                                  const Where& where) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value.is_number_unsigned() && value.get<std::uint64_t>() <= kMax) {
    return value.get<std::int64_t>();
  }
  throw Error(what + " is " + printable(value.dump(-1, ' ', true)),
              "give a whole number from 0 to 2^63 - 1", where);
}

}  // namespace stepscope::topologies
