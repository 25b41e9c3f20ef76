#include "operations/tcgen05/product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "operations/arithmetic/numbers.h"
#include "operations/barriers/mbarrier_wait.h"
#include "operations/tcgen05/state.h"

namespace jit::emulator {
namespace {

constexpr int line_bytes = 32;  // along k
constexpr int line_words = line_bytes / 4;
constexpr int line_pieces = 2;

// Transposes `lines` lines of `length` elements of `bytes` bytes.
void transpose(const std::byte* from, std::size_t lines, std::size_t length, std::size_t bytes, std::byte* to,
               std::size_t to_stride) {
  const auto move = [&]<class T>(T) {
    for (std::size_t line = 0; line < lines; ++line) {
      for (std::size_t i = 0; i < length; ++i) {
        std::memcpy(to + i * to_stride + line * sizeof(T), from + (line * length + i) * sizeof(T), sizeof(T));
      }
    }
  };
  if (bytes == 1) return move(std::uint8_t{});
  if (bytes == 2) return move(std::uint16_t{});
  move(std::uint32_t{});
}

}  // namespace

// Groups of lanes that hold the rows of different columns; 0: half of the lanes are unused.
int ProductOperands::lane_parts() const {
  if (rows() == tensor_lanes || shape.is_stationary || blocks == 2) return tensor_lanes / rows();
  return 0;
}

TensorRegion ProductOperands::d_region() const {
  const int parts = lane_parts();
  if (parts == 0) return {static_cast<std::uint8_t>(d.lane == 0 ? 0x55 : 0xaa), d.column, shape.n};
  return {0xff, d.column, shape.n / parts};
}

TensorRegion ProductOperands::a_region() const {
  TensorRegion region = d_region();
  region.first = a->column;
  region.columns = line_words;
  return region;
}

TensorRegion ProductOperands::a_scale_region() const { return {0xff, a_scales->column, rows() / 32}; }
TensorRegion ProductOperands::b_scale_region() const { return {0xff, b_scales->column, (shape.n + 31) / 32}; }

TensorPlace ProductOperands::place_of(int row, int column) const {
  const int parts = lane_parts();
  if (parts == 0) return {row / 16 * 32 + d.lane + row % 16, d.column + column};
  const int width = shape.n / parts;
  return {column / width * rows() + row, d.column + column % width};
}

int ProductOperands::a_lane(int row) const { return place_of(row, 0).lane; }

TensorProduct::TensorProduct(const Issue& issue, Agent agent, std::uint32_t time,
                             const ProductOperands& operands, std::vector<Block*> blocks,
                             const AccumulationModel& model)
    : issue_(issue),
      agent_(agent),
      time_(time),
      operands_(operands),
      blocks_(std::move(blocks)),
      model_(model) {}

void TensorProduct::read_a(Block& block, std::vector<std::uint32_t>& rows) const {
  const auto count = static_cast<std::size_t>(operands_.rows());
  rows.resize(count * line_words);
  if (operands_.a) {
    for (std::size_t row = 0; row < count; ++row) {
      std::memcpy(&rows[row * line_words],
                  block.tensor->memory.row(operands_.a_lane(static_cast<int>(row))) + operands_.a->column,
                  line_bytes);
    }
    return;
  }
  const Major major = operands_.shape.a_major;
  const OperandLayout layout(parse_tensor_descriptor(operands_.a_descriptor), major);
  const Access access = issue_.access(agent_, time_);
  auto* const to = reinterpret_cast<std::byte*>(rows.data());
  if (major == Major::k) {
    layout.read(block.shared, access, 0, static_cast<int>(count), 0, line_pieces, to);
    return widen_elements(operands_.shape.a, to, count * line_pieces);
  }
  const auto bytes = static_cast<std::size_t>(element_bytes(operands_.shape.a));
  std::vector<std::byte> lines(rows.size() * 4);
  layout.read(block.shared, access, 0, operands_.k, 0, static_cast<int>(count * bytes / 16), lines.data());
  transpose(lines.data(), static_cast<std::size_t>(operands_.k), count, bytes, to, line_bytes);
}

// Reads the rows of all columns along k.
void TensorProduct::read_b(std::vector<std::byte>& elements) const {
  const auto n = static_cast<std::size_t>(operands_.shape.n), share = n / blocks_.size();
  const auto bytes = static_cast<std::size_t>(element_bytes(operands_.shape.b));
  const auto k = static_cast<std::size_t>(operands_.k);
  elements.resize(n * line_bytes);
  const Major major = operands_.shape.b_major;
  const OperandLayout layout(parse_tensor_descriptor(operands_.b_descriptor), major);
  const Access access = issue_.access(agent_, time_);
  std::vector<std::byte> lines(share * line_bytes);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    std::byte* const to = elements.data() + i * share * bytes;
    if (major == Major::k) {
      layout.read(blocks_[i]->shared, access, 0, static_cast<int>(share), 0, line_pieces, lines.data());
      widen_elements(operands_.shape.b, lines.data(), share * line_pieces);
      transpose(lines.data(), share, k, bytes, to, n * bytes);
    } else {
      layout.read(blocks_[i]->shared, access, 0, operands_.k, 0, static_cast<int>(share * bytes / 16),
                  lines.data());
      for (std::size_t line = 0; line < k; ++line) {
        std::memcpy(to + line * n * bytes, lines.data() + line * share * bytes, share * bytes);
      }
    }
  }
  if (operands_.zeros == 0) return;
  for (int column = 0; column < operands_.shape.n; ++column) {
    if (!is_zero_column(operands_.zeros, operands_.shape, column)) continue;
    for (std::size_t line = 0; line < k; ++line)
      std::memset(elements.data() + (line * n + static_cast<std::size_t>(column)) * bytes, 0, bytes);
  }
}

