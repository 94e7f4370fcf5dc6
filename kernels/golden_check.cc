/// golden_check: compares the kernels, bit for bit, with what bitsandbytes and PyTorch computed.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/command_line.h"
#include "core/error.h"
#include "core/program.h"
#include "kernels/code_tables.h"
#include "kernels/cpu_step.h"
#include "kernels/golden_directory.h"
#include "kernels/reference_step.h"

namespace stepscope::kernels {
namespace {

constexpr std::int64_t kShownMismatches = 10;

using Bytes = std::vector<std::byte>;

/// What computes the steps: the scalar reference (target empty), or step_cpu.
struct Variant {
  std::string target;
  int threads = 0;

  std::string name() const {
    if (target.empty()) return "scalar reference";
    return "step_cpu " + target + ", " + std::to_string(threads) +
           (threads == 1 ? " thread" : " threads");
  }
};

/// The tensors of one case, in the order of kGoldenArrayNames.
struct Tensors {
  std::array<Bytes, 5> bytes;
  ShardTensors shard;
};

Tensors initial(const GoldenCase& c) {
  const bool eight_bit = c.rule == GoldenRule::adamw8 || c.rule == GoldenRule::lion8;
  const bool lion = c.rule == GoldenRule::lion8 || c.rule == GoldenRule::lion32;
  const auto numel = static_cast<std::size_t>(c.numel);
  const std::size_t state = eight_bit ? numel : 4 * numel;
  const std::size_t absmax =
      eight_bit ? 4 * static_cast<std::size_t>(block_count(c.numel)) : std::size_t{0};
  Tensors t;
  t.bytes[0].assign(c.inputs->param.stored->begin(), c.inputs->param.stored->end());
  t.bytes[1].resize(state);
  t.bytes[2].resize(lion ? 0 : state);
  t.bytes[3].resize(absmax);
  t.bytes[4].resize(lion ? 0 : absmax);
  const auto pointer = [&](std::size_t i) -> void* {
    return t.bytes[i].empty() ? nullptr : t.bytes[i].data();
  };
  t.shard = {.param = pointer(0),
             .numel = c.numel,
             .dtype = c.dtype,
             .grad_dtype = c.dtype,
             .format = eight_bit ? StateFormat::blockwise_8bit : StateFormat::fp32,
             .state1 = pointer(1),
             .state2 = pointer(2),
             .absmax1 = static_cast<float*>(pointer(3)),
             .absmax2 = static_cast<float*>(pointer(4)),
             .absmax_count = static_cast<std::int64_t>(absmax / 4)};
  return t;
}

class Check {
 public:
  explicit Check(const GoldenDirectory& golden) : golden_(golden) {
    variants_.push_back({});
    for (const std::string& target : cpu_step_targets()) {
      variants_.push_back({target, 1});
      variants_.push_back({target, team_.size()});
    }
  }

  int run() {
    check_code_tables();
    check_inputs();
    for (const GoldenCase& c : golden_.cases()) check_case(c);
    return report();
  }

 private:
  struct Count {
    std::int64_t equal = 0;
    std::int64_t total = 0;
  };

  void mismatch(const std::string& line) {
    if (mismatches_++ < kShownMismatches) std::printf("%s\n", line.c_str());
  }

  void check_code_tables() {
    const std::array<const std::array<std::uint32_t, 256>*, 2> ours = {&kSignedCodeBits,
                                                                       &kUnsignedCodeBits};
    const auto& theirs = golden_.code_tables();
    if (theirs.empty()) {
      std::printf("code tables: not compared (no qmaps.json)\n");
      return;
    }
    std::int64_t equal = 0;
    for (std::size_t table = 0; table < theirs.size(); ++table) {
      for (std::size_t i = 0; i < 256; ++i) {
        if (theirs[table][i] == (*ours[table])[i]) {
          ++equal;
          continue;
        }
        char line[128];
        std::snprintf(line, sizeof line, "qmaps.json: %s code %zu is %08x, the kernels have %08x",
                      table == 0 ? "signed" : "unsigned", i, theirs[table][i], (*ours[table])[i]);
        mismatch(line);
      }
    }
    std::printf("code tables: %lld of 512 entries equal\n", static_cast<long long>(equal));
  }

  /// Inputs that do not have their hash make every result worthless: a mismatch of its own.
  void check_inputs() {
    const auto check = [&](const GoldenArray& array, const std::string& what) {
      if (sha256(*array.stored) != array.hash) mismatch(what + ": the input has not its sha256");
    };
    for (const auto& [key, inputs] : golden_.inputs()) {
      check(inputs.param, key + " p0");
      for (std::size_t i = 0; i < inputs.grads.size(); ++i) {
        check(inputs.grads[i], key + " gradient " + std::to_string(i + 1));
      }
    }
  }

  void check_case(const GoldenCase& c) {
    // Whether each array of each step is equal so far, in every variant.
    std::vector<std::array<bool, 5>> equal(c.steps.size(), {true, true, true, true, true});
    for (const Variant& variant : variants_) {
      if (c.rule == GoldenRule::torch_adamw && !variant.target.empty()) continue;
      run_variant(c, variant, equal);
    }
    Count& count = counts_[{static_cast<int>(c.rule), static_cast<int>(c.dtype)}];
    for (std::size_t i = 0; i < c.steps.size(); ++i) {
      for (std::size_t which = 0; which < 5; ++which) {
        if (!c.steps[i].arrays[which]) continue;
        ++count.total;
        count.equal += equal[i][which] ? 1 : 0;
      }
    }
  }

