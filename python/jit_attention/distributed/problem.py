"""A call on one rank: its arguments, and its kernels over some of the sequence's keys."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import _core
from .. import attention as _attention
from .. import attention_backward as _attention_backward
from .. import mask as _masks
from .. import merge as _merge
from ..block_mask import BlockMask, block_mask
from ..mask import Mask
from ..score import Score
from .groups import Control
from .placement import Placement
from .rows import apart

#: The owner of keys: a rank's shard, or a host's, ("host", number); None: the whole sequence.
Source = int | tuple[str, int] | None


@dataclass(slots=True, eq=False)  # not frozen, which takes twice as long to construct
class Problem:
    """The arguments of a call, immutable. q, k and v are (batch, rows, heads, head_dim)."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    control: Control
    placement: Placement
    mask: Mask | None = None
    score: Score | None = None
    softmax_scale: float | None = None
    tensors: Mapping[str, torch.Tensor] | None = None
    sinks: torch.Tensor | None = None
    dropout_p: float = 0.0
    rng_state: torch.Tensor | None = None
    deterministic: bool = False
    timeout: float = 1800.0
    hosts: int = 1
    #: State shared by calls of this kind, returned by `Control.begin`.
    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """The rank of this process in the group."""
        return self.control.rank


@dataclass
class Gradients:
    """Gradients of q, k and v, of tensors by name, and of sinks; only requested ones are present."""

    dq: torch.Tensor
    dk: torch.Tensor
    dv: torch.Tensor
    tensors: dict[str, torch.Tensor]
    sinks: torch.Tensor | None = None


@functools.lru_cache(maxsize=256)
def positions_of(placement: Placement, rank: int, device: torch.device) -> torch.Tensor:
    """A rank's pieces for kernels, int32 (1, pieces, 4)."""
    return torch.tensor([placement.pieces(rank)], dtype=torch.int32, device=device)


@functools.lru_cache(maxsize=256)
def _lengths(seqlen: int, device: torch.device) -> torch.Tensor:
    return torch.tensor([[seqlen, seqlen]], dtype=torch.int32, device=device)


