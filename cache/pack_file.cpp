#include "cache/pack_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "cache/lz4.h"

namespace jit {
namespace {

constexpr std::uint64_t pack_version = 2;
constexpr std::uint64_t max_pack_bytes = std::uint64_t{4} << 30;
constexpr std::array<std::byte, 8> pack_start = {std::byte{'J'}, std::byte{'I'}, std::byte{'T'},
                                                 std::byte{'P'}, std::byte{'A'}, std::byte{'C'},
                                                 std::byte{'K'}, std::byte{0x1a}};

struct Head {
  std::array<std::byte, 8> magic;
  std::uint64_t version;
  std::uint64_t facts_size;
  std::uint64_t entries;
};
struct StoredRow {
  std::uint64_t key_high, key_low, offset, size;
};
struct Checksum {
  std::uint64_t high, low;
};
static_assert(sizeof(Head) == 32 && sizeof(StoredRow) == 32 && sizeof(Checksum) == 16);

template <class Object>
void append_object(std::vector<std::byte>& to, const Object& object) {
  const auto bytes = std::as_bytes(std::span(&object, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

template <class Object>
Object object_at(std::span<const std::byte> bytes, std::uint64_t offset) {
  Object object;
  std::memcpy(&object, bytes.data() + offset, sizeof object);
  return object;
}

}  // namespace

PackedEntry::PackedEntry(const Entry& entry) : key(digest(entry.key_text)), bytes(compress(encode(entry))) {}

std::vector<std::byte> encode_pack(std::span<const KeyField> facts, std::vector<PackedEntry> entries) {
  std::sort(entries.begin(), entries.end());
  const std::string text = canonical_text(facts);
  std::vector<std::byte> pack;
  append_object(pack, Head{pack_start, pack_version, text.size(), entries.size()});
  const auto text_bytes = std::as_bytes(std::span(text));
  pack.insert(pack.end(), text_bytes.begin(), text_bytes.end());
  std::uint64_t offset = pack.size() + entries.size() * sizeof(StoredRow) + sizeof(Checksum);
  for (const auto& [key, bytes] : entries) {
    append_object(pack, StoredRow{key.high, key.low, offset, bytes.size()});
    offset += bytes.size();
  }
  const Digest checksum = digest(pack);
  append_object(pack, Checksum{checksum.high, checksum.low});
  for (const auto& [key, bytes] : entries) pack.insert(pack.end(), bytes.begin(), bytes.end());
  return pack;
}

PackFile::PackFile(FileSystem& file_system, const std::string& path) : path_(path) {
  std::string trouble = distrusted_location(path);
  if (trouble.empty()) {
    TrustedFile file =
        read_trusted_file(file_system, AT_FDCWD, path, Ownership::user_or_root, max_pack_bytes);
    trouble = file.absent ? "there is no such file" : file.distrust + file.failure;
    bytes_ = std::move(file.bytes);
  }
  if (trouble.empty()) trouble = read_head();
  if (!trouble.empty()) refusal_ = fmt::format("pack {} is not used: {}", path, trouble);
}

PackFile::PackFile(std::string path, std::vector<std::byte> bytes)
    : path_(std::move(path)), bytes_(std::move(bytes)) {
  if (const std::string trouble = read_head(); !trouble.empty())
    refusal_ = fmt::format("pack {} is not used: {}", path_, trouble);
}

std::string PackFile::read_head() {
  const std::span<const std::byte> bytes = bytes_;
  const auto has = [&](std::uint64_t offset, std::uint64_t size) {
    return offset <= bytes.size() && size <= bytes.size() - offset;
  };
  if (!has(0, sizeof(Head)) || object_at<Head>(bytes, 0).magic != pack_start)
    return "it is no pack that `jit-attention warm` has written";
  const Head head = object_at<Head>(bytes, 0);
  if (head.version != pack_version)
    return fmt::format("its format has version {}; this library reads {}", head.version, pack_version);
  constexpr const char* damaged = "its head is damaged";
  if (!has(sizeof head, head.facts_size)) return damaged;
  const std::uint64_t rows = sizeof head + head.facts_size;
  if (head.entries > (bytes.size() - rows) / sizeof(StoredRow)) return damaged;
  const std::uint64_t rows_end = rows + head.entries * sizeof(StoredRow);
  if (!has(rows_end, sizeof(Checksum))) return damaged;
  const auto checksum = object_at<Checksum>(bytes, rows_end);
  if (digest(bytes.first(rows_end)) != Digest{checksum.high, checksum.low}) return damaged;

  const std::string text(reinterpret_cast<const char*>(bytes.data() + sizeof head), head.facts_size);
  std::optional<std::vector<KeyField>> facts = parse_canonical_text(text);
  if (!facts) return damaged;
  std::vector<Row> index;
  std::uint64_t end = rows_end + sizeof(Checksum);
  for (std::uint64_t i = 0; i < head.entries; ++i) {
    const auto row = object_at<StoredRow>(bytes, rows + i * sizeof(StoredRow));
    if (row.offset != end || !has(row.offset, row.size))
      return fmt::format("it is cut off: {} bytes are there", bytes.size());
    index.push_back({{row.key_high, row.key_low}, row.offset, row.size});
    end += row.size;
  }
  if (end != bytes.size()) return fmt::format("it has {} bytes behind its end", bytes.size() - end);
  facts_ = *std::move(facts);
  index_ = std::move(index);
  return "";
}

std::string_view PackFile::fact(std::string_view name) const {
  for (const KeyField& field : facts_) {
    if (field.name == name) return field.value;
  }
  return {};
}

PackFile::Found PackFile::find(const Key& key) const {
  const auto row = std::lower_bound(index_.begin(), index_.end(), key.digest(),
                                    [](const Row& row, const Digest& wanted) { return row.key < wanted; });
  if (row == index_.end() || row->key != key.digest()) return {};
  const auto bytes = decompress(std::span(bytes_).subspan(row->offset, row->size));
  std::optional<Entry> entry = bytes ? decode(*bytes) : std::nullopt;
  if (!entry)
    return {{}, fmt::format("kernel {} of pack {} is not used: it is damaged", row->key.hex(), path_)};
  if (entry->key_text != key.text()) return {};
  return {std::move(entry), {}};
}

}  // namespace jit
