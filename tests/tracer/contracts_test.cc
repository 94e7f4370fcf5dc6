// Every contract on traces that are made to measure: what holds is ok, and each planted violation
// turns exactly its contract to broken.

#include "tracer/contracts.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>

#include "core/error.h"
#include "step_trace.h"
#include "tracer/collective_names.h"

namespace stepscope::tracer {
namespace {

/// Two tensors of which each of two ranks owns half, and one that rank 0 owns alone.
ExpectedPlan plan() {
  ExpectedPlan plan{.world_size = 2};
  for (const std::int64_t rank : {0, 1}) {
    plan.ranks[rank].tensors = {{.name = "embed", .n = 8192, .whole = 16384},
                                {.name = "head", .n = 5000, .whole = 10000},
                                {.name = "bias", .n = rank == 0 ? 768 : 0, .whole = 768}};
  }
  return plan;
}

enum class Where { gpu, cpu };

/// Two ranks, three steps each, as the plan wants them. `plant` adds to rank 1's second step.
Trace& two_ranks(StepTrace& builder, Where where,
                 const std::function<void(StepTrace&, std::uint32_t)>& plant = {}) {
  const ExpectedPlan expected = plan();
  for (const std::int64_t number : {0, 1}) {
    const auto rank =
        where == Where::gpu ? builder.gpu_rank(number, 2) : builder.cpu_rank(number, 2);
    for (int step = 0; step < 3; ++step) {
      builder.begin_step(rank);
      for (const ExpectedTensor& tensor : expected.rank(number)->tensors) {
        if (tensor.n == 0) continue;
        if (where == Where::gpu) {
          builder.update(rank, tensor.n);
        } else {
          builder.update_operator(rank, tensor.n);
        }
      }
      if (plant && number == 1 && step == 1) plant(builder, rank);
      builder.end_step(rank);
    }
  }
  return builder.finish();
}

Judgement judged(const Trace& trace, Where where, ContractOptions options = {}) {
  static const ExpectedPlan expected = plan();
  StepTrace plain;
  if (options.plan == nullptr) options.plan = &expected;
  if (options.against == nullptr) options.against = &two_ranks(plain, where);
  return judge(trace, options);
}

std::string text(const Verdict& verdict) {
  std::string text = std::string(contract_name(verdict.contract)) + " rank " +
                     (verdict.rank ? std::to_string(*verdict.rank) : "?") + " " +
                     (verdict.ordinal ? verdict.step : "whole") + " " +
                     std::string(status_name(verdict.status)) + ": " + verdict.reason;
  return text;
}

/// The contracts with a verdict of `status`, and where the first one is.
std::map<Contract, Verdict> with_status(const Judgement& judgement, Status status) {
  std::map<Contract, Verdict> found;
  for (const Verdict& verdict : judgement.verdicts) {
    if (verdict.status == status) found.try_emplace(verdict.contract, verdict);
  }
  return found;
}

/// Expects that `contracts` are broken on rank 1's second step, and nothing else is.
std::map<Contract, Verdict> expect_broken(const Judgement& judgement,
                                          const std::set<Contract>& contracts) {
  std::set<Contract> broken;
  for (const Verdict& verdict : judgement.verdicts) {
    if (verdict.status != Status::broken) continue;
    broken.insert(verdict.contract);
    EXPECT_EQ(verdict.rank, 1) << text(verdict);
    if (verdict.ordinal) {
      EXPECT_EQ(verdict.step, "step 1") << text(verdict);
    }
  }
  EXPECT_EQ(broken, contracts);
  return with_status(judgement, Status::broken);
}

TEST(Contracts, AreAllOkWhereTheStepIsThePlans) {
  for (const Where where : {Where::gpu, Where::cpu}) {
    StepTrace builder;
    const Judgement judgement = judged(two_ranks(builder, where), where);
    for (const Verdict& verdict : judgement.verdicts) {
      EXPECT_EQ(verdict.status, Status::ok) << text(verdict);
    }
    // Six contracts on three steps of two ranks; on a CPU there is nothing to join in a step, and
    // complete-trace has one verdict a rank. On a GPU it has that as well.
    EXPECT_EQ(judgement.verdicts.size(), where == Where::gpu ? 38U : 32U);
    EXPECT_EQ(worst(judgement.verdicts), Status::ok);
  }
}

TEST(Contracts, BreakLocalNOnAGlobalN) {
  StepTrace gpu;
  Trace& trace = two_ranks(gpu, Where::gpu, [](StepTrace& builder, std::uint32_t rank) {
    builder.in_range(rank, "stepscope:group 0", [&] { builder.update(rank, 16384); });
  });
  // One launch more than on plain tensors, too.
  const auto broken =
      expect_broken(judged(trace, Where::gpu), {Contract::local_n, Contract::no_extra_launches});
  const Verdict& verdict = broken.at(Contract::local_n);
  EXPECT_EQ(verdict.reason, "n = 16384 is the whole of embed, of which this rank owns 8192");
  ASSERT_EQ(verdict.offenders.size(), 1U);
  EXPECT_EQ(verdict.offenders[0].name, kUpdateKernel);
  EXPECT_EQ(verdict.offenders[0].value, 16384);
  EXPECT_EQ(verdict.offenders[0].stream, 13U);
  EXPECT_EQ(verdict.offenders[0].thread, 7U);
  EXPECT_EQ(verdict.offenders[0].range, "step 1 > group 0");
}

TEST(Contracts, BreakLocalNAloneWhereAGlobalNStandsForALocalOne) {
  StepTrace builder;
  const auto rank = builder.gpu_rank(1, 2);
  builder.begin_step(rank);
  builder.update(rank, 16384);
  builder.update(rank, 5000);
  builder.end_step(rank);
  StepTrace plain;
  const auto plain_rank = plain.gpu_rank(1, 2);
  plain.begin_step(plain_rank);
  plain.update(plain_rank, 8192);
  plain.update(plain_rank, 5000);
  plain.end_step(plain_rank);
  const Judgement judgement = judged(builder.finish(), Where::gpu, {.against = &plain.finish()});
  const auto broken = with_status(judgement, Status::broken);
  ASSERT_EQ(broken.size(), 1U);
  EXPECT_EQ(broken.begin()->second.reason,
            "n = 16384 is the whole of embed, of which this rank owns 8192; no update has n = 8192 "
            "(embed)");
}

TEST(Contracts, BreakLocalNOnAGlobalNOfAnOperator) {
  StepTrace cpu;
  Trace& trace = two_ranks(cpu, Where::cpu, [](StepTrace& builder, std::uint32_t rank) {
    builder.update_operator(rank, 10000);
  });
  const auto broken =
      expect_broken(judged(trace, Where::cpu), {Contract::local_n, Contract::no_extra_launches});
  EXPECT_EQ(broken.at(Contract::local_n).offenders.at(0).value, 10000);
}

TEST(Contracts, BreakLocalNWhereAnEmptyShardIsStepped) {
  StepTrace cpu;
  Trace& trace = two_ranks(cpu, Where::cpu, [](StepTrace& builder, std::uint32_t rank) {
    builder.update_operator(rank, 0);
  });
  const auto broken =
      expect_broken(judged(trace, Where::cpu), {Contract::local_n, Contract::no_extra_launches});
  EXPECT_EQ(broken.at(Contract::local_n).reason, "n = 0: an empty shard was stepped");
}

TEST(Contracts, AreOkForARankThatOwnsNothingAndDoesNothing) {
  ExpectedPlan nothing = plan();
  for (ExpectedTensor& tensor : nothing.ranks[1].tensors) tensor.n = 0;
  StepTrace builder;
  const auto rank = builder.cpu_rank(1, 2);
  builder.begin_step(rank);
  builder.end_step(rank);
  StepTrace plain;
  const auto plain_rank = plain.cpu_rank(1, 2);
  plain.begin_step(plain_rank);
  plain.end_step(plain_rank);
  const Judgement judgement =
      judged(builder.finish(), Where::cpu, {.plan = &nothing, .against = &plain.finish()});
  for (const Verdict& verdict : judgement.verdicts) {
    EXPECT_EQ(verdict.status, Status::ok) << text(verdict);
  }
}

TEST(Contracts, CountEveryTensorOfAListAndEveryInputOfOurOwnOperators) {
  for (const bool ours : {false, true}) {
    StepTrace builder;
    const auto rank = builder.cpu_rank(1, 2);
    builder.begin_step(rank);
    if (ours) {
      builder.operation(rank, "stepscope::adamw8bit_step",
                        {{.shape = {8192}, .argument = 0}, {.shape = {50, 100}, .argument = 1}});
    } else {
      builder.operation(rank, "aten::_fused_adamw_",
                        {{.shape = {8192}},
                         {.shape = {50, 100}},
                         {.shape = {8192}, .argument = 1},
                         {.shape = {50, 100}, .argument = 1},
                         {.shape = {}, .argument = 5},
                         {.shape = {}, .argument = 5}});
    }
    builder.end_step(rank);
    const Judgement judgement =
        judged(builder.finish(), Where::cpu, {.contracts = {Contract::local_n}});
    ASSERT_EQ(judgement.verdicts.size(), 1U);
    EXPECT_EQ(judgement.verdicts[0].status, Status::ok) << text(judgement.verdicts[0]);
  }
}

TEST(Contracts, SayBoundedWhereOnlyTheGridIsKnown) {
  const auto verdict = [](std::int64_t first) {
    StepTrace builder;
    const auto rank = builder.gpu_rank(1, 2);
    builder.begin_step(rank);
    builder.bounded_update(rank, first);
    builder.bounded_update(rank, 5000);
    builder.end_step(rank);
    return judged(builder.finish(), Where::gpu, {.contracts = {Contract::local_n}}).verdicts.at(0);
  };
  // 8191 elements have the grid of 8192: nothing tells them apart.
  for (const std::int64_t n : {8192, 8191, 7937}) {
    EXPECT_EQ(verdict(n).status, Status::unverified);
    EXPECT_TRUE(verdict(n).reason.starts_with("bounded")) << verdict(n).reason;
  }
  for (const std::int64_t n : {7936, 8193, 16384}) EXPECT_EQ(verdict(n).status, Status::broken);
  EXPECT_EQ(verdict(16384).reason,
            "n from 16129 to 16384 is not in the plan, or once too often; no update has n = 8192 "
            "(embed)");
}

TEST(Contracts, BoundAKernelThatStepsAllTensorsByItsBlocks) {
  const auto verdict = [](std::int64_t blocks) {
    StepTrace builder;
    const auto rank = builder.gpu_rank(1, 2);
    builder.begin_step(rank);
    Event event = builder.kernel(rank, "stepscope_adamw_step(StepArguments)",
                                 builder.call(rank, "cuLaunchKernelEx"));
    event.value = blocks * 256;
    event.value_source = ValueSource::grid_bound;
    builder.trace().add(event);
    builder.end_step(rank);
    return judged(builder.finish(), Where::gpu, {.contracts = {Contract::local_n}}).verdicts.at(0);
  };
  EXPECT_EQ(verdict(32 + 20).status, Status::unverified);
  EXPECT_EQ(verdict(32 + 20).reason,
            "bounded: one kernel steps all tensors, and its 52 blocks of 256 are the plan's");
  EXPECT_EQ(verdict(64 + 40).status, Status::broken);
}

TEST(Contracts, BreakOnOneMoreAllGather) {
  StepTrace gpu;
  Trace& on_gpu = two_ranks(gpu, Where::gpu, [](StepTrace& builder, std::uint32_t rank) {
    builder.launch(rank, "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  });
  expect_broken(judged(on_gpu, Where::gpu),
                {Contract::no_all_gather, Contract::no_collectives, Contract::no_extra_launches});
  StepTrace cpu;
  Trace& on_cpu = two_ranks(cpu, Where::cpu, [](StepTrace& builder, std::uint32_t rank) {
    builder.operation(rank, "gloo:all_gather", {{.shape = {4}}});
  });
  const auto broken = expect_broken(judged(on_cpu, Where::cpu),
                                    {Contract::no_all_gather, Contract::no_collectives});
  EXPECT_EQ(broken.at(Contract::no_all_gather).offenders.at(0).range, "step 1");
  EXPECT_EQ(broken.at(Contract::no_collectives).reason, "1 all-gather in the step");
}

TEST(Contracts, BreakNoCollectivesAloneOnACollectiveAParameter) {
  StepTrace cpu;
  Trace& trace = two_ranks(cpu, Where::cpu, [](StepTrace& builder, std::uint32_t rank) {
    for (int i = 0; i < 4; ++i) builder.operation(rank, "gloo:all_reduce", {{.shape = {1}}});
  });
  const auto broken = expect_broken(judged(trace, Where::cpu), {Contract::no_collectives});
  const Verdict& verdict = broken.at(Contract::no_collectives);
  EXPECT_EQ(verdict.reason, "4 all-reduces in the step");
  EXPECT_EQ(verdict.offenders.size(), 3U);
  EXPECT_EQ(verdict.offender_count, 4);
}

TEST(Contracts, WantExactlyTheDeclaredCollectives) {
  const auto verdict = [](int times, std::vector<CollectiveKind> declared) {
    StepTrace builder;
    const auto rank = builder.cpu_rank(1, 2);
    builder.begin_step(rank);
    builder.update_operator(rank, 8192);
    for (int i = 0; i < times; ++i) builder.operation(rank, "gloo:all_to_all", {{.shape = {9}}});
    builder.end_step(rank);
    const ContractOptions options{.contracts = {Contract::no_collectives},
                                  .collectives = std::move(declared)};
    return judged(builder.finish(), Where::cpu, options).verdicts.at(0);
  };
  EXPECT_EQ(verdict(1, {CollectiveKind::all_to_all}).status, Status::ok);
  EXPECT_EQ(verdict(2, {CollectiveKind::all_to_all}).status, Status::broken);
  EXPECT_EQ(verdict(0, {CollectiveKind::all_to_all}).status, Status::broken);
  EXPECT_EQ(verdict(1, {}).status, Status::broken);
  EXPECT_EQ(verdict(1, {CollectiveKind::all_reduce}).status, Status::broken);
}

TEST(Contracts, CountACollectiveOnceThroughAllItsLayers) {
  StepTrace builder;
  const auto rank = builder.cpu_rank(1, 2);
  builder.begin_step(rank);
  builder.update_operator(rank, 8192);
  const std::int64_t start = builder.now() + 10;
  // c10d's operator returns before the work of Gloo, which it started, is done.
  Trace& trace = builder.trace();
  for (const auto& [name, from, to] :
       {std::tuple("_c10d_functional::all_reduce", 0, 9), std::tuple("c10d::allreduce_", 1, 5),
        std::tuple("gloo:all_reduce", 2, 50), std::tuple("gloo:all_reduce", 20, 60)}) {
    trace.add({.start_ns = start + from,
               .end_ns = start + to,
               .thread = 7,
               .name = trace.intern(name),
               .process = rank,
               .kind = EventKind::host_operator});
  }
  builder.operation(rank, "aten::add", {});
  builder.operation(rank, "aten::add", {});
  builder.end_step(rank);
  ContractOptions options{.contracts = {Contract::no_collectives}};
  const Verdict verdict = judged(builder.finish(), Where::cpu, options).verdicts.at(0);
  EXPECT_EQ(verdict.reason, "2 all-reduces in the step");
}

TEST(Contracts, BreakOnACopyToTheHost) {
  StepTrace gpu;
  Trace& trace = two_ranks(gpu, Where::gpu, [](StepTrace& builder, std::uint32_t rank) {
    builder.copy(rank, CopyDirection::device_to_device, 64);
    builder.copy(rank, CopyDirection::device_to_host, 4);
  });
  const auto broken = expect_broken(judged(trace, Where::gpu), {Contract::no_host_device_copies});
  const Verdict& verdict = broken.at(Contract::no_host_device_copies);
  ASSERT_EQ(verdict.offenders.size(), 1U);
  EXPECT_EQ(verdict.offenders[0].value, 4);
  EXPECT_EQ(verdict.offenders[0].direction, CopyDirection::device_to_host);
}

TEST(Contracts, SeeACopyThatOnlyAnOperatorShows) {
  StepTrace cpu;
  Trace& trace = two_ranks(cpu, Where::cpu, [](StepTrace& builder, std::uint32_t rank) {
    builder.operation(rank, "aten::copy_",
                      {{.shape = {4}}, {.shape = {4}, .argument = 1, .on_device = true}});
  });
  expect_broken(judged(trace, Where::cpu), {Contract::no_host_device_copies});
}

TEST(Contracts, DoNotVerifyACopyOfUnknownDirection) {
  StepTrace gpu;
  Trace& trace = two_ranks(gpu, Where::gpu, [](StepTrace& builder, std::uint32_t rank) {
    builder.copy(rank, CopyDirection::unknown, 4);
  });
  const Judgement judgement = judged(trace, Where::gpu);
  expect_broken(judgement, {});
  EXPECT_EQ(with_status(judgement, Status::unverified).count(Contract::no_host_device_copies), 1U);
}

TEST(Contracts, BreakNoExtraLaunchesAloneOnAnExtraLaunch) {
  StepTrace gpu;
  Trace& trace = two_ranks(gpu, Where::gpu, [](StepTrace& builder, std::uint32_t rank) {
    builder.launch(rank, "void at::native::vectorized_elementwise_kernel<4>(int)");
  });
  const auto broken = expect_broken(judged(trace, Where::gpu), {Contract::no_extra_launches});
  EXPECT_EQ(broken.at(Contract::no_extra_launches).reason,
            "void at::native::vectorized_elementwise_kernel<4>(int) 1 time, 0 on plain tensors");
}

TEST(Contracts, BreakCompleteTraceAloneOnADroppedRecord) {
  StepTrace gpu;
  Trace& trace = two_ranks(gpu, Where::gpu);
  trace.process(1).dropped = 1;
  const Judgement judgement = judged(trace, Where::gpu);
  const auto broken = expect_broken(judgement, {Contract::complete_trace});
  EXPECT_FALSE(broken.at(Contract::complete_trace).ordinal.has_value());
  // What was dropped may have been anything.
  const auto open = with_status(judgement, Status::unverified);
  for (const Contract contract :
       {Contract::local_n, Contract::no_all_gather, Contract::no_collectives,
        Contract::no_host_device_copies, Contract::no_extra_launches}) {
    ASSERT_EQ(open.count(contract), 1U);
    EXPECT_EQ(open.at(contract).rank, 1);
    EXPECT_EQ(open.at(contract).reason, "1 record was dropped somewhere");
  }
  StepTrace cpu;
  Trace& on_cpu = two_ranks(cpu, Where::cpu);
  on_cpu.process(1).host_dropped = 5;
  expect_broken(judged(on_cpu, Where::cpu), {Contract::complete_trace});
}

TEST(Contracts, BreakCompleteTraceAloneOnALaunchWithoutItsKernel) {
  StepTrace gpu;
  Trace& trace = two_ranks(gpu, Where::gpu, [](StepTrace& builder, std::uint32_t rank) {
    builder.call(rank, "cuLaunchKernel");
    builder.count_launch(rank);
  });
  const auto broken = expect_broken(judged(trace, Where::gpu), {Contract::complete_trace});
  EXPECT_EQ(broken.at(Contract::complete_trace).reason, "1 launch has no kernel in the trace");
}

TEST(Contracts, BreakCompleteTraceAloneOnAKernelWithoutItsLaunch) {
  StepTrace gpu;
  Trace& trace = two_ranks(gpu, Where::gpu, [](StepTrace& builder, std::uint32_t rank) {
    Event event = builder.kernel(rank, kUpdateKernel, 987654);
    event.start_ns = builder.now();
    event.end_ns = builder.now() + 1;
    builder.trace().add(event);
    builder.count_launch(rank);
  });
  const auto broken = expect_broken(judged(trace, Where::gpu), {Contract::complete_trace});
  EXPECT_EQ(broken.at(Contract::complete_trace).reason, "1 kernel has no launch in the trace");
}

TEST(Contracts, BreakCompleteTraceWhereLaunchesAndKernelsDoNotAddUp) {
  StepTrace gpu;
  Trace& trace = two_ranks(gpu, Where::gpu);
  *trace.process(1).launched += 2;
  const auto broken = expect_broken(judged(trace, Where::gpu), {Contract::complete_trace});
  EXPECT_EQ(broken.at(Contract::complete_trace).reason,
            "8 launches, 6 kernels received, none reported as dropped");
}

TEST(Contracts, DoNotVerifyCompletenessOfASourceThatCannotSayWhatItLost) {
  StepTrace gpu;
  Trace& trace = two_ranks(gpu, Where::gpu);
  for (const std::uint32_t rank : {0U, 1U}) {
    trace.process(rank).dropped.reset();
    trace.process(rank).launched.reset();
  }
  const Judgement judgement = judged(trace, Where::gpu);
  const auto open = with_status(judgement, Status::unverified);
  ASSERT_EQ(open.size(), 1U);
  EXPECT_EQ(open.at(Contract::complete_trace).reason,
            "the source does not say whether it lost records");
}

TEST(Contracts, AcceptTheDriversCallWithinTheRuntimes) {
  StepTrace builder;
  const auto rank = builder.gpu_rank(1, 2);
  builder.begin_step(rank);
  const std::uint64_t outer = builder.call(rank, "cudaLaunchKernel_v7000");
  Trace& trace = builder.trace();
  trace.add({.start_ns = builder.now() - 4,
             .end_ns = builder.now() - 1,
             .correlation = outer + 1000,
             .thread = 7,
             .name = trace.intern("cuLaunchKernel"),
             .process = rank,
             .kind = EventKind::api_call});
  trace.add(builder.kernel(rank, "work", outer + 1000));
  builder.count_launch(rank);
  builder.end_step(rank);
  const Judgement judgement =
      judged(builder.finish(), Where::gpu, {.contracts = {Contract::complete_trace}});
  for (const Verdict& verdict : judgement.verdicts) {
    EXPECT_EQ(verdict.status, Status::ok) << text(verdict);
  }
}

TEST(Contracts, SayHowManyStepsHaveKernelsAndVerifyNoOther) {
  StepTrace builder;
  const auto rank = builder.gpu_rank(1, 2);
  for (int step = 0; step < 50; ++step) {
    builder.begin_step(rank);
    if (step >= 2) {
      builder.update(rank, 8192);
      builder.update(rank, 5000);
    }
    builder.end_step(rank);
  }
  Trace& trace = builder.finish();
  trace.process(0).dropped.reset();
  trace.process(0).launched.reset();
  const Judgement judgement = judged(trace, Where::gpu,
                                     {.contracts = {Contract::local_n, Contract::no_collectives,
                                                    Contract::no_host_device_copies}});
  ASSERT_EQ(judgement.coverage.size(), 1U);
  EXPECT_EQ(judgement.coverage[0].steps, 50);
  EXPECT_EQ(judgement.coverage[0].covered, 48);
  EXPECT_EQ(judgement.coverage[0].median_update_ns, 100);
  for (const Verdict& verdict : judgement.verdicts) {
    EXPECT_EQ(verdict.status, *verdict.ordinal < 2 ? Status::unverified : Status::ok)
        << text(verdict);
  }
}

TEST(Contracts, DoNotVerifyKernelsWhoseCallsAreNotRecorded) {
  StepTrace builder;
  const auto rank = builder.gpu_rank(1, 2);
  builder.begin_step(rank);
  Event event = builder.kernel(rank, "ncclDevKernel_AllGather_RING_LL", 1);
  event.start_ns = builder.now() + 1;
  event.end_ns = builder.now() + 2;
  builder.trace().add(event);
  builder.count_launch(rank);
  builder.end_step(rank);
  for (const Verdict& verdict : judged(builder.finish(), Where::gpu).verdicts) {
    EXPECT_EQ(verdict.status, Status::unverified) << text(verdict);
  }
}

TEST(Contracts, DoNotVerifyAStepBesideWhichAnotherThreadGathers) {
  StepTrace cpu;
  Trace& trace = two_ranks(cpu, Where::cpu, [](StepTrace& builder, std::uint32_t rank) {
    builder.operation(rank, "gloo:all_gather", {}, 99);
  });
  const Judgement judgement = judged(trace, Where::cpu);
  expect_broken(judgement, {});
  const auto open = with_status(judgement, Status::unverified);
  ASSERT_EQ(open.count(Contract::no_all_gather), 1U);
  EXPECT_EQ(open.at(Contract::no_all_gather).offenders.at(0).name, "gloo:all_gather");
  EXPECT_EQ(open.count(Contract::local_n), 0U);
}

/// The verdicts on a step whose thread calls c10d's all-to-all, which is declared, while other
/// threads of the back end do what `beside` names.
Judgement declared_exchange(const std::vector<const char*>& beside,
                            std::int64_t returns_after = 90) {
  StepTrace builder;
  const auto rank = builder.cpu_rank(1, 2);
  builder.begin_step(rank);
  builder.update_operator(rank, 8192);
  const std::int64_t start = builder.now() + 10;
  Trace& trace = builder.trace();
  const auto add = [&](const char* name, std::int64_t from, std::int64_t to, std::uint64_t thread) {
    trace.add({.start_ns = start + from,
               .end_ns = start + to,
               .thread = thread,
               .name = trace.intern(name),
               .process = rank,
               .kind = EventKind::collective,
               .collective = collective_of_host(name)});
  };
  add("c10d::alltoall_base_", 0, returns_after, 7);
  for (std::size_t i = 0; i < beside.size(); ++i) {
    const auto at = static_cast<std::int64_t>(10 * (i + 1));
    add(beside[i], at, at + 8, 99);
  }
  for (int i = 0; i < 8; ++i) builder.operation(rank, "aten::add", {});
  builder.end_step(rank);
  const ContractOptions options{.contracts = {Contract::no_all_gather, Contract::no_collectives},
                                .collectives = std::vector{CollectiveKind::all_to_all}};
  return judged(builder.finish(), Where::cpu, options);
}

TEST(Contracts, VerifyADeclaredCollectiveWhoseWorkABackEndsThreadDoes) {
  for (const Verdict& verdict : declared_exchange({"gloo:all_to_all"}).verdicts) {
    EXPECT_EQ(verdict.status, Status::ok) << text(verdict);
  }
}

TEST(Contracts, VerifyADeclaredCollectiveThatReturnsBeforeItsWorkBegins) {
  for (const Verdict& verdict : declared_exchange({"gloo:all_to_all"}, 5).verdicts) {
    EXPECT_EQ(verdict.status, Status::ok) << text(verdict);
  }
}

TEST(Contracts, DoNotVerifyWhatABackEndsThreadDoesBeyondTheStepsCall) {
  for (const auto& beside :
       {std::vector{"gloo:all_to_all", "gloo:all_to_all"},  // once a call
        std::vector{"gloo:all_gather"}, std::vector{"gloo:all_to_all", "gloo:all_reduce"},
        // The same layer is another call, not the work of this one.
        std::vector{"c10d::alltoall_base_"}}) {
    const Judgement judgement = declared_exchange(beside);
    const auto open = with_status(judgement, Status::unverified);
    EXPECT_EQ(open.size(), 2U) << beside.back();
    EXPECT_EQ(worst(judgement.verdicts), Status::unverified);
    for (const auto& [contract, verdict] : open) {
      ASSERT_EQ(verdict.offenders.size(), 1U) << text(verdict);
      EXPECT_EQ(verdict.offenders[0].name, beside.back());
    }
  }
}

/// The verdict on local-n of a step that owns 4,096 of 8,192 elements, and whose update operators
/// are `outer` over 8,192 and, within it, `inner` over `handed_on`.
Verdict nested_updates(const char* outer, const char* inner, std::int64_t handed_on) {
  StepTrace builder;
  const auto rank = builder.cpu_rank(0, 1);
  builder.begin_step(rank);
  Trace& trace = builder.trace();
  const std::int64_t start = builder.now() + 10;
  const auto add = [&](const char* name, std::int64_t n, std::int64_t from, std::int64_t to) {
    trace.add({.start_ns = start + from,
               .end_ns = start + to,
               .thread = 7,
               .name = trace.intern(name),
               .detail = trace.add_inputs({{.shape = {n}, .argument = 0}}),
               .process = rank,
               .kind = EventKind::host_operator});
  };
  add(outer, 8192, 0, 40);
  add(inner, handed_on, 10, 30);
  for (int i = 0; i < 4; ++i) builder.operation(rank, "aten::add", {});
  builder.end_step(rank);
  ExpectedPlan plan;
  plan.ranks[0].tensors = {{.name = "w", .n = 4096, .whole = 8192}};
  const ContractOptions options{.contracts = {Contract::local_n}, .plan = &plan};
  const Judgement judgement = judge(builder.finish(), options);
  EXPECT_EQ(judgement.verdicts.size(), 1U);
  return judgement.verdicts.front();
}

TEST(Contracts, TakeTheLocalNOfADTensorsUpdateFromTheOperatorThatItsDispatchHandsOnTo) {
  constexpr const char* kFused = "aten::_fused_adamw_";
  const Verdict local = nested_updates(kFused, kFused, 4096);
  EXPECT_EQ(local.status, Status::ok) << text(local);
  const Verdict whole = nested_updates(kFused, kFused, 8192);
  EXPECT_EQ(whole.status, Status::broken) << text(whole);
  // Another operator within is a part of the update.
  const Verdict part = nested_updates(kFused, "aten::_fused_sgd_", 4096);
  EXPECT_EQ(part.status, Status::broken) << text(part);
}

TEST(Contracts, LookAtTheOptimizersPhaseAloneWhereAStepHasOne) {
  StepTrace builder;
  const auto rank = builder.cpu_rank(1, 2);
  builder.begin_step(rank);
  builder.in_range(rank, "stepscope:phase forward",
                   [&] { builder.operation(rank, "gloo:all_gather", {}); });
  builder.in_range(rank, "stepscope:phase optimizer", [&] {
    builder.update_operator(rank, 8192);
    builder.update_operator(rank, 5000);
  });
  builder.end_step(rank);
  const Judgement judgement = judged(builder.finish(), Where::cpu,
                                     {.contracts = {Contract::local_n, Contract::no_all_gather}});
  for (const Verdict& verdict : judgement.verdicts) {
    EXPECT_EQ(verdict.status, Status::ok) << text(verdict);
  }
}

TEST(Contracts, FindStepsByPyTorchsNameOrByAPattern) {
  StepTrace builder;
  const auto rank = builder.cpu_rank(0, 1);
  builder.in_range(rank, "Optimizer.step#AdamW8bit.step",
                   [&] { builder.operation(rank, "aten::add", {}); });
  builder.in_range(rank, "train 17", [&] { builder.operation(rank, "aten::add", {}); });
  Trace& trace = builder.finish();
  ASSERT_EQ(find_steps(trace, {}).size(), 1U);
  EXPECT_EQ(find_steps(trace, {})[0].label, "Optimizer.step#AdamW8bit.step");
  ASSERT_EQ(find_steps(trace, {.pattern = "^train [0-9]+$"}).size(), 1U);
  EXPECT_EQ(find_steps(trace, {.pattern = "^train [0-9]+$"})[0].label, "train 17");
  EXPECT_THROW(find_steps(trace, {.pattern = "("}), Error);
}

TEST(Contracts, VerifyNothingWithoutAStepOrAPlan) {
  StepTrace builder;
  const auto rank = builder.cpu_rank(0, 1);
  builder.update_operator(rank, 4);
  Trace& trace = builder.finish();
  for (const Verdict& verdict : judge(trace, {}).verdicts) {
    EXPECT_EQ(verdict.status, Status::unverified);
    EXPECT_EQ(verdict.reason, "no range marks a step");
  }
  EXPECT_EQ(worst(judge(Trace(), {}).verdicts), Status::unverified);
  StepTrace with_steps;
  const Judgement judgement =
      judge(two_ranks(with_steps, Where::cpu), {.contracts = {Contract::local_n}});
  EXPECT_EQ(judgement.verdicts.at(0).reason, "no shard plan is given");
}

TEST(Contracts, DoNotVerifyARankOrWorldThatIsNotThePlans) {
  const auto reason = [](Process process) {
    StepTrace builder;
    const auto rank = builder.cpu_rank(0, 1);
    builder.trace().process(rank) = std::move(process);
    builder.begin_step(rank);
    builder.update_operator(rank, 8192);
    builder.end_step(rank);
    return judged(builder.finish(), Where::cpu, {.contracts = {Contract::local_n}})
        .verdicts.at(0)
        .reason;
  };
  EXPECT_EQ(reason({}), "the rank of the trace is not known");
  EXPECT_EQ(reason({.rank = 5}), "rank 5 is not in the plan");
  EXPECT_EQ(reason({.rank = 0, .world_size = 4}), "the trace is of 4 ranks, the plan of 2");
}

// Conditions that decide, one by one.

/// The one verdict of `contract` on the one step of a trace, judged by the plan.
Verdict on_one_step(Trace& trace, Contract contract, ContractOptions options = {}) {
  static const ExpectedPlan expected = plan();
  options.contracts = {contract};
  options.plan = &expected;
  const Judgement judgement = judge(trace, options);
  for (const Verdict& verdict : judgement.verdicts) {
    if (verdict.ordinal) return verdict;
  }
  ADD_FAILURE() << "no step was judged";
  return {};
}

/// One step of rank 1, which is what `body` adds.
template <typename Body>
Trace& one_step(StepTrace& builder, Where where, const Body& body) {
  const auto rank = where == Where::gpu ? builder.gpu_rank(1, 2) : builder.cpu_rank(1, 2);
  builder.begin_step(rank);
  body(rank);
  builder.end_step(rank);
  return builder.finish();
}

TEST(Contracts, AreWorstBrokenWhateverComesAfterIt) {
  const auto verdict = [](Status status) { return Verdict{.status = status}; };
  const Verdict ok = verdict(Status::ok);
  const Verdict open = verdict(Status::unverified);
  const Verdict broken = verdict(Status::broken);
  EXPECT_EQ(worst({ok, broken, open, ok}), Status::broken);
  EXPECT_EQ(worst({open, broken}), Status::broken);
  EXPECT_EQ(worst({open, ok}), Status::unverified);
  EXPECT_EQ(worst({ok, ok}), Status::ok);
}

TEST(Contracts, VerifyNothingOfAHostThatLostOneRecord) {
  StepTrace builder;
  Trace& trace = two_ranks(builder, Where::cpu);
  trace.process(1).host_dropped = 1;
  const Judgement judgement = judged(trace, Where::cpu);
  expect_broken(judgement, {Contract::complete_trace});
  for (const Verdict& verdict : judgement.verdicts) {
    if (verdict.rank != 1 || !verdict.ordinal) continue;
    EXPECT_EQ(verdict.status, Status::unverified) << text(verdict);
    EXPECT_EQ(verdict.reason, "1 record was dropped somewhere");
  }
}

TEST(Contracts, DoNotVerifyACollectiveOfUnknownKind) {
  for (const std::uint64_t thread : {7U, 99U}) {
    StepTrace builder;
    Trace& trace = one_step(builder, Where::cpu, [&](std::uint32_t rank) {
      builder.update_operator(rank, 8192);
      builder.trace().add({.start_ns = builder.now(),
                           .end_ns = builder.now() + 5,
                           .thread = thread,
                           .name = builder.trace().intern("c10d::something_new"),
                           .process = rank,
                           .kind = EventKind::collective});
    });
    const Verdict gather = on_one_step(trace, Contract::no_all_gather);
    EXPECT_EQ(gather.status, Status::unverified) << text(gather);
    ASSERT_EQ(gather.offenders.size(), 1U) << text(gather);
    EXPECT_EQ(on_one_step(trace, Contract::no_collectives).status,
              thread == 7 ? Status::broken : Status::unverified);
  }
}

TEST(Contracts, BreakOnACopyToTheDevice) {
  StepTrace gpu;
  Trace& trace = two_ranks(gpu, Where::gpu, [](StepTrace& builder, std::uint32_t rank) {
    builder.copy(rank, CopyDirection::host_to_device, 8);
  });
  const auto broken = expect_broken(judged(trace, Where::gpu), {Contract::no_host_device_copies});
  EXPECT_EQ(broken.at(Contract::no_host_device_copies).reason, "1 copy between host and device");
}

TEST(Contracts, VerifyCopiesOnlyWhereADeviceWouldHaveBeenSeen) {
  // Calls of the runtime are recorded, so that a copy would have been one.
  StepTrace idle;
  Trace& calls = one_step(idle, Where::gpu, [&](std::uint32_t rank) {
    idle.call(rank, "cudaStreamIsCapturing_v10000");
  });
  calls.process(0).host_dropped = 0;
  const Verdict with_calls = on_one_step(calls, Contract::no_host_device_copies);
  EXPECT_EQ(with_calls.status, Status::ok) << text(with_calls);
  // Operators alone, on tensors of a device.
  StepTrace blind;
  Trace& operators = one_step(blind, Where::cpu, [&](std::uint32_t rank) {
    blind.operation(rank, "aten::add", {{.shape = {4}, .on_device = true}});
  });
  const Verdict without = on_one_step(operators, Contract::no_host_device_copies);
  EXPECT_EQ(without.status, Status::unverified) << text(without);
  EXPECT_EQ(without.reason, "no activity of a device was recorded");
}

TEST(Contracts, DoNotVerifyAStepBesideWhichAnotherThreadCopies) {
  StepTrace cpu;
  Trace& trace = one_step(cpu, Where::cpu, [&](std::uint32_t rank) {
    cpu.update_operator(rank, 8192);
    cpu.operation(rank, "aten::copy_",
                  {{.shape = {4}}, {.shape = {4}, .argument = 1, .on_device = true}}, 99);
    cpu.call(rank, "cudaStreamIsCapturing_v10000");
  });
  const Verdict verdict = on_one_step(trace, Contract::no_host_device_copies);
  EXPECT_EQ(verdict.status, Status::unverified) << text(verdict);
  ASSERT_EQ(verdict.offenders.size(), 1U) << text(verdict);
  EXPECT_EQ(verdict.offenders[0].name, "aten::copy_");
}

TEST(Contracts, BreakOnOneUpdateFewerThanOnPlainTensors) {
  const auto updates = [](StepTrace& builder, int count) -> Trace& {
    return one_step(builder, Where::gpu, [&](std::uint32_t rank) {
      for (int i = 0; i < count; ++i) builder.update(rank, 8192);
    });
  };
  StepTrace builder;
  StepTrace plain;
  Trace& trace = updates(builder, 1);
  const ContractOptions options{.against = &updates(plain, 2)};
  const Verdict verdict = on_one_step(trace, Contract::no_extra_launches, options);
  EXPECT_EQ(verdict.status, Status::broken) << text(verdict);
  EXPECT_EQ(verdict.reason, std::string(kUpdateKernel) + " 1 time, 2 on plain tensors");
  // It may have been lost.
  trace.process(0).dropped = 1;
  EXPECT_EQ(on_one_step(trace, Contract::no_extra_launches, options).status, Status::unverified);
}

TEST(Contracts, CompareAStepWithThePlainStepOfItsPlaceAndRank) {
  // The first step makes its state with a kernel of its own; rank 1 launches one more in each.
  const auto steps = [](StepTrace& builder, int count, int more_from) -> Trace& {
    for (const std::int64_t number : {0, 1}) {
      const auto rank = builder.gpu_rank(number, 2);
      for (int step = 0; step < count; ++step) {
        builder.begin_step(rank);
        builder.update(rank, 8192);
        if (step == 0 || step >= more_from) builder.launch(rank, "fill");
        if (number == 1) builder.launch(rank, "more");
        builder.end_step(rank);
      }
    }
    return builder.finish();
  };
  const auto broken = [&](int count, int more_from) {
    StepTrace builder;
    StepTrace plain;
    const ContractOptions options{.contracts = {Contract::no_extra_launches},
                                  .against = &steps(plain, 2, 9)};
    std::set<std::string> found;
    for (const Verdict& verdict : judge(steps(builder, count, more_from), options).verdicts) {
      if (verdict.status == Status::ok) continue;
      EXPECT_EQ(verdict.reason, "fill 1 time, 0 on plain tensors") << text(verdict);
      found.insert(std::to_string(*verdict.rank) + verdict.step);
    }
    return found;
  };
  EXPECT_EQ(broken(2, 9), std::set<std::string>{});
  // The plain run has two steps: its last one stands for those after it.
  EXPECT_EQ(broken(4, 9), std::set<std::string>{});
  EXPECT_EQ(broken(4, 3), (std::set<std::string>{"0step 3", "1step 3"}));
}

TEST(Contracts, DoNotVerifyLaunchesAgainstATraceOfAnotherKind) {
  StepTrace builder;
  const auto update = [](StepTrace& one, Where where) -> Trace& {
    return one_step(one, where, [&](std::uint32_t rank) {
      where == Where::gpu ? one.update(rank, 8192) : one.update_operator(rank, 8192);
    });
  };
  Trace& trace = update(builder, Where::gpu);
  StepTrace on_cpu;
  const Verdict other =
      on_one_step(trace, Contract::no_extra_launches, {.against = &update(on_cpu, Where::cpu)});
  EXPECT_EQ(other.status, Status::unverified);
  EXPECT_EQ(other.reason, "only one of the two traces has kernels");
  StepTrace no_calls;
  Trace& by_time = one_step(no_calls, Where::gpu, [&](std::uint32_t rank) {
    Event event = no_calls.kernel(rank, kUpdateKernel, 1);
    event.start_ns = no_calls.now() + 1;
    event.end_ns = no_calls.now() + 2;
    no_calls.trace().add(event);
  });
  const Verdict blind = on_one_step(trace, Contract::no_extra_launches, {.against = &by_time});
  EXPECT_EQ(blind.status, Status::unverified);
  EXPECT_EQ(blind.reason, "no API call is recorded in the plain trace");
}

TEST(Contracts, BreakCompleteTraceOnMoreKernelsThanLaunches) {
  StepTrace gpu;
  Trace& trace = two_ranks(gpu, Where::gpu);
  *trace.process(1).launched -= 1;
  const auto broken = expect_broken(judged(trace, Where::gpu), {Contract::complete_trace});
  EXPECT_EQ(broken.at(Contract::complete_trace).reason,
            "5 launches, 6 kernels received, none reported as dropped");
}

TEST(Contracts, DoNotVerifyCompletenessOfAHostThatCannotSayWhatItLost) {
  StepTrace cpu;
  Trace& trace = two_ranks(cpu, Where::cpu);
  for (const std::uint32_t rank : {0U, 1U}) trace.process(rank).host_dropped.reset();
  const auto open = with_status(judged(trace, Where::cpu), Status::unverified);
  ASSERT_EQ(open.count(Contract::complete_trace), 1U);
  EXPECT_EQ(open.at(Contract::complete_trace).reason,
            "the source does not say whether it lost records");
}

TEST(Contracts, DoNotCountWhatAGraphStarts) {
  StepTrace gpu;
  Trace& trace = two_ranks(gpu, Where::gpu, [](StepTrace& builder, std::uint32_t rank) {
    const std::uint64_t graph = builder.call(rank, "cudaGraphLaunch_v10000");
    for (int i = 0; i < 2; ++i) {
      builder.trace().add(builder.kernel(rank, "in a graph", graph));
    }
    builder.count_launch(rank);
  });
  const auto open = with_status(judged(trace, Where::gpu), Status::unverified);
  ASSERT_EQ(open.count(Contract::complete_trace), 1U);
  EXPECT_EQ(open.at(Contract::complete_trace).reason,
            "7 launches, 8 kernels received; graphs start many with one");
}

TEST(Contracts, BreakCompleteTraceOnAKernelWithoutItsLaunchBetweenSteps) {
  StepTrace gpu;
  Trace& trace = two_ranks(gpu, Where::gpu);
  Event event = gpu.kernel(1, kUpdateKernel, 987654);
  event.start_ns = 1;
  event.end_ns = 2;
  trace.add(event);
  *trace.process(1).launched += 1;
  trace.finish();
  const auto broken = expect_broken(judged(trace, Where::gpu), {Contract::complete_trace});
  EXPECT_FALSE(broken.at(Contract::complete_trace).ordinal.has_value());
  EXPECT_EQ(broken.at(Contract::complete_trace).reason, "1 kernel has no launch in the trace");
}

TEST(Contracts, WantEveryDeclaredCollectiveThatIsNotLost) {
  StepTrace builder;
  Trace& trace = one_step(builder, Where::cpu, [&](std::uint32_t rank) {
    builder.operation(rank, "gloo:all_to_all", {{.shape = {9}}});
  });
  const ContractOptions two{
      .collectives = std::vector{CollectiveKind::all_to_all, CollectiveKind::all_reduce}};
  const Verdict missing = on_one_step(trace, Contract::no_collectives, two);
  EXPECT_EQ(missing.status, Status::broken) << text(missing);
  EXPECT_EQ(missing.reason, "the declared all-reduce is not in the step");
  trace.process(0).host_dropped = 1;
  EXPECT_EQ(on_one_step(trace, Contract::no_collectives, two).status, Status::unverified);
}

TEST(Contracts, TakeSendsAndReceivesAndNothingElseForADeclaredAllToAll) {
  const auto status = [](const char* kernel) {
    StepTrace builder;
    Trace& trace =
        one_step(builder, Where::gpu, [&](std::uint32_t rank) { builder.launch(rank, kernel); });
    return on_one_step(trace, Contract::no_collectives,
                       {.collectives = std::vector{CollectiveKind::all_to_all}})
        .status;
  };
  EXPECT_EQ(status("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"), Status::ok);
  EXPECT_EQ(status("ncclDevKernel_AllReduce_Sum_f32_RING_LL()"), Status::broken);
}

TEST(Contracts, BelieveNeitherOperatorNorKernelAlone) {
  // The operator was handed more than the kernel says it stepped.
  StepTrace both;
  Trace& differing = one_step(both, Where::gpu, [&](std::uint32_t rank) {
    both.update_operator(rank, 16384);
    both.update(rank, 8192);
    both.update(rank, 5000);
  });
  EXPECT_EQ(on_one_step(differing, Contract::local_n).status, Status::broken);
  // The operators' sizes are the plan's, and what they started on the device nobody saw.
  StepTrace unseen;
  Trace& operators = one_step(unseen, Where::cpu, [&](std::uint32_t rank) {
    for (const std::int64_t n : {8192, 5000}) {
      unseen.operation(rank, kUpdateOperator, {{.shape = {n}, .argument = 2, .on_device = true}});
    }
  });
  const Verdict verdict = on_one_step(operators, Contract::local_n);
  EXPECT_EQ(verdict.status, Status::unverified) << text(verdict);
  EXPECT_EQ(verdict.reason, "the operators have the plan's sizes; their kernels were not recorded");
}

TEST(Contracts, BreakLocalNWhereAKernelReadsAnEmptyShardBeforeTheUpdate) {
  const auto status = [](std::int64_t n) {
    StepTrace builder;
    Trace& trace = one_step(builder, Where::gpu, [&](std::uint32_t rank) {
      Event event = builder.kernel(rank, "kPreconditionOptimizer32bit2State<float>",
                                   builder.call(rank, "cudaLaunchKernel_v7000"));
      event.value = n;
      event.value_source = ValueSource::exact;
      builder.trace().add(event);
      builder.count_launch(rank);
      builder.update(rank, 8192);
      builder.update(rank, 5000);
    });
    return on_one_step(trace, Contract::local_n).status;
  };
  EXPECT_EQ(status(5000), Status::ok);
  EXPECT_EQ(status(0), Status::broken);
  EXPECT_EQ(status(10000), Status::broken);
}

TEST(Contracts, DoNotVerifySeveralKernelsThatEachStepManyTensors) {
  StepTrace builder;
  Trace& trace = one_step(builder, Where::gpu, [&](std::uint32_t rank) {
    for (const std::int64_t blocks : {26, 26}) {  // together the plan's 52
      Event event = builder.kernel(rank, "stepscope_adamw_step(StepArguments)",
                                   builder.call(rank, "cuLaunchKernelEx"));
      event.value = blocks * 256;
      event.value_source = ValueSource::grid_bound;
      builder.trace().add(event);
      builder.count_launch(rank);
    }
  });
  const Verdict verdict = on_one_step(trace, Contract::local_n);
  EXPECT_EQ(verdict.status, Status::unverified) << text(verdict);
}

TEST(Contracts, VerifyNoStepWhoseKernelsWereNotRecordedAndDoNotCountIt) {
  // A profiler that began late: the first step has calls and no kernels.
  StepTrace builder;
  const auto rank = builder.gpu_rank(1, 2);
  for (int step = 0; step < 2; ++step) {
    builder.begin_step(rank);
    builder.call(rank, "cudaStreamIsCapturing_v10000");
    if (step == 1) builder.update(rank, 8192);
    builder.end_step(rank);
  }
  Trace& trace = builder.finish();
  trace.process(0).dropped.reset();
  trace.process(0).launched.reset();
  const Judgement judgement = judged(trace, Where::gpu, {.contracts = {Contract::no_collectives}});
  ASSERT_EQ(judgement.coverage.size(), 1U);
  EXPECT_EQ(judgement.coverage[0].steps, 2);
  EXPECT_EQ(judgement.coverage[0].covered, 1);
  ASSERT_EQ(judgement.verdicts.size(), 2U);
  EXPECT_EQ(judgement.verdicts[0].status, Status::unverified);
  EXPECT_EQ(judgement.verdicts[0].reason, "no kernel was recorded in this step");
  EXPECT_EQ(judgement.verdicts[1].status, Status::ok);
}

TEST(Contracts, DoNotCallAStepCompleteOfWhichNothingWasRecorded) {
  StepTrace builder;
  const auto rank = builder.gpu_rank(1, 2);
  for (int step = 0; step < 2; ++step) {
    builder.begin_step(rank);
    if (step == 1) builder.update(rank, 8192);
    builder.end_step(rank);
  }
  Trace& trace = builder.finish();
  trace.process(0).dropped.reset();
  const Verdict first = on_one_step(trace, Contract::complete_trace);
  EXPECT_EQ(first.status, Status::unverified) << text(first);
  EXPECT_EQ(first.reason, "nothing was recorded in this step");
}

}  // namespace
}  // namespace stepscope::tracer
