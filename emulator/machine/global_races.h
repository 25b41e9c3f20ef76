// The race detector for global memory: accesses by threads of one grid, in one block or several, and of grids
// that may run concurrently because one does not wait for the other's end.
//
// The detector remembers the last writer of each 4-byte word and, for each quad of words, one later reader of
// whole words, usually the first. Two accesses, at least one a write, are a race unless one happens before
// the other. Strong accesses (atomic, volatile, relaxed, acquire, release) do not race with each other where
// each scope includes the other's block; their releases and acquires order the blocks (PTX ISA, "Memory
// Consistency Model").
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include <emulator/finding.h>
#include <emulator/memory.h>

#include "machine/global_shadow.h"
#include "machine/grid_order.h"
#include "machine/happens_before.h"

namespace jit::emulator {

class GroupOrder;
struct GroupMember;
struct Launch;

/// Thread safe. All accessed memory must be allocated.
class GlobalRaces {
 public:
  explicit GlobalRaces(const Launch& launch);
  /// For launches and copies of a device group whose memories are in `range`. `order` outlives it.
  GlobalRaces(MemoryRange range, GroupOrder& order);
  /// Begins `next`; the last launch, which has ended, becomes a previous grid. Requires can_follow.
  void follow(const Launch& next);
  /// Whether numbers are left for another launch.
  bool can_follow(const Launch& next) const;

  /// Order of the grids so far, for griddepcontrol.
  GridOrder& grids() { return grids_; }

  // Weak accesses by the lanes `mask` of a warp, now: each lane to `bytes` bytes at its address.
  using Addresses = std::span<const std::uint64_t, 32>;
  void read(Warp& warp, std::uint32_t mask, Addresses addresses, std::uint32_t bytes);
  /// Lanes that write the same address race unless their `values` (at lane · bytes) are equal.
  void write(Warp& warp, std::uint32_t mask, Addresses addresses, std::uint32_t bytes,
             const std::byte* values);

  // Weak accesses as `access` says.
  void read(const Access& access, std::uint64_t address, std::uint32_t bytes);
  void write(const Access& access, std::uint64_t address, std::uint32_t bytes);
  /// A relaxed atomic update of each word.
  void update(Access access, std::uint64_t address, std::uint32_t bytes);

  /// A copy of a group's queue, with the queue's knowledge of previous work. `report` gets its findings.
  struct Copy {
    const GroupMember& member;
    const GridClock& known;
    std::function<void(FindingKind, std::string)> report;
  };
  void read(const Copy& copy, std::uint64_t address, std::size_t bytes);
  void write(const Copy& copy, std::uint64_t address, std::size_t bytes);
  /// A strong store to a word with scope sys; it releases the copy's knowledge.
  void write_value(const Copy& copy, std::uint64_t address);
  /// A strong, acquiring load with scope sys: the knowledge released at the word.
  GridClock acquired(const Copy& copy, std::uint64_t address);

  enum class Kind : std::uint8_t { load, store, update };
  /// A lane's strong access, now, to at most 32 bytes, aligned to their number. `change` performs it while no
  /// other strong access can.
  void strong(Warp& warp, int lane, std::uint64_t address, std::uint32_t bytes, Kind kind,
              const Ordering& ordering, const std::function<void()>& change);

 private:
  using Page = GlobalShadow::Page;
  struct Doing;
  // Neighboring words share a shard: a strong access looks up the same few words several times.
  struct Shard {
    static constexpr std::uint64_t neighbors = 32;
    using Words = std::array<GlobalWord, neighbors>;

    GlobalWord& operator[](std::uint64_t word) {
      if (!last_words || last != word / neighbors) {
        last = word / neighbors;
        last_words = &words[last];
      }
      return (*last_words)[word % neighbors];
    }

    std::mutex mutex;
    std::unordered_map<std::uint64_t, Words> words;
    std::uint64_t last = 0;
    Words* last_words = nullptr;
  };

