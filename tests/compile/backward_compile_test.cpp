// Kernels of backward compile, and those that the cost models choose without spills.
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/build/image.h"
#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/kernels/backward_sinks/steps.h"
#include "generator/kernels/backward_tensors/steps.h"
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "generator/plan/kernel_choice.h"
#include "tests/compile/compile_testing.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit {
namespace {

struct GradientWish {
  AttentionSpec spec;
  Arch arch;
  Pass pass;
  bool deterministic = false;
};

struct KernelWish {
  AttentionSpec spec;
  Arch arch;
  KernelConfig config;
};

void expect_no_spills(const std::vector<KernelWish>& kernels) {
  const Context context(testing::shared_cache_settings());
  std::vector<std::string> failures(kernels.size());
  testing::in_parallel(kernels.size(), [&](std::size_t i) {
    const auto& [spec, arch, config] = kernels[i];
    try {
      const CompiledKernel kernel = compile(spec, arch, config, context);
      const ResourceUsage& resources = kernel.resources();
      if (!resources.is_clean() || resources.stack_bytes != 0)
        failures[i] =
            fmt::format("{} on {}, {}: {} bytes are spilled; {}", to_string(spec), to_string(arch),
                        to_string(config), resources.spill_bytes(), fmt::join(resources.remarks, " "));
    } catch (const Error& error) {
      failures[i] = fmt::format("{} on {}, {}: {}\n{}", to_string(spec), to_string(arch), to_string(config),
                                error.what(), error.log());
    }
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST(BackwardCompile, TheDefaultsCompileWithoutSpills) {
  std::vector<GradientWish> wishes;
  for (const Pass pass : {Pass::backward_dq, Pass::backward_dkv}) {
    for (const Arch& arch : {Arch{9, 0, 0}, Arch{10, 0, 0}, Arch{12, 0, 0}})
      wishes.push_back({{.head_dim = 64, .mask = mask::causal()}, arch, pass});
    // Each on one of the architectures that differ in shared memory; the next run's seed gives another one.
    const std::array archs = {Arch{8, 0, 0}, Arch{8, 9, 0}, testing::sm_90a};
    std::uint64_t turn = reference::test_seed();
    for (const AttentionSpec& spec :
         std::vector<AttentionSpec>{{.mask = mask::causal(), .score = score::softcap(30)},
                                    {.dtype = DType::fp16, .gqa_ratio = 4},
                                    {.head_dim = 192, .head_dim_v = 128, .mask = mask::document()},
                                    {.head_dim = 256},
                                    {.head_dim = 512, .gqa_ratio = 8, .mask = mask::causal()},
                                    {.head_dim = 320, .head_dim_v = 512, .dropout = true},
                                    {.dropout = true},
                                    {.head_dim = 40, .head_dim_v = 24, .alignment = 2}})
      wishes.push_back({spec, archs[turn++ % archs.size()], pass});
  }
  for (const AttentionSpec& spec :
       std::vector<AttentionSpec>{{.head_dim = 64, .mask = mask::causal()},
                                  {.mask = mask::causal(), .score = score::softcap(30)},
                                  {.dtype = DType::fp16, .gqa_ratio = 4},
                                  {.dropout = true},
                                  {.head_dim = 64, .dropout = true, .mask = mask::causal()},
                                  {.head_dim = 96, .head_dim_v = 40, .mask = mask::sliding_window(100, 0)},
                                  {.head_dim = 256, .gqa_ratio = 4, .mask = mask::causal()},
                                  {.head_dim = 256, .dropout = true, .score = score::softcap(30)},
                                  {.dtype = DType::fp16, .head_dim = 192, .head_dim_v = 128}})
    wishes.push_back({spec, testing::sm_90a, Pass::backward});
  for (const AttentionSpec& spec : std::vector<AttentionSpec>{{.head_dim = 64, .mask = mask::causal()},
                                                              {.mask = mask::causal()},
                                                              {.gqa_ratio = 4},
                                                              {.head_dim = 256, .mask = mask::causal()}})
    wishes.push_back({spec, testing::sm_90a, Pass::backward, true});
  const auto varlen = [](AttentionSpec spec) {
    spec.sequences_q = spec.sequences_kv = SequenceKind::varlen;
    return spec;
  };
  for (const AttentionSpec& spec :
       std::vector<AttentionSpec>{{.head_dim = 64, .mask = mask::causal()},
                                  {.gqa_ratio = 4, .mask = mask::causal()},
                                  {.head_dim = 256, .mask = mask::causal()},
                                  {.mask = mask::causal(), .score = score::softcap(30)},
                                  {.dropout = true, .mask = mask::causal()}}) {
    wishes.push_back({varlen(spec), testing::sm_90a, Pass::backward});
    for (const Pass pass : {Pass::backward_dq, Pass::backward_dkv})
      wishes.push_back({varlen(spec), Arch{8, 0, 0}, pass});
  }
  wishes = reference::some_of(wishes, 12);
  std::vector<KernelWish> kernels;
  for (const auto& [spec, arch, pass, deterministic] : wishes) {
    const DeviceLimits limits = device_limits(arch);
    ProblemShape shape = typical_shape(limits);
    shape.pass = pass;
    KernelConfig config = untuned_order(spec, shape, limits).front();
    if (deterministic) std::get<BackwardWgmma>(config).deterministic = true;
    kernels.push_back({spec, arch, config});
  }
  expect_no_spills(kernels);
}

// With a consumer of its own that has dQ: beside consumers of rows that hold keys in registers, or do not, and in pairs of
// blocks whose dQ has two places, or one.
TEST(BackwardCompile, ConsumersOfDqCompileWithoutSpills) {
  std::vector<KernelWish> kernels;
  const auto add = [&](const AttentionSpec& spec, const BackwardWgmma& config) {
    kernels.push_back({spec, testing::sm_90a, config});
  };
  for (const bool deterministic : {false, true}) {
    for (AttentionSpec spec :
         std::vector<AttentionSpec>{{},
                                    {.mask = mask::causal()},
                                    {.mask = mask::sliding_window(100, 0)},
                                    {.mask = mask::causal(), .score = score::softcap(30)},
                                    {.mask = mask::document()},
                                    {.score = score::bias(DType::bf16)},
                                    {.dropout = true},
                                    {.dropout = true, .mask = mask::causal()}}) {
      spec.head_dim = 64;
      for (const int stages : {2, 4}) add(spec, {.stages = stages, .deterministic = deterministic});
    }
    for (const Mask& mask : {mask::document(), mask::document() && mask::causal(), !mask::document()}) {
      for (const SequenceKind queries : {SequenceKind::dense, SequenceKind::varlen}) {
        add({.head_dim = 64, .sequences_q = queries, .sequences_kv = SequenceKind::varlen, .mask = mask},
            {.stages = 4, .deterministic = deterministic});
      }
    }
  }
  for (const AttentionSpec& spec :
       std::vector<AttentionSpec>{{.head_dim = 192, .head_dim_v = 128},
                                  {.head_dim = 192, .head_dim_v = 128, .mask = mask::causal()},
                                  {.head_dim = 192, .mask = mask::causal()},
                                  {.head_dim = 256},
                                  {.head_dim = 256, .mask = mask::causal()},
                                  {.head_dim = 256, .dropout = true},
                                  {.head_dim = 192, .mask = mask::document() && mask::causal()},
                                  {.head_dim = 256, .mask = mask::document()},
                                  {.head_dim = 256, .mask = mask::document() && mask::causal()}}) {
    for (const bool pair : {false, true}) add(spec, {.pair = pair});
  }
  expect_no_spills(reference::some_of(kernels, 20));
}

TEST(BackwardCompile, GradientsOfTensorsHardlySpill) {
  const Score table = score::text({.name = "relative",
                                   .body = "return score + table[min(max(q - k, 0), 63)] * scales[h];",
                                   .tensors = {{"table", DType::fp32}, {"scales", DType::fp32}}});
  const Score own =
      score::text({.name = "own",
                   .body = "return score + weights[h] * erfcf(score);",
                   .derivative = "d_weights[h] += erfcf(score);\n"
                                 "return 1 - weights[h] * 1.1283791671f * expf(-score * score);",
                   .tensors = {{"weights", DType::fp32}}});
  struct Program {
    std::string what;
    jit::Program program;
    Arch arch;
  };
  std::vector<Program> programs;
  for (const Arch& arch : {Arch{8, 0, 0}, testing::sm_90a, Arch{12, 0, 0}}) {
    for (const AttentionSpec& spec :
         std::vector<AttentionSpec>{{.mask = mask::causal(), .score = score::bias(DType::bf16)},
                                    {.head_dim = 256, .score = score::alibi().then(score::softcap(30))},
                                    {.head_dim = 64, .mask = mask::document(), .score = table},
                                    {.mask = mask::causal(), .score = own},
                                    {.sequences_q = SequenceKind::varlen,
                                    .sequences_kv = SequenceKind::varlen,
                                    .mask = mask::causal(),
                                    .score = score::alibi()}}) {
      // All tensors that the score reads; they follow the mask's.
      const unsigned all = (1u << functor_tensors(spec).size()) - 1;
      const unsigned of_mask = (1u << spec.mask.tensors().size()) - 1;
      programs.push_back({to_string(spec), backward_tensors::sum_program(spec, all ^ of_mask), arch});
      programs.push_back({to_string(spec), backward_tensors::convert_program(spec, all ^ of_mask), arch});
    }
    for (const SequenceKind q : {SequenceKind::dense, SequenceKind::varlen}) {
      for (const SequenceKind kv : {SequenceKind::dense, SequenceKind::varlen})
        programs.push_back({"sinks", backward_sinks::program({.sequences_q = q, .sequences_kv = kv}), arch});
    }
  }
  const Context context(testing::shared_cache_settings());
  constexpr int most_spilled = 64;  // by the code of large rows, which few calls run
  std::vector<std::string> failures(programs.size());
  testing::in_parallel(programs.size(), [&](std::size_t i) {
    const auto& [what, program, arch] = programs[i];
    try {
      const ResourceUsage& resources =
          build_image(*Access::state(context), program, {.arch = arch})->resources;
      if (resources.spill_bytes() > most_spilled || resources.stack_bytes > most_spilled)
        failures[i] = fmt::format("{} on {}: {} bytes are spilled, {} of stack", what, to_string(arch),
                                  resources.spill_bytes(), resources.stack_bytes);
    } catch (const Error& error) {
      failures[i] = fmt::format("{} on {}: {}\n{}", what, to_string(arch), error.what(), error.log());
    }
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

// A spec whose predicted best spills: the next one that does not is chosen, and packs have both.
TEST(BackwardCompile, TheChoiceOfOnePassIsClean) {
  const Context context(testing::shared_cache_settings());
  KernelStore& store = *Access::state(context);
  const AttentionSpec spec{.head_dim = 64, .dropout = true, .score = score::bias(DType::bf16)};
  const DeviceLimits limits = device_limits(testing::sm_90a);
  const ProblemShape shape{.pass = Pass::backward};
  const KernelConfig first = untuned_order(spec, shape, limits).front();
  EXPECT_FALSE(compile(spec, testing::sm_90a, first, context).resources().is_clean())
      << "another spec must show what this one did";
  const auto chosen = choose_one_pass(store, spec, shape, false, limits, {testing::sm_90a});
  ASSERT_TRUE(chosen);
  EXPECT_TRUE(chosen->image->resources.is_clean()) << to_string(chosen->config);
  const auto fixed = choose_one_pass(store, spec, shape, true, limits, {testing::sm_90a});
  ASSERT_TRUE(fixed);
  EXPECT_EQ(deterministic_config(fixed->config), fixed->config);
}

}  // namespace
}  // namespace jit
