// Attention specs of a model's layers, from a Hugging Face config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jit/append.h>
#include <jit/spec.h>
#include <nlohmann/json_fwd.hpp>

namespace jit::tool {

/// Data flow between tokens, which decides what a server caches.
enum class ModelKind {
  decoder,          ///< tokens attend to earlier tokens: a KV cache
  encoder,          ///< tokens attend to their whole text in one call: no cache
  encoder_decoder,  ///< both; the decoder also attends to stored encoder keys
};

struct ModelAttention {
  std::string type;  ///< "llama"
  ModelKind kind = ModelKind::decoder;
  std::vector<AttentionSpec> specs;  ///< distinct specs of its layers
  /// Specs of latent attention over a cache with one row per token, shared by all heads. `specs` then serve
  /// prompts, whose keys and values are expanded from the latents for each head.
  std::vector<AttentionSpec> latent_specs = {};
  /// Specs of causal layers (over latents if there are any) whose requests choose causality: their windows
  /// extend to both sides.
  std::vector<AttentionSpec> specs_by_request = {};
  int heads_q = 0;
  AppendSpec append = {};                 ///< normalization and rotation of q and k; rotary_dim 0: all
  std::int64_t max_seqlen = 0;            ///< the longest sequence that the model supports; 0: unknown
  std::vector<std::string> remarks = {};  ///< properties of the model that the specs omit, a sentence each
};

/// Throws BadInput, naming `source`, when `config` describes no attention or an unknown one.
ModelAttention model_attention(const nlohmann::ordered_json& config, std::string_view source);

/// The config that `path` names: a file, or config.json in a folder.
std::string model_file(const std::string& path);

/// Reads a model's attention from such a file.
ModelAttention read_model(const std::string& file);

}  // namespace jit::tool
