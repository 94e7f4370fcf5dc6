// The scalar `bnb-cuda` step and the CUDA back end's host-side table behind a C interface, for the
// Python tests that run the kernels' PTX (ptx_test.py). Functions return 0, or 1 with `error`
// filled.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "core/error.h"
#include "kernels/bnb_cuda.h"
#include "kernels/bnb_cuda_reference.h"
#include "kernels/code_tables.h"
#include "kernels/cuda/step_table.h"
#include "kernels/shard_tensors.h"

namespace {

using stepscope::kernels::Algorithm;
using stepscope::kernels::Hyperparameters;
using stepscope::kernels::ShardTensors;
namespace bnb_cuda = stepscope::kernels::bnb_cuda;
namespace cuda = stepscope::kernels::cuda;

// cuda_oracle.py mirrors these structures.
static_assert(sizeof(ShardTensors) == 80 && offsetof(ShardTensors, numel) == 16 &&
              offsetof(ShardTensors, dtype) == 24 && offsetof(ShardTensors, grad_dtype) == 25 &&
              offsetof(ShardTensors, format) == 26 && offsetof(ShardTensors, step) == 32 &&
              offsetof(ShardTensors, state1) == 40 && offsetof(ShardTensors, absmax2) == 64 &&
              offsetof(ShardTensors, absmax_count) == 72);
static_assert(sizeof(Hyperparameters) == 40 && sizeof(bnb_cuda::RoundedHyperparameters) == 20);

constexpr std::size_t kErrorBytes = 512;

template <class Body>
int guarded(char* error, Body body) {
  try {
    body();
    return 0;
  } catch (const stepscope::Error& caught) {
    const std::string text = caught.what();
    const std::size_t length = text.size() < kErrorBytes - 1 ? text.size() : kErrorBytes - 1;
    std::memcpy(error, text.data(), length);
    error[length] = '\0';
    return 1;
  }
}

}  // namespace

extern "C" {

int oracle_threads() { return cuda::kThreads; }
int oracle_tensor_entry_bytes() { return sizeof(cuda::TensorEntry); }
int oracle_tensor_step_bytes() { return sizeof(cuda::TensorStep); }

void oracle_signed_codes(float* values) {
  for (const std::uint32_t bits : stepscope::kernels::kSignedCodeBits) {
    *values++ = std::bit_cast<float>(bits);
  }
}

void oracle_round_hyperparameters(const Hyperparameters* hyperparameters,
                                  bnb_cuda::RoundedHyperparameters* rounded) {
  *rounded = bnb_cuda::round_hyperparameters(*hyperparameters);
}

int oracle_step(int algorithm, const Hyperparameters* hyperparameters, const ShardTensors* shard,
                char* error) {
  return guarded(error, [&] {
    stepscope::kernels::step_bnb_cuda_reference(static_cast<Algorithm>(algorithm), *hyperparameters,
                                                *shard);
  });
}

/// `entries` and `steps` have room for `count` tensors; `arguments` gets the counts and, with
/// `thread_blocks` > 0, how the blocks are dealt out; its pointers stay null.
int oracle_table(int algorithm, const ShardTensors* shards, std::int64_t count,
                 std::int64_t thread_blocks, cuda::TensorEntry* entries, cuda::TensorStep* steps,
                 cuda::StepArguments* arguments, std::int64_t* blocks, char* error) {
  return guarded(error, [&] {
    const cuda::StepTable table = cuda::build_step_table(
        static_cast<Algorithm>(algorithm),
        std::span<const ShardTensors>(shards, static_cast<std::size_t>(count)));
    std::memcpy(static_cast<void*>(entries), table.tensors.data(),
                table.tensors.size() * sizeof(cuda::TensorEntry));
    std::memcpy(static_cast<void*>(steps), table.steps.data(),
                table.steps.size() * sizeof(cuda::TensorStep));
    *blocks = table.blocks;
    *arguments = cuda::deal_out(table, thread_blocks);
  });
}

}  // extern "C"
