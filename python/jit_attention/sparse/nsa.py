"""Native sparse attention: compressed keys, the blocks that these choose, and a window, weighed by gates."""

from __future__ import annotations

import functools
from typing import Any

from .. import _core
from .. import mask as _masks
from .. import output as _outputs
from ..errors import InvalidArgumentError
from ..typing import Array, ArrayT
from .gradients import differentiable_attention, requires_gradient
from .lists import _ends, _name_of, _placed, _torch, block_top_k

_ROWS = 64  # of a tile of a consumer
_MOST_TOGETHER = 8  # queries: of more, unions take longer than they save


def nsa(
    q: ArrayT,
    k: Array,
    v: Array,
    k_compressed: Array,
    v_compressed: Array,
    gates: Array,
    *,
    chosen: int = 16,
    block: int = 64,
    stride: int = 16,
    span: int = 32,
    window: int = 512,
    init_blocks: int = 1,
    local_blocks: int = 2,
    softmax_scale: float | None = None,
    cu_seqlens: Array | None = None,
    cu_seqlens_compressed: Array | None = None,
    max_seqlen: int | None = None,
) -> Any:
    """Attention of each query, causally, to compressed keys, to the blocks of keys that these choose, and to a window (DeepSeek's
    native sparse attention). The three results are added, each times its gate.

    A block's score is the probability of the compressed keys in it, summed over the heads that share keys: a compressed key
    counts once for each `stride` of its tokens in the block. Of equal scores the earlier block's is chosen. All of this is a
    few lines over `attention`, `score_blocks`, `top_k` and `block_top_k`, to be rewritten where a model differs.

    Args:
        q: Queries (tokens, heads_q, head_dim).
        k: Keys (tokens, heads_kv, head_dim).
        v: Values (tokens, heads_kv, head_dim_v).
        k_compressed: Compressed keys (rows, heads_kv, head_dim). Row i of a sequence stands for its tokens from i · stride to
            i · stride + span − 1, and queries from the last of these on see it.
        v_compressed: Compressed values, likewise.
        gates: (tokens, heads_q, 3): of compressed keys, of chosen blocks, and of the window.
        chosen: Blocks that a query sees, init_blocks and local_blocks among them.
        block: Tokens of a block: stride times a power of two, up to 128.
        stride: Tokens from compressed key to compressed key.
        span: Tokens of a compressed key: stride, or twice as many.
        window: Tokens that a query sees back from itself, itself among them.
        init_blocks: So many of the first blocks are chosen whatever their scores.
        local_blocks: The same of the last ones, a query's own among them.
        softmax_scale: Factor of q · k. None: 1/sqrt(head_dim).
        cu_seqlens: int32 (batch + 1): the boundaries of sequences in q, k and v. None: there is one.
        cu_seqlens_compressed: The same of compressed keys.
        max_seqlen: Tokens of the longest sequence. None: as many as q has.

    Returns:
        o (tokens, heads_q, head_dim_v), of the type of gates times q. PyTorch's autograd has gradients of q, k, v, compressed keys
        and values, and gates; none go through the choice.

    Raises:
        InvalidArgumentError: An argument is wrong.
        InvalidSpecError: No kernel serves the problem, such as on another architecture than sm_90a.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> q, k = np.ones((200, 4, 64), ml_dtypes.bfloat16), np.ones((200, 1, 64), ml_dtypes.bfloat16)
        >>> compressed = np.ones((11, 1, 64), ml_dtypes.bfloat16)  # 32 tokens each, one every 16
        >>> ja.sparse.nsa(q, k, k, compressed, compressed, np.ones((200, 4, 3), np.float32), chosen=3)[64, 0, 0]
        np.float32(3.0)
    """
    for name, number in (("stride", stride), ("window", window)):
        if number < 1:
            raise InvalidArgumentError(f"{name}: is {number}; it must be at least 1", "launch", name)
    if span not in (stride, 2 * stride):
        raise InvalidArgumentError(f"span: is {span}; it must be stride, {stride}, or twice as many", "launch", "span")
    if block % stride:
        raise InvalidArgumentError(f"block: is {block}; it must be a multiple of stride, {stride}", "launch", "block")
    if (cu_seqlens is None) != (cu_seqlens_compressed is None):
        given, missing = ("cu_seqlens_compressed", "cu_seqlens")[:: 1 if cu_seqlens is None else -1]
        raise InvalidArgumentError(f"{missing}: is missing beside {given}", "launch", missing)
    ends = _blocks_up_to(q, cu_seqlens, block)
    tokens, rows = (_ends(q, int(x.shape[0])) if given is None else given
                    for x, given in ((q, cu_seqlens), (k_compressed, cu_seqlens_compressed)))
    own = dict(cu_seqlens_q=tokens, cu_seqlens_k=tokens, softmax_scale=softmax_scale)
    compressed = dict(own, cu_seqlens_k=rows, mask=_compressed(stride, span))
    attend = differentiable_attention(q, k, v, k_compressed, v_compressed, gates)

    of_compressed, lse = attend(q, k_compressed, v_compressed, return_lse=True, **compressed)
    scores = _core.score_blocks(
        _detached(q), _detached(k_compressed), lse=_detached(lse), reduce="probability", block_size=block // stride,
        key_span=span // stride, blocks=-(-(int(q.shape[0]) if max_seqlen is None else max_seqlen) // block), **compressed)
    blocks, counts = _core.top_k(scores, chosen, ends=ends, init_blocks=init_blocks, local_blocks=local_blocks)
    ratio = int(q.shape[1]) // max(1, int(k.shape[1]))
    # Neighbors choose alike, and fill a tile of rows together. Groups would cross the boundaries of sequences.
    together = 1 if cu_seqlens is not None or requires_gradient(q, k, v) else max(1, _ROWS // max(1, ratio))
    of_blocks = block_top_k(q, k, v, blocks, counts, block=block, queries=min(together, _MOST_TOGETHER), mask=_masks.causal(),
                            **own)
    attend_to_window = functools.partial(attend, q, k, v, mask=_masks.sliding_window(window - 1, 0), **own)
    others = gates[..., 0:1] * of_compressed + gates[..., 1:2] * of_blocks
    if gates.dtype != q.dtype:  # whose sum has another type than o
        return others + gates[..., 2:3] * attend_to_window()
    return attend_to_window(output=_weighed_sum(_name_of(q.dtype)), tensors=dict(gate=gates[..., 2], others=others))


@functools.lru_cache(maxsize=16)
def _compressed(stride: int, span: int) -> Any:
    """A compressed key is seen from its last token on."""
    return _masks.text("return k * stride + span <= q + 1;", name="compressed", constants=dict(stride=stride, span=span))


@functools.lru_cache(maxsize=2)
def _weighed_sum(dtype: str) -> Any:
    """The window's term, added in the epilogue of its kernel. With both other terms and all gates that would spill registers."""
    return _outputs.text("return gate * value + others;", name="weighed_sum",
                         tensors=dict(gate=f"{dtype} as_row", others=f"{dtype} as_o"))


def _detached(array: Any) -> Any:
    return array.detach() if hasattr(array, "detach") else array


def _blocks_up_to(q: Any, starts: Any, block: int) -> Any:
    """How many blocks each query sees, its own among them."""
    tokens = int(q.shape[0])
    if type(q).__module__.partition(".")[0] == "torch":
        torch = _torch()
        places = torch.arange(tokens, dtype=torch.int32, device=q.device)
        if starts is not None:
            places = places - starts[torch.searchsorted(starts, places, right=True).sub_(1).clamp_(min=0)]
        return places // block + 1
    import numpy

    places = numpy.arange(tokens, dtype=numpy.int32)
    if starts is not None:
        if not isinstance(starts, numpy.ndarray):
            raise InvalidArgumentError("cu_seqlens: is neither NumPy's nor PyTorch's array", "launch", "cu_seqlens")
        places = places - starts[numpy.maximum(numpy.searchsorted(starts, places, "right") - 1, 0)]
    return _placed(q, (places // block + 1).astype(numpy.int32))
