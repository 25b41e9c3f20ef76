#include "generator/operations/append/arguments.h"

#include <array>
#include <tuple>

#include <fmt/format.h>

#include <jit/dtype.h>

#include "generator/operations/append/argument_table.h"
#include "generator/operations/operands.h"
#include "generator/tensors/latent_rows.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

// Names every member, so that a new tensor does not compile here until it has a row in the table.
auto members_of(const AppendArguments& arguments) {
  const auto& [k, v, k_cache, v_cache, slot_mapping, seqused_k, cu_seqlens_q, page_table, q, q_out, cos_sin,
               cos, sin, positions, q_norm_weight, k_norm_weight, k_scale, v_scale, k_block_scales,
               v_block_scales] = arguments;
  return std::tie(k, v, k_cache, v_cache, slot_mapping, seqused_k, cu_seqlens_q, page_table, q, q_out,
                  cos_sin, cos, sin, positions, q_norm_weight, k_norm_weight, k_scale, v_scale,
                  k_block_scales, v_block_scales);
}
static_assert(append_table.size() == std::tuple_size_v<decltype(members_of(AppendArguments()))>);

void want(bool is_wanted, const char* name, const TensorView& tensor, const char* why) {
  if (is_wanted && !tensor.is_present()) refuse(name, fmt::format("is missing; {}", why));
}
void want_none(bool is_unwanted, const char* name, const TensorView& tensor, const char* why) {
  if (is_unwanted && tensor.is_present()) refuse(name, fmt::format("was given, but {}", why));
}

// Checks which tensors are given together.
void check_presence(const AppendSpec& spec, const AppendArguments& a) {
  const bool by_slot = a.slot_mapping.is_present(), is_dense = a.k.rank == 4, rotates = spec.rotary_dim != 0;
  constexpr const char* slots = "slot_mapping says where tokens go; leave out one of them";
  want_none(by_slot, "seqused_k", a.seqused_k, slots);
  want_none(by_slot, "cu_seqlens_q", a.cu_seqlens_q, slots);
  want_none(by_slot, "page_table", a.page_table, slots);
  want(!by_slot, "seqused_k", a.seqused_k, "give where tokens go: slot_mapping, or seqused_k");
  want(!by_slot && !is_dense, "cu_seqlens_q", a.cu_seqlens_q,
       "varlen tokens want to know where requests begin");
  want_none(is_dense, "cu_seqlens_q", a.cu_seqlens_q, "k is (batch, seqlen, …), and not varlen");
  want_none(!a.q.is_present(), "q_out", a.q_out, "there is no q");
  const bool in_two = a.cos.is_present() || a.sin.is_present();
  want(rotates && !in_two, "cos_sin", a.cos_sin, "spec.rotary_dim is not 0");
  want(rotates && in_two, "cos", a.cos, "sin was given");
  want(rotates && in_two, "sin", a.sin, "cos was given");
  want_none(in_two, "cos_sin", a.cos_sin, "so were cos and sin; leave out one of them");
  want_none(!rotates, "cos", a.cos, "spec.rotary_dim is 0");
  want_none(!rotates, "sin", a.sin, "spec.rotary_dim is 0");
  want_none(!rotates, "cos_sin", a.cos_sin, "spec.rotary_dim is 0");
  want(rotates && by_slot, "positions", a.positions,
       "slots do not tell the positions that q and k are rotated by");
  want_none(!rotates, "positions", a.positions,
            "there is no cos_sin, nor cos and sin, to rotate by (spec.rotary_dim is 0)");
  const DTypeFacts& stored = facts(spec.stored_dtype());
  const bool has_latents = stored.row_bytes != 0;
  const char* const no_scales =
      has_latents ? "rows of latents have their scales" : "the caches are none of 8 or 4 bits";
  want_none(!stored.is_stored() || has_latents, "k_scale", a.k_scale, no_scales);
  want_none(!stored.is_stored() || has_latents, "v_scale", a.v_scale, no_scales);
  want_none(has_latents, "v_cache", a.v_cache, "k_cache has whole rows of latents");
  const bool has_blocks = stored.scale_columns != 0;
  constexpr const char *found = "scales of blocks are written there",
                       *no_blocks = "the caches have no scales of blocks";
  want(has_blocks, "k_block_scales", a.k_block_scales, found);
  want(has_blocks, "v_block_scales", a.v_block_scales, found);
  want_none(!has_blocks, "k_block_scales", a.k_block_scales, no_blocks);
  want_none(!has_blocks, "v_block_scales", a.v_block_scales, no_blocks);
  const bool finds_scales = spec.scale_per == ScaleKind::token;
  want(finds_scales, "k_scale", a.k_scale, "the scale of each token and head is written there");
  want(finds_scales, "v_scale", a.v_scale, "the scale of each token and head is written there");
  want(spec.norm, "k_norm_weight", a.k_norm_weight, "spec.norm is set");
  want(spec.norm && a.q.is_present(), "q_norm_weight", a.q_norm_weight, "spec.norm is set");
  want_none(!spec.norm, "k_norm_weight", a.k_norm_weight, "spec.norm is not set");
  want_none(!spec.norm || !a.q.is_present(), "q_norm_weight", a.q_norm_weight,
            spec.norm ? "there is no q" : "there is no k_norm_weight (spec.norm is not set)");
}

