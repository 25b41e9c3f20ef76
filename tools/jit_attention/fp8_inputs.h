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

/// What elements are multiplied by, and what k and v have lost; an array without dimensions is not there.
struct Fp8Scales {
  Array q_descale, k_descale, v_descale, v_mean, lse_shift;
};

/// Reads those that are given, and says so in `spec`.
Fp8Scales read_scales(const Fp8Options& options, AttentionSpec& spec);

/// What is quantised before it is attended to.
struct Quantizer {
  QuantizeSpec spec;
  Array q, k, v;  ///< as they were read
  std::uint64_t rotation_seed = 0;
};

/// Takes q, k and v, of float32 or float16, in whose places there are elements of spec.dtype then, for the quantiser to write,
/// as there are scales for it. What it takes away `spec` has given back. Throws Error.
Quantizer make_quantizer(const Fp8Options& options, Array& q, Array& k, Array& v, Fp8Scales& scales,
                         AttentionSpec& spec);

QuantizeArguments quantize_arguments(Quantizer& quantizer, Array& q, Array& k, Array& v, Fp8Scales& scales,
                                     const Place& place);

/// Values (batch, seqlen, heads, head_dim), where pages are a batch, or ragged without one, with rows of all keys, aligned to
/// 16 bytes: (batch, heads, head_dim, pitch).
Array laid_along_sequence(const Array& v);
/// Refuses sequences of keys, of `lengths` rows each one behind another in ragged k, or in batch entries of k, that begin where
/// TMA cannot copy such values.
void check_begins_along_sequence(const std::vector<std::int32_t>& lengths,
                                 const std::vector<std::int32_t>& leftpad, const Array& k);
/// These as attention takes them: with shape (batch, seqlen, heads, head_dim), or without batch.
TensorView view_along_sequence(const Array& laid, std::int64_t seqlen, void* data);

}  // namespace jit::tool
