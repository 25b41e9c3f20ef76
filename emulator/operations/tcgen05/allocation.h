// Columns of tensor memory: who has them (PTX ISA, "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit").
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "machine/block.h"
#include "machine/tensor_memory.h"
#include "machine/warp.h"

namespace jit::emulator {

/// The columns of a multiprocessor, which its blocks share.
struct TensorColumns {
  std::array<bool, tensor_columns> taken{};
  /// Who may allocate: the block that has done so and has not relinquished its permit. 0: anyone.
  const Block* permitted = nullptr;

  /// The first columns that are free, side by side; 512: there are none.
  int room(int columns) const;
};

/// Wait token: how many columns are wanted, times 2^32, plus how many allocations the peer must have come to.
class TensorAllocation final : public Waitable {
 public:
  explicit TensorAllocation(Block& block);
  ~TensorAllocation() override { give_permit_back(); }
  TensorAllocation(const TensorAllocation&) = delete;
  TensorAllocation& operator=(const TensorAllocation&) = delete;

  /// Takes the first columns that are free; there must be some. Returns the first of them.
  int take(int columns);
  void give_permit_back();
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
  bool may_end_from_outside() const override { return block_.shared_columns != nullptr; }
  std::string describe(std::uint64_t token) const override;
  /// Reports columns that the block ends with.
  void finish(Warp& warp);

 private:
  Block& block_;
  TensorColumns own_;
  TensorColumns& columns_;                    // of the multiprocessor; own_: of nobody else
  std::map<int, int> sizes_;                  // by first column
  std::array<bool, tensor_columns> taken_{};  // by this block
};

}  // namespace jit::emulator