bool is_scale(const AppendRow& row) {
  return row.view == &AppendArguments::k_scale || row.view == &AppendArguments::v_scale;
}

const DimNames& dims_of(const AppendSpec& spec, const AppendRow& row, const TensorView& tensor,
                        bool is_dense) {
  if (row.view == &AppendArguments::positions && spec.has_sections())
    return is_dense ? dense_positions_by_axis : positions_by_axis;
  if (is_scale(row) && spec.scale_per == ScaleKind::token) return scale_of_each_row;
  if (facts(spec.stored_dtype()).row_bytes != 0 && row.view == &AppendArguments::k_cache) return latent_rows;
  if (facts(spec.stored_dtype()).numbers > 1) {
    if (row.view == &AppendArguments::k_cache) return packed_keys;
    if (row.view == &AppendArguments::v_cache) return packed_values;
  }
  if (is_scale(row) && tensor.rank == 1 && tensor.shape[0] == 1) return scale_of_all_heads;
  return is_dense ? row.dense_dims : row.dims;
}

// 8-bit elements need half the bytes for as many elements. Packed rows may begin at any address.
int row_alignment(const AppendSpec& spec, DType dtype) {
  const DTypeFacts& stored = facts(dtype);
  constexpr int of_latents = 8;
  return stored.row_bytes != 0 ? of_latents
         : stored.numbers > 1  ? 1
         : stored.is_stored()  ? spec.alignment / 2
                               : spec.alignment;
}

CallSizes check_tensors(const AppendSpec& spec, const AppendArguments& arguments) {
  const bool is_dense = arguments.k.rank == 4;
  constexpr int last_dimension = 3;
  CallSizes sizes;
  sizes.know("head_dim", spec.head_dim);
  sizes.know("head_dim_v", spec.value_head_dim());
  sizes.know("rotary_dim", spec.rotary_dim);
  sizes.know("rotary_dim / 2", spec.rotary_dim / 2);
  sizes.know("3", 3);
  sizes.know("1", 1);
  const bool has_latents = facts(spec.stored_dtype()).row_bytes != 0;
  if (has_latents) sizes.know("k_row", facts(spec.stored_dtype()).row_bytes);
  if (const DTypeFacts& stored = facts(spec.stored_dtype()); stored.numbers > 1) {
    sizes.know("k_row", spec.head_dim / stored.numbers);
    sizes.know("v_row", spec.value_head_dim() / stored.numbers);
    if (stored.scale_columns != 0) {
      sizes.know("k_blocks", spec.head_dim / stored.scale_columns);
      sizes.know("v_blocks", spec.value_head_dim() / stored.scale_columns);
    }
  }
  for (const AppendRow& row : append_table) {
    const TensorView& tensor = arguments.*row.view;
    const bool is_required = row.view == &AppendArguments::k || row.view == &AppendArguments::v ||
                             row.view == &AppendArguments::k_cache ||
                             (row.view == &AppendArguments::v_cache && !has_latents);
    if (!is_required && !tensor.is_present()) continue;
    if (row.view == &AppendArguments::cu_seqlens_q) sizes.know("batch + 1", sizes["batch"] + 1);
    if (is_scale(row) && spec.scale_per == ScaleKind::head && tensor.rank != 1) {
      refuse(row.name,
             fmt::format("has {} dimensions; it must be (1) or (heads_kv), which are read, or (pages, "
                         "page_size, heads_kv), where a scale is written for each row",
                         tensor.rank));
    }
    const DType dtype = row.dtype(spec);
    const int alignment = row.has_aligned_rows ? row_alignment(spec, dtype) : 0;
    sizes.check({row.name, dims_of(spec, row, tensor, is_dense), dtype, alignment}, tensor);
  }
  check_dense_numbers("k_block_scales", arguments.k_block_scales, last_dimension);
  check_dense_numbers("v_block_scales", arguments.v_block_scales, last_dimension);
  if (has_latents) check_latent_rows(spec.stored_dtype(), "k_cache", arguments.k_cache);
  if (has_latents && sizes["heads_kv"] != 1)
    refuse("k", fmt::format("has {} heads; latents are of one", sizes["heads_kv"]));
  if (spec.scale_per == ScaleKind::head) {
    check_dense_numbers("k_scale", arguments.k_scale);
    check_dense_numbers("v_scale", arguments.v_scale);
  }
  check_dense_numbers("slot_mapping", arguments.slot_mapping);
  check_dense_numbers("seqused_k", arguments.seqused_k);
  check_dense_numbers("cu_seqlens_q", arguments.cu_seqlens_q);
  check_dense_numbers("page_table", arguments.page_table, 1);
  check_dense_numbers("positions", arguments.positions, spec.has_sections() ? 1 : 0);
  if (sizes["page_size"] == 0)
    refuse("k_cache", fmt::format("has pages of no token: {}", arguments.k_cache.to_string()));
  if (arguments.seqused_k.is_present() && !arguments.page_table.is_present() &&
      sizes["pages"] != sizes["batch"]) {
    refuse("k_cache", fmt::format("has {} batch entries and seqused_k {}; give a page_table, or as many",
                                  sizes["pages"], sizes["batch"]));
  }
  return sizes;
}

