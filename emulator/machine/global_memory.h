// Memory of an emulated device. Each byte has a shadow byte: allocated, written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <emulator/memory.h>

#include "machine/address_space.h"

namespace jit::emulator {

/// The contents of a Memory. Thread safe.
class GlobalMemory {
 public:
  /// Throws std::bad_alloc.
  explicit GlobalMemory(std::size_t capacity, std::uint64_t begin = global_begin);
  ~GlobalMemory();
  GlobalMemory(const GlobalMemory&) = delete;
  GlobalMemory& operator=(const GlobalMemory&) = delete;

  /// Address, aligned to 256 bytes; 0 when memory is short or `bytes` is 0.
  std::uint64_t allocate(std::size_t bytes);
  /// False when `address` is not one that allocate returned.
  bool free(std::uint64_t address);
  MemoryRange allocation_of(std::uint64_t address) const;
  std::uint64_t begin() const { return begin_; }  ///< start of the address space
  std::size_t capacity() const { return capacity_; }
  std::size_t allocated() const;
  /// Description of an address: "byte 12 of the 4096 bytes at 0x…", or relative to the nearest allocation
  /// below.
  std::string describe(std::uint64_t address) const;

  /// Device side: allows accesses to the memory of `peer`, which outlives this one.
  void enable_peer(GlobalMemory& peer);
  void disable_peer(GlobalMemory& peer);
  bool is_peer(const GlobalMemory& memory) const;
  /// The smallest range that covers this address space and those of its peers.
  MemoryRange reach() const;

  // Host side. False when the range is not allocated as a whole.
  bool write(std::uint64_t to, const void* from, std::size_t bytes);
  bool read(void* to, std::uint64_t from, std::size_t bytes) const;
  bool copy(std::uint64_t to, std::uint64_t from, std::size_t bytes);  ///< carries uninitialized bytes along
  /// Repeats the `width` low bytes of `value`, 1 to 4 of them, `count` times.
  bool fill(std::uint64_t to, std::uint32_t value, int width, std::size_t count);

  // Device side: a host pointer to `bytes` bytes at `address`; null when they are not allocated.
  enum class State : std::uint8_t { unallocated = 0, allocated = 1, written = 3 };
  std::byte* at(std::uint64_t address, std::size_t bytes) const {
    const std::uint64_t offset = address - begin_;
    if (offset >= capacity_ || bytes > capacity_ - offset) return at_peer(address, bytes);
    return every_has(offset, bytes, State::allocated) ? bytes_ + offset : nullptr;
  }
  /// Whether all bytes were written; requires `at`.
  bool is_written(std::uint64_t address, std::size_t bytes) const {
    const std::uint64_t offset = address - begin_;
    if (offset >= capacity_) [[unlikely]]
      return is_written_at_peer(address, bytes);
    return every_has(offset, bytes, State::written);
  }
  void mark_written(std::uint64_t address, std::size_t bytes) {
    const std::uint64_t offset = address - begin_;
    if (offset >= capacity_) [[unlikely]]
      return mark_written_at_peer(address, bytes);
    set(offset, bytes, State::written);
  }
  /// The pointer of `at` when all bytes were also written; else null.
  const std::byte* written_at(std::uint64_t address, std::size_t bytes) const {
    const std::uint64_t offset = address - begin_;
    if (offset >= capacity_ || bytes > capacity_ - offset) return written_at_peer(address, bytes);
    return every_has(offset, bytes, State::written) ? bytes_ + offset : nullptr;
  }

 private:
  // Several host threads may mark the same byte at once, so the shadow is accessed with relaxed atomics, as
  // wide as alignment allows.
  template <class Word>
  static constexpr Word in_every_byte(State state) {
    return static_cast<Word>(~std::uint64_t{0} / 255 * static_cast<std::uint8_t>(state));
  }
  template <class Word>
  Word load_word(std::uint64_t offset) const {
    return __atomic_load_n(reinterpret_cast<const Word*>(shadow_ + offset), __ATOMIC_RELAXED);
  }
  template <class Word>
  bool word_has(std::uint64_t offset, State state) const {
    const Word wanted = in_every_byte<Word>(state);
    return (load_word<Word>(offset) & wanted) == wanted;
  }
  bool every_has(std::uint64_t offset, std::size_t bytes, State state) const {
    if (bytes >= 8 && (offset & 7) == 0) {
      std::uint64_t all = ~std::uint64_t{0};
      for (; bytes >= 8; offset += 8, bytes -= 8) all &= load_word<std::uint64_t>(offset);
      if ((all & in_every_byte<std::uint64_t>(state)) != in_every_byte<std::uint64_t>(state)) return false;
    }
    if (bytes == 4 && (offset & 3) == 0) return word_has<std::uint32_t>(offset, state);
    if (bytes == 2 && (offset & 1) == 0) return word_has<std::uint16_t>(offset, state);
    return bytes == 0 || every_has_unaligned(offset, bytes, state);
  }
  bool every_has_unaligned(std::uint64_t offset, std::size_t bytes, State state) const;
  template <class Word>
  void set_word(std::uint64_t offset, State state) {
    const Word value = in_every_byte<Word>(state);
    __atomic_store_n(reinterpret_cast<Word*>(shadow_ + offset), value, __ATOMIC_RELAXED);
  }
  void set(std::uint64_t offset, std::size_t bytes, State state) {
    for (; bytes >= 8 && (offset & 7) == 0; offset += 8, bytes -= 8) set_word<std::uint64_t>(offset, state);
    if (bytes == 4 && (offset & 3) == 0) {
      set_word<std::uint32_t>(offset, state);
    } else if (bytes == 2 && (offset & 1) == 0) {
      set_word<std::uint16_t>(offset, state);
    } else if (bytes != 0) {
      set_unaligned(offset, bytes, state);
    }
  }
  void set_unaligned(std::uint64_t offset, std::size_t bytes, State state);

  // The peer that owns an address outside of this memory; null: none.
  GlobalMemory* peer_of(std::uint64_t address) const;
  std::byte* at_peer(std::uint64_t address, std::size_t bytes) const;
  const std::byte* written_at_peer(std::uint64_t address, std::size_t bytes) const;
  bool is_written_at_peer(std::uint64_t address, std::size_t bytes) const;
  void mark_written_at_peer(std::uint64_t address, std::size_t bytes);

  std::byte* allocated_as_a_whole(std::uint64_t address, std::size_t bytes) const;
  std::uint64_t find_room(std::uint64_t from, std::uint64_t to, std::size_t bytes) const;
  void clear(std::uint64_t offset, std::size_t bytes);

  std::size_t capacity_;
  std::uint64_t begin_;
  std::byte* bytes_ = nullptr;
  std::uint8_t* shadow_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<GlobalMemory*> peers_;
  std::map<std::uint64_t, std::size_t> allocations_;  // by address
  std::uint64_t next_ = 0;                            // offset where the search for room begins
};

}  // namespace jit::emulator
