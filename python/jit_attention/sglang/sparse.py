"""The backend for models whose tokens choose latents (DeepSeek V3.2, GLM 5), over SGLang's own for them.

SGLang's indexer chooses the slots of the pool that a token sees, and SGLang's backend prepares the indexer's inputs.
One call of `jit_attention.sparse.dsa` reads the slots, in prefill and decoding, from 16-bit and packed pools. The kernel
converts 8-bit rows while it copies them, so prefill neither gathers nor upcasts the cache first. SGLang's own kernels
serve prompts no longer than the number of chosen tokens.
"""

import torch
from sglang.srt.layers.attention.dsa.dsa_topk_backend import TopkTransformMethod
from sglang.srt.layers.attention.dsa_backend import DeepseekSparseAttnBackend
from sglang.srt.models.deepseek_common.attention_backend_handler import AttentionBackendRegistry, handle_attention_dsa
from sglang.srt.runtime_context import get_exec, get_parallel, get_spec

import jit_attention as ja

from . import NAME, pass_parts_of_queries, refuse


class JitAttentionSparseBackend(DeepseekSparseAttnBackend):
    """SGLang's backend with another kernel, in the place of the one that takes slots, counts and sinks."""

    def __init__(self, model_runner):
        _refuse_settings(model_runner)
        super().__init__(model_runner)
        self._kv_dtype = "latent_656" if self.dsa_kv_cache_store_fp8 else None
        fields = {} if self._kv_dtype is None else {"kv_dtype": self._kv_dtype}
        columns = self.kv_lora_rank + self.qk_rope_head_dim
        refused = ja.refusals("sm_90a", head_dim=columns, head_dim_v=self.kv_lora_rank, gqa_ratio=self.num_q_heads,
                              values_in_keys=True, sequences_q="varlen", sequences_kv="varlen", list_block=1, **fields)
        if refused:
            refuse(f"chosen latents with {refused[0].field} {refused[0].value}, which {refused[0].rule}",
                   "give --attention-backend dsa")
        self.dsa_prefill_impl = self.dsa_decode_impl = "flashmla_sparse"
        self.enable_auto_select_prefill_impl = False  # SGLang would choose its kernel by the pool's type
        # SGLang's layers ask by a backend's name how a step is computed, and whether it wants parts of queries.
        AttentionBackendRegistry.register(NAME, handle_attention_dsa)
        pass_parts_of_queries()

    def get_topk_transform_method(self, forward_mode=None):
        """Lists name slots of the pool in every step: nothing is gathered ahead."""
        return TopkTransformMethod.PAGED

    def _forward_flashmla_sparse(self, q_all, kv_cache, v_head_dim, page_table_1, sm_scale, topk_length=None, attn_sink=None):
        """Attention of tokens to the slots that they chose.

        Args:
            q_all: (tokens, heads, 576).
            kv_cache: (slots, 1, 576), or 656 bytes, which SGLang calls e4m3.
            v_head_dim: 512.
            page_table_1: int32 (tokens, entries): slots, −1 where a token has none.
            sm_scale: The factor of q · k.
            topk_length: int32 (tokens): how many entries count; None, or of another length: all.
            attn_sink: (heads), or None.

        Returns:
            (tokens, heads, 512), in which rows of tokens that see nothing are 0.
        """
        if topk_length is not None and topk_length.shape[0] != q_all.shape[0]:
            topk_length = None
        rows = kv_cache if self._kv_dtype is None else kv_cache.view(torch.uint8)
        pages = rows.view(-1, self.physical_page_size, 1, rows.shape[-1])
        return ja.sparse.dsa(q_all, pages, page_table_1.unsqueeze(1), None if topk_length is None else topk_length.unsqueeze(1),
                             head_dim_v=v_head_dim, softmax_scale=sm_scale, kv_dtype=self._kv_dtype,
                             sinks=None if attn_sink is None else attn_sink.float())


def _refuse_settings(model_runner):
    """Refuses what SGLang's own backend would serve by other kernels."""
    pool = model_runner.token_to_kv_pool
    if pool.index_kpool > 1:
        refuse(f"index keys pooled by {pool.index_kpool}", "give --attention-backend dsa")
    if pool.dtype.itemsize == 1 and not pool.dsa_kv_cache_store_fp8:
        refuse(f"latents of {pool.dtype} without scales", "leave out --dsa-prefill-backend and --dsa-decode-backend, or give "
               "--kv-cache-dtype bfloat16")
    if get_exec().deterministic.enable_deterministic_inference:
        refuse("--enable-deterministic-inference where tokens choose latents", "leave it out, or give --attention-backend dsa")
    if (algorithm := get_spec().speculative_algorithm) is not None:
        refuse(f"--speculative-algorithm {algorithm}", "leave it out, or give --attention-backend dsa")
    if get_parallel().dcp_enabled:
        refuse("--dcp-size where tokens choose latents", "leave it out, or give --attention-backend dsa")
    if model_runner.hisparse_coordinator is not None:
        refuse("--enable-hisparse", "leave it out, or give --attention-backend dsa")
