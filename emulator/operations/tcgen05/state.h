// tcgen05 state of a block (PTX ISA, "TensorCore 5th Generation Family Instructions").
#pragma once

#include "machine/tensor_memory.h"
#include "operations/tcgen05/allocation.h"
#include "operations/tcgen05/pipe.h"

namespace jit::emulator {

struct TensorUnitState {
  explicit TensorUnitState(Block& block) : allocation(block), pipe(block) {}

  TensorMemory memory;
  TensorAllocation allocation;
  TensorPipe pipe;

  /// Called when the last lane of a warp exits: reports what the block leaves behind.
  void finish(Warp& warp);
};

/// The tensor unit of a block, created at the first use.
TensorUnitState& tensor_unit(Block& block);

/// Throws unless the target has tcgen05.
void require_tcgen05(Decoder& decoder);
/// Takes .cta_group::1 or ::2: the number of blocks.
int take_cta_group(Decoder& decoder);
/// Records the cta_group of an executed instruction; all of a kernel must be equal.
void check_cta_group(Warp& warp, int blocks);
/// The other block of a pair, whose rank differs in the last bit. Stops the launch without one.
Block& peer_of(Warp& warp);

// Parts of decode_tcgen05.
std::unique_ptr<const Operation> decode_tensor_alloc(Decoder& decoder);
std::unique_ptr<const Operation> decode_tensor_dealloc(Decoder& decoder);
std::unique_ptr<const Operation> decode_tensor_relinquish(Decoder& decoder);
std::unique_ptr<const Operation> decode_tensor_load(Decoder& decoder);
std::unique_ptr<const Operation> decode_tensor_store(Decoder& decoder);
std::unique_ptr<const Operation> decode_tensor_wait(Decoder& decoder);
std::unique_ptr<const Operation> decode_tensor_fence(Decoder& decoder);
std::unique_ptr<const Operation> decode_tensor_mma(Decoder& decoder);
std::unique_ptr<const Operation> decode_tensor_copy(Decoder& decoder);
std::unique_ptr<const Operation> decode_tensor_commit(Decoder& decoder);

}  // namespace jit::emulator
