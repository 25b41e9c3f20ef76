#include "runtime/compile_log.h"

#include <gtest/gtest.h>

namespace jit {
namespace {

constexpr std::string_view folder = "/jit-attention/";

TEST(CompileLog, WritesLocationsPlainly) {
  EXPECT_EQ(with_plain_locations(
                "/jit-attention/mask(3): error: identifier \"foo\" is undefined\n  f(3): x\n", folder),
            "mask:3: error: identifier \"foo\" is undefined\n  f:3: x\n");
  EXPECT_EQ(with_plain_locations("at line 7 of /jit-attention/ptx/tma.cuh\n", folder),
            "at line 7 of ptx/tma.cuh\n");
}

TEST(CompileLog, FindsWarningsOfTheCompiler) {
  EXPECT_EQ(
      compiler_warnings("/jit-attention/mask(3): warning #177-D: variable \"a\" was declared but never "
                        "referenced\n  int a; // (4): warning 5\n        ^\n\nRemark: The warnings can be "
                        "suppressed\n/jit-attention/mask(5): error: x\nptxas warning : y\n",
                        folder),
      std::vector<std::string>{"mask:3: warning #177-D: variable \"a\" was declared but never referenced"});
  EXPECT_TRUE(compiler_warnings("", folder).empty());
}

TEST(CompileLog, LeavesOutWarningsAboutKnownFiles) {
  const std::string errors =
      "mask:1: error: expected an expression\n  return k<=;\n            ^\n\n"
      "mask:1: warning #177-D: variable \"x\" was declared\n  int x;\n      ^\n\n";
  const std::string about_templates =
      "tiles/a.cuh:255: warning #128-D: loop is not reachable\n      while (true) {\n      ^\n"
      "          detected during:\n            instantiation of \"f\" at line 140\n\n"
      "Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"\n\n";
  const std::string end =
      "tiles/a.cuh:9: error: no\n\n1 error detected in the compilation of \"kernel.cu\".\n";
  const auto is_known = [](std::string_view name) { return name == "tiles/a.cuh"; };
  EXPECT_EQ(without_warnings_about(is_known, errors + about_templates + end), errors + end);
  EXPECT_EQ(without_warnings_about(is_known, ": warning x\n"), ": warning x\n");
  EXPECT_EQ(without_warnings_about(is_known, ""), "");
}

TEST(CompileLog, NamesFilesPlainly) {
  EXPECT_EQ(with_plain_files("\t.file\t1 \"/home/me/ptx/mma.cuh\"\n\t.file 2 \"/jit-attention/kernel.cu\"\n"
                             "\t.file 3 \"/other/x.cuh\"\n\t.file\n// \"/home/me/y\"\n",
                             {"/home/me/", folder}),
            "\t.file\t1 \"ptx/mma.cuh\"\n\t.file 2 \"kernel.cu\"\n\t.file 3 \"/other/x.cuh\"\n\t.file\n"
            "// \"/home/me/y\"\n");
  EXPECT_EQ(with_plain_files("", {"a"}), "");
}

TEST(CompileLog, LeavesOtherLinesAlone) {
  for (const char* line : {"\n", "(3): error\n", "mask(): error\n", "mask(a): error\n", "mask(3 error\n",
                           "mask(3) : e\n", "f(1, 2): g\n", "): (\n"}) {
    EXPECT_EQ(with_plain_locations(line, folder), line);
  }
  EXPECT_EQ(with_plain_locations("", folder), "");
  EXPECT_EQ(with_plain_locations("a(1): b\n", ""), "a:1: b\n");
}

constexpr std::string_view ptx = R"(.version 9.0
.visible .entry k(
)
{
	.loc	1 30 0
	ld.param.u64 	%rd1, [k_param_0];
	.loc	2 3 2, function_name $L__info_string0, inlined_at 1 30 28
	// begin inline asm
	bogus.op %r1;
	// end inline asm
	.loc	1 30 28
	ret;
}
bogus.directive
	.file	1 "/jit-attention/kernel.cu"
	.file	2 "/jit-attention/mask"
)";

TEST(CompileLog, LocatesAssemblerErrorsByTheNearestLoc) {
  const std::string log =
      "ptxas application ptx input, line 9; error   : Not a name of any known instruction: 'bogus'\n"
      "ptxas application ptx input, line 12; error   : Something else\n"
      "ptxas fatal   : Ptx assembly aborted due to errors\n";
  EXPECT_TRUE(has_assembler_error(log));
  EXPECT_EQ(locate_assembler_errors(log, ptx, folder),
            "mask:3: error: Not a name of any known instruction: 'bogus' (found by the assembler)\n"
            "kernel.cu:30: error: Something else (found by the assembler)\n");
}

TEST(CompileLog, LocatesNothingWithoutALoc) {
  const auto located = [](int line) {
    return locate_assembler_errors(
        "ptxas application ptx input, line " + std::to_string(line) + "; error   : x\n", ptx, folder);
  };
  EXPECT_EQ(located(1), "");
  EXPECT_EQ(located(14), "") << "outside of the function";
  EXPECT_EQ(located(0), "");
  EXPECT_EQ(located(-5), "");
  EXPECT_EQ(located(1000), "");
  EXPECT_NE(located(9), "");
  EXPECT_EQ(locate_assembler_errors("ptxas application ptx input, line ; error   : x\n", ptx, folder), "");
  EXPECT_EQ(locate_assembler_errors("ptxas application ptx input, line 9; error   : x\n", "", folder), "");
  EXPECT_FALSE(has_assembler_error("mask(3): error: x\n"));
}

}  // namespace
}  // namespace jit
