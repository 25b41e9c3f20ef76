#include "append_binding.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <jit/append.h>
#include <jit/device.h>
#include <jit/dtype.h>

#include "argument_names.h"
#include "array.h"
#include "given.h"
#include "operation_call.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

constexpr int scales_of_rows = 3;  // rank of dynamic scales: pages, page_size, heads_kv

// The spec of the arrays themselves.
AppendSpec spec_of_arrays(const AppendArguments& a) {
  AppendSpec spec{.dtype = a.k.dtype, .cache_dtype = a.k_cache.dtype};
  spec.head_dim = small_size(a.k, a.k.rank - 1, "k");
  spec.head_dim_v = small_size(a.v, a.v.rank - 1, "v");
  if (a.cos_sin.is_present() || a.cos.is_present() || a.sin.is_present()) {
    const bool in_two = !a.cos_sin.is_present();
    const char* name = !in_two ? "cos_sin" : a.cos.is_present() ? "cos" : "sin";
    const TensorView& table = !in_two ? a.cos_sin : a.cos.is_present() ? a.cos : a.sin;
    spec.rotary_dim = small_size(table, 1, name) * (in_two ? 2 : 1);
    spec.cos_sin_dtype = table.dtype;
    if (spec.rotary_dim == 0) refuse(name, "has rows of 0 elements; leave it out, and nothing is rotated");
  }
  const DTypeFacts& stored = facts(a.k_cache.dtype);
  const bool has_scales_of_rows = a.k_scale.rank == scales_of_rows || a.v_scale.rank == scales_of_rows;
  if (has_scales_of_rows && stored.is_stored()) spec.scale_per = ScaleKind::token;
  spec.norm = a.k_norm_weight.is_present();
  if (spec.norm) spec.norm_dtype = a.k_norm_weight.dtype;
  // Packed rows need no alignment.
  const bool begins_anywhere = stored.numbers > 1 || stored.row_bytes != 0;
  const int of_caches =
      begins_anywhere ? 16 : common_alignment({&a.k_cache, &a.v_cache}) * (stored.is_stored() ? 2 : 1);
  const int of_others = common_alignment(
      {&a.k, &a.v, &a.q, &a.q_out, &a.cos_sin, &a.cos, &a.sin, &a.q_norm_weight, &a.k_norm_weight});
  spec.alignment = std::max(2, std::min(of_caches, of_others));
  return spec;
}

// Rows of one head may be without its dimension.
void add_head(TensorView& view) {
  if (view.rank != 2) return;
  view.rank = 3;
  view.shape[2] = std::exchange(view.shape[1], 1);
  view.strides[2] = std::exchange(view.strides[1], view.shape[2]);
}

// Sets cache types that the arrays cannot express.
void name_caches(nb::handle cache_dtype, AppendArguments& arguments) {
  const std::optional<DType> meaning = stored_dtype_of(cache_dtype, "cache_dtype");
  if (!meaning) return;
  for (TensorView* cache : {&arguments.k_cache, &arguments.v_cache}) {
    if (cache->is_present() && cache->dtype == DType::uint8) cache->dtype = *meaning;
  }
  if (arguments.k_cache.dtype != *meaning)
    refuse("cache_dtype", fmt::format("is {}, but k_cache holds {}", to_string(*meaning),
                                      to_string(arguments.k_cache.dtype)));
}

// Scales of blocks are bytes, which arrays may call e4m3.
void write_block_scales(OperationCall& call, nb::handle of_k, nb::handle of_v, AppendArguments& arguments) {
  call.write(of_k, "k_block_scales", arguments.k_block_scales);
  call.write(of_v, "v_block_scales", arguments.v_block_scales);
  for (TensorView* scales : {&arguments.k_block_scales, &arguments.v_block_scales}) {
    if (scales->dtype == DType::fp8_e4m3) scales->dtype = DType::uint8;
  }
}

