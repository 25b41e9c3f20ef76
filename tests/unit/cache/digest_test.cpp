#include "cache/digest.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "cache_testing.h"

namespace jit {
namespace {

TEST(Digest, MatchesPublishedValueOfXxh3) { EXPECT_EQ(digest("").hex(), "99aa06d3014798d86001c324468d497f"); }

TEST(Digest, HexHasThirtyTwoDigits) {
  EXPECT_EQ((Digest{.high = 1, .low = 0xabc}.hex()), "00000000000000010000000000000abc");
}

TEST(Digest, DependsOnEveryByte) {
  const std::string text(1000, 'x');
  std::set<Digest> seen{digest(text)};
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = 'y';
    EXPECT_TRUE(seen.insert(digest(changed)).second) << i;
  }
}

TEST(Digest, TextAndBytesAgree) {
  const std::string text = "some text";
  EXPECT_EQ(digest(text), digest(std::as_bytes(std::span(text))));
}

TEST(Digester, FieldsDoNotRunTogether) {
  const Digest one = Digester().add("ab").add("c").finish();
  EXPECT_NE(one, Digester().add("a").add("bc").finish());
  EXPECT_NE(one, Digester().add("abc").finish());
  EXPECT_NE(one, Digester().add("ab").add("c").add("").finish());
  EXPECT_EQ(one, Digester().add("ab").add("c").finish());
}

TEST(Digester, GoesOnAfterFinish) {
  Digester digester;
  digester.add("ab");
  const Digest before = digester.finish();
  EXPECT_EQ(digester.finish(), before);
  EXPECT_EQ(digester.add("c").finish(), Digester().add("ab").add("c").finish());
}

TEST(Digester, CopiesAreIndependent) {
  Digester one;
  one.add(std::string(5000, 'a'));
  Digester other = one;
  EXPECT_EQ(one.finish(), other.finish());
  other.add(std::uint64_t{7});
  EXPECT_NE(one.finish(), other.finish());
}

}  // namespace
}  // namespace jit
