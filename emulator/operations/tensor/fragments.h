// Matrix fragments: layouts of matrices in a warp's registers (PTX ISA, "Matrix Fragments for mma.m16n8k16
// with floating point type" and its neighbors; "Register Fragments" of wgmma). With g = lane / 4 and t = lane
// % 4, all shapes with 16 rows follow one rule for each operand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "machine/decoder.h"
#include "machine/warp.h"

namespace jit::emulator {

inline constexpr int fragment_rows = 16;

/// The 32-bit registers of a vector operand {a, b, …}; throws unless their number is `count`.
std::vector<Slot> source_registers(Decoder& decoder, std::size_t operand, std::size_t count);
std::vector<Slot> destination_registers(Decoder& decoder, std::size_t operand, std::size_t count);
std::vector<Slot> in_out_registers(Decoder& decoder, std::size_t operand, std::size_t count);

/// A, 16 rows: register r holds word t + 4 (r / 2) of row g + 8 (r % 2). Fills `words`, row-major with 2 ·
/// registers.size() words per row; a word holds 1, 2 or 4 consecutive elements along k.
void read_a_fragment(Warp& warp, std::span<const Slot> registers, std::uint32_t* words);
/// B, 8 columns: register r holds word t + 4 r of column g. Fills `words`, column by column.
void read_b_fragment(Warp& warp, std::span<const Slot> registers, std::uint32_t* words);

/// Register layout of an accumulator.
enum class AccumulatorFormat {
  words,  ///< f32 or s32: register 4j + 2h + i holds row g + 8h, column 8j + 2t + i
  pairs,  ///< f16, two in a register: register 2j + h holds row g + 8h, columns 8j + 2t and the next
};
/// Registers that `columns` columns take.
std::size_t accumulator_registers(AccumulatorFormat format, int columns);
/// Fills row-major c with `columns` columns; f16 becomes f32.
void read_accumulator(Warp& warp, std::span<const Slot> registers, AccumulatorFormat format, int columns,
                      float* c);
/// Writes the lanes `warp.exec`; values of `pairs` must be f16's.
void write_accumulator(Warp& warp, std::span<const Slot> registers, AccumulatorFormat format, int columns,
                       const float* c);
/// Reads an accumulator of `words` of s32.
void read_accumulator(Warp& warp, std::span<const Slot> registers, int columns, std::int32_t* c);
void write_accumulator(Warp& warp, std::span<const Slot> registers, int columns, const std::int32_t* c);

}  // namespace jit::emulator
