// mma.sync (PTX ISA, "Multiply-and-Accumulate Instruction: mma").
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "operations/arithmetic/numbers.h"
#include "operations/tensor/fragments.h"
#include "operations/tensor/tensor_core.h"

namespace jit::emulator {
namespace {

constexpr int columns = 8;
constexpr int largest_k = 32;
constexpr int elements = fragment_rows * columns;

struct Shape {
  int k = 0;
  Type a{}, b{};
  std::vector<Slot> a_slots, b_slots, c_slots, d_slots;

  std::uint64_t flops() const {
    return std::uint64_t{2} * fragment_rows * columns * static_cast<unsigned>(k);
  }
};

// A product needs the registers of all threads of the warp.
void require_whole_warp(Warp& warp) {
  if (warp.whole()) return;
  warp.report(FindingKind::illegal_instruction, -1,
              fmt::format("all 32 threads of a warp must execute it, only lanes {:#010x} do", warp.exec));
}

// k rows of 8 columns of `Raw` elements, from columns of k elements.
template <class Raw>
void transpose(const std::uint32_t* words, int k, Raw* rows) {
  std::array<Raw, std::size_t{largest_k} * columns> by_column;
  const auto count = static_cast<std::size_t>(k);
  std::memcpy(by_column.data(), words, count * columns * sizeof(Raw));
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t n = 0; n < columns; ++n) rows[i * columns + n] = by_column[n * count + i];
  }
}

void transpose(const std::uint32_t* words, int k, int bytes, void* rows) {
  if (bytes == 1) return transpose(words, k, static_cast<std::uint8_t*>(rows));
  if (bytes == 2) return transpose(words, k, static_cast<std::uint16_t*>(rows));
  transpose(words, k, static_cast<std::uint32_t*>(rows));
}

// Splits each line of words: all low halves, then all high halves.
void part_halves(std::uint32_t* words, int lines, int line_words) {
  std::array<std::uint16_t, largest_k / 2> parted;
  const auto count = static_cast<std::size_t>(line_words);
  for (int line = 0; line < lines; ++line, words += line_words) {
    for (std::size_t i = 0; i < count; ++i) {
      parted[i] = static_cast<std::uint16_t>(words[i]);
      parted[count + i] = static_cast<std::uint16_t>(words[i] >> 16);
    }
    std::memcpy(words, parted.data(), 2 * count * sizeof(parted[0]));
  }
}

// Block scales (ue8m0), one per row of A or column of B: a byte of a register. The selectors {byte-id,
// thread-id} choose the byte and the lane of the row's quad ("Block Scaling for mma.sync").
struct Scales {
  Slot words = 0, byte_id = 0, thread_id = 0;

  // The selector, which must be equal in all lanes.
  int selector(Warp& warp, Slot slot, int most, std::string_view name) const {
    const std::uint32_t* const own = warp.r32(slot);
    for (int lane = 0; lane < warp_lanes; ++lane) {
      const std::uint32_t value = own[lane] & 0xffff;
      if (value <= static_cast<std::uint32_t>(most) && value == (own[0] & 0xffff)) continue;
      warp.report(
          FindingKind::illegal_instruction, lane,
          fmt::format("{} is {}, and must be from 0 to {}, the same in all lanes", name, value, most));
      return 0;
    }
    return static_cast<int>(own[0] & 0xffff);
  }

  // Reads the scales of A's 16 rows: two lanes of a quad hold those of rows g and g + 8.
  void read_a(Warp& warp, std::uint8_t* scales) const {
    const int byte = selector(warp, byte_id, 3, "byte-id-a"),
              pair = selector(warp, thread_id, 1, "thread-id-a");
    for (int row = 0; row < fragment_rows; ++row)
      scales[row] = read(warp, row % 8 * 4 + 2 * pair + row / 8, byte);
  }
  // Reads the scales of B's 8 columns: one lane of a quad holds that of column g.
  void read_b(Warp& warp, std::uint8_t* scales) const {
    const int byte = selector(warp, byte_id, 3, "byte-id-b"),
              of_quad = selector(warp, thread_id, 3, "thread-id-b");
    for (int column = 0; column < columns; ++column) scales[column] = read(warp, column * 4 + of_quad, byte);
  }

