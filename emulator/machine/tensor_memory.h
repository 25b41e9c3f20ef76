// Tensor memory of a block (PTX ISA, "Tensor Memory"), and the race detector over it: 128 lanes of 512 columns of 32
// bits.
//
// A cell is what instructions touch at least: a column of 16 neighboring lanes. It remembers its last write, the reads
// since, and whether an operation in flight is still to write it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "machine/vector_clock.h"

namespace jit::emulator {

struct Warp;

inline constexpr int tensor_lanes = 128;
inline constexpr int tensor_columns = 512;
inline constexpr int cell_lanes = 16;
inline constexpr int cell_rows = tensor_lanes / cell_lanes;

/// An address: lane in the upper half, column in the lower one.
struct TensorPlace {
  int lane = 0, column = 0;

  static TensorPlace of(std::uint32_t address) {
    return {static_cast<int>(address >> 16), static_cast<int>(address & 0xffff)};
  }
};

/// Cells that an operation touches: one bit of `rows` for each 16 lanes, and columns.
struct TensorRegion {
  std::uint8_t rows = 0;
  int first = 0, columns = 0;
};

/// One access to tensor memory, as the race detector sees it.
struct TensorAccess {
  const Warp& warp;            ///< for the report: who issued it
  std::uint32_t pc = 0;        ///< for the report
  int lane = -1;               ///< for the report
  Agent agent = 0;             ///< operations of one agent follow each other in order
  std::uint32_t time = 0;      ///< the agent's
  const VectorClock& ordered;  ///< what lies in its past by the rules of the launch
  const VectorClock& seen;     ///< and by barriers alone, without fences
};

class TensorMemory {
 public:
  TensorMemory();

  /// Row of a lane, by column.
  std::uint32_t* row(int lane) { return words_.data() + static_cast<std::size_t>(lane) * tensor_columns; }

  // Each reports what is wrong with the access, once for an instruction.
  void note_read(const TensorAccess& access, const TensorRegion& region);
  void note_write(const TensorAccess& access, const TensorRegion& region);
  /// Reports words that are the sums of a product, where a product reads elements or scales.
  void expect_no_sums(const TensorAccess& access, const TensorRegion& region);
  /// A write that takes effect later: until `land` the words are in flight.
  void begin_write(const TensorAccess& access, const TensorRegion& region);
  void land(const TensorRegion& region);
  /// Whether an operation in flight is to write the word.
  bool is_in_flight(int lane, int column) const { return cell(lane / cell_lanes, column).in_flight != 0; }
  /// The columns belong to nobody any more: an access against all that came before.
  void give_back(const TensorAccess& access, const TensorRegion& region);

 private:
  struct Record {
    Agent agent = 0;
    std::uint32_t time = 0;  ///< 0: none
    std::uint32_t pc = 0;
    std::int16_t warp = 0, lane = -1;
    std::uint32_t rank = 0;
  };
  struct Cell {
    Record write, read;
    std::vector<Record> more_reads;
    std::uint16_t in_flight = 0;
    bool is_written = false;
  };
  enum class Verdict : std::uint8_t { fine, missing_fence, race };

  const Cell& cell(int row, int column) const {
    return cells_[static_cast<std::size_t>(row * tensor_columns + column)];
  }
  template <class F>
  void for_each_cell(const TensorRegion& region, F f);
  static Record record_of(const TensorAccess& access);
  static Verdict check(const TensorAccess& access, const Record& record);
  /// The worst of them, with the record that it is about.
  void check_reads(const TensorAccess& access, const Cell& cell, int row, int column, const char* verb);
  void check_write(const TensorAccess& access, const Cell& cell, int row, int column, const char* verb);
  static void report(const TensorAccess& access, Verdict verdict, const Record& other, const char* verb,
                     const char* did, int row, int column);
  void put(const TensorAccess& access, Cell& cell);

  std::vector<std::uint32_t> words_;
  std::vector<Cell> cells_;
};

}  // namespace jit::emulator
