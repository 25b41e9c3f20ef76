"""The architectures of the installed Transformers, each as a model of some thousand weights.

The list is what Transformers maps its kinds of configs to. A config of each is made small by the names of its numbers.
Importing this imports none of the models.
"""

import dataclasses

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

#: What a number of a config becomes, by its name. Where a config has no such number the name is left out.
SMALL = {
    64: "hidden_size d_model n_embd dim embed_dim embedding_size word_embed_proj_dim projection_dim encoder_hidden_dim "
        "hidden_dim max_position_embeddings max_position_embeddings_per_layer n_positions max_sequence_length n_ctx "
        "d_embed lm_head_dim cross_attention_hidden_size mlp_dim entity_emb_size",
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers "
       "num_encoder_layers num_experts_per_tok moe_k moe_topk top_k_experts num_experts_per_token num_key_value_heads "
       "num_kv_heads n_head_kv multi_query_group_num type_vocab_size num_encoder_blocks num_hidden_groups "
       "num_global_key_value_heads num_blocks_per_stage",
    4: "num_attention_heads attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
       "num_experts num_local_experts n_routed_experts moe_num_experts ffn_num_experts num_global_attention_heads",
    96: "intermediate_size ffn_dim d_ff n_inner encoder_ffn_dim decoder_ffn_dim ffn_hidden_size inner_dim "
        "shared_expert_intermediate_size expert_hidden_size block_ff_dim",
    32: "moe_intermediate_size kv_lora_rank q_lora_rank expert_ffn_hidden_size moe_ffn_hidden_size "
        "image_size mamba_d_state ssm_state_size",
    16: "head_dim d_kv attention_head_dim v_head_dim kv_channels attention_key_size global_head_dim mamba_d_ssm_head "
        "linear_key_head_dim linear_value_head_dim query_pre_attn_scalar mamba_d_head mamba_head_dim",
    8: "qk_rope_head_dim qk_nope_head_dim rotary_dim patch_size attention_chunk_size mamba_chunk_size chunk_size",
    6: "sliding_window local_window_size",
    1: "n_group topk_group n_shared_experts mamba_n_groups first_k_dense_replace",
    100: "vocab_size encoder_vocab_size decoder_vocab_size entity_vocab_size vocab_size_per_layer_input",
    0: "pad_token_id",
    99: "eos_token_id",
}
NUMBERS = {name: number for number, names in SMALL.items() for name in names.split()}

#: Where models are looked for: a kind has the model of the first map that knows it.
CAUSAL = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
MAPS = (CAUSAL, "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
        "MODEL_FOR_MASKED_LM_MAPPING_NAMES", "MODEL_MAPPING_NAMES")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A kind of config, the name of its model's class, and whether that is a decoder of text."""

    kind: str
    class_name: str
    is_causal: bool


def architectures():
    """All that Transformers names, in order of their kinds."""
    found = {}
    for name in MAPS:
        for kind, classes in getattr(modeling_auto, name).items():
            class_name = classes[0] if isinstance(classes, (tuple, list)) else classes
            found.setdefault(kind, Architecture(kind, class_name, name == CAUSAL))
    for kind, config_name in CONFIG_MAPPING_NAMES.items():  # parts of models, by what they are called
        found.setdefault(kind, Architecture(kind, config_name.removesuffix("Config") + "Model", False))
    return [found[kind] for kind in sorted(found)]


#: Numbers that a config needs though its own value is None.
NEEDED = ("head_dim", "n_routed_experts", "num_key_value_heads")


def tiny_config(config_class, layers=2):
    """A config whose numbers are small where NUMBERS knows them, and so are those of its parts."""
    usual = config_class()
    known = set(usual.to_dict())
    values = {name: number for name, number in NUMBERS.items() if name in known and _is_number(usual, name)}
    values |= {name: layers for name in values if NUMBERS[name] == 2 and "layer" in name}
    if "kv_lora_rank" in known:  # of which head_dim follows, and heads have keys of their own
        values.pop("head_dim", None)
        values |= {name: 4 for name in ("num_key_value_heads",) if name in values}
    if "per_layer_config" in known:  # single layers with other sizes
        values["per_layer_config"] = {}
    rope = usual.to_dict().get("rope_parameters")
    if isinstance(rope, dict) and "mrope_section" in rope:
        pairs = int(NUMBERS["head_dim"] * rope.get("partial_rotary_factor", 1)) // 2
        section = [pairs // 4, (pairs - pairs // 4) // 2]
        values["rope_parameters"] = rope | {"mrope_section": [*section, pairs - sum(section)]}
    for name in config_class.sub_configs:
        part = getattr(usual, name, None)
        if isinstance(part, transformers.PreTrainedConfig):
            values[name] = tiny_config(type(part), layers).to_dict()
    return config_class(**values)


def _is_number(config, name):
    value = config.to_dict()[name]
    return isinstance(value, int) and not isinstance(value, bool) or name in NEEDED and value is None


def tiny_model(architecture, implementation, layers=2, weights=None, device="cpu"):
    """The model in fp32 with random weights of even size, or with those of another."""
    torch.manual_seed(0)
    config = tiny_config(transformers.CONFIG_MAPPING[architecture.kind], layers)
    if architecture.is_causal:
        config = config.get_text_config()
    model_class = getattr(transformers, architecture.class_name)
    model = model_class._from_config(config, attn_implementation=implementation).to(device).eval()
    if weights is not None:
        model.load_state_dict(weights)
        return model
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, parameter[0].numel() ** -0.5)
            elif not parameter.isfinite().all():  # memory that nobody wrote
                parameter.zero_()
    return model
