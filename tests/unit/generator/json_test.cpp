#include "generator/build/json.h"

#include <gtest/gtest.h>

namespace jit {
namespace {

TEST(Json, AnObjectComesBackAsItWas) {
  const std::string text = JsonObject()
                               .add("name", "a \"b\"\n")
                               .add("bytes", std::size_t{5'000'000'000})
                               .add("ms", 1.5)
                               .add("whole_ms", 2.0)
                               .add("cached", false)
                               .add("remarks", JsonObject::Texts{"x", "y"})
                               .add("config", JsonObject().add("tile_q", 64))
                               .dump();
  const std::optional<JsonObject> read = parse_json(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->text("name"), "a \"b\"\n");
  EXPECT_EQ(read->whole("bytes"), 5'000'000'000);
  EXPECT_EQ(read->number("ms"), 1.5);
  EXPECT_EQ(read->number("whole_ms"), 2.0);
  EXPECT_EQ(read->number("bytes"), 5e9);
  EXPECT_EQ(read->texts("remarks"), (JsonObject::Texts{"x", "y"}));
  EXPECT_EQ(read->dump(), text);
}

TEST(Json, WhatIsMissingOrOfAnotherKindIsNothing) {
  const std::optional<JsonObject> read =
      parse_json(R"({"text": 3, "whole": "3", "mixed": ["x", 1], "none": null})");
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->text("text"));
  EXPECT_FALSE(read->whole("whole"));
  EXPECT_FALSE(read->texts("mixed"));
  EXPECT_FALSE(read->number("none"));
  EXPECT_FALSE(read->text("absent"));
}

TEST(Json, TextThatIsNoObjectIsNothing) {
  for (const char* text : {"", "[]", "null", "3", "{", "{\"a\": }", "\xff\xfe", "{} {}"})
    EXPECT_FALSE(parse_json(text)) << text;
  EXPECT_TRUE(parse_json("{}"));
}

}  // namespace
}  // namespace jit
