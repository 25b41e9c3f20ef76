// Shared memory of a block, and its race detector.
//
// Each 16 bytes have a cell with the last write and later reads; a cell that is accessed in parts is split by
// bytes. Conflicting accesses race unless one happens before the other or the same thread makes both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <emulator/finding.h>

#include "machine/happens_before.h"
#include "machine/shared_sync.h"

namespace jit::emulator {

struct Launch;
struct Cell;
struct Conflict;
struct Record;
class Shadow;

class SharedMemory {
 public:
  SharedMemory(const Launch& launch, std::size_t bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&&) noexcept;

  std::size_t size() const { return bytes_.size(); }

  // `offset` counts from the start of shared memory, without shared_begin. Each function reports faults
  // through access.warp; an out-of-bounds access ends the launch (throws LaunchStopped), other faults do not.
  /// The bytes, for an immediate read.
  const std::byte* read(const Access& access, std::uint32_t offset, std::uint32_t bytes);
  /// The bytes, for an immediate write.
  std::byte* write(const Access& access, std::uint32_t offset, std::uint32_t bytes);
  /// For atomics, an immediate read and write; two of them never race.
  std::byte* update(const Access& access, std::uint32_t offset, std::uint32_t bytes);

  /// Begins an asynchronous write: until `end_write`, other accesses to the bytes are reported. Fills them
  /// with poison (0xff…). Checks the write against accesses before its issue.
  void begin_write(const Access& issue, std::uint32_t offset, std::uint32_t bytes);
  /// The bytes that begin_write announced, for an immediate write. `completion` gives the epoch of the write.
  std::byte* end_write(const Access& completion, std::uint32_t offset, std::uint32_t bytes);

  // Accesses of one instruction by the lanes in `mask`: `bytes` bytes at each lane's offset, from or to the
  // buffer at lane · `bytes`. Each lane acts for itself, unless `access.together`.
  using Offsets = std::span<const std::uint32_t, 32>;
  void load(const Access& access, Offsets offsets, std::uint32_t mask, std::uint32_t bytes, std::byte* to);
  /// Lanes that write the same bytes race unless they write the same values.
  void store(const Access& access, Offsets offsets, std::uint32_t mask, std::uint32_t bytes,
             const std::byte* from);
  void begin_store(const Access& issue, Offsets offsets, std::uint32_t mask, std::uint32_t bytes);
  void end_store(const Access& completion, Offsets offsets, std::uint32_t mask, std::uint32_t bytes,
                 const std::byte* from);

  /// Marks these 8 bytes as an mbarrier: plain accesses to them are reported. Unmarking makes them
  /// uninitialized.
  void set_mbarrier(std::uint32_t offset, bool is_mbarrier);

  /// Releases and acquires by strong accesses to its words.
  SharedSync& sync() { return sync_; }

 private:
  // The kind of an access, for reports.
  struct Doing {
    const Access& access;
    const char* verb;  // "reads"
    std::uint32_t offset, bytes;
  };
  // Stores by an instruction's lanes, in order.
  struct Stores;

  void check_bounds(const Access& access, const char* verb, std::uint32_t offset, std::uint32_t bytes) {
    if (offset <= bytes_.size() && bytes <= bytes_.size() - offset) return;
    stop_out_of_bounds({access, verb, offset, bytes});
  }
  [[noreturn]] void stop_out_of_bounds(const Doing& doing);

  // Calls f(lane, offset, its access, its record) for an instruction's lanes in order.
  template <class F>
  void each_lane(const Access& by, const char* verb, Offsets offsets, std::uint32_t mask, std::uint32_t bytes,
                 F f);
  template <std::uint32_t bytes>
  void load_as(const Access& access, Offsets offsets, std::uint32_t mask, std::byte* to);
  template <std::uint32_t bytes>
  void store_as(const Access& access, Offsets offsets, std::uint32_t mask, const std::byte* from);

  void note_read(const Access& access, Record record, std::uint32_t offset, std::uint32_t bytes);
  void note_write(const Access& access, const char* verb, Record record, std::uint32_t offset,
                  std::uint32_t bytes, const Stores* stores);
  void note_begin(const Access& issue, Record record, std::uint32_t offset, std::uint32_t bytes);
  void note_end(const Access& completion, Record record, std::uint32_t offset, std::uint32_t bytes);

  // Full checks, after the quick checks failed.
  void read_cell(const Doing& doing, std::uint32_t index, const Record& record);
  void write_cell(const Doing& doing, std::uint32_t index, Record record, const Stores* stores);
  bool is_untouchable(const Doing& doing, std::uint32_t index, std::uint16_t mask);
  void require_written(const Doing& doing, std::uint32_t index, std::uint16_t mask);
  void report(const Doing& doing, FindingKind kind, const std::string& rest);
  void report_conflict(const Doing& doing, std::uint32_t index, std::uint16_t mask, const Conflict& conflict);
  std::string describe(const Record& record, const char* verb) const;

  const Launch& launch_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<Shadow> shadow_;  // null: no race detection
  SharedSync sync_;
};

/// Passes over the 32 banks of one warp-wide access: for each phase of lanes that hardware serves together
/// (32 lanes × 4 bytes, 16 × 8, 8 × 16), the largest number of distinct 4-byte words in one bank. Lanes
/// outside `mask` do not take part; `offsets` holds a byte offset for each lane, a multiple of
/// `bytes_per_lane`, which is a power of two up to 32.
struct Wavefronts {
  int actual = 0;
  int ideal = 0;
};
Wavefronts bank_wavefronts(std::span<const std::uint32_t, 32> offsets, std::uint32_t mask,
                           int bytes_per_lane);

}  // namespace jit::emulator
