// The steps for each of q, k and v, as a Config has it.
#pragma once

#include "base/rotary.cuh"
#include "base/row_lanes.cuh"
#include "jit/options.h"
#include "quantize/params.cuh"

namespace jit {

/// Threads of a block of a Config's program. Where rows are resident, those that the warps of a role stand for.
template <class Config>
inline constexpr int threads_of_quantizer =
    Config::keeps_rows ? resident_threads
                       : quantize_threads(Config::center_keys || Config::center_values ||
                                              Config::value_scales == QuantizedScales::channel,
                                          Config::scales == QuantizedScales::block);

template <class Config, QkvTensor tensor>
struct QuantizePlan {
  static constexpr int threads = threads_of_quantizer<Config>;
  static constexpr bool is_value = tensor == QkvTensor::v;
  static constexpr int columns = is_value ? Config::head_dim_v : Config::head_dim;
  static constexpr RowLanes share =
      is_value ? row_lanes(columns, columns, sizeof(typename Config::Element)) : rotated_lanes<Config>;
  static constexpr bool is_normalized = !is_value && Config::norm;
  static constexpr bool has_rotary = !is_value && Config::rotary_dim != 0;
  static constexpr QuantizedScales scales = is_value ? Config::value_scales : Config::scales;
  static constexpr SequenceKind sequences = Config::sequences;
  static constexpr bool is_rotated = !is_value && Config::rotate;
  static constexpr bool is_centered =
      is_value ? Config::center_values : tensor == QkvTensor::k && Config::center_keys;
  /// Whether scales are found as rows pass by.
  static constexpr bool has_row_scales = scales == QuantizedScales::token || scales == QuantizedScales::block;
  /// Rows of a piece of work.
  static constexpr int chunk = quantize_chunk(share, threads);
  /// Floats in which rows leave their magnitudes, and blocks of them their scales.
  static constexpr int block_numbers =
      scales == QuantizedScales::block ? chunk * (scale_block_rows + 1) / scale_block_rows : 0;
  static constexpr bool has_extremes = scales == QuantizedScales::head || scales == QuantizedScales::channel;
  static constexpr int statistics = statistic_numbers(columns, is_centered, scales);
  static constexpr bool has_one_statistic = statistics == 1;

  static constexpr int row_bytes = quantize_row_bytes(share, sizeof(typename Config::Element), threads);

  /// Rows that are worked on together: more want more registers and code, and other warps do something meanwhile, but for
  /// where rows are resident, which has one warp of a role on a scheduler.
  static constexpr int steps_at_once = Config::keeps_rows ? 4 : 2;

  static JIT_DEVICE const QuantizeTensor& of(const QuantizeParams& params) {
    return tensor == QkvTensor::q ? params.q : tensor == QkvTensor::k ? params.k : params.v;
  }
};

template <class Config>
inline constexpr int most_row_bytes = maximum(maximum(QuantizePlan<Config, QkvTensor::q>::row_bytes,
                                                      QuantizePlan<Config, QkvTensor::k>::row_bytes),
                                              QuantizePlan<Config, QkvTensor::v>::row_bytes);
template <class Config>
inline constexpr int buffer_bytes = quantize_buffer_bytes(most_row_bytes<Config>,
                                                          Config::sequences != SequenceKind::dense,
                                                          threads_of_quantizer<Config>);
template <class Config>
inline constexpr int buffers = quantize_buffers(most_row_bytes<Config>);

/// Whether something is to be known of whole sequences before an element can be rounded.
template <class Config>
inline constexpr bool has_quantize_phases =
    QuantizePlan<Config, QkvTensor::q>::statistics + QuantizePlan<Config, QkvTensor::k>::statistics +
        QuantizePlan<Config, QkvTensor::v>::statistics >
    0;

/// Calls `act` with a tag whose type names the tensor, which the compiler knows then.
template <QkvTensor which>
struct TensorTag {
  static constexpr QkvTensor tensor = which;
};
template <class Act>
JIT_DEVICE void with_tensor(QkvTensor tensor, const Act& act) {
  switch (tensor) {
    case QkvTensor::q:
      return act(TensorTag<QkvTensor::q>());
    case QkvTensor::k:
      return act(TensorTag<QkvTensor::k>());
    case QkvTensor::v:
      return act(TensorTag<QkvTensor::v>());
  }
}

}  // namespace jit
