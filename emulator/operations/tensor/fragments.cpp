#include "operations/tensor/fragments.h"

#include <array>
#include <bit>

#include <fmt/format.h>

#include "operations/arithmetic/numbers.h"
#include "operations/warps/lanes.h"

namespace jit::emulator {
namespace {

template <class Take>
std::vector<Slot> take_registers(Decoder& decoder, std::size_t operand, std::size_t count, Take take) {
  const ptx::Operand& vector = decoder.operand(operand);
  // A vector of one register may be without braces.
  if (vector.kind == ptx::Operand::Kind::name && count == 1) return {take(vector)};
  if (vector.kind != ptx::Operand::Kind::vector || vector.elements.size() != count) {
    decoder.fail(fmt::format("operand {} must be a vector of {} registers", operand + 1, count));
  }
  std::vector<Slot> slots;
  for (const ptx::Operand& element : vector.elements) slots.push_back(take(element));
  return slots;
}

// Register pairs 4j + 2h and 4j + 2h + 1 hold row g + 8h of eight columns, interleaved.
template <class T>
void read_words(Warp& warp, std::span<const Slot> registers, int columns, T* c) {
  for (std::size_t index = 0; index < registers.size(); index += 2) {
    const auto* const left = reinterpret_cast<const T*>(warp.r32(registers[index]));
    const auto* const right = reinterpret_cast<const T*>(warp.r32(registers[index + 1]));
    T* row = c + (index % 4 == 0 ? 0 : 8 * columns) + 8 * (index / 4);
    for (std::size_t g = 0; g < 8; ++g, row += columns) {
      for (std::size_t t = 0; t < 4; ++t) {
        row[2 * t] = left[4 * g + t];
        row[2 * t + 1] = right[4 * g + t];
      }
    }
  }
}

template <class T>
void write_words(Warp& warp, std::span<const Slot> registers, int columns, const T* c) {
  for (std::size_t index = 0; index < registers.size(); index += 2) {
    std::array<std::array<std::uint32_t, warp_lanes>, 2> values;
    const T* row = c + (index % 4 == 0 ? 0 : 8 * columns) + 8 * (index / 4);
    for (std::size_t g = 0; g < 8; ++g, row += columns) {
      for (std::size_t t = 0; t < 4; ++t) {
        values[0][4 * g + t] = std::bit_cast<std::uint32_t>(row[2 * t]);
        values[1][4 * g + t] = std::bit_cast<std::uint32_t>(row[2 * t + 1]);
      }
    }
    for (std::size_t i = 0; i < 2; ++i) {
      copy_lanes(warp.exec, warp.r32(registers[index + i]), values[i].data());
    }
  }
}

// Register 2j + h holds row g + 8h of two adjacent columns.
void read_pairs(Warp& warp, std::span<const Slot> registers, int columns, float* c) {
  for (std::size_t index = 0; index < registers.size(); ++index) {
    const std::uint32_t* const from = warp.r32(registers[index]);
    float* row = c + (index % 2 == 0 ? 0 : 8 * columns) + 8 * (index / 2);
    for (std::size_t g = 0; g < 8; ++g, row += columns) {
      for (std::size_t t = 0; t < 4; ++t) {
        row[2 * t] = f32_of_f16(static_cast<std::uint16_t>(from[4 * g + t]));
        row[2 * t + 1] = f32_of_f16(static_cast<std::uint16_t>(from[4 * g + t] >> 16));
      }
    }
  }
}

void write_pairs(Warp& warp, std::span<const Slot> registers, int columns, const float* c) {
  for (std::size_t index = 0; index < registers.size(); ++index) {
    std::array<std::uint32_t, warp_lanes> values;
    const float* row = c + (index % 2 == 0 ? 0 : 8 * columns) + 8 * (index / 2);
    for (std::size_t g = 0; g < 8; ++g, row += columns) {
      for (std::size_t t = 0; t < 4; ++t) {
        values[4 * g + t] = f16_of_f32(row[2 * t]) | static_cast<std::uint32_t>(f16_of_f32(row[2 * t + 1]))
                                                         << 16;
      }
    }
    copy_lanes(warp.exec, warp.r32(registers[index]), values.data());
  }
}

}  // namespace

std::vector<Slot> source_registers(Decoder& decoder, std::size_t operand, std::size_t count) {
  return take_registers(decoder, operand, count,
                        [&](const ptx::Operand& element) { return decoder.source(element, Type::b32); });
}
std::vector<Slot> destination_registers(Decoder& decoder, std::size_t operand, std::size_t count) {
  return take_registers(decoder, operand, count,
                        [&](const ptx::Operand& element) { return decoder.destination(element, Type::b32); });
}
std::vector<Slot> in_out_registers(Decoder& decoder, std::size_t operand, std::size_t count) {
  return take_registers(decoder, operand, count,
                        [&](const ptx::Operand& element) { return decoder.in_out(element, Type::b32); });
}

void read_a_fragment(Warp& warp, std::span<const Slot> registers, std::uint32_t* words) {
  const std::size_t row_words = 2 * registers.size();
  for (std::size_t r = 0; r < registers.size(); ++r) {
    const std::uint32_t* const from = warp.r32(registers[r]);
    std::uint32_t* const to = words + 8 * (r % 2) * row_words + 4 * (r / 2);
    for (std::size_t g = 0; g < 8; ++g) {
      for (std::size_t t = 0; t < 4; ++t) to[g * row_words + t] = from[4 * g + t];
    }
  }
}

void read_b_fragment(Warp& warp, std::span<const Slot> registers, std::uint32_t* words) {
  const std::size_t column_words = 4 * registers.size();
  for (std::size_t r = 0; r < registers.size(); ++r) {
    const std::uint32_t* const from = warp.r32(registers[r]);
    for (std::size_t g = 0; g < 8; ++g) {
      for (std::size_t t = 0; t < 4; ++t) words[g * column_words + 4 * r + t] = from[4 * g + t];
    }
  }
}

std::size_t accumulator_registers(AccumulatorFormat format, int columns) {
  return static_cast<std::size_t>(columns) / (format == AccumulatorFormat::words ? 2 : 4);
}

void read_accumulator(Warp& warp, std::span<const Slot> registers, AccumulatorFormat format, int columns,
                      float* c) {
  if (format == AccumulatorFormat::words) {
    read_words(warp, registers, columns, c);
  } else {
    read_pairs(warp, registers, columns, c);
  }
}

void write_accumulator(Warp& warp, std::span<const Slot> registers, AccumulatorFormat format, int columns,
                       const float* c) {
  if (format == AccumulatorFormat::words) {
    write_words(warp, registers, columns, c);
  } else {
    write_pairs(warp, registers, columns, c);
  }
}

void read_accumulator(Warp& warp, std::span<const Slot> registers, int columns, std::int32_t* c) {
  read_words(warp, registers, columns, c);
}

void write_accumulator(Warp& warp, std::span<const Slot> registers, int columns, const std::int32_t* c) {
  write_words(warp, registers, columns, c);
}

}  // namespace jit::emulator
