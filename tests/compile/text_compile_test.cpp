// Mistakes in a user's text are reported at the user's own lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/mask.h>

#include "tests/compile/compile_testing.h"

namespace jit {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::private_settings;

struct BadText {
  const char* what;
  FunctorText text;
  const char* location;
};

Error failure_of(const AttentionSpec& spec) {
  const Context context(private_settings());
  return testing::error_of([&] { compile(spec, testing::sm_90a, testing::small_config(), context); });
}

TEST(UserText, ErrorsNameTheUsersLine) {
  const std::vector<BadText> bad = {
      {"undeclared name", {.name = "mine", .body = "const int a = 1;\n\nreturn absent > a;"}, "mine:3"},
      {"wrong type", {.name = "mine", .body = "struct S {};\nreturn S{};"}, "mine:2"},
      {"missing semicolon", {.name = "mine", .body = "int a = 1;\nint b = 2\nreturn a < b;"}, "mine:"},
      {"inline PTX",
       {.name = "mine", .body = "int a;\nasm(\"no.such.instruction %0;\" : \"=r\"(a));\nreturn a > 0;"},
       ""},
      {"classify",
       {.name = "mine", .body = "return true;", .classify = "int a = 1;\nreturn absent;"},
       "mine.classify:2"},
  };
  for (const auto& [what, text, location] : bad) {
    AttentionSpec spec = testing::small_spec();
    spec.mask = mask::text(text);
    const Error error = failure_of(spec);
    EXPECT_EQ(error.code(), ErrorCode::compile_failed) << what;
    EXPECT_THAT(error.log(), HasSubstr(location)) << what;
    EXPECT_FALSE(error.log().empty()) << what;
    EXPECT_THAT(error.source(), HasSubstr(text.body)) << what;
    EXPECT_THAT(error.message(), HasSubstr(location)) << what;
  }
}

TEST(UserText, ErrorsOfScoresToo) {
  AttentionSpec spec = testing::small_spec();
  spec.score = score::text({.name = "boost", .body = "float a = 1;\nreturn score * abent;"});
  const Error error = failure_of(spec);
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_THAT(error.message(), HasSubstr("boost:2"));
  EXPECT_THAT(error.log(), HasSubstr("abent"));
}

// The line numbers of a second functor are its own, whatever came before.
TEST(UserText, EachFunctorCountsItsOwnLines) {
  AttentionSpec spec = testing::small_spec();
  spec.mask = mask::text({.name = "first", .body = "int a = 1;\nint b = 2;\nreturn a < b;"}) &&
              mask::text({.name = "second", .body = "return nowhere;"});
  EXPECT_THAT(failure_of(spec).message(), HasSubstr("second:1"));
}

TEST(UserText, AFailureIsNotRemembered) {
  const Context context(private_settings());
  AttentionSpec spec = testing::small_spec();
  spec.mask = mask::text({.name = "mine", .body = "return absent;"});
  const auto compile_it = [&] { compile(spec, testing::sm_90a, testing::small_config(), context); };
  EXPECT_EQ(testing::error_of(compile_it).code(), ErrorCode::compile_failed);
  EXPECT_EQ(testing::error_of(compile_it).code(), ErrorCode::compile_failed);
  spec.mask = mask::text({.name = "mine", .body = "return q > k;"});
  EXPECT_NO_THROW(compile_it());
}

TEST(UserText, MayUseWhatIsPromised) {
  const Context context(private_settings());
  AttentionSpec spec = testing::small_spec();
  spec.mask = mask::text(
      {.name = "all-names",
       .body = "#pragma unroll\nfor (int i = 0; i < 2; ++i) { if (i == q) return true; }\n"
               "return q + k + b + h + seqlen_q + seqlen_kv + heads_q > width + ids[k] && "
               "to_float(weights[q]) > scale && bytes[0] < longs[1];",
       .classify =
           "return q_end - q_begin > k_end - k_begin + width ? TileClass::partial : TileClass::partial;",
       .constants = {{"width", std::int64_t{5}}, {"scale", 0.5}},
       .tensors = {{"ids", DType::int32},
                   {"weights", DType::fp16},
                   {"bytes", DType::uint8},
                   {"longs", DType::int64}}});
  spec.score =
      score::text({.name = "all-names",
                   .body = "return score + 0.0f * (q + k + b + h + seqlen_q + seqlen_kv + heads_q);"});
  EXPECT_NO_THROW(compile(spec, testing::sm_90a, testing::small_config(), context));
}

}  // namespace
}  // namespace jit
