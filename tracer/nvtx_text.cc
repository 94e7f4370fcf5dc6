#include "tracer/nvtx_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "tracer/collective_names.h"

namespace stepscope::tracer {
namespace {

constexpr std::string_view kSequence = ", seq = ";
constexpr std::string_view kOperator = ", op_id = ";
constexpr std::string_view kSizes = ", sizes = ";

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char byte) { return byte >= '0' && byte <= '9'; });
}

/// "[[2, 3], [], [[4], [5, 6]]]": a list an argument; the tensors of a list of tensors lie one
/// deeper.
std::optional<std::vector<TensorInput>> parse_sizes(std::string_view text) {
  std::vector<TensorInput> inputs;
  std::vector<std::int64_t> shape;
  std::int32_t argument = -1;
  int depth = 0;
  bool holds_lists = false;
  for (std::size_t at = 0; at < text.size();) {
    const char byte = text[at];
    if (byte == '[') {
      ++depth;
      if (depth > 3) return {};
      if (depth == 2) {
        ++argument;
        holds_lists = false;
      }
      if (depth == 3) holds_lists = true;
      shape.clear();
      ++at;
    } else if (byte == ']') {
      // An empty list is an argument that is no tensor, or a scalar tensor: nothing tells which.
      if (depth >= 2 && !shape.empty() && (depth == 3 || !holds_lists)) {
        inputs.push_back({.shape = shape, .argument = argument});
      }
      shape.clear();
      if (--depth < 0) return {};
      ++at;
    } else if (byte == ',' || byte == ' ') {
      ++at;
    } else {
      std::int64_t extent = 0;
      const auto [end, error] =
          std::from_chars(text.data() + at, text.data() + text.size(), extent);
      if (error != std::errc() || extent < 0 || depth < 2) return {};
      shape.push_back(extent);
      at = static_cast<std::size_t>(end - text.data());
    }
  }
  if (depth != 0) return {};
  return inputs;
}

}  // namespace

NvtxText parse_nvtx_text(std::string_view text) {
  NvtxText whole{.name = text, .is_operator = false, .inputs = {}};
  std::string_view rest = text;
  NvtxText parsed = whole;
  const auto sizes = rest.rfind(kSizes);
  if (sizes != std::string_view::npos) {
    auto inputs = parse_sizes(rest.substr(sizes + kSizes.size()));
    if (!inputs) return whole;
    parsed.inputs = std::move(*inputs);
    rest = rest.substr(0, sizes);
  }
  // In this order from the end: each is there or not.
  for (const std::string_view word : {kOperator, kSequence}) {
    const auto at = rest.rfind(word);
    if (at == std::string_view::npos || !is_number(rest.substr(at + word.size()))) continue;
    rest = rest.substr(0, at);
    parsed.is_operator = true;
  }
  if (!parsed.is_operator && sizes == std::string_view::npos) return whole;
  parsed.is_operator = true;
  parsed.name = rest;
  return parsed;
}

void describe_host_event(const NvtxText& text, Event& event) {
  event.kind = EventKind::range;
  if (is_collective_scope(text.name)) {
    event.kind = EventKind::collective;
    event.collective = collective_of_host(text.name);
  } else if (text.is_operator && text.name.find("::") != std::string_view::npos) {
    // A scope that a user named carries a number, too.
    event.kind = EventKind::host_operator;
    if (!text.inputs.empty()) {
      event.value = text.inputs.front().numel();
      if (event.value != kNoValue) event.value_source = ValueSource::exact;
    }
  }
}

bool is_collective_scope(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kScopes = {
      "gloo:", "nccl:", "ucc:", "mpi:", "xccl:"};
  return std::any_of(kScopes.begin(), kScopes.end(), [&](std::string_view scope) {
    return name.starts_with(scope) && !name.substr(scope.size()).starts_with(':');
  });
}

}  // namespace stepscope::tracer
