// The quantizer that keeps its rows: its steps according to Config, and the piece of work of a ticket.
#pragma once

#include "quantize/plan.cuh"
#include "quantize/work.cuh"
#include "quantize_resident/params.cuh"

namespace jit {

template <class Config>
struct ResidentPlan {
  static_assert(Config::keeps_rows && Config::sequences == SequenceKind::dense);

  template <QkvTensor tensor>
  using Of = QuantizePlan<Config, tensor>;
  using Q = Of<QkvTensor::q>;
  using K = Of<QkvTensor::k>;
  using V = Of<QkvTensor::v>;

  template <QkvTensor tensor>
  static constexpr int piece_bytes =
      Of<tensor>::chunk* Of<tensor>::columns* static_cast<int>(sizeof(typename Config::Element));
  /// Whether a whole unit must be known before its rows are rounded, by numbers of columns or by one.
  template <QkvTensor tensor>
  static constexpr bool has_columns = Of<tensor>::statistics > 1;
  template <QkvTensor tensor>
  static constexpr bool has_magnitude = Of<tensor>::statistics == 1;
  /// Rows of floats that a piece has of its columns: what they lose, or for queries the keys' means, and scales.
  template <QkvTensor tensor>
  static constexpr int result_rows =
      (Of<tensor>::is_centered || (tensor == QkvTensor::q && Config::center_keys) ? 1 : 0) +
      (Of<tensor>::scales == QuantizedScales::channel ? 1 : 0);

  static constexpr ResidentLayout layout = resident_layout(
      maximum(maximum(piece_bytes<QkvTensor::q>, piece_bytes<QkvTensor::k>), piece_bytes<QkvTensor::v>),
      maximum(maximum(Q::statistics, K::statistics), V::statistics),
      maximum(maximum(result_rows<QkvTensor::q>, result_rows<QkvTensor::k>) * Q::columns,
              result_rows<QkvTensor::v>* V::columns),
      maximum(Q::block_numbers, K::block_numbers));
  /// Warps of a piece of work that a warp of a role stands for.
  static constexpr int warps = resident_threads / warp_size;
  static_assert(warps % resident_statistics_warps == 0 && warps % resident_rounding_warps == 0);
};

/// Pieces of work of a unit: those of keys first, whose means queries may wait for.
JIT_DEVICE int resident_unit_pieces(const QuantizeParams& params) {
  return params.k.items + params.q.items + params.v.items;
}

/// All of a unit before the next one, whatever its tensors wait for. So a unit's pieces of work are at hand at about
/// the same time, and none waits for a later one.
JIT_DEVICE QuantizeWork resident_work(const QuantizeParams& params, int piece) {
  const int unit = piece / resident_unit_pieces(params);
  int item = piece % resident_unit_pieces(params);
  if (item < params.k.items) return {false, QkvTensor::k, unit, item};
  item -= params.k.items;
  if (item < params.q.items) return {false, QkvTensor::q, unit, item};
  return {false, QkvTensor::v, unit, item - params.q.items};
}

}  // namespace jit
