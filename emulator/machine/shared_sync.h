// Synchronisation through words of shared memory (PTX ISA, "Memory Consistency Model: Release and Acquire
// Patterns"): a release that a strong read observes puts what was before it in the past of the acquirer.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "emulator/machine/happens_before.h"

namespace jit::emulator {

/// How an access takes part in synchronisation: `.weak`, or strong with the semantics of its name.
/// `.volatile` is relaxed.
struct Ordering {
  bool strong = false;
  bool acquires = false;
  bool releases = false;
};

/// Words of one block's shared memory that strong accesses have written, and fences of its threads. Scopes are
/// not told apart.
class SharedSync {
 public:
  /// A strong write at `offset` by a lane of any block of the cluster. An `update` (atomic) passes on what it
  /// read.
  void write(Warp& warp, int lane, std::uint32_t offset, const Ordering& ordering, bool update);
  /// A strong read.
  void read(Warp& warp, int lane, std::uint32_t offset, const Ordering& ordering);
  /// fence.acq_rel or .sc, by the lanes `exec` of a warp of this block: earlier relaxed reads acquire, later
  /// relaxed writes release.
  void fence(Warp& warp);
  /// What the lane's last fence has released; null without one.
  const Knowledge* fenced(const Warp& warp, int lane) const;

 private:
  struct Fenced {
    Knowledge released;  // by the last fence
    Knowledge observed;  // by relaxed reads since
  };
  static std::uint64_t thread(const Warp& warp, int lane);

  std::unordered_map<std::uint32_t, Knowledge> words_;
  std::unordered_map<std::uint64_t, Fenced> fenced_;  // by thread
};

}  // namespace jit::emulator
