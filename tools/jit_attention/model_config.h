// What the attention layers of a model need, from the config.json that Hugging Face models come with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <jit/spec.h>
#include <nlohmann/json_fwd.hpp>

namespace jit::tool {

struct ModelAttention {
  std::string type;                  ///< "llama"
  std::vector<AttentionSpec> specs;  ///< of its layers, each once
  int heads_q = 0;
  int rotary_dim = 0;                     ///< leading elements of a head that are rotated; 0: all
  std::int64_t max_seqlen = 0;            ///< tokens that it was made for; 0: it does not say
  std::vector<std::string> remarks = {};  ///< what of the model these specs leave out, a sentence each
};

/// Throws BadInput, naming `source`, when `config` describes no attention or one that is not understood.
ModelAttention model_attention(const nlohmann::ordered_json& config, std::string_view source);

/// The config that `path` means: a file, or the config.json in a folder.
std::string model_file(const std::string& path);

/// The same of such a file.
ModelAttention read_model(const std::string& file);

}  // namespace jit::tool
