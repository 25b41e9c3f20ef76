"""Process groups: finding them, waiting for them, and telling on every rank the same what went wrong."""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from ..errors import InvalidArgumentError, PeerTimeoutError, RankMismatchError

#: Seconds that ranks give each other to say where they are, once one of them has given up.
_GRACE = 1.0
#: Beside the fields of a call: whether a rank waits for data, which will not come after a mismatch.
_WAITING = "is waiting"
_MOST_KEYS = 1024


def _is_mesh(group: Any) -> bool:
    return hasattr(group, "get_group") and hasattr(group, "ndim")


def hosts_of(group: Any) -> int:
    """The number of hosts that a caller tells apart: the first dimension of a device mesh of two."""
    return group.size(0) if _is_mesh(group) and group.ndim == 2 else 1


@functools.lru_cache(maxsize=64)
def _flat(mesh: Any, world: Any) -> Any:
    """The group of all ranks of a mesh of hosts, of the processes that `world` has now."""
    ranks = mesh.mesh.flatten().tolist()
    if ranks != sorted(ranks):
        raise InvalidArgumentError(f"group: is a device mesh of the ranks {ranks} in this order; ranks of a mesh of hosts "
                                   "must ascend, host by host", "arguments", "group")
    if len(ranks) == dist.get_world_size():
        return world
    return dist.new_group(ranks, use_local_synchronization=True)


def group_of(group: Any) -> Any:
    """The process group that a caller means: a group, a device mesh of one dimension, or of hosts and their ranks, a group's
    name, or None."""
    if not dist.is_initialized():
        raise InvalidArgumentError("group: there is none before torch.distributed.init_process_group", "arguments", "group")
    if group is None:
        return dist.group.WORLD
    if isinstance(group, str):
        return distributed_c10d._resolve_process_group(cast(Any, group))
    if _is_mesh(group):
        if group.ndim > 2:
            raise InvalidArgumentError(f"group: is a device mesh of {group.ndim} dimensions; give the one of the sequence, "
                                       'such as mesh["cp"], or two, hosts and ranks of each', "arguments", "group")
        return group.get_group() if group.ndim == 1 else _flat(group, dist.group.WORLD)
    if not isinstance(group, dist.ProcessGroup):
        raise InvalidArgumentError("group: must be a ProcessGroup of which this process is a member, a DeviceMesh of one "
                                   f"dimension or two, or None, not {group!r}", "arguments", "group")
    return group


