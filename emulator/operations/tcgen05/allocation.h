// Allocation of tensor-memory columns (PTX ISA, "tcgen05.alloc, tcgen05.dealloc,
// tcgen05.relinquish_alloc_permit").
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "machine/block.h"
#include "machine/tensor_memory.h"
#include "machine/warp.h"

namespace jit::emulator {

/// Columns of a multiprocessor; its blocks share them.
struct TensorColumns {
  std::array<bool, tensor_columns> taken{};
  /// The block that may allocate: it has allocated and not relinquished its permit. Null: any.
  const Block* permitted = nullptr;

  /// The first of `columns` free contiguous columns; 512: none.
  int room(int columns) const;
};

/// Wait token: wanted columns times 2^32, plus the number of allocations that the peer must have begun.
class TensorAllocation final : public Waitable {
 public:
  explicit TensorAllocation(Block& block);
  ~TensorAllocation() override { give_permit_back(); }
  TensorAllocation(const TensorAllocation&) = delete;
  TensorAllocation& operator=(const TensorAllocation&) = delete;

  /// Allocates the first free columns, which must exist. Returns the first one.
  int take(int columns);
  void give_permit_back();
  /// The size of the allocation that begins at this column; 0: none.
  int size_at(int first) const;
  void give_back(int first);
  /// The first of these columns that the block has not allocated; −1: none.
  int first_foreign(int first, int columns) const;

  bool is_relinquished = false;
  int last_size = 0;          ///< of the last allocation; 0: none
  std::uint32_t begun = 0;    ///< allocations that a warp has begun
  bool is_beginning = false;  ///< a warp waits in one

  bool is_over(std::uint64_t token) const override;
  bool may_end_from_outside() const override { return block_.shared_columns != nullptr; }
  std::string describe(std::uint64_t token) const override;
  /// Reports columns that the block ends with.
  void finish(Warp& warp);

 private:
  Block& block_;
  TensorColumns own_;
  TensorColumns& columns_;                    // the multiprocessor's; own_: not shared
  std::map<int, int> sizes_;                  // by first column
  std::array<bool, tensor_columns> taken_{};  // by this block
};

}  // namespace jit::emulator