bool writes(const AppendSpec& spec, const AppendArguments& arguments, const AppendRow& row) {
  const bool in_place = arguments.q.is_present() && !arguments.q_out.is_present();
  return row.is_output || (in_place && row.view == &AppendArguments::q) ||
         (is_scale(row) && spec.scale_per == ScaleKind::token);
}

// Checks that outputs overlap neither other tensors nor themselves.
void check_outputs(const AppendSpec& spec, const AppendArguments& arguments) {
  std::array<ByteRange, append_table.size()> ranges;
  for (std::size_t i = 0; i < ranges.size(); ++i) ranges[i] = byte_range(arguments.*append_table[i].view);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const AppendRow& output = append_table[i];
    const TensorView& written = arguments.*output.view;
    if (!writes(spec, arguments, output) || !written.is_present()) continue;
    check_no_self_overlap(output.name, written);
    for (std::size_t j = 0; j < ranges.size(); ++j) {
      if (i == j || !ranges[i].meets(ranges[j])) continue;
      const AppendRow& other = append_table[j];
      const TensorView& tensor = arguments.*other.view;
      const bool is_own_input = output.view == &AppendArguments::q_out && other.view == &AppendArguments::q;
      if (is_own_input && is_same_view(written, tensor)) continue;
      check_no_overlap(output.name, written, other.name, tensor);
    }
  }
}

// Strides of scales between pages, slots and heads.
TensorStrides scale_strides(const AppendSpec& spec, const TensorView& scales) {
  if (!scales.is_present()) return {};
  if (spec.scale_per == ScaleKind::head) return {.batch = 0, .seq = 0, .head = stride_along(scales, 0)};
  return {.batch = stride_along(scales, 0), .seq = stride_along(scales, 1), .head = stride_along(scales, 2)};
}

// Address of the sines in a table whose rows hold cosines, then sines.
const void* right_half(const AppendSpec& spec, const TensorView& cos_sin) {
  if (!cos_sin.is_present()) return nullptr;
  return static_cast<const std::byte*>(cos_sin.data) + spec.rotary_dim / 2 * size_of(spec.cos_sin_dtype);
}

template <class T>
const T* array_of(const TensorView& tensor) {
  return tensor.is_present() ? static_cast<const T*>(tensor.data) : nullptr;
}

}  // namespace

KnownAppend::KnownAppend(const AppendSpec& spec, const AppendArguments& arguments,
                         const BlockAppendParams& filled)
    : tensors(arguments, [&](const AppendRow& row) { return writes(spec, arguments, row); }),
      params(filled) {}

