#pragma once

/// Purpose: what PyTorch's emit_nvtx writes into an NVTX range, taken apart.
///
/// Usage:  const NvtxText text = parse_nvtx_text("aten::add, seq = 7, op_id = 12, sizes = [[2,
/// 3]]");
///
/// Caveats: PyTorch's own wording; any other text comes back as it was, with is_operator false.

#include <cstdint>
#include <string_view>
#include <vector>

#include "tracer/trace.h"

namespace stepscope::tracer {

struct NvtxText {
  std::string_view name;            ///< "aten::add"; the whole text where it is no operator's
  bool is_operator = false;         ///< the text carries an operator's sequence or number
  std::vector<TensorInput> inputs;  ///< shapes, where they were recorded; no dtypes
};

NvtxText parse_nvtx_text(std::string_view text);

/// Sets kind, collective and value of a host thread's event, as its text tells them.
void describe_host_event(const NvtxText& text, Event& event);

/// Whether a host operator or range is the scope that c10d's back end opens around one collective,
/// such as "gloo:all_gather": then its event is a collective.
bool is_collective_scope(std::string_view name);

}  // namespace stepscope::tracer
