"""Attention to lists of keys as an operation of XLA."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .._keywords import hides_unknown, refuse_unknown
from ..mask import Mask
from ..score import Score
from .attention import attend_by
from .problem import refuse


@hides_unknown
def block_top_k(
    q: jax.Array, k: jax.Array, v: jax.Array | None, indices: jax.Array, counts: jax.Array | None = None, *,
    block: int = 128, head_dim_v: int | None = None, mask: Mask | None = None, score: Score | None = None,
    softmax_scale: float | None = None, return_lse: bool = False, tensors: dict[str, jax.Array] | None = None,
    sinks: jax.Array | None = None, cu_seqlens_q: jax.Array | None = None, cu_seqlens_k: jax.Array | None = None,
    seqused_q: jax.Array | None = None, seqused_k: jax.Array | None = None, page_table: jax.Array | None = None,
    **unknown: Any,
) -> Any:
    """Computes `jit_attention.sparse.block_top_k` of JAX arrays, also inside of ``jax.jit``, and its gradients.

    q, k, v and sinks have deterministic gradients, through o and LSE, but not with page_table.

    `jit_attention.sparse.dsa` is ``block_top_k(q, latents, None, indices, block=1, head_dim_v=512)``.

    Args:
        q: As in `jit_attention.sparse.block_top_k`.
        k: As in `jit_attention.sparse.block_top_k`.
        v: As in `jit_attention.sparse.block_top_k`.
        indices: As in `jit_attention.sparse.block_top_k`.
        counts: As in `jit_attention.sparse.block_top_k`.
        block: As in `jit_attention.sparse.block_top_k`.
        head_dim_v: As in `jit_attention.sparse.block_top_k`.
        mask: As in `jit_attention.sparse.block_top_k`.
        score: As in `jit_attention.sparse.block_top_k`.
        softmax_scale: As in `jit_attention.sparse.block_top_k`.
        return_lse: Whether to return LSE, too.
        tensors: The arrays that mask and score read, by name.
        sinks: As in `jit_attention.attention`.
        cu_seqlens_q: As in `jit_attention.attention`.
        cu_seqlens_k: As in `jit_attention.attention`.
        seqused_q: As in `jit_attention.attention`.
        seqused_k: As in `jit_attention.attention`.
        page_table: As in `jit_attention.attention`; without gradients.

    Returns:
        o, or (o, LSE). A query without keys has o = 0 and LSE −∞, or that of its sink.

    Raises:
        InvalidArgumentError: An argument is missing or wrong, or a gradient does not exist, when the call is traced.
        InvalidSpecError: The library does not serve this problem.
        jax.errors.JaxRuntimeError: The call fails when it runs, with the message of `jit_attention.attention`.

    Thread safety:
        Any number of threads may call at the same time.

    Examples:
        >>> q, k = jnp.ones((3, 2, 64), jnp.bfloat16), jnp.ones((40, 1, 64), jnp.bfloat16)
        >>> blocks = jnp.array([[[0, -1]], [[1, 0]], [[2, 7]]], jnp.int32)
        >>> jit_attention.jax.block_top_k(q, k, k, blocks, block=16).shape
        (3, 2, 64)
    """
    if unknown:
        refuse_unknown(block_top_k, unknown)
    for name, array, ranks in (("q", q, (3,)), ("k", k, (3, 4)), ("indices", indices, (3,))):
        if array is None or array.ndim not in ranks:
            has = "is None" if array is None else f"has {array.ndim} dimensions"
            refuse(name, f"{has}; it must have {' or '.join(map(str, ranks))}")
    has_pages = k.ndim == 4
    asks_positions = mask is not None or score is not None or cu_seqlens_k is not None
    has_slots = page_table is None if has_pages else not asks_positions
    sequences = 1 if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    if cu_seqlens_q is None:
        cu_seqlens_q = jnp.array([0, q.shape[0]], jnp.int32)
    if has_pages and page_table is None:
        if asks_positions:
            refuse("page_table", "is missing; a mask or score asks where keys stand in sequences")
        page_table = jnp.zeros((sequences, 1), jnp.int32)
    if not has_pages and cu_seqlens_k is None:
        if sequences != 1:
            refuse("cu_seqlens_k", f"is missing beside cu_seqlens_q of {sequences} sequences")
        cu_seqlens_k = jnp.array([0, k.shape[0]], jnp.int32)
    if counts is None:
        counts = jnp.full((1, 1), indices.shape[2], jnp.int32)
    given = dict(q=q, k=k, v=v, sinks=sinks, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q,
                 seqused_k=seqused_k, page_table=page_table)
    lists = {"key_lists": jnp.asarray(indices), "key_counts": jnp.asarray(counts)}
    return attend_by({name: jnp.asarray(array) for name, array in given.items() if array is not None},
                     lists | {name: jnp.asarray(array) for name, array in (tensors or {}).items()}, head_dim_v=head_dim_v,
                     return_lse=bool(return_lse), mask=mask, score=score, list_block=block, list_slots=has_slots,
                     softmax_scale=None if softmax_scale is None else float(softmax_scale))