void set_pointers(const AppendSpec& spec, const AppendArguments& arguments, BlockAppendParams& params) {
  const bool in_two = arguments.cos.is_present();
  params.k = arguments.k.data;
  params.v = arguments.v.data;
  params.q = arguments.q.data;
  params.q_out = arguments.q_out.is_present() ? arguments.q_out.data : arguments.q.data;
  params.k_cache = arguments.k_cache.data;
  params.v_cache = arguments.v_cache.data;
  params.slot_mapping = array_of<long long>(arguments.slot_mapping);
  params.page_table = array_of<int>(arguments.page_table);
  params.seqused_k = array_of<int>(arguments.seqused_k);
  params.cu_seqlens_q = array_of<int>(arguments.cu_seqlens_q);
  params.positions = array_of<long long>(arguments.positions);
  params.cos = in_two ? arguments.cos.data : arguments.cos_sin.data;
  params.sin = in_two ? arguments.sin.data : right_half(spec, arguments.cos_sin);
  params.q_norm_weight = arguments.q_norm_weight.data;
  params.k_norm_weight = arguments.k_norm_weight.data;
  params.k_scale = static_cast<float*>(arguments.k_scale.data);
  params.v_scale = static_cast<float*>(arguments.v_scale.data);
  params.k_blocks = static_cast<unsigned char*>(arguments.k_block_scales.data);
  params.v_blocks = static_cast<unsigned char*>(arguments.v_block_scales.data);
}

bool fill_params(const AppendSpec& spec, const AppendArguments& arguments, BlockAppendParams& params) {
  check_presence(spec, arguments);
  const CallSizes sizes = check_tensors(spec, arguments);
  check_outputs(spec, arguments);

  const bool is_dense = arguments.k.rank == 4, by_slot = arguments.slot_mapping.is_present();
  const TensorView& q_out = arguments.q_out.is_present() ? arguments.q_out : arguments.q;
  const std::int64_t seqlen = sizes[is_dense ? "seqlen" : "tokens"];
  const std::int64_t tokens = is_dense ? sizes["batch"] * seqlen : seqlen;
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 65536;
  if (tokens > most) refuse("k", fmt::format("has {} tokens; at most {} fit", tokens, most));
  const std::int64_t rows = sizes["heads_q"] + 2 * sizes["heads_kv"];
  if (rows > most) refuse("k", fmt::format("and q have {} heads; at most {} fit", rows, most));
  const auto number = [&](const char* name) { return static_cast<int>(sizes[name]); };
  const auto strides_of = [](const TensorView& tensor) {
    return tensor.is_present() ? row_strides(tensor) : TensorStrides{};
  };
  const auto first_stride = [](const TensorView& tensor) {
    return tensor.is_present() ? stride_along(tensor, 0) : 0;
  };
  const bool in_two = arguments.cos.is_present();
  const TensorView& cosines = in_two ? arguments.cos : arguments.cos_sin;
  params = {};
  params.k_strides = strides_of(arguments.k);
  params.v_strides = strides_of(arguments.v);
  params.q_strides = strides_of(arguments.q);
  params.q_out_strides = strides_of(q_out);
  params.k_cache_strides = strides_of(arguments.k_cache);
  params.v_cache_strides = strides_of(arguments.v_cache);
  if (spec.stored_dtype() == DType::latent_584) params.k_cache_strides.seq = latent_row_in_page;
  params.k_scale_strides = scale_strides(spec, arguments.k_scale);
  params.v_scale_strides = scale_strides(spec, arguments.v_scale);
  params.k_blocks_strides = strides_of(arguments.k_block_scales);
  params.v_blocks_strides = strides_of(arguments.v_block_scales);
  params.page_table_stride = first_stride(arguments.page_table);
  params.positions_stride = spec.has_sections() ? first_stride(arguments.positions) : 0;
  params.cos_stride = first_stride(cosines);
  params.sin_stride = first_stride(in_two ? arguments.sin : cosines);
  params.tokens = static_cast<int>(tokens);
  params.seqlen = static_cast<int>(seqlen);
  params.requests = by_slot ? 0 : number("batch");
  params.heads_q = arguments.q.is_present() ? number("heads_q") : 0;
  params.heads_kv = number("heads_kv");
  params.pages = number("pages");
  params.page_size = number("page_size");
  params.max_pages = arguments.page_table.is_present() ? number("max_pages") : 1;
  params.max_pos = number("max_pos");
  params.rows_per_block = 0;
  params.norm_eps = spec.norm_eps;
  set_pointers(spec, arguments, params);
  return tokens > 0 && rows > 0;
}

}  // namespace jit
