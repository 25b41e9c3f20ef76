// tcgen05.ld and tcgen05.st: the mapping between registers and words of tensor memory (PTX ISA, "Data
// Movement Shape").
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "machine/decoder.h"
#include "machine/tensor_memory.h"
#include "machine/warp.h"

namespace jit::emulator {

enum class TensorShape { s32x32b, s16x64b, s16x128b, s16x256b, s16x32bx2 };

/// The words that an instruction moves between the registers of a warp and tensor memory.
class TensorAccessInstruction {
 public:
  TensorShape shape{};
  int repeats = 1;         ///< .xN
  bool is_packed = false;  ///< a register holds the low halves of two neighboring columns
  int second_half = 0;     ///< of .16x32bx2: column distance from lanes 0–15 to lanes 16–31
  std::vector<Slot> registers;
  std::optional<Slot> extreme;  ///< .red: the largest or smallest word that a lane loads
  enum class Reduction { none, min, max } reduction = Reduction::none;
  bool is_float = false, is_absolute = false, keeps_nan = false;

  /// Registers per lane for `shape` and `repeats`.
  static std::size_t register_count(TensorShape shape, int repeats);
  /// Number of columns in each half, from the first one.
  int columns() const;
  /// Calls f(TensorRegion) for the regions that it accesses.
  template <class F>
  void for_each_region(TensorPlace place, F f) const {
    const TensorRegion first{rows(place), place.column, columns()};
    f(first);
    if (second_half != 0) f(TensorRegion{first.rows, place.column + second_half, first.columns});
  }
  /// Calls f(Slot) for each register that a load writes.
  template <class F>
  void for_each_result(F f) const {
    for (const Slot slot : registers) f(slot);
    if (extreme) f(*extreme);
  }

  /// Performs a load for all lanes of the warp.
  void deliver(Warp& warp, TensorPlace place) const;
  /// Register values, by register and lane.
  std::vector<std::uint32_t> take(Warp& warp) const;
  void put(TensorMemory& memory, TensorPlace place, const std::vector<std::uint32_t>& values) const;

 private:
  std::uint8_t rows(TensorPlace place) const;
  /// Position of a lane's register, relative to the address.
  TensorPlace place_of(int lane, int index) const;
  void reduce(Warp& warp) const;
};

}  // namespace jit::emulator
