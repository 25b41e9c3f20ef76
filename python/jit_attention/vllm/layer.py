"""Attention of one layer."""

import torch
from vllm import envs
from vllm.v1.attention.backend import AttentionImpl, AttentionType

import jit_attention as ja

from .._core import _append_to_slots, _attend_to_pages
from .._engines import SPLIT_KEYS
from .._shared_keys import with_sinks
from . import nvfp4
from .rotation import Rotation
from .seen import Seen

#: With a scale per token and head.
_INLINE = {"fp8_per_token_head": "fp8_e4m3", "int8_per_token_head": "int8", "int4_per_token_head": "int4"}
_KV_DTYPES = {"fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2", "nvfp4": "nvfp4", **_INLINE}
SCALE_BYTES = 4  # per token and head, after the elements of its key and of its value


class JitAttentionImpl(AttentionImpl):
    """Stores new keys and values by one kernel, and attends to the cache by another one.

    A cache is (pages, heads_kv, page_size, 2 · head_size), K before V in a row, with the strides of any of vLLM's
    layouts. With a scale for each token and head, bytes (…, 2 · (head_size + 4)): K, its scale, V, its scale; with
    4 bits, half of head_size, and K and V are rotated. Pages of nvfp4: see nvfp4.py.
    """

    supports_dcp = True
    can_return_lse_for_decode = True
    lse_base_on_e = True
    supports_mtp_with_cp_non_trivial_interleave_size = True
    dcp_world_size = 1  # vLLM sets it when ranks shard keys

    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None,
                 kv_cache_dtype="auto", logits_soft_cap=None, attn_type=AttentionType.DECODER,
                 kv_sharing_target_layer_name=None, sinks=None, **unknown):
        if unknown:
            raise NotImplementedError(f"jit_attention.vllm does not know {', '.join(unknown)} of this model's "
                                      "layers: choose another --attention-backend, such as TRITON_ATTN")
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.kv_cache_dtype = kv_cache_dtype
        self.attn_type = attn_type
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.sinks = None if sinks is None else sinks.float()
        self.alibi_slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32)
        self.split_keys = SPLIT_KEYS if envs.VLLM_BATCH_INVARIANT else 0
        self._sinks_given = sinks
        self._masks = _masks_of(sliding_window)
        self._score = _score_of(logits_soft_cap, self.alibi_slopes)
        self._kv_dtype = _KV_DTYPES.get(kv_cache_dtype)
        self._scales_are_inline = kv_cache_dtype in _INLINE
        self._rotation = Rotation(head_size) if self._kv_dtype == "int4" else None
        self._stored_columns = head_size // 2 if self._kv_dtype == "int4" else head_size
        self._reads_inputs = attn_type in (AttentionType.ENCODER_ONLY, AttentionType.ENCODER)
        self._is_decoder = attn_type == AttentionType.DECODER
        self._seen = Seen()
        if self.dcp_world_size > 1:
            if alibi_slopes is not None:
                raise NotImplementedError("jit_attention.vllm does not serve ALiBi where ranks share keys out: leave out "
                                          "--decode-context-parallel-size")
            self._merge = _merge_of_vllm()

    def process_weights_after_loading(self, act_dtype):
        """Sinks are loaded after the layer was made, often in 16 bits."""
        if self._sinks_given is not None:
            self.sinks = self._sinks_given.float()

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None,
                output_block_scale=None):
        """Attention of all requests of a step, in one call.

        Args:
            layer: has the scales of a cache of fp8, _k_scale and _v_scale, one or (heads_kv), unless they lie inline.
            query: (tokens, heads, head_size).
            key, value: (tokens, heads_kv, head_size); read by encoders only, others read the cache.
            kv_cache: (pages, heads_kv, page_size, 2 · head_size), or with scales inline.
            attn_metadata: a JitAttentionMetadata, or None while vLLM measures its memory.
            output: (tokens, heads, head_size), written. Rows that are no request's become 0.
            output_scale, output_block_scale: None.
        """
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("jit_attention.vllm writes outputs of 16 bits: leave fuse_attn_quant out of "
                                      "the pass_config")
        if attn_metadata is None:
            return output.fill_(0)
        tokens, starts = attn_metadata.num_actual_tokens, attn_metadata.query_start_loc
        mask, tensors = self._mask_of(attn_metadata.causal, query)
        if self._reads_inputs:
            query, key, value, out = (_first(x, tokens) for x in (query, key, value, output))
            ja.attention(query, key, value, out=out, mask=mask, score=self._score, softmax_scale=self.scale,
                         tensors=tensors, sinks=self.sinks, split_keys=self.split_keys, cu_seqlens_q=starts,
                         cu_seqlens_k=starts, zero_padding=True)
            return output
        if attn_metadata.shared is not None:
            return self._attend_with_others(layer, query, kv_cache, attn_metadata, output, mask, tensors)
        out = output
        if self._rotation is not None:
            query = self._rotation.of_queries(_first(query, tokens))
            out = torch.empty_like(query)
        keys, values, k_scale, v_scale, *of_blocks = self._caches(layer, kv_cache)
        _attend_to_pages(query, keys, values, out, tokens, mask, self._score, self.scale, tensors, self.sinks,
                         self.split_keys, starts, attn_metadata.block_table, attn_metadata.seq_lens, self._kv_dtype,
                         k_scale, v_scale, None, *of_blocks)
        if self._rotation is not None:
            self._rotation.back(out, _first(output, tokens))
        return output

    def _attend_with_others(self, layer, query, kv_cache, metadata, output, mask, tensors):
        """Attention to this rank's shard of keys, with all heads; each rank receives its own heads merged."""
        shared, tokens = metadata.shared, metadata.num_actual_tokens
        out, query = _first(output, tokens), _first(query, tokens)
        if self._rotation is not None:
            query = self._rotation.of_queries(query)
        options = dict(mask=mask, score=self._score, softmax_scale=self.scale, tensors=tensors, split_keys=self.split_keys,
                       cu_seqlens_q=metadata.query_start_loc, zero_padding=True)
        keys, values, k_scale, v_scale, *of_blocks = self._caches(layer, kv_cache)
        if self._kv_dtype is not None:
            options.update(kv_dtype=self._kv_dtype, k_descale=k_scale, v_descale=v_scale)
            options.update(zip(("k_block_scales", "v_block_scales"), of_blocks))
            if self._scales_are_inline:
                options.update(descale_per="token")
        group = get_dcp_group()
        part, lse = ja.attention(group.all_gather(query.contiguous(), dim=1), keys, values, return_lse=True,
                                 page_table=metadata.block_table, **shared.arguments(), **options)
        whole, lse = self._merge(part, lse.transpose(0, 1).contiguous(), group)
        whole = with_sinks(whole, lse, self.sinks)
        if self._rotation is None:
            out.copy_(whole)
        else:
            self._rotation.back(whole.to(out.dtype), out)
        return output

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        """Stores the step's keys and values, (at least tokens, heads_kv, head_size), in their slots."""
        if self._reads_inputs:
            return
        keys, values, *scales = self._caches(layer, kv_cache)
        if self._rotation is not None:
            key, value = self._rotation.stored(key), self._rotation.stored(value)
        _append_to_slots(key, value, keys, values, slot_mapping, self._kv_dtype, *scales)

    def _caches(self, layer, kv_cache):
        """Keys and values as pages (pages, page_size, heads_kv, head_size), their scales or None, and with nvfp4 those of
        blocks."""
        if self._kv_dtype is None or self._scales_are_inline:
            return self._seen.of(self._views_of, kv_cache)
        return self._seen.of(self._views_of, kv_cache, layer._k_scale, layer._v_scale)

    def _views_of(self, kv_cache, k_scale, v_scale):
        if self._kv_dtype == "nvfp4":
            keys, values, *of_blocks = nvfp4.views_of(kv_cache)
            return keys, values, k_scale.reshape(-1), v_scale.reshape(-1), *of_blocks
        rows = pages_of(kv_cache)
        if self._scales_are_inline:
            columns = self._stored_columns
            halves = rows.split(columns + SCALE_BYTES, dim=-1)
            return (*(half[..., :columns] for half in halves),
                    *(half[..., columns:].view(torch.float32)[..., 0] for half in halves))
        scales = (None, None) if k_scale is None else (k_scale.reshape(-1), v_scale.reshape(-1))
        return (*rows.split(self.head_size, dim=-1), *scales)

    def _mask_of(self, causal, query):
        if causal is True and self.alibi_slopes is None:  # nearly all layers and steps
            return self._masks[self._is_decoder], None
        tensors = {}
        if self.alibi_slopes is not None:
            if self.alibi_slopes.device != query.device:
                self.alibi_slopes = self.alibi_slopes.to(query.device)
            tensors["alibi_slopes"] = self.alibi_slopes
        if isinstance(causal, torch.Tensor):
            tensors["is_causal"] = causal
            return self._masks["by request"], tensors
        return self._masks[bool(causal) and self._is_decoder], tensors


