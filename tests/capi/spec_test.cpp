// Specs as text, and what is wrong with them.
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "capi/specs.h"
#include "tests/capi/c_tensors.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

jit_spec spec_of(const char* text, const std::vector<jit_functor>& functors = {}) {
  return {.size = sizeof(jit_spec),
          .text = text,
          .functors = functors.data(),
          .functor_count = functors.size(),
          .config = nullptr};
}

std::string refusal(const char* text) {
  return error_of([&] { c::attention_spec_of(spec_of(text)); }).message();
}

TEST(CSpec, EveryFieldOfAttentionCanBeSaid) {
  for (const SpecField& field : spec_fields()) {
    for (const AttentionSpec& sample : field.samples()) {
      const std::string text = text_of(sample);
      if (text.find("text(t)") != std::string::npos) continue;  // a user's text is given beside
      AttentionSpec expected = sample;
      if (expected.head_dim_v == 0 && text.find("head-dim-v") != std::string::npos)
        expected.head_dim_v = expected.head_dim;
      EXPECT_EQ(c::read_attention_spec(spec_of(text.c_str())), expected) << text;
    }
  }
}

TEST(CSpec, WordsAreAsOnACommandLine) {
  const AttentionSpec spec =
      c::attention_spec_of(spec_of("  --head-dim=64\t--mask \"causal && sliding_window(7)\"\n--sinks "
                                   "--softmax-scale 0.25 --dropout=false"));
  EXPECT_EQ(spec, (AttentionSpec{.head_dim = 64,
                                 .sinks = true,
                                 .mask = mask::causal() && mask::sliding_window(7),
                                 .softmax_scale = 0.25f}));
  jit_spec nothing = spec_of("");
  nothing.text = nullptr;
  EXPECT_EQ(c::attention_spec_of(nothing), AttentionSpec());
}

TEST(CSpec, TextThatCannotBeRead) {
  EXPECT_THAT(refusal("head-dim 64"), StartsWith("spec: 'head-dim' is no option; options begin with --"));
  EXPECT_THAT(refusal("--head 64"),
              StartsWith("spec: there is no option --head; there are --dtype, --head-dim, "));
  EXPECT_EQ(refusal("--head-dim"), "spec: --head-dim needs a value");
  EXPECT_EQ(refusal("--head-dim 64k"), "spec: --head-dim is '64k'; it must be a whole number");
  EXPECT_EQ(refusal("--head-dim 64 --head-dim 128"), "spec: --head-dim is given twice");
  EXPECT_EQ(refusal("--mask 'causal"), "spec: a ' is never closed: 'causal");
  EXPECT_EQ(refusal("--sinks=maybe"), "spec: --sinks is 'maybe'; it must be true or false");
  EXPECT_EQ(refusal("--softmax-scale big"), "spec: --softmax-scale is 'big'; it must be a number");
  EXPECT_THAT(refusal("--dtype fp12"), StartsWith("spec: --dtype is 'fp12'; "));
  EXPECT_THAT(refusal("--mask casual"), StartsWith("spec: --mask is 'casual'; "));
  EXPECT_EQ(error_of([] { c::attention_spec_of(spec_of("--mask casual")); }).field(), "spec.mask");
}

// No text ends in anything but a spec or an Error.
TEST(CSpec, RandomTextIsReadOrRefused) {
  const std::vector<std::string> pieces = {"--", "head-dim", "mask", "causal", "=",  " ",
                                           "'",  "\"",       "64",   "text(",  ")",  "-1",
                                           "&&", "true",     ",",    "sinks",  "\t", "\x80"};
  std::mt19937_64 random(reference::test_seed());
  int read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (auto left = random() % 9; left > 0; --left) text += pieces[random() % pieces.size()];
    try {
      c::read_attention_spec(spec_of(text.c_str()));
      ++read;
    } catch (const Error& error) {
      ASSERT_NE(error.message(), "") << text;
    }
  }
  EXPECT_GT(read, 100);
}

