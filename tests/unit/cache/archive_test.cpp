#include "cache/archive.h"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache_testing.h"

namespace jit {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Bytes = std::vector<std::byte>;

void append(Bytes& archive, const Bytes& bytes) { archive.insert(archive.end(), bytes.begin(), bytes.end()); }

Bytes entry_bytes(const std::string& name) { return encode(entry_of(key_of(name))); }

// `count` beginnings of entries, each of which claims all bytes behind it.
Bytes greedy_beginnings(std::size_t count) {
  const Bytes entry = entry_bytes("any");
  constexpr std::size_t header = 40, code_size_at = 32, checksum = 16;
  Bytes archive;
  for (std::size_t left = count; left-- > 0;) {
    Bytes beginning(entry.begin(), entry.begin() + header);
    std::memset(beginning.data() + 16, 0, 16);  // neither key nor metadata
    const std::uint64_t claim = left * header + 100 - checksum;
    std::memcpy(beginning.data() + code_size_at, &claim, sizeof claim);
    append(archive, beginning);
  }
  append(archive, Bytes(100));
  return archive;
}

TEST(Archive, GivesEntriesInOrder) {
  Bytes archive = entry_bytes("one");
  append(archive, entry_bytes("two"));
  const ArchiveContents contents = read_archive(archive);
  ASSERT_EQ(contents.entries.size(), 2u);
  EXPECT_EQ(contents.entries[0].key, key_of("one").digest());
  EXPECT_EQ(contents.entries[1].key, key_of("two").digest());
  EXPECT_EQ(decode(contents.entries[1].bytes), entry_of(key_of("two")));
  EXPECT_THAT(contents.damaged, IsEmpty());
  EXPECT_THAT(read_archive({}).entries, IsEmpty());
}

TEST(Archive, AStretchOfDamageIsOneSentence) {
  Bytes archive = greedy_beginnings(5);
  const std::size_t damage = archive.size();
  append(archive, entry_bytes("one"));
  append(archive, Bytes(7));
  const ArchiveContents contents = read_archive(archive);
  ASSERT_EQ(contents.entries.size(), 1u);
  const std::string end = std::to_string(damage + entry_bytes("one").size());
  EXPECT_THAT(contents.damaged, ElementsAre(std::to_string(damage) + " bytes at offset 0 are no whole entry",
                                            "7 bytes at offset " + end + " are no whole entry"));
}

// 100 000 beginnings that claim 2 MB each, on the average: 200 GB, were all believed.
TEST(Archive, TakesTimeInProportionToItsSizeWhateverIsInIt) {
  const Bytes archive = greedy_beginnings(100'000);
  const double begin = cpu_microseconds();
  const ArchiveContents contents = read_archive(archive);
  EXPECT_LT(cpu_microseconds() - begin, 2e6);
  EXPECT_THAT(contents.entries, IsEmpty());
  EXPECT_THAT(contents.damaged, ElementsAre(HasSubstr("are left out")));
}

}  // namespace
}  // namespace jit
