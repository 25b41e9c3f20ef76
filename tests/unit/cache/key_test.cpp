#include "cache/key.h"

#include <stdlib.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <jit/error.h>

namespace jit {
namespace {

std::vector<KeyField> kernel_fields() {
  return {{"library", "0.1.0"},         {"source", "__global__ void f() {}\n"},
          {"option", "--minimal"},      {"option", "-arch=sm_90a"},
          {"arch", "sm_90a"},           {"nvrtc", "13.0"},
          {"nvrtc_build_id", "8f21ab"}, {"templates", ""}};
}

TEST(Key, ChangesWithEveryField) {
  const Key key(kernel_fields());
  std::set<Digest> seen{key.digest()};
  for (std::size_t i = 0; i < kernel_fields().size(); ++i) {
    std::vector<KeyField> fields = kernel_fields();
    fields[i].value += "x";
    EXPECT_TRUE(seen.insert(Key(fields).digest()).second) << "value of " << fields[i].name;
    fields = kernel_fields();
    fields[i].name += "x";
    EXPECT_TRUE(seen.insert(Key(fields).digest()).second) << "name of " << fields[i].name;
    fields = kernel_fields();
    fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_TRUE(seen.insert(Key(fields).digest()).second) << "absence of field " << i;
  }
}

TEST(Key, DependsOnTheOrderOfFields) {
  std::vector<KeyField> fields = kernel_fields();
  std::swap(fields[2], fields[3]);
  EXPECT_NE(Key(fields), Key(kernel_fields()));
}

TEST(Key, DependsOnNothingElse) {
  const Key before(kernel_fields());
  const char* home = getenv("HOME");
  const std::string old_home = home == nullptr ? "" : home;
  setenv("HOME", "/somewhere/else", 1);
  const Key after(kernel_fields());
  setenv("HOME", old_home.c_str(), 1);
  EXPECT_EQ(before, after);
  EXPECT_EQ(before.digest(), after.digest());
}

TEST(Key, ValuesCannotImitateFields) {
  const Key one{{"a", "x"}, {"b", "y"}};
  const Key other{{"a", "x\nb 1\ny"}};
  EXPECT_NE(one, other);
  EXPECT_NE(one.digest(), other.digest());
}

TEST(Key, BeginsWithTheSchema) { EXPECT_EQ(Key({{"a", "xy"}}).text(), "schema 1\n1\na 2\nxy\n"); }

TEST(Key, RefusesStrangeNames) {
  for (const char* name : {"", "a b", "a\n", "ä"}) {
    try {
      const Key key({{name, "value"}});
      ADD_FAILURE() << "accepted '" << name << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
  }
}

TEST(CanonicalText, RoundTripsAnyBytes) {
  std::string all_bytes;
  for (int c = 0; c < 256; ++c) all_bytes += static_cast<char>(c);
  const std::vector<KeyField> fields = {{"a", ""}, {"a", all_bytes}, {"b.C-1_", "\n\n a 3\n"}};
  EXPECT_EQ(parse_canonical_text(canonical_text(fields)), fields);
  EXPECT_EQ(parse_canonical_text(""), std::vector<KeyField>{});
}

TEST(CanonicalText, ParsesNothingElse) {
  const std::string text = canonical_text(std::vector<KeyField>{{"name", "value"}, {"other", "12"}});
  for (std::size_t size = 1; size < text.size(); ++size) {
    const auto fields = parse_canonical_text(text.substr(0, size));
    EXPECT_TRUE(!fields || canonical_text(*fields) == text.substr(0, size)) << size;
  }
  for (const char* wrong :
       {"name", "name 1", "name 1\n", "name 1\nx", "name 1\nxy\n", "name 01\nx\n", "name +1\nx\n",
        "name -1\nx\n", "name 99999999999999999999999\nx\n", "name \n\n", " 1\nx\n"}) {
    EXPECT_FALSE(parse_canonical_text(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace jit