 private:
  std::uint8_t read(Warp& warp, int lane, int byte) const {
    return static_cast<std::uint8_t>(warp.r32(words)[lane] >> (8 * byte));
  }
};

struct FloatMma final : Operation {
  Shape shape;
  AccumulatorFormat format = AccumulatorFormat::words;
  AccumulationModel model;
  std::optional<std::pair<Scales, Scales>> scales;  // of A and B, where blocks have some

  Flow execute(Warp& warp) const override {
    require_whole_warp(warp);
    const int bytes = element_bytes(shape.a);
    const int line_words = shape.k * bytes / 4;
    std::array<std::uint32_t, fragment_rows * 8> a_words;
    std::array<std::uint32_t, columns * 8> b_words;
    read_a_fragment(warp, shape.a_slots, a_words.data());
    read_b_fragment(warp, shape.b_slots, b_words.data());
    if (model.through_f16) {
      part_halves(a_words.data(), fragment_rows, line_words);
      part_halves(b_words.data(), columns, line_words);
    }
    std::array<std::uint32_t, columns * 8> b_rows;
    transpose(b_words.data(), shape.k, bytes, b_rows.data());

    std::array<float, fragment_rows * largest_k> a_values;
    std::array<std::int16_t, fragment_rows * largest_k> a_exponents;
    std::array<float, columns * largest_k> b_values;
    std::array<std::int16_t, columns * largest_k> b_exponents;
    const auto k = static_cast<std::size_t>(shape.k);
    decode_elements(shape.a, a_words.data(), fragment_rows * k, a_values.data(), a_exponents.data());
    decode_elements(shape.b, b_rows.data(), columns * k, b_values.data(), b_exponents.data());

    std::array<float, elements> c;
    read_accumulator(warp, shape.c_slots, format, columns, c.data());
    const Factors a{a_values.data(), a_exponents.data()}, b{b_values.data(), b_exponents.data()};
    if (model.through_f16) {
      std::array<float, elements> sum{};
      multiply_add(model, fragment_rows, columns, shape.k, a, b, sum.data());
      for (std::size_t i = 0; i < elements; ++i) c[i] = canonical(c[i] + sum[i]);
      if (format == AccumulatorFormat::pairs) {
        // The sum of two f16 has at most one rounding error in f32, too small to matter here.
        for (float& value : c) value = f32_of_f16(f16_of_f32(value));
      }
    } else if (scales) {
      multiply_scaled(warp, a, b, c.data());
    } else {
      multiply_add(model, fragment_rows, columns, shape.k, a, b, c.data());
    }
    write_accumulator(warp, shape.d_slots, format, columns, c.data());
    warp.count().tensor_flops += shape.flops();
    return Flow::next;
  }

 private:
  // Scales add to the products' exponents before alignment. A scale of 1 changes nothing.
  void multiply_scaled(Warp& warp, const Factors& a, const Factors& b, float* c) const {
    constexpr int bias = 127;
    constexpr std::uint8_t nan = 255;
    std::array<std::uint8_t, fragment_rows> of_rows;
    std::array<std::uint8_t, columns> of_columns;
    scales->first.read_a(warp, of_rows.data());
    scales->second.read_b(warp, of_columns.data());
    const auto is_one = [](std::uint8_t scale) { return scale == bias; };
    if (std::all_of(of_rows.begin(), of_rows.end(), is_one) &&
        std::all_of(of_columns.begin(), of_columns.end(), is_one)) {
      return multiply_add(model, fragment_rows, columns, shape.k, a, b, c);
    }
    for (int row = 0; row < fragment_rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        const std::uint8_t of_row = of_rows[static_cast<std::size_t>(row)],
                           of_column = of_columns[static_cast<std::size_t>(column)];
        float& sum = c[row * columns + column];
        if (of_row == nan || of_column == nan) {
          sum = std::bit_cast<float>(f32_nan);
          continue;
        }
        sum = add_products(model, {a.values + row * shape.k, a.exponents + row * shape.k},
                           {b.values + column, b.exponents + column}, columns, shape.k, sum,
                           of_row + of_column - 2 * bias);
      }
    }
  }
};

