"""Method "arrive": kernels compute with a rank's own keys while copy engines bring those of others, chunk by chunk.

Keys stand where the sequence has them, in memory that the ranks of a host share; a kernel visits its own first, then chunks
in the order in which they are sent. In the backward pass, too: gradients of own keys first, or where turns are taken all in one order.
Each rank returns what it adds to gradients of others' keys as "gather" does.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import socket
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from .. import _core
from ..errors import InvalidArgumentError
from . import gather
from . import problem as _problem
from .groups import Control, is_captured
from .placement import Placement
from .problem import Gradients, Problem

_Results = TypeVar("_Results")
#: Shards are multiples of this many rows, so that no tile of keys spans two.
_GRANULE = 128
#: A debugging setting under which a launch blocks the host until the kernel ends.
_LAUNCHES_BLOCK = os.environ.get("CUDA_LAUNCH_BLOCKING", "0") != "0"


class _Shared:
    """An exchange for calls of one kind, and its shared memory."""

    def __init__(self, device: torch.device) -> None:
        self.memory = torch.empty(1, dtype=torch.uint8, device=device)
        self.peers: list[int] = []
        self.exchange: Any = None
        self.timeout = 0.0
        self.views: dict[tuple[int, ...], tuple[torch.Tensor, ...]] = {}
        #: Arguments of kernels for repeated calls, here as they hold views of the memory.
        self.arguments: dict[Any, tuple[Any, ...]] = {}
        self.is_captured = False
        #: Another number since the exchange was made, or a reset that makes it anew.
        self.life = 0

    def share(self, nbytes: int, control: Control) -> None:
        from torch.distributed import _symmetric_memory as symmetric

        self.memory = symmetric.empty(nbytes, dtype=torch.uint8, device=self.memory.device)
        handle = symmetric.rendezvous(self.memory, control.group)
        offset = self.memory.data_ptr() - handle.buffer_ptrs[control.rank]
        self.peers = [address + offset for address in handle.buffer_ptrs]

    def begin(self, k: torch.Tensor, v: torch.Tensor, stream: int) -> tuple[int, ...]:
        """Begins a call, with this rank's keys and values: returns addresses, and the rows of arrivals."""
        (k, of_k), (v, of_v) = _dense(k), _dense(v)
        return self.exchange.begin(of_k, of_v, stream)

    def tensors(self, addresses: tuple[int, ...], k: torch.Tensor, v: torch.Tensor, seqlen: int) -> tuple[torch.Tensor, ...]:
        """The whole sequence's keys and values at what `begin` returned, and the arrival state for kernels."""
        views = self.views.get(addresses)
        if views is None:
            row = k.shape[2] * k.shape[3] + v.shape[2] * v.shape[3]
            shapes = [(x.shape[0], seqlen, *x.shape[2:]) for x in (k, v)]
            views = self.views[addresses] = (
                *(self._view(address, shape, (seqlen * row, row, shape[3], 1), k.dtype)
                  for address, shape in zip(addresses, shapes)),
                self._view(addresses[2], (addresses[3], 4), (4, 1), torch.int32))
        return views

    def _view(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        first = address - self.memory.data_ptr()
        size = 1 + sum((count - 1) * stride for count, stride in zip(shape, strides))
        return self.memory[first:first + size * dtype.itemsize].view(dtype).as_strided(shape, strides)


class _Workspace:
    """Memory shared by a group's ranks on a device, for calls of one placement and shape at a time. Captured calls keep
    their memory."""

    def __init__(self, control: Control, device: torch.device, timeout: float) -> None:
        self.control = weakref.proxy(control)
        self.device = device
        self.shared = _Shared(device)
        self.kept: dict[Any, _Shared] = {}  # by kinds of calls in CUDA graphs
        self._of: Any = None
        word = torch.zeros(1, dtype=torch.int32, pin_memory=device.type == "cuda")
        _words.append(word)
        self._broken = ctypes.c_uint32.from_address(word.data_ptr())
        where = f"{socket.gethostname()}, {_core.device_of(self.shared.memory, 'q').arch}"
        places = sorted(set(control.meet(where, timeout)))
        self.refusal, self.hosts = "", sorted({place.split(",")[0] for place in places})
        if len(places) > 1:
            self.refusal = f"ranks on GPUs of one kind ({'; '.join(places)})"
        elif not where.endswith("sm_90a"):
            self.refusal = f"kernels that wait for keys, which are of sm_90a alone ({where})"

    def begin_anew(self, problem: Problem, sizes: tuple[Any, ...]) -> None:
        """Creates the exchange for another kind of calls, with all ranks. Sets `refusal` when memory cannot be shared.
        """
        placement, timeout = problem.placement, problem.timeout
        of_placement = placement.seqlen, placement.granule, placement.runs, placement.needs
        nbytes = _core.key_exchange_bytes(sizes, *of_placement)
        if self.shared.is_captured:  # replays continue
            self.shared = _Shared(self.device)
        shared = self.shared
        shared.life = next(_lives)
        if shared.exchange is not None:
            shared.exchange.reset(_stream(self.device))
        shared.exchange = None
        torch.cuda.synchronize(self.device)
        self.control.meet("", timeout)  # nobody copies any more
        if nbytes > shared.memory.numel():
            failure = ""
            try:
                shared.share(nbytes, self.control)
            except RuntimeError as error:
                failure = str(error).splitlines()[0] or "unknown"
            failures = [text for text in self.control.meet(failure, timeout) if text]
            if failures:
                self.refusal = f"memory that all ranks can write to ({failures[0]})"
                return
        shared.memory.zero_()
        shared.views, shared.arguments = {}, {}
        torch.cuda.synchronize(self.device)
        self.control.meet("", timeout)  # all ranks have stopped clearing words
        shared.timeout = timeout
        shared.exchange = _core.KeyExchange(sizes, *of_placement, problem.rank, shared.peers, min(timeout, 1e9),
                                            ctypes.addressof(self._broken))

    def shared_of(self, problem: Problem, sizes: tuple[Any, ...], is_captured: bool) -> _Shared:
        """The shared memory for calls of this kind; without an exchange when memory cannot be shared."""
        if not is_captured:
            self.raise_fault(waits=False)
        of = problem.placement, sizes
        shared = self.kept.get(of) if self.kept else None
        if shared is None:
            if of != self._of:
                if is_captured:
                    raise InvalidArgumentError("group: ranks have made calls of other sizes, or of another placement, by "
                                               "\"arrive\" since they last made such a call; make it once ahead of the "
                                               "capture, on all ranks", "arguments", "group")
                self._of = None
                self.begin_anew(problem, sizes)
                self._of = of
            shared = self.shared
        if problem.timeout != shared.timeout and shared.exchange is not None:
            shared.exchange.set_timeout(min(problem.timeout, 1e9))
            shared.timeout = problem.timeout
        if is_captured and not shared.is_captured:
            shared.is_captured = True
            self.kept[of] = shared
        return shared

    @staticmethod
    def may_compile(problem: Problem, shared: _Shared) -> bool:
        """Whether this may be the first call of its kind, whose kernel must be compiled, or the host waits for kernels.
        """
        if problem.kept.get("launched") == shared.life:
            return _LAUNCHES_BLOCK
        problem.kept["launched"] = shared.life
        return True

    def exchanges(self) -> list[Any]:
        """All exchanges that may be in use."""
        return [shared.exchange for shared in {id(x): x for x in (self.shared, *self.kept.values())}.values()
                if shared.exchange is not None]

    def raise_fault(self, waits: bool) -> None:
        """Raises PeerTimeoutError for a failed call: a completed one, or any with `waits`."""
        if not (waits or self._broken.value):
            return
        for exchange in self.exchanges():
            fault = exchange.fault(_stream(self.device))
            if fault:
                self._broken.value = 0
                self.control.give_up(fault)

    def reset(self, timeout: float) -> None:
        """Restarts after a fault, with all ranks: exchanges in graphs at once, others at their next call."""
        self._of = None
        if not self.shared.is_captured:
            self.shared.life = next(_lives)
        if self.kept:
            torch.cuda.synchronize(self.device)
            self.control.meet("", timeout)  # all ranks have stopped copying
            for shared in self.kept.values():
                shared.exchange.reset(_stream(self.device))
            self.control.meet("", timeout)
        self._broken.value = 0


def _stream(device: torch.device) -> int:
    return torch._C._cuda_getCurrentRawStream(device.index)  # no object of it is made


_lives = itertools.count(1)
#: Fault words of workspaces, never freed: a copy to one may be pending when its workspace is freed.
_words: list[torch.Tensor] = []
_workspaces: weakref.WeakKeyDictionary[Any, dict[tuple[torch.device, Any], _Workspace]] = weakref.WeakKeyDictionary()
_said: weakref.WeakSet[Any] = weakref.WeakSet()


def _gathers(problem: Problem, why: str) -> None:
    if problem.control not in _said:
        _said.add(problem.control)
        warnings.warn(f'method: "arrive" needs {why}; "gather" computes instead, with equal results', stacklevel=2)


def _refusal(problem: Problem) -> str:
    """The requirements that a call does not meet, equal on all ranks; empty: none."""
    if problem.q.device.type != "cuda":
        return "GPUs, and tensors are in CPU memory"
    if max(problem.q.shape[3], problem.v.shape[3]) > 256:
        return "head dims up to 256"
    return _refusal_of(problem.placement)


@functools.lru_cache(maxsize=64)
def _refusal_of(placement: Placement) -> str:
    if placement.granule % _GRANULE or placement.seqlen < _GRANULE:
        return f"shards of multiples of {_GRANULE} rows, and the placement has granules of {placement.granule}"
    if min(map(placement.rows, range(placement.ranks))) == 0:
        return "rows on each rank"
    return ""


def _dense(x: torch.Tensor) -> tuple[torch.Tensor, tuple[int, int]]:
    """A tensor with contiguous rows per batch entry, aligned to 16 bytes; its address, and its stride between entries."""
    (_, _, heads, head_dim), (entry, row, head, element), address = x.shape, x.stride(), x.data_ptr()
    if element == 1 and head == head_dim and row == heads * head_dim and entry % 8 == 0 and address % 16 == 0:
        return x, (address, entry)
    x = x.clone(memory_format=torch.contiguous_format)
    return x, (x.data_ptr(), x.stride(0))


def _workspace_of(problem: Problem, purpose: Any) -> tuple[str, Any, tuple[Any, ...]]:
    """The reason why calls of a kind use "gather", or the group's workspace for a purpose and its exchange's sizes."""
    why = _refusal(problem)
    if why:
        return why, None, ()
    k, v, device = problem.k, problem.v, problem.q.device
    of_group = _workspaces.setdefault(problem.control, {})
    if (device, purpose) not in of_group:
        of_group[device, purpose] = _Workspace(problem.control, device, problem.timeout)
    return "", of_group[device, purpose], ("bf16" if k.dtype == torch.bfloat16 else "fp16", k.shape[0], k.shape[2], k.shape[3],
                                  v.shape[3])


def _shared_of(problem: Problem, purpose: Any = None, is_chosen: bool = False) -> tuple[_Workspace, _Shared] | None:
    """The exchange of a call; None, with a log message, when it uses "gather". With `is_chosen` nobody asked for "arrive":
    ranks of several hosts gather, and say nothing."""
    found = problem.kept.get("workspace")
    if found is None:
        found = problem.kept["workspace"] = _workspace_of(problem, purpose)
    why, workspace, sizes = found
    if workspace is not None and len(workspace.hosts) > 1:
        if is_chosen:
            return None
        raise InvalidArgumentError(f"group: its ranks are on {len(workspace.hosts)} hosts ({', '.join(workspace.hosts)}), and "
                                   "\"arrive\" copies within one; give a DeviceMesh of two dimensions, (hosts, ranks of each), "
                                   'or method="gather"', "arguments", "group")
    if workspace is not None and not workspace.refusal:
        shared = workspace.shared_of(problem, sizes, is_captured(problem.q))
    if workspace is None or workspace.refusal:
        _gathers(problem, why or workspace.refusal)
        return None
    return workspace, shared


@contextlib.contextmanager
def leaving_if_it_fails(control: Control) -> Iterator[None]:
    """Tells the other ranks of an error of this one, whose kernels must not wait for it."""
    try:
        yield
    except BaseException as error:
        control.leave(f"this rank failed: {error}")
        raise


def _with_arrivals(problem: Problem, workspace: _Workspace, shared: _Shared, compute: Callable[..., _Results]) -> _Results:
    """compute(keys, values, arrivals) over the whole sequence, whose keys arrive meanwhile."""
    stream = _stream(workspace.device)
    with leaving_if_it_fails(problem.control):
        addresses = shared.begin(problem.k, problem.v, stream)
    whole_k, whole_v, arrivals = shared.tensors(addresses, problem.k, problem.v, problem.placement.seqlen)
    if workspace.may_compile(problem, shared):
        shared.exchange.send()
    try:
        with leaving_if_it_fails(problem.control):
            return compute(whole_k, whole_v, arrivals=arrivals)
    finally:
        shared.exchange.end(stream)


def over(problem: Problem, purpose: Any, compute: Callable[..., _Results]) -> _Results | None:
    """compute(keys, values, arrivals=) over the rows of problem.placement, whose ranks keep memory for each purpose; None:
    they gather."""
    found = _shared_of(problem, purpose)
    return None if found is None else _with_arrivals(problem, *found, compute)


def forward(problem: Problem, is_chosen: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """O and LSE of this rank's queries."""
    found = _shared_of(problem, is_chosen=is_chosen)
    if found is None:
        return gather.forward(problem)
    return _with_arrivals(problem, *found, functools.partial(_problem.forward, problem))


def backward(problem: Problem, do: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, dlse: torch.Tensor | None,
             wanted: tuple[str, ...], want_sinks: bool, is_chosen: bool = False) -> Gradients:
    """Gradients of this rank's rows; for tensors and sinks, this rank's contribution."""
    found = _shared_of(problem, is_chosen=is_chosen)
    if found is None:
        return gather.backward(problem, do, o, lse, dlse, wanted, want_sinks)
    gradients = _with_arrivals(problem, *found, lambda k, v, arrivals: _problem.backward(
        problem, k, v, do, o, lse, dlse, wanted, want_sinks, arrivals=arrivals))
    return gather.returned(problem, gradients)


def _all_workspaces(control: Control) -> Iterator[_Workspace]:
    """The workspaces of a group and of its hosts."""
    for ranks in (control, *(hosts.inner for hosts in control.parts.values())):
        yield from _workspaces.get(ranks, {}).values()


def check(control: Control) -> None:
    """Waits for all calls of a group, and raises PeerTimeoutError if one has failed."""
    for workspace in _all_workspaces(control):
        workspace.raise_fault(waits=True)


def reset(control: Control, timeout: float) -> None:
    """Makes the next calls and replays restart, with all ranks."""
    for workspace in _all_workspaces(control):
        workspace.reset(timeout)
