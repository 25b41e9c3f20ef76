#include <jit/functor_text.h>

#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/mask.h>
#include <jit/score.h>

#include "generator/functors/functor_names.h"
#include "tests/support/error_of.h"

namespace jit {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

FunctorText good_text() {
  return {.name = "my-mask.v2",
          .body = "return q >= k;",
          .classify = "return TileClass::partial;",
          .constants = {{"width", std::int64_t{3}}},
          .tensors = {{"ids", DType::int32}}};
}

FunctorText with(const std::function<void(FunctorText&)>& change) {
  FunctorText text = good_text();
  change(text);
  return text;
}

TEST(FunctorText, AcceptsWhatIsFine) {
  EXPECT_NO_THROW(mask::text(with([](FunctorText&) {})));
  EXPECT_NO_THROW(mask::text(
      with([](FunctorText& t) { t.body = "#pragma unroll\nfor (int i = 0; i < 2; ++i);\nreturn true;"; })));
  EXPECT_NO_THROW(mask::text(with([](FunctorText& t) { t.constants["_x1"] = true; })));
  EXPECT_NO_THROW(mask::text(with([](FunctorText& t) { t.name = std::string(64, 'a'); })));
  EXPECT_NO_THROW(score::text({.name = "s", .body = "return score;"}));
}

TEST(FunctorText, RefusesWhatCannotBePartOfAKernel) {
  const std::vector<std::pair<FunctorText, const char*>> bad = {
      {with([](FunctorText& t) { t.name = ""; }), "the name of a text functor"},
      {with([](FunctorText& t) { t.name = "a b"; }), "the name of a text functor"},
      {with([](FunctorText& t) { t.name = "a\"b"; }), "the name of a text functor"},
      {with([](FunctorText& t) { t.name = "a\nb"; }), "the name of a text functor"},
      {with([](FunctorText& t) { t.name = "größe"; }), "the name of a text functor"},
      {with([](FunctorText& t) { t.name = std::string(65, 'a'); }), "1 to 64"},
      {with([](FunctorText& t) { t.body = ""; }), "empty body"},
      {with([](FunctorText& t) { t.body = " \n\t"; }), "empty body"},
      {with([](FunctorText& t) { t.body = "#include <x>\nreturn true;"; }), "line 1"},
      {with([](FunctorText& t) { t.body = "\n\n  #  include \"x\"\nreturn true;"; }), "line 3"},
      {with([](FunctorText& t) { t.body = "#define q k\nreturn true;"; }), "preprocessor directive"},
      {with([](FunctorText& t) { t.body = "%:include <x>\nreturn true;"; }), "preprocessor directive"},
      {with([](FunctorText& t) { t.body = "#pragma once\nreturn true;"; }), "preprocessor directive"},
      {with([](FunctorText& t) { t.body = "#line 7\nreturn true;"; }), "preprocessor directive"},
      {with([](FunctorText& t) { t.classify = "#if 1"; }), "preprocessor directive"},
      {with([](FunctorText& t) { t.body = "return __TIME__[0] > 'a';"; }), "__TIME__"},
      {with([](FunctorText& t) { t.body = "return __DATE__[0];"; }), "__DATE__"},
      {with([](FunctorText& t) { t.body = "return __TIMESTAMP__[0];"; }), "__TIMESTAMP__"},
      {with([](FunctorText& t) { t.body = "return __FILE__[0];"; }), "__FILE__"},
      {with([](FunctorText& t) { t.classify = "return __TIME__[0];"; }), "__TIME__"},
      {with([](FunctorText& t) { t.body = std::string("return true;\0 x", 15); }), "zero byte"},
      {with([](FunctorText& t) { t.body = "return k" + std::string(65536, '+'); }),
       "65544 bytes; a body has at most"},
      {with([](FunctorText& t) { t.body = "int a = 1;\nif (q > a) {\nreturn true;"; }),
       "my-mask.v2:2: '{' is not closed"},
      {with([](FunctorText& t) { t.body = "return true;\n}\nint evil() {"; }),
       "my-mask.v2:2: '}' closes nothing"},
      {with([](FunctorText& t) { t.body = "return (q > k];"; }), "my-mask.v2:1: ']' closes nothing"},
      {with([](FunctorText& t) { t.body = "int a;\n\nreturn (q > k;"; }), "my-mask.v2:3: '(' is not closed"},
      {with([](FunctorText& t) { t.body = "return true; /* oops"; }),
       "my-mask.v2:1: a comment is not closed"},
      {with([](FunctorText& t) { t.body = "int a;\nconst char* s = \"oops;\nreturn true;"; }),
       "my-mask.v2:2: a literal is not closed"},
      {with([](FunctorText& t) { t.body = "return true;\nchar c = '"; }),
       "my-mask.v2:2: a literal is not closed"},
      {with([](FunctorText& t) { t.body = "char c = '\\"; }), "my-mask.v2:1: a literal is not closed"},
      {with([](FunctorText& t) { t.classify = "\nreturn TileClass::partial; }"; }),
       "my-mask.v2.classify:2: '}'"},
      {with([](FunctorText& t) { t.constants["2x"] = true; }), "must be a C++ identifier"},
      {with([](FunctorText& t) { t.constants[""] = true; }), "must be a C++ identifier"},
      {with([](FunctorText& t) { t.constants["a = 1; int b"] = true; }), "must be a C++ identifier"},
      {with([](FunctorText& t) {
         t.tensors.push_back({"eighth", DType::fp8_e4m3});
       }),
       "'eighth' in text functor 'my-mask.v2' is fp8_e4m3, which texts cannot read"},
      {with([](FunctorText& t) {
         t.tensors.push_back({"x y", DType::fp32});
       }),
       "must be a C++ identifier"},
      {with([](FunctorText& t) { t.constants["q"] = true; }), "already have"},
      {with([](FunctorText& t) {
         t.tensors.push_back({"seqlen_kv", DType::fp32});
       }),
       "already have"},
      {with([](FunctorText& t) {
         t.tensors.push_back({"width", DType::fp32});
       }),
       "occurs twice"},
      {with([](FunctorText& t) {
         t.tensors.push_back({"ids", DType::fp32});
       }),
       "occurs twice"},
  };
  for (const auto& [text, message] : bad) {
    const Error error = error_of([&text = text] { mask::text(text); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_spec) << message;
    EXPECT_EQ(error.field(), "spec.mask");
    EXPECT_THAT(error.message(), HasSubstr(message));
  }
}

TEST(FunctorText, BracketsInCommentsAndLiteralsDoNotCount) {
  for (const char* body :
       {"return true; // }", "/* ( [ */ return true;", "const char* s = \"(}\\\"{\"; return s[0] > 0;",
        "return k < 1'000'000 && q > '(' && q != '\\'';", "return (q > k) && [&] { return a[0]; }();",
        "return u8'(' > q; // u8 is no number", "return true; //"}) {
    EXPECT_NO_THROW(mask::text(with([&](FunctorText& t) { t.body = body; }))) << body;
  }
}

TEST(FunctorText, NamesThatAreTakenAreRefusedByName) {
  for (const auto& [name, reason] : std::vector<std::pair<const char*, const char*>>{
           {"for", "a keyword"},           {"and", "a keyword"},          {"not_eq", "a keyword"},
           {"char8_t", "a keyword"},       {"co_await", "a keyword"},     {"true", "a keyword"},
           {"this", "a keyword"},          {"asm", "a keyword"},          {"NULL", "a macro"},
           {"assert", "a macro"},          {"CUDART_VERSION", "a macro"}, {"JIT_HOST_DEVICE", "a macro"},
           {"__CUDA_ARCH__", "compilers"}, {"a__b", "compilers"},         {"_Bool", "compilers"},
           {"q", "already have"},          {"k", "already have"},         {"b", "already have"},
           {"h", "already have"},          {"heads_q", "already have"},   {"seqlen_q", "already have"},
           {"score", "already have"},      {"q_begin", "already have"},   {"k_end", "already have"},
           {"tile", "already have"},       {"TileClass", "already have"}, {"to_float", "already have"}}) {
    for (const bool is_tensor : {false, true}) {
      const Error error = error_of([&, name = name] {
        mask::text(with([&](FunctorText& t) {
          if (is_tensor) t.tensors.push_back({name, DType::fp32});
          if (!is_tensor) t.constants[name] = true;
        }));
      });
      EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
      EXPECT_THAT(error.message(), HasSubstr("'" + std::string(name) + "'"));
      EXPECT_THAT(error.message(), HasSubstr(reason)) << name;
    }
  }
  EXPECT_EQ(taken_as("for_"), "");
  EXPECT_EQ(taken_as("_x"), "");
}

// The compiler joins lines before it reads anything else, and so do the checks.
TEST(FunctorText, LinesThatEndWithABackslashGoOn) {
  for (const auto& [body, message] : std::vector<std::pair<const char*, const char*>>{
           {"return __TI\\\nME__[0] > 'a';", "__TIME__"},
           {"return __FI\\\r\nLE__[0] > 'a';", "__FILE__"},
           {"%\\\n:include <x>\nreturn true;", "line 1"},
           {"int a; \\\n\n#line 3\nreturn true;", "line 3"},
           {"/\\\n/ {\n}\nreturn true;", "my-mask.v2:3: '}' closes nothing"},
           {"return true; \\", "ends with a backslash"},
           {"return true; // \\\r", "ends with a backslash"},
           {"return true; %> bool evil() <%", "'%>' is not allowed"},
           {"int a<:2:> = {}; return a[0];", "'<:' is not allowed"},
           {"return R\"(\" ( )\"[0] > 3;", "a raw string"}}) {
    const Error error =
        error_of([&, body = body] { mask::text(with([&](FunctorText& t) { t.body = body; })); });
    EXPECT_THAT(error.message(), HasSubstr(message)) << body;
  }
  for (const char* body : {"return true; // \\\n }", "asm(\"nop; \\\n } nop;\");\nreturn true;",
                           "#pragma \\\nunroll\nfor (;;) return true;", "return x<::y> % 3 > 1;"})
    EXPECT_NO_THROW(mask::text(with([&](FunctorText& t) { t.body = body; }))) << body;
}

TEST(FunctorText, ScoresDoNotClassify) {
  const Error error = error_of([] { score::text(with([](FunctorText&) {})); });
  EXPECT_EQ(error.field(), "spec.score");
  EXPECT_THAT(error.message(), HasSubstr("only masks"));
}

TEST(FunctorText, OnlyScoresHaveADerivative) {
  FunctorText text{.name = "t", .body = "return score;", .derivative = "return 1;"};
  EXPECT_NO_THROW(score::text(text));
  EXPECT_THAT(error_of([&] { mask::text(text); }).message(), HasSubstr("only scores"));
  FunctorText other = text;
  other.derivative = "return 1.0f;";
  EXPECT_NE(score::text(text).hash(), score::text(other).hash());
  text.derivative = "return (1;";
  EXPECT_THAT(error_of([&] { score::text(text); }).message(), HasSubstr("t.derivative:1: '(' is not closed"));
}

TEST(FunctorText, ElementsThatADerivativeSpeaksOfHaveOneNameAndOneIndex) {
  FunctorText text{.name = "t", .body = "return score;", .derivative = "return 1;"};
  text.tensors = {{"x", DType::fp32}, {"d_x", DType::bf16}};
  EXPECT_THAT(error_of([&] { score::text(text); }).message(),
              HasSubstr("'d_x' in text functor 't' is what its derivative calls the derivatives"));
  text.tensors[0].dtype = DType::int32;  // which has none
  EXPECT_NO_THROW(score::text(text));

  text.tensors = {{"x", DType::fp32}};
  for (const char* statement : {"d_x[h, k] += 1;", "d_x[max(h, 1), k] -= 1;", "d_x\n[k,\n1] += 1;"}) {
    text.derivative = fmt::format("float y = max(1, \\\n2);\n{}\nreturn 1;", statement);
    const Error error = error_of([&] { score::text(text); });
    EXPECT_EQ(error.field(), "spec.score");
    EXPECT_THAT(error.message(), ::testing::MatchesRegex("t.derivative:[34]: 'd_x' takes one index.*"));
  }
  text.derivative = "d_x[max(h, k)] += max(h, k), d_x[0] += 1; // d_x[h, k]\nreturn 1;";
  EXPECT_NO_THROW(score::text(text));
}

}  // namespace
}  // namespace jit
