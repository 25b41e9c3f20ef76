#include "tools/jit_attention/model_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/cli_testing.h"
#include "tools/jit_attention/command.h"

namespace jit::tool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelAttention model(const char* json) {
  return model_attention(nlohmann::ordered_json::parse(json), "config.json");
}

std::vector<std::string> specs(const ModelAttention& model) {
  std::vector<std::string> texts;
  for (const AttentionSpec& spec : model.specs) texts.push_back(to_string(spec));
  return texts;
}

std::string refusal(const char* json) {
  try {
    model(json);
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

TEST(ModelConfig, ReadsLlama) {
  const ModelAttention llama = model(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"})");
  EXPECT_THAT(specs(llama), ElementsAre("bf16 d128 gqa4 mask=causal"));
  EXPECT_EQ(llama.heads_q, 32);
  EXPECT_EQ(llama.max_seqlen, 131072);
  EXPECT_THAT(llama.remarks, IsEmpty());
}

TEST(ModelConfig, HasBothMasksWhereNothingSaysWhichLayersAreWindowed) {
  EXPECT_THAT(specs(model(R"({"model_type": "mistral", "hidden_size": 4096, "head_dim": 128,
    "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": 4096, "dtype": "float16"})")),
              ElementsAre("fp16 d128 gqa4 mask=causal", "fp16 d128 gqa4 mask=sliding_window(4095)"));
  EXPECT_THAT(specs(model(R"({"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28,
    "num_key_value_heads": 4, "sliding_window": 131072, "use_sliding_window": false})")),
              ElementsAre("bf16 d128 gqa7 mask=causal"));
  EXPECT_THAT(specs(model(R"({"model_type": "mistral", "head_dim": 128, "num_attention_heads": 32,
    "sliding_window": null})")),
              ElementsAre("bf16 d128 mask=causal"));
}

TEST(ModelConfig, ReadsGemma2) {
  const ModelAttention gemma = model(R"({"model_type": "gemma2", "hidden_size": 3584, "head_dim": 256,
    "num_attention_heads": 16, "num_key_value_heads": 8, "sliding_window": 4096, "attn_logit_softcapping": 50.0,
    "query_pre_attn_scalar": 64})");
  EXPECT_THAT(specs(gemma), ElementsAre("bf16 d256 gqa2 mask=causal score=softcap(50)",
                                        "bf16 d256 gqa2 mask=sliding_window(4095) score=softcap(50)"));
  EXPECT_FLOAT_EQ(gemma.specs[0].softmax_scale.value(), 0.125f);
}

TEST(ModelConfig, ReadsTheTextPartOfAModelWithVision) {
  const ModelAttention gemma = model(R"({"model_type": "gemma3", "dtype": "bfloat16", "vision_config": {},
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "head_dim": 256, "num_attention_heads": 8,
      "num_key_value_heads": 4, "sliding_window": 1024, "attn_logit_softcapping": null,
      "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}})");
  EXPECT_THAT(specs(gemma),
              ElementsAre("bf16 d256 gqa2 mask=sliding_window(1023)", "bf16 d256 gqa2 mask=causal"));
  EXPECT_EQ(gemma.type, "gemma3_text");
  EXPECT_THAT(gemma.remarks, ElementsAre(HasSubstr("vision_config is not read")));
}

TEST(ModelConfig, SaysWhatTheKernelsLeaveOut) {
  const ModelAttention oss = model(R"({"model_type": "gpt_oss", "head_dim": 64, "num_attention_heads": 64,
    "num_key_value_heads": 8, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"]})");
  EXPECT_THAT(specs(oss), ElementsAre("bf16 d64 gqa8 sinks=true mask=sliding_window(127)",
                                      "bf16 d64 gqa8 sinks=true mask=causal"));
  EXPECT_THAT(oss.remarks, IsEmpty());

  const ModelAttention partial =
      model(R"({"head_dim": 80, "num_attention_heads": 4, "partial_rotary_factor": 0.4})");
  EXPECT_EQ(partial.append.rotary_dim, 32);
  EXPECT_EQ(oss.append.rotary_dim, 0);

  const ModelAttention hybrid =
      model(R"({"model_type": "qwen3_next", "head_dim": 256, "num_attention_heads": 16,
    "num_key_value_heads": 2, "dtype": "float32", "layer_types": ["linear_attention", "full_attention"]})");
  EXPECT_THAT(specs(hybrid), ElementsAre("bf16 d256 gqa8 mask=causal"));
  EXPECT_THAT(hybrid.remarks, ElementsAre(HasSubstr("the model is of float32"),
                                          HasSubstr("layers of type linear_attention are left out")));
}

