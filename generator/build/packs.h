// The packs that a context looks into.
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

/// Facts that hold for all kernels of a pack, as fields of its head.
namespace pack_fact {
inline constexpr const char* library = "library";
inline constexpr const char* compiler = "compiler";
inline constexpr const char* targets = "targets";  ///< a line each
}  // namespace pack_fact

/// Packs in the order of search. Thread safe. Trouble is a miss and one warning for each pack, never an error.
class Packs {
 public:
  Packs(std::span<const std::string> paths, Observer observer);

  std::vector<PackInUse> described() const;

  /// The compiler that the first of them was made with; empty when there is none.
  std::string_view compiler() const;

  /// The entry of `key`, whose kernel is for `target` and of `compiler`.
  std::optional<Entry> load(const Key& key, const Target& target, std::string_view compiler) const;

  /// Why no pack has a kernel for `target` of `compiler`: a sentence for each pack that was given. Empty: one may
  /// have it, or none was given.
  std::vector<std::string> shortfalls(const Target& target, std::string_view compiler) const;

 private:
  struct Pack {
    explicit Pack(PackFile opened) : file(std::move(opened)) {}
    PackFile file;
    std::string refusal;  // why nothing in it can serve any target
    mutable std::atomic_flag told;
  };
  void warn(const Pack& pack, const std::string& sentence) const;

  std::vector<std::unique_ptr<const Pack>> packs_;
  Observer observer_;
};

}  // namespace jit
