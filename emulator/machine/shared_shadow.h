// Shadow of shared memory: the race detector's records of each byte. Used only by SharedMemory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "machine/happens_before.h"

namespace jit::emulator {

inline constexpr std::uint32_t cell_bytes = 16;
/// One bit for each byte of a cell.
using ByteMask = std::uint16_t;
inline constexpr ByteMask whole_cell = 0xffff;

/// An access that can still conflict with a later one.
struct Record {
  Agent agent = 0;
  std::uint32_t time = 0;
  std::uint32_t lanes = 0;  ///< lanes that made it: each by itself, or jointly
  std::uint32_t pc = 0;
  ByteMask bytes = 0;  ///< bytes of the cell that it still describes
  std::uint16_t warp : 5 = 0;
  std::uint16_t rank : 4 = 0;  ///< of the warp's block in the cluster
  std::uint16_t together : 1 = 0;
  std::uint16_t async : 1 = 0;
  std::uint16_t strong : 1 = 0;
};
static_assert(sizeof(Record) == 20);

/// Sixteen bytes of shared memory. All zeros: an untouched cell.
struct Cell {
  ByteMask written;    ///< initialized
  ByteMask in_flight;  ///< an asynchronous write was issued and has not completed; its record exists already
  ByteMask mbarrier;
  std::uint16_t has_strong;               ///< whether a record of a write is strong
  std::uint32_t more_writes, more_reads;  ///< index in Shadow's lists; 0: none
  Record write, read;                     ///< first record of each list; without bytes: empty

  /// Whether all bytes are initialized and no other flag is set.
  bool is_ordinary() const {
    std::uint64_t all;
    std::memcpy(&all, this, sizeof(all));
    return all == ordinary();
  }

 private:
  static std::uint64_t ordinary() {
    const ByteMask flags[4] = {whole_cell, 0, 0, 0};
    std::uint64_t all;
    std::memcpy(&all, flags, sizeof(all));
    return all;
  }
};

/// The record's lanes whose order with `access` does not follow from program order.
inline std::uint32_t others(const Record& record, const Access& access) {
  return record.agent == access.agent && !access.together ? record.lanes & ~access.lanes : record.lanes;
}

/// Whether a write by all lanes of the record happens before `access`, ignoring proxies.
inline bool write_precedes(const Record& write, const Access& access) {
  const VectorClock& past = access.knowledge->past;
  if (past.at(write.agent) >= write.time) return true;
  const std::uint32_t lanes = others(write, access);
  return lanes == 0 || (lanes & ~past.lanes_at(write.agent, write.time)) == 0;
}

/// Whether a read happens before `access`. A joint read of several lanes has ended for all when it has for
/// one: no lane continues after an ldmatrix, or a wait for wgmma, before the matrix has been read.
inline bool read_precedes(const Record& read, const Access& access) {
  if (!read.together) return write_precedes(read, access);
  if (read.agent == access.agent && (access.lanes & ~read.lanes) == 0) return true;
  return (read.lanes & access.knowledge->past.lanes_at(read.agent, read.time)) != 0;
}

/// Whether the async proxy sees an earlier generic write.
inline bool is_fenced(const Record& write, const Access& access) {
  const VectorClock& past = access.knowledge->async_past;
  if (past.at(write.agent) >= write.time) return true;
  const std::uint32_t lanes = access.fenced >= write.time ? others(write, access) : write.lanes;
  return lanes == 0 || (lanes & ~past.lanes_at(write.agent, write.time)) == 0;
}

enum class Verdict : std::uint8_t { fine, race, missing_fence };

/// The verdict on an access against an earlier write.
inline Verdict after_write(const Record& write, const Access& access) {
  if (write.strong && access.strong) return Verdict::fine;
  if (!write_precedes(write, access)) return Verdict::race;
  if (access.proxy == Proxy::async && !write.async && !is_fenced(write, access)) {
    return Verdict::missing_fence;
  }
  return Verdict::fine;
}

/// The verdict on a write against an earlier read.
inline Verdict after_read(const Record& read, const Access& access) {
  return (read.strong && access.strong) || read_precedes(read, access) ? Verdict::fine : Verdict::race;
}

struct Conflict {
  Verdict verdict;
  Record with;
  bool with_read;
};

/// Cells of one block.
///
/// A cell has a list of records for writes, and one for reads. Weak writes cover each byte at most once.
/// Reads and strong writes are kept while unordered: at most one per thread and byte; those of lanes at the
/// same time share a record.
class Shadow {
 public:
  explicit Shadow(std::size_t bytes);

  Cell& operator[](std::size_t index) { return cells_.get()[index]; }

  // Fast paths for the common cases: they note the access and return true; false: the functions below have to
  // check.
  bool try_read(Cell& cell, const Access& access, const Record& record);
  bool try_write(Cell& cell, const Access& access, const Record& record);

