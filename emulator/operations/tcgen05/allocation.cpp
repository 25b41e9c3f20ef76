#include "operations/tcgen05/allocation.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "machine/decoder.h"
#include "operations/tcgen05/state.h"
#include "operations/tcgen05/tensor_warp.h"
#include "operations/tensor/shared_operand.h"

namespace jit::emulator {
namespace {

constexpr int least_columns = 32;

bool is_size(std::uint32_t columns) {
  return std::has_single_bit(columns) && columns >= least_columns && columns <= tensor_columns;
}

[[noreturn]] void stop_size(const Warp& warp, std::uint32_t columns) {
  warp.stop(FindingKind::illegal_instruction, -1,
            fmt::format("{} columns of tensor memory: powers of 2 from 32 to 512 are handed out", columns));
}

// A value that all lanes must give alike.
std::uint32_t same_in_all(Warp& warp, Slot slot, const char* what) {
  const std::uint32_t* const values = warp.r32(slot);
  const std::uint32_t value = values[std::countr_zero(warp.exec)];
  for_each_lane(warp.exec, [&](int lane) {
    if (values[lane] == value) return;
    warp.stop(FindingKind::illegal_instruction, lane,
              fmt::format("{} must be the same in all lanes, it is {:#x} here and {:#x} in lane {}", what,
                          values[lane], value, std::countr_zero(warp.exec)));
  });
  return value;
}

struct Allocate final : Operation {
  int blocks;
  SharedOperand to;
  Slot columns;

  Flow execute(Warp& warp) const override {
    check_cta_group(warp, blocks);
    TensorAllocation& own = tensor_unit(warp.block).allocation;
    const std::uint32_t wanted = same_in_all(warp, columns, "the number of columns");
    if (!is_size(wanted)) stop_size(warp, wanted);
    if (own.is_relinquished) {
      warp.report(FindingKind::illegal_instruction, -1,
                  "the block allocates tensor memory behind tcgen05.relinquish_alloc_permit");
    }
    if (own.last_size != 0 && static_cast<int>(wanted) > own.last_size) {
      warp.report(
          FindingKind::illegal_instruction, -1,
          fmt::format("{} columns after {}: allocations of a block may not grow", wanted, own.last_size));
    }
    if (!own.is_beginning) ++own.begun;
    own.is_beginning = true;
    // A pair's blocks allocate together.
    const TensorAllocation* const peer = blocks == 2 ? &tensor_unit(peer_of(warp)).allocation : nullptr;
    const std::uint64_t token = std::uint64_t{wanted} << 32 | (peer ? own.begun : 0);
    if (!own.is_over(token)) return warp.wait_for(own, token, true);
    own.is_beginning = false;
    own.last_size = static_cast<int>(wanted);
    const int first = own.take(own.last_size);
    const SharedPlace place = to.place(warp, std::countr_zero(warp.exec));
    const auto address = static_cast<std::uint32_t>(first);
    std::memcpy(place.block->shared.write(warp.access_together(), place.offset, sizeof(address)), &address,
                sizeof(address));
    return Flow::next;
  }
};

struct Deallocate final : Operation {
  int blocks;
  Slot address, columns;

  Flow execute(Warp& warp) const override {
    check_cta_group(warp, blocks);
    TensorUnitState& unit = tensor_unit(warp.block);
    const TensorPlace place = TensorPlace::of(same_in_all(warp, address, "the address"));
    const std::uint32_t size = same_in_all(warp, columns, "the number of columns");
    if (!is_size(size)) stop_size(warp, size);
    const int given = place.lane == 0 ? unit.allocation.size_at(place.column) : 0;
    if (given != static_cast<int>(size)) {
      warp.stop(FindingKind::illegal_instruction, -1,
                fmt::format("gives back {} columns from {:#x} on, which tcgen05.alloc has not given out{}",
                            size, same_in_all(warp, address, "the address"),
                            given == 0 ? "" : fmt::format(": it gave {}", given)));
    }
    TensorWarp& own = TensorWarp::of(warp);
    unit.memory.give_back(own.dealloc_access(warp), {0xff, place.column, given});
    unit.allocation.give_back(place.column);
    return Flow::next;
  }
};

struct Relinquish final : Operation {
  int blocks;

