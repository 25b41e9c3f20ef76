"""How an indexer learns which keys attention finds important (DeepSeek Sparse Attention)."""

from __future__ import annotations

from typing import Any

from .. import _core
from ..typing import Array, ArrayT
from .gradients import is_compiled, requires_gradient


def list_mass(q: ArrayT, k: Array, lse: Array, indices: Array, counts: Array | None = None, *,
              softmax_scale: float | None = None, stream: Any = None) -> ArrayT:
    """Computes the mass of each listed key: its probability in attention, summed over all heads of a token.

    There is no mask and no score function: lists hold keys that the token sees. Masses of a token sum to its heads, or to
    less where attention had sinks.

    Args:
        q: Queries (tokens, heads_q, head_dim), bf16 or fp16, such as `dsa` has them.
        k: Keys, or latents, (rows, heads_kv, head_dim). Rows of both are aligned to 16 bytes.
        lse: fp32 (heads_q, tokens), as `dsa` returns it. A head with −∞ adds nothing.
        indices: int32 (tokens, 1, entries): rows of k. Entries that name none have mass 0.
        counts: int32 (tokens, 1): how many of the entries count. None: all.
        softmax_scale: Factor of q · k in the call that returned lse. None: 1/sqrt(head_dim).
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

    Scores are those of `score_keys` without k_scale: Σ over heads of weight · relu(q · k). p is `targets` divided by its
    sum over the keys of a list.

    Args:
        q: Queries of the indexer (tokens, heads, head_dim), bf16 or fp16: up to 128 heads of 64 or 128 columns.
        k: Its keys (rows, head_dim). Rows of both are aligned to 16 bytes.
        weights: fp32 (tokens, heads).
        indices: int32 (tokens, 1, entries): rows of k, such as `top_k` yields. Entries that name none are skipped;
            duplicates count twice.
        targets: fp32 (tokens, 1, entries), not negative, such as `list_mass` yields.
        counts: int32 (tokens, 1): how many of the entries count. None: all.
        stream: As in `attention`; refused where a tensor requires grad, and under torch.compile.

    Returns:
        The loss of each token, fp32 (tokens); 0 for a token without keys or whose targets are all 0. For PyTorch tensors
        autograd computes deterministic gradients of q, k and weights; of keys that no list names they are 0. Targets must
        not require grad.

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


def choose_keys(q: Array, k: Array, weights: ArrayT, count: int, *, k_scale: Array | None = None, starts: Array | None = None,
                ends: Array | None = None, page_table: Array | None = None, columns: int | None = None,
                stream: Any = None) -> tuple[ArrayT, ArrayT]:
    """Chooses the keys with the largest scores of an indexer: `top_k` of `score_keys`, with bounded memory. For sm_90a.

    Tokens take turns where scores of all would exceed 256 MiB of workspace; the result is that of one turn.

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
    return _core._choose_keys(q, k, weights, count, k_scale=k_scale, starts=starts, ends=ends, page_table=page_table,
                              columns=-1 if columns is None else columns, stream=stream)