struct IntegerMma final : Operation {
  Shape shape;
  bool saturate = false;

  Flow execute(Warp& warp) const override {
    require_whole_warp(warp);
    std::array<std::uint32_t, fragment_rows * 8> a_words;
    std::array<std::uint32_t, columns * 8> b_words, b_rows;
    read_a_fragment(warp, shape.a_slots, a_words.data());
    read_b_fragment(warp, shape.b_slots, b_words.data());
    transpose(b_words.data(), shape.k, 1, b_rows.data());
    const auto k = static_cast<std::size_t>(shape.k);
    std::array<std::int32_t, fragment_rows * largest_k> a;
    std::array<std::int32_t, columns * largest_k> b;
    widen(shape.a, a_words.data(), fragment_rows * k, a.data());
    widen(shape.b, b_rows.data(), columns * k, b.data());

    std::array<std::int32_t, elements> c;
    read_accumulator(warp, shape.c_slots, columns, c.data());
    for (std::size_t row = 0; row < fragment_rows; ++row) {
      std::array<std::int32_t, columns> sums{};
      for (std::size_t i = 0; i < k; ++i) {
        for (std::size_t n = 0; n < columns; ++n) sums[n] += a[row * k + i] * b[i * columns + n];
      }
      for (std::size_t n = 0; n < columns; ++n) {
        std::int64_t sum = std::int64_t{c[row * columns + n]} + sums[n];
        if (saturate) {
          using Limits = std::numeric_limits<std::int32_t>;
          sum = std::clamp<std::int64_t>(sum, Limits::min(), Limits::max());
        }
        c[row * columns + n] = static_cast<std::int32_t>(sum);
      }
    }
    write_accumulator(warp, shape.d_slots, columns, c.data());
    warp.count().tensor_flops += shape.flops();
    return Flow::next;
  }

 private:
  static void widen(Type type, const void* bytes, std::size_t count, std::int32_t* values) {
    const auto* from = static_cast<const std::uint8_t*>(bytes);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = type == Type::s8 ? static_cast<std::int8_t>(from[i]) : from[i];
    }
  }
};

bool is_byte_float(Type type) { return type == Type::e4m3 || type == Type::e5m2; }
bool is_byte_integer(Type type) { return type == Type::s8 || type == Type::u8; }

void check_types(Decoder& decoder, const Shape& shape, Type accumulator, bool f8f6f4) {
  const auto [k, a, b] = std::tuple(shape.k, shape.a, shape.b);
  const bool same_kind =
      a == b || (is_byte_float(a) && is_byte_float(b)) || (is_byte_integer(a) && is_byte_integer(b));
  bool legal = false;
  if (a == Type::f16) {
    legal = (k == 8 || k == 16) && (accumulator == Type::f32 || accumulator == Type::f16);
    decoder.require_arch(k == 8 ? 7 : 8, k == 8 ? 5 : 0);
  } else if (a == Type::bf16) {
    legal = (k == 8 || k == 16) && accumulator == Type::f32;
    decoder.require_arch(8, 0);
  } else if (a == Type::tf32) {
    legal = (k == 4 || k == 8) && accumulator == Type::f32;
    decoder.require_arch(8, 0);
  } else if (is_byte_float(a)) {
    legal = (k == 16 || k == 32) && (accumulator == Type::f32 || accumulator == Type::f16);
    decoder.require_arch(8, 9);
  } else if (is_byte_integer(a)) {
    legal = (k == 16 || k == 32) && accumulator == Type::s32;
    decoder.require_arch(8, 0);
  }
  if (f8f6f4) {
    legal = legal && is_byte_float(a) && k == 32;
    decoder.require_arch(12, 0);
  }
  if (!legal || !same_kind) {
    decoder.fail(
        "the emulator knows m16n8k8 and m16n8k16 of f16 and bf16, m16n8k4 and m16n8k8 of tf32, m16n8k16 and "
        "m16n8k32 of e4m3, e5m2, s8 and u8, with accumulators of f32, f16 (not for bf16 and tf32) or s32");
  }
}

