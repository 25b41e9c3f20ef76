
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/spec_table.h>

#include "tests/support/random_spec.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

TEST(SpecTable, SamplesAreLegalAndDifferInTheirFieldAlone) {
  for (const SpecField& field : spec_fields()) {
    EXPECT_FALSE(field.doc.empty()) << field.name;
    EXPECT_EQ(field.is_baked, !field.record_name.empty()) << field.name;
    ASSERT_FALSE(field.samples().empty()) << field.name;
    for (const AttentionSpec& sample : field.samples()) {
      EXPECT_THAT(refusals_of(sample, Arch{9, 0, 'a'}), ::testing::IsEmpty()) << field.name;
      EXPECT_FALSE(is_default(field, sample)) << field.name;
      for (const SpecField& other : spec_fields()) {
        EXPECT_EQ(value_word(other, sample) != value_word(other, field.base()), &other == &field)
            << field.name << " " << other.name;
      }
    }
  }
}

// Two specs are equal when all their fields are: no field is without a row.
TEST(SpecTable, RowsCoverTheSpec) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 200; ++i) {
    const AttentionSpec spec = reference::random_spec(random);
    AttentionSpec copy;
    for (const SpecField& field : spec_fields())
      std::visit([&](auto member) { copy.*member = spec.*member; }, field.member);
    EXPECT_EQ(copy, spec);
  }
}

TEST(SpecTable, ValuesAreThoseThatKernelsAreMadeFor) {
  const SpecField& head_dim_v = spec_fields()[2];
  ASSERT_EQ(head_dim_v.name, "head_dim_v");
  EXPECT_EQ(value_text(head_dim_v, {.head_dim = 64}), "64");
  EXPECT_EQ(value_text(head_dim_v, {.head_dim = 64, .head_dim_v = 32}), "32");
  EXPECT_TRUE(is_default(head_dim_v, {.head_dim = 64, .head_dim_v = 64}));
  EXPECT_FALSE(is_default(head_dim_v, {.head_dim = 64, .head_dim_v = 128}));
}

TEST(SpecTable, OneLineNamesWhatIsNotTheDefault) {
  EXPECT_EQ(to_string(AttentionSpec{}), "bf16 d128");
  EXPECT_EQ(to_string(AttentionSpec{.dtype = DType::fp16,
                                    .head_dim = 64,
                                    .head_dim_v = 32,
                                    .gqa_ratio = 4,
                                    .alignment = 8,
                                    .seqlen_q = 1,
                                    .seqlen_kv = 2,
                                    .mask = mask::causal(),
                                    .score = score::alibi(),
                                    .softmax_scale = 2.0f}),
            "fp16 d64/32 gqa4 align8 seqlen_q=1 seqlen_kv=2 mask=causal score=alibi");
}

}  // namespace
}  // namespace jit
