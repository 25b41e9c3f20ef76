"""Method "heads": each rank computes the whole sequence for some heads; exchanges of rows for heads come before and
after."""

from __future__ import annotations

import dataclasses
import functools
import re

import torch

from .. import attention as _attention
from .. import attention_backward as _attention_backward
from ..mask import Mask
from ..score import Score
from .groups import exchange_rows
from .problem import Gradients, Problem, mask_of_call

#: The library's tensors with a dimension of query heads, whose size may be 1.
_HEADS_OF_TENSORS = {"alibi_slopes": -1, "bias": 1, "block_mask": 1}


def refusal(heads_q: int, heads_kv: int, mask: Mask | None, score: Score | None, dropout_p: float, size: int) -> str:
    """The reason why a problem cannot be split by heads, with alternatives; empty if it can."""
    others = 'use method="gather" or "ring"'
    if heads_q % size or heads_kv % size:
        return f'method: "heads" deals out heads to {size} ranks, and there are {heads_q} of queries and {heads_kv} of ' \
               f"keys, which must be multiples; {others}"
    if dropout_p != 0:
        return f'method: "heads" numbers heads by rank, so that dropout would drop others than one GPU does; {others}'
    for functor in (mask, score):
        for text in functor.texts if functor is not None else ():
            if re.search(r"\b(h|heads_q)\b", f"{text.body} {text.classify} {text.derivative}"):
                return f'method: "heads" numbers heads by rank, and the text {text.name!r} reads h or heads_q; {others}'
    return ""


class _Heads:
    """The exchange of one call."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        placement, size = problem.placement, problem.control.size
        self.counts = [placement.rows(rank) for rank in range(size)]
        self.positions = _all_positions(placement, problem.q.device)

    def whole(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, rows, heads, …) as (batch, seqlen, heads of this rank, …), in the order of positions."""
        size = self.problem.control.size
        own = x.shape[1]
        sent = x.unflatten(2, (size, -1)).movedim(2, 0).transpose(1, 2).flatten(0, 1)  # (ranks · rows, batch, heads, …)
        got = exchange_rows(self.problem.control, sent, [own] * size, self.counts, self.problem.timeout)
        result = torch.empty_like(got)
        result.index_copy_(0, self.positions, got)
        return result.transpose(0, 1)

    def shard(self, x: torch.Tensor) -> torch.Tensor:
        """The inverse: all heads of this rank's rows."""
        size = self.problem.control.size
        own = self.counts[self.problem.rank]
        sent = x.transpose(0, 1).index_select(0, self.positions)
        got = exchange_rows(self.problem.control, sent, self.counts, [own] * size, self.problem.timeout)
        return got.unflatten(0, (size, own)).movedim(0, 2).transpose(0, 1).flatten(2, 3)

    def own(self, count: int) -> slice:
        """This rank's range of `count` heads."""
        each = count // self.problem.control.size
        return slice(each * self.problem.rank, each * (self.problem.rank + 1))


@functools.lru_cache(maxsize=64)
def _all_positions(placement, device):
    """Positions of all shards' rows, concatenated."""
    return torch.cat([placement.positions(rank, device=device) for rank in range(placement.ranks)])


def _of_own_heads(name: str, tensor: torch.Tensor, heads_q: int, heads: _Heads) -> torch.Tensor:
    """This rank's heads of a tensor that mask or score reads."""
    dim = _HEADS_OF_TENSORS.get(name)
    if dim is None or tensor.shape[dim] != heads_q or heads_q == 1:
        return tensor
    own = heads.own(heads_q)
    return tensor.narrow(dim, own.start, own.stop - own.start).contiguous()


def _options(problem: Problem, heads: _Heads) -> dict:
    heads_q = problem.q.shape[2]
    options = mask_of_call(problem)
    options["tensors"] = {name: _of_own_heads(name, tensor, heads_q, heads) for name, tensor in options["tensors"].items()}
    options.update(score=problem.score, softmax_scale=problem.softmax_scale)
    if problem.sinks is not None:
        options["sinks"] = problem.sinks[heads.own(heads_q)].contiguous()
    return options


def forward(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """O and LSE of this rank's queries."""
    heads = _Heads(problem)
    q, k, v = map(heads.whole, (problem.q, problem.k, problem.v))
    o, lse = _attention(q, k, v, return_lse=True, **_options(problem, heads))
    lse = heads.shard(lse.transpose(1, 2)[..., None])[..., 0].transpose(1, 2).contiguous()
    return heads.shard(o).contiguous(), lse


def backward(problem: Problem, do: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, dlse: torch.Tensor | None,
             wanted: tuple[str, ...], want_sinks: bool) -> Gradients:
    """Gradients of this rank's rows; for tensors and sinks, this rank's contribution."""
    heads = _Heads(problem)
    q, k, v, do, o = map(heads.whole, (problem.q, problem.k, problem.v, do, o))
    of_rows = [heads.whole(x.transpose(1, 2)[..., None])[..., 0].transpose(1, 2).contiguous() if x is not None else None
               for x in (lse, dlse)]
    dq, dk, dv, by_name, *of_sinks = _attention_backward(
        do, q, k, v, o, of_rows[0], dlse=of_rows[1], d_tensors=list(wanted), d_sinks=want_sinks,
        deterministic=problem.deterministic, **_options(problem, heads))
    heads_q = problem.q.shape[2]
    tensors = problem.tensors or {}
    whole_by_name = {name: _placed(name, gradient, tensors[name], heads_q, heads) for name, gradient in by_name.items()}
    whole_sinks = None
    if of_sinks and problem.sinks is not None:
        whole_sinks = torch.zeros_like(problem.sinks)
        whole_sinks[heads.own(heads_q)] = of_sinks[0]
    return dataclasses.replace(Gradients(heads.shard(dq).contiguous(), heads.shard(dk).contiguous(),
                                         heads.shard(dv).contiguous(), whole_by_name), sinks=whole_sinks)


def _placed(name: str, gradient: torch.Tensor, tensor: torch.Tensor, heads_q: int, heads: _Heads) -> torch.Tensor:
    """The gradient of a whole tensor, 0 for other ranks' heads."""
    if gradient.shape == tensor.shape:
        return gradient
    dim = _HEADS_OF_TENSORS[name]
    own = heads.own(heads_q)
    whole = torch.zeros_like(tensor)
    whole.narrow(dim, own.start, own.stop - own.start).copy_(gradient)
    return whole