  static int lane_of(const Access& access) {
    return access.lanes == all_lanes ? 0 : std::countr_zero(access.lanes);
  }
  std::uint32_t name(const Access& access, Scope scope = Scope::gpu);
  std::uint32_t name_once(Warp& warp);
  std::uint32_t name(const Copy& copy, bool strong);

  template <class F>
  void for_each_word(std::uint64_t address, std::uint32_t bytes, F f);
  bool is_written(std::uint64_t address, std::uint32_t bytes);
  void set_written(std::uint64_t address, std::uint32_t bytes);

  void note_read(std::uint64_t address, std::uint32_t bytes, std::uint32_t index, int lane);
  void check_writes(const Doing& doing);
  void note_write_alone(const Doing& doing);
  template <class Same>
  void note_write(const Doing& doing, Same writes_the_same);
  void check_reads(const Doing& doing);

  // With the shard of the word locked.
  Shard& shard_of(std::uint64_t word) { return shards_[word / Shard::neighbors % shards_.size()]; }
  GlobalWord& move(Shard& shard, std::uint64_t word);
  void use(const Doing& doing, GlobalWord& global, std::uint64_t word, std::uint32_t bytes);
  void acquire(Warp& warp, int lane, const GlobalWord& word, const Ordering& ordering);
  void release(Warp& warp, int lane, GlobalWord& word, const Ordering& ordering, Kind kind);

  bool is_ordered(const Doing& doing, Touch earlier);
  /// Whether the async proxy sees a write that happens before its access.
  bool is_fenced(const Doing& doing, Touch write);
  bool may_be_together(const Doing& doing, Touch earlier);
  /// Whether `known` includes the end of a cluster: of a previous grid, or of another member of a group.
  bool has_ended(std::uint32_t cluster, const GridClock& known) const;
  Scope scope_between(const Block& block, std::uint32_t cluster, unsigned rank) const;
  int device_of(std::uint32_t cluster) const;
  // In global_report.cpp.
  void report(const Doing& doing, Touch earlier, bool with_read, std::uint64_t word);
  void report_unfenced(const Doing& doing, Touch write, std::uint64_t word);
  void report_of_copy(const Doing& doing, Touch earlier, bool with_read, std::uint64_t word);
  std::string text_of(const Doing& doing, Touch earlier, bool with_read, std::uint64_t word);
  std::string describe(Touch touch, const char* verb);
  std::string describe_member(Touch touch, const char* verb);

  const Launch* launch_;
  const MemoryRange range_;
  const std::uint64_t begin_ = range_.begin;
  GridOrder grids_;
  GroupOrder* const group_ = nullptr;
  GlobalShadow shadow_;
  std::array<Shard, 64> shards_;
};

/// An access and its name in the shadow.
struct GlobalRaces::Doing {
  const Access& access;
  std::uint32_t cluster;
  std::uint32_t index;  ///< in the GlobalAccess list; 0: the list is full
  int lane;
  std::uint64_t address;
  std::uint32_t bytes;
  bool writes;
  Scope scope = Scope::gpu;
  const Copy* copy = nullptr;
};

// Calls f(page, word in the page, word, mask of its bytes).
template <class F>
void GlobalRaces::for_each_word(std::uint64_t address, std::uint32_t bytes, F f) {
  std::uint64_t offset = address - begin_;
  while (bytes > 0) {
    Page& page = shadow_.page(offset);
    const std::uint64_t end =
        std::min(offset + bytes, (offset / GlobalShadow::page_bytes + 1) * GlobalShadow::page_bytes);
    bytes -= static_cast<std::uint32_t>(end - offset);
    while (offset < end) {
      const std::uint64_t next = std::min((offset / 4 + 1) * 4, end);
      const std::uint32_t count = static_cast<std::uint32_t>(next - offset);
      f(page, offset / 4 % GlobalShadow::page_words, offset / 4, ((1u << count) - 1) << offset % 4);
      offset = next;
    }
  }
}

}  // namespace jit::emulator
