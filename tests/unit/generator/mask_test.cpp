#include <jit/mask.h>

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> names(const std::vector<FunctorTensorSpec>& tensors) {
  std::vector<std::string> result;
  for (const FunctorTensorSpec& tensor : tensors) result.push_back(tensor.name);
  return result;
}

TEST(Mask, PrintsWhatItReads) {
  for (const char* text : {"none",
                           "causal",
                           "causal(top_left)",
                           "sliding_window(1024)",
                           "sliding_window(-1, 5, top_left)",
                           "prefix(64)",
                           "prefix_lengths",
                           "document",
                           "tree",
                           "causal_per_request",
                           "draft_tree",
                           "draft_tree && sliding_window(8)",
                           "!causal",
                           "causal && sliding_window(8)",
                           "causal || prefix(3)",
                           "(causal || prefix(3)) && document",
                           "causal || prefix(3) && document",
                           "!(causal && document)",
                           "!causal && document",
                           "causal && document && prefix(1)",
                           "causal && (document && prefix(1))",
                           "causal || (document || prefix(1))"}) {
    EXPECT_EQ(parse_mask(text).to_string(), text);
  }
}

TEST(Mask, RandomExpressionsSurviveARoundTrip) {
  reference::Random random(reference::test_seed());
  const std::vector<FunctorText> texts = reference::mask_texts();
  for (int i = 0; i < 2000; ++i) {
    const Mask mask = reference::random_mask(random, 5);
    const Mask read = parse_mask(mask.to_string(), texts);
    ASSERT_EQ(read, mask) << mask.to_string();
    ASSERT_EQ(read.to_string(), mask.to_string());
    ASSERT_EQ(read.tensors(), mask.tensors());
  }
}

TEST(Mask, JoinsAtMost64) {
  Mask mask;
  std::string text = "none";
  for (int i = 0; i < 64; ++i) {
    mask = !(mask && mask::sliding_window(i, i));
    text += " && prefix(1)";
  }
  EXPECT_EQ(parse_mask(mask.to_string()), mask);
  EXPECT_NO_THROW(parse_mask(text));
  for (const Error& error : {error_of([&] { mask || mask::causal(); }), error_of([&] { mask&& mask; }),
                             error_of([&] { parse_mask(text + " && causal"); })}) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
    EXPECT_EQ(error.field(), "spec.mask");
    EXPECT_THAT(error.message(), HasSubstr("a mask joins at most 64 masks"));
    EXPECT_THAT(error.message(), HasSubstr("text functor"));
  }
}

TEST(Mask, ReadsFreely) {
  EXPECT_EQ(parse_mask("  causal&&\n window ( 8 ,0 ) "), mask::causal() && mask::sliding_window(8, 0));
  EXPECT_EQ(parse_mask("sliding_window(8, 0)"), mask::sliding_window(8));
  EXPECT_EQ(parse_mask("window(8)").to_string(), "sliding_window(8)") << "the name of before 0.1";
  EXPECT_EQ(parse_mask("causal(bottom_right)"), mask::causal());
  EXPECT_EQ(parse_mask("!!causal"), mask::causal());
  EXPECT_EQ(parse_mask("((causal))"), mask::causal());
  EXPECT_EQ(parse_mask("causal & ~prefix(8) | sliding_window(8, 0)"),
            (mask::causal() && !mask::prefix(8)) || mask::sliding_window(8));
}

