#include "quantize_binding.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/dtype.h>
#include <jit/quantize.h>

#include "argument_names.h"
#include "array.h"
#include "given.h"
#include "operation_call.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;
using Shape = std::vector<std::int64_t>;

QuantizedScales scales_named(const std::string& text, const char* argument) {
  try {
    return parse_quantized_scales(text);
  } catch (const Error& error) {
    refuse(argument, error.message());
  }
}

// The shape (batch, seqlen, heads, columns), or without batch, with other sizes after the batch.
Shape beside(const TensorView& rows, std::initializer_list<std::int64_t> sizes) {
  Shape shape;
  if (rows.rank == 4) shape.push_back(rows.shape[0]);
  shape.insert(shape.end(), sizes);
  return shape;
}
std::int64_t size_behind_batch(const TensorView& rows, int dimension) {
  return rows.shape[rows.rank == 4 ? dimension + 1 : dimension];
}
Shape scale_shape(QuantizedScales scales, const TensorView& rows, std::int64_t heads_kv) {
  if (scales == QuantizedScales::token)
    return beside(rows, {size_behind_batch(rows, 0), size_behind_batch(rows, 1)});
  if (scales == QuantizedScales::block) {
    const std::int64_t tokens = size_behind_batch(rows, 0);
    return beside(rows, {(tokens + scale_block_rows - 1) / scale_block_rows, size_behind_batch(rows, 1)});
  }
  if (scales == QuantizedScales::channel) return beside(rows, {heads_kv, rows.shape[rows.rank - 1]});
  return beside(rows, {heads_kv});
}

// An output: the caller's array, or a new one.
class Result {
 public:
  Result(OperationCall& call, nb::handle given, const char* name, TensorView& view)
      : call_(call), given_(given) {
    call.write(given, name, view);
  }
  bool is_given() const { return !given_.is_none(); }
  void make(DType dtype, const Shape& shape, TensorView& view) {
    if (!is_given()) number_ = call_.make(dtype, shape, view);
  }
  nb::object object() const { return number_ ? call_.result(*number_) : nb::borrow(given_); }

 private:
  OperationCall& call_;
  nb::handle given_;
  std::optional<std::size_t> number_;
};

