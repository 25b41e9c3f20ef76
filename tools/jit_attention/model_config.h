// The attention that a model's layers need, from the config.json of Hugging Face models.
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

/// Who reads what, which decides what a server keeps of keys and values.
enum class ModelKind {
  decoder,          ///< tokens read those before them: a cache
  encoder,          ///< tokens read all of their text, in one call: no cache
  encoder_decoder,  ///< both, and the decoder reads what is kept of the encoder
};

struct ModelAttention {
  std::string type;  ///< "llama"
  ModelKind kind = ModelKind::decoder;
  std::vector<AttentionSpec> specs;  ///< of its layers, each once
  /// Specs of latent attention over a cache of one row for each token, which all heads read. `specs` then
  /// serve prompts, whose keys and values are made of the latents for each head.
  std::vector<AttentionSpec> latent_specs = {};
  /// Specs of causal layers (over latents if there are any) where requests say whether they are causal:
  /// windows go to both sides there.
  std::vector<AttentionSpec> specs_by_request = {};
  int heads_q = 0;
  AppendSpec append = {};                 ///< how q and k are normalized and rotated; rotary_dim 0: wholly
  std::int64_t max_seqlen = 0;            ///< tokens that it was made for; 0: it does not say
  std::vector<std::string> remarks = {};  ///< what of the model these specs leave out, a sentence each
};

/// Throws BadInput, naming `source`, when `config` describes no attention or one that is not understood.
ModelAttention model_attention(const nlohmann::ordered_json& config, std::string_view source);

/// The config that `path` means: a file, or the config.json in a folder.
std::string model_file(const std::string& path);

/// Reads the attention of a model from such a file.
ModelAttention read_model(const std::string& file);

}  // namespace jit::tool
