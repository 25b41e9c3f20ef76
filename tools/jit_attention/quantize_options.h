// How q, k and v are made of 8 bits: what `run` does to its arrays, and what packs of `warm` have kernels for.
#pragma once

#include <optional>

#include <jit/options.h>
#include <jit/spec.h>

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

struct QuantizeOptions {
  std::optional<QuantizedScales> scales;  ///< of q and k; nothing: they are not
  QuantizedScales value_scales = QuantizedScales::head;
  bool center_keys = false;
  bool center_values = false;
};
/// `doc` says what --quantize does; the others need it.
void add_quantize_options(CLI::App& app, QuantizeOptions& options, const char* doc);

/// Sets the spec's fields for the scales, and for v's mean. Requires scales. Throws BadInput for scales that
/// are not found.
void apply(const QuantizeOptions& options, AttentionSpec& spec);

}  // namespace jit::tool
