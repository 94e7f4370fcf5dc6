#include "topologies/connect.h"

#include <utility>

#include "core/error.h"
#ifdef STEPSCOPE_WITH_NCCL
#include "topologies/gloo_communicator.h"
#include "topologies/nccl_communicator.h"
#include "topologies/nccl_library.h"
#endif

namespace stepscope::topologies {

std::unique_ptr<Communicator> connect(Device device, const Rendezvous& rendezvous,
                                      const Timeouts& timeouts) {
  if (device == Device::cpu) return connect_gloo(rendezvous, timeouts);
#ifdef STEPSCOPE_WITH_NCCL
  const auto store = meet_for_gloo(rendezvous, timeouts);
  auto host = connect_gloo(store, timeouts);
  std::shared_ptr<NcclApi> api;
  together(*host, [&] { api = load_nccl(); });
  return make_nccl_communicator(std::move(host), std::move(api), watch_of(store),
                                timeouts.collective);
#else
  throw Error("this build has no NCCL",
              "configure with -DSTEPSCOPE_CUDA=ON where nccl.h is found, or run with --device cpu");
#endif
}

}  // namespace stepscope::topologies
