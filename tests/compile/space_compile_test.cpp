// All programs that the generator writes compile: on every architecture, and across specs and configs.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "generator/plan/kernel_choice.h"
#include "tests/compile/compile_testing.h"
#include "tests/support/random_spec.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit {
namespace {

using testing::private_settings;
using testing::shared_cache_settings;

struct Wish {
  AttentionSpec spec;
  Arch arch;
  std::optional<KernelConfig> config = {};
};

/// Compiles all in parallel; a failure is reported with the whole log.
std::vector<std::optional<CompiledKernel>> compile_all(const std::vector<Wish>& wishes,
                                                       const Context& context) {
  std::vector<std::optional<CompiledKernel>> kernels(wishes.size());
  std::vector<std::string> failures(wishes.size());
  testing::in_parallel(wishes.size(), [&](std::size_t i) {
    const auto& [spec, arch, config] = wishes[i];
    try {
      kernels[i] = compile(spec, arch, config, context);
    } catch (const Error& error) {
      failures[i] = fmt::format("{} on {}, {}: {}\n{}", to_string(spec), to_string(arch),
                                config ? to_string(*config) : "cost model", error.what(), error.log());
    }
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  return kernels;
}

void expect_sound(const CompiledKernel& kernel) {
  EXPECT_GT(kernel.resources().registers, 16) << kernel.name();
  EXPECT_LE(kernel.resources().registers, 255);
  EXPECT_LE(kernel.smem_bytes(), smem_per_block_optin(kernel.arch()));
  EXPECT_EQ(kernel.resources().static_smem_bytes, 0);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(kernel.cubin().data()), 4), "\177ELF");
}

TEST(CompileSpace, TheDefaultCompilesOnEveryArchWithoutSpills) {
  std::vector<Wish> wishes;
  // One of the two on each architecture, the other at the next run's seed.
  bool is_first = reference::test_seed() % 2 == 0;
  for (const Arch& arch : known_archs()) {
    is_first = !is_first;
    wishes.push_back({is_first ? AttentionSpec{.mask = mask::causal()}
                               : AttentionSpec{.dtype = DType::fp16,
                                               .head_dim = 64,
                                               .gqa_ratio = 4,
                                               .score = score::softcap(30)},
                      arch});
  }
  // The dims that need most registers, each on one of the three architectures with shared memory of sizes of their own,
  // from where the seed falls on.
  const std::vector<AttentionSpec> specs = {{.head_dim = 256},
                                            {.head_dim = 192, .head_dim_v = 128, .mask = mask::causal()},
                                            {.head_dim = 512, .mask = mask::causal()},
                                            {.head_dim = 264, .head_dim_v = 448, .score = score::softcap(30)},
                                            {.head_dim = 40, .head_dim_v = 24, .alignment = 2}};
  std::uint64_t place = 0;
  for (const Arch& arch : {Arch{8, 0, 0}, Arch{8, 9, 0}, testing::sm_90a}) {
    for (const AttentionSpec& spec : specs) {
      if (reference::is_in_this_run(place++, 6)) wishes.push_back({spec, arch});
    }
    ++place;  // another spec on the next one
  }
  for (const auto& kernel : compile_all(wishes, Context(shared_cache_settings()))) {
    if (!kernel) continue;
    expect_sound(*kernel);
    EXPECT_EQ(kernel->resources().spill_bytes(), 0) << kernel->name() << " on " << to_string(kernel->arch());
    EXPECT_EQ(kernel->resources().stack_bytes, 0) << kernel->name() << " on " << to_string(kernel->arch());
  }
}

// Whose tiles are blocks, so that they lie in shared memory.
TEST(CompileSpace, DefaultsOfMaskBitsAreClean) {
  std::vector<Wish> wishes;
  for (const int head_dim : reference::some_of<int>({64, 128}, 2))
    wishes.push_back({{.head_dim = head_dim, .mask = mask::block_scores(128, 128)}, testing::sm_90a});
  for (const auto& kernel : compile_all(wishes, Context(shared_cache_settings()))) {
    if (!kernel) continue;
    expect_sound(*kernel);
    EXPECT_EQ(kernel->resources().spill_bytes(), 0) << kernel->report();
    const auto* const config = std::get_if<ForwardWgmma>(&kernel->config());
    ASSERT_NE(config, nullptr);
    EXPECT_EQ(config->tile_q * config->tile_kv, 128 * 128);
    EXPECT_NE(kernel->ptx().find("cp.async.bulk.shared::cluster.global.mbarrier"), std::string::npos);
  }
}

// The fastest tiles of fp8 on an H200 (docs/records/notebook.md), which leave no register: tuning passes over one that spills.
TEST(CompileSpace, LargeTilesOfFp8AreClean) {
  struct Tile {
    AttentionSpec spec;
    int tile_kv;
  };
  const DType fp8 = DType::fp8_e4m3;
  const std::vector<Tile> tiles = {{{.dtype = fp8}, 224},
                                   {{.dtype = fp8, .mask = mask::causal()}, 224},
                                   {{.dtype = fp8, .head_dim = 256, .mask = mask::causal()}, 128},
                                   {{.dtype = fp8, .head_dim = 256, .out_dtype = DType::fp32}, 128}};
  const Context context(shared_cache_settings());
  for (const auto& [spec, tile_kv] : reference::some_of<Tile>(tiles, 4)) {
    const std::string config = fmt::format(
        "family=forward_wgmma tile_q=128 tile_kv={} stages_q={} stages_k=2 stages_v=2 output=direct "
        "order=ping_pong converter_warps=2",
        tile_kv, spec.head_dim == 128 ? 2 : 1);
    const CompiledKernel kernel = compile(spec, testing::sm_90a, parse_config(config), context);
    expect_sound(kernel);
    EXPECT_EQ(kernel.resources().spill_bytes(), 0) << to_string(spec) << '\n' << kernel.report();
  }
}

// One architecture of each kind: without a conversion of e4m3, with 8-bit products, and with a conversion
// alone.
TEST(CompileSpace, DefaultsOfFp8QueriesHaveProductsOfWhatTheArchMultiplies) {
  struct Kind {
    Arch arch;
    std::string_view product;
  };
  const std::string_view bytes = "mma.sync.aligned.m16n8k32.row.col.f32.e",
                         halves = "m16n8k16.row.col.f32.f16";
  std::vector<Kind> kinds = {
      {{8, 0, 0}, halves}, {{8, 9, 0}, bytes}, {{10, 0, 0}, halves}, {{12, 0, 0}, bytes}};
  std::vector<Wish> wishes;
  // One of the two on each architecture, the other at the next run's seed.
  bool is_first = reference::test_seed() % 2 == 0;
  for (const Kind& kind : kinds) {
    is_first = !is_first;
    wishes.push_back(
        {is_first ? AttentionSpec{.dtype = DType::fp8_e4m3, .mask = mask::causal()}
                  : AttentionSpec{.dtype = DType::fp8_e5m2, .head_dim = 256, .descale_per = ScaleKind::token},
         kind.arch});
  }
  const auto kernels = compile_all(wishes, Context(shared_cache_settings()));
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (!kernels[i]) continue;
    expect_sound(*kernels[i]);
    EXPECT_EQ(kernels[i]->resources().spill_bytes(), 0) << kernels[i]->report();
    const std::string ptx = kernels[i]->ptx();
    EXPECT_NE(ptx.find(kinds[i].product), std::string::npos) << kernels[i]->name();
    EXPECT_EQ(ptx.find(kinds[i].product == bytes ? halves : bytes), std::string::npos) << kernels[i]->name();
  }
}

