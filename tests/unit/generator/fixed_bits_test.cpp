// Specs with split_keys: each forward family of each architecture computes their bits, or refuses them by name.
#include "generator/kernels/fixed_bits.h"

#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/arch.h>

#include "generator/kernels/families.h"

namespace jit {
namespace {

using ::testing::HasSubstr;

// The answer of each forward family to such specs wherever it has kernels; empty: it serves them.
const std::map<std::string_view, std::string_view> answers = {
    {"forward_mma_sync", ""},
    {"forward_wgmma", ""},
    {"forward_split_kv", ""},
    {"forward_split_wgmma", ""},
    {"forward_split_cluster", "has no spans of keys"},
    {"forward_mma_tma", "not in spans of split_keys"},
    {"forward_tcgen05", "not in spans of split_keys"},
    {"forward_wide_wgmma", "is for head dims above 256"},
    {"forward_mla_wgmma", "values that are the first columns of the keys"},
};

std::vector<AttentionSpec> specs() {
  std::vector<AttentionSpec> all;
  for (const auto& [head_dim, head_dim_v] :
       {std::pair(64, 64), {40, 72}, {128, 128}, {192, 128}, {256, 256}}) {
    for (const int split_keys : {64, 128, 192, 4096}) {
      all.push_back(
          {.head_dim = head_dim, .head_dim_v = head_dim_v, .gqa_ratio = 4, .split_keys = split_keys});
      all.push_back(all.back());
      all.back().sequences_q = all.back().sequences_kv = SequenceKind::varlen;
      all.back().sinks = true;
    }
  }
  return all;
}

template <class F>
void for_each_forward_family(F f) {
  for_each_family([&]<class Config>(const Config& config) {
    if constexpr (Family<Config>::pass == Pass::forward) f(config);
  });
}

// Why the sums of this config's kernels are not those of the others; empty: they are.
template <class Config>
std::string other_bits(const AttentionSpec& spec, Arch arch, const Config& config) {
  if constexpr (requires { config.tile_kv; })
    if (config.tile_kv != fixed_bits_tile(spec, arch)) return fmt::format("tile_kv = {}", config.tile_kv);
  if constexpr (requires { config.key_warps; })
    if (config.key_warps != 1) return fmt::format("key_warps = {}", config.key_warps);
  if constexpr (requires { config.rescale; })
    if (config.rescale == Rescale::always) return "rescale";
  return "";
}

// Configs like this one with other values of what bits could depend on.
template <class Config>
std::vector<Config> neighbors(const Config& config) {
  std::vector<Config> all = {config};
  const auto add = [&](auto member, auto values) {
    for (const auto value : values) {
      all.push_back(config);
      all.back().*member = value;
    }
  };
  if constexpr (requires { config.tile_kv; }) add(&Config::tile_kv, std::vector{16, 32, 48, 64, 96, 128});
  if constexpr (requires { config.key_warps; }) add(&Config::key_warps, std::vector{1, 2, 4});
  if constexpr (requires { config.rescale; })
    add(&Config::rescale, std::vector{Rescale::always, Rescale::lazy, Rescale::on_overflow});
  return all;
}

TEST(FixedBits, EachForwardFamilyHasAnAnswer) {
  std::set<std::string_view> names;
  for_each_forward_family([&]<class Config>(const Config&) { names.insert(Family<Config>::name); });
  std::set<std::string_view> known;
  for (const auto& [name, answer] : answers) known.insert(name);
  EXPECT_EQ(names, known) << "a family is to serve split_keys with the bits of the others, or to refuse it";
}

TEST(FixedBits, FamiliesOfEachArchitectureServeOrRefuse) {
  for (const Arch arch : known_archs()) {
    const DeviceLimits limits = device_limits(arch);
    for (const AttentionSpec& spec : specs()) {
      ASSERT_TRUE(has_fixed_bits(spec));
      const Case problem{spec, limits};
      for_each_forward_family([&]<class Config>(const Config&) {
        if (!is_written_for<Config>(arch)) return;
        const std::string what =
            fmt::format("{}: {} on {}", Family<Config>::name, to_string(spec), to_string(arch));
        const std::string reason = family_rejection(problem, smallest_of<Config>(problem));
        const std::string answer(answers.at(Family<Config>::name));
        if (answer.empty()) {
          EXPECT_EQ(reason, "") << what;
        } else {
          EXPECT_THAT(reason, HasSubstr(answer)) << what;
        }
        std::vector<Config> configs = legal_space<Config>(problem);
        EXPECT_EQ(configs.empty(), !answer.empty()) << what;
        configs.push_back(smallest_of<Config>(problem));
        for (std::size_t i = 0; i < configs.size(); i += 1 + configs.size() / 8) {
          for (const Config& config : neighbors(configs[i])) {
            if (!family_rejection(problem, config).empty()) continue;
            EXPECT_EQ(other_bits(spec, arch, config), "") << what;
          }
        }
      });
    }
  }
}

// Specs whose bits depend on more have one family that serves all of their calls.
TEST(FixedBits, OthersSayWhy) {
  const auto why = [](AttentionSpec spec) {
    spec.split_keys = 128;
    EXPECT_FALSE(has_fixed_bits(spec));
    return unfixed_bits(spec);
  };
  EXPECT_THAT(why({.dtype = DType::fp8_e4m3}), HasSubstr("dtype"));
  EXPECT_THAT(why({.kv_dtype = DType::fp8_e4m3}), HasSubstr("kv_dtype"));
  EXPECT_THAT(why({.head_dim = 320}), HasSubstr("head_dim"));
  EXPECT_THAT(why({.head_dim = 576, .head_dim_v = 512, .values_in_keys = true}), HasSubstr("values_in_keys"));
  // A block of one of them has no place for what waits: which has the calls of one config.
  const AttentionSpec wide{.head_dim = 320, .split_keys = 128};
  EXPECT_THAT(lone_block_rejection(wide, Arch{8, 0}, 64, "a family"), HasSubstr("not with head_dim"));
}

}  // namespace
}  // namespace jit
