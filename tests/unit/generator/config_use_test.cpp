// Limits the number of fields and values of configs: each value that is searched is among the first that the cost
// model ranks for some problem, or some spec has no config without it; each field varies where nothing else does; and each
// spec has a config.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "tests/support/random_spec.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

struct SampledProblem {
  AttentionSpec spec;
  ProblemShape shape;
};

// Values that are columns of keys, of which random tests of all families draw none.
AttentionSpec draw_latents(reference::Random& random) {
  const bool is_paged = reference::draw(random, 0, 1) == 0;
  const bool is_large = reference::draw(random, 0, 1) == 0;
  return {.head_dim = is_large ? 576 : 192,
          .head_dim_v = is_large ? 512 : 128,
          .gqa_ratio = 16 << reference::draw(random, 0, 3),
          .sequences_kv = is_paged ? SequenceKind::paged : SequenceKind::dense,
          .page_size = is_paged ? 1 << reference::draw(random, 0, 6) : 0,
          .split_keys = reference::draw(random, 0, 3) == 0 ? 256 : 0,
          .values_in_keys = true,
          .mask = reference::draw(random, 0, 1) == 0 ? Mask() : mask::causal()};
}

// Caches of 4 and 8 bits with a scale of each token, as engines have them.
AttentionSpec draw_cache(reference::Random& random) {
  return {.head_dim = 64 << reference::draw(random, 0, 1),
          .gqa_ratio = 1 << reference::draw(random, 0, 3),
          .sequences_kv = SequenceKind::paged,
          .page_size = 16,
          .kv_dtype = reference::draw(random, 0, 1) == 0 ? DType::int4 : DType::int8,
          .descale_per = ScaleKind::token,
          .v_descale_per = ScaleKind::token};
}

// Specs of all kinds that random tests draw, of which no GPU refuses any.
AttentionSpec draw_spec(reference::Random& random) {
  AttentionSpec spec = reference::random_spec(random);
  const int kind = reference::draw(random, 0, 7);
  if (kind == 1 || kind == 2) reference::make_sequences(spec, random);
  if (kind >= 2 && kind <= 4) reference::make_fp8(spec, random);
  if (kind == 5) spec.dropout = true;
  return spec;
}

