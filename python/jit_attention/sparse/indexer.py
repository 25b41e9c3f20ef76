"""How an indexer learns which keys attention finds important (DeepSeek Sparse Attention)."""

from __future__ import annotations

import importlib
from typing import Any

from .. import _core
from ..errors import InvalidArgumentError
from ..typing import Array, ArrayT
from .gradients import is_compiled, requires_gradient


def list_mass(q: ArrayT, k: Array, lse: Array, indices: Array, counts: Array | None = None, *,
              softmax_scale: float | None = None, stream: Any = None) -> ArrayT:
    """Computes the mass of each listed key: its probability in attention, summed over all heads of a token.

    Args:
        q: Queries (tokens, heads_q, head_dim), bf16 or fp16, such as `dsa` has them.
        k: Keys, or latents, (rows, heads_kv, head_dim). Rows of both are aligned to 16 bytes.
        lse: fp32 (heads_q, tokens), as `dsa` returns it. A head with −∞ adds nothing.
        indices: int32 (tokens, 1, entries): rows of k. Entries that name none have mass 0.
        counts: int32 (tokens, 1): how many of the entries count. None: all.
        softmax_scale: Factor of q · k. None: 1/sqrt(head_dim).
        stream: As in `attention`.

    Returns:
        Masses, fp32 (tokens, 1, entries), without a gradient. Ranks that share the heads add theirs.

    Raises:
        InvalidArgumentError: An argument is wrong.
        InvalidSpecError: No kernel serves the problem.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> q, k = np.ones((2, 16, 64), ml_dtypes.bfloat16), np.ones((9, 1, 64), ml_dtypes.bfloat16)
        >>> lists = np.array([[[3, 7]], [[5, -1]]], np.int32)
        >>> o, lse = ja.sparse.block_top_k(q, k, k, lists, block=1, return_lse=True)
        >>> ja.sparse.list_mass(q, k, lse, lists)[:, 0].round(3).tolist()
        [[8.0, 8.0], [16.0, 0.0]]
    """
    if requires_gradient(q, k, lse):
        q, k, lse = q.detach(), k.detach(), lse.detach()
    if is_compiled(q):
        from ..torch.indexer import listed_mass

        return listed_mass(q, k, lse, indices, counts, softmax_scale, stream)
    return _core._list_mass(q, k, lse, indices, counts, softmax_scale=softmax_scale, stream=stream)


def indexer_loss(q: ArrayT, k: Array, weights: Array, indices: Array, targets: Array, counts: Array | None = None, *,
                 stream: Any = None) -> ArrayT:
    """Computes the divergence KL(p ‖ softmax(scores)) of an indexer's scores from the targets of its lists.

    Scores are those of `score_keys` without k_scale: Σ over heads of weight · relu(q · k). p is `targets` divided by its sum over the
    keys of a list.

    Args:
        q: Queries of the indexer (tokens, heads, head_dim), bf16 or fp16: up to 128 heads of 64 or 128 columns.
        k: Its keys (rows, head_dim). Rows of both are aligned to 16 bytes.
        weights: fp32 (tokens, heads).
        indices: int32 (tokens, 1, entries): rows of k, such as `top_k` yields. Entries that name none are skipped; duplicates count
            twice.
        targets: fp32 (tokens, 1, entries), not negative, such as `list_mass` yields.
        counts: int32 (tokens, 1): how many of the entries count. None: all.
        stream: As in `attention`, without gradients.

    Returns:
        The loss of each token, fp32 (tokens); 0 for a token without keys or whose targets are all 0. For PyTorch tensors autograd
        computes deterministic gradients of q, k and weights; of keys that no list names they are 0. Targets have none.

    Raises:
        InvalidArgumentError: An argument is wrong.
        InvalidSpecError: No kernel serves the problem.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> q, k = np.ones((2, 8, 64), ml_dtypes.bfloat16), np.ones((9, 64), ml_dtypes.bfloat16)
        >>> weights, lists = np.ones((2, 8), np.float32), np.array([[[3, 7]], [[5, -1]]], np.int32)
        >>> targets = np.array([[[1, 3]], [[2, 0]]], np.float32)
        >>> ja.sparse.indexer_loss(q, k, weights, lists, targets).round(3).tolist()
        [0.131, 0.0]
    """
    if not requires_gradient(q, k, weights, targets) and not is_compiled(q):
        return _core._index_loss(q, k, weights, indices, targets, counts, stream=stream)
    from ..torch.indexer import indexer_loss as with_gradients

    return with_gradients(q, k, weights, indices, targets, counts, stream)


