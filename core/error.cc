#include "core/error.h"

#include <algorithm>
#include <utility>

namespace stepscope {
namespace {

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) { return c == '\n' || c == '\r' || c == '\t' || c < 0x20 || c == 0x7f; },
      ' ');
  return text;
}

std::string compose(const std::string& what_failed, const std::string& advice, const Where& where) {
  std::string text;
  if (where.rank >= 0) text += "rank " + std::to_string(where.rank) + ": ";
  if (!where.file.empty()) {
    text += where.file;
    if (where.line > 0) text += ":" + std::to_string(where.line);
    text += ": ";
  }
  if (!where.parameter.empty()) text += "parameter " + where.parameter + ": ";
  text += what_failed;
  if (!advice.empty()) text += "; " + advice;
  return one_line(std::move(text));
}

}  // namespace

Error::Error(std::string what_failed, std::string advice, Where where)
    : std::runtime_error(compose(what_failed, advice, where)),
      what_failed_(std::move(what_failed)),
      advice_(std::move(advice)),
      where_(std::move(where)) {}

Error Error::with_rank(std::int64_t rank) const {
  if (where_.rank >= 0) return *this;
  Where where = where_;
  where.rank = rank;
  return Error(what_failed_, advice_, where);
}

}  // namespace stepscope
