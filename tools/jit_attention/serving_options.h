// Calls of a server for a model: the kernels that `warm --serving` packs.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <jit/append.h>
#include <jit/spec.h>

#include "model_config.h"

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

struct ServingOptions {
  bool serving = false;
  int page_size = 16;
  std::string kv_dtype;
  std::optional<ScaleKind> descale_per;
  int split_keys = 0;
  bool causal_per_request = false;
  // Overrides of config.json.
  int rotary_dim = 0;
  bool rotary_interleaved = false;
  std::vector<int> mrope_sections;
  bool mrope_interleaved = false;
  bool norm = false;
  bool norm_adds_one = false;
};

/// Adds --serving and the options that require it.
void add_serving_options(CLI::App& app, ServingOptions& options);

/// Specs that each layer calls: attention over pages, with varlen queries as in engines, and with equal query
/// counts for all requests; attention over varlen keys when a prompt attends to its own keys, which no cache
/// holds.
std::vector<AttentionSpec> served_specs(const ModelAttention& model, const ServingOptions& options);

/// The model's normalization and rotation, with the options' overrides.
AppendSpec served_append(const ModelAttention& model, const ServingOptions& options);

}  // namespace jit::tool
