"""Attention over a KV cache, which new keys and values may extend first."""

from __future__ import annotations

import operator
from typing import Literal, overload

from .. import append
from ..typing import Array, ArrayT
from .arrays import attend, beside, is_tensor
from .problem import problem
from .refusals import known_as, refuse
from .rotation import rotated, token_positions

_LARGEST_PAGE = 65536


@overload
def flash_attn_with_kvcache(
    q: ArrayT, k_cache: Array, v_cache: Array, k: Array | None = None, v: Array | None = None,
    rotary_cos: Array | None = None, rotary_sin: Array | None = None, cache_seqlens: Array | int | None = None,
    cache_batch_idx: Array | None = None, cache_leftpad: Array | None = None, block_table: Array | None = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int | None, int | None] = (-1, -1),
    softcap: float = 0.0, rotary_interleaved: bool = True, alibi_slopes: Array | None = None, num_splits: int = 0,
    return_softmax_lse: Literal[False] = False
) -> ArrayT: ...
@overload
def flash_attn_with_kvcache(
    q: ArrayT, k_cache: Array, v_cache: Array, k: Array | None = None, v: Array | None = None,
    rotary_cos: Array | None = None, rotary_sin: Array | None = None, cache_seqlens: Array | int | None = None,
    cache_batch_idx: Array | None = None, cache_leftpad: Array | None = None, block_table: Array | None = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int | None, int | None] = (-1, -1),
    softcap: float = 0.0, rotary_interleaved: bool = True, alibi_slopes: Array | None = None, num_splits: int = 0,
    *, return_softmax_lse: Literal[True]
) -> tuple[ArrayT, ArrayT]: ...
@overload
def flash_attn_with_kvcache(
    q: ArrayT, k_cache: Array, v_cache: Array, k: Array | None = None, v: Array | None = None,
    rotary_cos: Array | None = None, rotary_sin: Array | None = None, cache_seqlens: Array | int | None = None,
    cache_batch_idx: Array | None = None, cache_leftpad: Array | None = None, block_table: Array | None = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int | None, int | None] = (-1, -1),
    softcap: float = 0.0, rotary_interleaved: bool = True, alibi_slopes: Array | None = None, num_splits: int = 0,
    return_softmax_lse: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT]: ...
