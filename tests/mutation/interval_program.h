// A program over what templates/problem/ makes of the texts of masks, of which a text may be changed, as PTX.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "generator/program/closure.h"
#include "generator/program/program.h"
#include "generator/program/templates.h"
#include "runtime/compiler.h"
#include "tests/mutation/mutated_text.h"
#include "tests/support/seed.h"

namespace jit::testing {

/// PTX for sm_90a of `source`, whose kernel is called ask. `from`, unless empty, is replaced by `to` in a template; throws
/// where it does not stand there exactly once.
inline std::string interval_ptx(std::string source, const std::string& from = "", const std::string& to = "",
                                const std::string& file_of_change = "problem/interval.cuh") {
  Program program;
  program.source = std::move(source);
  Templates templates = load_templates("");
  std::vector<SourceFile> headers = closure(program, templates);
  for (SourceFile& file : headers)
    if (!from.empty() && file.name == file_of_change) file.text = mutated(file.text, from, to);
  return compile_to_ptx(find_nvrtc(""), {.name = "/jit-attention/kernel.cu",
                                         .source = program.source,
                                         .headers = headers,
                                         .arch = parse_arch("sm_90a"),
                                         .options = {},
                                         .kernel = "ask"})
      .ptx;
}

/// The suites of mutations of one template each, whose programs take half a second to compile: a run has a quarter of
/// them. That the text to change stands in its template is looked at in each.
template <class Mutation>
class ProgramMutationTest : public ::testing::TestWithParam<Mutation> {
 protected:
  void SetUp() override {
    const Mutation& mutation = this->GetParam();
    const std::vector<SourceFile>& templates = embedded_templates();
    const auto file = std::find_if(templates.begin(), templates.end(),
                                   [&](const SourceFile& each) { return each.name == mutation.file; });
    ASSERT_NE(file, templates.end()) << "there is no template " << mutation.file;
    mutated(file->text, mutation.from, mutation.to);
    if (!reference::is_in_this_run(std::hash<std::string_view>()(mutation.name), 4))
      GTEST_SKIP() << "this run's seed takes others; JIT_ATTENTION_TEST_ALL=1 takes all";
  }
};

}  // namespace jit::testing