TEST(ModelConfig, ReadsEncodersAndModelsOfTwoParts) {
  EXPECT_THAT(specs(model(R"({"model_type": "bert", "hidden_size": 384, "num_attention_heads": 12})")),
              ElementsAre("bf16 d32"));
  EXPECT_THAT(specs(model(R"({"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12,
    "local_attention": 128})")),
              ElementsAre("bf16 d64", "bf16 d64 mask=sliding_window(64, 64)"));
  EXPECT_THAT(specs(model(R"({"model_type": "t5", "d_model": 512, "d_kv": 64, "num_heads": 8,
    "is_encoder_decoder": true, "relative_attention_num_buckets": 32})")),
              ElementsAre("bf16 d64 score=bias(bf16)", "bf16 d64 mask=causal score=bias(bf16)", "bf16 d64"));
}

TEST(ModelConfig, ReadsOtherNamesForHeads) {
  EXPECT_THAT(specs(model(R"({"model_type": "gpt2", "n_embd": 768, "n_head": 12})")),
              ElementsAre("bf16 d64 mask=causal"));
  EXPECT_THAT(specs(model(R"({"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71,
    "multi_query": true, "alibi": false})")),
              ElementsAre("bf16 d64 gqa71 mask=causal"));
  EXPECT_THAT(specs(model(R"({"model_type": "whisper", "d_model": 768, "encoder_attention_heads": 12,
    "is_encoder_decoder": true})")),
              ElementsAre("bf16 d64", "bf16 d64 mask=causal"));
  EXPECT_THAT(specs(model(R"({"model_type": "chatglm", "kv_channels": 128, "num_attention_heads": 32,
    "multi_query_attention": true, "multi_query_group_num": 2})")),
              ElementsAre("bf16 d128 gqa16 mask=causal"));
  EXPECT_THAT(specs(model(R"({"model_type": "bloom", "n_embed": 1024, "n_head": 16})")),
              ElementsAre("bf16 d64 mask=causal score=alibi"));
}

// Prompts are read by keys and values of heads, and what is kept of them, later, as it is kept.
TEST(ModelConfig, ReadsLatentAttention) {
  const ModelAttention deepseek = model(R"({"model_type": "deepseek_v3", "hidden_size": 7168,
    "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128})");
  EXPECT_THAT(specs(deepseek), ElementsAre("bf16 d192/128 mask=causal"));
  ASSERT_EQ(deepseek.latent_specs.size(), 1u);
  const AttentionSpec& latent = deepseek.latent_specs[0];
  EXPECT_EQ(latent.head_dim, 576);
  EXPECT_EQ(latent.head_dim_v, 512);
  EXPECT_EQ(latent.gqa_ratio, 128);
  EXPECT_TRUE(latent.values_in_keys);
  EXPECT_EQ(latent.mask, mask::causal());
  EXPECT_FLOAT_EQ(latent.scale(), deepseek.specs[0].scale()) << "of the heads, not of the rows that are kept";
  EXPECT_TRUE(deepseek.append.rotary_interleaved);
  ASSERT_EQ(deepseek.specs_by_request.size(), 1u);
  EXPECT_TRUE(deepseek.specs_by_request[0].values_in_keys);
}

