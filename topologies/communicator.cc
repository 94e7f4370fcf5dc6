#include "topologies/communicator.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace stepscope::topologies {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// What require_same throws: the first line that differs between rank 0 and `rank`.
Error difference(const std::string& first, std::size_t rank, const std::string& other) {
  const auto ours = lines_of(first);
  const auto theirs = lines_of(other);
  std::size_t line = 0;
  while (line < ours.size() && line < theirs.size() && ours[line] == theirs[line]) ++line;
  const auto show = [&](const std::vector<std::string>& lines) {
    return line < lines.size() ? "\"" + lines[line] + "\"" : std::string("nothing");
  };
  return Error(
      "rank 0 has " + show(ours) + " and rank " + std::to_string(rank) + " has " + show(theirs),
      "start every rank with the same build and the same options");
}

std::string to_text(const Error& error) {
  const Where& where = error.where();
  return nlohmann::json{{"what", error.what_failed()}, {"advice", error.advice()},
                        {"rank", where.rank},          {"parameter", where.parameter},
                        {"file", where.file},          {"line", where.line}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Error from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return Error(json.at("what"), json.at("advice"),
               {.rank = json.at("rank"),
                .parameter = json.at("parameter"),
                .file = json.at("file"),
                .line = json.at("line")});
}

}  // namespace

std::int64_t max_over_ranks(Communicator& communicator, std::int64_t value) {
  const auto values = communicator.all_gather(std::span(&value, 1));
  return *std::max_element(values.begin(), values.end());
}

std::optional<Error> first_failure(Communicator& communicator, const std::function<void()>& body) {
  std::optional<Error> mine;
  try {
    body();
  } catch (const CollectiveError&) {
    throw;
  } catch (const Error& error) {
    mine = error.with_rank(communicator.rank());
  } catch (const std::exception& error) {
    mine = Error(error.what(), {}, {.rank = communicator.rank()});
  }
  // The common case is one small collective; texts are exchanged only when some rank has one.
  if (max_over_ranks(communicator, mine ? 1 : 0) == 0) return std::nullopt;
  for (const std::string& text : communicator.all_gather_text(mine ? to_text(*mine) : "")) {
    if (!text.empty()) return from_text(text);
  }
  return std::nullopt;
}

void together(Communicator& communicator, const std::function<void()>& body) {
  if (const auto failure = first_failure(communicator, body)) throw Error(*failure);
}

void require_same(Communicator& communicator, const std::string& text) {
  const auto texts = communicator.all_gather_text(text);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] != texts.front()) throw difference(texts.front(), rank, texts[rank]);
  }
}

}  // namespace stepscope::topologies
