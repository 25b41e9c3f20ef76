#include "model_append.h"

#include <cmath>
#include <set>

namespace jit::tool {
namespace {

// model_types that normalize each head of q and k before the rotation; config.json does not say so.
const std::set<std::string_view> with_norm = {"qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text"};
// Models whose norm multiplies by 1 + weight.
const std::set<std::string_view> with_norm_of_one_more = {"gemma3", "gemma3_text", "qwen3_next"};
// Models that rotate elements 2j and 2j + 1 as a pair.
const std::set<std::string_view> with_neighbors_as_pairs = {
    "chatglm",  "codegen",      "cohere", "cohere2", "deepseek_v2", "deepseek_v3",
    "ernie4_5", "ernie4_5_moe", "glm",    "glm4",    "gptj"};

}  // namespace

AppendSpec append_of_model(const ConfigJson& config, std::string_view type, int head_dim) {
  AppendSpec append;
  if (const auto share = config.rotary_number("partial_rotary_factor"))
    append.rotary_dim = static_cast<int>(std::lround(head_dim * *share));
  append.rotary_interleaved =
      config.truth("rope_interleave").value_or(with_neighbors_as_pairs.contains(type));
  if (const auto sections = config.rotary_sections("mrope_section")) {
    append.mrope_sections = *sections;
    append.mrope_interleaved = config.rotary_truth("mrope_interleaved").value_or(false);
  }
  append.norm_adds_one = with_norm_of_one_more.contains(type);
  append.norm = append.norm_adds_one || with_norm.contains(type) ||
                (type == "glm4_moe" && config.truth("use_qk_norm").value_or(false));
  return append;
}

}  // namespace jit::tool