nb::tuple quantize_arrays(nb::handle q, nb::handle k, nb::handle v, nb::handle q_out, nb::handle k_out,
                          nb::handle v_out, nb::handle q_descale, nb::handle k_descale, nb::handle v_descale,
                          nb::handle out_dtype, const std::string& scales, const std::string& value_scales,
                          std::optional<std::uint64_t> rotation_seed, bool center_keys, bool center_values,
                          bool return_lse_shift, nb::handle cu_seqlens_q, nb::handle cu_seqlens_k,
                          nb::handle seqused_q, nb::handle seqused_k, nb::handle cos_sin,
                          nb::handle q_positions, nb::handle k_positions, bool rotary_interleaved,
                          nb::handle q_norm_weight, nb::handle k_norm_weight, float norm_eps,
                          bool norm_adds_one, std::optional<bool> keep_rows, nb::handle dtype,
                          nb::handle stream) {
  OperationCall call(q, "q", stream, dtype_of(dtype, "dtype"));
  QuantizeArguments arguments;
  call.read(q, "q", arguments.q);
  call.read(k, "k", arguments.k);
  call.read(v, "v", arguments.v);
  for (const auto& [view, name] : {std::pair{&arguments.q, "q"}, {&arguments.k, "k"}, {&arguments.v, "v"}}) {
    if (view->rank != 3 && view->rank != 4)
      refuse(name,
             fmt::format("has {} dimensions; it must be (batch, seqlen, heads, head_dim) or (tokens, heads, "
                         "head_dim)",
                         view->rank));
  }
  QuantizeSpec spec{.dtype = arguments.q.dtype,
                    .head_dim = small_size(arguments.q, arguments.q.rank - 1, "q"),
                    .head_dim_v = small_size(arguments.v, arguments.v.rank - 1, "v"),
                    .scales = scales_named(scales, "scales"),
                    .value_scales = scales_named(value_scales, "value_scales"),
                    .rotate = rotation_seed.has_value(),
                    .center_keys = center_keys,
                    .center_values = center_values};
  spec.out_dtype = fp8_dtype_of(out_dtype, "out_dtype").value_or(DType::fp8_e4m3);
  arguments.rotation_seed = rotation_seed.value_or(0);
  if (keep_rows) spec.keep_rows = *keep_rows ? KeepRows::always : KeepRows::never;
  call.read(cu_seqlens_q, "cu_seqlens_q", arguments.cu_seqlens_q);
  call.read(cu_seqlens_k, "cu_seqlens_k", arguments.cu_seqlens_k);
  call.read(seqused_q, "seqused_q", arguments.seqused_q);
  call.read(seqused_k, "seqused_k", arguments.seqused_k);
  spec.sequences = sequences_of(arguments);
  call.read(cos_sin, "cos_sin", arguments.cos_sin);
  call.read(q_positions, "q_positions", arguments.q_positions);
  call.read(k_positions, "k_positions", arguments.k_positions);
  call.read(q_norm_weight, "q_norm_weight", arguments.q_norm_weight);
  call.read(k_norm_weight, "k_norm_weight", arguments.k_norm_weight);
  if (arguments.cos_sin.is_present()) {
    spec.rotary_dim = small_size(arguments.cos_sin, 1, "cos_sin");
    spec.cos_sin_dtype = arguments.cos_sin.dtype;
    if (spec.rotary_dim == 0)
      refuse("cos_sin", "has rows of 0 elements; leave it out, and nothing is rotated");
  }
  spec.rotary_interleaved = rotary_interleaved;
  spec.norm = arguments.k_norm_weight.is_present() || arguments.q_norm_weight.is_present();
  if (spec.norm)
    spec.norm_dtype =
        (arguments.k_norm_weight.is_present() ? arguments.k_norm_weight : arguments.q_norm_weight).dtype;
  spec.norm_eps = norm_eps;
  spec.norm_adds_one = norm_adds_one;
  if (spec.rotary_interleaved && spec.rotary_dim == 0)
    refuse("rotary_interleaved", "was given, and there is no cos_sin to rotate by: leave it out");
  const char* const no_weight =
      "was given, and there is no q_norm_weight or k_norm_weight to normalize by: leave it out";
  if (spec.norm_adds_one && !spec.norm) refuse("norm_adds_one", no_weight);
  if (spec.norm_eps != QuantizeSpec{}.norm_eps && !spec.norm) refuse("norm_eps", no_weight);
  call.check_dtype(arguments.q, "q");
  if (return_lse_shift && !center_keys)
    refuse("return_lse_shift", "must be False where center_keys is False");

  struct Rows {
    TensorView QuantizeArguments::*from;
    TensorView QuantizeArguments::*to;
    TensorView QuantizeArguments::*descale;
    nb::handle given, given_scale;
    const char *name, *scale_name;
    QuantizedScales scales;
  };
  using A = QuantizeArguments;
  const std::int64_t heads_kv = size_behind_batch(arguments.k, 1);
  std::vector<Result> made;
  made.reserve(9);  // keeps addresses valid
  for (const Rows& row :
       {Rows{&A::q, &A::q_out, &A::q_descale, q_out, q_descale, "q_out", "q_descale", spec.scales},
        Rows{&A::k, &A::k_out, &A::k_descale, k_out, k_descale, "k_out", "k_descale", spec.scales},
        Rows{&A::v, &A::v_out, &A::v_descale, v_out, v_descale, "v_out", "v_descale", spec.value_scales}}) {
    const TensorView& from = arguments.*row.from;
    TensorView &to = arguments.*row.to, &descale = arguments.*row.descale;
    Result& rows = made.emplace_back(call, row.given, row.name, to);
    if (rows.is_given() && to.dtype == DType::uint8) to.dtype = spec.out_dtype;
    rows.make(spec.out_dtype, Shape(from.shape, from.shape + from.rank), to);
    if (row.scales == QuantizedScales::given) {
      call.read(row.given_scale, row.scale_name, descale);
    } else {
      made.emplace_back(call, row.given_scale, row.scale_name, descale)
          .make(DType::fp32, scale_shape(row.scales, from, heads_kv), descale);
    }
  }
  const auto make_new = [&](bool is_wanted, const Shape& shape, TensorView& view) -> const Result* {
    if (!is_wanted) return nullptr;
    Result& result = made.emplace_back(call, nb::none(), "", view);
    result.make(DType::fp32, shape, view);
    return &result;
  };
  const Result* const k_mean =
      make_new(center_keys, beside(arguments.k, {heads_kv, spec.head_dim}), arguments.k_mean);
  const Result* const v_mean =
      make_new(center_values, beside(arguments.v, {heads_kv, spec.head_dim_v}), arguments.v_mean);
  const Result* const shift =
      make_new(return_lse_shift,
               beside(arguments.q, {size_behind_batch(arguments.q, 1), size_behind_batch(arguments.q, 0)}),
               arguments.lse_shift);
  const int of_results = common_alignment({&arguments.q_out, &arguments.k_out, &arguments.v_out});
  spec.alignment =
      std::max(2, std::min(common_alignment({&arguments.q, &arguments.k, &arguments.v, &arguments.cos_sin,
                                             &arguments.q_norm_weight, &arguments.k_norm_weight}),
                           of_results * size_of(spec.dtype)));
  try {
    call.stage([&] {
      validate(spec);
      check_arguments(spec, arguments);
    });
    call.launch([&](const Context& context) { quantize_qkv(spec, context)(arguments, call.stream()); });
  } catch (const Error& error) {
    throw renamed_field(error, {{"dtype", "q"},
                                {"head_dim", "q"},
                                {"head_dim_v", "v"},
                                {"alignment", "q"},
                                {"rotate", "rotation_seed"},
                                {"rotary_dim", "cos_sin"},
                                {"cos_sin_dtype", "cos_sin"},
                                {"norm", "k_norm_weight"},
                                {"norm_dtype", "k_norm_weight"},
                                {"sequences", "cu_seqlens_q"}});
  }
  std::size_t next = 0;
  const auto scale_result = [&](QuantizedScales kind, nb::handle given) {
    return kind == QuantizedScales::given ? nb::borrow(given) : made.at(next++).object();
  };
  nb::object rows[3], scale[3];
  const nb::handle given[3] = {q_descale, k_descale, v_descale};
  for (int i = 0; i < 3; ++i) {
    rows[i] = made.at(next++).object();
    scale[i] = scale_result(i == 2 ? spec.value_scales : spec.scales, given[i]);
  }
  const auto or_none = [](const Result* result) { return result != nullptr ? result->object() : nb::none(); };
  return nb::make_tuple(rows[0], rows[1], rows[2], scale[0], scale[1], scale[2], or_none(k_mean),
                        or_none(v_mean), or_none(shift));
}

}  // namespace

void bind_quantize(nb::module_& module) {
  define(module, "quantize_qkv", quantize_arrays, "q"_a, "k"_a, "v"_a, nb::kw_only(), "q_out"_a.none(),
         "k_out"_a.none(), "v_out"_a.none(), "q_descale"_a.none(), "k_descale"_a.none(), "v_descale"_a.none(),
         "out_dtype"_a.none(), "scales"_a, "value_scales"_a, "rotation_seed"_a.none(), "center_keys"_a,
         "center_values"_a, "return_lse_shift"_a, "cu_seqlens_q"_a.none(), "cu_seqlens_k"_a.none(),
         "seqused_q"_a.none(), "seqused_k"_a.none(), "cos_sin"_a.none(), "q_positions"_a.none(),
         "k_positions"_a.none(), "rotary_interleaved"_a, "q_norm_weight"_a.none(), "k_norm_weight"_a.none(),
         "norm_eps"_a, "norm_adds_one"_a, "keep_rows"_a.none(), "dtype"_a.none(), "stream"_a.none(),
         "jit_attention.quantize_qkv, with a plain tuple of its results.");
}

}  // namespace jit::python
