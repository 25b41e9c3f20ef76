#include <jit/kernel_config.h>

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace jit {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

/// Values that differ from the default's in every field.
KernelConfig other_config() {
  return {.mainloop = Mainloop::wgmma,
          .tile_q = 32,
          .tile_kv = 48,
          .warps = 2,
          .stages_q = 7,
          .stages_k = 3,
          .stages_v = 4,
          .swizzle = Swizzle::none,
          .ldmatrix_matrices = 2,
          .q_in_registers = true,
          .p_in_registers = false,
          .separate_o = true,
          .direct_o = true,
          .overlap = false,
          .order = WarpgroupOrder::softmax_lock,
          .persistent = false,
          .dependent_launch = true,
          .polynomial_exp2 = 6,
          .rescale = Rescale::always,
          .blocks_per_sm = 5};
}

/// The same as a config that makes sense: fields of the other mainloop are at their defaults.
KernelConfig other_config(Mainloop mainloop) {
  KernelConfig config = other_config();
  config.mainloop = mainloop;
  for (const ConfigField& field : config_fields()) {
    if (!field.applies_to(config)) field.set(config, field.get(KernelConfig{}));
  }
  return config;
}

// A field that is missing from the table would be missing from generated programs and keys. Copying a config
// field by field through the table must copy all of it.
TEST(ConfigFields, CoverEveryMember) {
  const KernelConfig other = other_config();
  KernelConfig copy;
  for (const ConfigField& field : config_fields()) {
    EXPECT_NE(field.get(copy), field.get(other)) << field.name;
    field.set(copy, field.get(other));
  }
  EXPECT_EQ(copy, other);
  // Does not compile once a member is added.
  const auto [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = other;
  EXPECT_EQ(config_fields().size(), 20u);
  EXPECT_EQ(std::tuple(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t),
            std::tuple(Mainloop::wgmma, 32, 48, 2, 7, 3, 4, Swizzle::none, 2, true, false, true, true, false,
                       WarpgroupOrder::softmax_lock, false, true, 6, Rescale::always, 5));
}

TEST(ConfigFields, EachSetsItsMemberAndNoOther) {
  std::set<std::string_view> names;
  for (const ConfigField& field : config_fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_FALSE(field.doc.empty());
    KernelConfig config;
    field.set(config, field.get(other_config()));
    int changed = 0;
    for (const ConfigField& each : config_fields()) changed += each.get(config) != each.get(KernelConfig{});
    EXPECT_EQ(changed, 1) << field.name;
  }
}

TEST(ConfigFields, ValuesAsTextAndAsSource) {
  std::string printed, emitted;
  for (const ConfigField& field : config_fields()) {
    printed += field.print(other_config()) + " ";
    emitted += std::string(field.cpp_type) + " " + field.emit(other_config()) + "; ";
  }
  EXPECT_EQ(printed,
            "wgmma 32 48 2 7 3 4 none 2 true false true true false softmax_lock false true 6 always 5 ");
  EXPECT_EQ(
      emitted,
      "Mainloop Mainloop::wgmma; int 32; int 48; int 2; int 7; int 3; int 4; Swizzle Swizzle::none; int 2; "
      "bool true; bool false; bool true; bool true; bool false; WarpgroupOrder WarpgroupOrder::softmax_lock; "
      "bool false; bool true; int 6; "
      "Rescale Rescale::always; int 5; ");
}

TEST(ParseConfig, ReadsWhatIsPrinted) {
  for (const KernelConfig& config :
       {KernelConfig{}, other_config(Mainloop::mma_sync), other_config(Mainloop::wgmma)}) {
    EXPECT_EQ(parse_config(to_string(config)), config);
    EXPECT_EQ(parse_config(to_string(config), other_config()), config);
  }
}

TEST(ParseConfig, FieldsOfOneMainloopAskForIt) {
  EXPECT_EQ(parse_config("stages_q=2").mainloop, Mainloop::wgmma);
  EXPECT_EQ(parse_config("stages_q=2").stages_q, 2);
  const KernelConfig wgmma = other_config(Mainloop::wgmma);
  const KernelConfig back = parse_config("warps=8", wgmma);
  EXPECT_EQ(back.mainloop, Mainloop::mma_sync);
  EXPECT_EQ(back.warps, 8);
  EXPECT_EQ(back.tile_kv, wgmma.tile_kv);
  EXPECT_EQ(back.stages_q, KernelConfig{}.stages_q);
  EXPECT_EQ(parse_config("tile_kv=64", wgmma).mainloop, Mainloop::wgmma);
  for (const char* text :
       {"mainloop=wgmma warps=8", "mainloop=mma_sync overlap=true", "warps=4 stages_q=1"}) {
    const Error error = error_of([&] { parse_config(text); });
    EXPECT_THAT(error.message(), HasSubstr("belongs to mainloop=")) << text;
  }
}

TEST(ParseConfig, KeepsWhatIsLeftOut) {
  EXPECT_EQ(parse_config(""), KernelConfig{});
  EXPECT_EQ(parse_config("  , "), KernelConfig{});
  EXPECT_EQ(parse_config("", other_config(Mainloop::mma_sync)), other_config(Mainloop::mma_sync));
  KernelConfig expected = other_config(Mainloop::mma_sync);
  expected.tile_kv = 64;
  expected.swizzle = Swizzle::xor_chunks;
  EXPECT_EQ(parse_config("tile_kv=64,\n swizzle=xor_chunks", other_config(Mainloop::mma_sync)), expected);
}

TEST(ParseConfig, NamesWhatItDoesNotKnow) {
  for (const char* text : {"tile=64", "tile_q", "=3", "tile_q 64", "Tile_q=64"}) {
    const Error error = error_of([&] { parse_config(text); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << text;
    EXPECT_THAT(error.message(), HasSubstr("fields are mainloop, tile_q, tile_kv"));
  }
  for (const char* text : {"tile_q=", "tile_q=big", "tile_q=64x", "tile_q=99999999999", "swizzle=zigzag",
                           "swizzle=1", "q_in_registers=yes", "rescale=", "tile_q==64"}) {
    const Error error = error_of([&] { parse_config(text); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << text;
    EXPECT_THAT(error.field(), HasSubstr("config.")) << text;
  }
  EXPECT_THAT(error_of([] { parse_config("swizzle=zigzag"); }).message(), HasSubstr("none, xor_chunks"));
}

}  // namespace
}  // namespace jit