void launch(OperationCall& call, const AppendSpec& spec, AppendArguments& arguments) {
  const bool in_two = arguments.cos.is_present() || arguments.sin.is_present();
  try {
    call.stage([&] {
      validate(spec);
      check_arguments(spec, arguments);
    });
    call.launch([&](const Context& context) { append(spec, context)(arguments, call.stream()); });
  } catch (const Error& error) {
    throw renamed_field(error, {{"dtype", "k"},
                                {"cache_dtype", "k_cache"},
                                {"head_dim", "k"},
                                {"head_dim_v", "v"},
                                {"alignment", "k"},
                                {"scale_per", "k_scale"},
                                {"rotary_dim", in_two ? "cos" : "cos_sin"},
                                {"cos_sin_dtype", in_two ? "cos" : "cos_sin"},
                                {"norm", "k_norm_weight"},
                                {"norm_dtype", "k_norm_weight"}});
  }
}

// Refuses options of rotation and norm that have no effect.
void check_have_effect(const AppendSpec& spec) {
  const bool rotates = spec.rotary_dim > 0;
  const char* const no_table =
      "was given, and there is no cos_sin, nor cos and sin, to rotate by: leave it out";
  const char* const no_weight = "was given, and there is no k_norm_weight to normalize by: leave it out";
  if (spec.rotary_interleaved && !rotates) refuse("rotary_interleaved", no_table);
  if (spec.has_sections() && !rotates) refuse("mrope_sections", no_table);
  if (spec.mrope_interleaved && !spec.has_sections())
    refuse("mrope_interleaved", "was given without mrope_sections, which say how many pairs each axis has");
  if (spec.norm_adds_one && !spec.norm) refuse("norm_adds_one", no_weight);
  if (spec.norm_eps != AppendSpec{}.norm_eps && !spec.norm) refuse("norm_eps", no_weight);
}

// Hot path: engines' backends call this for each layer and step; see attend_to_pages.
void append_to_slots(nb::handle k, nb::handle v, nb::handle k_cache, nb::handle v_cache,
                     nb::handle slot_mapping, nb::handle cache_dtype, nb::handle k_scale, nb::handle v_scale,
                     nb::handle k_block_scales, nb::handle v_block_scales) {
  OperationCall call(k, "k", Py_None, std::nullopt);
  AppendArguments arguments;
  call.read(k, "k", arguments.k);
  call.read(v, "v", arguments.v);
  call.write(k_cache, "k_cache", arguments.k_cache);
  call.write(v_cache, "v_cache", arguments.v_cache);
  call.read(slot_mapping, "slot_mapping", arguments.slot_mapping);
  call.read_or_write(k_scale, "k_scale", arguments.k_scale, scales_of_rows);
  call.read_or_write(v_scale, "v_scale", arguments.v_scale, scales_of_rows);
  write_block_scales(call, k_block_scales, v_block_scales, arguments);
  for (TensorView* rows : {&arguments.k, &arguments.v}) {
    add_head(*rows);
    if (arguments.slot_mapping.rank == 1) keep_first(*rows, arguments.slot_mapping.shape[0]);
  }
  name_caches(cache_dtype, arguments);
  launch(call, spec_of_arrays(arguments), arguments);
}

