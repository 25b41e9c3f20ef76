#include "cache/digest.h"

#include <bit>
#include <new>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace jit {
namespace {

static_assert(std::endian::native == std::endian::little, "digests and entries are stored as little-endian");
static_assert(sizeof(XXH3_state_t) <= 576 && alignof(XXH3_state_t) <= 64);
static_assert(std::is_trivially_copyable_v<XXH3_state_t>);

Digest from(XXH128_hash_t hash) { return {.high = hash.high64, .low = hash.low64}; }

XXH3_state_t* state_of(std::byte* bytes) { return std::launder(reinterpret_cast<XXH3_state_t*>(bytes)); }
const XXH3_state_t* state_of(const std::byte* bytes) {
  return std::launder(reinterpret_cast<const XXH3_state_t*>(bytes));
}

}  // namespace

std::string Digest::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Digest digest(std::span<const std::byte> bytes) { return from(XXH3_128bits(bytes.data(), bytes.size())); }

Digest digest(std::string_view text) { return digest(std::as_bytes(std::span(text))); }

Digester::Digester() {
  new (state_.data()) XXH3_state_t;
  XXH3_128bits_reset(state_of(state_.data()));
}

Digester& Digester::add(std::span<const std::byte> field) {
  add(std::uint64_t{field.size()});
  XXH3_128bits_update(state_of(state_.data()), field.data(), field.size());
  return *this;
}

Digester& Digester::add(std::string_view field) { return add(std::as_bytes(std::span(field))); }

Digester& Digester::add(std::uint64_t number) {
  XXH3_128bits_update(state_of(state_.data()), &number, sizeof number);
  return *this;
}

Digest Digester::finish() const { return from(XXH3_128bits_digest(state_of(state_.data()))); }

}  // namespace jit
