// q, k and v of 8 bits that `run` reads as bytes, with their scales, or makes on the device of what it reads.
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

/// Reads those that are given, and says so in `spec`.
Fp8Scales read_scales(const Fp8Options& options, AttentionSpec& spec);

/// Operands that are quantized before attention reads them.
struct Quantizer {
  QuantizeSpec spec;
  Array q, k, v;  ///< as they were read
  std::uint64_t rotation_seed = 0;
};

/// Takes q, k and v, of float32 or float16, in whose places there are elements of spec.dtype then, for the quantizer to write,
/// as there are scales for it. What it takes away `spec` has given back. Throws Error.
Quantizer make_quantizer(const Fp8Options& options, Array& q, Array& k, Array& v, Fp8Scales& scales,
                         AttentionSpec& spec);

QuantizeArguments quantize_arguments(Quantizer& quantizer, Array& q, Array& k, Array& v, Fp8Scales& scales,
                                     const Place& place);

}  // namespace jit::tool
