#include "fp8_inputs.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command.h"
#include "npy.h"
#include "number_options.h"

namespace jit::tool {
namespace {

// The shape of the scales of rows (…, tokens, heads, columns).
std::vector<std::int64_t> scale_shape(QuantizedScales scales, const Array& rows, std::int64_t heads_kv) {
  const std::size_t rank = rows.shape.size();
  const std::int64_t tokens = rows.shape[rank - 3], heads = rows.shape[rank - 2];
  std::vector<std::int64_t> shape(rows.shape.begin(), rows.shape.end() - 3);
  if (scales == QuantizedScales::token || scales == QuantizedScales::block) {
    const bool is_block = scales == QuantizedScales::block;
    shape.insert(shape.end(),
                 {is_block ? (tokens + scale_block_rows - 1) / scale_block_rows : tokens, heads});
    return shape;
  }
  shape.push_back(heads_kv);
  if (scales == QuantizedScales::channel) shape.push_back(rows.shape.back());
  return shape;
}

}  // namespace

void add_fp8_options(CLI::App& app, Fp8Options& options) {
  const auto add_file = [&](const char* name, std::string& path, const char* text) {
    app.add_option(name, path, text)->check(must_not_be_empty);
  };
  add_file("--q-descale", options.q_descale, "File of the scales of FP8 --q, in the shapes of --k-descale");
  add_file("--k-descale", options.k_descale,
           "File of what --k of fp8 is multiplied by: (1), (heads), (batch, heads), or with "
           "--descale-per token a number for each row, as --k without head_dim");
  add_file("--v-descale", options.v_descale, "File of the scales of FP8 --v, in the shapes of --k-descale");
  add_file(
      "--v-mean", options.v_mean,
      "File of the means subtracted from FP8 --v, (batch, heads, head_dim); they are added to the output");
  add_file("--lse-shift", options.lse_shift,
           "File of the numbers to add to LSE, divided by softmax_scale, in the shape of LSE");
  add_quantize_options(app, options.quantize,
                       "Quantize --q, --k and --v to FP8 on the device, with a scale of --q and --k for each "
                       "head, token or block (of 64 rows)");
  add_whole_option(app, "--rotation-seed", options.rotation_seed,
                   "With --quantize: rotate --q and --k by a Hadamard matrix with random signs of this seed")
      ->needs(app.get_option("--quantize"));
}

std::vector<std::string> input_files(const Fp8Options& options) {
  std::vector<std::string> paths;
  for (const std::string* path :
       {&options.q_descale, &options.k_descale, &options.v_descale, &options.v_mean, &options.lse_shift})
    if (!path->empty()) paths.push_back(*path);
  return paths;
}

Fp8Scales read_scales(const Fp8Options& options, AttentionSpec& spec) {
  Fp8Scales scales;
  for (const auto& [array, path] : {std::pair{&scales.q_descale, &options.q_descale},
                                    {&scales.k_descale, &options.k_descale},
                                    {&scales.v_descale, &options.v_descale},
                                    {&scales.v_mean, &options.v_mean},
                                    {&scales.lse_shift, &options.lse_shift}}) {
    if (path->empty()) continue;
    if (options.quantize.scales)
      throw BadInput(*path + " holds what --quantize finds by itself; leave one of the two out");
    *array = convert(read_npy(*path), DType::fp32, *path);
  }
  spec.v_mean = !options.v_mean.empty();
  spec.lse_shift = !options.lse_shift.empty();
  return scales;
}

Quantizer make_quantizer(const Fp8Options& options, Array& q, Array& k, Array& v, Fp8Scales& scales,
                         AttentionSpec& spec) {
  const auto& [scales_of_rows, value_scales, center_keys, center_values] = options.quantize;
  apply(options.quantize, spec);
  spec.lse_shift = center_keys;
  const DType dtype = q.dtype;
  Quantizer quantizer{.spec = {.dtype = dtype,
                               .out_dtype = spec.dtype,
                               .head_dim = spec.head_dim,
                               .head_dim_v = spec.value_head_dim(),
                               .scales = *scales_of_rows,
                               .value_scales = value_scales,
                               .rotate = options.rotation_seed.has_value(),
                               .center_keys = center_keys,
                               .center_values = center_values},
                      .q = std::move(q),
                      .k = convert(std::move(k), dtype, "--k"),
                      .v = convert(std::move(v), dtype, "--v"),
                      .rotation_seed = options.rotation_seed.value_or(0)};
  validate(quantizer.spec);
  q = zeros(spec.dtype, quantizer.q.shape);
  k = zeros(spec.dtype, quantizer.k.shape);
  v = zeros(spec.dtype, quantizer.v.shape);
  const std::int64_t heads_kv = k.shape.end()[-2];
  scales.q_descale = zeros(DType::fp32, scale_shape(*scales_of_rows, q, heads_kv));
  scales.k_descale = zeros(DType::fp32, scale_shape(*scales_of_rows, k, heads_kv));
  scales.v_descale = zeros(DType::fp32, scale_shape(value_scales, v, heads_kv));
  if (center_values) scales.v_mean = zeros(DType::fp32, scale_shape(QuantizedScales::channel, v, heads_kv));
  if (center_keys) {
    std::vector<std::int64_t> shape(q.shape.begin(), q.shape.end() - 1);
    std::swap(shape.end()[-1], shape.end()[-2]);
    scales.lse_shift = zeros(DType::fp32, shape);
  }
  return quantizer;
}

QuantizeArguments quantize_arguments(Quantizer& quantizer, Array& q, Array& k, Array& v, Fp8Scales& scales,
                                     const Place& place) {
  const auto placed = [&](Array& array) {
    return array.shape.empty() ? TensorView() : view(array, place(array));
  };
  return {.q = placed(quantizer.q),
          .k = placed(quantizer.k),
          .v = placed(quantizer.v),
          .q_out = placed(q),
          .k_out = placed(k),
          .v_out = placed(v),
          .q_descale = placed(scales.q_descale),
          .k_descale = placed(scales.k_descale),
          .v_descale = placed(scales.v_descale),
          .v_mean = placed(scales.v_mean),
          .lse_shift = placed(scales.lse_shift),
          .rotation_seed = quantizer.rotation_seed};
}

}  // namespace jit::tool
