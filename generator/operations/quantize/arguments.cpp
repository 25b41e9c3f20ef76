#include "generator/operations/quantize/arguments.h"

#include <algorithm>
#include <array>
#include <tuple>

#include <fmt/format.h>

#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/operations/operands.h"
#include "generator/operations/quantize/argument_table.h"
#include "generator/operations/quantize/program.h"
#include "generator/tensors/dims.h"
#include "generator/tensors/tensor_checks.h"
#include "templates/base/philox.cuh"

namespace jit {
namespace {

// Names every member, so that a new tensor does not compile here until it has a row in the table.
auto members_of(const QuantizeArguments& arguments) {
  const auto& [q, k, v, q_out, k_out, v_out, q_descale, k_descale, v_descale, k_mean, v_mean, lse_shift,
               q_norm_weight, k_norm_weight, cos_sin, q_positions, k_positions, cu_seqlens_q, cu_seqlens_k,
               seqused_q, seqused_k, rotation_seed] = arguments;
  return std::tie(q, k, v, q_out, k_out, v_out, q_descale, k_descale, v_descale, k_mean, v_mean, lse_shift,
                  q_norm_weight, k_norm_weight, cos_sin, q_positions, k_positions, cu_seqlens_q, cu_seqlens_k,
                  seqused_q, seqused_k);
}
static_assert(quantize_table.size() == std::tuple_size_v<decltype(members_of(QuantizeArguments()))>);

QuantizedScales scales_of(const QuantizeSpec& spec, const QuantizeRow& row) {
  return row.view == &QuantizeArguments::v_descale ? spec.value_scales : spec.scales;
}
bool is_scale(const QuantizeRow& row) {
  return row.view == &QuantizeArguments::q_descale || row.view == &QuantizeArguments::k_descale ||
         row.view == &QuantizeArguments::v_descale;
}
bool is_written(const QuantizeSpec& spec, const QuantizeRow& row) {
  return row.is_output && !(is_scale(row) && scales_of(spec, row) == QuantizedScales::given);
}
bool is_positions(const QuantizeRow& row) {
  return row.view == &QuantizeArguments::q_positions || row.view == &QuantizeArguments::k_positions;
}
bool is_boundaries(const QuantizeRow& row) {
  return row.view == &QuantizeArguments::cu_seqlens_q || row.view == &QuantizeArguments::cu_seqlens_k;
}
bool is_lengths(const QuantizeRow& row) {
  return row.view == &QuantizeArguments::seqused_q || row.view == &QuantizeArguments::seqused_k;
}
bool is_required(const QuantizeSpec& spec, const QuantizeRow& row, bool is_dense) {
  if (row.view == &QuantizeArguments::k_mean || row.view == &QuantizeArguments::lse_shift) return false;
  if (row.view == &QuantizeArguments::v_mean) return spec.center_values;
  if (row.view == &QuantizeArguments::q_norm_weight || row.view == &QuantizeArguments::k_norm_weight)
    return spec.norm;
  if (is_boundaries(row) || is_lengths(row)) return false;
  if (row.view == &QuantizeArguments::cos_sin) return spec.rotary_dim != 0;
  if (is_positions(row)) return spec.rotary_dim != 0 && !is_dense;
  return !is_scale(row) || is_written(spec, row);
}

DimNames dims_of(const QuantizeSpec& spec, const QuantizeRow& row, const TensorView& tensor, bool is_dense) {
  const auto of = [&](const QuantizeDims& dims) { return is_dense ? dims.dense : dims.varlen; };
  if (!is_scale(row)) return of(row.dims);
  switch (scales_of(spec, row)) {
    case QuantizedScales::given:
      if (tensor.rank != 1) return of(row.dims);
      if (tensor.shape[0] == 1) return "1";
      return "heads_kv";
    case QuantizedScales::head:
      return of(row.dims);
    case QuantizedScales::token:
      return of(row.view == &QuantizeArguments::q_descale ? scales_of_queries : scales_of_keys);
    case QuantizedScales::channel:
      return of(scales_of_channels);
    case QuantizedScales::block:
      return of(row.view == &QuantizeArguments::q_descale ? scales_of_query_blocks : scales_of_key_blocks);
  }
  return of(row.dims);
}

// Rows of 8-bit elements are aligned to as many elements.
int row_alignment(const QuantizeSpec& spec, DType dtype) {
  return facts(dtype).is_fp8() ? std::max(1, spec.alignment / size_of(spec.dtype)) : spec.alignment;
}

// Rejects arguments that the spec does not use.
void check_presence(const QuantizeSpec& spec, const QuantizeArguments& a) {
  constexpr const char* no_mean = "was given, but spec.center_keys is not set";
  if (!spec.center_keys && a.k_mean.is_present()) refuse("k_mean", no_mean);
  if (!spec.center_keys && a.lse_shift.is_present()) refuse("lse_shift", no_mean);
  if (!spec.center_values && a.v_mean.is_present())
    refuse("v_mean", "was given, but spec.center_values is not set");
  for (const auto& [name, tensor] :
       {std::pair{"q_norm_weight", &a.q_norm_weight}, {"k_norm_weight", &a.k_norm_weight}}) {
    if (!spec.norm && tensor->is_present()) refuse(name, "was given, but spec.norm is not set");
  }
  for (const auto& [name, tensor] :
       {std::pair{"cos_sin", &a.cos_sin}, {"q_positions", &a.q_positions}, {"k_positions", &a.k_positions}}) {
    if (spec.rotary_dim == 0 && tensor->is_present())
      refuse(name, "was given, but there is no cos_sin to rotate by (spec.rotary_dim is 0)");
  }
}

// Checks that the arrays of lengths match the spec.
void check_presence_of_sequences(const QuantizeSpec& spec, const QuantizeArguments& a) {
  const std::string_view kind = to_string(spec.sequences);
  const bool is_varlen = spec.sequences == SequenceKind::varlen,
             has_lengths = is_varlen || spec.sequences == SequenceKind::padded;
  for (const auto& [name, tensor, is_read] : {std::tuple{"cu_seqlens_q", &a.cu_seqlens_q, is_varlen},
                                              {"cu_seqlens_k", &a.cu_seqlens_k, is_varlen},
                                              {"seqused_q", &a.seqused_q, has_lengths},
                                              {"seqused_k", &a.seqused_k, has_lengths}}) {
    if (!is_read && tensor->is_present()) refuse(name, fmt::format("was given; spec.sequences is {}", kind));
  }
  if (sequences_of(a) == spec.sequences) return;
  const std::string_view name = is_varlen ? "cu_seqlens" : "seqused";
  refuse(fmt::format("{}_k", name),
         fmt::format("is missing, and so is {}_q; spec.sequences is {}", name, kind));
}

// Checks boundaries of varlen sequences, and lengths within them.
void check_sequences(std::string_view boundaries_name, const TensorView& boundaries,
                     std::string_view lengths_name, const TensorView& lengths, bool is_dense) {
  if (is_dense && boundaries.is_present()) {
    refuse(boundaries_name, fmt::format("was given, and q is (batch, seqlen, heads, head_dim); give {}, or "
                                        "varlen q, (tokens, heads, head_dim)",
                                        lengths_name));
  }
  if (!is_dense && lengths.is_present() && !boundaries.is_present())
    refuse(boundaries_name,
           fmt::format("is missing; {} is of sequences that begin at its numbers", lengths_name));
  if (boundaries.is_present() && boundaries.rank == 1 && boundaries.shape[0] == 0)
    refuse(boundaries_name, "has batch + 1 = 0; it must have at least 1, where the last sequence ends");
}

CallSizes check_tensors(const QuantizeSpec& spec, const QuantizeArguments& arguments) {
  const bool is_dense = arguments.q.rank == 4;
  CallSizes sizes;
  sizes.know("head_dim", spec.head_dim);
  sizes.know("head_dim_v", spec.value_head_dim());
  sizes.know("1", 1);
  sizes.know("rotary_dim", spec.rotary_dim);
  for (const QuantizeRow& row : quantize_table) {
    const TensorView& tensor = arguments.*row.view;
    if (!is_required(spec, row, is_dense) && !tensor.is_present()) continue;
    const DType dtype = row.dtype(spec);
    sizes.check({.name = row.name,
                 .dims = dims_of(spec, row, tensor, is_dense),
                 .dtype = dtype,
                 .row_alignment = row.is_rows ? row_alignment(spec, dtype) : 0},
                tensor);
    if (is_boundaries(row)) sizes.know("batch", tensor.shape[0] - 1);  // of varlen rows, unknown otherwise
    // After q, k and v, and before scales in the table.
    if (row.view == &QuantizeArguments::v) {
      sizes.know("blocks_q", scale_blocks_of(sizes[is_dense ? "seqlen_q" : "total_q"]));
      sizes.know("blocks_kv", scale_blocks_of(sizes[is_dense ? "seqlen_kv" : "total_k"]));
    }
    const bool has_free_strides = is_scale(row) && scales_of(spec, row) != QuantizedScales::channel;
    if (!row.is_rows && !has_free_strides) check_dense_numbers(row.name, tensor);
  }
  const std::int64_t heads_q = sizes["heads_q"], heads_kv = sizes["heads_kv"];
  if (heads_kv > 0 ? heads_q % heads_kv != 0 : heads_q > 0)
    refuse("q", fmt::format("has {} heads, and k has {}; the number of q's must be a multiple of k's",
                            heads_q, heads_kv));
  return sizes;
}

// Checks that outputs overlap neither other tensors nor themselves.
void check_outputs(const QuantizeSpec& spec, const QuantizeArguments& arguments) {
  std::array<ByteRange, quantize_table.size()> ranges;
  for (std::size_t i = 0; i < ranges.size(); ++i) ranges[i] = byte_range(arguments.*quantize_table[i].view);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const QuantizeRow& output = quantize_table[i];
    const TensorView& written = arguments.*output.view;
    if (!is_written(spec, output) || !written.is_present()) continue;
    check_no_self_overlap(output.name, written);
    for (std::size_t j = 0; j < ranges.size(); ++j) {
      if (i == j || !ranges[i].meets(ranges[j])) continue;
      check_no_overlap(output.name, written, quantize_table[j].name, arguments.*quantize_table[j].view);
    }
  }
}

TensorStrides strides_of_scales(QuantizedScales scales, const TensorView& tensor, bool is_dense) {
  const auto from = [&](int dimension) {
    const int at = dimension - (is_dense ? 0 : 1);
    return at < 0 || at >= tensor.rank ? 0 : stride_along(tensor, at);
  };
  switch (scales) {
    case QuantizedScales::given:
      if (tensor.rank == 1) return {.batch = 0, .seq = 0, .head = stride_along(tensor, 0)};
      return {.batch = from(0), .seq = 0, .head = from(1)};
    case QuantizedScales::token:
    case QuantizedScales::block:
      return {.batch = from(0), .seq = from(1), .head = from(2)};
    case QuantizedScales::head:
    case QuantizedScales::channel:
      return {.batch = from(0), .seq = 0, .head = from(1)};
  }
  return {};
}

RotaryParams rotary_params(const QuantizeSpec& spec, const TensorView& table, const TensorView& positions) {
  if (!table.is_present()) return {};
  const std::int64_t stride = stride_along(table, 0);
  return {
      .positions = static_cast<const long long*>(positions.data),
      .positions_stride = 0,
      .cos = table.data,
      .sin = static_cast<const std::byte*>(table.data) + spec.rotary_dim / 2 * size_of(spec.cos_sin_dtype),
      .cos_stride = stride,
      .sin_stride = stride,
      .max_pos = static_cast<int>(table.shape[0])};
}

// Rounds up to the 256-byte alignment of memory.
std::size_t in_whole_lines(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

QuantizeSizes fill_params(const QuantizeSpec& spec, const QuantizeArguments& arguments,
                          QuantizeParams& params) {
  const bool is_dense = arguments.q.rank == 4;
  check_presence(spec, arguments);
  check_presence_of_sequences(spec, arguments);
  check_sequences("cu_seqlens_q", arguments.cu_seqlens_q, "seqused_q", arguments.seqused_q, is_dense);
  check_sequences("cu_seqlens_k", arguments.cu_seqlens_k, "seqused_k", arguments.seqused_k, is_dense);
  const CallSizes sizes = check_tensors(spec, arguments);
  check_outputs(spec, arguments);
  const std::int64_t batch = is_dense ? sizes["batch"] : 1, heads_kv = sizes["heads_kv"];
  const std::int64_t units = batch * heads_kv;
  params = QuantizeParams();
  params.lse_shift = static_cast<float*>(arguments.lse_shift.data);
  params.units = static_cast<int>(units);
  params.heads_kv = static_cast<int>(heads_kv);
  if (units == 0) return {};
  if (arguments.lse_shift.is_present()) {
    params.lse_shift_batch_stride = is_dense ? stride_along(arguments.lse_shift, 0) : 0;
    params.lse_shift_head_stride = stride_along(arguments.lse_shift, is_dense ? 1 : 0);
  }
  for (unsigned i = 0; i < 2; ++i) {
    const PhiloxWords drawn = philox<10>({{i, 0, 0, 0}}, static_cast<unsigned>(arguments.rotation_seed),
                                         static_cast<unsigned>(arguments.rotation_seed >> 32));
    std::copy(std::begin(drawn.words), std::end(drawn.words), params.signs + 4 * i);
  }

  params.norm_eps = spec.norm_eps;

  QuantizeSizes needed;
  std::int64_t pieces = 0;
  struct Row {
    QkvTensor tensor;
    QuantizeTensor QuantizeParams::*own;
    const TensorView &from, &to, &descale, &mean, &norm_weight, &positions, &boundaries, &lengths;
    QuantizedScales scales;
    std::int64_t seqlen, heads;
  };
  const TensorView none;
  const std::int64_t seqlen_q = sizes[is_dense ? "seqlen_q" : "total_q"],
                     seqlen_kv = sizes[is_dense ? "seqlen_kv" : "total_k"],
                     ratio = sizes["heads_q"] / heads_kv;
  const QuantizeArguments& a = arguments;
  for (const Row& row :
       {Row{QkvTensor::q, &QuantizeParams::q, a.q, a.q_out, a.q_descale, none, a.q_norm_weight, a.q_positions,
            a.cu_seqlens_q, a.seqused_q, spec.scales, seqlen_q, ratio},
        Row{QkvTensor::k, &QuantizeParams::k, a.k, a.k_out, a.k_descale, a.k_mean, a.k_norm_weight,
            a.k_positions, a.cu_seqlens_k, a.seqused_k, spec.scales, seqlen_kv, 1},
        Row{QkvTensor::v, &QuantizeParams::v, a.v, a.v_out, a.v_descale, a.v_mean, none, none, a.cu_seqlens_k,
            a.seqused_k, spec.value_scales, seqlen_kv, 1}}) {
    const QuantizedTensorFacts facts = quantized_tensor_facts(spec, row.tensor);
    // Scales and means are written even without tokens.
    const std::int64_t chunks = std::max<std::int64_t>(1, (row.seqlen + facts.chunk - 1) / facts.chunk);
    const std::int64_t items = chunks * row.heads;
    QuantizeTensor& own = params.*row.own;
    own = {.from = row.from.data,
           .to = row.to.data,
           .from_strides = row_strides(row.from),
           .to_strides = row_strides(row.to),
           .descale = static_cast<float*>(row.descale.data),
           .descale_strides = strides_of_scales(row.scales, row.descale, is_dense),
           .mean = static_cast<float*>(row.mean.data),
           .statistics = nullptr,
           .results = nullptr,
           .norm_weight = row.norm_weight.data,
           .rotary = rotary_params(spec, arguments.cos_sin, row.positions),
           .cu_seqlens = static_cast<const int*>(row.boundaries.data),
           .seqused = static_cast<const int*>(row.lengths.data),
           .sequences = row.boundaries.is_present() ? static_cast<int>(row.boundaries.shape[0]) - 1 : 0,
           .seqlen = static_cast<int>(row.seqlen),
           .heads = static_cast<int>(row.heads),
           .items = static_cast<int>(items),
           .waiting = static_cast<int>(items)};
    pieces += units * items * (facts.statistics > 0 ? 2 : 1);
    if (facts.statistics == 0 || items == 0) continue;
    const auto place = [&](float*& pointer, std::int64_t floats) {
      pointer = reinterpret_cast<float*>(needed.workspace_bytes);
      needed.workspace_bytes += in_whole_lines(static_cast<std::size_t>(floats) * sizeof(float));
    };
    place(own.statistics, units * items * facts.statistics);
    place(own.results, units * 2 * facts.columns);
    needed.counter_bytes = static_cast<std::size_t>(1 + 3 * units) * sizeof(unsigned);
  }
  if (arguments.lse_shift.is_present()) params.k.waiting += params.q.items;
  constexpr std::int64_t most = std::int64_t{1} << 30;  // leaves room for counters of blocks
  if (pieces > most) refuse("q", fmt::format("k and v are {} pieces of work; at most {} fit", pieces, most));
  needed.pieces = params.pieces = static_cast<int>(pieces);
  return needed;
}

void place_workspace(QuantizeParams& params, std::byte* workspace) {
  for (QuantizeTensor* own : {&params.q, &params.k, &params.v}) {
    for (float** pointer : {&own->statistics, &own->results})
      *pointer = reinterpret_cast<float*>(workspace + reinterpret_cast<std::uintptr_t>(*pointer));
  }
}

}  // namespace jit
