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

/// Whose threads an operation is ordered for.
enum class Scope : std::uint8_t { cta, cluster, gpu, sys };
inline constexpr std::size_t scopes = 4;

/// How an access takes part in synchronization: `.weak`, or strong with the semantics of its name.
/// `.volatile` is relaxed, of scope sys.
struct Ordering {
  bool strong = false;
  bool acquires = false;
  bool releases = false;
  Scope scope = Scope::gpu;
};

/// Words of one block's shared memory that strong accesses have written, and fences of its threads. Scopes of
/// accesses to shared memory are not told apart.
class SharedSync {
 public:
  /// A strong write at `offset` by a lane of any block of the cluster. An `update` (atomic) passes on what it
  /// read.
  void write(Warp& warp, int lane, std::uint32_t offset, const Ordering& ordering, bool update);
  /// A strong read.
  void read(Warp& warp, int lane, std::uint32_t offset, const Ordering& ordering);
  /// fence.acq_rel or .sc, by the lanes `exec` of a warp of this block: earlier relaxed reads acquire, later
  /// relaxed writes release.
  void fence(Warp& warp, Scope scope);
  /// Knowledge that the lane's last fence of this scope, or a wider one, has released; null without one.
  std::shared_ptr<const Knowledge> fenced(const Warp& warp, int lane, Scope scope = Scope::cta) const;
  /// A relaxed read has met a release, which a fence of this scope, or a wider one, makes an acquire of.
  void observe(const Warp& warp, int lane, Scope scope, const Knowledge& released);

 private:
  struct Fenced {
    std::array<std::shared_ptr<const Knowledge>, scopes> released;  // by the last fence, by scope
    std::array<Knowledge, scopes> observed;                         // by relaxed reads since, by scope
  };
  static std::uint64_t thread(const Warp& warp, int lane);

  std::unordered_map<std::uint32_t, Knowledge> words_;
  std::unordered_map<std::uint64_t, Fenced> fenced_;  // by thread
};

}  // namespace jit::emulator
