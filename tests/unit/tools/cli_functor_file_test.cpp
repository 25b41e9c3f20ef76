#include "tools/jit_attention/functor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/error.h>
#include <jit/functor_file.h>
#include <jit/mask.h>

#include "tests/support/fresh_folder.h"
#include "tools/jit_attention/command.h"

namespace jit::tool {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    parse_functor("mine", text);
  } catch (const Error& error) {
    return error.message();
  }
  ADD_FAILURE() << "was read: " << text;
  return "";
}

TEST(FunctorFile, ReadsDeclarationsBodyAndClassify) {
  const FunctorText functor = parse_functor("mine",
                                            "// What it does.\n"
                                            "// constant: window = 128\r\n"
                                            "  //constant:slope=0.5\n"
                                            "// constant: strict = true\n"
                                            "\n"
                                            "// tensor: ids int32\n"
                                            "const int a = ids[q];\n"
                                            "return a == ids[k];\n"
                                            "// classify:\n"
                                            "return TileClass::partial;\n");
  EXPECT_EQ(functor.name, "mine");
  EXPECT_EQ(functor.constants.at("window"), FunctorConstant(std::int64_t{128}));
  EXPECT_EQ(functor.constants.at("slope"), FunctorConstant(0.5));
  EXPECT_EQ(functor.constants.at("strict"), FunctorConstant(true));
  EXPECT_EQ(functor.tensors, (std::vector<FunctorTensorSpec>{{"ids", DType::int32}}));
  EXPECT_THAT(functor.body, HasSubstr("return a == ids[k];"));
  EXPECT_EQ(functor.body.find("TileClass"), std::string::npos);
  EXPECT_NO_THROW(mask::text(functor));
}

// A compile error must name the line of the file.
TEST(FunctorFile, KeepsLineNumbers) {
  const FunctorText functor =
      parse_functor("mine", "// constant: n = 1\n\nreturn q < n;\n// classify:\nreturn TileClass::full;");
  EXPECT_EQ(functor.body, "// constant: n = 1\n\nreturn q < n;\n");
  EXPECT_EQ(functor.classify, "\n\n\n\nreturn TileClass::full;");
}

TEST(FunctorFile, ReadsTheDerivativeOfAScore) {
  const FunctorText functor = parse_functor(
      "mine", "// derivative: that of a square\nreturn score * score;\n// derivative:\nreturn 2 * score;");
  EXPECT_EQ(functor.body, "// derivative: that of a square\nreturn score * score;\n");
  EXPECT_EQ(functor.derivative, "\n\n\nreturn 2 * score;");
  const FunctorText of_tensor = parse_functor(
      "mine", "// tensor: x fp32\nreturn x[k] * score;\n// derivative:\nd_x[k] += score;\nreturn x[k];");
  EXPECT_EQ(of_tensor.derivative, "\n\n\nd_x[k] += score;\nreturn x[k];");
}

TEST(FunctorFile, DeclarationsEndWhereCodeBegins) {
  const FunctorText functor = parse_functor("mine", "return true;\n// constant: late = 1\n");
  EXPECT_TRUE(functor.constants.empty());
}

TEST(FunctorFile, RefusesBrokenDeclarations) {
  EXPECT_THAT(refusal("// constant: window\nreturn true;"), HasSubstr("line 1"));
  EXPECT_THAT(refusal("\n// constant: window = wide\nreturn true;"), HasSubstr("'wide'"));
  EXPECT_THAT(refusal("// constant: a = 1\n// constant: a = 2\nreturn true;"), HasSubstr("twice"));
  EXPECT_THAT(refusal("// tensor: ids\nreturn true;"), HasSubstr("name dtype"));
  EXPECT_THROW(parse_functor("mine", "// tensor: ids int7\nreturn true;"), Error);
}

TEST(FunctorFile, NothingButCommentsIsNoMask) {
  EXPECT_THROW(mask::text(parse_functor("mine", "")), Error);
  EXPECT_THROW(mask::text(parse_functor("mine", "// constant: a = 1\n// nothing\n")), Error);
}

TEST(FunctorFile, ReadsFilesUpToALimit) {
  const jit::testing::FreshFolder folder;
  jit::testing::write_text(folder / "m.txt", "return q == k;\n");
  EXPECT_EQ(read_functor("mine=" + (folder / "m.txt")).body, "return q == k;\n");
  jit::testing::write_text(folder / "large.txt", std::string((1 << 20) + 1, ' '));
  EXPECT_THROW(read_functor("mine=" + (folder / "large.txt")), BadInput);
  EXPECT_THROW(read_functor("mine=" + folder.path()), BadInput);
  EXPECT_THROW(read_functor("mine=/nonexistent"), BadInput);
  EXPECT_THROW(read_functor("/dev/zero"), BadInput);
  EXPECT_THROW(read_functor("mine=/dev/zero"), BadInput);
  EXPECT_THROW(read_functor("=x"), BadInput);
}

}  // namespace
}  // namespace jit::tool
