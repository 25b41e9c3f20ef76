#include "generator/problem/dispatch_key.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "generator/kernels/families.h"

namespace jit {
namespace {

// Digests numbers in pieces: one digest of a short piece of memory is what makes dispatch cheap. Each piece
// begins with the digest of those before, so that any number of words fits.
class WordDigester {
 public:
  void add(std::uint64_t word) {
    if (count_ == words_.size()) {
      const Digest before = finish();
      words_[0] = before.high;
      words_[1] = before.low;
      count_ = 2;
    }
    words_[count_++] = word;
  }

  Digest finish() const { return digest(std::as_bytes(std::span(words_.data(), count_))); }

 private:
  std::array<std::uint64_t, 64> words_;
  std::size_t count_ = 0;
};

}  // namespace

Digest dispatch_key(const AttentionSpec& spec, const std::optional<KernelConfig>& config) {
  WordDigester digester;
  const auto add = [&](auto number) { digester.add(static_cast<std::uint64_t>(number)); };
  add(spec.dtype);
  add(spec.alignment);
  add(spec.head_dim);
  add(spec.head_dim_v);
  add(spec.gqa_ratio);
  add(spec.seqlen_q);
  add(spec.seqlen_kv);
  add(spec.mask.hash());
  add(spec.score.hash());
  add(spec.softmax_scale ? std::uint64_t{1} << 32 | std::bit_cast<std::uint32_t>(*spec.softmax_scale) : 0);
  if (config) {
    add(config->index());
    std::visit(
        [&]<class Config>(const Config& own) {
          for (const ConfigField<Config>& field : Family<Config>::fields()) add(field.get(own));
        },
        *config);
  }
  return digester.finish();
}

}  // namespace jit
