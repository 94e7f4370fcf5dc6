#pragma once

#include "topologies/communicator.h"

namespace stepscope::topologies {

/// A world of one rank, for tests of what is collective but not about communication.
class LoneCommunicator final : public Communicator {
 public:
  std::int64_t rank() const override { return 0; }
  std::int64_t world_size() const override { return 1; }
  void barrier() override {}
  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine) override {
    return {mine.begin(), mine.end()};
  }
  std::vector<std::string> all_gather_text(const std::string& mine) override { return {mine}; }
};

}  // namespace stepscope::topologies
