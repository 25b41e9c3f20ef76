#include "cache/pack_file.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/cache_entries.h"
#include "tests/support/fresh_folder.h"

namespace jit {
namespace {

using testing::entry_of;
using testing::FreshFolder;
using ::testing::HasSubstr;
using testing::key_of;

const std::vector<KeyField> facts = {{"library", "1"}, {"targets", "sm_90a\nsm_80"}};

std::vector<PackedEntry> three_entries() {
  std::vector<PackedEntry> entries;
  for (const char* name : {"one", "two", "three"}) entries.emplace_back(entry_of(key_of(name)));
  return entries;
}

void write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  testing::write_text(path, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

TEST(PackFile, HasWhatWasPutIn) {
  const FreshFolder folder;
  write_bytes(folder / "a.pack", encode_pack(facts, three_entries()));
  const PackFile pack(real_file_system(), folder / "a.pack");
  EXPECT_EQ(pack.refusal(), "");
  EXPECT_EQ(pack.size(), 3u);
  EXPECT_EQ(pack.fact("targets"), "sm_90a\nsm_80");
  EXPECT_EQ(pack.fact("unknown"), "");
  for (const char* name : {"one", "two", "three"})
    EXPECT_EQ(pack.find(key_of(name)).entry, entry_of(key_of(name)));
  EXPECT_FALSE(pack.find(key_of("four")).entry);
  EXPECT_EQ(pack.find(key_of("four")).damage, "");
}

TEST(PackFile, MayBeEmpty) {
  const PackFile pack("empty", encode_pack({}, {}));
  EXPECT_EQ(pack.refusal(), "");
  EXPECT_FALSE(pack.find(key_of("one")).entry);
}

TEST(PackFile, EqualEntriesGiveEqualBytes) {
  std::vector<PackedEntry> entries = three_entries();
  const std::vector<std::byte> bytes = encode_pack(facts, entries);
  std::swap(entries[0], entries[2]);
  EXPECT_EQ(encode_pack(facts, entries), bytes);
}

// Any flipped bit: the pack is refused, or the entry that it hit is, and the others are whole.
TEST(PackFile, AFlippedBitNeverGivesAnotherEntry) {
  const std::vector<std::byte> whole = encode_pack(facts, three_entries());
  std::size_t refused = 0, damaged = 0;
  for (std::size_t byte = 0; byte < whole.size(); ++byte) {
    std::vector<std::byte> bytes = whole;
    bytes[byte] ^= std::byte{1} << (byte % 8);
    const PackFile pack("p", bytes);
    if (!pack.refusal().empty()) {
      EXPECT_FALSE(pack.find(key_of("one")).entry);
      ++refused;
      continue;
    }
    int lost = 0;
    for (const char* name : {"one", "two", "three"}) {
      const PackFile::Found found = pack.find(key_of(name));
      EXPECT_EQ(found.entry.value_or(entry_of(key_of(name))), entry_of(key_of(name)));
      EXPECT_THAT(found.damage, found.entry ? HasSubstr("") : HasSubstr("is not used: it is damaged"));
      lost += !found.entry;
    }
    EXPECT_LE(lost, 1) << byte;  // none where a match begins at other bytes that are equal
    damaged += static_cast<std::size_t>(lost);
  }
  EXPECT_GT(refused, 100u);
  EXPECT_GT(damaged, 900u);
}

TEST(PackFile, IsRefusedAtEveryOtherLength) {
  std::vector<std::byte> bytes = encode_pack(facts, three_entries());
  bytes.push_back(std::byte{0});
  EXPECT_THAT(PackFile("p", bytes).refusal(), HasSubstr("behind its end"));
  bytes.pop_back();
  while (!bytes.empty()) {
    bytes.pop_back();
    ASSERT_NE(PackFile("p", bytes).refusal(), "") << bytes.size();
  }
  EXPECT_THAT(PackFile("p", bytes).refusal(),
              HasSubstr("it is no pack that `jit-attention warm` has written"));
}

TEST(PackFile, NamesAnotherVersionOfTheFormat) {
  std::vector<std::byte> bytes = encode_pack(facts, three_entries());
  bytes[8] = std::byte{1};
  EXPECT_THAT(PackFile("p", bytes).refusal(), HasSubstr("its format has version 1; this library reads 2"));
}

TEST(PackFile, MustBeAFileThatOthersCannotWrite) {
  const FreshFolder folder;
  const std::string path = folder / "a.pack", link = folder / "link.pack";
  write_bytes(path, encode_pack(facts, three_entries()));
  std::filesystem::create_symlink(path, link);
  const auto refusal = [](const std::string& file) { return PackFile(real_file_system(), file).refusal(); };
  EXPECT_EQ(refusal(path), "");
  EXPECT_THAT(refusal(link), HasSubstr("it is a symbolic link"));
  EXPECT_THAT(refusal(folder / "none.pack"), HasSubstr("there is no such file"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("is not used"));
  EXPECT_THAT(refusal("a.pack"), HasSubstr("is not an absolute path"));
  std::filesystem::permissions(path, std::filesystem::perms(0666));
  EXPECT_THAT(refusal(path), HasSubstr("it is not a file that only its user can write"));
}

}  // namespace
}  // namespace jit