bool TensorProduct::is_disabled(std::size_t index, int lane) const {
  return (operands_.disabled[4 * index + static_cast<std::size_t>(lane / 32)] >> lane % 32 & 1) != 0;
}

// 4-bit elements: 32 bytes of each column.
void TensorProduct::read_b_lines(std::vector<std::uint32_t>& lines) const {
  const auto share = static_cast<std::size_t>(operands_.shape.n) / blocks_.size();
  lines.resize(share * blocks_.size() * line_words);
  const OperandLayout layout(parse_tensor_descriptor(operands_.b_descriptor), Major::k);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    layout.read(blocks_[i]->shared, issue_.access(agent_, time_), 0, static_cast<int>(share), 0, line_pieces,
                reinterpret_cast<std::byte*>(&lines[i * share * line_words]));
  }
}

void TensorProduct::multiply(std::size_t index, const Factors& b) const {
  Block& block = *blocks_[index];
  const ProductShape& shape = operands_.shape;
  const auto rows = static_cast<std::size_t>(operands_.rows()), n = static_cast<std::size_t>(shape.n);
  const std::size_t factors = rows * static_cast<std::size_t>(operands_.k);
  std::vector<std::uint32_t> raw;
  read_a(block, raw);
  std::vector<float> values(factors);
  std::vector<std::int16_t> exponents(factors);
  decode_elements(shape.a, raw.data(), factors, values.data(), exponents.data());
  if (shape.negates_a != shape.negates_b) {
    for (float& value : values) value = -value;
  }
  std::vector<float> sums(rows * n, 0.0f);
  const bool is_half = shape.d == Type::f16;
  if (operands_.accumulates) {
    const float scale = std::ldexp(1.0f, -operands_.scale);
    for_each_sum(block, [&](int, std::uint32_t word, std::size_t row, std::size_t column) {
      float& sum = sums[row * n + column];
      sum = is_half ? f32_of_f16(static_cast<std::uint16_t>(word)) : std::bit_cast<float>(word);
      if (operands_.scale != 0) sum *= scale;
    });
  }
  const Factors a{values.data(), exponents.data()};
  if (operands_.a_scales) {
    multiply_scaled(block, a, b, sums.data());
  } else {
    multiply_add(model_, static_cast<int>(rows), shape.n, operands_.k, a, b, sums.data());
  }
  for_each_sum(block, [&](int lane, std::uint32_t& word, std::size_t row, std::size_t column) {
    if (is_disabled(index, lane)) return;
    const float sum = sums[row * n + column];
    word = is_half ? std::uint32_t{f16_of_f32(sum)} : std::bit_cast<std::uint32_t>(sum);
  });
}

void TensorProduct::complete(bool) {
  for (const Block* const block : blocks_) {
    if (has_ended(*block) && block != &issue_.warp.block) {
      issue_.report(FindingKind::access_in_flight,
                    fmt::format("block {} of the pair exits before this product is complete", block->rank));
    }
  }
  if (is_of_nibbles(operands_.kind)) {
    std::vector<std::uint32_t> lines;
    read_b_lines(lines);
    for (std::size_t i = 0; i < blocks_.size(); ++i) multiply_nibbles(i, lines);
  } else {
    std::vector<std::byte> raw;
    read_b(raw);
    const std::size_t factors =
        static_cast<std::size_t>(operands_.shape.n) * static_cast<std::size_t>(operands_.k);
    std::vector<float> values(factors);
    std::vector<std::int16_t> exponents(factors);
    const bool is_integer = operands_.kind == ProductKind::i8;
    if (!is_integer) decode_elements(operands_.shape.b, raw.data(), factors, values.data(), exponents.data());
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      is_integer ? multiply_integers(i, raw) : multiply(i, {values.data(), exponents.data()});
    }
  }
  for (Block* const block : blocks_) block->tensor->memory.land(operands_.d_region());
}

}  // namespace jit::emulator
