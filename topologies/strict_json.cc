#include "topologies/strict_json.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "core/printable.h"

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

// Builds the value from the parser's events. nlohmann's own way to watch a parse, a callback, takes
// time in proportion to the square of an object's members.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, const std::string& file, const JsonLimits& limits)
      : text_(text), file_(file), limits_(limits) {}

  nlohmann::json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t) override { return open(nlohmann::json::object()); }
  bool start_array(std::size_t) override { return open(nlohmann::json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    count();
    auto& members = open_.back()->get_ref<nlohmann::json::object_t&>();
    const auto [member, is_new] = members.emplace(name, nullptr);
    if (!is_new) {
      throw Error("the key " + printable(name) + " occurs twice in one object",
                  "keep one of the two", {.file = file_});
    }
    member_ = &member->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    throw Error("not JSON: " + reason(error.what()), "",
                {.file = file_, .line = line_of(text_, position)});
  }

 private:
  void count() {
    if (++values_ > limits_.max_values) {
      throw Error("the JSON has more than " + std::to_string(limits_.max_values) + " values",
                  "this is no description of a model", {.file = file_});
    }
  }

  // Where the next value belongs: the root, the member whose key was read, or the end of an array.
  nlohmann::json& place(nlohmann::json value) {
    count();
    nlohmann::json* target = &root_;
    if (!open_.empty() && open_.back()->is_array()) {
      auto& items = open_.back()->get_ref<nlohmann::json::array_t&>();
      target = &items.emplace_back();
    } else if (!open_.empty()) {
      target = member_;
    }
    *target = std::move(value);
    return *target;
  }

  bool add(nlohmann::json value) {
    place(std::move(value));
    return true;
  }

  bool open(nlohmann::json value) {
    if (open_.size() == limits_.max_depth) {
      throw Error("the JSON is nested deeper than " + std::to_string(limits_.max_depth),
                  "this is no description of a model", {.file = file_});
    }
    open_.push_back(&place(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& file_;
  JsonLimits limits_;
  std::size_t values_ = 0;
  nlohmann::json root_;
  std::vector<nlohmann::json*> open_;  // the arrays and objects around the next value
  nlohmann::json* member_ = nullptr;   // of the innermost object, the one whose key was read last
};

}  // namespace

nlohmann::json parse_strict_json(std::string_view text, const std::string& file,
                                 const JsonLimits& limits) {
  // nlohmann takes a NUL byte for the end of the text and would ignore what follows.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw Error("not JSON: a NUL byte", "", {.file = file, .line = line_of(text, nul)});
  }
  Builder builder(text, file, limits);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
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
