#include "topologies/sharded_optimizer.h"

#include "topologies/native_optimizer.h"
#include "topologies/torch_optimizer.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "topologies/cuda_optimizer.h"
#endif

namespace stepscope::topologies {

std::string_view subject_name(Subject subject) {
  return subject == Subject::native ? "native" : "torch";
}

std::int64_t ShardedOptimizer::bytes_moved() const {
  std::int64_t bytes = 0;
  for (const OwnedShard& shard : shards()) {
    const kernels::ShardTensors& tensors = shard.tensors;
    const std::int64_t moments = tensors.state2 != nullptr ? 2 : 1;
    bytes += 3 * tensors.numel * kernels::element_bytes(tensors.dtype);
    if (tensors.format == kernels::StateFormat::fp32) {
      bytes += 2 * moments * tensors.numel * 4;
    } else {
      bytes += 2 * moments * (tensors.numel + kernels::block_count(tensors.numel) * 4);
    }
  }
  return bytes;
}

std::unique_ptr<ShardedOptimizer> make_sharded_optimizer(const Model& model, const ShardPlan& plan,
                                                         const StepConfig& config,
                                                         std::int64_t threads,
                                                         Communicator& communicator) {
  if (config.subject == Subject::torch) {
    return make_torch_optimizer(model, plan, communicator.rank(), config, threads);
  }
#ifdef STEPSCOPE_WITH_CUDA
  if (config.device == Device::cuda) return make_cuda_optimizer(model, plan, config, communicator);
#endif
  return make_native_optimizer(model, plan, config, threads, communicator);
}

}  // namespace stepscope::topologies
