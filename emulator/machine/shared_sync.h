// Synchronization through words of shared memory (PTX ISA, "Memory Consistency Model: Release and Acquire
// Patterns"): a release that a strong read observes puts what was before it in the past of the acquirer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "machine/happens_before.h"

namespace jit::emulator {

/// The threads that a scope covers.
enum class Scope : std::uint8_t { cta, cluster, gpu, sys };
inline constexpr std::size_t scopes = 4;

/// Memory ordering of an access: `.weak`, or strong with the named semantics. `.volatile` is relaxed with
/// scope sys.
struct Ordering {
  bool strong = false;
  bool acquires = false;
  bool releases = false;
  Scope scope = Scope::gpu;
};

/// Words of one block's shared memory that strong accesses have written, and fences by its threads. Scopes
/// are not distinguished for shared memory.
class SharedSync {
 public:
  /// A strong write at `offset` by a lane of any block of the cluster. An `update` (atomic) keeps the
  /// releases that it read.
  void write(Warp& warp, int lane, std::uint32_t offset, const Ordering& ordering, bool update);
  /// A strong read.
  void read(Warp& warp, int lane, std::uint32_t offset, const Ordering& ordering);
  /// fence.acq_rel or .sc, by the lanes `exec` of a warp of this block: earlier relaxed reads acquire, later
  /// relaxed writes release.
  void fence(Warp& warp, Scope scope);
  /// Knowledge released by the lane's last fence of this scope, or a wider one; null: no fence.
  std::shared_ptr<const Knowledge> fenced(const Warp& warp, int lane, Scope scope = Scope::cta) const;
  /// Records that a relaxed read has observed a release; a later fence of this scope, or a wider one, makes
  /// it an acquire.
  void observe(const Warp& warp, int lane, Scope scope, const Knowledge& released);

 private:
  struct Fenced {
    std::array<std::shared_ptr<const Knowledge>, scopes> released;  // by the last fence, per scope
    std::array<Knowledge, scopes> observed;                         // by later relaxed reads, per scope
  };
  static std::uint64_t thread(const Warp& warp, int lane);

  std::unordered_map<std::uint32_t, Knowledge> words_;
  std::unordered_map<std::uint64_t, Fenced> fenced_;  // by thread
};

}  // namespace jit::emulator
