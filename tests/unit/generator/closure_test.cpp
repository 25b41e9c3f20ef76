#include "generator/program/closure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace jit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> names_of(const std::vector<SourceFile>& files) {
  std::vector<std::string> names;
  for (const SourceFile& file : files) names.push_back(file.name);
  return names;
}

Program including(const std::string& name) {
  return {.name = "kernel", .source = "// a program\n#include \"" + name + "\"\n"};
}

const Templates diamond{"",
                        {{"top.cuh", "#pragma once\n#include \"left.cuh\"\n#include \"right.cuh\"\n"},
                         {"other.cuh", "#include \"bottom.cuh\"\n"},
                         {"right.cuh", "#include \"bottom.cuh\"\n"},
                         {"left.cuh", "#include \"bottom.cuh\"\n#include \"top.cuh\"\n"},
                         {"bottom.cuh", ""}}};

TEST(Closure, TakesWhatIsReachedOnceAndByName) {
  EXPECT_THAT(names_of(closure(including("top.cuh"), diamond)),
              ElementsAre("bottom.cuh", "left.cuh", "right.cuh", "top.cuh"));
  EXPECT_THAT(names_of(closure(including("bottom.cuh"), diamond)), ElementsAre("bottom.cuh"));
  EXPECT_THAT(names_of(closure(std::vector<std::string>{"other.cuh", "right.cuh"}, diamond)),
              ElementsAre("bottom.cuh", "other.cuh", "right.cuh"));
  EXPECT_THAT(closure(Program{.name = "kernel", .source = "int x;\n"}, diamond), IsEmpty());
}

TEST(Closure, ReadsDirectivesAlone) {
  const auto reached = [](const std::string& source) {
    return names_of(closure(Program{.name = "kernel", .source = source}, diamond));
  };
  EXPECT_THAT(reached(" #\tinclude  \"bottom.cuh\"  // why\n"), ElementsAre("bottom.cuh"));
  EXPECT_THAT(reached("#if 0\n#include \"bottom.cuh\"\n#endif"), ElementsAre("bottom.cuh"));
  for (const char* text :
       {"// #include \"bottom.cuh\"\n", "int x; #include \"bottom.cuh\"\n", "#include <bottom.cuh>\n",
        "#define include \"bottom.cuh\"\n", "#", "#include", "#include \"", "#include \"bottom.cuh"}) {
    EXPECT_THAT(reached(text), IsEmpty()) << text;
  }
}

TEST(ClosureDigests, AreThoseOfTheClosures) {
  const ClosureDigests digests(diamond);
  for (int time = 0; time < 2; ++time) {
    for (const char* name : {"top.cuh", "left.cuh", "bottom.cuh"}) {
      EXPECT_EQ(digests.of(including(name)), digest_of(closure(including(name), diamond))) << name;
      EXPECT_EQ(digests.of(std::vector<std::string>{name}),
                digest_of(closure(std::vector<std::string>{name}, diamond)))
          << name;
    }
    Program program = including("right.cuh");
    program.headers = {{"right.cuh", ""}};
    EXPECT_EQ(digests.of(program), digest_of({}));
  }
}

TEST(Closure, GeneratedHeadersAreRead) {
  Program program = including("made.cuh");
  program.headers = {{"made.cuh", "#include \"right.cuh\"\n"}};
  EXPECT_THAT(names_of(closure(program, diamond)), ElementsAre("bottom.cuh", "right.cuh"));
  program.headers.push_back({"right.cuh", ""});
  EXPECT_THAT(closure(program, diamond), IsEmpty()) << "a header goes before a template of its name";
}

TEST(Closure, NamesWhatIsMissingAndWhoWantsIt) {
  const Templates folder{"/mine", {{"top.cuh", "#include \"gone.cuh\"\n"}}};
  const Error error = testing::error_of([&] { closure(including("top.cuh"), folder); });
  EXPECT_EQ(error.code(), ErrorCode::io_error);
  EXPECT_THAT(error.message(),
              HasSubstr("the templates folder /mine lacks gone.cuh, which top.cuh includes"));
  EXPECT_THAT(testing::error_of([&] { closure(including("gone.cuh"), folder); }).message(),
              HasSubstr("lacks gone.cuh, which the program kernel includes"));
  EXPECT_THAT(testing::error_of([&] { closure(including("gone.cuh"), diamond); }).message(),
              HasSubstr("the library has no template gone.cuh"));
}

TEST(DigestOf, DependsOnNamesTextsAndOrder) {
  const SourceFile a{"a", "x"}, b{"b", "x"};
  EXPECT_EQ(digest_of({a, b}), digest_of({a, b}));
  EXPECT_NE(digest_of({a, b}), digest_of({b, a}));
  EXPECT_NE(digest_of({a}), digest_of({b}));
  EXPECT_NE(digest_of({a}), digest_of({{"a", "y"}}));
  EXPECT_NE(digest_of({{"a", "bc"}}), digest_of({{"ab", "c"}}));
}

}  // namespace
}  // namespace jit
