// A program over what templates/problem/ makes of the texts of masks, of which a line may be changed, as PTX.
#pragma once

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
#include "tests/mutation/line_change.h"
#include "tests/support/seed.h"

namespace jit::testing {

/// A line changed of a template that the program includes.
struct ProgramMutation {
  const char* name;  ///< of the anchor in templates/, or `Anchor_Variant`
  LineChange change;
};
inline std::ostream& operator<<(std::ostream& out, const ProgramMutation& mutation) {
  return out << mutation.name;
}

/// PTX for sm_90a of `source`, whose kernel is called ask, over templates that are mutated where `mutation` is not null.
inline std::string interval_ptx(std::string source, const ProgramMutation* mutation = nullptr) {
  Program program;
  program.source = std::move(source);
  Templates templates = load_templates("");
  std::vector<SourceFile> headers = closure(program, templates);
  for (SourceFile& file : headers)
    if (mutation != nullptr && file.name == anchor_of(mutation->name).file)
      file.text = changed_template(mutation->name, mutation->change);
  return compile_to_ptx(find_nvrtc(""), {.name = "/jit-attention/kernel.cu",
                                         .source = program.source,
                                         .headers = headers,
                                         .arch = parse_arch("sm_90a"),
                                         .options = {},
                                         .kernel = "ask"})
      .ptx;
}

/// The suites of mutations of one template each, whose programs take half a second to compile: a run has a quarter of
/// them. That the line to change is there is looked at in each.
class ProgramMutationTest : public ::testing::TestWithParam<ProgramMutation> {
 protected:
  void SetUp() override {
    const ProgramMutation& mutation = GetParam();
    changed_template(mutation.name, mutation.change);
    if (!reference::is_in_this_run(std::hash<std::string_view>()(mutation.name), 4))
      GTEST_SKIP() << "this run's seed takes others; JIT_ATTENTION_TEST_ALL=1 takes all";
  }
};

}  // namespace jit::testing