nb::object append_arrays(nb::handle k, nb::handle v, nb::handle k_cache, nb::handle v_cache,
                         nb::handle slot_mapping, nb::handle seqused_k, nb::handle cu_seqlens_q,
                         nb::handle page_table, nb::handle q, nb::handle q_out, nb::handle cos_sin,
                         nb::handle cos, nb::handle sin, nb::handle positions, bool rotary_interleaved,
                         std::optional<std::array<int, 3>> mrope_sections, bool mrope_interleaved,
                         nb::handle q_norm_weight, nb::handle k_norm_weight, float norm_eps,
                         bool norm_adds_one, nb::handle k_scale, nb::handle v_scale,
                         nb::handle k_block_scales, nb::handle v_block_scales, nb::handle cache_dtype,
                         nb::handle dtype, nb::handle stream) {
  OperationCall call(k, "k", stream, dtype_of(dtype, "dtype"));
  AppendArguments arguments;
  const bool in_place = q_out.is_none();
  call.read(k, "k", arguments.k);
  call.read(v, "v", arguments.v);
  call.write(k_cache, "k_cache", arguments.k_cache);
  call.write(v_cache, "v_cache", arguments.v_cache);
  call.read(slot_mapping, "slot_mapping", arguments.slot_mapping);
  call.read(seqused_k, "seqused_k", arguments.seqused_k);
  call.read(cu_seqlens_q, "cu_seqlens_q", arguments.cu_seqlens_q);
  call.read(page_table, "page_table", arguments.page_table);
  if (in_place) {
    call.write(q, "q", arguments.q);
  } else {
    call.read(q, "q", arguments.q);
  }
  call.write(q_out, "q_out", arguments.q_out);
  call.read(cos_sin, "cos_sin", arguments.cos_sin);
  call.read(cos, "cos", arguments.cos);
  call.read(sin, "sin", arguments.sin);
  call.read(positions, "positions", arguments.positions);
  call.read(q_norm_weight, "q_norm_weight", arguments.q_norm_weight);
  call.read(k_norm_weight, "k_norm_weight", arguments.k_norm_weight);
  call.read_or_write(k_scale, "k_scale", arguments.k_scale, scales_of_rows);
  call.read_or_write(v_scale, "v_scale", arguments.v_scale, scales_of_rows);
  write_block_scales(call, k_block_scales, v_block_scales, arguments);
  name_caches(cache_dtype, arguments);
  AppendSpec spec = spec_of_arrays(arguments);
  spec.rotary_interleaved = rotary_interleaved;
  spec.mrope_sections = mrope_sections.value_or(std::array<int, 3>{});
  spec.mrope_interleaved = mrope_interleaved;
  spec.norm_eps = norm_eps;
  spec.norm_adds_one = norm_adds_one;
  check_have_effect(spec);
  call.check_dtype(arguments.k, "k");
  launch(call, spec, arguments);
  return nb::borrow(in_place ? q : q_out);
}

}  // namespace

void bind_append(nb::module_& module) {
  define(module, "_append_to_slots", append_to_slots, "k"_a, "v"_a, "k_cache"_a, "v_cache"_a,
         "slot_mapping"_a, "cache_dtype"_a.none(), "k_scale"_a.none(), "v_scale"_a.none(),
         "k_block_scales"_a = nb::none(), "v_block_scales"_a = nb::none(),
         "`append` of as many rows as there are slots; those of one head may be without its dimension.");
  define(module, "append", append_arrays, "k"_a, "v"_a, "k_cache"_a, "v_cache"_a, nb::kw_only(),
         "slot_mapping"_a = nb::none(), "seqused_k"_a = nb::none(), "cu_seqlens_q"_a = nb::none(),
         "page_table"_a = nb::none(), "q"_a = nb::none(), "q_out"_a = nb::none(), "cos_sin"_a = nb::none(),
         "cos"_a = nb::none(), "sin"_a = nb::none(), "positions"_a = nb::none(),
         "rotary_interleaved"_a = false, "mrope_sections"_a = nb::none(), "mrope_interleaved"_a = false,
         "q_norm_weight"_a = nb::none(), "k_norm_weight"_a = nb::none(), "norm_eps"_a = 1e-6f,
         "norm_adds_one"_a = false, "k_scale"_a = nb::none(), "v_scale"_a = nb::none(),
         "k_block_scales"_a = nb::none(), "v_block_scales"_a = nb::none(), "cache_dtype"_a = nb::none(),
         "dtype"_a = nb::none(), "stream"_a = nb::none());
}

}  // namespace jit::python
