"""The backend for MiniMax M3's layers, whose tokens choose blocks of 128 keys.

vLLM asks no registry for these layers: a function beside the model chooses their classes, and `take_part` has the model ask
`select_main_backend_and_impl_cls` below. vLLM's indexer says which blocks a token sees, and vLLM stores keys. One call of
`jit_attention.sparse.block_top_k` attends to them, for all requests of a step.
"""

import dataclasses
import functools
import logging
import sys

import torch
import vllm
from vllm.forward_context import get_forward_context
from vllm.models.minimax_m3.common.sparse_attention import (
    MiniMaxM3SparseBackend,
    MiniMaxM3SparseImpl,
    MiniMaxM3SparseMetadata,
    MiniMaxM3SparseMetadataBuilder,
)

import jit_attention as ja

from .._engines import check_version
from . import SERVED_VERSIONS
from .layer import pages_of
from .seen import Seen

check_version("vLLM", vllm.__version__, SERVED_VERSIONS)

_MODEL = "vllm.models.minimax_m3.nvidia.model"
_CHOICE = "select_main_backend_and_impl_cls"
_SIXTEEN_BITS = ("auto", "bfloat16", "float16")
_log = logging.getLogger("jit_attention")


def take_part():
    """Has vLLM's model ask here for the classes of layers that are made from now on. Calling it again changes nothing.

    vLLM chooses the backend of M3's first layers, which are dense, before it makes those that choose blocks.
    """
    model = sys.modules.get(_MODEL)
    vllms = getattr(model, _CHOICE, None)
    if vllms is not None and not getattr(vllms, "is_ours", False):
        ours = functools.partial(select_main_backend_and_impl_cls, vllms)
        ours.is_ours = True
        setattr(model, _CHOICE, ours)


def select_main_backend_and_impl_cls(vllms, *, kv_cache_dtype, **sizes):
    """The backend and the implementation of a layer that chooses blocks; vLLM's own for caches other than 16-bit ones."""
    if kv_cache_dtype in _SIXTEEN_BITS:
        return JitAttentionMiniMaxM3Backend, JitAttentionMiniMaxM3Impl
    _log.warning("layers that choose blocks of keys have vLLM's own backend over a cache of %s; --kv-cache-dtype bfloat16 gives "
                 "them jit_attention's", kv_cache_dtype)
    return vllms(kv_cache_dtype=kv_cache_dtype, **sizes)


@dataclasses.dataclass
class JitAttentionMiniMaxM3Metadata(MiniMaxM3SparseMetadata):
    """vLLM's, and two tensors of the whole step, that it has in parts."""

    query_start_loc: torch.Tensor | None = None
    block_table: torch.Tensor | None = None


class JitAttentionMiniMaxM3MetadataBuilder(MiniMaxM3SparseMetadataBuilder):
    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        made = super().build(common_prefix_len, common_attn_metadata, fast_build)
        fields = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
        return JitAttentionMiniMaxM3Metadata(**fields, query_start_loc=common_attn_metadata.query_start_loc,
                                             block_table=common_attn_metadata.block_table_tensor)


class JitAttentionMiniMaxM3Impl(MiniMaxM3SparseImpl):
    """A cache is (pages, heads_kv, 128, 2 · head_size), K before V in a row, in any of vLLM's layouts."""

    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, kv_cache_dtype="auto", **chosen):
        super().__init__(num_heads, head_size, scale, num_kv_heads, kv_cache_dtype, **chosen)
        self._causal = ja.mask.causal()
        self._seen = Seen()

    def forward(self, layer, query, kv_cache, output, *, query_fp8=None):
        """Attention of the tokens of a step to the blocks that the indexer chose, in one call.

        Args:
            layer: has topk_indices_buffer, int32 (tokens or more, heads_kv, entries): blocks of the sequence, −1 for none.
            query: (tokens or more, heads · head_size).
            kv_cache: (pages, heads_kv, 128, 2 · head_size).
            output: like query, written. Rows of the step that are no request's become 0.
            query_fp8: None: no 8-bit queries are asked for.
        """
        steps = get_forward_context().attn_metadata
        if not isinstance(steps, dict):  # vLLM measures its memory
            return output
        step = steps[layer.layer_name]
        tokens = step.num_actual_tokens
        q, out = (x[:tokens].view(tokens, self.num_heads, self.head_size) for x in (query, output))
        k, v = self._seen.of(self._views_of, kv_cache)
        ja.sparse.block_top_k(q, k, v, layer.topk_indices_buffer[:tokens], block=self.block_size, mask=self._causal,
                              softmax_scale=self.scale, page_table=step.block_table, cu_seqlens_q=step.query_start_loc,
                              seqused_k=step.seq_lens, out=out)
        return output

    def _views_of(self, kv_cache, *no_scales):
        """Keys and values as pages of (pages, page_size, heads_kv, head_size)."""
        return pages_of(kv_cache).split(self.head_size, dim=-1)


class JitAttentionMiniMaxM3Backend(MiniMaxM3SparseBackend):
    """vLLM's, with the classes above."""

    @staticmethod
    def get_impl_cls():
        return JitAttentionMiniMaxM3Impl

    @staticmethod
    def get_builder_cls():
        return JitAttentionMiniMaxM3MetadataBuilder
