#include "model_config.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "command.h"
#include "config_json.h"
#include "model_append.h"

namespace jit::tool {
namespace {

using Json = nlohmann::ordered_json;

// model_types whose queries attend to every key.
const std::set<std::string_view> encoders = {"albert",
                                             "bert",
                                             "camembert",
                                             "clip_text_model",
                                             "clip_vision_model",
                                             "data2vec-text",
                                             "distilbert",
                                             "dpr",
                                             "electra",
                                             "ernie",
                                             "esm",
                                             "modernbert",
                                             "mpnet",
                                             "nomic_bert",
                                             "roberta",
                                             "siglip_vision_model",
                                             "vit",
                                             "xlm-roberta",
                                             "xlm-roberta-xl"};

bool has_latents(const ConfigJson& config) {
  return config.has("kv_lora_rank") && config.has("qk_nope_head_dim");
}

void set_heads(const ConfigJson& config, ModelAttention& model, AttentionSpec& spec) {
  const auto heads = config.whole_number(
      {"num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"});
  if (!heads) {
    config.refuse(
        "there is no num_attention_heads (or n_head, n_heads, num_heads): it is no config of a model with "
        "attention");
  }
  const bool is_latent = has_latents(config);
  if (is_latent) {  // keys of each head have a rotated and an unrotated part
    spec.head_dim = static_cast<int>(*config.whole_number({"qk_nope_head_dim"}) +
                                     config.whole_number({"qk_rope_head_dim"}).value_or(0));
    spec.head_dim_v = static_cast<int>(config.whole_number({"v_head_dim"}).value_or(spec.head_dim));
  } else if (const auto head_dim = config.whole_number({"head_dim", "d_kv", "kv_channels"})) {
    spec.head_dim = static_cast<int>(*head_dim);
  } else {
    const auto width = config.whole_number({"hidden_size", "n_embd", "n_embed", "d_model", "dim"});
    if (!width) config.refuse("there is neither head_dim nor hidden_size (or n_embd, d_model, dim)");
    if (*width % *heads != 0)
      config.refuse(
          fmt::format("hidden_size {} is no multiple of the {} heads; give head_dim", *width, *heads));
    spec.head_dim = static_cast<int>(*width / *heads);
  }
  const bool is_multi_query = config.truth("multi_query").value_or(false);
  const std::int64_t heads_kv =
      is_latent ? *heads
                : config.whole_number({"num_key_value_heads", "num_kv_heads", "multi_query_group_num"})
                      .value_or(is_multi_query ? 1 : *heads);
  if (heads_kv > *heads || *heads % heads_kv != 0)
    config.refuse(fmt::format("{} query heads are no multiple of {} heads of keys", *heads, heads_kv));
  model.heads_q = static_cast<int>(*heads);
  spec.gqa_ratio = static_cast<int>(*heads / heads_kv);
}

// The spec of latent attention with up-projections absorbed into queries and outputs: one KV head, whose
// first columns are the values. The scale is that of the original heads.
AttentionSpec over_latents(const ConfigJson& config, const ModelAttention& model, AttentionSpec spec) {
  spec.softmax_scale = spec.scale();
  spec.head_dim_v = static_cast<int>(*config.whole_number({"kv_lora_rank"}));
  spec.head_dim = spec.head_dim_v + static_cast<int>(config.whole_number({"qk_rope_head_dim"}).value_or(0));
  spec.gqa_ratio = model.heads_q;
  spec.values_in_keys = true;
  return spec;
}

void set_dtype(const ConfigJson& config, ModelAttention& model, AttentionSpec& spec) {
  const std::string dtype = config.text({"dtype", "torch_dtype"});
  if (dtype == "float16") {
    spec.dtype = DType::fp16;
  } else if (!dtype.empty() && dtype != "bfloat16") {
    model.remarks.push_back(fmt::format(
        "the model is of {}, which the library does not compute in; its kernels are of bf16", dtype));
  }
}

void set_score(const ConfigJson& config, ModelAttention& model, AttentionSpec& spec) {
  if (const auto scalar = config.number("query_pre_attn_scalar"))
    spec.softmax_scale = static_cast<float>(1 / std::sqrt(*scalar));
  if (const auto cap = config.number("attn_logit_softcapping"))
    spec.score = score::softcap(static_cast<float>(*cap));
  if (config.truth("alibi").value_or(model.type == "bloom")) spec.score = score::alibi();
  if (config.has("relative_attention_num_buckets")) spec.score = score::bias(spec.dtype);
  spec.sinks = model.type == "gpt_oss";
}

// Distinct masks of the layers; for causal layers also the masks of requests that choose causality.
struct LayerMasks {
  std::vector<Mask> own;
  std::vector<Mask> by_request = {};
};

// Masks of causal layers: from layer_types; without it, both when the config has a window.
LayerMasks causal_masks(const ConfigJson& config, ModelAttention& model) {
  const auto window = config.whole_number({"sliding_window"});
  const bool is_windowed = window && config.truth("use_sliding_window").value_or(true);
  std::vector<std::string> kinds = config.layer_types();
  if (kinds.empty()) {
    kinds = {"full_attention"};
    if (is_windowed) kinds.push_back("sliding_attention");
  }
  LayerMasks masks;
  for (const std::string& kind : kinds) {
    if (kind == "full_attention" || kind == "attention") {
      masks.own.push_back(mask::causal());
      masks.by_request.push_back(mask::causal_per_request());
    } else if (kind == "sliding_attention") {
      if (!window) config.refuse("layer_types names sliding_attention, but there is no sliding_window");
      const int side = static_cast<int>(*window) - 1;
      masks.own.push_back(mask::sliding_window(side, 0));
      masks.by_request.push_back(mask::causal_per_request() && mask::sliding_window(side, side));
    } else {
      model.remarks.push_back(
          fmt::format("layers of type {} are left out: the library does not compute them", kind));
    }
  }
  if (masks.own.empty()) config.refuse("no layer has an attention that the library computes");
  return masks;
}

LayerMasks masks_of(const ConfigJson& config, ModelAttention& model) {
  const bool is_bidirectional = encoders.contains(model.type) || !config.truth("is_causal").value_or(true) ||
                                config.truth("use_bidirectional_attention").value_or(false);
  if (config.truth("is_encoder_decoder").value_or(false)) {
    model.kind = ModelKind::encoder_decoder;
    return {{mask::none(), mask::causal()}, {mask::causal_per_request()}};
  }
  if (!is_bidirectional) return causal_masks(config, model);
  model.kind = ModelKind::encoder;
  LayerMasks masks{{mask::none()}};
  if (const auto local = config.whole_number({"local_attention"})) {
    const int side = static_cast<int>(*local / 2);
    masks.own.push_back(mask::sliding_window(side, side));
  } else if (config.has("sliding_window")) {
    model.remarks.push_back("windows that look to both sides are left out: models differ in what they mean");
  }
  return masks;
}

}  // namespace

ModelAttention model_attention(const Json& json, std::string_view source) {
  if (!json.is_object()) throw BadInput(fmt::format("{}: it is no JSON object", source));
  const ConfigJson config(json, source);
  ModelAttention model;
  model.type = config.text({"model_type"});
  AttentionSpec spec;
  set_heads(config, model, spec);
  set_dtype(config, model, spec);
  set_score(config, model, spec);
  model.append = append_of_model(config, model.type, spec.head_dim);
  model.max_seqlen =
      config.whole_number({"max_position_embeddings", "n_positions", "max_seq_len"}).value_or(0);
  const LayerMasks masks = masks_of(config, model);
  const auto with = [&](const AttentionSpec& like, const std::vector<Mask>& layers,
                        std::vector<AttentionSpec>& specs) {
    for (const Mask& mask : layers) specs.emplace_back(like).mask = mask;
  };
  with(spec, masks.own, model.specs);
  const AttentionSpec cached = has_latents(config) ? over_latents(config, model, spec) : spec;
  if (has_latents(config)) with(cached, masks.own, model.latent_specs);
  with(cached, masks.by_request, model.specs_by_request);
  if (spec.score == score::bias(spec.dtype)) {  // queries see the encoder's keys without one
    model.specs.push_back(spec);
    model.specs.back().mask = mask::none();
    model.specs.back().score = {};
  }
  if (config.has_vision())
    model.remarks.push_back("vision_config is not read; give its part as a --model of its own");
  return model;
}

std::string model_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? path + "/config.json" : path;
}

ModelAttention read_model(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  const Json json = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!stream.is_open() || stream.bad()) throw BadInput(fmt::format("{} cannot be read", file));
  if (json.is_discarded()) throw BadInput(fmt::format("{} is no JSON", file));
  return model_attention(json, file);
}

}  // namespace jit::tool
