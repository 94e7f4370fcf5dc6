#include "topologies/recorded_update.h"

namespace stepscope::topologies {
namespace {

const char* step_name(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::AdamW8bit:
      return "stepscope::adamw8bit_step";
    case Optimizer::Lion8bit:
      return "stepscope::lion8bit_step";
    case Optimizer::AdamW:
      return "stepscope::adamw_step";
  }
  return "stepscope::unknown_step";
}

}  // namespace

RecordedUpdate::RecordedUpdate(Optimizer optimizer, const std::vector<c10::IValue>& params)
    : report_(at::RecordScope::FUNCTION) {
  if (!report_.isActive() || params.empty()) return;
  report_.before(step_name(optimizer),
                 c10::ArrayRef<const c10::IValue>(params.data(), params.size()));
}

}  // namespace stepscope::topologies