TEST(CompileSpace, SampledSpecsAndConfigsCompile) {
  reference::Random random(reference::test_seed());
  std::vector<Wish> wishes;
  for (int i = 0; i < 6; ++i) {
    const Arch arch = known_archs()[random() % known_archs().size()];
    AttentionSpec spec = reference::random_spec(random);
    // Small kernels compile faster and differ in nothing but their loops' lengths.
    if (i % 4 != 0 && spec.head_dim > 64) spec.head_dim = 8 * reference::draw(random, 1, 8);
    if (i % 4 != 0 && spec.head_dim_v > 64) spec.head_dim_v = 8 * reference::draw(random, 1, 8);
    wishes.push_back({spec, arch, reference::random_config(spec, device_limits(arch), random)});
  }
  std::vector<Wish> changes;
  for (const char* change : {"stages_k=4 stages_v=4", "stages_k=1 stages_v=4",
                             "q_in_registers=true rescale=always", "tile_q=16 warps=1 tile_kv=16"}) {
    const ForwardMmaSync base{.tile_q = 64, .tile_kv = 32, .warps = 4};
    changes.push_back({{.head_dim = 48, .mask = mask::document(), .score = score::bias()},
                       testing::sm_90a,
                       parse_config(change, base)});
  }
  for (const char* change : {"order=free", "output=separate", "stages_q=2 order=ping_pong", "output=direct",
                             "tile_q=64 blocks_per_sm=2", "tile_q=192"}) {
    const KernelConfig base = parse_config("family=forward_wgmma tile_kv=64 stages_v=2");
    changes.push_back({{.head_dim = 48, .mask = mask::document(), .score = score::bias()},
                       testing::sm_90a,
                       parse_config(change, base)});
  }
  const std::vector<Wish> changed = reference::some_of(changes, 6);
  wishes.insert(wishes.end(), changed.begin(), changed.end());
  for (const auto& kernel : compile_all(wishes, Context(shared_cache_settings()))) {
    if (kernel) expect_sound(*kernel);
  }
}

