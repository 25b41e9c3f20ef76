// Rotary position embedding by a table (Su et al., RoFormer): of a row x, the pair (a, b) number j becomes
//
//   (a cosⱼ − b sinⱼ, b cosⱼ + a sinⱼ)
//
// with the rows of cosines and of sines, rotary_dim / 2 each, that belong to the token's position. Pairs are
// (j, j + rotary_dim / 2), or (2j, 2j + 1) if interleaved; columns from rotary_dim on stay. With sections (M-RoPE, Wang
// et al., Qwen2-VL) a pair has the position of one of three axes.
#pragma once

#include "base/prelude.cuh"
#include "base/row_lanes.cuh"
#include "base/row_pieces.cuh"

namespace jit {

/// The division of rows of q and k into pieces: none crosses the middle of the rotated columns, or splits a pair.
template <class Config>
constexpr RowLanes rotated_lanes = row_lanes(Config::head_dim,
                                             Config::rotary_dim == 0
                                                 ? Config::head_dim
                                                 : Config::rotary_dim / (Config::rotary_interleaved ? 1 : 2),
                                             sizeof(typename Config::Element));

/// The axis whose position pair j uses: sections are consecutive, or interleaved for as long as they last.
template <class Config>
JIT_DEVICE int axis_of_pair(int j) {
  if constexpr (Config::sections_interleaved) {
    const int axis = j % 3;
    return (axis == 1 && j < 3 * Config::section_1) || (axis == 2 && j < 3 * Config::section_2) ? axis : 0;
  } else {
    return (j >= Config::section_0) + (j >= Config::section_0 + Config::section_1);
  }
}

/// Cosines and sines of a lane's columns for one token.
template <class Config>
class Rotation {
  using TableElement = typename Config::TableElement;
  static constexpr RowLanes share = rotated_lanes<Config>;
  static constexpr int half = Config::rotary_dim / 2;
  static constexpr int axes = Config::has_sections ? 3 : 1;

 public:
  /// `params` has the positions, (tokens) or (3, tokens), and the table. `position` is the position in the sequence,
  /// for callers without explicit ones.
  template <class Params>
  JIT_DEVICE Rotation(const Params& params, int token, long long position, int lane, int lanes) {
    if constexpr (Config::rotary_dim != 0) {
      Rows rows;
#pragma unroll
      for (int axis = 0; axis < axes; ++axis) {
        const long long at =
            params.positions != nullptr ? params.positions[axis * params.positions_stride + token] : position;
        is_possible_ = is_possible_ && at >= 0 && at < params.max_pos;
        rows.cosines[axis] = static_cast<const TableElement*>(params.cos) + at * params.cos_stride;
        rows.sines[axis] = static_cast<const TableElement*>(params.sin) + at * params.sin_stride;
      }
      if (!is_possible_) return;
#pragma unroll
      for (int iteration = 0; iteration < share.iterations; ++iteration) {
        const int column = (iteration * lanes + lane) * share.piece;
        if (column < Config::rotary_dim) load(rows, column, iteration);
      }
    }
  }

  /// Whether the table has a row for the token.
  JIT_DEVICE bool is_possible() const { return is_possible_; }

  /// The first column of the partners of a piece at `column`; interleaved pairs lie within the piece.
  static JIT_DEVICE int partner(int column) { return column < half ? column + half : column - half; }

  /// Rotates the piece at `column`, which is below rotary_dim; `partners` are the values from partner(column) on.
  JIT_DEVICE void rotate(float (&x)[share.piece], const float (&partners)[share.piece], int column,
                         int iteration) const {
#pragma unroll
    for (int i = 0; i < share.piece; ++i) {
      const float cosine = cosines_[iteration][i], sine = sines_[iteration][i];
      if constexpr (Config::rotary_interleaved) {
        if (i % 2 != 0) continue;
        const float a = x[i], b = x[i + 1];
        x[i] = a * cosine - b * sine;
        x[i + 1] = b * cosine + a * sine;
      } else {
        x[i] = x[i] * cosine + partners[i] * (column < half ? -sine : sine);
      }
    }
  }

 private:
  /// Rows of the table for the token's position on each axis.
  struct Rows {
    const TableElement* cosines[axes];
    const TableElement* sines[axes];
  };

  JIT_DEVICE void load(const Rows& rows, int column, int iteration) {
    if constexpr (Config::has_sections) {
#pragma unroll
      for (int i = 0; i < share.piece; ++i) {
        const int j = Config::rotary_interleaved ? (column + i) / 2 : (column + i) % half;
        const int axis = axis_of_pair<Config>(j);
        cosines_[iteration][i] = to_float(of_axis(rows.cosines, axis)[j]);
        sines_[iteration][i] = to_float(of_axis(rows.sines, axis)[j]);
      }
    } else if constexpr (Config::rotary_interleaved) {
      float cosines[share.piece / 2], sines[share.piece / 2];
      load_piece<Config::alignment>(rows.cosines[0] + column / 2, cosines);
      load_piece<Config::alignment>(rows.sines[0] + column / 2, sines);
#pragma unroll
      for (int i = 0; i < share.piece; ++i) {
        cosines_[iteration][i] = cosines[i / 2];
        sines_[iteration][i] = sines[i / 2];
      }
    } else {
      load_piece<Config::alignment>(rows.cosines[0] + column % half, cosines_[iteration]);
      load_piece<Config::alignment>(rows.sines[0] + column % half, sines_[iteration]);
    }
  }

  static JIT_DEVICE const TableElement* of_axis(const TableElement* const (&rows)[axes], int axis) {
    return axis == 0 ? rows[0] : axis == 1 ? rows[1] : rows[2];
  }

  bool is_possible_ = true;
  float cosines_[share.iterations][share.piece], sines_[share.iterations][share.piece];
};

}  // namespace jit
