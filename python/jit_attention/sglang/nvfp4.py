"""SGLang's pool of `nvfp4`: allowed under this backend's name, written and read.

SGLang itself stores nvfp4 for kernels of Blackwell alone. Its pool, with scales in the order of their tokens, has the
bytes that `append` writes and attention reads.
"""

import torch

from .._core import _append_to_slots
from . import NAME, refuse


def allow():
    """Has SGLang accept ``--kv-cache-dtype nvfp4`` beside ``--attention-backend jit_attention``.

    Its steps of resolution that know backends by name leave this one out, and its pool gives this backend scales in
    the order of tokens.
    """
    from sglang.srt.arg_groups.overrides import attention_backends_of, resolved_view, resolving_view
    from sglang.srt.arg_groups.resolution_hooks import register_resolution_hook
    from sglang.srt.layers.quantization import fp4_kv_cache_quant_method as quantization

    def is_ours(view):
        return view.kv_cache_dtype == "nvfp4" and set(attention_backends_of(view)) == {NAME}

    def dequantized_prompts(server_args, previous):
        view = resolving_view(server_args)
        if not is_ours(view):
            return previous(server_args)
        if view.prefill_kv_cache_dequant_dtype != "auto":
            refuse(f"--prefill-kv-cache-dequant-dtype {view.prefill_kv_cache_dequant_dtype}",
                   "leave it out: prompts read nvfp4 itself")

    def compatibility(server_args, previous):
        view = resolved_view(server_args)
        if not is_ours(view):
            return previous(server_args)
        if view.enable_unified_memory:
            refuse("nvfp4 beside --enable-unified-memory", "leave that out, whose pool has no scales of blocks")

    registry = quantization.KV_CACHE_ATTENTION_ACCESS_REGISTRY
    if any(access.backend_matcher.exact == {NAME} for access in registry["nvfp4"]):
        return
    matcher = quantization.KVCacheBackendMatcher(exact=frozenset({NAME}))
    accesses = tuple(
        quantization.KVCacheAttentionAccess(phase, quantization.KVCacheAttentionAccessKind.NATIVE_FP4, matcher,
                                            storage_dtype=torch.uint8, scale_recipe="nvfp4")
        for phase in quantization.KVCacheAttentionPhase)  # fmt: skip
    register_resolution_hook("handle_nvfp4_prefill_kv_dequant_dtype")(dequantized_prompts)
    register_resolution_hook("handle_kv4_compatibility")(compatibility)
    registry["nvfp4"] += accesses


class Pool:
    """A pool of nvfp4 as attention and `append` see it."""

    def __init__(self, pool, page_size):
        if pool.k_scale_buffer is None:
            refuse("nvfp4 with the order of scales that SGLang keeps for SM100", "give --kv-cache-dtype fp8_e4m3")
        self._pool, self._page_size = pool, page_size

    def arguments(self, layer):
        """Keyword arguments of attention."""
        keys, values, scales, of_blocks = self._of(layer.layer_id)
        return dict(k=keys, v=values, kv_dtype="nvfp4", k_descale=scales[0], v_descale=scales[1],
                    k_block_scales=of_blocks[0], v_block_scales=of_blocks[1])

    def store(self, k, v, layer, slots):
        """Stores k and v, (tokens, heads_kv, …), in their slots."""
        keys, values, scales, of_blocks = self._of(layer.layer_id)
        k, v = (x.view(-1, layer.tp_k_head_num, n) for x, n in ((k, layer.qk_head_dim), (v, layer.v_head_dim)))
        _append_to_slots(k, v, keys, values, slots, "nvfp4", *scales, *of_blocks)

    def _of(self, layer_id):
        # get_key_buffer and get_value_buffer wait for keys that a host still sends; get_raw_kv_buffer does not.
        keys, values = self._pool.get_key_buffer(layer_id), self._pool.get_value_buffer(layer_id)
        _, _, *of_blocks = self._pool.get_raw_kv_buffer(layer_id)
        method = self._pool.quant_method
        scales = [each[layer_id : layer_id + 1] for each in (method.k_scales_gpu, method.v_scales_gpu)]
        return self._pages(keys), self._pages(values), scales, [self._pages(x) for x in of_blocks]

    def _pages(self, buffer):
        return buffer.view(torch.uint8).view(-1, self._page_size, *buffer.shape[1:])