// Overlap is what these kernels are for: a wait that the assembler puts between multiplications undoes it.
TEST(CompileSpace, WgmmaKernelsAreCleanWhereTheyAreCommon) {
  std::vector<Wish> wishes;
  for (const int head_dim : {64, 128, 256}) {
    for (const Mask& mask : {Mask(), mask::causal()}) {
      const AttentionSpec spec{.head_dim = head_dim, .mask = mask};
      for (const KernelConfig& config : candidate_configs(spec, testing::sm_90a)) {
        if (!std::holds_alternative<ForwardWgmma>(config)) continue;
        wishes.push_back({spec, testing::sm_90a, config});
        if (wishes.size() % 2 == 0) break;
      }
    }
  }
  // Dropout whose bits have room, and whose bits have none.
  for (const int head_dim : {64, 128}) {
    for (const std::int64_t tokens : {8192, 65536}) {
      const AttentionSpec spec{.head_dim = head_dim, .dropout = true, .mask = mask::causal()};
      DeviceLimits limits = device_limits(testing::sm_90a);
      limits.sm_count = 132;
      const ProblemShape shape{.batch = 2, .heads_q = 16, .seqlen_q = tokens, .seqlen_kv = tokens};
      wishes.push_back({spec, testing::sm_90a, untuned_order(spec, shape, limits).front()});
      // At a small head_dim it is faster beside the products (docs/records/notebook.md).
      EXPECT_EQ(std::get<ForwardWgmma>(*wishes.back().config).dropout_mask_ahead,
                tokens == 8192 && head_dim == 128);
    }
  }
  const AttentionSpec latents{.head_dim = 576,
                              .head_dim_v = 512,
                              .gqa_ratio = 128,
                              .sequences_kv = SequenceKind::paged,
                              .page_size = 64,
                              .values_in_keys = true,
                              .mask = mask::causal()};
  for (const char* config : {"stages=2", "stages=2 copies=cp_async"})
    wishes.push_back({latents, testing::sm_90a, parse_config(config, ForwardMlaWgmma{})});
  for (const auto& kernel : compile_all(reference::some_of(wishes, 6), Context(shared_cache_settings()))) {
    ASSERT_TRUE(kernel);
    EXPECT_TRUE(kernel->resources().is_clean()) << kernel->report();
  }
}

// Elements of a bias are loaded ahead, into registers: of the first configs that are tried one has room for them.
TEST(CompileSpace, WgmmaKernelsWithABiasAreClean) {
  std::vector<std::pair<AttentionSpec, ProblemShape>> cases;
  for (const int head_dim : {64, 96, 128, 192, 256}) {
    for (const Mask& mask : {Mask(), mask::causal()}) {
      const AttentionSpec spec{.head_dim = head_dim, .mask = mask, .score = score::bias(DType::fp32)};
      cases.push_back({spec, {.batch = 1, .heads_q = 1, .seqlen_q = 300, .seqlen_kv = 300}});
      cases.push_back({spec, {.batch = 1, .heads_q = 16, .seqlen_q = 8192, .seqlen_kv = 8192}});
    }
  }
  const Context context(shared_cache_settings());
  DeviceLimits limits = device_limits(testing::sm_90a);
  limits.sm_count = 132;
  for (const auto& [spec, shape] : reference::some_of(cases, 12)) {
    const BuiltKernel kernel =
        choose_kernel(*Access::state(context), spec, {}, shape, limits, {testing::sm_90a});
    EXPECT_TRUE(kernel.image->resources.is_clean())
        << to_string(spec) << ", " << shape.seqlen_q << " tokens, " << to_string(kernel.config);
  }
}

