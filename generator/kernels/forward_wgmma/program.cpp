#include <utility>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/kernels/converted_scales.h"
#include "generator/kernels/forward_wgmma/family.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "generator/program/wgmma_source.h"
#include "templates/base/element.cuh"
#include "templates/forward_wgmma/smem_layout.cuh"
#include "templates/mainloop/tensor_maps.cuh"

namespace jit {
namespace {

// The kernel's products, in the base class of its Config.
SourceFile wgmma_products(const AttentionSpec& spec, const ForwardWgmma& config) {
  const int mma_k = facts(spec.dtype).mma_k, columns = padded_head_dim(spec.value_head_dim());
  const int sums = forward_wgmma::sum_columns_of(spec, config);
  std::string text;
  const DType multiplied = forward_wgmma::upcasts(spec, config) && !has_converted_scales(spec)
                               ? DType::fp16  // represents every 8-bit number
                               : spec.dtype;
  text += wgmma_function(
      "wgmma_qk", "D = A B: 64 rows of Q, tile_kv rows of K.",
      {.dtype = multiplied, .n = config.tile_kv, .steps = padded_head_dim(spec.head_dim, mma_k) / mma_k});
  WgmmaProduct pv{.dtype = multiplied,
                  .n = columns + sums,
                  .steps = config.tile_kv / mma_k,
                  .accumulate = true,
                  .a_in_registers = true,
                  .b_along_rows = !has_fp8_queries(spec),
                  .sum_columns = sums};
  if (has_narrow_keys(spec)) pv.columns_at_once = forward_wgmma::output_columns_at_once(spec, config);
  if (has_fp8_queries(spec))
    pv.a_dtype = DType::fp8_e4m3;  // P needs three mantissa bits, but not e5m2's range
  text += wgmma_function("wgmma_pv", "D += A B: tile_kv columns of P, tile_kv rows of V.", pv);
  pv.steps = forward_wgmma::lower_key_steps(config.tile_kv, mma_k);
  text += wgmma_function("wgmma_pv_lower", "The same without the upper half of the keys.", pv);
  return wgmma_products_file(text);
}

}  // namespace

Program Family<ForwardWgmma>::program(const AttentionSpec& stored, const ForwardWgmma& config) {
  const AttentionSpec spec = forward_wgmma::read_spec(stored, config);
  const AttentionSpec& sized = config.upcast_ahead ? spec : stored;  // what buffers and registers are for
  const FunctorSource functors = functor_source(spec);
  const forward_wgmma::RegisterShares shares = forward_wgmma::register_shares(sized, config);
  Program program;
  program.headers = {wgmma_products(sized, config)};
  const Footprint needs = footprint(sized, config);
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.name = fmt::format("attention_forward_wgmma_{}_q{}kv{}k{}v{}", problem_name(stored), config.tile_q,
                             config.tile_kv, config.stages_k, config.stages_v);

  std::string& source = program.source;
  source = fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n",
                       to_string(stored));
  source += "#include \"forward_wgmma/kernel.cuh\"\n#include \"wgmma_products.cuh\"\n";
  if (config.upcast_ahead) source += upcast_keys_include;
  if (config.dropout_mask_ahead) source += dropout_mask_include;
  source += "\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config : WgmmaProducts {\n" + spec_lines(spec, functors) + config_lines(fields(), config);
  if (forward_wgmma::upcasts(stored, config)) source += converted_scales_line(stored);
  source += fmt::format(
      "  static constexpr bool descending = {};  // tiles of keys go from the last one to the first\n",
      forward_wgmma::goes_down(spec));
  source +=
      fmt::format("  static constexpr bool sums_by_products = {};  // sums of P are a product with ones\n",
                  forward_wgmma::has_sums_by_products(spec, config));
  source += number_line("interpolated_exp2", forward_wgmma::interpolated_exponentials(spec),
                        "interpolated exponentials of 8, where nothing else is lost");
  source += number_line("producer_registers", shares.producer,
                        "registers per producer thread after setmaxnreg; 0: as launched");
  source +=
      number_line("consumer_registers", shares.consumer, "registers per consumer thread after setmaxnreg");
  if (has_narrow_keys(spec)) {
    source += number_line("converter_registers", shares.converter,
                          "the same for those who transpose values, or upcast keys and values");
  }
  source += "};\n";
  source += params_assertion() + functors.assertions;
  const bool plain = is_plain(spec), has_spans = spec.split_keys != 0;
  const auto [maps, maps_bytes] =
      plain ? std::pair("TensorMaps", sizeof(TensorMaps)) : std::pair("SequenceMaps", sizeof(SequenceMaps));
  source += fmt::format(
      "static_assert(sizeof({}) == {}, "
      "\"host and device disagree on the tensor maps\");\n"
      "static_assert(forward_wgmma::KernelTraits<Config>::layout.total == {}, "
      "\"host and device disagree on shared memory\");\n\n",
      maps, maps_bytes, program.smem_bytes);
  source += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__(forward_wgmma::KernelTraits<Config>::threads, "
      "Config::blocks_per_sm)\n"
      "{}(const __grid_constant__ AttentionParams params, "
      "const __grid_constant__ {} maps{}) {{\n"
      "  forward_wgmma::attention_forward<Config>(params, maps{});\n}}\n",
      program.name, maps, has_spans ? ", const __grid_constant__ SpanMemory spans" : "",
      has_spans ? ", spans" : "");
  if (config.upcast_ahead) {
    program.ahead = upcast_keys_name(program.name);
    source += upcast_keys_source(stored, functors, program.name);
  }
  if (config.dropout_mask_ahead) {
    program.ahead = dropout_mask_name(program.name);
    source += dropout_mask_source("QueriesByKeys", program.name);
  }
  return program;
}

}  // namespace jit
