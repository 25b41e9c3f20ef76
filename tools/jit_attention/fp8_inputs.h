// 8-bit q, k and v with scales: `run` reads them as bytes, or quantizes its inputs on the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <jit/quantize.h>
#include <jit/spec.h>

#include "array.h"
#include "block_map.h"
#include "quantize_options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

struct Fp8Options {
  std::string q_descale, k_descale, v_descale, v_mean, lse_shift;  ///< paths; empty: not given
  QuantizeOptions quantize;
  std::optional<std::uint64_t> rotation_seed;
};
void add_fp8_options(CLI::App& app, Fp8Options& options);

/// The paths of all files that are read.
std::vector<std::string> input_files(const Fp8Options& options);

/// Scales of the elements, and the means that k and v have lost. An array without dimensions is absent.
struct Fp8Scales {
  Array q_descale, k_descale, v_descale, v_mean, lse_shift;
};

/// Reads the given ones, and sets the fields of `spec` for them.
Fp8Scales read_scales(const Fp8Options& options, AttentionSpec& spec);

/// Operands that are quantized before attention reads them.
struct Quantizer {
  QuantizeSpec spec;
  Array q, k, v;  ///< as read
  std::uint64_t rotation_seed = 0;
};

/// Takes float32 or float16 q, k and v, and replaces them by outputs of spec.dtype that the quantizer writes,
/// like their scales. `spec` then adds back subtracted means. Throws Error.
Quantizer make_quantizer(const Fp8Options& options, Array& q, Array& k, Array& v, Fp8Scales& scales,
                         AttentionSpec& spec);

QuantizeArguments quantize_arguments(Quantizer& quantizer, Array& q, Array& k, Array& v, Fp8Scales& scales,
                                     const Place& place);

}  // namespace jit::tool