// Takes the k of "m16n8k16".
int take_k(Decoder& decoder) {
  for (const std::string& modifier : decoder.text().modifiers) {
    constexpr std::string_view start = "m16n8k";
    if (!modifier.starts_with(start) || !decoder.take(modifier)) continue;
    int k = 0;
    const auto [end, error] =
        std::from_chars(modifier.data() + start.size(), modifier.data() + modifier.size(), k);
    if (error == std::errc() && end == modifier.data() + modifier.size() && k <= largest_k) return k;
    decoder.fail(fmt::format("shape {} is not known to the emulator", modifier));
  }
  decoder.fail("lacks a shape that the emulator knows: m16n8k4, m16n8k8, m16n8k16 or m16n8k32");
}

// Takes .block_scale.scale_vec::1X and .ue8m0: one scale for the 32 elements of a row that a product sums.
void take_block_scaling(Decoder& decoder) {
  if (decoder.target().major != 12 || decoder.target().suffix == 0)
    decoder.fail("kind::mxf8f6f4 needs .target sm_120a, sm_121a or those of their families");
  decoder.take_one_of({"block_scale"});
  decoder.take_any_of({"scale_vec::1X"});
  decoder.take_one_of({"ue8m0"});
}

// Takes scales and their selectors: a register, and {byte-id, thread-id}.
Scales take_scales(Decoder& decoder, std::size_t operand) {
  const ptx::Operand& selectors = decoder.operand(operand + 1);
  if (selectors.kind != ptx::Operand::Kind::vector || selectors.elements.size() != 2)
    decoder.fail(fmt::format("operand {} must be {{byte-id, thread-id}}", operand + 2));
  return {decoder.source(operand, Type::b32), decoder.source(selectors.elements[0], Type::u16),
          decoder.source(selectors.elements[1], Type::u16)};
}

}  // namespace

std::unique_ptr<const Operation> decode_mma(Decoder& decoder) {
  if (decoder.opcode() != "mma") return nullptr;
  for (const char* modifier : {"sync", "aligned", "row", "col"}) decoder.take_one_of({modifier});
  Shape shape;
  shape.k = take_k(decoder);
  const bool scaled = decoder.take("kind::mxf8f6f4");
  if (scaled) take_block_scaling(decoder);
  const bool f8f6f4 = scaled || decoder.take("kind::f8f6f4");
  const bool saturate = decoder.take("satfinite");
  const Type accumulator = decoder.take_type();
  shape.a = decoder.take_type();
  shape.b = decoder.take_type();
  if (decoder.take_type() != accumulator) decoder.fail("C and D must be of one type");
  check_types(decoder, shape, accumulator, f8f6f4);
  if (saturate && accumulator != Type::s32) decoder.fail(".satfinite goes with integers only");
  if (scaled && accumulator != Type::f32) decoder.fail("products of scaled blocks are summed in f32");

  decoder.expect_count(scaled ? 8 : 4);
  const auto format = accumulator == Type::f16 ? AccumulatorFormat::pairs : AccumulatorFormat::words;
  const auto words = static_cast<std::size_t>(shape.k * element_bytes(shape.a) / 4);
  shape.d_slots = destination_registers(decoder, 0, accumulator_registers(format, columns));
  shape.a_slots = source_registers(decoder, 1, words / 2);
  shape.b_slots = source_registers(decoder, 2, words / 4);
  shape.c_slots = source_registers(decoder, 3, accumulator_registers(format, columns));
  decoder.set_class(InstructionClass::matrix);
  decoder.set_aligned();
  if (accumulator == Type::s32) {
    auto operation = std::make_unique<IntegerMma>();
    operation->shape = std::move(shape);
    operation->saturate = saturate;
    return operation;
  }
  auto operation = std::make_unique<FloatMma>();
  operation->model = accumulation_model(decoder.device(), TensorUnit::mma, shape.a, accumulator, shape.k);
  operation->format = format;
  operation->shape = std::move(shape);
  if (scaled) operation->scales = {take_scales(decoder, 4), take_scales(decoder, 6)};
  return operation;
}

}  // namespace jit::emulator
