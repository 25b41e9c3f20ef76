// The calls of a server with a model: the kernels that `warm --serving` puts into packs.
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
  // Over what config.json says of them.
  int rotary_dim = 0;
  bool rotary_interleaved = false;
  std::vector<int> mrope_sections;
  bool mrope_interleaved = false;
  bool norm = false;
  bool norm_adds_one = false;
};

/// --serving, and options that need it.
void add_serving_options(CLI::App& app, ServingOptions& options);

/// Specs that each layer calls: attention over pages, with varlen queries, as engines have them, and with one
/// number of queries for all requests; over varlen keys where a prompt reads its own keys, which no cache
/// holds.
std::vector<AttentionSpec> served_specs(const ModelAttention& model, const ServingOptions& options);

/// How the model normalizes and rotates, as the options have it otherwise.
AppendSpec served_append(const ModelAttention& model, const ServingOptions& options);

}  // namespace jit::tool
