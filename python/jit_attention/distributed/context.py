"""Models with attention over a group: inside the context, their sequences are sharded over its ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..errors import InvalidArgumentError
from ..torch import active
from .api import Method, attention
from .groups import group_of
from .placement import Placement


@contextlib.contextmanager
def context_parallel(group: Any = None, *, placement: Placement, buffers: Sequence[torch.Tensor] = (),
                     buffer_seq_dims: Sequence[int] = (), no_restore_buffers: Sequence[torch.Tensor] = (),
                     method: Method = "auto", timeout: float | None = None) -> Iterator[None]:
    """A context manager in which `jit_attention.torch.scaled_dot_product_attention` and models of Transformers with
    ``attn_implementation="jit_attention"`` compute attention of the whole sequence over the group.

    Buffers, such as tokens, labels and position_ids, become this rank's shards in place, and are restored at the
    exit. position_ids must be positions in the whole sequence, or in the packed sequence for which the placement was
    made with `documents`: masks of models are taken by their pattern, causal or window, and padding is refused.

    Args:
        group: As in `attention`.
        placement: As `balance` made it, for these masks.
        buffers: Tensors of the whole sequence.
        buffer_seq_dims: For each buffer its dimension of positions.
        no_restore_buffers: The buffers that are not restored.
        method: As in `attention`.
        timeout: As in `attention`.

    Raises:
        InvalidArgumentError: A buffer is no whole sequence. Calls inside raise it if queries and keys differ in
            number, or with lengths or padding.

    Thread safety:
        One thread of a process at a time is inside.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> placement = ja.distributed.balance(ja.mask.causal(), seqlen=64, group=dist.group.WORLD)
        >>> tokens = torch.arange(64)[None]
        >>> with ja.distributed.context_parallel(placement=placement, buffers=[tokens], buffer_seq_dims=[1]):
        ...     tokens.shape
        torch.Size([1, 64])
        >>> dist.destroy_process_group()
    """
    whole_group = group_of(group)
    if len(buffers) != len(buffer_seq_dims):
        raise InvalidArgumentError(f"buffer_seq_dims: are {len(buffer_seq_dims)}, and there are {len(buffers)} buffers",
                                   "arguments", "buffer_seq_dims")
    whole = [buffer.detach().clone() for buffer in buffers]
    shards = [placement.shard(buffer, dim, whole_group.rank()) for buffer, dim in zip(whole, buffer_seq_dims)]
    kept = {id(buffer) for buffer in no_restore_buffers}
    for buffer, shard in zip(buffers, shards):
        _become(buffer, shard)
    active.calls.append(_Call(group, placement, method, timeout))
    try:
        yield
    finally:
        active.calls.pop()
        for buffer, original in zip(buffers, whole):
            if id(buffer) not in kept:
                _become(buffer, original)


def _become(buffer: torch.Tensor, content: torch.Tensor) -> None:
    with torch.no_grad():
        buffer.resize_(content.shape)
        buffer.copy_(content)


class _Call:
    """The attention function of a model inside of the context."""

    def __init__(self, group: Any, placement: Placement, method: Method, timeout: float | None) -> None:
        self.group, self.placement, self.method, self.timeout = group, placement, method, timeout

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, mask: Any = None, score: Any = None,
                 softmax_scale: float | None = None, tensors: Any = None, sinks: torch.Tensor | None = None,
                 dropout_p: float = 0.0, layout: Any = "BSHD", **others: Any) -> torch.Tensor:
        given = [name for name, value in others.items() if value is not None]
        if given:
            raise InvalidArgumentError(f"{given[0]}: is given inside of context_parallel, where lengths of packed sequences "
                                       "are those of the placement: make it with documents=…, and leave this out",
                                       "arguments", given[0])
        rows = 1 if layout == "BSHD" else 2
        if q.shape[rows] != k.shape[rows]:
            raise InvalidArgumentError(f"k: has {k.shape[rows]} rows and q {q.shape[rows]}; inside of context_parallel "
                                       "both are a rank's shard of one sequence: caches and cross-attention compute "
                                       "outside of it", "arguments", "k")
        return attention(q, k, v, group=self.group, placement=self.placement, method=self.method, timeout=self.timeout,
                         mask=mask, score=score, softmax_scale=softmax_scale, tensors=tensors, sinks=sinks,
                         dropout_p=dropout_p, layout=layout)
