// Arrays with sequence boundaries, and others that only the device reads.
#pragma once

#include <array>

#include <jit/attention.h>
#include <nanobind/nanobind.h>

namespace jit::python {

namespace nb = nanobind;

/// A sequence array and its Python name.
struct SequenceArray {
  const char* name;
  TensorView AttentionArguments::*view;
};
inline constexpr std::array sequence_arrays = {
    SequenceArray{"cu_seqlens_q", &AttentionArguments::cu_seqlens_q},
    SequenceArray{"cu_seqlens_k", &AttentionArguments::cu_seqlens_k},
    SequenceArray{"seqused_q", &AttentionArguments::seqused_q},
    SequenceArray{"seqused_k", &AttentionArguments::seqused_k},
    SequenceArray{"page_table", &AttentionArguments::page_table},
    SequenceArray{"cache_leftpad", &AttentionArguments::cache_leftpad},
    SequenceArray{"sinks", &AttentionArguments::sinks},
    SequenceArray{"q_descale", &AttentionArguments::q_descale},
    SequenceArray{"k_descale", &AttentionArguments::k_descale},
    SequenceArray{"v_descale", &AttentionArguments::v_descale},
    SequenceArray{"k_block_scales", &AttentionArguments::k_block_scales},
    SequenceArray{"v_block_scales", &AttentionArguments::v_block_scales},
    SequenceArray{"v_mean", &AttentionArguments::v_mean},
    SequenceArray{"lse_shift", &AttentionArguments::lse_shift},
    SequenceArray{"o_descale", &AttentionArguments::o_descale},
    SequenceArray{"rng_state", &AttentionArguments::rng_state},
};

/// The index of the entry for this tensor.
constexpr std::size_t sequence_array(TensorView AttentionArguments::*view) {
  std::size_t number = 0;
  while (sequence_arrays[number].view != view) ++number;
  return number;
}

/// Sequence arguments in the order of the fields; null or None: not given.
struct SequenceInputs {
  std::array<nb::handle, sequence_arrays.size()> arrays = {};
  int num_splits = 0;
  bool zero_padding = false;
  double dropout_p = 0;

  /// Whether the array for this tensor was given.
  bool has(TensorView AttentionArguments::*view) const {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (sequence_arrays[i].view == view) return arrays[i].is_valid() && !arrays[i].is_none();
    }
    return false;
  }

  /// Names and arrays of the given ones.
  nb::dict given() const {
    nb::dict result;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (arrays[i].is_valid() && !arrays[i].is_none()) result[sequence_arrays[i].name] = arrays[i];
    }
    return result;
  }
};

}  // namespace jit::python