  /// The first conflict of a read, or write, of `bytes` with the records.
  std::optional<Conflict> check_read(const Cell& cell, const Access& access, ByteMask bytes) const;
  std::optional<Conflict> check_write(const Cell& cell, const Access& access, ByteMask bytes) const;
  void note_read(Cell& cell, const Access& access, const Record& record);
  /// A weak write removes all records of its bytes: whatever is ordered after it is also ordered after them.
  void note_write(Cell& cell, const Access& access, const Record& record);
  /// The record of the last write to the lowest of `bytes`.
  std::optional<Record> last_write(const Cell& cell, ByteMask bytes) const;

 private:
  struct Free {
    void operator()(Cell* cells) const { std::free(cells); }
  };

  // A list is its first record, with bytes unless the list is empty, and the following spilled ones.
  void add(Record& first, std::uint32_t& more, const Record& record);
  void clear(Record& first, std::uint32_t& more);
  /// Removes bytes from all records.
  void remove(Record& first, std::uint32_t& more, ByteMask bytes);
  template <class Precedes>
  void combine(Record& first, std::uint32_t& more, const Access& access, Record record, Precedes precedes);
  void give_back(std::uint32_t& more);

  std::unique_ptr<Cell[], Free> cells_;
  std::vector<std::vector<Record>> spilled_;  // the first stays empty
  std::vector<std::uint32_t> unused_;         // of `spilled_`
};

inline bool Shadow::try_read(Cell& cell, const Access& access, const Record& record) {
  if (!cell.is_ordinary()) return false;
  const auto conflicts = [&](const Record& write) {
    return (write.bytes & record.bytes) != 0 && after_write(write, access) != Verdict::fine;
  };
  if (conflicts(cell.write)) return false;
  if (cell.more_writes != 0) {
    for (const Record& write : spilled_[cell.more_writes]) {
      if (conflicts(write)) return false;
    }
  }
  // A read replaces an earlier one by the same agent, or a single earlier read that it follows; lanes that
  // read at the same time are merged.
  const auto joins = [&](Record& read) {
    if (read.agent != record.agent || read.time != record.time || read.bytes != record.bytes ||
        read.together != record.together || read.strong != record.strong) {
      return false;
    }
    read.lanes |= record.lanes;
    read.pc = record.pc;
    return true;
  };
  Record& first = cell.read;
  if (first.bytes == 0) {
    first = record;
    return true;
  }
  if (joins(first)) return true;
  if (!access.strong && (first.bytes & ~record.bytes) == 0 &&
      (cell.more_reads == 0 || (first.agent == record.agent && first.bytes == record.bytes)) &&
      read_precedes(first, access)) {
    first = record;
    return true;
  }
  if (cell.more_reads != 0) {
    for (Record& read : spilled_[cell.more_reads]) {
      if (joins(read)) return true;
      if (read.agent == record.agent && read.bytes == record.bytes && read.strong == record.strong &&
          read_precedes(read, access)) {
        read = record;
        return true;
      }
    }
  }
  note_read(cell, access, record);
  return true;
}

inline bool Shadow::try_write(Cell& cell, const Access& access, const Record& record) {
  if ((cell.in_flight | cell.mbarrier | cell.has_strong) != 0 || access.strong) return false;
  // Reads.
  const auto was_read = [&](const Record& read) {
    return (read.bytes & record.bytes) != 0 && after_read(read, access) != Verdict::fine;
  };
  if (was_read(cell.read)) return false;
  if (cell.more_reads != 0) {
    for (const Record& read : spilled_[cell.more_reads]) {
      if (was_read(read)) return false;
    }
  }
  // The write record that this one replaces, or all.
  const auto conflicts = [&](const Record& write) { return after_write(write, access) != Verdict::fine; };
  Record* old = cell.write.bytes == record.bytes || cell.write.bytes == 0 ? &cell.write : nullptr;
  if (cell.more_writes != 0) {
    for (Record& write : spilled_[cell.more_writes]) {
      if (write.bytes == record.bytes) old = &write;
      if ((write.bytes & record.bytes) != 0 && conflicts(write)) return false;
    }
  }
  if ((cell.write.bytes & record.bytes) != 0 && conflicts(cell.write)) return false;
  if (record.bytes == whole_cell) {
    if (cell.more_writes != 0) clear(cell.write, cell.more_writes);
    old = &cell.write;
  }
  cell.written = static_cast<ByteMask>(cell.written | record.bytes);
  if (cell.more_reads != 0) {
    remove(cell.read, cell.more_reads, record.bytes);
  } else {
    cell.read.bytes = static_cast<ByteMask>(cell.read.bytes & ~record.bytes);
  }
  if (old) {
    *old = record;
  } else {
    remove(cell.write, cell.more_writes, record.bytes);
    add(cell.write, cell.more_writes, record);
  }
  return true;
}

}  // namespace jit::emulator
