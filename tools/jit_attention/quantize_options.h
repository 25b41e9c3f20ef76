// Quantization of q, k and v to 8 bits: by `run` for its arrays, and for the kernels in `warm`'s packs.
#pragma once

#include <optional>

#include <jit/options.h>
#include <jit/spec.h>

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

struct QuantizeOptions {
  std::optional<QuantizedScales> scales;  ///< of q and k; nothing: not quantized
  QuantizedScales value_scales = QuantizedScales::head;
  bool center_keys = false;
  bool center_values = false;
};
/// `doc` describes --quantize; the other options require it.
void add_quantize_options(CLI::App& app, QuantizeOptions& options, const char* doc);

/// Sets the spec's fields for the scales and for v's mean. Requires scales. Throws BadInput for unsupported
/// ones.
void apply(const QuantizeOptions& options, AttentionSpec& spec);

}  // namespace jit::tool
