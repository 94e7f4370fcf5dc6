#include "tracer/collective_names.h"

#include <gtest/gtest.h>

namespace stepscope::tracer {
namespace {

TEST(CollectiveNames, KnowsTheKernelsOfNccl) {
  const auto kind = collective_of_kernel;
  EXPECT_EQ(kind("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
            CollectiveKind::all_gather);
  EXPECT_EQ(kind("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"),
            CollectiveKind::all_reduce);
  EXPECT_EQ(kind("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"), CollectiveKind::reduce_scatter);
  EXPECT_EQ(kind("ncclDevKernel_SendRecv"), CollectiveKind::send_receive);
  EXPECT_EQ(kind("ncclDevKernel_Generic"), CollectiveKind::other);
  EXPECT_EQ(kind("void at::native::reduce_kernel<512, 1>"), CollectiveKind::none);
}

TEST(CollectiveNames, KnowsWhatTheHostIssues) {
  const auto kind = collective_of_host;
  EXPECT_EQ(kind("gloo:all_gather"), CollectiveKind::all_gather);
  EXPECT_EQ(kind("nccl:_all_gather_base"), CollectiveKind::all_gather);
  EXPECT_EQ(kind("c10d::_allgather_base_"), CollectiveKind::all_gather);
  EXPECT_EQ(kind("_c10d_functional::reduce_scatter_tensor"), CollectiveKind::reduce_scatter);
  EXPECT_EQ(kind("c10d::alltoall_base_"), CollectiveKind::all_to_all);
  EXPECT_EQ(kind("gloo:recvAnySource"), CollectiveKind::send_receive);
  EXPECT_EQ(kind("NCCL:ncclAllGather"), CollectiveKind::all_gather);
  EXPECT_EQ(kind("c10d::reduce_"), CollectiveKind::other);
}

TEST(CollectiveNames, LeavesOutWhatMovesNothing) {
  const auto kind = collective_of_host;
  EXPECT_EQ(kind("_c10d_functional::wait_tensor"), CollectiveKind::none);
  EXPECT_EQ(kind("c10d::check_for_nan"), CollectiveKind::none);
  EXPECT_EQ(kind("NCCL:ncclCommInitRank"), CollectiveKind::none);
  EXPECT_EQ(kind("aten::all_gather"), CollectiveKind::none);
  EXPECT_EQ(kind(""), CollectiveKind::none);
}

}  // namespace
}  // namespace stepscope::tracer
