#include <jit/kernel_config.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/kernels/families.h"
#include "generator/kernels/retired_fields.h"
#include "tests/support/error_of.h"

namespace jit {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

const ForwardMmaSync other_mma_sync = {.tile_q = 32,
                                       .tile_kv = 48,
                                       .warps = 2,
                                       .stages_k = 3,
                                       .stages_v = 4,
                                       .q_in_registers = true,
                                       .rescale = Rescale::always,
                                       .blocks_per_sm = 5};
const ForwardWgmma other_wgmma = {.tile_q = 192,
                                  .tile_kv = 48,
                                  .stages_q = 2,
                                  .stages_k = 3,
                                  .stages_v = 4,
                                  .output = OutputPlace::direct,
                                  .order = WarpgroupOrder::ping_pong,
                                  .rescale = Rescale::on_overflow,
                                  .blocks_per_sm = 5,
                                  .requests = Requests::many_queries,
                                  .promote_every = 7,
                                  .stages_stored = 2,
                                  .converter_warps = 4,
                                  .upcast_ahead = true,
                                  .dropout_mask_ahead = true};

// Copying a config field by field through the table must copy all of it: that each member has a row is
// asserted where the tables stand, that it is the right one is seen here.
TEST(ConfigFields, EachSetsItsMemberAndNoOther) {
  for_each_family([]<class Config>(const Config&) {
    std::set<std::string_view> names;
    Config all;
    for (const ConfigField<Config>& field : Family<Config>::fields()) {
      EXPECT_TRUE(names.insert(field.name).second) << field.name;
      EXPECT_FALSE(field.doc.empty());
      Config one;
      field.set(one, field.sample);
      field.set(all, field.sample);
      EXPECT_NE(field.get(one), field.get(Config{})) << field.name << ": a sample differs from the default";
      EXPECT_TRUE(field.legal.has(field.sample)) << field.name;
      EXPECT_TRUE(field.legal.has(field.get(Config{}))) << field.name;
      int changed = 0;
      for (const ConfigField<Config>& each : Family<Config>::fields())
        changed += each.get(one) != each.get(Config{});
      EXPECT_EQ(changed, 1) << field.name;
    }
    EXPECT_EQ(parse_config(to_string(KernelConfig(all))), KernelConfig(all));
  });
}

TEST(ConfigFields, ValuesAsTextAndAsSource) {
  std::string printed, emitted;
  for (const ConfigField<ForwardWgmma>& field : Family<ForwardWgmma>::fields()) {
    printed += field.print(other_wgmma) + " ";
    emitted += std::string(field.cpp_type) + " " + field.emit(other_wgmma) + "; ";
  }
  EXPECT_EQ(printed, "192 48 2 3 4 direct ping_pong on_overflow 5 many_queries 7 2 4 true true ");
  EXPECT_EQ(emitted,
            "int 192; int 48; int 2; int 3; int 4; OutputPlace OutputPlace::direct; "
            "WarpgroupOrder WarpgroupOrder::ping_pong; Rescale Rescale::on_overflow; int 5; "
            "Requests Requests::many_queries; int 7; int 2; int 4; bool true; bool true; ");
}

TEST(ConfigFields, WhatTheyMayBe) {
  EXPECT_EQ(to_string(range(1, 4)), "1 to 4");
  EXPECT_EQ(to_string(multiples(2, 4)), "2 or 4");
  EXPECT_EQ(to_string(multiples(16, 256)), "a multiple of 16 from 16 to 256");
  // A family may know fewer words than there are.
  const auto fields = Family<ForwardWgmma>::fields();
  const auto rescale =
      std::find_if(fields.begin(), fields.end(), [](const auto& field) { return field.name == "rescale"; });
  ASSERT_NE(rescale, fields.end());
  EXPECT_EQ(rescale->values(), "lazy, on_overflow");
  for (const FamilyDoc& family : family_docs()) {
    EXPECT_FALSE(family.doc.empty());
    for (const ConfigFieldDoc& field : family.fields) EXPECT_FALSE(field.values.empty()) << field.name;
  }
}

// An enumerator that does not exist, which only a cast can make.
TEST(ConfigFields, AValueWithoutANameIsRefused) {
  ForwardMmaSync config;
  config.rescale = static_cast<Rescale>(7);
  EXPECT_THAT(to_string(KernelConfig(config)), HasSubstr("rescale=7"));
  EXPECT_EQ(config_rejection({}, config, device_limits(Arch{8, 0, 0})),
            "rescale = 7 must be always, lazy, on_overflow");
}

TEST(ParseConfig, ReadsWhatIsPrinted) {
  const std::vector<KernelConfig> configs = {ForwardMmaSync{}, ForwardWgmma{}, other_mma_sync, other_wgmma};
  for (const KernelConfig& config : configs) {
    for (const KernelConfig& base : configs) EXPECT_EQ(parse_config(to_string(config), base), config);
  }
  EXPECT_EQ(family_name(other_wgmma), "forward_wgmma");
  EXPECT_THAT(to_string(KernelConfig(other_wgmma)), HasSubstr("family=forward_wgmma tile_q=192 "));
}

TEST(ParseConfig, FieldsOfOneFamilyAskForIt) {
  EXPECT_EQ(parse_config("output=separate"), KernelConfig(ForwardWgmma{.output = OutputPlace::separate}));
  EXPECT_EQ(parse_config("warps=8", other_wgmma), KernelConfig(ForwardMmaSync{.warps = 8}));
  EXPECT_TRUE(std::holds_alternative<ForwardWgmma>(parse_config("tile_kv=64", other_wgmma)));
  EXPECT_TRUE(std::holds_alternative<ForwardWgmma>(parse_config("family=forward_wgmma", {})));
  for (const char* text :
       {"family=forward_wgmma warps=8", "family=forward_mma_sync output=direct", "warps=4 output=direct"}) {
    const Error error = error_of([&] { parse_config(text); });
    EXPECT_THAT(error.message(), HasSubstr("belongs to family=")) << text;
  }
  EXPECT_THAT(error_of([] { parse_config("family=wgmma"); }).message(),
              HasSubstr("it is one of forward_mma_sync, forward_wgmma"));
}

TEST(ParseConfig, TakesEachFieldOnce) {
  for (const char* text : {"warps=4 tile_q=64 warps=8", "family=forward_wgmma family=forward_mma_sync",
                           "family=forward_wgmma, family=forward_wgmma"}) {
    const Error error = error_of([&] { parse_config(text); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << text;
    EXPECT_THAT(error.message(), HasSubstr("is given twice")) << text;
  }
}

TEST(ParseConfig, KeepsWhatIsLeftOut) {
  EXPECT_EQ(parse_config(""), KernelConfig{});
  EXPECT_EQ(parse_config("  , "), KernelConfig{});
  EXPECT_EQ(parse_config("", other_mma_sync), KernelConfig(other_mma_sync));
  ForwardMmaSync expected = other_mma_sync;
  expected.tile_kv = 64;
  expected.rescale = Rescale::lazy;
  EXPECT_EQ(parse_config("tile_kv=64,\n rescale=lazy", other_mma_sync), KernelConfig(expected));
}

TEST(ParseConfig, NamesWhatItDoesNotKnow) {
  for (const char* text : {"tile=64", "tile_q", "=3", "tile_q 64", "Tile_q=64", "mainloop=wgmma"}) {
    const Error error = error_of([&] { parse_config(text); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << text;
    EXPECT_THAT(error.message(), HasSubstr("fields are family, tile_q, tile_kv"));
  }
  for (const char* text : {"tile_q=", "tile_q=big", "tile_q=64x", "tile_q=99999999999", "order=zigzag",
                           "order=1", "q_in_registers=yes", "rescale=", "tile_q==64", "family="}) {
    const Error error = error_of([&] { parse_config(text); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << text;
    EXPECT_THAT(error.field(), HasSubstr("config.")) << text;
  }
  EXPECT_THAT(error_of([] { parse_config("rescale=zigzag"); }).message(),
              HasSubstr("always, lazy, on_overflow"));
}

// Texts of earlier versions are told what holds in place of a field, in one sentence.
TEST(ParseConfig, SaysWhatBecameOfRetiredFields) {
  for (const RetiredField& field : retired_fields()) {
    const Error error =
        error_of([&] { parse_config(fmt::format("family={} {}=1", field.family, field.name)); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << field.name;
    EXPECT_EQ(error.field(), "config." + std::string(field.name));
    EXPECT_THAT(error.message(), HasSubstr("is retired"));
    EXPECT_THAT(error.message(), HasSubstr(field.now));
  }
  EXPECT_EQ(
      error_of([] { parse_config("overlap=false"); }).message(),
      "config field overlap is retired, because in family=forward_wgmma softmax always runs under the P V "
      "of the tile before; leave it out");
  EXPECT_EQ(error_of([] { parse_config("draw_ahead=true", BackwardWgmma{}); }).message(),
            "config field draw_ahead is retired, because in family=backward_wgmma it is called "
            "dropout_mask_ahead; give it by that name");
  EXPECT_THAT(error_of([] { parse_config("order=softmax_lock", ForwardWgmma{}); }).message(),
              HasSubstr("it is one of free, ping_pong"));
}

// A name is a field again only where it is one of another family.
TEST(ParseConfig, NoFieldIsRetired) {
  for_each_family([]<class Config>(const Config&) {
    for (const ConfigField<Config>& field : Family<Config>::fields())
      EXPECT_EQ(find_retired(Family<Config>::name, field.name), nullptr) << field.name;
  });
}

}  // namespace
}  // namespace jit
