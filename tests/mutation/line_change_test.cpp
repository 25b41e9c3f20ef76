// Lines of templates are changed as mutations say, and each anchor has its mutations.
#include "tests/mutation/line_change.h"

#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/fresh_folder.h"

namespace jit::testing::line_changes {
namespace {

const std::string text = "void f() {\n  wait(a, b);\n  g(1, a);\n\n  h(b);\n}\n";

std::string changed(std::size_t line, const LineChange& change) {
  return with_changed_line(text, line, change);
}

TEST(LineChange, TakesAwayMovesAndReplaces) {
  EXPECT_EQ(changed(1, removed), "void f() {\n  g(1, a);\n\n  h(b);\n}\n");
  EXPECT_EQ(changed(2, moved_up(1)), "void f() {\n  g(1, a);\n  wait(a, b);\n\n  h(b);\n}\n");
  EXPECT_EQ(changed(2, {"1", "2"}), "void f() {\n  wait(a, b);\n  g(2, a);\n\n  h(b);\n}\n");
}

TEST(LineChange, AHoleStandsForWhatIsBetween) {
  EXPECT_EQ(changed(1, {"$", "if (x) $"}), "void f() {\n  if (x) wait(a, b);\n  g(1, a);\n\n  h(b);\n}\n");
  EXPECT_EQ(changed(1, {", $)", ", $ + 1)"}), "void f() {\n  wait(a, b + 1);\n  g(1, a);\n\n  h(b);\n}\n");
  EXPECT_EQ(changed(1, {"($)", "()"}), "void f() {\n  wait();\n  g(1, a);\n\n  h(b);\n}\n");
  EXPECT_EQ(changed(1, {"$g(1", "g(2"}), "void f() {\n  g(2, a);\n\n  h(b);\n}\n");
}

TEST(LineChange, WhatDoesNotBeginInTheLineOnceIsRefused) {
  for (const LineChange& change : {LineChange{"h", ""}, {"a", ""}, {"wait", "h"}, {"g($!", ""}})
    EXPECT_THROW(changed(change.from[0] == 'w' ? 2 : 1, change), std::runtime_error) << change.from;
}

// Whether each mutation has its anchor is looked at where mutations are tested.
TEST(Anchors, EachIsOneOfAKindAndHasAMutation) {
  std::string tests;
  for (const auto& item : std::filesystem::directory_iterator(JIT_ATTENTION_SOURCE_DIR "/tests/mutation")) {
    if (!item.path().string().ends_with("_test.cpp")) continue;
    tests += read_text(item.path());
  }
  std::set<std::string> names;
  for (const Anchor& anchor : template_anchors()) {
    EXPECT_TRUE(names.insert(anchor.name).second) << anchor.name << " stands twice, also in " << anchor.file;
    EXPECT_TRUE(tests.find('"' + anchor.name + '"') != std::string::npos ||
                tests.find('"' + anchor.name + '_') != std::string::npos)
        << anchor.file << ", line " << anchor.line + 1 << ": no mutation is called " << anchor.name;
  }
  EXPECT_GT(names.size(), 100u);
  EXPECT_THROW(anchor_of("NoSuchAnchor"), std::runtime_error);
  EXPECT_THROW(anchor_of("Twice_Anew", {{"Twice", "", 1}, {"Twice", "", 2}}), std::runtime_error);
}

}  // namespace
}  // namespace jit::testing::line_changes