  Flow execute(Warp& warp) const override {
    check_cta_group(warp, blocks);
    TensorAllocation& own = tensor_unit(warp.block).allocation;
    own.is_relinquished = true;
    own.give_permit_back();
    return Flow::next;
  }
};

int take_pair_collective(Decoder& decoder) {
  const int blocks = take_cta_group(decoder);
  decoder.take_one_of({"sync"});
  decoder.take_one_of({"aligned"});
  decoder.set_aligned();
  decoder.set_class(InstructionClass::barrier);
  return blocks;
}

}  // namespace

int TensorColumns::room(int columns) const {
  for (int first = 0; first + columns <= tensor_columns; first += least_columns) {
    if (std::none_of(taken.begin() + first, taken.begin() + first + columns, [](bool is) { return is; })) {
      return first;
    }
  }
  return tensor_columns;
}

TensorAllocation::TensorAllocation(Block& block)
    : block_(block), columns_(block.shared_columns ? *block.shared_columns : own_) {}

int TensorAllocation::take(int columns) {
  const int first = columns_.room(columns);
  columns_.permitted = &block_;
  for (auto* const taken : {&taken_, &columns_.taken}) std::fill_n(taken->begin() + first, columns, true);
  sizes_[first] = columns;
  return first;
}

void TensorAllocation::give_permit_back() {
  if (columns_.permitted == &block_) columns_.permitted = nullptr;
}

int TensorAllocation::size_at(int first) const {
  const auto found = sizes_.find(first);
  return found == sizes_.end() ? 0 : found->second;
}

void TensorAllocation::give_back(int first) {
  for (auto* const taken : {&taken_, &columns_.taken})
    std::fill_n(taken->begin() + first, sizes_.at(first), false);
  sizes_.erase(first);
}

int TensorAllocation::first_foreign(int first, int columns) const {
  for (int column = first; column < first + columns; ++column) {
    if (column < 0 || column >= tensor_columns || !taken_[static_cast<std::size_t>(column)]) return column;
  }
  return -1;
}

bool TensorAllocation::is_over(std::uint64_t token) const {
  const auto met = static_cast<std::uint32_t>(token);
  if (met != 0) {
    const Block& peer = *block_.cluster.blocks[block_.rank ^ 1u];
    if (!peer.tensor || peer.tensor->allocation.begun < met) return false;
  }
  if (columns_.permitted != nullptr && columns_.permitted != &block_) return false;
  return columns_.room(static_cast<int>(token >> 32)) < tensor_columns;
}

std::string TensorAllocation::describe(std::uint64_t token) const {
  const Block* const other = columns_.permitted == &block_ ? nullptr : columns_.permitted;
  return fmt::format(
      "{} columns of tensor memory, of which {} are taken{}{}", token >> 32,
      std::count(columns_.taken.begin(), columns_.taken.end(), true),
      static_cast<std::uint32_t>(token) == 0 ? "" : ", together with the other block of the pair",
      other ? fmt::format("; block ({}, {}, {}) of the multiprocessor has not executed "
                          "tcgen05.relinquish_alloc_permit",
                          other->index[0], other->index[1], other->index[2])
            : "");
}

void TensorAllocation::finish(Warp& warp) {
  give_permit_back();
  if (sizes_.empty()) return;
  warp.report(
      FindingKind::unfinished_copy, -1,
      fmt::format("the block exits with {} columns of tensor memory, and no tcgen05.dealloc: the next one "
                  "that wants them waits for ever",
                  std::count(taken_.begin(), taken_.end(), true)));
}

std::unique_ptr<const Operation> decode_tensor_alloc(Decoder& decoder) {
  auto operation = std::make_unique<Allocate>();
  operation->blocks = take_pair_collective(decoder);
  const bool is_generic = decoder.take_any_of({"shared::cta", "shared"}).empty();
  decoder.take_one_of({"b32"});
  decoder.expect_count(2);
  operation->to = shared_operand(decoder, 0, is_generic);
  operation->columns = decoder.source(1, Type::u32);
  return operation;
}

std::unique_ptr<const Operation> decode_tensor_dealloc(Decoder& decoder) {
  auto operation = std::make_unique<Deallocate>();
  operation->blocks = take_pair_collective(decoder);
  decoder.take_one_of({"b32"});
  decoder.expect_count(2);
  operation->address = decoder.source(0, Type::u32);
  operation->columns = decoder.source(1, Type::u32);
  return operation;
}

std::unique_ptr<const Operation> decode_tensor_relinquish(Decoder& decoder) {
  auto operation = std::make_unique<Relinquish>();
  operation->blocks = take_pair_collective(decoder);
  decoder.expect_count(0);
  return operation;
}

}  // namespace jit::emulator
