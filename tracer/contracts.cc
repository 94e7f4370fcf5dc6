#include "tracer/contracts.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tracer/collective_names.h"
#include "tracer/local_n.h"
#include "tracer/range_path.h"
#include "tracer/step_contents.h"

namespace stepscope::tracer {
namespace {

/// What one contract comes to on one step; `events` speak against it.
struct Finding {
  Status status = Status::ok;
  std::string reason;
  EventIndices events;
  std::vector<std::optional<std::int64_t>> values = {};  ///< of `events`, where not their own
};

Finding unverified(std::string reason, EventIndices events = {}) {
  return {Status::unverified, std::move(reason), std::move(events)};
}

Finding broken(std::string reason, EventIndices events = {}) {
  return {Status::broken, std::move(reason), std::move(events)};
}

std::string count_of(std::int64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

std::string count_of(std::size_t count, const std::string& one, const std::string& many) {
  return count_of(static_cast<std::int64_t>(count), one, many);
}

/// Names and how often each is there.
using NameCounts = std::map<std::string_view, std::int64_t>;

NameCounts count_names(const Trace& trace, const EventIndices& events) {
  std::vector<std::uint32_t> names;
  names.reserve(events.size());
  for (const std::uint32_t event : events) names.push_back(trace.events()[event].name);
  std::sort(names.begin(), names.end());
  NameCounts counts;
  for (std::size_t i = 0; i < names.size();) {
    std::size_t end = i;
    while (end < names.size() && names[end] == names[i]) ++end;
    counts[trace.text(names[i])] += static_cast<std::int64_t>(end - i);
    i = end;
  }
  return counts;
}

class Judge {
 public:
  Judge(const Trace& trace, const ContractOptions& options)
      : trace_(trace),
        options_(options),
        contents_(trace, find_steps(trace, options.steps)),
        contracts_(options.contracts.empty() ? all_contracts() : options.contracts) {
    if (options.against != nullptr) {
      against_.emplace(*options.against, find_steps(*options.against, options.steps));
    }
    if (options.collectives) {
      declared_ = *options.collectives;
    } else if (options.plan != nullptr) {
      declared_ = options.plan->collectives;
    }
  }

  Judgement run() {
    std::size_t step = 0;
    for (std::uint32_t process = 0; process < trace_.processes().size(); ++process) {
      Coverage coverage{.rank = trace_.processes()[process].rank};
      const ProcessFacts& facts = contents_.process(process);
      coverage.device = facts.device_events;
      std::vector<std::int64_t> update_ns;
      for (; step < contents_.steps().size() && contents_.steps()[step].process == process;
           ++step) {
        judge_step(step);
        const InStep& in_step = contents_.in_step(step);
        ++coverage.steps;
        const bool covered =
            facts.device_events ? !in_step.kernels.empty() : in_step.activities > 0;
        if (!covered) continue;
        ++coverage.covered;
        const auto time =
            total_ns(facts.device_events ? in_step.update_kernels : in_step.update_operators);
        if (time > 0) update_ns.push_back(time);
      }
      if (!update_ns.empty()) {
        const auto middle = update_ns.begin() + static_cast<std::ptrdiff_t>(update_ns.size() / 2);
        std::nth_element(update_ns.begin(), middle, update_ns.end());
        coverage.median_update_ns = *middle;
      }
      judge_process(process, coverage.steps);
      judgement_.coverage.push_back(coverage);
    }
    name_ranges();
    return std::move(judgement_);
  }

 private:
  // -- what a step shows, contract by contract ----------------------------------------------------

  Finding find(Contract contract, std::size_t step) {
    const ProcessFacts& facts = contents_.process(contents_.steps()[step].process);
    if (facts.by_time) {
      return unverified("no API call is recorded, so that a kernel's step is not known");
    }
    switch (contract) {
      case Contract::local_n:
        return local_n(step);
      case Contract::no_all_gather:
        return no_all_gather(step);
      case Contract::no_collectives:
        return no_collectives(step);
      case Contract::no_host_device_copies:
        return no_host_device_copies(step);
      case Contract::no_extra_launches:
        return no_extra_launches(step);
      case Contract::complete_trace:
        return joined(step);
    }
    return unverified("unknown contract");
  }

  /// Why what is not in the trace may have happened all the same; empty where it cannot.
  std::string doubt(std::size_t step) const {
    const std::uint32_t number = contents_.steps()[step].process;
    const Process& process = trace_.processes()[number];
    const ProcessFacts& facts = contents_.process(number);
    const InStep& in_step = contents_.in_step(step);
    const std::int64_t dropped = process.dropped.value_or(0) + process.host_dropped.value_or(0);
    if (dropped > 0) {
      return count_of(dropped, "record was dropped", "records were dropped") + " somewhere";
    }
    if (!in_step.launches_without_kernel.empty()) {
      return count_of(in_step.launches_without_kernel.size(), "launch has", "launches have") +
             " no kernel in the trace";
    }
    if (!in_step.kernels_without_launch.empty()) {
      return count_of(in_step.kernels_without_launch.size(), "kernel has", "kernels have") +
             " no launch in the trace";
    }
    const bool counted =
        facts.device_events ? process.dropped.has_value() : process.host_dropped.has_value();
    if (!counted && facts.device_events && in_step.kernels.empty()) {
      return "no kernel was recorded in this step";
    }
    if (!counted && in_step.activities == 0) return "nothing was recorded in this step";
    return "";
  }

  CollectiveKind collective_kind(std::uint32_t index) const {
    const Event& event = trace_.events()[index];
    if (event.collective != CollectiveKind::none) return event.collective;
    const CollectiveKind kind = event.device == kHost ? collective_of_host(trace_.name(event))
                                                      : collective_of_kernel(trace_.name(event));
    return kind == CollectiveKind::none ? CollectiveKind::other : kind;
  }

  /// Collectives of other threads, or without a call, in the step's time.
  EventIndices collectives_meanwhile(const InStep& in_step) const {
    EventIndices result;
    for (const std::uint32_t index : in_step.meanwhile) {
      const Event& event = trace_.events()[index];
      const bool is_one = event.kind == EventKind::collective ||
                          event.collective != CollectiveKind::none ||
                          (event.device == kHost
                               ? collective_of_host(trace_.name(event))
                               : collective_of_kernel(trace_.name(event))) != CollectiveKind::none;
      if (is_one) result.push_back(index);
    }
    return result;
  }

  Finding no_all_gather(std::size_t step) const {
    const InStep& in_step = contents_.in_step(step);
    EventIndices gathers;
    EventIndices unknown;
    for (const EventIndices* events : {&in_step.host_collectives, &in_step.device_collectives}) {
      for (const std::uint32_t event : *events) {
        const CollectiveKind kind = collective_kind(event);
        if (kind == CollectiveKind::all_gather) gathers.push_back(event);
        if (kind == CollectiveKind::other) unknown.push_back(event);
      }
    }
    if (!gathers.empty()) {
      return broken(count_of(gathers.size(), "all-gather", "all-gathers") + " in the step",
                    gathers);
    }
    if (!unknown.empty()) return unverified("a collective of an unknown kind", unknown);
    return unless_doubtful(step, collectives_meanwhile(in_step),
                           "a collective without a call of the step's thread in the step's time");
  }

  /// What is missing is no proof where the trace may lack it.
  Finding unless_lost(std::size_t step, Finding finding) const {
    if (finding.status != Status::broken || !finding.events.empty()) return finding;
    if (std::string reason = doubt(step); !reason.empty()) return unverified(std::move(reason));
    return finding;
  }

  Finding no_collectives(std::size_t step) const {
    const InStep& in_step = contents_.in_step(step);
    bool seen = false;
    for (const EventIndices* events : {&in_step.host_collectives, &in_step.device_collectives}) {
      if (events->empty()) continue;
      seen = true;
      Finding finding = unless_lost(step, against_declared(*events));
      if (finding.status != Status::ok) return finding;
    }
    Finding finding =
        unless_doubtful(step, collectives_meanwhile(in_step),
                        "a collective without a call of the step's thread in the step's time");
    if (finding.status == Status::ok && !seen && !declared_.empty()) {
      return broken("the declared " + std::string(collective_kind_name(declared_.front())) +
                    " is not in the step");
    }
    return finding;
  }

  /// NCCL runs an all-to-all as sends and receives of one kernel.
  static bool same_kind(CollectiveKind declared, CollectiveKind seen) {
    return declared == seen ||
           (declared == CollectiveKind::all_to_all && seen == CollectiveKind::send_receive);
  }

  Finding against_declared(const EventIndices& events) const {
    std::vector<CollectiveKind> left = declared_;
    EventIndices extra;
    for (const std::uint32_t event : events) {
      const CollectiveKind kind = collective_kind(event);
      const auto found = std::find_if(left.begin(), left.end(), [&](CollectiveKind declared) {
        return same_kind(declared, kind);
      });
      if (found == left.end()) {
        extra.push_back(event);
      } else {
        left.erase(found);
      }
    }
    if (!extra.empty()) {
      const std::string what = collective_kind_names(extra);
      return broken(
          declared_.empty() ? what + " in the step" : what + " in the step beside what is declared",
          extra);
    }
    if (left.empty()) return {};
    return broken("the declared " + std::string(collective_kind_name(left.front())) +
                  " is not in the step");
  }

  /// "2 all-gathers and 1 broadcast"
  std::string collective_kind_names(const EventIndices& events) const {
    std::map<std::string_view, std::int64_t> counts;
    for (const std::uint32_t event : events) ++counts[collective_kind_name(collective_kind(event))];
    std::string text;
    for (const auto& [name, count] : counts) {
      text += text.empty() ? "" : " and ";
      text += name == "other" ? count_of(count, "other collective", "other collectives")
                              : count_of(count, std::string(name), std::string(name) + "s");
    }
    return text;
  }

  /// ok, unless the trace may lack what was looked for, or it happened beside the step's thread.
  Finding unless_doubtful(std::size_t step, EventIndices meanwhile, const std::string& what) const {
    if (std::string reason = doubt(step); !reason.empty()) return unverified(std::move(reason));
    if (!meanwhile.empty()) return unverified(what, std::move(meanwhile));
    return {};
  }

  Finding no_host_device_copies(std::size_t step) const {
    const std::uint32_t number = contents_.steps()[step].process;
    const InStep& in_step = contents_.in_step(step);
    EventIndices crossing;
    EventIndices unknown;
    for (const std::uint32_t index : in_step.copies) {
      const Event& event = trace_.events()[index];
      if (event.kind == EventKind::host_operator ||
          event.direction == CopyDirection::host_to_device ||
          event.direction == CopyDirection::device_to_host) {
        crossing.push_back(index);
      } else if (event.direction == CopyDirection::unknown) {
        unknown.push_back(index);
      }
    }
    if (!crossing.empty()) {
      return broken(count_of(crossing.size(), "copy", "copies") + " between host and device",
                    crossing);
    }
    if (!unknown.empty()) return unverified("a copy whose direction is not known", unknown);
    if (!in_step.copies_without_record.empty()) {
      return unverified("a copying call of which no copy is recorded",
                        in_step.copies_without_record);
    }
    const ProcessFacts& facts = contents_.process(number);
    if (!facts.device_events && !facts.api_calls && !without_device(number)) {
      return unverified("no activity of a device was recorded");
    }
    EventIndices meanwhile;
    for (const std::uint32_t index : in_step.meanwhile) {
      const Event& event = trace_.events()[index];
      if (event.kind == EventKind::copy || operator_crosses(trace_, event)) {
        meanwhile.push_back(index);
      }
    }
    return unless_doubtful(step, meanwhile,
                           "a copy without a call of the step's thread in the step's time");
  }

  /// Whether the process kept nothing on a device, as its source says of every tensor.
  bool without_device(std::uint32_t process) const {
    return !contents_.process(process).device_tensors &&
           trace_.processes()[process].source.find("record-function") != std::string::npos;
  }

  Finding joined(std::size_t step) const {
    const InStep& in_step = contents_.in_step(step);
    const auto left_out = trace_.health().total() - trace_.health().duplicates;
    const std::string note = left_out == 0 ? ""
                                           : " (" + count_of(left_out, "record", "records") +
                                                 " with impossible times were left out)";
    if (!in_step.launches_without_kernel.empty()) {
      return broken(
          count_of(in_step.launches_without_kernel.size(), "launch has", "launches have") +
              " no kernel in the trace" + note,
          in_step.launches_without_kernel);
    }
    if (!in_step.kernels_without_launch.empty()) {
      return broken(count_of(in_step.kernels_without_launch.size(), "kernel has", "kernels have") +
                        " no launch in the trace" + note,
                    in_step.kernels_without_launch);
    }
    if (!in_step.copies_without_record.empty()) {
      return broken(
          count_of(in_step.copies_without_record.size(), "copying call has", "copying calls have") +
              " no copy in the trace" + note,
          in_step.copies_without_record);
    }
    if (in_step.activities == 0 && !trace_.processes()[contents_.steps()[step].process].dropped) {
      return unverified("nothing was recorded in this step");
    }
    return {};
  }

  // -- local-n ------------------------------------------------------------------------------------

  Finding local_n(std::size_t step) const {
    const std::uint32_t number = contents_.steps()[step].process;
    const Process& process = trace_.processes()[number];
    if (options_.plan == nullptr) return unverified("no shard plan is given");
    if (!process.rank) return unverified("the rank of the trace is not known");
    if (process.world_size && *process.world_size != options_.plan->world_size) {
      return unverified("the trace is of " + std::to_string(*process.world_size) +
                        " ranks, the plan of " + std::to_string(options_.plan->world_size));
    }
    const ExpectedRank* expected = options_.plan->rank(*process.rank);
    if (expected == nullptr) {
      return unverified("rank " + std::to_string(*process.rank) + " is not in the plan");
    }
    const InStep& in_step = contents_.in_step(step);
    const bool nothing_planned =
        std::none_of(expected->tensors.begin(), expected->tensors.end(),
                     [](const ExpectedTensor& tensor) { return tensor.n > 0; });
    if (in_step.update_kernels.empty() && in_step.update_operators.empty()) {
      return without_updates(step, nothing_planned);
    }
    Finding finding = unless_lost(step, all_sizes(*expected, in_step, number));
    if (finding.status != Status::ok) return finding;
    return unless_doubtful(step, {}, "");
  }

  Finding all_sizes(const ExpectedRank& expected, const InStep& in_step,
                    std::uint32_t process) const {
    Finding by_operators;
    if (!in_step.update_operators.empty()) {
      by_operators = operator_sizes(expected, in_step.update_operators);
      if (by_operators.status == Status::broken) return by_operators;
    }
    if (!in_step.update_kernels.empty()) {
      Finding by_kernels = kernel_sizes(expected, in_step);
      const bool bounded = by_kernels.status == Status::unverified;
      if (bounded && by_operators.status == Status::ok && operator_launched(in_step)) return {};
      return by_kernels;
    }
    if (by_operators.status == Status::ok && contents_.process(process).device_tensors) {
      return unverified("the operators have the plan's sizes; their kernels were not recorded");
    }
    return by_operators;
  }

  /// Whether the step's one update is a kernel over all tensors, of which the launch says the
  /// number of blocks, and the update's operator launched it: then that operator's sizes, which
  /// have as many blocks, are the kernel's.
  bool operator_launched(const InStep& in_step) const {
    if (in_step.update_kernels.size() != 1 || in_step.update_operators.size() != 1) return false;
    const Event& kernel = trace_.events()[in_step.update_kernels.front()];
    const UpdateRule& rule = *update_kernel(trace_.name(kernel));
    if (rule.scope != UpdateScope::all_tensors || rule.elements_per_block == 0 ||
        kernel.value == kNoValue) {
      return false;
    }
    const Event& update = trace_.events()[in_step.update_operators.front()];
    const auto call = contents_.host_side(in_step.update_kernels.front());
    if (!call || trace_.events()[*call].thread != update.thread) return false;
    return trace_.events()[*call].start_ns >= update.start_ns &&
           trace_.events()[*call].end_ns <= update.end_ns;
  }

  Finding without_updates(std::size_t step, bool nothing_planned) const {
    if (std::string reason = doubt(step); !reason.empty()) return unverified(std::move(reason));
    if (nothing_planned) return {};
    const InStep& in_step = contents_.in_step(step);
    if (in_step.activities == 0) return broken("nothing was stepped; the plan has local tensors");
    return unverified("none of the step's " +
                      (in_step.kernels.empty()
                           ? count_of(in_step.activities, "activity", "activities")
                           : count_of(in_step.kernels.size(), "kernel", "kernels")) +
                      " is known to update parameters");
  }

  Finding from_sizes(SizeVerdict sizes) const {
    Finding finding{sizes.status, std::move(sizes.reason), {}};
    for (const UpdateSize& size : sizes.offenders) {
      finding.events.push_back(size.event);
      finding.values.push_back(size.low == size.high ? size.low : std::nullopt);
    }
    return finding;
  }

  Finding operator_sizes(const ExpectedRank& expected, const EventIndices& operators) const {
    std::vector<UpdateSize> sizes;
    for (const std::uint32_t index : operators) {
      const Event& event = trace_.events()[index];
      const UpdateRule& rule = *update_operator(trace_.name(event));
      const std::size_t before = sizes.size();
      if (event.detail != kNoDetail) {
        for (const TensorInput& input : trace_.inputs(event.detail)) {
          if (rule.scope != UpdateScope::each_input && input.argument != rule.argument) continue;
          const std::int64_t numel = input.numel();
          UpdateSize size{.event = index, .low = numel, .high = numel};
          if (numel == kNoValue) size.low = size.high = std::nullopt;
          sizes.push_back(size);
        }
      }
      if (sizes.size() == before) sizes.push_back({.event = index, .low = {}, .high = {}});
    }
    return from_sizes(compare_sizes(expected.tensors, sizes));
  }

  /// What a kernel says of its n: the launch's parameter, else its grid.
  UpdateSize kernel_size(std::uint32_t index, const UpdateRule& rule) const {
    const Event& event = trace_.events()[index];
    UpdateSize size{.event = index, .low = {}, .high = {}};
    if (event.value_source == ValueSource::exact && event.value != kNoValue) {
      size.low = size.high = event.value;
      return size;
    }
    if (rule.elements_per_block == 0) return size;
    std::int64_t most = event.value_source == ValueSource::grid_bound ? event.value : kNoValue;
    if (event.detail != kNoDetail) {
      most = rule.elements_per_block;
      for (const std::int64_t extent : trace_.launch(event.detail).grid) {
        if (extent < 1 || __builtin_mul_overflow(most, extent, &most)) return size;
      }
    }
    if (most < rule.elements_per_block) return size;
    size.high = most;
    size.low = most - rule.elements_per_block + 1;
    return size;
  }

  Finding kernel_sizes(const ExpectedRank& expected, const InStep& in_step) const {
    std::vector<UpdateSize> sizes;
    EventIndices over_many;
    for (const std::uint32_t index : in_step.update_kernels) {
      const UpdateRule& rule = *update_kernel(trace_.name(trace_.events()[index]));
      if (rule.scope == UpdateScope::all_tensors) {
        over_many.push_back(index);
        continue;
      }
      const UpdateSize size = kernel_size(index, rule);
      if (rule.scope == UpdateScope::one_tensor) {
        sizes.push_back(size);
      } else if (!may_be_planned(expected, size)) {
        Finding finding = broken(
            "a kernel that reads before the update has an n that is not in "
            "the plan",
            {index});
        finding.values.push_back(size.low == size.high ? size.low : std::nullopt);
        return finding;
      }
    }
    if (over_many.empty()) return from_sizes(compare_sizes(expected.tensors, sizes));
    const std::uint32_t first = over_many.front();
    const Event& event = trace_.events()[first];
    const std::int64_t block = update_kernel(trace_.name(event))->elements_per_block;
    if (over_many.size() == 1 && sizes.empty() && block > 0 && event.value != kNoValue) {
      return from_sizes(compare_blocks(expected.tensors, first, event.value / block, block));
    }
    return unverified("a kernel that steps many tensors at once does not say its n", over_many);
  }

  static bool may_be_planned(const ExpectedRank& expected, const UpdateSize& size) {
    if (!size.high) return true;
    return std::any_of(expected.tensors.begin(), expected.tensors.end(),
                       [&](const ExpectedTensor& tensor) {
                         return tensor.n > 0 && tensor.n >= *size.low && tensor.n <= *size.high;
                       });
  }

  // -- no-extra-launches --------------------------------------------------------------------------

  /// The plain step to compare a step with: that of the same place of the same rank, the last one
  /// where the plain run has fewer. Nothing without any.
  std::optional<std::size_t> plain_step(const Step& step) const {
    const std::vector<Process>& processes = options_.against->processes();
    const auto rank = trace_.processes()[step.process].rank;
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < against_->steps().size(); ++i) {
      const Step& plain = against_->steps()[i];
      if (processes.size() > 1 && processes[plain.process].rank != rank) continue;
      if (plain.ordinal <= step.ordinal) found = i;
    }
    return found;
  }

  Finding no_extra_launches(std::size_t step) const {
    if (options_.against == nullptr) return unverified("no trace on plain tensors is given");
    const Step& own = contents_.steps()[step];
    const auto plain = plain_step(own);
    if (!plain) return unverified("the trace on plain tensors has no step of this rank");
    const ProcessFacts& facts = contents_.process(own.process);
    const ProcessFacts& plain_facts = against_->process(against_->steps()[*plain].process);
    if (facts.device_events != plain_facts.device_events) {
      return unverified("only one of the two traces has kernels");
    }
    if (plain_facts.by_time) return unverified("no API call is recorded in the plain trace");
    const InStep& in_step = contents_.in_step(step);
    const InStep& in_plain = against_->in_step(*plain);
    const bool device = facts.device_events;
    const EventIndices& events = device ? in_step.kernels : in_step.update_operators;
    const EventIndices& plain_events = device ? in_plain.kernels : in_plain.update_operators;
    const NameCounts counts = count_names(trace_, events);
    const NameCounts plain_counts = count_names(*options_.against, plain_events);
    std::string extra;
    std::string_view extra_name;
    for (const auto& [name, count] : counts) {
      const auto found = plain_counts.find(name);
      const std::int64_t planned = found == plain_counts.end() ? 0 : found->second;
      if (count <= planned) continue;
      if (extra.empty()) {
        extra_name = name;
        extra = std::string(name) + " " + count_of(count, "time", "times") + ", " +
                std::to_string(planned) + " on plain tensors";
      }
    }
    if (!extra.empty()) {
      EventIndices offending;
      for (const std::uint32_t event : events) {
        if (trace_.name(trace_.events()[event]) == extra_name) offending.push_back(event);
      }
      return broken(extra, offending);
    }
    for (const auto& [name, count] : plain_counts) {
      const auto found = counts.find(name);
      const std::int64_t seen = found == counts.end() ? 0 : found->second;
      if (seen < count) {
        return unless_lost(step, broken(std::string(name) + " " + count_of(seen, "time", "times") +
                                        ", " + std::to_string(count) + " on plain tensors"));
      }
    }
    return unless_doubtful(step, {}, "");
  }

  // -- the whole of a process ---------------------------------------------------------------------

  void judge_process(std::uint32_t process, std::int64_t steps) {
    if (steps == 0) {
      for (const Contract contract : contracts_) {
        add(contract, process, nullptr, unverified("no range marks a step"));
      }
      return;
    }
    if (wanted(Contract::complete_trace)) {
      add(Contract::complete_trace, process, nullptr, complete(process));
    }
  }

  Finding complete(std::uint32_t number) const {
    const Process& process = trace_.processes()[number];
    const ProcessFacts& facts = contents_.process(number);
    const bool device = facts.device_events || facts.api_calls || process.launched.value_or(0) > 0;
    if (process.dropped.value_or(0) > 0) {
      return broken(
          count_of(*process.dropped, "device record was dropped", "device records were dropped"));
    }
    if (process.host_dropped.value_or(0) > 0) {
      return broken(
          count_of(*process.host_dropped, "host record was dropped", "host records were dropped"));
    }
    if (!device) {
      if (process.host_dropped) return {};
      return unverified("the source does not say whether it lost records");
    }
    if (facts.kernels_without_launch > 0) {
      return broken(count_of(facts.kernels_without_launch, "kernel has", "kernels have") +
                        " no launch in the trace",
                    {*facts.first_without_launch});
    }
    if (!process.dropped) return unverified("the source does not say whether it lost records");
    if (!process.launched) return unverified("the source does not count launches");
    if (*process.launched == facts.kernels) {
      if (!facts.by_time) return {};
      return unverified("no API call is recorded that a kernel could be joined to");
    }
    const std::string counts = count_of(*process.launched, "launch", "launches") + ", " +
                               count_of(facts.kernels, "kernel", "kernels") + " received";
    if (facts.graph_launches) return unverified(counts + "; graphs start many with one");
    return broken(counts + ", none reported as dropped");
  }

  // -- verdicts -----------------------------------------------------------------------------------

  bool wanted(Contract contract) const {
    return std::find(contracts_.begin(), contracts_.end(), contract) != contracts_.end();
  }

  void judge_step(std::size_t number) {
    const Step& step = contents_.steps()[number];
    const ProcessFacts& facts = contents_.process(step.process);
    for (const Contract contract : contracts_) {
      // Without a device there is nothing to join: the process as a whole has the verdict.
      if (contract == Contract::complete_trace && !facts.device_events && !facts.api_calls)
        continue;
      add(contract, step.process, &step, find(contract, number));
    }
  }

  void add(Contract contract, std::uint32_t process, const Step* step, Finding finding) {
    Verdict verdict{.contract = contract,
                    .rank = trace_.processes()[process].rank,
                    .process = process,
                    .status = finding.status,
                    .reason = std::move(finding.reason)};
    if (step != nullptr) {
      verdict.ordinal = step->ordinal;
      verdict.step = step->label;
    }
    verdict.offender_count = static_cast<std::int64_t>(finding.events.size());
    const std::size_t kept = std::min(finding.events.size(), options_.offenders);
    for (std::size_t i = 0; i < kept; ++i) {
      const std::uint32_t index = finding.events[i];
      const Event& event = trace_.events()[index];
      Offender offender{.name = std::string(trace_.name(event)),
                        .kind = event.kind,
                        .direction = event.direction,
                        .collective = event.collective,
                        .start_ns = event.start_ns,
                        .end_ns = event.end_ns,
                        .device = event.device,
                        .stream = event.stream,
                        .thread = event.thread,
                        .range = {}};
      if (i < finding.values.size()) {
        offender.value = finding.values[i];
      } else if (event.value != kNoValue && event.value_source != ValueSource::grid_bound) {
        offender.value = event.value;
      }
      if (const auto host = contents_.host_side(index)) {
        offender.thread = trace_.events()[*host].thread;
        host_sides_.push_back({*host, judgement_.verdicts.size(), i});
      }
      verdict.offenders.push_back(std::move(offender));
    }
    judgement_.verdicts.push_back(std::move(verdict));
  }

  std::int64_t total_ns(const EventIndices& events) const {
    std::int64_t total = 0;
    for (const std::uint32_t event : events) total += trace_.events()[event].duration_ns();
    return total;
  }

  void name_ranges() {
    std::vector<std::uint32_t> events;
    for (const HostSide& side : host_sides_) events.push_back(side.event);
    std::sort(events.begin(), events.end());
    events.erase(std::unique(events.begin(), events.end()), events.end());
    const RangePaths paths = range_paths(trace_, events);
    for (const HostSide& side : host_sides_) {
      judgement_.verdicts[side.verdict].offenders[side.offender].range = paths.at(side.event);
    }
  }

  /// Where the range of an offender is still to be filled in.
  struct HostSide {
    std::uint32_t event;
    std::size_t verdict;
    std::size_t offender;
  };

  const Trace& trace_;
  const ContractOptions& options_;
  StepContents contents_;
  std::optional<StepContents> against_;
  std::vector<Contract> contracts_;
  std::vector<CollectiveKind> declared_;
  Judgement judgement_;
  std::vector<HostSide> host_sides_;
};

}  // namespace

Judgement judge(const Trace& trace, const ContractOptions& options) {
  return Judge(trace, options).run();
}

Status worst(const std::vector<Verdict>& verdicts) {
  Status status = verdicts.empty() ? Status::unverified : Status::ok;
  for (const Verdict& verdict : verdicts) {
    if (verdict.status == Status::broken) return Status::broken;
    if (verdict.status == Status::unverified) status = Status::unverified;
  }
  return status;
}

}  // namespace stepscope::tracer
