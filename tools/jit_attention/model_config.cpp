#include "model_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "command.h"

namespace jit::tool {
namespace {

using Json = nlohmann::ordered_json;

// Models whose queries see every key, by model_type.
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

// A config of a model, or the part of it that describes the language model.
class Config {
 public:
  Config(const Json& whole, std::string_view source)
      : whole_(whole), part_(text_part(whole)), source_(source) {}

  bool has(const char* name) const { return find(name) != nullptr; }

  std::optional<std::int64_t> whole_number(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      const Json* value = find(name);
      if (value == nullptr) continue;
      if (!value->is_number_integer() || value->get<std::int64_t>() < 1 ||
          value->get<std::int64_t>() > 1 << 24)
        refuse(fmt::format("{} is {}; it must be one whole number above 0", name, value->dump()));
      return value->get<std::int64_t>();
    }
    return {};
  }
  std::optional<double> number(const char* name) const {
    const Json* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_number() || !(value->get<double>() > 0))
      refuse(fmt::format("{} is {}; it must be a number above 0", name, value->dump()));
    return value->get<double>();
  }
  std::optional<bool> truth(const char* name) const {
    const Json* value = find(name);
    return value != nullptr && value->is_boolean() ? std::optional(value->get<bool>()) : std::nullopt;
  }
  std::string text(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      const Json* value = find(name);
      if (value != nullptr && value->is_string()) return value->get<std::string>();
    }
    return "";
  }
  // The kinds of layers in their order, each once.
  std::vector<std::string> layer_types() const {
    std::vector<std::string> kinds;
    const Json* list = find("layer_types");
    if (list == nullptr) return kinds;
    if (!list->is_array()) refuse("layer_types is no list");
    for (const Json& item : *list) {
      if (!item.is_string()) refuse(fmt::format("layer_types holds {}; it must hold names", item.dump()));
      const std::string kind = item.get<std::string>();
      if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
    }
    return kinds;
  }
  bool has_vision() const { return whole_.contains("vision_config"); }

  [[noreturn]] void refuse(const std::string& why) const {
    throw BadInput(fmt::format("{}: {}", source_, why));
  }

 private:
  static const Json& text_part(const Json& whole) {
    for (const char* name : {"text_config", "llm_config", "language_config"}) {
      if (whole.contains(name) && whole[name].is_object()) return whole[name];
    }
    return whole;
  }
  // The member that is there and not null; of the whole config where the part has none.
  const Json* find(const char* name) const {
    for (const Json* json : {&part_, &whole_}) {
      const auto member = json->find(name);
      if (member != json->end() && !member->is_null()) return &*member;
    }
    return nullptr;
  }

  const Json& whole_;
  const Json& part_;
  std::string_view source_;
};

void set_heads(const Config& config, ModelAttention& model, AttentionSpec& spec) {
  const auto heads = config.whole_number(
      {"num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"});
  if (!heads) {
    config.refuse(
        "there is no num_attention_heads (or n_head, n_heads, num_heads): it is no config of a model with "
        "attention");
  }
  const bool is_latent = config.has("kv_lora_rank") && config.has("qk_nope_head_dim");
  if (is_latent) {  // keys of a part that is rotated and one that is not, for each head
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

void set_dtype(const Config& config, ModelAttention& model, AttentionSpec& spec) {
  const std::string dtype = config.text({"dtype", "torch_dtype"});
  if (dtype == "float16") {
    spec.dtype = DType::fp16;
  } else if (!dtype.empty() && dtype != "bfloat16") {
    model.remarks.push_back(fmt::format(
        "the model is of {}, which the library does not compute in; its kernels are of bf16", dtype));
  }
}

void set_score(const Config& config, ModelAttention& model, AttentionSpec& spec) {
  if (const auto scalar = config.number("query_pre_attn_scalar"))
    spec.softmax_scale = static_cast<float>(1 / std::sqrt(*scalar));
  if (const auto cap = config.number("attn_logit_softcapping"))
    spec.score = score::softcap(static_cast<float>(*cap));
  if (config.truth("alibi").value_or(model.type == "bloom")) spec.score = score::alibi();
  if (config.has("relative_attention_num_buckets")) spec.score = score::bias(spec.dtype);
  spec.sinks = model.type == "gpt_oss";
}

// The masks of causal layers: what layer_types says, else both where there is a window.
std::vector<Mask> causal_masks(const Config& config, ModelAttention& model) {
  const auto window = config.whole_number({"sliding_window"});
  const bool is_windowed = window && config.truth("use_sliding_window").value_or(true);
  std::vector<std::string> kinds = config.layer_types();
  if (kinds.empty()) {
    kinds = {"full_attention"};
    if (is_windowed) kinds.push_back("sliding_attention");
  }
  std::vector<Mask> masks;
  for (const std::string& kind : kinds) {
    if (kind == "full_attention" || kind == "attention") {
      masks.push_back(mask::causal());
    } else if (kind == "sliding_attention") {
      if (!window) config.refuse("layer_types names sliding_attention, but there is no sliding_window");
      masks.push_back(mask::sliding_window(static_cast<int>(*window) - 1, 0));
    } else {
      model.remarks.push_back(
          fmt::format("layers of type {} are left out: the library does not compute them", kind));
    }
  }
  if (masks.empty()) config.refuse("no layer has an attention that the library computes");
  return masks;
}

std::vector<Mask> masks_of(const Config& config, ModelAttention& model) {
  const bool is_bidirectional = encoders.contains(model.type) || !config.truth("is_causal").value_or(true) ||
                                config.truth("use_bidirectional_attention").value_or(false);
  if (config.truth("is_encoder_decoder").value_or(false)) return {mask::none(), mask::causal()};
  if (!is_bidirectional) return causal_masks(config, model);
  std::vector<Mask> masks = {mask::none()};
  if (const auto local = config.whole_number({"local_attention"})) {
    const int side = static_cast<int>(*local / 2);
    masks.push_back(mask::sliding_window(side, side));
  } else if (config.has("sliding_window")) {
    model.remarks.push_back("windows that look to both sides are left out: models differ in what they mean");
  }
  return masks;
}

}  // namespace

ModelAttention model_attention(const Json& json, std::string_view source) {
  if (!json.is_object()) throw BadInput(fmt::format("{}: it is no JSON object", source));
  const Config config(json, source);
  ModelAttention model;
  model.type = config.text({"model_type"});
  AttentionSpec spec;
  set_heads(config, model, spec);
  set_dtype(config, model, spec);
  set_score(config, model, spec);
  if (const auto share = config.number("partial_rotary_factor"))
    model.rotary_dim = static_cast<int>(std::lround(spec.head_dim * *share));
  model.max_seqlen =
      config.whole_number({"max_position_embeddings", "n_positions", "max_seq_len"}).value_or(0);
  for (const Mask& mask : masks_of(config, model)) {
    spec.mask = mask;
    model.specs.push_back(spec);
  }
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