@functools.lru_cache(maxsize=16)
def _ids_of_documents(documents: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """The document of each position, int32 (1, seqlen)."""
    ids = torch.repeat_interleave(torch.arange(len(documents), dtype=torch.int32), torch.tensor(documents))
    return ids.to(device)[None]


@functools.lru_cache(maxsize=16)
def _table_of_documents(documents: tuple[int, ...], mask: Mask | None, device: torch.device) -> BlockMask:
    """The block mask of packed sequences, by which kernels skip blocks between them."""
    ids = _ids_of_documents(documents, device)
    rows = torch.empty((1, ids.shape[1], 1, 64), dtype=torch.bfloat16, device=device)
    of_all = _masks.document() if mask is None else mask & _masks.document()
    return block_mask(rows, rows, mask=of_all, tensors={"document_ids_q": ids, "document_ids_kv": ids}, scores=False)


def mask_of_call(problem: Problem) -> dict[str, Any]:
    """Mask and tensors over the whole sequence, separating packed sequences."""
    tensors = dict(problem.tensors or {})
    documents = problem.placement.documents
    if not documents:
        return dict(mask=problem.mask, tensors=tensors)
    if problem.mask is not None and problem.mask.tensors:  # the table then cannot be cached
        ids = _ids_of_documents(documents, problem.q.device)
        return dict(mask=problem.mask & _masks.document(), tensors=tensors | {"document_ids_q": ids, "document_ids_kv": ids})
    table = _table_of_documents(documents, problem.mask, problem.q.device)
    return dict(mask=table.mask, tensors=tensors | table.tensors)


def keep_places(problem: Problem, source: Source, k_positions: torch.Tensor | None) -> None:
    """Caches the positions of a source's keys for later calls."""
    if source not in problem.kept:
        device = problem.q.device
        problem.kept[source] = dict(
            score=problem.score, softmax_scale=problem.softmax_scale,
            q_positions=positions_of(problem.placement, problem.rank, device), k_positions=k_positions,
            global_seqlens=_lengths(problem.placement.seqlen, device))


def _options(problem: Problem, source: Source, with_sinks: bool) -> dict[str, Any]:
    if source not in problem.kept:
        of_rank = isinstance(source, int)
        keep_places(problem, source, positions_of(problem.placement, source, problem.q.device) if of_rank else None)
    options = mask_of_call(problem) | problem.kept[source]
    if with_sinks and problem.sinks is not None:
        options["sinks"] = problem.sinks
    if problem.dropout_p != 0:
        options.update(dropout_p=problem.dropout_p, rng_state=problem.rng_state)
    return options


def arriving(problem: Problem, source: Source, with_sinks: bool, arrivals: torch.Tensor) -> dict[str, Any]:
    """The options of a call whose keys arrive."""
    options = _options(problem, source, with_sinks)
    options["tensors"] = options["tensors"] | {"key_arrivals": arrivals}
    return options


def _parts_are_wide(problem: Problem) -> bool:
    """Whether kernels return partial sums in fp32, so that nothing is rounded before the sum: Hopper's do."""
    q, v = problem.q, problem.v
    return max(q.shape[3], v.shape[3]) <= 256 and _core.device_of(q, "q").arch == "sm_90a"


def _aligned(x: torch.Tensor) -> torch.Tensor:
    """Rows that TMA can map."""
    bytes_of_rows = [stride * x.element_size() for stride in x.stride()[:-1]]
    is_mappable = x.stride(-1) == 1 and x.data_ptr() % 16 == 0 and all(size % 16 == 0 for size in bytes_of_rows)
    return x if is_mappable else x.clone(memory_format=torch.contiguous_format)


class State:
    """O (batch, rows, heads, head_dim) and LSE (batch, heads, rows) of the keys so far, in fp32."""

    def __init__(self) -> None:
        self.o: torch.Tensor | None = None
        self.lse: torch.Tensor | None = None

    def add(self, o: torch.Tensor, lse: torch.Tensor) -> None:
        """Takes over the results of other keys."""
        if self.o is None or self.lse is None:
            self.o, self.lse = o.float(), lse
        elif o.numel() > 0:
            _merge([self.o, o.float()], [self.lse, lse], out=self.o, out_lse=self.lse)

    def add_keys(self, problem: Problem, k: torch.Tensor, v: torch.Tensor, source: Source, with_sinks: bool,
                 arrivals: torch.Tensor | None = None) -> State:
        """Adds keys, and returns itself: in the epilogue of their kernel where kernels write fp32 and all keys are there,
        else by a merge."""
        q = problem.q
        if q.shape[1] == 0 or k.shape[1] == 0 or arrivals is not None or not _parts_are_wide(problem):
            self.add(*forward(problem, k, v, source, with_sinks, arrivals))
            return self
        if self.o is None or self.lse is None:
            self.o = torch.empty((*q.shape[:3], v.shape[3]), dtype=torch.float32, device=q.device)
            self.lse = torch.full((q.shape[0], q.shape[2], q.shape[1]), -torch.inf, device=q.device)
        _attention(*map(_aligned, (q, k, v)), out=self.o, out_dtype="fp32", return_aux={"running_lse": self.lse},
                   **_options(problem, source, with_sinks))
        return self


def forward(problem: Problem, k: torch.Tensor, v: torch.Tensor, source: Source = None,
            with_sinks: bool = True, arrivals: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """O and LSE of this rank's queries over the whole sequence's keys; for `source`, over that rank's shard, where O is
    a partial result, in fp32 if kernels can. `arrivals` describes pending keys."""
    q = problem.q
    if q.shape[1] == 0 or k.shape[1] == 0:
        lse = q.new_full((q.shape[0], q.shape[2], q.shape[1]), -torch.inf, dtype=torch.float32)
        if with_sinks and problem.sinks is not None:
            lse += problem.sinks[:, None]
        return q.new_zeros((*q.shape[:3], v.shape[3])), lse
    options = _options(problem, source, with_sinks) if arrivals is None else arriving(problem, source, with_sinks, arrivals)
    if source is not None and _parts_are_wide(problem):
        options["out_dtype"] = "fp32"
        q, k, v = map(_aligned, (q, k, v))
    return _attention(q, k, v, return_lse=True, **options)


def backward(problem: Problem, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, o: torch.Tensor, lse: torch.Tensor,
             dlse: torch.Tensor | None, wanted: tuple[str, ...], want_sinks: bool,
             source: Source = None, arrivals: torch.Tensor | None = None) -> Gradients:
    """Gradients of this rank's queries, and its contributions to gradients of the keys and values given to `forward`:
    all in fp32 if kernels can, keys' and values' concatenated. With `arrivals`, gradients of unneeded keys are
    undefined."""
    q = problem.q
    tensors = problem.tensors or {}
    if q.shape[1] == 0 or k.shape[1] == 0:
        of_sinks = torch.zeros_like(problem.sinks) if want_sinks and problem.sinks is not None else None
        zeros = {name: torch.zeros_like(tensors[name]) for name in wanted}
        return Gradients(torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v), zeros, of_sinks)
    do = do if do.stride(-1) == 1 else do.contiguous()
    results: dict[str, torch.Tensor] = {}
    if _parts_are_wide(problem):
        do, q, k, v, o = *map(_aligned, (do, q, k, v)), o.float()
        dk, dv = apart(torch.empty((k.shape[1], k.shape[0], k.shape[2] * k.shape[3] + v.shape[2] * v.shape[3]),
                                   dtype=torch.float32, device=k.device), k, v)
        results = dict(dq=torch.empty(q.shape, dtype=torch.float32, device=q.device), dk=dk, dv=dv)
    options = _options(problem, source, want_sinks) if arrivals is None else arriving(problem, source, want_sinks, arrivals)
    dq, dk, dv, by_name, *of_sinks = _attention_backward(
        do, q, k, v, o, lse, **results, dlse=dlse, d_tensors=list(wanted), d_sinks=want_sinks, deterministic=problem.deterministic,
        **options)
    return Gradients(dq, dk, dv, by_name, of_sinks[0] if of_sinks else None)
