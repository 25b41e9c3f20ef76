// What the race detector remembers of each byte of shared memory. For SharedMemory alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/emulator/happens_before.h"

namespace jit::emulator {

inline constexpr std::uint32_t cell_bytes = 16;
/// One bit for each byte of a cell.
using ByteMask = std::uint16_t;
inline constexpr ByteMask whole_cell = 0xffff;

/// Of a record: two lanes or more did the same and nothing orders them.
inline constexpr std::uint8_t several_lanes = 0xfe;

/// An access that may still matter to a later one.
struct Record {
  Agent agent = 0;
  std::uint32_t time = 0;
  std::uint32_t pc : 24 = 0;
  std::uint32_t lane : 8 = 0;
  ByteMask bytes = 0;  ///< of the cell, those that it still holds for
  std::uint16_t warp : 5 = 0;
  std::uint16_t rank : 4 = 0;  ///< of the warp's block in the cluster
  std::uint16_t async : 1 = 0;
  std::uint16_t strong : 1 = 0;
};
static_assert(sizeof(Record) == 16);

/// Sixteen bytes of shared memory. Zero bytes are a cell that nobody has touched.
struct Cell {
  ByteMask written;    ///< initialised
  ByteMask in_flight;  ///< an asynchronous write was issued and is still to come: its record is among `write`
  ByteMask mbarrier;
  ByteMask unused;
  std::uint32_t more_writes, more_reads;  ///< index in Shadow's lists; 0: none
  Record write, read;                     ///< the first of each; without bytes: none
};

/// Whether an earlier access by `record` lies in the past of `access`, proxies aside.
inline bool precedes(const Record& record, const Access& access) {
  if (record.agent != access.agent) return access.knowledge->past.at(record.agent) >= record.time;
  return record.lane == whole_warp || record.lane == access.lane || record.time < access.converged_time;
}

enum class Verdict : std::uint8_t { fine, race, missing_fence };

/// Of an access against a write that was earlier.
inline Verdict after_write(const Record& write, const Access& access) {
  if (write.strong && access.strong) return Verdict::fine;
  if (!precedes(write, access)) return Verdict::race;
  if (access.proxy == Proxy::async && !write.async &&
      access.knowledge->async_past.at(write.agent) < write.time) {
    return Verdict::missing_fence;
  }
  return Verdict::fine;
}

/// Of a write against a read that was earlier.
inline Verdict after_read(const Record& read, const Access& access) {
  return (read.strong && access.strong) || precedes(read, access) ? Verdict::fine : Verdict::race;
}

struct Conflict {
  Verdict verdict;
  Record with;
  bool with_read;
};

/// The cells of one block.
///
/// A cell has a list of records for writes, and one for reads. Weak writes cover each byte at most once; of
/// reads and of strong writes there is at most one by each agent for each byte, which stands for its lanes.
class Shadow {
 public:
  explicit Shadow(std::size_t bytes);

  Cell& operator[](std::size_t index) { return cells_.get()[index]; }

  /// The first conflict of a read, or write, of `bytes` with what is recorded.
  std::optional<Conflict> check_read(const Cell& cell, const Access& access, ByteMask bytes) const;
  std::optional<Conflict> check_write(const Cell& cell, const Access& access, ByteMask bytes) const;
  void note_read(Cell& cell, const Access& access, const Record& record);
  /// A weak write puts an end to all records of its bytes: whoever is ordered behind it is behind those, too.
  void note_write(Cell& cell, const Access& access, const Record& record);
  /// The record of the write to the lowest of `bytes`.
  std::optional<Record> last_write(const Cell& cell, ByteMask bytes) const;

 private:
  struct Free {
    void operator()(Cell* cells) const { std::free(cells); }
  };
  class List;

  void combine(List list, const Access& access, Record record);
  void replace(List list, const Record& record);
  void remove(List list, ByteMask bytes);

  std::unique_ptr<Cell[], Free> cells_;
  std::vector<std::vector<Record>> spilled_;  // the first stays empty
  std::vector<std::uint32_t> unused_;         // of `spilled_`
};

}  // namespace jit::emulator
