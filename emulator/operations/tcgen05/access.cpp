#include "operations/tcgen05/access.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "operations/tcgen05/state.h"
#include "operations/tcgen05/tensor_warp.h"
#include "operations/tensor/fragments.h"

namespace jit::emulator {
namespace {

constexpr int warp_lane_count = 32;

struct ShapeRow {
  std::string_view name;
  TensorShape shape;
  int registers;  // of .x1
  int columns;    // of .x1
  int most_repeats;
  bool whole;  // 32 lanes of tensor memory; else 16
};
constexpr ShapeRow shapes[] = {
    {"32x32b", TensorShape::s32x32b, 1, 1, 128, true},
    {"16x64b", TensorShape::s16x64b, 1, 2, 128, false},
    {"16x128b", TensorShape::s16x128b, 2, 4, 64, false},
    {"16x256b", TensorShape::s16x256b, 4, 8, 32, false},
    {"16x32bx2", TensorShape::s16x32bx2, 1, 1, 128, false},
};
const ShapeRow& row_of(TensorShape shape) { return shapes[static_cast<std::size_t>(shape)]; }

// The address, with the instruction's and the warp's restrictions checked.
TensorPlace check_place(Warp& warp, const Decoder::Address& address, const TensorAccessInstruction& moved) {
  const int first = std::countr_zero(warp.exec);
  const auto value_of = [&](int lane) {
    return static_cast<std::uint32_t>(
        (address.narrow ? warp.r32(address.base)[lane] : warp.r64(address.base)[lane]) +
        static_cast<std::uint64_t>(address.offset));
  };
  const std::uint32_t value = value_of(first);
  for_each_lane(warp.exec, [&](int lane) {
    if (value_of(lane) == value) return;
    warp.stop(FindingKind::illegal_instruction, lane,
              fmt::format("the address must be the same in all lanes, it is {:#x} here and {:#x} in lane {}",
                          value_of(lane), value, first));
  });
  const TensorPlace place = TensorPlace::of(value);
  const int own = warp.id % 4 * warp_lane_count;
  const bool is_whole = row_of(moved.shape).whole;
  if (place.lane != own && (is_whole || place.lane != own + cell_lanes)) {
    warp.stop(
        FindingKind::illegal_instruction, -1,
        fmt::format("the address begins at lane {} of tensor memory, and warp {} of the block reaches lanes "
                    "{} to {}{}",
                    place.lane, warp.id, own, own + warp_lane_count - 1,
                    is_whole ? "" : ", 16 of them from either half on"));
  }
  TensorAllocation& allocation = tensor_unit(warp.block).allocation;
  for (const int begin : {place.column, place.column + moved.second_half}) {
    const int foreign = allocation.first_foreign(begin, moved.columns());
    if (foreign < 0) continue;
    warp.stop(FindingKind::out_of_bounds, -1,
              fmt::format("accesses columns {} to {} of tensor memory, and column {} is {}", begin,
                          begin + moved.columns() - 1, foreign,
                          foreign < tensor_columns ? "not allocated" : "behind the last one"));
  }
  return place;
}

struct LoadTensorMemory final : Operation {
  TensorAccessInstruction moved;
  Decoder::Address address;

  Flow execute(Warp& warp) const override {
    TensorWarp::of(warp).issue_load(warp, moved, check_place(warp, address, moved));
    return Flow::next;
  }
};

struct StoreTensorMemory final : Operation {
  TensorAccessInstruction moved;
  Decoder::Address address;

  Flow execute(Warp& warp) const override {
    TensorWarp::of(warp).issue_store(warp, moved, check_place(warp, address, moved));
    return Flow::next;
  }
};

struct WaitForTensorMemory final : Operation {
  bool is_of_loads;

  Flow execute(Warp& warp) const override {
    TensorWarp& own = TensorWarp::of(warp);
    is_of_loads ? own.wait_for_loads(warp) : own.wait_for_stores(warp);
    return Flow::next;
  }
};

struct FenceTensorMemory final : Operation {
  bool is_before;

