// The packs that a context searches.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jit/context.h>
#include <jit/observer.h>

#include "cache/pack_file.h"
#include "generator/build/image.h"

namespace jit {

/// Fields of a pack's head, which hold for all its kernels.
namespace pack_fact {
inline constexpr const char* library = "library";
inline constexpr const char* compiler = "compiler";
inline constexpr const char* targets = "targets";  ///< one per line
}  // namespace pack_fact

/// Packs in search order. Thread safe. A problem is a miss, with one warning per pack, never an error.
class Packs {
 public:
  Packs(std::span<const std::string> paths, Observer observer);

  std::vector<PackInUse> described() const;

  /// The compilers that made usable packs, in search order, each once.
  std::vector<std::string> compilers() const;

  /// The entry of the first of `keys` that a pack has: those of a kernel for `target`, one by each of
  /// `compilers`.
  std::optional<Entry> load(std::span<const Key> keys, const Target& target,
                            std::span<const std::string> compilers) const;

  /// Reasons why no pack has a kernel for `target` by one of `compilers`, a sentence per given pack. Empty if
  /// a pack may have one, or none was given. Requires: there are compilers.
  std::vector<std::string> shortfalls(const Target& target, std::span<const std::string> compilers) const;

 private:
  struct Pack {
    explicit Pack(PackFile opened) : file(std::move(opened)) {}
    PackFile file;
    std::string refusal;  // why no target can use the pack; empty if some can
    mutable std::atomic_flag told;
  };
  void warn(const Pack& pack, const std::string& sentence) const;

  std::vector<std::unique_ptr<const Pack>> packs_;
  Observer observer_;
};

}  // namespace jit