#: Scores that one turn of `choose_keys` holds: 256 MiB, whose products take the tensor cores of an H200 some milliseconds.
_SCORES_OF_A_TURN = 1 << 26


def choose_keys(q: Array, k: Array, weights: ArrayT, count: int, *, k_scale: Array | None = None, starts: Array | None = None,
                ends: Array | None = None, page_table: Array | None = None, columns: int | None = None,
                stream: Any = None) -> tuple[ArrayT, ArrayT]:
    """Chooses the keys with the largest scores of an indexer: `top_k` of `score_keys`, whose scores never lie in memory all at once.

    Tokens take turns where scores of all would exceed 256 MiB; the result is that of one turn. For sm_90a.

    Args:
        q: As in `score_keys`.
        k: As in `score_keys`.
        weights: As in `score_keys`.
        count: Keys of a token, 1 to 2,048.
        k_scale: As in `score_keys`.
        starts: As in `score_keys`.
        ends: As in `score_keys`.
        page_table: As in `score_keys`. Keys are chosen as slots, page · page_size + row.
        columns: Keys that any token may see, at most those of k, or of a page table's entry. None: all.
        stream: As in `attention`.

    Returns:
        (indices, counts): int32 (tokens, 1, count), ascending by position, then −1, and (tokens, 1), as `dsa` takes them.

    Raises:
        InvalidArgumentError: An argument is wrong.
        InvalidSpecError: No kernel serves the problem.
        UnsupportedDeviceError: The GPU is not of sm_90a.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> q, k = np.ones((1, 8, 64), ml_dtypes.bfloat16), np.arange(192).reshape(3, 64).astype(ml_dtypes.bfloat16)
        >>> ja.sparse.choose_keys(q, k, np.ones((1, 8), np.float32), 2)[0].tolist()
        [[[1, 2]]]
    """
    if len(q.shape) != 3 or len(k.shape) != (2 if page_table is None else 3):
        _core.score_keys(q, k, weights, k_scale=k_scale, page_table=page_table, stream=stream)  # says what is wrong
    tokens, is_paged = int(q.shape[0]), page_table is not None
    page_size = int(k.shape[1]) if is_paged else 0
    keys = int(page_table.shape[1]) * page_size if is_paged else int(k.shape[0])
    if columns is None:
        columns = keys
    elif not 0 <= columns <= keys:
        raise InvalidArgumentError(f"columns: is {columns}; it must be from 0 to {keys}, as many as there are keys", "arguments",
                                   "columns")
    if not is_paged:
        k, k_scale = k[:columns], None if k_scale is None else k_scale[:columns]
    entries = int(page_table.shape[0]) if is_paged else 1
    own = tokens // entries if entries and tokens % entries == 0 else tokens  # of an entry
    parts = [_chosen(part, entry, q, k, weights, count, columns, page_size, k_scale, starts, ends, page_table, stream)
             for part, entry in _turns(tokens, own, max(1, _SCORES_OF_A_TURN // max(1, columns)))]
    return tuple(_joined(these) for these in zip(*parts))


def _turns(tokens: int, own: int, at_once: int) -> list[tuple[slice, slice]]:
    """Tokens of each turn, and the entries of the page table that they share: whole entries, or a part of one."""
    if tokens <= at_once:
        return [(slice(0, tokens), slice(None))]
    if own <= at_once:
        step = at_once // own * own
        return [(slice(i, min(i + step, tokens)), slice(i // own, min(i + step, tokens) // own)) for i in range(0, tokens, step)]
    return [(slice(i, min(i + at_once, end)), slice(end // own - 1, end // own)) for end in range(own, tokens + 1, own)
            for i in range(end - own, end, at_once)]


def _chosen(part: slice, entry: slice, q: Any, k: Any, weights: Any, count: int, columns: int, page_size: int, k_scale: Any,
            starts: Any, ends: Any, page_table: Any, stream: Any) -> Any:
    starts, ends = (None if x is None else x[part] for x in (starts, ends))
    table = None if page_table is None else page_table[entry, : -(-columns // page_size)]
    scores = _core.score_keys(q[part], k, weights[part], k_scale=k_scale, starts=starts, ends=ends, page_table=table, stream=stream)
    return _core.top_k(scores[:, None, :columns], count, starts=starts, ends=ends, page_table=table, page_size=page_size,
                       stream=stream)


def _joined(parts: tuple[Any, ...]) -> Any:
    if len(parts) == 1:
        return parts[0]
    package = importlib.import_module(type(parts[0]).__module__.partition(".")[0])
    return (package.cat if hasattr(package, "cat") else package.concatenate)(parts)