def pages_of(kv_cache):
    """Rows as (pages, page_size, heads_kv, columns)."""
    rows = kv_cache.transpose(1, 2)
    if kv_cache.shape[1] == 1:  # PyTorch leaves a single head's stride arbitrary; TMA does not
        rows = rows.as_strided(rows.shape, (*rows.stride()[:2], rows.shape[3], 1))
    return rows


def _first(rows, count):
    """The first rows of a tensor. Comparing sizes is faster than slicing."""
    return rows if rows.shape[0] == count else rows[:count]


def get_dcp_group():
    """vLLM's process group with sharded keys."""
    from vllm.distributed import parallel_state

    return parallel_state.get_dcp_group()


def _merge_of_vllm():
    """The exchange selected by --dcp-comm-backend: merges partial results (tokens, all heads, …) and LSE by heads."""
    from vllm.config import get_current_vllm_config_or_none
    from vllm.v1.attention.ops import dcp

    config = get_current_vllm_config_or_none()
    if config is not None and config.parallel_config.dcp_comm_backend == "a2a":
        return lambda part, lse, group: dcp.dcp_a2a_lse_reduce(part, lse, group, return_lse=True)
    # Reduce-scatter rounds each rank's addend and the sums to the dtype that it is given: fp32, so that all is once.
    return lambda part, lse, group: dcp.cp_lse_ag_out_rs(part.float(), lse, group, return_lse=True)


def _masks_of(sliding_window):
    """A step's mask from vLLM's flags: one for causality, or one per request. Without causality windows extend both
    ways."""
    if sliding_window is None:
        return {True: ja.mask.causal(), False: None, "by request": ja.mask.causal_per_request()}
    both_ways = ja.mask.sliding_window(sliding_window - 1, sliding_window - 1)
    return {True: ja.mask.sliding_window(sliding_window - 1, 0), False: both_ways,
            "by request": ja.mask.causal_per_request() & both_ways}


def _score_of(softcap, alibi_slopes):
    score = ja.score.softcap(float(softcap)) if softcap else None
    if alibi_slopes is None:
        return score
    return ja.score.alibi() if score is None else score.then(ja.score.alibi())
