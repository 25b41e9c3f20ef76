"""Attention for SGLang's layers over its slot pool."""

import math

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.dcp import cp_lse_ag_out_rs_mha
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.runtime_context import get_exec, get_parallel, get_spec

import jit_attention as ja

from .._engines import SPLIT_KEYS
from .._shared_keys import SharedKeys, lengths_here, places_here, with_sinks
from . import nvfp4, pass_parts_of_queries, refuse

_LOG2_E = math.log2(math.e)


class JitAttentionBackend(AttentionBackend):
    """One call for all requests of a step. The device computes lengths and pages, in a graph if there is one; the host
    never reads them.
    """

    needs_cpu_seq_lens = False
    pools = MHATokenToKVPool, MLATokenToKVPool  #: that it reads

    def __init__(self, model_runner):
        super().__init__()
        self.pool = model_runner.token_to_kv_pool
        self.req_to_token = model_runner.req_to_token_pool.req_to_token
        self.page_size = model_runner.page_size
        self.split_keys = SPLIT_KEYS if get_exec().deterministic.enable_deterministic_inference else 0
        self.is_latent = type(self.pool) is MLATokenToKVPool
        if type(self.pool) not in self.pools:
            refuse(f"keys in a {type(self.pool).__name__}", "give --disable-hybrid-swa-memory to models with "
                    "windows, and another --attention-backend to those that pick keys")
        parallel = get_parallel()
        self.ranks, self.rank = (parallel.attn_dcp_size, parallel.attn_dcp_rank) if parallel.dcp_enabled else (1, 0)
        if self.ranks > 1:
            if self.is_latent:
                pass_parts_of_queries()
            self.places = places_here(self.rank, self.ranks, 1, self.req_to_token.device)
        if (algorithm := get_spec().speculative_algorithm) is not None:
            refuse(f"--speculative-algorithm {algorithm}", "leave it out, or use fa3")
        self.nvfp4 = None
        if (name := getattr(getattr(self.pool, "quant_method", None), "name", "unquantized")) == "nvfp4":
            if self.ranks > 1:
                refuse("nvfp4 that GPUs share out", "give --kv-cache-dtype fp8_e4m3, or leave out --dcp-size")
            self.nvfp4 = nvfp4.Pool(self.pool, self.page_size)
        elif name != "unquantized" or self.pool.store_dtype != self.pool.dtype and self.pool.dtype.itemsize != 1:
            refuse(f"a cache of {name if name != 'unquantized' else self.pool.dtype}",
                   "give --kv-cache-dtype auto, fp8_e4m3, fp8_e5m2 or nvfp4")
        if self.is_latent and self.pool.dtype.itemsize == 1:
            refuse(f"latents of {self.pool.dtype}", "give --kv-cache-dtype auto")

    def init_cuda_graph_state(self, max_bs, max_num_tokens):
        """Does nothing: graphs compute their own inputs."""

    def get_cuda_graph_seq_len_fill_value(self):
        return 0  # padding requests have no keys

    def init_forward_metadata_in_graph(self, forward_batch):
        # Slots count over all ranks: within each `span`, a rank has every ranks-th slot, on one page of its own.
        span = self.page_size * self.ranks
        rows = torch.index_select(self.req_to_token[:, self.rank::span], 0, forward_batch.req_pool_indices)
        lengths = forward_batch.seq_lens.to(torch.int32)
        if forward_batch.forward_mode.is_decode_or_idle():
            starts = torch.arange(len(lengths) + 1, dtype=torch.int32, device=lengths.device)
        else:
            starts = torch.nn.functional.pad(forward_batch.extend_seq_lens.cumsum(0, dtype=torch.int32), (1, 0))
        self.forward_metadata = dict(page_table=(rows // span).to(torch.int32), seqused_k=lengths, cu_seqlens_q=starts)
        if self.ranks > 1:
            self._share(forward_batch, lengths, starts)

    def _share(self, forward_batch, lengths, starts):
        """This rank's keys of each request, and its slots for the step's tokens."""
        is_decode = forward_batch.forward_mode.is_decode_or_idle()
        self.shared = SharedKeys(self.places, lengths_here(lengths, self.rank, self.ranks, 1),
                                 torch.stack([starts[1:] - starts[:-1], lengths], dim=1),
                                 not is_decode and not any(forward_batch.extend_prefix_lens_cpu))
        self.forward_metadata.update(self.shared.arguments())
        self.slots = forward_batch.out_cache_loc // self.ranks
        self.are_own = forward_batch.positions % self.ranks == self.rank

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, **more):
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, **more)

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **more):
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, **more)

    def _attend(self, q, k, v, layer, forward_batch, save_kv_cache, sinks=None, **unknown):
        """q (tokens, heads · head_dim), k and v (tokens, heads_kv, …) → (tokens, heads · head_dim_v)."""
        if self.ranks > 1 and self.is_latent and unknown.get("q_rope") is not None:
            return self._attend_to_shared_latents(q, k, layer, forward_batch, save_kv_cache, **unknown)
        given = [name for name, value in unknown.items() if value is not None]
        if given or layer.is_cross_attention or layer.xai_temperature_len > 0:
            what = given[0] if given else "cross attention" if layer.is_cross_attention else "xai_temperature_len"
            refuse(what, "choose another --attention-backend for this model")
        if save_kv_cache and k is not None:
            self._store(k, v, layer, forward_batch)
        q = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
        sinks = None if sinks is None else sinks.float()
        options = dict(mask=_mask_of(layer), softmax_scale=layer.scaling, zero_padding=True, split_keys=self.split_keys,
                       score=ja.score.softcap(layer.logit_cap) if layer.logit_cap else None)
        if self.ranks > 1 and not self.is_latent:
            return self._attend_with_others(q, k, v, layer, sinks, options).reshape(q.shape[0], -1)
        out = q.new_empty(q.shape[0], layer.tp_q_head_num, layer.v_head_dim)
        ja.attention(q, **self._keys_and_values(k, v, layer), out=out, sinks=sinks, **options)
        return out.view(q.shape[0], -1)

    def _store(self, k, v, layer, forward_batch):
        if self.nvfp4 is not None:
            return self.nvfp4.store(k, v, layer, forward_batch.out_cache_loc)
        scales = () if layer.k_scale is None else (layer.k_scale, layer.v_scale)
        if self.ranks == 1:
            self.pool.set_kv_buffer(layer, KVWriteLoc(forward_batch.out_cache_loc), k, v, *scales)
            return
        where = KVWriteLoc(self.slots, physical=forward_batch.out_cache_loc_is_physical)
        k, v = k.view(-1, layer.tp_k_head_num, layer.qk_head_dim), v.view(-1, layer.tp_v_head_num, layer.v_head_dim)
        self.pool.set_kv_buffer(layer, where, k, v, *scales, dcp_kv_mask=self.are_own)

    def _attend_with_others(self, q, k, v, layer, sinks, options):
        """Attention to this rank's shard of keys, with all heads; each rank receives its own heads merged."""
        if self.shared.are_new and k is not None and not self.split_keys and self.pool.dtype.itemsize > 1:
            starts = self.forward_metadata["cu_seqlens_q"]
            k, v = (self._heads_of_own_queries(x.view(q.shape[0], -1, x.shape[-1] if x.dim() == 3 else head_dim))
                    for x, head_dim in ((k, layer.qk_head_dim), (v, layer.v_head_dim)))
            return ja.attention(q, k, v, sinks=sinks, cu_seqlens_q=starts, cu_seqlens_k=starts, **options)
        group = get_parallel().dcp_group
        part, lse = ja.attention(group.all_gather(q.contiguous(), dim=1), return_lse=True,
                                 **self._keys_and_values(k, v, layer), **options)
        whole, lse = cp_lse_ag_out_rs_mha(part.float(), lse.transpose(0, 1), group, return_lse=True)
        return with_sinks(whole, lse, sinks).to(q.dtype)

    def _attend_to_shared_latents(self, q, k, layer, forward_batch, save_kv_cache, q_rope, k_rope, **unknown):
        """Attention to this rank's shard of latents, where SGLang gathers and merges. Decoding: q (tokens, all heads,
        latent) and its rotated part → o and base-2 LSE over this rank's latents. Otherwise: own heads → o over the
        gathered and the new latents."""
        if given := [name for name, value in unknown.items() if value is not None]:
            refuse(f"{given[0]} beside latents that GPUs share out", "choose another --attention-backend for this model")
        if save_kv_cache and k is not None:
            where = KVWriteLoc(forward_batch.out_cache_loc, physical=forward_batch.out_cache_loc_is_physical)
            self.pool.set_mla_kv_buffer(layer, where, k, k_rope)
        heads = layer.tp_q_head_num
        if q.shape[0] == 0:  # a rank without requests
            return q.new_empty(0, heads * layer.v_head_dim)
        q = torch.cat([q.view(-1, heads, layer.v_head_dim), q_rope.view(q_rope.shape[0], heads, -1)], -1)
        options = dict(mask=_mask_of(layer), softmax_scale=layer.scaling, zero_padding=True, split_keys=self.split_keys,
                       score=ja.score.softcap(layer.logit_cap) if layer.logit_cap else None, head_dim_v=layer.v_head_dim)
        if forward_batch.forward_mode.is_decode_or_idle():
            keys = self._pages_of(self.pool.get_key_buffer(layer.layer_id))
            o, lse = ja.attention(q, keys, return_lse=True, **self.forward_metadata, **options)
            return o, (lse * _LOG2_E).t().contiguous()
        gathered = forward_batch.attn_dcp_metadata
        keys = gathered.dcp_kv_buffer.index_select(0, gathered.dcp_kv_indices)
        o = ja.attention(q, keys.to(q.dtype), cu_seqlens_q=self.forward_metadata["cu_seqlens_q"],
                         cu_seqlens_k=gathered.dcp_kv_indptr, **options)
        return o.view(q.shape[0], -1)

    def _heads_of_own_queries(self, x):
        """A rank may hold all heads; selects those that its queries use."""
        heads = x.shape[1]
        first = self.rank * heads // self.ranks
        return x[:, first:max((self.rank + 1) * heads // self.ranks, first + 1)]

    def _keys_and_values(self, k, v, layer):
        """Keyword arguments of attention: the pool's pages, or, at the start of a latent prompt, each head's keys."""
        if self.is_latent and layer.qk_head_dim != self.pool.kv_cache_dim:
            starts = self.forward_metadata["cu_seqlens_q"]
            return dict(k=k.view(-1, layer.tp_k_head_num, layer.qk_head_dim), cu_seqlens_q=starts,
                        v=v.view(-1, layer.tp_v_head_num, layer.v_head_dim), cu_seqlens_k=starts)
        if self.nvfp4 is not None:
            return self.nvfp4.arguments(layer) | self.forward_metadata
        keys = self._pages_of(self.pool.get_key_buffer(layer.layer_id))
        if self.is_latent:
            return dict(k=keys, head_dim_v=layer.v_head_dim, **self.forward_metadata)
        descale = {}
        if keys.element_size() == 1 and layer.k_scale is not None:
            descale = dict(k_descale=layer.k_scale.reshape(-1), v_descale=layer.v_scale.reshape(-1))
        return dict(k=keys, v=self._pages_of(self.pool.get_value_buffer(layer.layer_id)), **descale,
                    **self.forward_metadata)

    def _pages_of(self, buffer):
        return buffer.view(-1, self.page_size, *buffer.shape[1:])


def _mask_of(layer):
    """The mask of a layer. SGLang's window does not count a token's own key, so that 0 keeps only that one."""
    is_causal = layer.attn_type == AttentionType.DECODER
    if layer.sliding_window_size < 0:
        return ja.mask.causal() if is_causal else None
    return ja.mask.sliding_window(layer.sliding_window_size, 0 if is_causal else layer.sliding_window_size)
