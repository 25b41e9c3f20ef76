// One tcgen05.mma from issue to completion: locations of its operands and sums.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "machine/tensor_memory.h"
#include "operations/copies/bulk.h"
#include "operations/tcgen05/descriptors.h"
#include "operations/tcgen05/pipe.h"
#include "operations/tcgen05/state.h"
#include "operations/tensor/tensor_core.h"

namespace jit::emulator {

/// An instruction with its register values at the issue.
struct ProductOperands {
  ProductKind kind{};
  ProductShape shape;
  int blocks = 1;
  int k = 0;  ///< elements
  TensorPlace d;
  std::optional<TensorPlace> a;  ///< A in tensor memory
  std::uint64_t a_descriptor = 0, b_descriptor = 0;
  std::optional<TensorPlace> a_scales, b_scales;
  int scales = 0;  ///< of a row and k: .scale_vec::1X, 2X, 4X
  bool accumulates = false;
  int scale = 0;                            ///< D · 2^−scale
  std::array<std::uint32_t, 8> disabled{};  ///< lanes whose rows stay unchanged, 4 words per block

  std::uint64_t zeros = 0;  ///< zero-column mask descriptor; 0: none

  int rows() const { return shape.m / blocks; }  ///< of one block
  TensorRegion d_region() const;
  TensorRegion a_region() const;
  TensorRegion a_scale_region() const;
  TensorRegion b_scale_region() const;
  /// The position of an element of D in its block.
  TensorPlace place_of(int row, int column) const;
  /// The first tensor-memory lane with a row of A.
  int a_lane(int row) const;

 private:
  int lane_parts() const;
};

class TensorProduct final : public TensorOperation {
 public:
  TensorProduct(const Issue& issue, Agent agent, std::uint32_t time, const ProductOperands& operands,
                std::vector<Block*> blocks, const AccumulationModel& model);
  void complete(bool is_idle) override;

 private:
  void read_a(Block& block, std::vector<std::uint32_t>& rows) const;
  void read_b(std::vector<std::byte>& elements) const;
  void read_b_lines(std::vector<std::uint32_t>& lines) const;
  /// Calls f(lane, word, row, column) for the words of D of a block.
  template <class F>
  void for_each_sum(Block& block, F f) const {
    TensorMemory& memory = block.tensor->memory;
    for (int row = 0; row < operands_.rows(); ++row) {
      for (int column = 0; column < operands_.shape.n; ++column) {
        const TensorPlace at = operands_.place_of(row, column);
        f(at.lane, memory.row(at.lane)[at.column], static_cast<std::size_t>(row),
          static_cast<std::size_t>(column));
      }
    }
  }
  void multiply(std::size_t index, const Factors& b) const;
  void multiply_scaled(Block& block, Factors a, Factors b, float* sums) const;
  void multiply_integers(std::size_t index, const std::vector<std::byte>& b) const;
  void multiply_nibbles(std::size_t index, const std::vector<std::uint32_t>& b_lines) const;
  bool is_disabled(std::size_t index, int lane) const;
  /// The scale with index `number` along k of a row of A; `b_scale`: of a column of B, as used for that row.
  std::uint8_t a_scale(Block& block, int row, int number) const;
  std::uint8_t b_scale(Block& block, int row, int column, int number) const;

  const Issue issue_;
  const Agent agent_;
  const std::uint32_t time_;
  const ProductOperands operands_;
  const std::vector<Block*> blocks_;  ///< leader first
  const AccumulationModel model_;
};

}  // namespace jit::emulator