TEST(ModelConfig, ReadsWhatStandsBetweenProjectionsAndAttention) {
  const AppendSpec qwen =
      model(R"({"model_type": "qwen3", "head_dim": 128, "num_attention_heads": 4})").append;
  EXPECT_TRUE(qwen.norm);
  EXPECT_FALSE(qwen.norm_adds_one || qwen.rotary_interleaved || qwen.has_sections());

  const AppendSpec gemma =
      model(R"({"model_type": "gemma3", "head_dim": 64, "num_attention_heads": 4})").append;
  EXPECT_TRUE(gemma.norm && gemma.norm_adds_one);

  const AppendSpec vision = model(R"({"model_type": "qwen2_vl", "head_dim": 128, "num_attention_heads": 4,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}})")
                                .append;
  EXPECT_THAT(vision.mrope_sections, ElementsAre(16, 24, 24));
  EXPECT_FALSE(vision.mrope_interleaved || vision.norm);

  const AppendSpec newer = model(R"({"text_config": {"model_type": "qwen3_vl_text", "head_dim": 128,
    "num_attention_heads": 4, "rope_parameters": {"mrope_section": [12, 10, 10], "mrope_interleaved": true,
      "partial_rotary_factor": 0.5}}, "vision_config": {}})")
                               .append;
  EXPECT_THAT(newer.mrope_sections, ElementsAre(12, 10, 10));
  EXPECT_TRUE(newer.mrope_interleaved && newer.norm);
  EXPECT_EQ(newer.rotary_dim, 64);

  const auto is_interleaved = [](const char* json) { return model(json).append.rotary_interleaved; };
  EXPECT_TRUE(is_interleaved(R"({"model_type": "cohere", "head_dim": 64, "num_attention_heads": 4})"));
  EXPECT_TRUE(is_interleaved(R"({"head_dim": 64, "num_attention_heads": 4, "rope_interleave": true})"));
  EXPECT_FALSE(is_interleaved(R"({"model_type": "glm4_moe", "head_dim": 64, "num_attention_heads": 4})"));

  const auto has_norm = [](const char* json) { return model(json).append.norm; };
  EXPECT_TRUE(has_norm(
      R"({"model_type": "glm4_moe", "use_qk_norm": true, "head_dim": 64, "num_attention_heads": 4})"));
  EXPECT_FALSE(has_norm(R"({"model_type": "llama", "head_dim": 64, "num_attention_heads": 4})"));
}

TEST(ModelConfig, KnowsWhoReadsWhat) {
  EXPECT_EQ(model(R"({"model_type": "bert", "head_dim": 32, "num_attention_heads": 4})").kind,
            ModelKind::encoder);
  EXPECT_EQ(model(R"({"model_type": "whisper", "is_encoder_decoder": true, "head_dim": 64,
    "num_attention_heads": 4})")
                .kind,
            ModelKind::encoder_decoder);
  const ModelAttention mistral = model(R"({"model_type": "mistral", "head_dim": 128,
    "num_attention_heads": 4, "sliding_window": 4096})");
  EXPECT_EQ(mistral.kind, ModelKind::decoder);
  std::vector<std::string> by_request;
  for (const AttentionSpec& spec : mistral.specs_by_request) by_request.push_back(to_string(spec));
  EXPECT_THAT(by_request, ElementsAre("bf16 d128 mask=causal_per_request",
                                      "bf16 d128 mask=causal_per_request && sliding_window(4095, 4095)"));
}

