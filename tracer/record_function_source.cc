#include "tracer/record_function_source.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tracer/collective_names.h"
#include "tracer/host_recorder.h"

namespace stepscope::tracer {
namespace {

/// Small blocks of one size for this thread, so that a context costs no allocation. A block that is
/// given back on another thread stays there.
class BlockPool {
 public:
  static constexpr std::size_t kBytes = 64;

  static void* take() {
    Kept* const kept = kept_here();
    return kept != nullptr && kept->count > 0 ? kept->blocks[--kept->count]
                                              : ::operator new(kBytes);
  }

  static void give_back(void* block) noexcept {
    Kept* const kept = kept_here();
    if (kept != nullptr && kept->count < kept->blocks.size()) {
      kept->blocks[kept->count++] = block;
    } else {
      ::operator delete(block);
    }
  }

 private:
  struct Kept {
    std::array<void*, 64> blocks{};
    std::size_t count = 0;
    ~Kept() {
      while (count > 0) ::operator delete(blocks[--count]);
      over_ = true;
    }
  };

  /// Null while the thread ends and its blocks are gone.
  static Kept* kept_here() {
    thread_local Kept kept;
    return over_ ? nullptr : &kept;
  }

  static thread_local bool over_;
};
thread_local bool BlockPool::over_ = false;

/// How deep this thread is inside c10d's operators.
thread_local int inside_c10d = 0;

/// What the end callback needs.
struct Context final : at::ObserverContext {
  HostRecord* record = nullptr;
  std::uint64_t epoch = 0;
  bool is_c10d = false;

  static void* operator new(std::size_t bytes) {
    static_assert(sizeof(Context) <= BlockPool::kBytes);
    static_cast<void>(bytes);
    return BlockPool::take();
  }
  static void operator delete(void* block) { BlockPool::give_back(block); }
};

bool has_sizes(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  const auto* const impl = tensor.unsafeGetTensorImpl();
  return !impl->has_symbolic_sizes_strides() && !impl->is_nested();
}

/// The tensors of an operator, gathered in memory that this thread keeps.
class TensorList {
 public:
  explicit TensorList(c10::ArrayRef<const c10::IValue> inputs) {
    views().clear();
    for (std::size_t i = 0; i < inputs.size(); ++i) add(inputs[i], static_cast<std::int32_t>(i));
  }

  std::span<const TensorView> all() const { return views(); }

 private:
  static std::vector<TensorView>& views() {
    thread_local std::vector<TensorView> kept;
    return kept;
  }

  static void add(const at::Tensor& tensor, std::int32_t argument) {
    if (!has_sizes(tensor)) return;
    const auto name = tensor.dtype().name();
    views().push_back({.sizes = {tensor.sizes().data(), tensor.sizes().size()},
                       .dtype = {name.data(), name.size()},
                       .argument = argument,
                       .on_device = !tensor.is_cpu()});
  }

  static void add(const c10::IValue& value, std::int32_t argument) {
    if (value.isTensor()) {
      add(value.toTensor(), argument);
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        // A list of anything but tensors, or lists of tensors, is left at its first element.
        if (!element.isTensor() && !element.isList()) break;
        add(element, argument);
      }
    }
  }
};

std::int64_t numel(const TensorView& tensor) {
  std::int64_t product = 1;
  for (const std::int64_t extent : tensor.sizes) product *= extent;
  return product;
}

/// Bytes of the tensors in an argument.
std::int64_t bytes_of(const c10::IValue& value) {
  std::int64_t bytes = 0;
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (has_sizes(tensor)) bytes += static_cast<std::int64_t>(tensor.nbytes());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) bytes += bytes_of(element);
  }
  return bytes;
}

/// Which argument holds what the rank hands in: c10d's operators with two lists name the output
/// first.
std::size_t handed_in(std::string_view name) {
  constexpr std::array<std::string_view, 11> kOutputFirst = {
      "c10d::allgather_",
      "c10d::_allgather_base_",
      "c10d::allgather_coalesced_",
      "c10d::allgather_into_tensor_coalesced_",
      "c10d::reduce_scatter_",
      "c10d::_reduce_scatter_base_",
      "c10d::reduce_scatter_tensor_coalesced_",
      "c10d::gather_",
      "c10d::scatter_",
      "c10d::alltoall_",
      "c10d::alltoall_base_",
  };
  return std::find(kOutputFirst.begin(), kOutputFirst.end(), name) != kOutputFirst.end() ? 1 : 0;
}