  void run_variant(const GoldenCase& c, const Variant& variant,
                   std::vector<std::array<bool, 5>>& equal) {
    Tensors t = initial(c);
    force_cpu_step_target(variant.target);
    const std::int64_t last = c.steps.empty() ? 0 : c.steps.back().step;
    std::size_t next = 0;
    for (std::int64_t step = 1; step <= last; ++step) {
      // A copy, because a file's arrays need not lie at multiples of the element size.
      const auto& stored = *c.inputs->grads[static_cast<std::size_t>(step - 1)].stored;
      const Bytes grad(stored.begin(), stored.end());
      t.shard.grad = grad.empty() ? nullptr : grad.data();
      t.shard.step = step;
      advance(c, variant, t.shard);
      if (c.steps[next].step != step) continue;
      for (std::size_t which = 0; which < 5; ++which) {
        const auto& expected = c.steps[next].arrays[which];
        if (expected && !same(c, variant, step, which, *expected, t.bytes[which])) {
          equal[next][which] = false;
        }
      }
      ++next;
    }
  }

  void advance(const GoldenCase& c, const Variant& variant, const ShardTensors& shard) {
    if (c.rule == GoldenRule::torch_adamw) {
      return step_torch_adamw_reference(c.hyperparameters, shard);
    }
    const bool lion = c.rule == GoldenRule::lion8 || c.rule == GoldenRule::lion32;
    const Algorithm algorithm = lion ? Algorithm::Lion : Algorithm::AdamW;
    if (variant.target.empty()) return step_reference(algorithm, c.hyperparameters, shard);
    step_cpu(variant.threads == 1 ? alone_ : team_, algorithm, c.hyperparameters, {&shard, 1});
  }

  bool same(const GoldenCase& c, const Variant& variant, std::int64_t step, std::size_t which,
            const GoldenArray& expected, const Bytes& got) {
    const auto where = [&] {
      char decay[32];
      std::snprintf(decay, sizeof decay, "%g", c.hyperparameters.weight_decay);
      return golden_name(c.rule) + " " + golden_name(c.dtype) + " n=" + std::to_string(c.numel) +
             " weight_decay=" + decay + " step " + std::to_string(step) + " " +
             kGoldenArrayNames[which] + " (" + variant.name() + "): ";
    };
    if (expected.stored && !std::equal(got.begin(), got.end(), expected.stored->begin())) {
      const auto size = static_cast<std::size_t>(expected.element_bytes);
      std::size_t at = 0;
      while (std::memcmp(got.data() + at, expected.stored->data() + at, size) == 0) at += size;
      std::uint32_t is = 0;
      std::uint32_t should = 0;
      std::memcpy(&is, got.data() + at, size);
      std::memcpy(&should, expected.stored->data() + at, size);
      char line[96];
      std::snprintf(line, sizeof line, "element %zu is %0*x, expected %0*x", at / size,
                    static_cast<int>(2 * size), is, static_cast<int>(2 * size), should);
      mismatch(where() + line);
      return false;
    }
    if (sha256(got) != expected.hash) {
      mismatch(where() + "the sha256 differs");
      return false;
    }
    return true;
  }

  int report() {
    Count all;
    for (const auto& [key, count] : counts_) {
      std::printf("%-12s %s  %lld of %lld arrays equal\n",
                  golden_name(static_cast<GoldenRule>(key.first)).c_str(),
                  golden_name(static_cast<DType>(key.second)).c_str(),
                  static_cast<long long>(count.equal), static_cast<long long>(count.total));
      all.equal += count.equal;
      all.total += count.total;
    }
    if (all.total == 0) {
      throw Error("manifest.json lists no array to check", "check the directory");
    }
    if (mismatches_ > kShownMismatches) {
      std::printf("%lld more mismatches are not shown\n",
                  static_cast<long long>(mismatches_ - kShownMismatches));
    }
    std::string names;
    for (const Variant& variant : variants_) {
      names += (names.empty() ? "" : "; ") + variant.name();
    }
    std::printf("each by: %s (torch_adamw: by the scalar reference alone)\n", names.c_str());
    std::printf("%lld of %lld arrays equal\n", static_cast<long long>(all.equal),
                static_cast<long long>(all.total));
    return mismatches_ == 0 && all.equal == all.total ? kFine : kCheckFailed;
  }

  const GoldenDirectory& golden_;
  ThreadPool alone_{1};
  ThreadPool team_{3};
  std::vector<Variant> variants_;
  std::map<std::pair<int, int>, Count> counts_;
  std::int64_t mismatches_ = 0;
};

int run(int argc, char** argv) {
  CLI::App app(
      "Compares the kernels, bit for bit, with golden vectors of bitsandbytes and PyTorch:\n"
      "the scalar reference, and the CPU back end on every instruction set of this processor,\n"
      "with one and with several threads.",
      "golden_check");
  app.footer(
      "Exit code: 0 every array is equal, 1 some are not, 2 the directory cannot be used.\n"
      "Examples:\n"
      "  golden_check tests/data/golden\n"
      "  golden_check /data/golden-other-seed");
  std::string directory;
  app.add_option("DIR", directory, "directory with manifest.json and the files it names")
      ->required();
  if (!parse_command_line(app, argc, argv)) return kFine;
  const GoldenDirectory golden = GoldenDirectory::read(directory);
  return Check(golden).run();
}

}  // namespace
}  // namespace stepscope::kernels

int main(int argc, char** argv) {
  return stepscope::run_program("golden_check",
                                [&] { return stepscope::kernels::run(argc, argv); });
}