// Over pages of fp8 consumers have no register to spare: of the first configs that are tried one is clean.
TEST(CompileSpace, WgmmaKernelsOverPagesOfFp8AreClean) {
  struct Pages {
    AttentionSpec spec;
    std::int64_t seqlen_kv;
    bool upcast_ahead;
  };
  std::vector<Pages> cases;
  for (const Mask& mask : {Mask(), mask::causal()}) {
    AttentionSpec spec{.gqa_ratio = 4,
                       .sequences_q = SequenceKind::varlen,
                       .sequences_kv = SequenceKind::paged,
                       .page_size = 16,
                       .kv_dtype = DType::fp8_e4m3,
                       .mask = mask};
    cases.push_back({spec, 8192, true});
    cases.push_back({spec, 65536, false});  // whose upcast keys have no room
    spec.dtype = DType::fp8_e4m3;
    spec.kv_dtype = {};
    spec.page_size = 64;
    cases.push_back({spec, 8192, false});
  }
  const Context context(shared_cache_settings());
  DeviceLimits limits = device_limits(testing::sm_90a);
  limits.sm_count = 132;
  for (const Pages& pages : reference::some_of(cases, 6)) {
    const ProblemShape prefill{.batch = 4,
                               .heads_q = 32,
                               .seqlen_q = 2048,
                               .seqlen_kv = pages.seqlen_kv,
                               .has_device_lengths = true};
    const BuiltKernel kernel =
        choose_kernel(*Access::state(context), pages.spec, {}, prefill, limits, {testing::sm_90a});
    EXPECT_TRUE(kernel.image->resources.is_clean())
        << to_string(pages.spec) << ", " << to_string(kernel.config);
    EXPECT_EQ(std::get<ForwardWgmma>(kernel.config).upcast_ahead, pages.upcast_ahead)
        << to_string(pages.spec);
  }
}

TEST(CompileSpace, DefaultsAreCleanUnderMasksThatAreAskedForEachScore) {
  std::vector<Wish> wishes;
  for (const auto& [head_dim, mask] : {std::pair(64, "document || window(64, 0)"),
                                       {64, "causal && !window(8, 0)"},
                                       {96, "document"},
                                       {96, "causal && (document || prefix(4))"},
                                       {128, "causal && document"},
                                       {256, "document"}}) {
    const AttentionSpec spec{.head_dim = head_dim, .mask = parse_mask(mask)};
    wishes.push_back({spec, testing::sm_90a, candidate_configs(spec, testing::sm_90a)[0]});
  }
  for (const auto& kernel : compile_all(reference::some_of(wishes, 4), Context(shared_cache_settings()))) {
    ASSERT_TRUE(kernel);
    EXPECT_TRUE(kernel->resources().is_clean()) << kernel->report();
  }
}

struct FirstUse {
  Arch arch;
  int head_dim;
  const char* mask;
  const char* score;
  ProblemShape shape = {.batch = 1, .heads_q = 132, .seqlen_q = 2048, .seqlen_kv = 2048};
};