bool is_valid(const AttentionSpec& spec) {
  try {
    validate(spec);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Problems of a pass: specs as above, those with gradients for backward, and the plain ones of benchmarks;
// sizes from one query to many.
std::vector<SampledProblem> sampled_problems(Pass pass, int count) {
  reference::Random random(20261128);  // the same in each run: what is reported does not depend on it
  std::vector<SampledProblem> problems;
  while (static_cast<int>(problems.size()) < count) {
    AttentionSpec spec = draw_spec(random);
    if (reference::draw(random, 0, 1) == 0)
      spec = {.head_dim = 64 << reference::draw(random, 0, 2),
              .gqa_ratio = 1 << reference::draw(random, 0, 3),
              .mask = reference::draw(random, 0, 1) == 0 ? Mask() : mask::causal()};
    if (pass == Pass::forward && reference::draw(random, 0, 9) == 0) spec = draw_latents(random);
    if (pass == Pass::forward && reference::draw(random, 0, 19) == 0) spec = draw_cache(random);
    if (pass != Pass::forward) {
      spec.sequences_kv = SequenceKind::dense;
      spec.page_size = spec.split_keys = 0;
    }
    if (!is_valid(spec)) continue;
    const std::int64_t keys = std::int64_t{1} << reference::draw(random, 4, 15);
    problems.push_back({spec,
                        {.pass = pass,
                         .batch = std::int64_t{1} << reference::draw(random, 0, 6),
                         .heads_q = 8 * spec.gqa_ratio,
                         .seqlen_q = reference::draw(random, 0, 2) == 0 ? 1 : keys,
                         .seqlen_kv = keys,
                         .tma = spec.alignment == 16,
                         .has_device_lengths = !is_plain(spec)}});
  }
  return problems;
}

/// Values of "family.field".
using Values = std::map<std::string, std::set<std::string>>;

void add(Values& values, const KernelConfig& config) {
  for (const ConfigValue& value : config_values(config))
    values[fmt::format("{}.{}", family_name(config), value.name)].insert(value.text);
}

// Some configs of one family, which have each value of each field: texts of all would take most of the time.
std::vector<KernelConfig> some_of_each_value(const std::vector<KernelConfig>& configs) {
  return std::visit(
      [&]<class Config>(const Config&) {
        std::vector<KernelConfig> some;
        for (const ConfigField<Config>& field : Family<Config>::fields()) {
          std::set<int> numbers;
          for (const KernelConfig& config : configs)
            if (numbers.insert(field.get(std::get<Config>(config))).second) some.push_back(config);
        }
        return some;
      },
      configs.front());
}

struct Use {
  Values searched;
  Values used;
  std::set<std::string> varied;  // fields of which two configs differ that are alike otherwise
};

// So many of a family's configs are looked at: more than tuning times, and no more than a quarter of a small grid.
constexpr std::size_t most_ranked = 16;
std::size_t ranked_of(std::size_t configs) {
  return std::min(configs, std::clamp<std::size_t>((configs + 3) / 4, 2, most_ranked));
}

// "family.field" of the fields that vary alone among the configs of one family and problem, but for those that are known
// to.
void add_varied(std::set<std::string>& varied, const std::vector<KernelConfig>& configs) {
  std::visit(
      [&]<class Config>(const Config&) {
        for (const ConfigField<Config>& field : Family<Config>::fields()) {
          const std::string name = fmt::format("{}.{}", Family<Config>::name, field.name);
          if (varied.contains(name)) continue;
          std::set<std::vector<int>> others;  // what the configs have beside the field
          for (const KernelConfig& config : configs) {
            std::vector<int> numbers;
            for (const ConfigField<Config>& each : Family<Config>::fields())
              if (each.name != field.name) numbers.push_back(each.get(std::get<Config>(config)));
            others.insert(numbers);
          }
          if (others.size() < configs.size()) varied.insert(name);
        }
      },
      configs.front());
}

void add_use(Use& use, const SampledProblem& problem, const DeviceLimits& limits) {
  std::map<std::string, std::vector<KernelConfig>> by_family;
  const Case of_spec{problem.spec, limits};
  if (config_space(of_spec, problem.shape).empty()) return;
  for (const KernelConfig& config : ranked_configs(problem.spec, problem.shape, limits))
    by_family[std::string(family_name(config))].push_back(config);
  for (const auto& [family, configs] : by_family) {
    add_varied(use.varied, configs);
    Values searched;
    for (const KernelConfig& config : some_of_each_value(configs)) add(searched, config);
    for (const auto& [field, values] : searched) {
      use.searched[field].insert(values.begin(), values.end());
      if (values.size() == 1) use.used[field].insert(*values.begin());  // the spec needs it
    }
    for (std::size_t i = 0; i < ranked_of(configs.size()); ++i) add(use.used, configs[i]);
  }
}

Use find_use_of_configs() {
  Use use;
  for (const auto& [pass, count] : {std::pair(Pass::forward, 800),
                                    {Pass::backward, 80},
                                    {Pass::backward_dq, 80},
                                    {Pass::backward_dkv, 80}}) {
    const std::vector<SampledProblem> problems = sampled_problems(pass, count);
    for (std::size_t i = 0; i < problems.size(); ++i) {
      DeviceLimits limits = device_limits(i % 3 == 0 ? Arch{8, 0, 0} : Arch{9, 0, 'a'});
      limits.sm_count = i % 3 == 0 ? 108 : 132;
      add_use(use, problems[i], limits);
    }
  }
  return use;
}

const Use& use_of_configs() {
  static const Use use = find_use_of_configs();
  return use;
}

// A field or a value that fails here costs keys, tests and time of each search, and gains nothing: it goes out, or the
// search leaves it out.
TEST(ConfigUse, EachSearchedValueRanksForSomeProblemOrIsNeeded) {
  // Values that a measurement supports and the cost model does not, or that no sampled GPU needs.
  const std::set<std::string> fastest_by_records = {
      "forward_mma_sync.warps=8",  // head_dim 256, causal, 8,192 tokens: bench/results/2026-11-20-h200-search.jsonl.gz
      "backward_dq_mma_sync.tile_q=16"};  // needed for head_dim 512 with dropout where shared memory is least
  const Use& use = use_of_configs();
  for (const auto& [field, values] : use.searched) {
    for (const std::string& value : values) {
      if (fastest_by_records.contains(fmt::format("{}={}", field, value))) continue;
      EXPECT_TRUE(use.used.at(field).contains(value))
          << field << "=" << value << " is among the first " << most_ranked
          << " configs of its family for no sampled problem, and no sampled spec needs it";
    }
  }
}

// A field that never varies alone follows from the spec or from other fields, and is none, but for these, each for a reason
// that is none of time.
TEST(ConfigUse, EachFieldVariesAloneButThoseThatOthersDecide) {
  const std::set<std::string> of_others = {
      "forward_wgmma.promote_every",   // accuracy, by hand
      "forward_wgmma.requests",        // calls that take two kernels
      "forward_split_wgmma.requests",  // the same
      "forward_wgmma.upcast_ahead",    // in place of stages_stored
      "forward_wgmma.stages_v",        // with stages_k, for fewer points
      // sm_120a is not sampled, and they are as large as there is room for.
      "forward_mma_tma.tile_q", "forward_mma_tma.tile_kv", "forward_mma_tma.stages",
      // As many as there is room for, and turns where calls want them: nobody has timed what they cost.
      "backward_tcgen05.stages", "backward_tcgen05.deterministic", "forward_tcgen05.stages",
      "backward_dq_wide_wgmma.panels", "backward_dq_wide_wgmma.parts", "backward_dkv_wide_wgmma.panels",
      "backward_dkv_wide_wgmma.parts"};
  std::set<std::string> unvaried;
  for_each_family([&]<class Config>(const Config&) {
    for (const ConfigField<Config>& field : Family<Config>::fields())
      unvaried.insert(fmt::format("{}.{}", Family<Config>::name, field.name));
  });
  for (const std::string& varied : use_of_configs().varied) unvaried.erase(varied);
  EXPECT_EQ(unvaried, of_others);
}

// Thousands of specs, on each architecture: some config is legal, and one of those that is tried first has registers
// enough for sure.
TEST(ConfigUse, EachSpecThatTestsDrawHasAConfig) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 1500; ++i) {
    const AttentionSpec spec = draw_spec(random);
    if (!is_valid(spec)) continue;
    const Arch& arch = i % 2 == 0 ? Arch{9, 0, 'a'} : known_archs()[random() % known_archs().size()];
    const DeviceLimits limits = device_limits(arch);
    if (!refusals_of(spec, arch).empty()) continue;
    const ProblemShape shape{.batch = 4,
                             .heads_q = 8 * spec.gqa_ratio,
                             .seqlen_q = i % 3 == 0 ? 1 : 1024,
                             .seqlen_kv = 2048,
                             .tma = spec.alignment == 16,
                             .has_device_lengths = !is_plain(spec)};
    std::vector<KernelConfig> configs = config_space({spec, limits}, shape);
    EXPECT_FALSE(configs.empty()) << to_string(spec) << " on " << to_string(arch);
    // Dense 16-bit problems have a kernel by TMA and wgmma, which these fields belong to.
    const bool wants_wgmma = arch == Arch{9, 0, 'a'} && is_plain(spec) && spec.alignment == 16 &&
                             std::max(spec.head_dim, spec.value_head_dim()) <= most_warp_columns;
    EXPECT_TRUE(!wants_wgmma || std::any_of(configs.begin(), configs.end(), [&](const KernelConfig& config) {
      if (!std::holds_alternative<ForwardWgmma>(config)) return false;
      const Footprint needs = footprint(spec, config);
      return needs.registers + needs.register_doubt <= needs.register_cap;
    })) << to_string(spec);
  }
}

// By how much a search can grow before somebody notices.
TEST(ConfigUse, GridsStaySmall) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  EXPECT_LE(Family<ForwardWgmma>::fields().size(), 15u);
  EXPECT_EQ(Family<ForwardWgmma>::space({{.head_dim = 128}, limits}).size(), 1092u);
}

}  // namespace
}  // namespace jit