def is_captured(tensor: torch.Tensor) -> bool:
    """Whether calls with this tensor become part of a CUDA graph."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


class Ranks(Protocol):
    """Ranks that exchange rows: those of a group, or some of them."""

    group: Any
    rank: int
    size: int

    def wait(self, work: Any, timeout: float, on_gpu: bool) -> None:
        """Waits for a collective."""


class Control:
    """Messages between the ranks of a group beside their data, over the store of their rendezvous.

    Ranks count their calls. At the first call of a kind they compare what they are about to compute; later ones are
    compared when some rank waits too long, or one sees a kind for the first time.
    """

    def __init__(self, group: Any) -> None:
        self.group = group
        self.rank, self.size = group.rank(), group.size()
        store = distributed_c10d._get_process_group_store(group)
        self.store = dist.PrefixStore("jit_attention", store)
        self.calls = 0
        self.broken = ""
        self.meetings = self.restarts = 0
        self._may_restart = False
        self.fields: dict[str, str] = {}
        self._known: dict[Hashable, tuple[dict[str, str], dict[Any, Any]]] = {}
        self._seen: set[tuple[str, ...]] = set()
        #: Groups of some of the ranks, by what they are for.
        self.parts: dict[Hashable, Any] = {}

    def begin(self, key: Hashable, written: Callable[[], dict[str, str]], timeout: float,
              check: Callable[[], None] = lambda: None) -> dict[Any, Any]:
        """Counts a call. Raises RankMismatchError on every rank unless all begin the same one. Calls of one key have the
        same fields, which are `written` for the first of them. `check` raises where a rank's arguments do not fit; such a
        call is compared again, as ranks that it fits would wait for others. Returns what calls of this key may keep for
        each other."""
        if self.broken:
            way = "call jit_attention.distributed.reset on all ranks" if self._may_restart else (
                "make a new one with torch.distributed.new_group")
            raise PeerTimeoutError(f"group: was left in the middle of a call ({self.broken}); {way}", "exchange", "group")
        self.calls += 1
        known = self._known.get(key)
        if known is not None:
            self.fields, kept = known
            return kept
        self.fields = written()
        kind = tuple(self.fields.values())
        if kind not in self._seen:
            if self.size > 1:
                self.store.set(f"{self.calls}/news", "1")
                self._compare(timeout)
            check()
            self._seen.add(kind)
        if len(self._known) >= _MOST_KEYS:  # keys hold masks and placements
            self._known.clear()
        _, kept = self._known[key] = self.fields, {}
        return kept

    def wait(self, work: Any, timeout: float, on_gpu: bool) -> None:
        """Waits for a collective. That of a GPU is waited for by its stream; the group's own watch ends it."""
        if on_gpu:
            work.wait()
            return
        began = time.monotonic()
        asked = began
        pause = 2e-5
        while not work.is_completed():
            time.sleep(pause)
            pause = min(2 * pause, 2e-3)
            now = time.monotonic()
            if now - began > timeout:
                self._give_up(timeout, f"within {timeout:g} s")
            if now - asked > 0.2:
                asked = now
                if self._asks("news"):
                    self._compare(timeout, is_waiting=True)
        try:
            work.wait()
        except RuntimeError as error:
            self._give_up(timeout, f"and a connection was lost ({str(error).splitlines()[0]})")

    def meet(self, text: str, timeout: float) -> list[str]:
        """Waits until all ranks are here. Returns the text of each."""
        self.meetings += 1
        return self._texts(f"meeting {self.meetings}", text, timeout)

    def give_up(self, why: str) -> None:
        """Raises PeerTimeoutError for what a kernel has waited for in vain, after which ranks may begin anew."""
        self.leave(why)
        raise PeerTimeoutError(f"group: {why}; here it is {_call(self.fields)}", "exchange", "group")

    def leave(self, why: str) -> None:
        """Notes that this rank has left a call in which others may wait for it, after which ranks may begin anew."""
        self.broken, self._may_restart = why, True

    def restart(self, timeout: float) -> None:
        """Goes on after a kernel has waited in vain, with all ranks, from the same number of calls on."""
        if self.broken and not self._may_restart:
            raise PeerTimeoutError(f"group: was left in the middle of a collective ({self.broken}); make a new one with "
                                   "torch.distributed.new_group", "exchange", "group")
        self.restarts += 1
        counts = [json.loads(text) for text in self._texts(f"restart {self.restarts}",
                                                           json.dumps([self.calls, self.meetings]), timeout)]
        self.calls, self.meetings = (max(values) for values in zip(*counts))
        self.broken, self._may_restart = "", False

    def _texts(self, what: str, text: str, timeout: float) -> list[str]:
        self.store.set(f"{what}/{self.rank}", text)
        end = time.monotonic() + timeout
        missing = []
        for rank in range(self.size):
            try:
                self.store.wait([f"{what}/{rank}"], timedelta(seconds=max(end - time.monotonic(), 0.01)))
            except RuntimeError:
                missing.append(rank)
        if missing:
            raise PeerTimeoutError(f"group: {_ranks(missing)} not come to {what} within {timeout:g} s: dead, asleep, or in "
                                   "another call", "exchange", "group")
        return [self.store.get(f"{what}/{rank}").decode() for rank in range(self.size)]

    def _asks(self, what: str) -> bool:
        try:
            return self.store.check([f"{self.calls}/{what}"])
        except RuntimeError:
            return False

    def _compare(self, timeout: float, is_waiting: bool = False) -> None:
        posted = self._posted(timeout, is_waiting)
        missing = [rank for rank in range(self.size) if rank not in posted]
        if missing:
            self._break(f"{_ranks(missing)} not come to call {self.calls} within {timeout:g} s: dead, asleep, or in "
                        f"another collective; here it is {_call(self.fields)}")
        self._refuse_differences(posted)

    def _posted(self, timeout: float, is_waiting: bool) -> dict[int, dict[str, str]]:
        """Messages about this call from the ranks that answer in time, and whether they wait for data."""
        posted: dict[int, dict[str, str]] = {}
        end = time.monotonic() + timeout
        try:
            self.store.set(f"{self.calls}/{self.rank}", json.dumps(self.fields | {_WAITING: str(is_waiting)}))
            for rank in range(self.size):
                key = f"{self.calls}/{rank}"
                try:
                    self.store.wait([key], timedelta(seconds=max(end - time.monotonic(), 0.01)))
                except RuntimeError:
                    continue
                posted[rank] = json.loads(self.store.get(key))
        except RuntimeError:  # the rank that holds the store is gone
            posted.setdefault(self.rank, self.fields)
        return posted

    def _refuse_differences(self, posted: dict[int, dict[str, str]]) -> None:
        for name in self.fields:
            ranks_of: dict[str, list[int]] = {}
            for rank, fields in sorted(posted.items()):
                ranks_of.setdefault(fields.get(name, "nothing"), []).append(rank)
            if len(ranks_of) > 1:
                said = "; ".join(f"{_ranks(ranks)} {value}" for value, ranks in ranks_of.items())
                message = f"{name}: differs among ranks: {said}. Give all ranks of the group the same"
                if any(fields.get(_WAITING) == "True" for fields in posted.values()):
                    self.broken = message
                raise RankMismatchError(message, "exchange", name)

    def _give_up(self, timeout: float, why: str) -> None:
        """Finds out which ranks are elsewhere, and raises."""
        posted = self._posted(min(_GRACE, timeout), is_waiting=True)
        self._refuse_differences(posted)
        missing = [rank for rank in range(self.size) if rank not in posted]
        who = f"{_ranks(missing)} not delivered" if missing else "some rank has not delivered"
        self._break(f"{who} what call {self.calls} needs {why}; here it is {_call(self.fields)}")

    def _break(self, message: str) -> None:
        self.broken = message
        raise PeerTimeoutError(f"group: {message}", "exchange", "group")


