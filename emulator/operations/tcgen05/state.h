// The state of tcgen05 instructions of a block (PTX ISA, "TensorCore 5th Generation Family Instructions").
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

/// The tensor unit of a block, made at the first use.
TensorUnitState& tensor_unit(Block& block);

/// Throws unless the target has tcgen05.
void require_tcgen05(Decoder& decoder);
/// Takes .cta_group::1 or ::2: how many blocks the instruction is of.
int take_cta_group(Decoder& decoder);
/// Notes that a block executes an instruction of so many: all of a kernel must be of the same.
void check_cta_group(Warp& warp, int blocks);
/// The other block of a pair: the rank differs in the last bit. Stops the launch where there is none.
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
