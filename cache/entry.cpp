#include "cache/entry.h"

#include <array>
#include <cstdint>
#include <cstring>

#include "cache/digest.h"

namespace jit {
namespace {

constexpr std::uint64_t entry_version = 1;
constexpr std::array<std::byte, 8> entry_start = {std::byte{'J'}, std::byte{'I'}, std::byte{'T'},
                                                  std::byte{'A'}, std::byte{'T'}, std::byte{'T'},
                                                  std::byte{'N'}, std::byte{0x1a}};

struct Header {
  std::array<std::byte, 8> magic;
  std::uint64_t version;
  std::uint64_t key_size;
  std::uint64_t metadata_size;
  std::uint64_t code_size;
};
struct Trailer {
  std::uint64_t high;
  std::uint64_t low;
};
static_assert(sizeof(Header) == 40 && sizeof(Trailer) == 16);

// The header at the beginning of `bytes`, if it is one and the sizes in it fit.
std::optional<Header> read_header(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof header + sizeof(Trailer)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != entry_start || header.version != entry_version || header.code_size == 0)
    return std::nullopt;
  std::uint64_t room = bytes.size() - sizeof header - sizeof(Trailer);
  for (const std::uint64_t size : {header.key_size, header.metadata_size, header.code_size}) {
    if (size > room) return std::nullopt;
    room -= size;
  }
  return header;
}

std::size_t total_size(const Header& header) {
  return sizeof header + header.key_size + header.metadata_size + header.code_size + sizeof(Trailer);
}

template <class Bytes>
void append(std::vector<std::byte>& to, const Bytes& bytes) {
  const auto view = std::as_bytes(std::span(bytes));
  to.insert(to.end(), view.begin(), view.end());
}

std::string to_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::vector<std::byte> encode(std::string_view key_text, std::string_view metadata,
                              std::span<const std::byte> code) {
  const Header header{entry_start, entry_version, key_text.size(), metadata.size(), code.size()};
  std::vector<std::byte> bytes;
  bytes.reserve(total_size(header));
  append(bytes, std::span(&header, 1));
  append(bytes, key_text);
  append(bytes, metadata);
  append(bytes, code);
  const Digest checksum = digest(bytes);
  const Trailer trailer{checksum.high, checksum.low};
  append(bytes, std::span(&trailer, 1));
  return bytes;
}

std::vector<std::byte> encode(const Entry& entry) {
  return encode(entry.key_text, entry.metadata, entry.code);
}

std::optional<Entry> decode(std::span<const std::byte> bytes) {
  const std::optional<Header> header = read_header(bytes);
  if (!header || total_size(*header) != bytes.size()) return std::nullopt;
  Trailer trailer;
  std::memcpy(&trailer, bytes.data() + bytes.size() - sizeof trailer, sizeof trailer);
  if (digest(bytes.first(bytes.size() - sizeof trailer)) != Digest{trailer.high, trailer.low})
    return std::nullopt;
  const auto key = bytes.subspan(sizeof(Header), header->key_size);
  const auto metadata = bytes.subspan(sizeof(Header) + key.size(), header->metadata_size);
  const auto code = bytes.subspan(sizeof(Header) + key.size() + metadata.size(), header->code_size);
  return Entry{to_text(key), to_text(metadata), {code.begin(), code.end()}};
}

std::optional<std::size_t> encoded_size(std::span<const std::byte> bytes) {
  const std::optional<Header> header = read_header(bytes);
  if (!header) return std::nullopt;
  return total_size(*header);
}

std::span<const std::byte> entry_magic() { return entry_start; }

}  // namespace jit
