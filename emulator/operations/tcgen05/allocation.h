// Columns of tensor memory: who has them (PTX ISA, "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit").
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "machine/tensor_memory.h"
#include "machine/warp.h"

namespace jit::emulator {

/// Wait token: how many columns are wanted, times 2^32, plus how many allocations the peer must have come to.
class TensorAllocation final : public Waitable {
 public:
  explicit TensorAllocation(Block& block) : block_(block) {}

  /// The first columns that are free, side by side; 512: there are none.
  int room(int columns) const;
  void take(int first, int columns);
  /// How many columns begin there, as alloc gave them; 0: none.
  int size_at(int first) const;
  void give_back(int first);
  /// The first of these columns that nobody has allocated; −1: all are.
  int first_foreign(int first, int columns) const;

  bool is_relinquished = false;
  int last_size = 0;          ///< of the last allocation; 0: none
  std::uint32_t begun = 0;    ///< allocations that a warp has come to
  bool is_beginning = false;  ///< it waits there

  bool is_over(std::uint64_t token) const override;
  std::string describe(std::uint64_t token) const override;
  /// Reports columns that the block ends with.
  void finish(Warp& warp) const;

 private:
  Block& block_;
  std::map<int, int> sizes_;  // by first column
  std::array<bool, tensor_columns> taken_{};
};

}  // namespace jit::emulator
