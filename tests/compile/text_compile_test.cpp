// Mistakes in a user's text are reported at the user's own lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/cache.h>
#include <jit/mask.h>

#include "tests/compile/compile_testing.h"

namespace jit {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::private_settings;
using ::testing::SizeIs;
using ::testing::StartsWith;

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

// C++ lets a function end without a value, and NVRTC compiles it with a warning: it computes anything.
TEST(UserText, EveryPathReturns) {
  const std::vector<BadText> bad = {
      {"a condition", {.name = "mine", .body = "if (k <= q + 20) return true;"}, "mine:1: error"},
      {"a return of nothing", {.name = "mine", .body = "int a = q;\nreturn;"}, "mine:2: error"},
      {"no return", {.name = "mine", .body = "int a = q;\nint b = a;\n\n"}, "mine:2: error"},
      {"a lambda",
       {.name = "mine", .body = "auto f = [&] { if (q > k) return true; };\nreturn f();"},
       "mine:1: error"},
      {"classify",
       {.name = "mine",
        .body = "return true;",
        .classify = "if (q_begin > 9)\n  return TileClass::full; // else?\n"},
       "mine.classify:2: error"},
      {"a variable without a value", {.name = "mine", .body = "bool kept;\nreturn kept;"}, "mine:2: error"},
  };
  const testing::FreshFolder folder;
  const Context context(private_settings(folder.path()));
  for (const Arch& arch : {testing::sm_80, testing::sm_90a}) {
    for (const auto& [what, text, location] : bad) {
      AttentionSpec spec = testing::small_spec();
      spec.mask = mask::text(text);
      const Error error = testing::error_of([&] { compile(spec, arch, testing::small_config(), context); });
      EXPECT_EQ(error.code(), ErrorCode::compile_failed) << what;
      EXPECT_THAT(error.message(), HasSubstr(location)) << what;
    }
    AttentionSpec spec = testing::small_spec();
    spec.score = score::text({.name = "mine", .body = "if (q > k) score *= 2;"});
    const Error error = testing::error_of([&] { compile(spec, arch, testing::small_config(), context); });
    EXPECT_THAT(error.message(), HasSubstr("mine:1: error"));
  }
  EXPECT_THAT(Cache(context).kernels(), IsEmpty());
}

TEST(UserText, MayLoopForEverAndTrap) {
  const Context context(private_settings());
  for (const char* body :
       {"for (int i = 0;; ++i) { if (i * 7 > q) return i > k; }", "if (q > k) return true;\n__trap();",
        "switch (q) { case 0: return true; default: return false; }"}) {
    AttentionSpec spec = testing::small_spec();
    spec.mask = mask::text({.name = "mine", .body = body});
    EXPECT_NO_THROW(compile(spec, testing::sm_90a, testing::small_config(), context)) << body;
  }
}

TEST(UserText, OtherWarningsReachTheObserverOnce) {
  testing::Events events;
  const Context context(private_settings(), events.observer());
  AttentionSpec spec = testing::small_spec();
  spec.mask = mask::text({.name = "mine", .body = "const int error_rate = 3;\nreturn q > k;"});
  compile(spec, testing::sm_90a, testing::small_config(), context);
  compile(spec, testing::sm_80, testing::small_config(), context);
  EXPECT_THAT(events.messages(Event::Kind::compile), SizeIs(2));
  EXPECT_THAT(events.messages(Event::Kind::warning),
              ElementsAre(AllOf(StartsWith("mine:1: warning"), HasSubstr("error_rate"))));
  // Such a warning is not taken for the error behind it.
  spec.mask = mask::text({.name = "mine", .body = "const int error_rate = 3;\nif (q > k) return true;"});
  EXPECT_THAT(failure_of(spec).message(), HasSubstr("mine:2: error"));
}

TEST(UserText, ThatIsNotFollowedIsToldOnce) {
  testing::Events events;
  Settings settings = private_settings();
  const Context context(settings, events.observer());
  AttentionSpec spec = testing::small_spec();
  const std::string loop = "int n = 0;\nfor (int i = 0; i < 3; ++i) n += i * q;\nreturn n > k;";
  spec.mask = mask::causal() && mask::text({.name = "mine", .body = loop}) &&
              mask::text({.name = "plain", .body = "return q > k;"});
  compile(spec, testing::sm_80, testing::small_config(), context);
  compile(spec, testing::sm_90a, testing::small_config(), context);
  EXPECT_THAT(events.messages(Event::Kind::note),
              ElementsAre(AllOf(HasSubstr("mask 'mine' is asked score by score"),
                                HasSubstr("line 2: loops are not followed"))));
  spec.mask = mask::text({.name = "classified", .body = loop, .classify = "return TileClass::partial;"});
  compile(spec, testing::sm_80, testing::small_config(), context);
  EXPECT_THAT(events.messages(Event::Kind::note), SizeIs(1));
}

// An array whose elements a thread finds by index lies in local memory, in every config.
TEST(UserText, MayHaveAnArray) {
  testing::Events events;
  const Context context(private_settings(), events.observer());
  AttentionSpec spec{.head_dim = 64};
  spec.mask = mask::text({.name = "mine",
                          .body = "int steps[8];\n#pragma unroll 1\nfor (int i = 0; i < 8; ++i) steps[i] = "
                                  "(q * i) >> 2;\nreturn steps[k & 7] > k;"});
  const CompiledKernel kernel = compile(spec, testing::sm_80, {}, context);
  EXPECT_GT(kernel.resources().stack_bytes, 0);
  EXPECT_TRUE(kernel.resources().is_clean()) << kernel.report();
  EXPECT_THAT(events.messages(Event::Kind::compile), SizeIs(1));
  EXPECT_THAT(events.messages(Event::Kind::warning), IsEmpty());
  EXPECT_THAT(events.messages(Event::Kind::note), Contains(HasSubstr("Local memory used")));
}

// Names of structs and functions in programs hide none of the user's, and are not hidden by them.
TEST(UserText, NamesOfProgramsAreFree) {
  const Context context(private_settings());
  FunctorText text{.name = "names",
                   .body = "return ",
                   .classify = "return Config + int32[0] > 9 ? TileClass::full : TileClass::partial;"};
  for (const char* name :
       {"UserMask0", "UserScore1", "TextMask",  "TextScore",   "ScoreTile",   "BlockContext", "Config",
        "Mask",      "Score",      "jit",       "context",     "classify",    "keep",         "apply",
        "key_range", "row_range",  "key_words", "is_identity", "tensor_data", "tensor0",      "bf16",
        "fp16",      "threadIdx",  "blockDim",  "warpSize",    "params",      "minimum",      "override",
        "module",    "std",        "main",      "abs"}) {
    text.constants[name] = std::int64_t{3};
    text.body += std::string(name) + " + ";
  }
  text.tensors = {{"tensors", DType::bf16}, {"tensor1", DType::fp16}, {"int32", DType::int32}};
  text.body += "to_float(tensors[q]) + to_float(tensor1[k]) + int32[k] > 99;";
  AttentionSpec spec = testing::small_spec();
  spec.mask = mask::text(text);
  text.classify.clear();
  spec.score = score::text(text);
  for (const KernelConfig& config :
       {testing::small_config(), parse_config("family=forward_wgmma tile_q=64 tile_kv=32")})
    EXPECT_NO_THROW(compile(spec, testing::sm_90a, config, context));
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
