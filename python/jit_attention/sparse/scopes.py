"""Attention of queries to chosen latents of several pools by one softmax: a window of recent ones, and a list."""

from __future__ import annotations

from typing import Any, NamedTuple

from .._core import merge
from ..errors import InvalidArgumentError
from ..typing import Array, ArrayT
from .dsa import dsa
from .gradients import requires_gradient


class Scope(NamedTuple):
    """A pool of latents, and the list of those that each query sees.

    Attributes:
        kv: Latents, as `dsa` has them.
        indices: int32 (tokens, 1, entries), as `dsa` has them.
        counts: int32 (tokens or 1, 1): how many of the entries count. None: all.
        kv_dtype: The format of 8-bit latents. None: kv is of q's type.

    Examples:
        >>> ja.sparse.Scope(np.ones((9, 1, 576)), np.array([[[0, 8]]], np.int32)).kv_dtype is None
        True
    """

    kv: Any
    indices: Any
    counts: Any = None
    kv_dtype: str | None = None


def scopes(
    q: ArrayT, *pools: Scope, head_dim_v: int = 512, sinks: Array | None = None, softmax_scale: float | None = None,
    return_lse: bool | Array = False, out: Array | None = None, stream: Any = None
) -> Any:
    """Computes attention of each query to its latents of all pools by one softmax, such as DeepSeek V4's window and
    list.

    Each pool is one launch. With several pools a merge by LSE follows, so that o is rounded to q's type once per pool
    and once more. Each pool has its own page size and format.

    Args:
        q: Queries (tokens, heads_q, head_dim).
        *pools: One `Scope`, or tuple of its fields, per pool. A latent that two pools name counts twice.
        head_dim_v: Columns of the values.
        sinks: fp32 (heads_q): a score of each head that has no value. None: there are none.
        softmax_scale: Factor of q · k. None: 1/sqrt(head_dim).
        return_lse: Whether to return LSE, too, fp32 (heads_q, tokens), or the array to write it to.
        out: The array to write o to: of q's type, or with several pools of fp32.
        stream: As in `attention`.

    Returns:
        o (tokens, heads_q, head_dim_v), and LSE if asked. A query without keys has o = 0 and LSE −∞, or that of its sink.

    Raises:
        InvalidArgumentError: An argument is wrong, or gradients are wanted with several pools, which have none.
        InvalidSpecError: No kernel serves the problem, such as on another architecture than sm_90a.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> q, kv = np.ones((2, 16, 576), ml_dtypes.bfloat16), np.ones((100, 1, 576), ml_dtypes.bfloat16)
        >>> window, chosen = np.array([[[3, 4]], [[4, 5]]], np.int32), np.array([[[90, -1]], [[7, 8]]], np.int32)
        >>> ja.sparse.scopes(q, ja.sparse.Scope(kv[:9], window), ja.sparse.Scope(kv, chosen)).shape
        (2, 16, 512)
    """
    if not pools:
        raise InvalidArgumentError("pools: are none; there must be one or more", "launch", "pools")
    if len(pools) > 1 and requires_gradient(q, sinks, *(pool[0] for pool in pools)):
        raise InvalidArgumentError("q: or a pool or sinks require grad, and results of several pools have no gradients: "
                                   "compute under torch.no_grad(), or give detach()", "launch", "q")
    options = dict(head_dim_v=head_dim_v, softmax_scale=softmax_scale, stream=stream)
    last = dict(options, return_lse=return_lse, sinks=sinks)
    if len(pools) == 1:
        return _of_pool(q, pools[0], **last, **({} if out is None else {"out": out}))
    parts = [_of_pool(q, pool, return_lse=True, **options) for pool in pools[:-1]]
    # One pool counts the sink, so that the sum of all does.
    parts.append(_of_pool(q, pools[-1], **dict(last, return_lse=True)))
    outs, lses = zip(*parts)
    given = None if isinstance(return_lse, bool) else return_lse
    merged = merge(list(outs), list(lses), out=outs[0] if out is None else out,
                   out_lse=lses[0] if given is None else given, stream=stream)
    return merged if return_lse is not False else merged[0]


def _of_pool(q: Any, pool: Scope, **options: Any) -> Any:
    kv, indices, counts, kv_dtype = Scope(*pool)
    return dsa(q, kv, indices, counts, kv_dtype=kv_dtype, **options)
