"""Attention of queries to latents that were chosen one by one (DeepSeek Sparse Attention)."""

from __future__ import annotations

from typing import Any

from ..typing import Array, ArrayT
from .lists import block_top_k


def dsa(
    q: ArrayT, kv: Array, indices: Array, counts: Array | None = None, *, head_dim_v: int = 512, **options: Any
) -> Any:
    """Computes attention of each query to the latents on its list: MLA in its absorbed form, whose values are the
    first columns of the keys.

    Args:
        q: Queries (tokens, heads_q, head_dim), such as 512 + 64 columns.
        kv: Latents (rows, 1, head_dim), or pages of them (pages, page_size, 1, head_dim).
        indices: int32 (tokens, 1, entries): positions in the query's sequence, or, with pages but without page_table, page ·
            page_size + row of the page. As in `block_top_k` with block=1.
        counts: int32 (tokens or 1, 1): how many of the entries count. None: all.
        head_dim_v: Columns of the values.
        **options: Other arguments of `block_top_k`. With kv_dtype, kv is (pages, page_size, 1, bytes) of uint8; rows
            are upcast as they are copied to shared memory.

    Returns:
        o (tokens, heads_q, head_dim_v), and LSE if asked.

    Raises:
        InvalidArgumentError: An argument is wrong.
        InvalidSpecError: No kernel serves the problem, such as on another architecture than sm_90a.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> q, kv = np.ones((2, 16, 576), ml_dtypes.bfloat16), np.ones((100, 1, 576), ml_dtypes.bfloat16)
        >>> ja.sparse.dsa(q, kv, np.array([[[3, 99, -1]], [[5, 6, 7]]], np.int32)).shape
        (2, 16, 512)
    """
    return block_top_k(q, kv, None, indices, counts, block=1, head_dim_v=head_dim_v, **options)
