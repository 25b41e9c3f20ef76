// ldmatrix, stmatrix and movmatrix (PTX ISA, "Warp-Level Matrix Instructions"): 8 × 8 matrices of 16-bit
// elements between rows in shared memory and fragments in registers. In a fragment, lane 4 r + c holds
// elements 2 c and 2 c + 1 of row r.
#include <array>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "machine/address_space.h"
#include "machine/decoder.h"
#include "machine/lane_memory.h"
#include "machine/memory_access.h"
#include "operations/tensor/transpose.h"

namespace jit::emulator {
namespace {

constexpr int matrix_rows = 8;
constexpr std::uint32_t row_bytes = 16;

// A matrix in memory order.
using Matrix = std::array<std::array<std::uint16_t, 8>, matrix_rows>;

void to_fragment(const Matrix& matrix, bool transposed, std::uint32_t* fragment) {
  if (transposed) {
    transpose_8x8(matrix.data(), fragment);
  } else {
    std::memcpy(fragment, matrix.data(), sizeof(Matrix));
  }
}

void from_fragment(const std::uint32_t* fragment, bool transposed, Matrix& matrix) {
  if (transposed) {
    transpose_8x8(fragment, matrix.data());
  } else {
    std::memcpy(matrix.data(), fragment, sizeof(Matrix));
  }
}

// Row addresses: lane 8 m + r holds that of row r of matrix m.
struct Rows {
  Decoder::Address address{};
  bool is_generic = false;
  int matrices = 1;

  std::uint32_t lanes() const { return matrices == 4 ? all_lanes : (1u << matrices * matrix_rows) - 1; }

  // Calls f(block, offsets, lanes), as for_each_block.
  template <class F>
  void each(Warp& warp, F f) const {
    LaneAddresses addresses = lane_addresses(warp, address);
    if (const std::uint32_t missing = lanes() & ~warp.exec; missing != 0) {
      warp.stop(FindingKind::illegal_instruction, std::countr_zero(missing),
                "the lane is to give the address of a row, and does not execute the instruction");
    }
    if (is_generic) {
      const std::uint32_t outside = lanes() & ~split_generic(warp, lanes(), addresses).shared;
      if (outside != 0) {
        warp.stop(FindingKind::out_of_bounds, std::countr_zero(outside),
                  "the generic address of the row is not in shared memory");
      }
    }
    for_each_block(warp, lanes(), addresses, row_bytes,
                   [&](Block& block, const SharedOffsets& offsets, std::uint32_t here) {
                     const Wavefronts wavefronts = bank_wavefronts(offsets, here, row_bytes);
                     warp.count().bank_wavefronts += static_cast<std::uint64_t>(wavefronts.actual);
                     warp.count().ideal_wavefronts += static_cast<std::uint64_t>(wavefronts.ideal);
                     f(block, offsets, here);
                   });
  }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(matrices * matrix_rows) * row_bytes; }
};

struct LoadMatrix final : Operation {
  Rows rows;
  bool transposed = false;
  std::array<Slot, 4> to = {};

  Flow execute(Warp& warp) const override {
    std::array<Matrix, 4> matrices;
    rows.each(warp, [&](Block& block, const SharedOffsets& offsets, std::uint32_t lanes) {
      block.shared.load(warp.access_together(), offsets, lanes, row_bytes,
                        reinterpret_cast<std::byte*>(matrices.data()));
    });
    warp.count().shared_read_bytes += rows.bytes();
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows.matrices); ++i) {
      std::array<std::uint32_t, warp_lanes> fragment;
      std::uint32_t* const target = warp.r32(to[i]);
      to_fragment(matrices[i], transposed, warp.whole() ? target : fragment.data());
      if (warp.whole()) continue;
      for_each_lane(warp.exec, [&](int lane) { target[lane] = fragment[static_cast<std::size_t>(lane)]; });
    }
    return Flow::next;
  }
};

// 16 × 16 matrices of bytes, transposed: each 16-byte row covers a row of two of the matrices above. Lane 4 g
// + t gets, in register h, the bytes of column g + 8 h in rows 4 t … 4 t + 3.
struct LoadBytesTransposed final : Operation {
  Rows rows;
  std::array<Slot, 4> to = {};

