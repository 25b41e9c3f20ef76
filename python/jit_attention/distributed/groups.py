"""Process groups: finding them, waiting for them, and raising the same error on every rank."""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Hashable, Iterable
from datetime import timedelta
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

from ..errors import InvalidArgumentError, PeerTimeoutError, RankMismatchError

#: Seconds to wait for other ranks' status after one rank has given up.
_GRACE = 1.0
#: A field of a message about a call: whether the rank waits for data, which will not come after a mismatch.
_WAITING = "is waiting"
#: In place of them: why a rank has not begun the call, behind the name of an argument.
_REFUSED = "refused"
_MOST_KEYS = 1024


def hosts_of(group: Any) -> int:
    """The number of hosts that the caller declares: the first dimension of a two-dimensional device mesh."""
    return group.size(0) if isinstance(group, DeviceMesh) and group.ndim == 2 else 1


@functools.lru_cache(maxsize=64)
def _flat(mesh: Any, world: Any) -> Any:
    """The group of all ranks of a mesh of hosts, in the current `world`."""
    ranks = mesh.mesh.flatten().tolist()
    if ranks != sorted(ranks):
        raise InvalidArgumentError(f"group: is a device mesh of the ranks {ranks} in this order; ranks of a mesh of hosts "
                                   "must ascend, host by host", "arguments", "group")
    if len(ranks) == dist.get_world_size():
        return world
    return dist.new_group(ranks, use_local_synchronization=True)


def group_of(group: Any) -> Any:
    """The process group of an argument: a group, a one-dimensional device mesh, one of hosts and their ranks, a group's
    name, or None."""
    if group is None:
        group = dist.group.WORLD
        if group is None:
            raise InvalidArgumentError("group: there is none before torch.distributed.init_process_group", "arguments", "group")
        return group
    if isinstance(group, str):
        return distributed_c10d._resolve_process_group(cast(Any, group))
    if isinstance(group, DeviceMesh):
        if group.ndim > 2:
            raise InvalidArgumentError(f"group: is a device mesh of {group.ndim} dimensions; give the one of the sequence, "
                                       'such as mesh["cp"], or two, hosts and ranks of each', "arguments", "group")
        return group.get_group() if group.ndim == 1 else _flat(group, dist.group.WORLD)
    if not isinstance(group, dist.ProcessGroup):
        raise InvalidArgumentError("group: must be a ProcessGroup of which this process is a member, a DeviceMesh of one "
                                   f"dimension or two, or None, not {group!r}", "arguments", "group")
    return group