void describe_collective(HostActivity& activity, c10::ArrayRef<const c10::IValue> inputs) {
  activity.kind = EventKind::collective;
  activity.value = 0;
  if (activity.collective == CollectiveKind::barrier) return;
  const bool operator_of_c10d = activity.name.starts_with("c10d::");
  const std::size_t argument = handed_in(activity.name);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    // A back end's scope carries the tensors it sends and nothing else.
    if (!operator_of_c10d || i == argument) activity.value += bytes_of(inputs[i]);
  }
}

CopyDirection direction_of(bool from_device, bool to_device) {
  if (from_device)
    return to_device ? CopyDirection::device_to_device : CopyDirection::device_to_host;
  return to_device ? CopyDirection::host_to_device : CopyDirection::host_to_host;
}

/// copy_(self, source): from the second to the first. _local_scalar_dense(self): one element to the
/// host.
void describe_copy(HostActivity& activity, c10::ArrayRef<const c10::IValue> inputs) {
  const bool scalar = activity.name == "aten::_local_scalar_dense";
  if (inputs.size() < (scalar ? 1U : 2U) || !inputs[0].isTensor()) return;
  const at::Tensor& to = inputs[0].toTensor();
  const at::Tensor& from = scalar ? to : inputs[1].isTensor() ? inputs[1].toTensor() : to;
  if (!has_sizes(to) || !has_sizes(from)) return;
  activity.kind = EventKind::copy;
  activity.direction = direction_of(!from.is_cpu(), !scalar && !to.is_cpu());
  activity.value = scalar ? static_cast<std::int64_t>(to.element_size())
                          : static_cast<std::int64_t>(to.nbytes());
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  HostRecorder& recorder = HostRecorder::instance();
  if (!recorder.recording()) return nullptr;
  auto context = std::make_unique<Context>();
  const auto inputs = function.inputs();
  const TensorList tensors(inputs);
  HostActivity activity{.name = function.name(), .tensors = tensors.all()};
  activity.collective = collective_of_host(activity.name);
  const bool user_scope = function.scope() == at::RecordScope::USER_SCOPE;
  const bool functional = activity.name.starts_with("_c10d_functional::");
  context->is_c10d = activity.name.starts_with("c10d::");
  if (functional || (user_scope && inside_c10d > 0)) activity.collective = CollectiveKind::none;

  if (activity.collective != CollectiveKind::none) {
    describe_collective(activity, inputs);
  } else if (user_scope) {
    activity.kind = EventKind::range;
  } else {
    activity.kind = EventKind::host_operator;
    if (function.seqNr() >= 0) {
      activity.correlation = static_cast<std::uint64_t>(function.seqNr()) + 1;
    }
    if (!activity.tensors.empty()) {
      activity.value = numel(activity.tensors.front());
      activity.value_source = ValueSource::exact;
    }
    if (activity.name == "aten::copy_" || activity.name == "aten::_local_scalar_dense") {
      describe_copy(activity, inputs);
    }
  }
  if (context->is_c10d) ++inside_c10d;
  context->record = recorder.begin(activity, context->epoch);
  return context;
}

void on_end(const at::RecordFunction& /*function*/, at::ObserverContext* base) {
  if (base == nullptr) return;
  const auto* const context = static_cast<Context*>(base);
  if (context->is_c10d) --inside_c10d;
  HostRecorder::instance().end(context->record, context->epoch);
}

class RecordFunctionSource final : public CaptureSource {
 public:
  ~RecordFunctionSource() override { RecordFunctionSource::stop(); }

  std::string_view name() const override { return "record-function"; }

  void start() override {
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback(on_start, on_end)
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                     at::RecordScope::TORCHSCRIPT_FUNCTION, at::RecordScope::USER_SCOPE}));
  }

  void stop() override {
    if (handle_ != 0) at::removeCallback(std::exchange(handle_, 0));
  }

  // Everything stands in the HostRecorder.
  void deliver(Trace& /*trace*/, std::uint32_t /*process*/) override {}

 private:
  at::CallbackHandle handle_ = 0;
};

}  // namespace

std::unique_ptr<CaptureSource> make_record_function_source() {
  return std::make_unique<RecordFunctionSource>();
}

}  // namespace stepscope::tracer