  Flow execute(Warp& warp) const override {
    std::array<std::array<std::uint8_t, row_bytes>, warp_lanes> bytes;
    rows.each(warp, [&](Block& block, const SharedOffsets& offsets, std::uint32_t lanes) {
      block.shared.load(warp.access_together(), offsets, lanes, row_bytes,
                        reinterpret_cast<std::byte*>(bytes.data()));
    });
    warp.count().shared_read_bytes += rows.bytes();
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows.matrices); ++i) {
      std::uint32_t* const target = warp.r32(to[i]);
      for_each_lane(warp.exec, [&](int lane) {
        const auto column = static_cast<std::size_t>(lane / 4) + 8 * (i % 2);
        const std::size_t row = static_cast<std::size_t>(lane % 4) * 4 + 16 * (i / 2);
        std::uint32_t word = 0;
        for (std::size_t j = 4; j-- > 0;) word = word << 8 | bytes[row + j][column];
        target[lane] = word;
      });
    }
    return Flow::next;
  }
};

// Two lanes that store to the same row must store equal values.
void check_rows_differ(Warp& warp, const SharedOffsets& offsets, std::uint32_t lanes, const std::byte* rows) {
  std::uint64_t seen = 0;
  bool may_repeat = false;
  for_each_lane(lanes, [&](int lane) {
    const std::uint64_t bit = std::uint64_t{1} << (offsets[static_cast<std::size_t>(lane)] / row_bytes % 64);
    may_repeat |= (seen & bit) != 0;
    seen |= bit;
  });
  if (!may_repeat) return;
  for_each_lane(lanes, [&](int lane) {
    const auto row = static_cast<std::size_t>(lane);
    for_each_lane(lanes & ((1u << lane) - 1), [&](int earlier) {
      const auto other = static_cast<std::size_t>(earlier);
      if (offsets[row] != offsets[other] ||
          std::memcmp(rows + row * row_bytes, rows + other * row_bytes, row_bytes) == 0) {
        return;
      }
      warp.report(FindingKind::data_race, lane,
                  fmt::format("the rows of lanes {} and {} lie both at byte {} of shared memory and differ; "
                              "which one stays is undefined",
                              earlier, lane, offsets[row]));
    });
  });
}

struct StoreMatrix final : Operation {
  Rows rows;
  bool transposed = false;
  std::array<Slot, 4> from = {};

  Flow execute(Warp& warp) const override {
    std::array<Matrix, 4> matrices;
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows.matrices); ++i) {
      from_fragment(warp.r32(from[i]), transposed, matrices[i]);
    }
    rows.each(warp, [&](Block& block, const SharedOffsets& offsets, std::uint32_t lanes) {
      const auto* const from = reinterpret_cast<const std::byte*>(matrices.data());
      if (warp.launch().options.check_races) check_rows_differ(warp, offsets, lanes, from);
      block.shared.store(warp.access_together(), offsets, lanes, row_bytes, from);
    });
    warp.count().shared_write_bytes += rows.bytes();
    return Flow::next;
  }
};

struct MoveMatrix final : Operation {
  Slot to = 0, from = 0;

  Flow execute(Warp& warp) const override {
    Matrix matrix;
    from_fragment(warp.r32(from), false, matrix);
    std::array<std::uint32_t, warp_lanes> fragment;
    to_fragment(matrix, true, fragment.data());
    std::uint32_t* const target = warp.r32(to);
    for_each_lane(warp.exec, [&](int lane) { target[lane] = fragment[static_cast<std::size_t>(lane)]; });
    return Flow::next;
  }
};

// Takes .m8n8.x{1,2,4}{.trans}{.shared}.b16.
Rows take_rows(Decoder& decoder, bool& transposed, std::size_t address_index) {
  decoder.take_one_of({"sync"});
  decoder.take_one_of({"aligned"});
  decoder.set_aligned();
  if (!decoder.take("m8n8") || decoder.has("b8")) {
    decoder.fail(
        "matrices other than .m8n8 of .b16, and of ldmatrix .m16n16 of .b8, are not known to the emulator");
  }
  Rows rows;
  rows.matrices = decoder.take_one_of({"x1", "x2", "x4"})[1] - '0';
  transposed = decoder.take("trans");
  rows.is_generic = decoder.take_any_of({"shared", "shared::cta"}).empty();
  decoder.take_one_of({"b16"});
  decoder.expect_count(2);
  rows.address = decoder.address(address_index);
  if (rows.address.narrow) rows.is_generic = false;
  return rows;
}