def is_captured(tensor: torch.Tensor) -> bool:
    """Whether calls with this tensor are captured in a CUDA graph."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


class Ranks(Protocol):
    """Ranks that exchange rows: all or some of a group."""

    group: Any
    rank: int
    size: int

    def wait(self, work: Any, timeout: float, on_gpu: bool) -> None:
        """Waits for a collective."""


class Control:
    """Control messages between a group's ranks, over their rendezvous store.

    Ranks count their calls. They compare the first call of each kind; later ones when a rank waits too long, or sees a
    kind for the first time.
    """

    def __init__(self, group: Any) -> None:
        self.group = group
        self.rank, self.size = group.rank(), group.size()
        store = distributed_c10d._get_process_group_store(group)
        self.store = dist.PrefixStore("jit_attention", store)
        self.calls = 0
        self.broken = ""
        self.meetings = self.restarts = 0
        self._meetings_of: dict[tuple[int, ...], int] = {}
        self._may_restart = False
        self.fields: dict[str, str] = {}
        self._known: dict[Hashable, tuple[dict[str, str], dict[Any, Any]]] = {}
        self._seen: set[tuple[str, ...]] = set()
        #: Groups of some of the ranks, by purpose.
        self.parts: dict[Hashable, Any] = {}

    def begin(self, key: Hashable, written: Callable[[], dict[str, str]], timeout: float,
              check: Callable[[], None] = lambda: None) -> dict[Any, Any]:
        """Counts a call. Raises RankMismatchError on every rank unless all begin the same one. Calls with one key have
        the same fields, which the first one formats by `written`. `check` raises when this rank's arguments are
        invalid; such a call is compared again, since other ranks would wait. Returns a dict that calls with this key
        share."""
        self._refuse_broken()
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

    def repeat(self, fields: dict[str, str]) -> None:
        """Counts a call of a kind that `begin` has seen, with its fields."""
        if self.broken:
            self._refuse_broken()
        self.calls += 1
        self.fields = fields

    def _refuse_broken(self) -> None:
        if self.broken:
            way = "call jit_attention.distributed.reset on all ranks" if self._may_restart else (
                "make a new one with torch.distributed.new_group")
            raise PeerTimeoutError(f"group: was left in the middle of a call ({self.broken}); {way}", "exchange", "group")

    def refuse(self, error: Exception) -> None:
        """Counts a call that this rank does not begin, because of its arguments, and tells ranks that do."""
        self.calls += 1
        if self.size > 1 and not self.broken:
            field = getattr(error, "field", "") or "group"
            self.store.set(f"{self.calls}/{self.rank}", json.dumps({_REFUSED: [field, str(error)]}))
            self.store.set(f"{self.calls}/news", "1")

    def wait(self, work: Any, timeout: float, on_gpu: bool) -> None:
        """Waits for a collective. A GPU's is awaited by its stream, and the group's own watchdog ends it."""
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
        """Waits until all ranks have arrived. Returns the text of each."""
        self.meetings += 1
        return self._texts(f"meeting {self.meetings}", text, timeout)

    def meet_some(self, ranks: tuple[int, ...], text: str, timeout: float) -> list[str]:
        """Waits until these ranks, of which this is one, have arrived. Returns the text of each."""
        count = self._meetings_of[ranks] = self._meetings_of.get(ranks, 0) + 1
        return self._texts(f"meeting {self.restarts}.{count} of ranks {ranks[0]} to {ranks[-1]}", text, timeout, ranks)

    def give_up(self, why: str) -> None:
        """Raises PeerTimeoutError for a kernel's failed wait, after which ranks may restart."""
        self.leave(why)
        raise PeerTimeoutError(f"group: {why}; here it is {_call(self.fields)}", "exchange", "group")

    def leave(self, why: str) -> None:
        """Notes that this rank has left a call in which others may wait for it; ranks may restart afterwards."""
        self.broken, self._may_restart = why, True

    def restart(self, timeout: float) -> None:
        """Continues after a kernel's failed wait, with all ranks, from the same call count."""
        if self.broken and not self._may_restart:
            raise PeerTimeoutError(f"group: was left in the middle of a collective ({self.broken}); make a new one with "
                                   "torch.distributed.new_group", "exchange", "group")
        self.restarts += 1
        counts = [json.loads(text) for text in self._texts(f"restart {self.restarts}",
                                                           json.dumps([self.calls, self.meetings]), timeout)]
        self.calls, self.meetings = (max(values) for values in zip(*counts))
        self._meetings_of.clear()
        self.broken, self._may_restart = "", False

    def _texts(self, what: str, text: str, timeout: float, ranks: Iterable[int] | None = None) -> list[str]:
        ranks = range(self.size) if ranks is None else ranks
        self.store.set(f"{what}/{self.rank}", text)
        end = time.monotonic() + timeout
        missing = []
        for rank in ranks:
            try:
                self.store.wait([f"{what}/{rank}"], timedelta(seconds=max(end - time.monotonic(), 0.01)))
            except RuntimeError:
                missing.append(rank)
        if missing:
            raise PeerTimeoutError(f"group: {_ranks(missing)} not come to {what} within {timeout:g} s: dead, asleep, or in "
                                   "another call", "exchange", "group")
        return [self.store.get(f"{what}/{rank}").decode() for rank in ranks]

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

    def _posted(self, timeout: float, is_waiting: bool) -> dict[int, dict[str, Any]]:
        """Messages about this call from ranks that answer in time, with their waiting status."""
        posted: dict[int, dict[str, Any]] = {}
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

    def _refuse_differences(self, posted: dict[int, dict[str, Any]]) -> None:
        for rank, fields in sorted(posted.items()):
            if _REFUSED in fields:
                name, why = fields[_REFUSED]
                message = f"{name}: rank {rank} has refused call {self.calls}: {why}"
                if any(others.get(_WAITING) == "True" for others in posted.values()):
                    self.broken = message
                raise RankMismatchError(message, "exchange", name)
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
        """Finds out which ranks are in another call, and raises."""
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
    """A time-out in seconds; None: the group's, for tensors on a device."""
    if timeout is not None:
        return float(timeout)
    options = options_of(group, device)
    return (distributed_c10d.default_pg_timeout if options is None else options._timeout).total_seconds()


def options_of(group: Any, device: torch.device) -> Any:
    """The options of a group's backend, which have its time-out; None: it has none."""
    options = getattr(group._get_backend(device), "options", None)
    return options if getattr(options, "_timeout", None) is not None else None


def start_rows(control: Ranks, given: torch.Tensor, sent: list[int],
               received: list[int]) -> tuple[torch.Tensor, Any]:
    """All-to-all of rows of any element type: `sent[r]` rows go to rank r, and `received[r]` come from it. Returns the
    tensor for the received rows, and the work for `Control.wait`."""
    given = given.contiguous()
    result = given.new_empty((sum(received), *given.shape[1:]))
    width = math.prod(given.shape[1:]) * given.element_size()
    splits = [[count * width for count in counts] for counts in (received, sent)]
    # Bytes, since not every backend supports every element type.
    as_bytes = [x.view(-1).view(torch.uint8) for x in (result, given)]
    return result, dist.all_to_all_single(*as_bytes, *splits, group=control.group, async_op=True)


def exchange_rows(control: Control, given: torch.Tensor, sent: list[int], received: list[int],
                  timeout: float) -> torch.Tensor:
    """The received rows, after a wait."""
    result, work = start_rows(control, given, sent, received)
    control.wait(work, timeout, given.is_cuda)
    return result


def sum_over_ranks(control: Control, tensor: torch.Tensor, timeout: float) -> torch.Tensor:
    """The sum of a tensor over all ranks, computed in fp32 and in rank order, in the tensor's dtype."""
    own = tensor.float().contiguous()
    slots = own.new_empty((control.size, *own.shape))
    flat = own.reshape(-1)
    work = dist.all_gather_into_tensor(slots.view(-1), flat, group=control.group, async_op=True)
    control.wait(work, timeout, own.is_cuda)
    total = slots[0].clone()
    for slot in slots[1:]:
        total += slot
    return total.to(tensor.dtype)