TEST(ModelConfig, NamesWhatIsWrong) {
  EXPECT_THAT(refusal("[1]"), HasSubstr("config.json: it is no JSON object"));
  EXPECT_THAT(refusal(R"({"hidden_size": 64})"), HasSubstr("there is no num_attention_heads"));
  EXPECT_THAT(refusal(R"({"num_attention_heads": 4})"),
              HasSubstr("there is neither head_dim nor hidden_size"));
  EXPECT_THAT(refusal(R"({"num_attention_heads": [4, 8], "head_dim": 64})"),
              HasSubstr("num_attention_heads is [4,8]; it must be one whole number above 0"));
  EXPECT_THAT(refusal(R"({"num_attention_heads": 0, "head_dim": 64})"),
              HasSubstr("num_attention_heads is 0"));
  EXPECT_THAT(refusal(R"({"num_attention_heads": 3, "hidden_size": 64})"),
              HasSubstr("64 is no multiple of the 3"));
  EXPECT_THAT(refusal(R"({"num_attention_heads": 8, "num_key_value_heads": 3, "head_dim": 64})"),
              HasSubstr("8 query heads are no multiple of 3 heads of keys"));
  EXPECT_THAT(refusal(R"({"num_attention_heads": 8, "head_dim": 64, "layer_types": ["sliding_attention"]})"),
              HasSubstr("there is no sliding_window"));
  EXPECT_THAT(refusal(R"({"num_attention_heads": 8, "head_dim": 64, "layer_types": ["mamba"]})"),
              HasSubstr("no layer has an attention"));
  EXPECT_THAT(refusal(R"({"num_attention_heads": 8, "head_dim": 64, "layer_types": 3})"),
              HasSubstr("is no list"));
  for (const char* sections : {"3", "[1, 2]", "[1, 2, -3]", "[1, 2, \"x\"]"}) {
    EXPECT_THAT(refusal(fmt::format(R"({{"num_attention_heads": 8, "head_dim": 64, "rope_scaling":
                                        {{"mrope_section": {}}}}})",
                                    sections)
                            .c_str()),
                HasSubstr("it must be three whole numbers"));
  }
  EXPECT_THAT(refusal(R"({"num_attention_heads": 8, "head_dim": 64, "attn_logit_softcapping": "x"})"),
              HasSubstr("attn_logit_softcapping is \"x\"; it must be a number above 0"));
}

TEST(CliWarm, RefusesBadInput) {
  testing::Tool tool;
  const auto warm = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"warm", "--out", tool.folder / "m.pack"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tool.run(arguments);
  };
  const std::string config = tool.folder / "config.json";
  testing::expect_bad_input(warm({"--model", config, "--arch", "sm_90a"}), "config.json cannot be read");
  testing::write_text(config, "{");
  testing::expect_bad_input(warm({"--model", config, "--arch", "sm_90a"}), "config.json is no JSON");
  testing::write_text(config, "{}");
  testing::expect_bad_input(warm({"--model", tool.folder.path(), "--arch", "sm_90a"}),
                            "there is no num_attention_heads");
  testing::write_text(config, R"({"num_attention_heads": 2, "head_dim": 20})");
  testing::expect_bad_input(warm({"--model", config, "--arch", "sm_90a"}), "head_dim");
  testing::write_text(config, R"({"num_attention_heads": 2, "head_dim": 16})");
  testing::expect_bad_input(warm({"--model", config, "--arch", "sm_70"}), "\"sm_70\" is no architecture");
  testing::expect_bad_input(warm({"--model", config, "--arch", "sm_80,emulated:sm_70"}), "sm_70");
  testing::expect_bad_input(warm({"--model", config, "--arch", "sm_80", "--mask", "casual"}), "casual");
  testing::expect_bad_input(warm({"--model", config, "--arch", "sm_80", "--max-batch", "0"}), "--max-batch");
  testing::expect_bad_input(warm({"--model", config, "--arch", "sm_80", "--multiprocessors", "0"}),
                            "--multiprocessors");
  testing::expect_bad_input(warm({"--model", config}), "--arch is required");
  EXPECT_FALSE(std::filesystem::exists(tool.folder / "m.pack"));
  testing::expect_bad_input(
      tool.run({"warm", "--model", tool.folder.path(), "--arch", "sm_80", "--out", config}), "config.json");
  EXPECT_EQ(testing::read_text(config), R"({"num_attention_heads": 2, "head_dim": 16})");
}

}  // namespace
}  // namespace jit::tool
