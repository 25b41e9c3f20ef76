// Shadow of global memory while a grid runs: the last writer of each 4-byte word, and one later reader of
// each quad of words.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "machine/shared_sync.h"
#include "machine/vector_clock.h"

namespace jit::emulator {

/// An instruction that a warp executed, or an asynchronous operation, at one time of its agent.
struct GlobalAccess {
  std::uint32_t cluster = 0;  ///< number in the grid
  Agent agent = 0;
  std::uint32_t time = 0;
  std::uint32_t pc = 0;
  std::uint8_t rank = 0;  ///< of the block in the cluster
  std::uint8_t warp = 0;
  bool strong : 1 = false;
  bool async : 1 = false;    ///< by the async proxy
  Scope scope = Scope::gpu;  ///< of a strong one
};

/// The accesses of one lane of a GlobalAccess to some of the 4 bytes of a word, or of the 4 words of a quad;
/// empty by default.
class Touch {
 public:
  static constexpr std::uint32_t most_accesses = (1u << 23) - 1;
  static constexpr std::uint32_t all = 0xf;

  Touch() = default;
  Touch(std::uint32_t access, int lane, std::uint32_t bytes)
      : bits_(access << 9 | static_cast<std::uint32_t>(lane) << 4 | bytes) {}
  static Touch from(std::uint32_t bits) {
    Touch touch;
    touch.bits_ = bits;
    return touch;
  }
  /// Marker for a touch that has moved to a GlobalWord.
  static Touch moved() { return from(~0u); }

  bool is_none() const { return bits_ == 0; }
  bool is_moved() const { return bits_ == ~0u; }
  std::uint32_t bits() const { return bits_; }
  std::uint32_t access() const { return bits_ >> 9; }
  int lane() const { return static_cast<int>(bits_ >> 4 & 31); }
  std::uint32_t bytes() const { return bits_ & all; }
  Touch of_bytes(std::uint32_t bytes) const { return from((bits_ & ~all) | bytes); }
  bool is_same_thread_and_access(Touch other) const { return (bits_ ^ other.bits_) >> 4 == 0; }

 private:
  std::uint32_t bits_ = 0;
};

/// A word with strong accesses, or with parts written by several threads.
struct GlobalWord {
  std::vector<Touch> writes, reads;

  /// Releases by strong writes, for later acquires.
  struct Release {
    Scope scope;
    std::uint32_t cluster;
    unsigned rank;
    int device;    ///< in a group; −1: blocks of several devices contributed
    bool by_many;  ///< several blocks contributed in turn
    GridClock past, async_past;
  };
  std::vector<Release> releases;
};

/// Thread safe. Untouched pages cost no memory.
class GlobalShadow {
 public:
  static constexpr std::size_t page_bytes = 65536;
  static constexpr std::size_t page_words = page_bytes / 4;
  static constexpr std::size_t page_quads = page_words / 4;

  /// 64 kB of memory. Zeros: no access yet.
  struct Page {
    std::array<std::atomic<std::uint32_t>, page_words> writes;
    std::array<std::atomic<std::uint32_t>, page_quads> reads;
    std::atomic<std::uint64_t> written;  ///< a bit for each 1024 bytes, set before the first write
  };

  /// The shadow of `bytes` bytes of memory.
  explicit GlobalShadow(std::size_t bytes);
  ~GlobalShadow();
  GlobalShadow(const GlobalShadow&) = delete;
  GlobalShadow& operator=(const GlobalShadow&) = delete;

  Page& page(std::uint64_t offset) {
    std::atomic<Page*>& place = pages_[offset / page_bytes];
    Page* const page = place.load(std::memory_order_acquire);
    return page ? *page : add_page(place);
  }

  /// First of `count` new access indices, from 1; 0 when they have run out.
  std::uint32_t take_accesses(std::uint32_t count);
  /// Number of indices taken.
  std::uint32_t accesses() const { return next_access_.load() - 1; }
  GlobalAccess& access(std::uint32_t index) {
    return chunks_[index / chunk_accesses].load(std::memory_order_acquire)[index % chunk_accesses];
  }

 private:
  static constexpr std::uint32_t chunk_accesses = 4096;

  Page& add_page(std::atomic<Page*>& place);

  std::size_t page_count_;
  std::atomic<Page*>* pages_;
  std::vector<Page*> used_;
  std::array<std::atomic<GlobalAccess*>, (Touch::most_accesses + 1) / chunk_accesses> chunks_ = {};
  std::atomic<std::uint32_t> next_access_ = 1;
  std::mutex mutex_;
};

}  // namespace jit::emulator