  Flow execute(Warp& warp) const override {
    TensorWarp& own = TensorWarp::of(warp);
    is_before ? own.fence_before(warp) : own.fence_after(warp);
    return Flow::next;
  }
};

void take_collective(Decoder& decoder) {
  decoder.take_one_of({"sync"});
  decoder.take_one_of({"aligned"});
  decoder.set_aligned();
}

// Takes the shape and .xN.
TensorAccessInstruction take_shape(Decoder& decoder) {
  TensorAccessInstruction moved;
  const std::string_view name = decoder.take_one_of({"32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"});
  moved.shape = std::find_if(std::begin(shapes), std::end(shapes), [&](const ShapeRow& row) {
                  return row.name == name;
                })->shape;
  const std::string_view times = decoder.take_one_of({"x1", "x2", "x4", "x8", "x16", "x32", "x64", "x128"});
  std::from_chars(times.data() + 1, times.data() + times.size(), moved.repeats);
  if (moved.repeats > row_of(moved.shape).most_repeats) {
    decoder.fail(fmt::format(".{} goes with .x{} at most", name, row_of(moved.shape).most_repeats));
  }
  return moved;
}

std::size_t count_of(const TensorAccessInstruction& moved) {
  return TensorAccessInstruction::register_count(moved.shape, moved.repeats);
}

// The registers of a vector; a single one may be without braces.
std::vector<Slot> registers_of(Decoder& decoder, std::size_t index, std::size_t count, bool is_written) {
  const ptx::Operand& operand = decoder.operand(index);
  if (operand.kind != ptx::Operand::Kind::vector && count == 1) {
    return {is_written ? decoder.destination(operand, Type::b32) : decoder.source(operand, Type::b32)};
  }
  return is_written ? destination_registers(decoder, index, count) : source_registers(decoder, index, count);
}

int take_second_half(Decoder& decoder, std::size_t index) {
  const std::int64_t offset = decoder.immediate(index);
  if (offset < 0 || offset >= tensor_columns) decoder.fail("the split offset must be a column");
  return static_cast<int>(offset);
}

void take_reduction(Decoder& decoder, TensorAccessInstruction& moved) {
  const TargetArch target = decoder.target();
  if (target.major == 10 && target.minor == 0)
    decoder.fail(".red needs .target sm_103a or a later one of its family");
  using Reduction = TensorAccessInstruction::Reduction;
  moved.reduction = decoder.take_one_of({"min", "max"}) == "min" ? Reduction::min : Reduction::max;
  moved.is_absolute = decoder.take("abs");
  moved.keeps_nan = decoder.take("NaN");
  const std::string_view type = decoder.take_one_of({"f32", "u32", "s32"});
  if (type == "u32") decoder.fail("the emulator knows .red of .f32 and .s32");
  moved.is_float = type == "f32";
  if (moved.repeats < 2) decoder.fail(".red goes with .x2 and more");
  if (moved.shape != TensorShape::s32x32b && moved.shape != TensorShape::s16x32bx2) {
    decoder.fail(".red goes with .32x32b and .16x32bx2");
  }
}

}  // namespace

std::size_t TensorAccessInstruction::register_count(TensorShape shape, int repeats) {
  return static_cast<std::size_t>(row_of(shape).registers * repeats);
}

int TensorAccessInstruction::columns() const { return row_of(shape).columns * repeats * (is_packed ? 2 : 1); }

std::uint8_t TensorAccessInstruction::rows(TensorPlace place) const {
  return static_cast<std::uint8_t>((row_of(shape).whole ? 3 : 1) << place.lane / cell_lanes);
}

TensorPlace TensorAccessInstruction::place_of(int lane, int i) const {
  switch (shape) {
    case TensorShape::s32x32b:
      return {lane, i};
    case TensorShape::s16x64b:
      return {lane / 4 + 8 * (lane & 1), 2 * i + (lane >> 1 & 1)};
    case TensorShape::s16x128b:
      return {lane / 4 + 8 * (i & 1), i / 2 * 4 + lane % 4};
    case TensorShape::s16x256b:
      return {lane / 4 + 8 * (i >> 1 & 1), i / 4 * 8 + 2 * (lane % 4) + (i & 1)};
    case TensorShape::s16x32bx2:
      break;
  }
  return {lane % 16, i + (lane < 16 ? 0 : second_half)};
}

void TensorAccessInstruction::deliver(Warp& warp, TensorPlace place) const {
  TensorMemory& memory = tensor_unit(warp.block).memory;
  const auto word = [&](int lane, int column) {
    return memory.is_in_flight(lane, column) ? ~0u : memory.row(lane)[column];
  };
  for (std::size_t i = 0; i < registers.size(); ++i) {
    std::uint32_t* const to = warp.r32(registers[i]);
    for (int lane = 0; lane < warp_lane_count; ++lane) {
      const TensorPlace at = place_of(lane, static_cast<int>(i));
      const int row = place.lane + at.lane;
      if (is_packed) {
        const int column = place.column + 2 * at.column;
        to[lane] = (word(row, column) & 0xffff) | word(row, column + 1) << 16;
      } else {
        to[lane] = word(row, place.column + at.column);
      }
    }
  }
  if (extreme) reduce(warp);
}

void TensorAccessInstruction::reduce(Warp& warp) const {
  const bool is_max = reduction == Reduction::max;
  for (int lane = 0; lane < warp_lane_count; ++lane) {
    std::uint32_t found = warp.r32(registers.front())[lane];
    if (is_float && is_absolute) found &= 0x7fffffffu;
    for (const Slot slot : registers) {
      std::uint32_t next = warp.r32(slot)[lane];
      if (!is_float) {
        const bool is_larger = static_cast<std::int32_t>(next) > static_cast<std::int32_t>(found);
        if (is_larger == is_max) found = next;
        continue;
      }
      if (is_absolute) next &= 0x7fffffffu;
      const auto x = std::bit_cast<float>(found), y = std::bit_cast<float>(next);
      if (keeps_nan && (std::isnan(x) || std::isnan(y))) {
        found = 0x7fffffffu;
      } else if (std::isnan(x) || (is_max ? y > x : y < x)) {
        found = next;
      }
    }
    warp.r32(*extreme)[lane] = found;
  }
}

std::vector<std::uint32_t> TensorAccessInstruction::take(Warp& warp) const {
  std::vector<std::uint32_t> values;
  values.reserve(registers.size() * warp_lane_count);
  for (const Slot slot : registers)
    values.insert(values.end(), warp.r32(slot), warp.r32(slot) + warp_lane_count);
  return values;
}

void TensorAccessInstruction::put(TensorMemory& memory, TensorPlace place,
                                  const std::vector<std::uint32_t>& values) const {
  for (std::size_t i = 0; i < registers.size(); ++i) {
    for (int lane = 0; lane < warp_lane_count; ++lane) {
      const TensorPlace at = place_of(lane, static_cast<int>(i));
      const std::uint32_t value = values[i * warp_lane_count + static_cast<std::size_t>(lane)];
      std::uint32_t* const row = memory.row(place.lane + at.lane);
      if (is_packed) {
        row[place.column + 2 * at.column] = value & 0xffff;
        row[place.column + 2 * at.column + 1] = value >> 16;
      } else {
        row[place.column + at.column] = value;
      }
    }
  }
}

std::unique_ptr<const Operation> decode_tensor_load(Decoder& decoder) {
  auto operation = std::make_unique<LoadTensorMemory>();
  decoder.set_class(InstructionClass::matrix_load);
  take_collective(decoder);
  const bool reduces = decoder.take("red");
  operation->moved = take_shape(decoder);
  TensorAccessInstruction& moved = operation->moved;
  if (reduces) {
    take_reduction(decoder, moved);
  } else {
    moved.is_packed = decoder.take("pack::16b");
    decoder.take_one_of({"b32"});
  }
  const bool is_split = moved.shape == TensorShape::s16x32bx2;
  const std::size_t results = reduces ? 2 : 1;
  decoder.expect_count(results + (is_split ? 2 : 1));
  moved.registers = registers_of(decoder, 0, count_of(moved), true);
  if (reduces) moved.extreme = decoder.destination(1, Type::b32);
  operation->address = decoder.address(results);
  if (is_split) moved.second_half = take_second_half(decoder, results + 1);
  return operation;
}

std::unique_ptr<const Operation> decode_tensor_store(Decoder& decoder) {
  auto operation = std::make_unique<StoreTensorMemory>();
  decoder.set_class(InstructionClass::matrix_load);
  take_collective(decoder);
  operation->moved = take_shape(decoder);
  TensorAccessInstruction& moved = operation->moved;
  moved.is_packed = decoder.take("unpack::16b");
  decoder.take_one_of({"b32"});
  const bool is_split = moved.shape == TensorShape::s16x32bx2;
  decoder.expect_count(is_split ? 3 : 2);
  operation->address = decoder.address(0);
  if (is_split) moved.second_half = take_second_half(decoder, 1);
  moved.registers = registers_of(decoder, is_split ? 2 : 1, count_of(moved), false);
  return operation;
}

std::unique_ptr<const Operation> decode_tensor_wait(Decoder& decoder) {
  auto operation = std::make_unique<WaitForTensorMemory>();
  operation->is_of_loads = decoder.text().modifiers.front() == "wait::ld";
  decoder.set_class(InstructionClass::barrier);
  take_collective(decoder);
  decoder.expect_count(0);
  return operation;
}

std::unique_ptr<const Operation> decode_tensor_fence(Decoder& decoder) {
  auto operation = std::make_unique<FenceTensorMemory>();
  operation->is_before = decoder.text().modifiers.front() == "fence::before_thread_sync";
  decoder.set_class(InstructionClass::barrier);
  decoder.expect_count(0);
  return operation;
}

}  // namespace jit::emulator