const ptx::Operand& fragment_operand(Decoder& decoder, std::size_t index, std::size_t which, int matrices) {
  const ptx::Operand& operand = decoder.operand(index);
  const bool is_vector = operand.kind == ptx::Operand::Kind::vector;
  const std::size_t count = is_vector ? operand.elements.size() : 1;
  if (count != static_cast<std::size_t>(matrices)) {
    decoder.fail(fmt::format("{} registers for {} matrices", count, matrices));
  }
  return is_vector ? operand.elements[which] : operand;
}

// Takes .m16n16.x{1,2}.trans{.shared}.b8.
std::unique_ptr<const Operation> decode_load_bytes(Decoder& decoder) {
  decoder.take_one_of({"sync"});
  decoder.take_one_of({"aligned"});
  decoder.set_aligned();
  decoder.take("m16n16");
  if (decoder.target().major < 10 || decoder.target().suffix == 0)
    decoder.fail("matrices of bytes need .target sm_100a, sm_120a or the like");
  auto load = std::make_unique<LoadBytesTransposed>();
  load->rows.matrices = 2 * (decoder.take_one_of({"x1", "x2"})[1] - '0');
  decoder.take_one_of({"trans"});
  load->rows.is_generic = decoder.take_any_of({"shared", "shared::cta"}).empty();
  decoder.take_one_of({"b8"});
  decoder.expect_count(2);
  load->rows.address = decoder.address(1);
  if (load->rows.address.narrow) load->rows.is_generic = false;
  for (std::size_t i = 0; i < static_cast<std::size_t>(load->rows.matrices); ++i) {
    load->to[i] = decoder.destination(fragment_operand(decoder, 0, i, load->rows.matrices), Type::b32);
  }
  return load;
}

std::unique_ptr<const Operation> decode_load_matrix(Decoder& decoder) {
  if (decoder.has("m16n16")) return decode_load_bytes(decoder);
  auto load = std::make_unique<LoadMatrix>();
  load->rows = take_rows(decoder, load->transposed, 1);
  for (std::size_t i = 0; i < static_cast<std::size_t>(load->rows.matrices); ++i) {
    load->to[i] = decoder.destination(fragment_operand(decoder, 0, i, load->rows.matrices), Type::b32);
  }
  return load;
}

std::unique_ptr<const Operation> decode_store_matrix(Decoder& decoder) {
  decoder.require_arch(9, 0);
  auto store = std::make_unique<StoreMatrix>();
  store->rows = take_rows(decoder, store->transposed, 0);
  for (std::size_t i = 0; i < static_cast<std::size_t>(store->rows.matrices); ++i) {
    store->from[i] = decoder.source(fragment_operand(decoder, 1, i, store->rows.matrices), Type::b32);
  }
  return store;
}

std::unique_ptr<const Operation> decode_move_matrix(Decoder& decoder) {
  decoder.take_one_of({"sync"});
  decoder.take_one_of({"aligned"});
  decoder.set_aligned();
  decoder.take_one_of({"m8n8"});
  decoder.take_one_of({"trans"});
  decoder.take_one_of({"b16"});
  decoder.expect_count(2);
  auto move = std::make_unique<MoveMatrix>();
  move->to = decoder.destination(0, Type::b32);
  move->from = decoder.source(1, Type::b32);
  return move;
}

}  // namespace

std::unique_ptr<const Operation> decode_matrix_move(Decoder& decoder) {
  std::unique_ptr<const Operation> operation;
  if (decoder.opcode() == "ldmatrix") operation = decode_load_matrix(decoder);
  if (decoder.opcode() == "stmatrix") operation = decode_store_matrix(decoder);
  if (decoder.opcode() == "movmatrix") operation = decode_move_matrix(decoder);
  if (operation) decoder.set_class(InstructionClass::matrix_load);
  return operation;
}

}  // namespace jit::emulator