TEST(CSpec, SpecsThatTheLibraryRefuses) {
  const Error error = error_of([] { c::attention_spec_of(spec_of("--head-dim 100")); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
  EXPECT_EQ(error.field(), "spec.head_dim");
  const jit_spec spec = spec_of("--head-dim 100");
  EXPECT_THAT(c_text([&](char** json, jit_error** trouble) {
                return jit_refusals(nullptr, "sm_90a", &spec, json, trouble);
              }),
              HasSubstr("\"nearest\": \"104\""));
  const jit_spec served = spec_of("");
  EXPECT_EQ(c_text([&](char** json, jit_error** trouble) {
              return jit_refusals(nullptr, "sm_90a", &served, json, trouble);
            }),
            "[]");
}

TEST(CSpec, FunctorsMustBeCalled) {
  const std::vector<jit_functor> functors = {{"mine", "return q == k;"}};
  EXPECT_EQ(
      error_of([&] { c::attention_spec_of(spec_of("", functors)); }).message(),
      "functors: has 'mine', which none of --mask, --score and --output calls; say --mask 'text(mine)'");
  EXPECT_NO_THROW(c::attention_spec_of(spec_of("--mask '!text(mine)'", functors)));
  // A text is one of its caller's kind alone.
  const std::vector<jit_functor> both = {
      {"mine", "return q == k;"}, {"gate", "// tensor: gate fp16 as_row\nreturn value * sigmoid(gate);"}};
  const AttentionSpec gated =
      c::attention_spec_of(spec_of("--mask 'text(mine)' --output 'text(gate), scale'", both));
  EXPECT_EQ(gated.output.to_string(), "text(gate), scale");
  EXPECT_EQ(gated.output.tensors().front(), (FunctorTensorSpec{"gate", DType::fp16, TensorAccess::as_row}));
  EXPECT_THAT(error_of([&] {
                c::attention_spec_of(spec_of("--output text(mine) --mask text(gate)", both));
              }).message(),
              HasSubstr("which only outputs may read"));
  EXPECT_THAT(error_of([&] {
                c::attention_spec_of(spec_of("", {{"mine", "// constant: a\nreturn true;"}}));
              }).message(),
              HasSubstr("line 1"));
  EXPECT_EQ(error_of([&] {
              c::attention_spec_of(spec_of("", {{nullptr, nullptr}}));
            }).field(),
            "functors[0]");
  EXPECT_EQ(error_of([&] { c::append_spec_of(spec_of("", functors)); }).field(), "functors");
}

TEST(CSpec, OtherOperations) {
  AppendSpec append = {.dtype = DType::fp16,
                       .cache_dtype = DType::fp8_e5m2,
                       .scale_per = ScaleKind::token,
                       .head_dim = 64,
                       .head_dim_v = 32,
                       .alignment = 8,
                       .rotary_dim = 32,
                       .rotary_interleaved = true,
                       .cos_sin_dtype = DType::fp16,
                       .mrope_sections = {4, 6, 6},
                       .mrope_interleaved = true,
                       .norm = true,
                       .norm_dtype = DType::fp32,
                       .norm_adds_one = true,
                       .norm_eps = 1e-5f};
  EXPECT_EQ(
      c::append_spec_of(spec_of(
          "--dtype fp16 --cache-dtype fp8_e5m2 --scale-per token --head-dim 64 --head-dim-v 32 --alignment 8 "
          "--rotary-dim 32 --rotary-interleaved --cos-sin-dtype fp16 --mrope-sections 4,6,6 "
          "--mrope-interleaved --norm --norm-dtype fp32 --norm-adds-one --norm-eps 1e-5")),
      append);
  EXPECT_EQ(
      c::merge_spec_of(spec_of("--dtype fp16 --out-dtype fp32 --head-dim-v 64 --alignment 4 --views 3")),
      (MergeSpec{
          .dtype = DType::fp16, .out_dtype = DType::fp32, .head_dim_v = 64, .alignment = 4, .views = 3}));
  EXPECT_EQ(c::quantize_spec_of(
                spec_of("--head-dim 64 --scales block --value-scales channel --rotate --center-keys "
                        "--center-values --keep-rows never --sequences varlen --out-dtype fp8_e5m2")),
            (QuantizeSpec{.out_dtype = DType::fp8_e5m2,
                          .head_dim = 64,
                          .scales = QuantizedScales::block,
                          .value_scales = QuantizedScales::channel,
                          .rotate = true,
                          .center_keys = true,
                          .center_values = true,
                          .sequences = SequenceKind::varlen,
                          .keep_rows = KeepRows::never}));
  EXPECT_EQ(
      c::block_mask_spec_of(spec_of("--mask 'prefix(9)' --block-q 64 --block-kv 32 --varlen-q --scores")),
      (BlockMaskSpec{
          .mask = mask::prefix(9), .block_q = 64, .block_kv = 32, .varlen_q = true, .scores = true}));
  EXPECT_THAT(error_of([] { c::append_spec_of(spec_of("--mrope-sections 4,6")); }).message(),
              HasSubstr("three numbers"));
  EXPECT_EQ(error_of([] { c::merge_spec_of(spec_of("--views 33")); }).code(), ErrorCode::invalid_spec);
}

}  // namespace
}  // namespace jit::testing
