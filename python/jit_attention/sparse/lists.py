"""Calls whose queries have lists of keys."""

from __future__ import annotations

import functools
from typing import Any

from .. import _core
from .._frameworks import adapter_of
from ..errors import InvalidArgumentError
from ..mask import Mask
from ..score import Score
from ..spec import AttentionSpec
from ..typing import Array, ArrayT
from .gradients import is_compiled, requires_gradient

#: Arguments that the operator of calls with gradients lacks.
_BEYOND_THE_OPERATOR = "page_table", "cache_leftpad", "out", "stream"


def block_top_k(
    q: ArrayT,
    k: Array,
    v: Array | None,
    indices: Array,
    counts: Array | None = None,
    *,
    block: int = 128,
    queries: int = 1,
    head_dim_v: int | None = None,
    mask: Mask | None = None,
    score: Score | None = None,
    softmax_scale: float | None = None,
    return_lse: bool | Array = False,
    return_aux: Any = None,
    kv_dtype: str | None = None,
    **arrays: Any,
) -> Any:
    """Computes attention of each query to the blocks of keys on its list.

    Args:
        q: Queries (tokens, heads_q, head_dim).
        k: Keys (rows, heads_kv, head_dim), or pages of them (pages, page_size, heads_kv, head_dim).
        v: Values, likewise; None: the first head_dim_v columns of k, of one head.
        indices: int32 (tokens, heads_kv or 1, entries): the blocks that a query sees. Block i holds keys from i ·
            block up to (i + 1) · block of the query's sequence; with pages but without page_table, of the rows of all
            pages in order. Any order; entries that name no key, such as −1, are skipped; duplicates count twice.
        counts: int32 (tokens or 1, heads_kv or 1): how many of the entries count. None: all.
        block: Keys of a block, from 1 to 128.
        queries: Number of neighboring rows of q, up to 32, that are computed together: blocks that several of them
            list are loaded once, and duplicates within a list count once. Useful if neighbors share half of their
            lists, and queries · query heads per KV head is at most 64. Rows of a group beyond the end of its sequence
            see nothing.
        head_dim_v: Columns of the values, where v is None.
        mask: Which keys of the blocks a query sees, by positions in its sequence. None: all.
        score: The function of a score, by positions likewise. None: none.
        softmax_scale: Factor of q · k. None: 1/sqrt(head_dim).
        return_lse: Whether to return LSE, too, fp32 (heads_q, tokens), or the array to write it to.
        return_aux: "row_max" and "max_logit", with 16-bit keys, as in `attention`.
        kv_dtype: The format of k's rows, where these are 8-bit latents: latent_656, latent_584 or latent_528. Keys and
            values of FP8 beside 16-bit queries need none.
        **arrays: k_descale, v_descale, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, cache_leftpad, sinks, out, num_splits,
            stream, tensors, as in `attention`. Without cu_seqlens_q all tokens are of one sequence.

    Returns:
        o (tokens, heads_q, head_dim_v), with return_lse (o, LSE). A query without keys, or of no sequence, has o = 0
        and LSE = −∞ or its sink. For PyTorch tensors autograd computes deterministic gradients of q, k, v and sinks
        through both, but not with page_table or cache_leftpad, nor for tensors that a score reads. Keys that no query
        sees have gradient 0; rows of no sequence add nothing to the gradient of sinks.

    Raises:
        InvalidArgumentError: An argument is wrong. Contents of lists are not checked: no entry reads outside of k and v.
        InvalidSpecError: No kernel serves the problem.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> q = np.ones((3, 2, 64), ml_dtypes.bfloat16)
        >>> k = v = np.ones((40, 1, 64), ml_dtypes.bfloat16)
        >>> blocks = np.array([[[0, -1]], [[1, 0]], [[2, 7]]], np.int32)
        >>> ja.sparse.block_top_k(q, k, v, blocks, block=16).shape
        (3, 2, 64)
    """
    if len(q.shape) != 3:
        raise InvalidArgumentError(f"q: has {len(q.shape)} dimensions; it must have 3, (tokens, heads_q, head_dim)",
                                   "launch", "q")
    has_pages = len(k.shape) == 4
    if kv_dtype is None and "float8" in str(k.dtype):
        kv_dtype = _name_of(k.dtype)
    asks_positions = mask is not None or score is not None or "cu_seqlens_k" in arrays
    if arrays.get("page_table") is None:
        arrays.pop("page_table", None)
    has_operator = (kv_dtype is None and not return_aux and isinstance(return_lse, bool)
                    and all(arrays.get(name) is None for name in _BEYOND_THE_OPERATOR))
    has_slots = "page_table" not in arrays if has_pages else not asks_positions
    boundaries = arrays.get("cu_seqlens_q")
    sequences = 1 if boundaries is None else int(boundaries.shape[0]) - 1
    if has_slots and has_pages:
        if asks_positions:
            raise InvalidArgumentError("page_table: is missing; a mask or score asks where keys stand in sequences",
                                       "launch", "page_table")
        arrays["page_table"] = _numbers(q, 0, (sequences, 1))
    if not has_pages and "cu_seqlens_k" not in arrays:
        if sequences != 1:
            raise InvalidArgumentError(f"cu_seqlens_k: is missing beside cu_seqlens_q of {sequences} sequences", "launch",
                                       "cu_seqlens_k")
        arrays["cu_seqlens_k"] = _ends(q, int(k.shape[0]))
    if boundaries is None:
        arrays["cu_seqlens_q"] = _ends(q, int(q.shape[0]))
    limit = -(-_rows(k, arrays, has_slots) // block)
    tensors = arrays.pop("tensors", None) or {}
    # A compiler sees the operator, but where that would copy pages which lie apart, as those of engines do.
    differentiates = requires_gradient(q, k, v, arrays.get("sinks"), *tensors.values()) or (
        has_operator and is_compiled(q) and (not has_pages or all(x is None or x.is_contiguous() for x in (k, v))))
    if differentiates and has_pages and has_slots:  # rows one behind another, whose gradients need no pages
        k, v, has_pages = k.flatten(0, 1), None if v is None else v.flatten(0, 1), False
        del arrays["page_table"]
        arrays["cu_seqlens_k"] = _numbers(q, 0, (sequences + 1,))
    facts = dict(head_dim_v=head_dim_v, list_block=block, list_slots=has_slots, list_queries=queries)
    if differentiates:
        from ..torch.lists import listed_attention

        return listed_attention(q, k, v, indices, counts, limit=limit, mask=mask, score=score, facts=facts,
                                softmax_scale=softmax_scale, return_lse=return_lse, kv_dtype=kv_dtype, return_aux=return_aux,
                                tensors=tensors, **arrays)
    lists = list_tensors(q, indices, counts, queries, limit, arrays.get("stream"))
    fields = spec_fields(q, k, v, has_sinks=arrays.get("sinks") is not None, **facts)
    attention = prepared(**fields, kv_dtype=kv_dtype, mask=mask, score=score, softmax_scale=softmax_scale,
                         **dict.fromkeys(return_aux or (), True))
    return attention(q, k, v, tensors=lists | tensors, return_lse=return_lse, return_aux=return_aux,
                     **arrays)


def spec_fields(q: Any, k: Any, v: Any, *, head_dim_v: int | None, has_sinks: bool, **lists: Any) -> dict[str, Any]:
    """The fields of a spec that these arrays decide, and those of lists."""
    has_pages = len(k.shape) == 4
    return dict(
        dtype=_name_of(q.dtype), head_dim=int(q.shape[-1]), head_dim_v=head_dim_v if v is None else int(v.shape[-1]),
        gqa_ratio=max(1, int(q.shape[1]) // max(1, int(k.shape[-2]))), sequences_q="varlen",
        sequences_kv="paged" if has_pages else "varlen", page_size=int(k.shape[1]) if has_pages else 0, sinks=has_sinks,
        values_in_keys=v is None, **lists)


def list_tensors(q: Any, indices: Any, counts: Any, queries: int, limit: int, stream: Any = None) -> dict[str, Any]:
    """The tensors of lists that calls have: those that are given, or unions of them."""
    if queries > 1:
        return union(indices, counts, queries=queries, limit=limit, stream=stream)
    return {"key_lists": indices,
            "key_counts": _numbers(q, int(indices.shape[-1]), (1, 1)) if counts is None else counts}


def union(indices: Array, counts: Array | None = None, *, queries: int = 8, limit: int, stream: Any = None) -> dict[str, Any]:
    """The union of the lists of `queries` rows each, ascending, with a bit for each row that has the entry.

    Args:
        indices: int32 (tokens, heads_kv, entries), as `block_top_k` has them.
        counts: int32 (tokens or 1, heads_kv or 1). None: all entries count.
        queries: Rows that share a list, from 2 to 32.
        limit: Number of keys, or blocks. Entries below 0 or ≥ limit are skipped.
        stream: As in `attention`.

    Returns:
        Tensors key_lists, key_members and key_counts of calls whose spec has list_queries.

    Raises:
        InvalidArgumentError: An argument is wrong.
        InvalidSpecError: `queries` is out of range.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> made = ja.sparse.union(np.array([[[7, 2]], [[2, 9]]], np.int32), queries=2, limit=10)
        >>> n = int(made["key_counts"][0, 0])
        >>> made["key_lists"][0, 0, :n].tolist(), made["key_members"][0, 0, :n].tolist()
        ([2, 7, 9], [3, 1, 2])
    """
    if counts is not None:
        shape = [int(n) for n in indices.shape[:2]]
        missing = [own == 1 < n for own, n in zip(counts.shape, shape)]
        if any(missing):
            shape = tuple(n if is_missing else int(own) for own, n, is_missing in zip(counts.shape, shape, missing))
            counts = _broadcast(counts, shape)
    made = _core._key_union(indices, counts, queries=queries, limit=limit, stream=stream)
    return dict(zip(("key_lists", "key_members", "key_counts"), made))


def _broadcast(array: Any, shape: tuple[int, ...]) -> Any:
    if hasattr(array, "expand"):
        return array.expand(shape)
    import numpy

    return numpy.broadcast_to(array, shape).copy() if isinstance(array, numpy.ndarray) else array


def _rows(k: Any, arrays: dict[str, Any], has_slots: bool) -> int:
    """Keys that entries may name."""
    if len(k.shape) == 3:
        return int(k.shape[0])
    pages = int(k.shape[0]) if has_slots else int(arrays["page_table"].shape[1])
    return pages * int(k.shape[1])


@functools.lru_cache(maxsize=256, typed=True)
def prepared(**fields: Any) -> Any:
    """The attention of a spec with these fields."""
    return _core.prepare(AttentionSpec(**fields))


def _name_of(dtype: Any) -> str:
    known = {"bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2"}
    return known.get(str(dtype).rpartition(".")[2], str(dtype))


def _numbers(like: Any, number: int, shape: tuple[int, ...]) -> Any:
    """int32 where `like` is. PyTorch's are made there, so that a call can be captured."""
    if type(like).__module__.partition(".")[0] == "torch":
        return like.new_full(shape, number, dtype=_torch().int32)
    import numpy

    return _placed(like, numpy.full(shape, number, numpy.int32))


def _ends(like: Any, rows: int) -> Any:
    """Boundaries of one sequence."""
    if type(like).__module__.partition(".")[0] == "torch":
        return _torch().arange(2, dtype=_torch().int32, device=like.device) * rows
    import numpy

    return _placed(like, numpy.array([0, rows], numpy.int32))


def _placed(like: Any, array: Any) -> Any:
    placed = adapter_of(type(like)).place(like, array)
    if placed is None:
        raise InvalidArgumentError(f"q: is an array of {type(like).__module__}, beside which no numbers can be placed; "
                                   "give counts and cu_seqlens_q", "launch", "q")
    return placed


def _torch() -> Any:
    import torch

    return torch