// A compile without use doubles the time of a first call. Behind each row: the first choice by cost alone
// spills. A quarter of the rows, others at the next run's seed.
TEST(CompileSpace, AnUntunedFirstUseCompilesOneKernel) {
  const ProblemShape short_one{.batch = 1, .heads_q = 1024, .seqlen_q = 128, .seqlen_kv = 128};
  const ProblemShape few_heads{.batch = 1, .heads_q = 8, .seqlen_q = 2048, .seqlen_kv = 2048};
  const ProblemShape decode{.batch = 4, .heads_q = 32, .seqlen_q = 1, .seqlen_kv = 8192};
  const std::vector<FirstUse> uses = {
      {testing::sm_90a, 64, "none", "none"},
      {testing::sm_90a, 64, "causal", "none"},
      {testing::sm_90a, 128, "causal", "softcap(30)"},
      {testing::sm_90a, 128, "document", "none"},
      {testing::sm_90a, 32, "causal && document", "alibi"},          // spills
      {testing::sm_90a, 160, "none", "none"},                        // spills
      {testing::sm_90a, 160, "none", "alibi"},                       // spills
      {testing::sm_90a, 256, "causal && document", "alibi"},         // spills
      {testing::sm_90a, 160, "window(1024, 0)", "none", short_one},  // spills, of the other family
      {testing::sm_90a,
       64,
       "none",
       "softcap(30)",
       {.batch = 1, .heads_q = 132, .seqlen_q = 512, .seqlen_kv = 512}},
      {testing::sm_90a, 80, "causal && document", "alibi", decode},
      {testing::sm_80, 64, "causal", "none"},
      {testing::sm_80, 128, "document", "softcap(30)"},
      {testing::sm_80, 96, "causal", "alibi", few_heads},              // spills
      {testing::sm_80, 192, "causal && document", "none", few_heads},  // spills
      {testing::sm_80, 160, "none", "none"},                           // spills
      {testing::sm_80, 48, "prefix(64)", "none", few_heads},
  };
  std::vector<std::string> failures(uses.size());
  testing::in_parallel(uses.size(), [&](std::size_t i) {
    if (!reference::is_in_this_run(i, 4)) return;
    const FirstUse& use = uses[i];
    testing::Events events;
    const Context context(private_settings(), events.observer());
    const AttentionSpec spec{
        .head_dim = use.head_dim, .mask = parse_mask(use.mask), .score = parse_score(use.score)};
    const BuiltKernel kernel = choose_kernel(*Access::state(context), spec, {}, use.shape,
                                             device_limits(use.arch), {.arch = use.arch});
    const std::vector<std::string> compiled = events.messages(Event::Kind::compile);
    if (compiled.size() == 1 && kernel.image->resources.is_clean() &&
        events.messages(Event::Kind::warning).empty())
      return;
    failures[i] =
        fmt::format("{} on {}: {}", to_string(spec), to_string(use.arch), fmt::join(compiled, ", "));
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST(CompileSpace, EveryMaskAndScoreCompiles) {
  const std::vector<FunctorText> masks = reference::mask_texts(), scores = reference::score_texts();
  std::vector<Wish> wishes;
  for (const char* mask :
       {"causal(top_left)", "window(64, 0) || prefix(3)", "!prefix_lengths && document",
        "text(stripes) && text(allowed-keys)", "text(blocks) || text(by_head.and_batch)"}) {
    wishes.push_back(
        {{.head_dim = 16, .mask = parse_mask(mask, masks)}, testing::sm_80, testing::small_config()});
  }
  for (const char* score : {"softcap(0.1), alibi", "bias(bf16)", "bias(fp16)",
                            "text(distance), text(temperature)", "text(offsets), bias"}) {
    wishes.push_back(
        {{.head_dim = 16, .score = parse_score(score, scores)}, testing::sm_80, testing::small_config()});
  }
  // Constants of every type and every awkward value.
  FunctorText text{.name = "constants",
                   .body = "return flag && k < big && real > tiny && !(nothing == nothing) && q > least;"};
  text.constants = {{"flag", true},
                    {"big", std::int64_t{1} << 40},
                    {"least", std::numeric_limits<std::int64_t>::min()},
                    {"real", std::numeric_limits<double>::infinity()},
                    {"tiny", 1e-45},
                    {"nothing", std::numeric_limits<double>::quiet_NaN()}};
  wishes.push_back({{.head_dim = 16, .mask = mask::text(text)}, testing::sm_80, testing::small_config()});
  compile_all(wishes, Context(shared_cache_settings()));
}

TEST(Spills, AreReportedAndNeverTheDefault) {
  testing::Events events;
  const Context context(private_settings(), events.observer());
  // Q, O and the scores of 128 keys do not fit the 168 registers that a thread of three blocks may have.
  const ForwardMmaSync greedy{.tile_q = 64,
                              .tile_kv = 128,
                              .warps = 4,
                              .stages_k = 1,
                              .stages_v = 1,
                              .q_in_registers = true,
                              .blocks_per_sm = 3};
  ASSERT_EQ(config_rejection({}, greedy, testing::sm_90a), "");
  const CompiledKernel spilling = compile({}, testing::sm_90a, greedy, context);
  EXPECT_GT(spilling.resources().spill_bytes(), 0);
  EXPECT_THAT(spilling.report(),
              ::testing::HasSubstr(fmt::format("\"spill_bytes\": {}", spilling.resources().spill_bytes())));
  EXPECT_THAT(events.messages(Event::Kind::note), ::testing::Contains(::testing::HasSubstr("spilled")));
  EXPECT_EQ(compile({}, testing::sm_90a, {}, context).resources().spill_bytes(), 0);
}

}  // namespace
}  // namespace jit
