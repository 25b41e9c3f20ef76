"""The backend for MiniMax M3's layers, whose tokens choose blocks of 128 keys.

SGLang puts a backend for these layers beside that of the dense ones, whatever serves the latter: `take_part` has it make
the class below. SGLang's indexer says which blocks a token sees, and SGLang stores keys. One call of
`jit_attention.sparse.block_top_k` attends to them, for all requests of a step.
"""

import contextlib

from sglang.srt.layers.attention import minimax_sparse_backend
from sglang.srt.layers.attention.minimax_sparse_backend import MiniMaxSparseAttnBackend
from sglang.srt.layers.attention.minimax_sparse_ops import minimax_sparse
from sglang.srt.runtime_context import get_exec, get_parallel, get_spec

import jit_attention as ja

from . import refuse
from .backend import JitAttentionBackend

_OTHERS = "give another --attention-backend"
#: Names of SGLang's functions that attend to chosen blocks, in the module whose functions choose them.
_PREFILL, _DECODE = "flash_prefill_with_gqa_share_sparse", "flash_decode_with_gqa_share_sparse"


def take_part():
    """Has SGLang make the class below for layers that choose blocks, from now on. Calling it again changes nothing."""
    minimax_sparse_backend.MiniMaxSparseAttnBackend = JitAttentionMiniMaxM3Backend


class JitAttentionDenseBackend(JitAttentionBackend):
    """The backend of M3's first layers, which see all keys of the same pool."""

    pools = (minimax_sparse_backend.MiniMaxSparseKVPool,)


class JitAttentionMiniMaxM3Backend(MiniMaxSparseAttnBackend):
    """SGLang's, with another kernel for the blocks that tokens chose."""

    def __init__(self, runner):
        _refuse_settings(runner)
        super().__init__(runner)
        self.use_msa = self._use_msa_decode = self._msa_owns_decode = self.use_dense_sparse_decode = False
        self._causal = ja.mask.causal()

    @property
    def dense_backend(self):
        return self._dense

    @dense_backend.setter
    def dense_backend(self, backend):
        """SGLang hands over the other layers' backend, which has pages and lengths of a step."""
        if backend is not None and not isinstance(backend, JitAttentionBackend):
            refuse(f"blocks of keys beside {type(backend).__name__}", "leave out --prefill-attention-backend and "
                   "--decode-attention-backend")
        self._dense = backend

    def forward_extend(self, *arguments, **options):
        with self._instead_of(_PREFILL):
            return super().forward_extend(*arguments, **options)

    def forward_decode(self, *arguments, **options):
        with self._instead_of(_DECODE):
            return super().forward_decode(*arguments, **options)

    @contextlib.contextmanager
    def _instead_of(self, name):
        """SGLang's step, that calls here where it would call this function."""
        sglangs = getattr(minimax_sparse, name)
        setattr(minimax_sparse, name, self._attend)
        try:
            yield
        finally:
            setattr(minimax_sparse, name, sglangs)

    def _attend(self, q, *, k_cache, v_cache, topk_idx, sm_scale=None, **of_the_step):
        """Attention of the tokens of a step to the blocks that they chose.

        Args:
            q: (tokens, heads, head_dim).
            k_cache: (slots, heads_kv, head_dim), as v_cache.
            topk_idx: int32 (heads_kv, tokens, entries): blocks of the sequence, −1 for none.
            sm_scale: The factor of q · k. None: 1/sqrt(head_dim).
            of_the_step: What is known of the step: its sequences, and what `_refuse_settings` refuses.

        Returns:
            (tokens, heads, head_dim), in which rows of tokens that see nothing are 0.
        """
        k, v = (x.view(-1, self.page_size, *x.shape[-2:]) for x in (k_cache, v_cache))
        return ja.sparse.block_top_k(q, k, v, topk_idx.transpose(0, 1), block=self.block_size_k, mask=self._causal,
                                     softmax_scale=sm_scale, **self._dense.forward_metadata)


def _refuse_settings(runner):
    """Refuses what SGLang's own backend would serve by other kernels."""
    pool = runner.token_to_kv_pool
    if pool.dtype.itemsize == 1:
        refuse(f"chosen blocks of a cache of {pool.dtype}", f"give --kv-cache-dtype bfloat16, or {_OTHERS}")
    if get_exec().deterministic.enable_deterministic_inference:
        refuse("--enable-deterministic-inference where tokens choose blocks", f"leave it out, or {_OTHERS}")
    if (algorithm := get_spec().speculative_algorithm) is not None:
        refuse(f"--speculative-algorithm {algorithm}", f"leave it out, or {_OTHERS}")
    if get_parallel().dcp_enabled:
        refuse("--dcp-size where tokens choose blocks", f"leave it out, or {_OTHERS}")
    if runner.hisparse_coordinator is not None:
        refuse("--enable-hisparse", f"leave it out, or {_OTHERS}")