TEST(Mask, ErrorsPointAtThePlace) {
  const std::vector<std::pair<const char*, int>> bad = {{"", 1},
                                                        {"casual", 1},
                                                        {"causal &&", 10},
                                                        {"causal ^ document", 8},
                                                        {"(causal", 8},
                                                        {"causal)", 7},
                                                        {"causal(middle)", 8},
                                                        {"sliding_window()", 16},
                                                        {"sliding_window(a)", 16},
                                                        {"prefix()", 8},
                                                        {"causal || foo", 11},
                                                        {"prefix(99999999999)", 8},
                                                        {"text(absent)", 13},
                                                        {"causal causal", 8},
                                                        {"!", 2}};
  for (const auto& [text, place] : bad) {
    const Error error = error_of([text = text] { parse_mask(text); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << text;
    EXPECT_THAT(error.message(), HasSubstr("character " + std::to_string(place) + ":")) << text;
  }
  EXPECT_THAT(
      error_of([] { parse_mask("casual"); }).message(),
      HasSubstr("known are none, causal([alignment]), causal_per_request, draft_tree, sliding_window("));
  EXPECT_THAT(error_of([] { parse_mask("text(x)", reference::mask_texts()); }).message(),
              HasSubstr("given are stripes"));
}

TEST(Mask, RefusesDeepExpressionsWithoutCrashing) {
  EXPECT_THROW(parse_mask(std::string(100000, '(')), Error);
  EXPECT_THROW(parse_mask(std::string(100000, '!') + "causal"), Error);
  std::string chain = "causal";
  for (int i = 0; i < 10000; ++i) chain += " || causal";
  EXPECT_THROW(parse_mask(chain), Error);
}

TEST(Mask, NoneIsAbsorbed) {
  const Mask causal = mask::causal();
  EXPECT_EQ(Mask(), mask::none());
  EXPECT_EQ(causal && mask::none(), causal);
  EXPECT_EQ(mask::none() && causal, causal);
  EXPECT_EQ(causal || mask::none(), mask::none());
  EXPECT_EQ(mask::none() || causal, mask::none());
  EXPECT_EQ(mask::sliding_window(-1, -1), mask::none());
  EXPECT_EQ(!!causal, causal);
  EXPECT_NE(!mask::none(), mask::none());
}

TEST(Mask, EveryParameterIsInTheHash) {
  using namespace mask;
  const FunctorText text{.name = "t", .body = "return q > k;"};
  FunctorText renamed = text, other_body = text, classified = text, constant = text, other_value = text,
              other_type = text, other_name = text, tensor = text, other_dtype = text, as_text = text;
  renamed.name = "u";
  other_body.body = "return q >= k;";
  classified.classify = "return TileClass::partial;";
  constant.constants = {{"c", std::int64_t{1}}};
  other_value.constants = {{"c", std::int64_t{2}}};
  other_type.constants = {{"c", 1.0}};
  other_name.constants = {{"d", std::int64_t{1}}};
  tensor.tensors = {{"c", DType::fp32}};
  other_dtype.tensors = {{"c", DType::int32}};
  as_text.constants = {{"c", true}};
  const Mask a = causal(), b = document(), c = prefix(3);
  const std::vector<Mask> masks = {none(),
                                   a,
                                   causal(Alignment::top_left),
                                   sliding_window(1, 2),
                                   sliding_window(2, 1),
                                   sliding_window(1, 3),
                                   sliding_window(1, 2, Alignment::top_left),
                                   sliding_window(-1, 2),
                                   c,
                                   prefix(4),
                                   prefix(0),
                                   prefix_lengths(),
                                   causal_per_request(),
                                   draft_tree(),
                                   b,
                                   mask::text(text),
                                   mask::text(renamed),
                                   mask::text(other_body),
                                   mask::text(classified),
                                   mask::text(constant),
                                   mask::text(other_value),
                                   mask::text(other_type),
                                   mask::text(other_name),
                                   mask::text(tensor),
                                   mask::text(other_dtype),
                                   mask::text(as_text),
                                   a && b,
                                   b && a,
                                   a || b,
                                   b || a,
                                   !a,
                                   !b,
                                   !(a && b),
                                   !a && b,
                                   (a && b) && c,
                                   a && (b && c),
                                   (a || b) && c,
                                   a || (b && c)};
  std::set<std::uint64_t> hashes;
  for (const Mask& mask : masks) EXPECT_TRUE(hashes.insert(mask.hash()).second) << mask.to_string();
}

TEST(Mask, ListsEachTensorOnce) {
  EXPECT_THAT(mask::causal().tensors(), IsEmpty());
  EXPECT_THAT(names(mask::prefix_lengths().tensors()), ElementsAre("prefix_lengths"));
  EXPECT_THAT(names(mask::tree().tensors()), ElementsAre("tree_ends"));
  EXPECT_THAT(names(mask::document().tensors()), ElementsAre("document_ids_q", "document_ids_kv"));
  EXPECT_THAT(names(mask::causal_per_request().tensors()), ElementsAre("is_causal"));
  EXPECT_THAT(names(mask::draft_tree().tensors()), ElementsAre("draft_tree"));
  const Mask twice = (mask::document() || mask::prefix_lengths()) && !mask::document();
  EXPECT_THAT(names(twice.tensors()), ElementsAre("document_ids_q", "document_ids_kv", "prefix_lengths"));
  EXPECT_EQ(mask::document().tensors()[0].dtype, DType::int32);
}

TEST(Mask, OneNameOneDtype) {
  const Mask a = mask::text({.name = "a", .body = "return x[k];", .tensors = {{"x", DType::uint8}}});
  const Mask b = mask::text({.name = "b", .body = "return x[k];", .tensors = {{"x", DType::int32}}});
  const Error error = error_of([&] { (a && b).tensors(); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
  EXPECT_THAT(error.message(), HasSubstr("'x'"));
}

TEST(Mask, RefusesBadNumbers) {
  for (const auto& make :
       std::vector<std::function<void()>>{[] { mask::sliding_window(-2, 0); },
                                          [] { mask::sliding_window(0, -2); }, [] { mask::prefix(-1); }}) {
    EXPECT_EQ(error_of(make).code(), ErrorCode::invalid_spec);
  }
  EXPECT_EQ(error_of([] { mask::sliding_window(0, -7); }).field(), "spec.mask.window_size_right");
  EXPECT_NO_THROW(mask::sliding_window(2147483647, 2147483647));
}

}  // namespace
}  // namespace jit
