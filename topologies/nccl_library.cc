#include "topologies/nccl_library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstring>
#include <string>

#include "core/error.h"
#include "kernels/cuda/cuda_check.h"

namespace stepscope::topologies {
namespace {

using kernels::DType;

static_assert(kNcclSuccess == ncclSuccess && kNcclInProgress == ncclInProgress);
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));

constexpr const char* kAdvice =
    "install the PyTorch of pyproject.toml (cmake/setup.sh), which brings NCCL, or run with "
    "--device cpu";

/// libtorch works on the legacy default stream, and so does everything here.
constexpr cudaStream_t kStream = nullptr;

ncclDataType_t type(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::fp16:
      return ncclFloat16;
  }
  throw Error("unknown data type");
}

ncclRedOp_t operation(Reduction reduction) {
  return reduction == Reduction::sum ? ncclSum : ncclAvg;
}

std::size_t count(std::int64_t numel) { return static_cast<std::size_t>(numel); }

class NcclLibrary final : public NcclApi {
 public:
  explicit NcclLibrary(void* library) : library_(library) {
    int version = 0;
    if (get_version_(&version) != ncclSuccess || version / 10000 != NCCL_MAJOR) {
      throw Error("libnccl is of version " + std::to_string(version) + ", and this build is for " +
                      std::to_string(NCCL_MAJOR) + ".x",
                  kAdvice);
    }
    STEPSCOPE_CUDA_CHECK(cudaEventCreateWithFlags(&mark_, cudaEventDisableTiming), -1);
  }
  // A failure here has nobody to go to: the context is gone already.
  ~NcclLibrary() override { static_cast<void>(cudaEventDestroy(mark_)); }
  NcclLibrary(const NcclLibrary&) = delete;
  NcclLibrary& operator=(const NcclLibrary&) = delete;

  int get_unique_id(NcclUniqueId& id) override {
    ncclUniqueId made{};
    const int result = get_unique_id_(&made);
    std::memcpy(id.bytes.data(), &made, sizeof made);
    return result;
  }
  int init(ncclComm*& comm, std::int64_t ranks, const NcclUniqueId& id,
           std::int64_t rank) override {
    ncclUniqueId given{};
    std::memcpy(&given, id.bytes.data(), sizeof given);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return init_rank_config_(&comm, static_cast<int>(ranks), given, static_cast<int>(rank),
                             &config);
  }
  int async_error(ncclComm* comm, int& result) override {
    ncclResult_t state = ncclSuccess;
    const int asked = get_async_error_(comm, &state);
    result = state;
    return asked;
  }
  int finalize(ncclComm* comm) override { return finalize_(comm); }
  int destroy(ncclComm* comm) override { return destroy_(comm); }
  int abort(ncclComm* comm) override { return abort_(comm); }

  int all_gather(DType dtype, const void* mine, std::int64_t numel, void* all,
                 ncclComm* comm) override {
    return all_gather_(mine, all, count(numel), type(dtype), comm, kStream);
  }
  int reduce_scatter(DType dtype, Reduction reduction, const void* all, std::int64_t numel,
                     void* mine, ncclComm* comm) override {
    return reduce_scatter_(all, mine, count(numel), type(dtype), operation(reduction), comm,
                           kStream);
  }
  int all_reduce(DType dtype, Reduction reduction, void* data, std::int64_t numel,
                 ncclComm* comm) override {
    return all_reduce_(data, data, count(numel), type(dtype), operation(reduction), comm, kStream);
  }
  int broadcast(DType dtype, std::int64_t root, void* data, std::int64_t numel,
                ncclComm* comm) override {
    return broadcast_(data, data, count(numel), type(dtype), static_cast<int>(root), comm, kStream);
  }
  int send(const void* data, std::int64_t bytes, std::int64_t peer, ncclComm* comm) override {
    return send_(data, count(bytes), ncclUint8, static_cast<int>(peer), comm, kStream);
  }
  int receive(void* data, std::int64_t bytes, std::int64_t peer, ncclComm* comm) override {
    return recv_(data, count(bytes), ncclUint8, static_cast<int>(peer), comm, kStream);
  }
  int group_start() override { return group_start_(); }
  int group_end() override { return group_end_(); }

  std::string error_text(int result, ncclComm* comm) override {
    std::string text = get_error_string_(static_cast<ncclResult_t>(result));
    const char* last = get_last_error_(comm);
    if (last != nullptr && *last != '\0') text.append(": ").append(last);
    return text;
  }

  void mark() override { STEPSCOPE_CUDA_CHECK(cudaEventRecord(mark_, kStream), -1); }
  bool reached_mark() override {
    const cudaError_t state = cudaEventQuery(mark_);
    if (state == cudaErrorNotReady) return false;
    STEPSCOPE_CUDA_CHECK(state, -1);
    return true;
  }

 private:
  /// A function of the library, of the type that the header gives it.
  template <typename Function>
  Function* find(const char* name) const {
    void* symbol = dlsym(library_, name);
    if (symbol == nullptr) throw Error(std::string("libnccl has no function ") + name, kAdvice);
    return reinterpret_cast<Function*>(symbol);
  }

  void* library_;
  decltype(&ncclGetVersion) get_version_ = find<decltype(ncclGetVersion)>("ncclGetVersion");
  decltype(&ncclGetUniqueId) get_unique_id_ = find<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) init_rank_config_ =
      find<decltype(ncclCommInitRankConfig)>("ncclCommInitRankConfig");
  decltype(&ncclCommGetAsyncError) get_async_error_ =
      find<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  decltype(&ncclCommFinalize) finalize_ = find<decltype(ncclCommFinalize)>("ncclCommFinalize");
  decltype(&ncclCommDestroy) destroy_ = find<decltype(ncclCommDestroy)>("ncclCommDestroy");
  decltype(&ncclCommAbort) abort_ = find<decltype(ncclCommAbort)>("ncclCommAbort");
  decltype(&ncclAllGather) all_gather_ = find<decltype(ncclAllGather)>("ncclAllGather");
  decltype(&ncclReduceScatter) reduce_scatter_ =
      find<decltype(ncclReduceScatter)>("ncclReduceScatter");
  decltype(&ncclAllReduce) all_reduce_ = find<decltype(ncclAllReduce)>("ncclAllReduce");
  decltype(&ncclBroadcast) broadcast_ = find<decltype(ncclBroadcast)>("ncclBroadcast");
  decltype(&ncclSend) send_ = find<decltype(ncclSend)>("ncclSend");
  decltype(&ncclRecv) recv_ = find<decltype(ncclRecv)>("ncclRecv");
  decltype(&ncclGroupStart) group_start_ = find<decltype(ncclGroupStart)>("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end_ = find<decltype(ncclGroupEnd)>("ncclGroupEnd");
  decltype(&ncclGetErrorString) get_error_string_ =
      find<decltype(ncclGetErrorString)>("ncclGetErrorString");
  decltype(&ncclGetLastError) get_last_error_ =
      find<decltype(ncclGetLastError)>("ncclGetLastError");
  cudaEvent_t mark_ = nullptr;
};

}  // namespace

std::shared_ptr<NcclApi> load_nccl() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(std::string("NCCL cannot be loaded: ") + dlerror(), kAdvice);
  }
  return std::make_shared<NcclLibrary>(library);
}

}  // namespace stepscope::topologies