def _ranks(ranks: list[int]) -> str:
    names = ", ".join(map(str, ranks))
    return f"rank {names} has" if len(ranks) == 1 else f"ranks {names} have"


def _call(fields: dict[str, str]) -> str:
    return f"{fields.get('pass', 'a call')} by {fields.get('method', 'no method')}"


_controls: dict[Any, Control] = {}


def control_of(group: Any) -> Control:
    """The one Control of a process group."""
    control = _controls.get(group)
    if control is None:
        control = _controls[group] = Control(group)
    return control


def seconds_of(group: Any, timeout: float | None, device: torch.device) -> float:
    """A time-out in seconds; None: that of the group, for tensors of a device."""
    if timeout is not None:
        return float(timeout)
    own = getattr(getattr(group._get_backend(device), "options", None), "_timeout", None)
    return own.total_seconds() if own is not None else distributed_c10d.default_pg_timeout.total_seconds()


def start_rows(control: Ranks, given: torch.Tensor, sent: list[int],
               received: list[int]) -> tuple[torch.Tensor, Any]:
    """All-to-all of rows of any element type: `sent[r]` rows go to rank r, and `received[r]` come from it. Returns what
    the rows will be in, and what `Control.wait` waits for."""
    given = given.contiguous()
    result = given.new_empty((sum(received), *given.shape[1:]))
    width = math.prod(given.shape[1:]) * given.element_size()
    splits = [[count * width for count in counts] for counts in (received, sent)]
    # Bytes: not every backend knows every element type.
    as_bytes = [x.view(-1).view(torch.uint8) for x in (result, given)]
    return result, dist.all_to_all_single(*as_bytes, *splits, group=control.group, async_op=True)


def exchange_rows(control: Control, given: torch.Tensor, sent: list[int], received: list[int],
                  timeout: float) -> torch.Tensor:
    """The rows that come, once they are there."""
    result, work = start_rows(control, given, sent, received)
    control.wait(work, timeout, given.is_cuda)
    return result


def sum_over_ranks(control: Control, tensor: torch.Tensor, timeout: float) -> torch.Tensor:
    """The sum of a tensor over all ranks, in fp32 and in the order of ranks, and in the tensor's dtype."""
    own = tensor.float().contiguous()
    slots = own.new_empty((control.size, *own.shape))
    flat = own.reshape(-1)
    work = dist.all_gather_into_tensor(slots.view(-1), flat, group=control.group, async_op=True)
    control.wait(work, timeout, own.is_cuda)
    total = slots[0].clone()
    for slot in slots[1:]:
        total += slot
    return total.to(tensor.dtype)