def flash_attn_with_kvcache(
    q: ArrayT, k_cache: Array, v_cache: Array, k: Array | None = None, v: Array | None = None,
    rotary_cos: Array | None = None, rotary_sin: Array | None = None, cache_seqlens: Array | int | None = None,
    cache_batch_idx: Array | None = None, cache_leftpad: Array | None = None, block_table: Array | None = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int | None, int | None] = (-1, -1),
    softcap: float = 0.0, rotary_interleaved: bool = True, alibi_slopes: Array | None = None, num_splits: int = 0,
    return_softmax_lse: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Stores k and v in the cache, rotates them and q, and computes attention over the cache. There are no gradients.

    The host reads no array on the device. New keys for which the cache has no room are not stored.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), bf16 or fp16.
        k_cache: (entries, capacity, heads_kv, head_dim), or with block_table (pages, page_size, heads_kv, head_dim);
            any strides whose last is 1. Written if k is given.
        v_cache: the same with head_dim_v.
        k, v: (batch, seqlen_new, heads_kv, head_dim or head_dim_v): stored from row cache_seqlens on.
        rotary_cos, rotary_sin: (positions, rotary_dim / 2), fp32, bf16 or fp16; only with k. New keys have the
            positions cache_seqlens, cache_seqlens + 1, … Queries have the same if causal or window_size is given;
            otherwise all have position cache_seqlens.
        cache_seqlens: keys in the cache before the new ones: int32 (batch), or a number for all; None: capacity.
        cache_batch_idx: int32 (batch): the entries of the cache; None: 0, 1, …
        cache_leftpad: int32 (batch): padding rows before the first key; cache_seqlens includes them.
        block_table: int32 (batch, max_pages): the pages of each request, of 1 to 65536 rows.
        softmax_scale, causal, window_size, softcap, alibi_slopes: as those of `flash_attn_func`.
        rotary_interleaved: whether pairs are (2j, 2j + 1), else (j, j + rotary_dim / 2).
        num_splits: The largest number of thread blocks that share the keys of a query. 0: the library chooses.
        return_softmax_lse: Whether to return lse, too.

    Returns:
        o (batch, seqlen_q, heads_q, head_dim_v), or (o, lse) with lse fp32 (batch, heads_q, seqlen_q).

    Raises:
        Error: As `jit_attention.append` and `jit_attention.attention` raise it, before anything is launched.
    """
    with known_as(page_table="block_table"):
        return attend_to_cache(
            q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad,
            page_table=block_table, num_splits=num_splits, return_lse=return_softmax_lse,
            rotary_interleaved=rotary_interleaved, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
            softcap=softcap, alibi_slopes=alibi_slopes)


def attend_to_cache(q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad, *,
                    page_table, num_splits, return_lse, rotary_interleaved, cu_seqlens_q=None, cu_seqlens_k_new=None,
                    rotary_seqlens=None, scales=None, **problem_arguments):
    """Code shared by flash-attention 2 and 3. With cu_seqlens_q queries are varlen, with cu_seqlens_k_new k and v.
    `scales`: fp8 scales by name."""
    arrays = q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, problem_arguments["alibi_slopes"]
    q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, problem_arguments["alibi_slopes"] = map(_detached, arrays)
    given = problem(**problem_arguments)
    _check_together(k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, page_table)
    batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    k_cache, v_cache, page_table = _entries(k_cache, v_cache, page_table, cache_batch_idx, batch)
    seqused_k = cache_seqlens = _lengths(cache_seqlens, q, batch)
    table = {} if cache_batch_idx is None else {"page_table": "cache_batch_idx"}
    if k is not None:
        new = k.shape[1] if cu_seqlens_k_new is None else cu_seqlens_k_new[1:] - cu_seqlens_k_new[:-1]
        seqused_k = cache_seqlens + new
        all_at_begin = given["mask"] is None
        with known_as(**table):
            q = _store(q, k, v, k_cache, v_cache, page_table, seqused_k, rotary_cos, rotary_sin, rotary_interleaved,
                       cache_seqlens, rotary_seqlens, cu_seqlens_q, cu_seqlens_k_new, all_at_begin)
    with known_as(k="k_cache", v="v_cache", seqused_k="cache_seqlens", **table):
        return attend(q, k_cache, v_cache, page_table=page_table, seqused_k=seqused_k, cache_leftpad=cache_leftpad,
                      cu_seqlens_q=cu_seqlens_q, num_splits=num_splits, return_lse=return_lse, **given, **(scales or {}))


def _store(q, k, v, k_cache, v_cache, page_table, seqused_k, rotary_cos, rotary_sin, interleaved, cache_seqlens,
           rotary_seqlens, cu_seqlens_q, cu_seqlens_k_new, all_at_begin):
    """Stores k and v; returns q, rotated if there is a rotary table."""
    names = known_as(seqused_k="cache_seqlens", cos="rotary_cos", sin="rotary_sin", cu_seqlens_q="cu_seqlens_k_new")
    cache = dict(seqused_k=seqused_k, cu_seqlens_q=cu_seqlens_k_new, page_table=page_table)
    if rotary_cos is None:
        with names:
            append(k, v, k_cache, v_cache, **cache)
        return q
    table = dict(cos=rotary_cos, sin=rotary_sin, rotary_interleaved=interleaved)
    begins = cache_seqlens if rotary_seqlens is None else rotary_seqlens
    positions = None if rotary_seqlens is None else token_positions(k, begins, cu_seqlens_k_new)
    if cu_seqlens_q is None and cu_seqlens_k_new is None:
        stand_alike = q.shape[1] == k.shape[1] and (q.shape[1] == 1 or not all_at_begin)
    else:
        stand_alike = cu_seqlens_q is cu_seqlens_k_new and not all_at_begin
    with names:
        if stand_alike:
            module, place = beside(q)
            q_out = module.empty(tuple(q.shape), dtype=q.dtype, **place)
            return append(k, v, k_cache, v_cache, q=q, q_out=q_out, positions=positions, **cache, **table)
        append(k, v, k_cache, v_cache, positions=positions, **cache, **table)
        return rotated(q, token_positions(q, begins, cu_seqlens_q, all_at_begin), **table)


def _detached(array):
    return array.detach() if is_tensor(array) else array


def _check_together(k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, page_table):
    if (k is None) != (v is None):
        refuse("v" if v is None else "k", "is missing; new keys and values are stored together")
    if (rotary_cos is None) != (rotary_sin is None):
        refuse("rotary_sin" if rotary_sin is None else "rotary_cos", "is missing; a rotation needs both tables")
    if rotary_cos is not None and k is None:
        refuse("rotary_cos", "is given without k and v, with which q is rotated: give these, or rotate q before")
    if k is not None and cache_seqlens is None:
        refuse("cache_seqlens", "is missing; it says behind which rows of the cache k and v are stored")
    if cache_batch_idx is not None and page_table is not None:
        refuse("cache_batch_idx", "is given with a table of pages, which says already where requests are: leave it out")


def _entries(k_cache, v_cache, page_table, cache_batch_idx, batch):
    """The caches, and their page table if there is one; named entries become pages."""
    if page_table is not None:
        return k_cache, v_cache, page_table
    entries, capacity = k_cache.shape[:2]
    if cache_batch_idx is None:
        if entries < batch:
            refuse("k_cache", f"has {entries} entries, and q {batch}; give as many, or cache_batch_idx")
        return k_cache[:batch], v_cache[:batch], None
    if tuple(cache_batch_idx.shape) != (batch,):
        refuse("cache_batch_idx", f"has shape {tuple(cache_batch_idx.shape)}; it must be ({batch},), the entry of each "
                                  "request")
    if capacity > _LARGEST_PAGE:
        refuse("cache_batch_idx", f"is given for entries of {capacity} rows; up to {_LARGEST_PAGE} are served: give "
                                  "smaller pages and their table")
    return k_cache, v_cache, cache_batch_idx.reshape(batch, 1)


def _lengths(cache_seqlens, q, batch):
    if cache_seqlens is None or hasattr(cache_seqlens, "shape"):
        return cache_seqlens
    try:
        length = operator.index(cache_seqlens)
    except TypeError:
        refuse("cache_seqlens", f"is {cache_seqlens!r}; it must be an int32 array of (batch), or a whole number")
    if not 0 <= length < 2**31:
        refuse("cache_seqlens", f"is {length}; it must be from 0 to {2**31 - 1}")
    module, place = beside(q)
    return module.full((batch,), length, dtype=module.int32, **place)
