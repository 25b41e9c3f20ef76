"""Which class ``CUSTOM`` is: vLLM has one name for backends from outside, and wants three classes.

vLLM asks for `Backend` each time that it chooses the backend of a layer, with the model's configuration set. Layers that
choose blocks of keys (MiniMax M3) ask a function of the model's instead.
"""

from vllm.config import get_current_vllm_config_or_none


def __getattr__(name):
    if name != "Backend":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    config = get_current_vllm_config_or_none()
    model = None if config is None else config.model_config
    if model is not None and model.use_mla and hasattr(model.hf_text_config, "index_topk"):
        from .sparse_mla import JitAttentionSparseMLABackend as Backend
    elif model is not None and model.use_mla:
        from .mla import JitAttentionMLABackend as Backend
    else:
        if model is not None and getattr(model.hf_text_config, "sparse_attention_config", None):
            from .minimax_m3 import take_part

            take_part()
        from .backend import JitAttentionBackend as Backend
    return Backend
