// The tensors of a call: a row is all that the host checks of one, and where it goes.
#pragma once

#include <array>
#include <string_view>

#include <jit/attention.h>
#include <jit/spec_table.h>

#include "generator/problem/dims.h"
#include "templates/base/params.cuh"

namespace jit {

/// One tensor of AttentionArguments.
struct ArgumentRow {
  std::string_view name;
  TensorView AttentionArguments::*view;
  Dims dims;
  DType (*dtype)(const AttentionSpec&);
  TensorStrides AttentionParams::*strides;
  void (*set_data)(AttentionParams&, void*);
  bool is_output = false;    ///< written: shares no byte with any other tensor
  bool is_optional = false;  ///< may be left out
  /// Rows keep spec.alignment, and the elements of one are dense; else elements keep their own alignment.
  bool has_aligned_rows = true;
};

template <auto member>
void set_data(AttentionParams& params, void* data) {
  using Pointer = std::remove_reference_t<decltype(params.*member)>;
  params.*member = static_cast<Pointer>(data);
}

inline constexpr std::array argument_table = {
    ArgumentRow{.name = "q",
                .view = &AttentionArguments::q,
                .dims = "batch, seqlen_q, heads_q, head_dim",
                .dtype = input_dtype,
                .strides = &AttentionParams::q_strides,
                .set_data = set_data<&AttentionParams::q>},
    ArgumentRow{.name = "k",
                .view = &AttentionArguments::k,
                .dims = "batch, seqlen_kv, heads_kv, head_dim",
                .dtype = input_dtype,
                .strides = &AttentionParams::k_strides,
                .set_data = set_data<&AttentionParams::k>},
    ArgumentRow{.name = "v",
                .view = &AttentionArguments::v,
                .dims = "batch, seqlen_kv, heads_kv, head_dim_v",
                .dtype = input_dtype,
                .strides = &AttentionParams::v_strides,
                .set_data = set_data<&AttentionParams::v>},
    ArgumentRow{.name = "o",
                .view = &AttentionArguments::o,
                .dims = "batch, seqlen_q, heads_q, head_dim_v",
                .dtype = output_dtype,
                .strides = &AttentionParams::o_strides,
                .set_data = set_data<&AttentionParams::o>,
                .is_output = true},
    ArgumentRow{.name = "lse",
                .view = &AttentionArguments::lse,
                .dims = "batch, heads_q, seqlen_q",
                .dtype = [](const AttentionSpec&) { return DType::fp32; },
                .strides = &AttentionParams::lse_strides,
                .set_data = set_data<&AttentionParams::lse>,
                .is_output = true,
                .is_optional = true,
                .has_aligned_rows = false}};

}  // namespace jit
