#include "bench/turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "core/error.h"

namespace stepscope::bench {
namespace {

constexpr std::chrono::milliseconds kLongestSlice{1000};

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

/// Throws Error naming the first line that differs.
void require_same_lines(const std::string& mine, const std::string& theirs) {
  std::istringstream ours(mine), others(theirs);
  std::string our_line, other_line;
  while (true) {
    const bool have_ours = static_cast<bool>(std::getline(ours, our_line));
    const bool have_others = static_cast<bool>(std::getline(others, other_line));
    if (!have_ours && !have_others) return;
    if (have_ours && have_others && our_line == other_line) continue;
    const auto show = [](bool have, const std::string& line) {
      return have ? "\"" + line + "\"" : std::string("nothing");
    };
    throw Error("this build has " + show(have_ours, our_line) +
                    " and the other build of the pair " + show(have_others, other_line),
                "give both builds the same options, and one --turn first, the other --turn second");
  }
}

}  // namespace

Turns::Turns(topologies::Communicator& communicator, const TurnOptions& options,
             std::chrono::milliseconds collective)
    : communicator_(communicator),
      options_(options),
      slice_(std::clamp(collective / 4, std::chrono::milliseconds(1), kLongestSlice)) {
  if (!taken()) return;
  topologies::together(communicator_, [&] {
    if (communicator_.rank() == 0) {
      baton_ = std::make_unique<Baton>(options_.baton, options_.timeout);
    }
  });
  bool open = false;
  while (!open) {
    topologies::together(communicator_, [&] { open = baton_ != nullptr && baton_->open(slice_); });
    open = topologies::max_over_ranks(communicator_, open ? 1 : 0) == 1;
  }
}

void Turns::meet(const std::string& measured) {
  if (!taken()) return;
  const bool first = options_.baton.first;
  const std::string mine = communicator_.all_gather_text(first ? random_name() : "").front();
  const std::string theirs = exchange(mine + "\n" + measured);
  const auto end_of_name = theirs.find('\n');
  topologies::together(communicator_, [&] {
    if (end_of_name == std::string::npos) {
      throw Error("the other build of the pair introduces itself in another way",
                  "start two builds of one age");
    }
    require_same_lines(measured, theirs.substr(end_of_name + 1));
  });
  pair_ = first ? mine : theirs.substr(0, end_of_name);
}

void Turns::synchronize() {
  if (taken()) exchange("here");
}

void Turns::begin() {
  if (!taken()) return;
  bool mine = false;
  while (!mine) {
    topologies::together(communicator_, [&] { mine = baton_ != nullptr && baton_->wait(slice_); });
    mine = topologies::max_over_ranks(communicator_, mine ? 1 : 0) == 1;
  }
}

void Turns::end() {
  if (!taken()) return;
  communicator_.barrier();
  topologies::together(communicator_, [&] {
    if (baton_ != nullptr) baton_->pass();
  });
}

void Turns::finish() {
  if (baton_ != nullptr) baton_->finish();
}

/// What the partner tells in its call of the same number, on every rank.
std::string Turns::exchange(const std::string& mine) {
  topologies::together(communicator_, [&] {
    if (baton_ != nullptr) baton_->tell(mine);
  });
  std::optional<std::string> theirs;
  bool heard = false;
  while (!heard) {
    topologies::together(communicator_, [&] {
      if (baton_ != nullptr) theirs = baton_->hear(slice_);
    });
    heard = topologies::max_over_ranks(communicator_, theirs ? 1 : 0) == 1;
  }
  return communicator_.all_gather_text(theirs.value_or("")).front();
}

}  // namespace stepscope::bench
