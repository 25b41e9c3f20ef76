// Tensor memory of a block (PTX ISA, "Tensor Memory"), and the race detector over it: 128 lanes of 512 columns of 32
// bits.
//
// A cell is the smallest unit that instructions access: a column of 16 neighboring lanes. It has the last
// write, later reads, and the number of writes in flight.
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

/// An address: its upper half is the lane, its lower half the column.
struct TensorPlace {
  int lane = 0, column = 0;

  static TensorPlace of(std::uint32_t address) {
    return {static_cast<int>(address >> 16), static_cast<int>(address & 0xffff)};
  }
};

/// Cells of an operation: one bit of `rows` for each 16 lanes, and columns.
struct TensorRegion {
  std::uint8_t rows = 0;
  int first = 0, columns = 0;
};

/// One access to tensor memory, as the race detector sees it.
struct TensorAccess {
  const Warp& warp;            ///< for the report: the issuer
  std::uint32_t pc = 0;        ///< for the report
  int lane = -1;               ///< for the report
  Agent agent = 0;             ///< operations of one agent are ordered
  std::uint32_t time = 0;      ///< the agent's
  const VectorClock& ordered;  ///< its past by the rules of LaunchOptions::level
  const VectorClock& seen;     ///< its past by barriers alone, without fences
};

class TensorMemory {
 public:
  TensorMemory();

  /// The words of a lane, by column.
  std::uint32_t* row(int lane) { return words_.data() + static_cast<std::size_t>(lane) * tensor_columns; }

  // Each reports faults of the access, once per instruction.
  void note_read(const TensorAccess& access, const TensorRegion& region);
  void note_write(const TensorAccess& access, const TensorRegion& region);
  /// Reports words that hold sums of a product, where a product reads elements or scales.
  void expect_no_sums(const TensorAccess& access, const TensorRegion& region);
  /// A write that takes effect later: its words are in flight until `land`.
  void begin_write(const TensorAccess& access, const TensorRegion& region);
  void land(const TensorRegion& region);
  /// Whether an operation in flight will write the word.
  bool is_in_flight(int lane, int column) const { return cell(lane / cell_lanes, column).in_flight != 0; }
  /// Frees the columns: conflicts with all earlier accesses that are not ordered before.
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
  /// Reports conflicts with the recorded reads.
  void check_reads(const TensorAccess& access, const Cell& cell, int row, int column, const char* verb);
  void check_write(const TensorAccess& access, const Cell& cell, int row, int column, const char* verb);
  static void report(const TensorAccess& access, Verdict verdict, const Record& other, const char* verb,
                     const char* did, int row, int column);
  void put(const TensorAccess& access, Cell& cell);

  std::vector<std::uint32_t> words_;
  std::vector<Cell> cells_;
};

}  // namespace jit::emulator
