#include "generator/dispatch_key.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <jit/spec_table.h>

#include "generator/kernels/families.h"

namespace jit {
namespace {

// Digests any number of words in pieces of fixed size: the digest of a short buffer is cheap. Each piece
// begins with the digest of the previous ones.
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
  for (const SpecField& field : spec_fields()) digester.add(value_word(field, spec));
  if (config) {
    digester.add(config->index());
    std::visit(
        [&]<class Config>(const Config& own) {
          for (const ConfigField<Config>& field : Family<Config>::fields())
            digester.add(static_cast<std::uint64_t>(field.get(own)));
        },
        *config);
  }
  return digester.finish();
}

}  // namespace jit
