"""Methods "gather" and "arrive" over several hosts: shards travel a ring of hosts, each rank sending to its counterpart on
the next one, and a host's ranks copy the rows that they need from each other, ahead of the kernel or while it computes.

So each shard reaches each other host once. O and LSE are summed in fp32 over the hosts. In the backward pass, sums of
dK and dV follow their keys, in fp32 and in a fixed order, so that every run is bitwise identical.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist

from . import arrive
from . import problem as _problem
from .balance import balance
from .exchange import Places, Route, gather_rows, positions_of_runs, return_rows
from .groups import Control, start_rows
from .placement import Placement
from .problem import Gradients, Problem, State, keep_places, positions_of
from .rows import apart, beside


@dataclass(frozen=True, eq=False)
class _Part:
    """Some ranks of a group, for their collectives. The whole group's control waits, and names missing ranks."""

    group: Any
    rank: int
    ranks: tuple[int, ...]
    control: Control

    @property
    def size(self) -> int:
        return len(self.ranks)

    def meet(self, text: str, timeout: float) -> list[str]:
        return self.control.meet_some(self.ranks, text, timeout)

    def leave(self, why: str) -> None:
        self.control.leave(why)

    def give_up(self, why: str) -> None:
        self.control.give_up(f"among ranks {self.ranks[0]} to {self.ranks[-1]}, which are counted from 0, {why}")

    def wait(self, work: Any, timeout: float, on_gpu: bool) -> None:
        self.control.wait(work, timeout, on_gpu)


def _part(control: Control, ranks: range) -> _Part:
    every = dist.get_process_group_ranks(control.group)
    group = dist.new_group([every[rank] for rank in ranks], use_local_synchronization=True)
    return _Part(group, ranks.index(control.rank), tuple(ranks), control)


class _Hosts:
    """A rank's host; a host's ranks are consecutive."""

    def __init__(self, control: Control, hosts: int) -> None:
        self.count, self.each = hosts, control.size // hosts
        self.own, self.place = divmod(control.rank, self.each)
        first = self.own * self.each
        self.inner = _part(control, range(first, first + self.each))
        self.outer = _part(control, range(self.place, control.size, self.each))


def _hosts_of(problem: Problem) -> _Hosts:
    known = problem.control.parts.get(problem.hosts)
    if known is None:
        known = problem.control.parts[problem.hosts] = _Hosts(problem.control, problem.hosts)
    return known


@functools.lru_cache(maxsize=64)
def _of_hosts(placement: Placement, hosts: int) -> Placement:
    """The placement of all rows of a host's ranks."""
    each = placement.ranks // hosts
    chunks = [sorted(run for runs in placement.runs[host * each:(host + 1) * each] for run in runs) for host in range(hosts)]
    return balance(None, seqlen=placement.seqlen, ranks=hosts, granule=placement.granule, mode="chunks", chunks=chunks)


@dataclass(frozen=True)
class _Step:
    """The rows that a rank copies for a host's keys, and whether its queries, or any of its host, need some."""

    route: Route
    rows: int  # of the source
    has_work: bool
    any_has_work: bool


@functools.lru_cache(maxsize=256)
def _step_of(placement: Placement, hosts: int, rank: int, source: int, device: torch.device) -> _Step:
    """The step in which the shards of host `source` are on the host of `rank`, each on its owner's counterpart. Routes
    lead to the host's rows, by ascending positions."""
    each = placement.ranks // hosts
    host, place = divmod(rank, each)
    needed = _needed(placement, hosts, host)
    shards = [positions_of_runs(placement.runs[source * each + other]) for other in range(each)]
    union = torch.cat(shards).sort().values
    wanted = [[needed[to, shard // placement.granule] for shard in shards] for to in range(each)]
    nothing = torch.empty(0, dtype=torch.int64)
    sent, received = [], []
    is_absent = torch.ones(union.numel(), dtype=torch.bool)
    own = torch.searchsorted(union, shards[place])
    is_absent[own] = False
    for other in range(each):
        is_own = other == place
        rows = nothing if is_own else wanted[other][place].nonzero()[:, 0]
        places = nothing if is_own else torch.searchsorted(union, shards[other][wanted[place][other]])
        is_absent[places] = False
        sent.append(Places(rows, device))
        received.append(Places(places, device))
    travels = any(wanted[to][of].any() for to in range(each) for of in range(each) if to != of)
    route = Route(own.numel(), sent, received, Places(own, device), Places(is_absent.nonzero()[:, 0], device), travels,
                  [places.count for places in sent], [places.count for places in received])
    works = [any(bool(rows.any()) for rows in of_rank) for of_rank in wanted]
    return _Step(route, union.numel(), works[place], any(works))


def _needed(placement: Placement, hosts: int, host: int) -> torch.Tensor:
    """Whether each rank of a host needs each granule."""
    each = placement.ranks // hosts
    needed = torch.zeros((each, -(-placement.seqlen // placement.granule)), dtype=torch.bool)
    for other in range(each):
        for begin, end in placement.needs[host * each + other]:
            needed[other, begin:end] = True
    return needed


@functools.lru_cache(maxsize=256)
def _placement_of_step(placement: Placement, hosts: int, host: int, source: int) -> Placement | None:
    """The placement of a source's rows, by ascending positions, of which each rank of a host has its counterpart's and needs
    some; None: some rank has none."""
    each, granule = placement.ranks // hosts, placement.granule
    shards = [positions_of_runs(placement.runs[source * each + other]) for other in range(each)]
    if not all(shard.numel() for shard in shards):
        return None
    union, needed = torch.cat(shards).sort().values, _needed(placement, hosts, host)
    chunks = [[(granule * i, min(granule * (i + 1), union.numel()))
               for i in (torch.searchsorted(union, shard[::granule]) // granule).tolist()] for shard in shards]
    own = balance(None, seqlen=union.numel(), ranks=len(shards), granule=granule, mode="chunks", chunks=chunks)
    granules = union[::granule] // granule  # of the sequence, by those of the source
    needs = []
    for rank, runs in enumerate(own.runs):
        wants = needed[rank, granules].clone()
        for begin, end in runs:
            wants[begin // granule:-(-end // granule)] = True
        places = Places(wants.nonzero()[:, 0], wants.device)
        needs.append(tuple((first, first + count) for first, count, _ in places.runs))
    return dataclasses.replace(own, needs=tuple(needs), digest=f"{placement.digest}, of {hosts} hosts {source} at {host}")


class _Ring:
    """Sends rows to the counterpart on the next host while receiving from the previous one."""

    def __init__(self, problem: Problem, hosts: _Hosts) -> None:
        self.problem, self.hosts = problem, hosts

    def start(self, held: torch.Tensor, source: int) -> tuple[torch.Tensor, Any]:
        """Starts sending `held`, whose owner is on host `source`, and receiving the next shard."""
        part, count = self.hosts.outer, self.hosts.count
        sent, received = [0] * count, [0] * count
        sent[(part.rank + 1) % count] = held.shape[0]
        coming = (source - 1) % count * self.hosts.each + self.hosts.place
        received[(part.rank - 1) % count] = self.problem.placement.rows(coming)
        return start_rows(part, held, sent, received)

    def finish(self, started: tuple[torch.Tensor, Any]) -> torch.Tensor:
        result, work = started
        self.hosts.outer.wait(work, self.problem.timeout, result.is_cuda)
        return result


def _steps(problem: Problem, hosts: _Hosts, ring: _Ring):
    """For each host: its number, its step, and this rank's part of its rows; the next shard is received meanwhile."""
    placement = problem.placement
    held = beside(problem.k, problem.v)
    for number in range(hosts.count):
        source = (hosts.own - number) % hosts.count
        started = ring.start(held, source) if number + 1 < hosts.count else None
        step = _step_of(placement, hosts.count, problem.rank, source, problem.k.device)
        keep_places(problem, ("host", source), positions_of(_of_hosts(placement, hosts.count), source, problem.k.device))
        yield source, step, held
        if started is not None:
            held = ring.finish(started)


def _gathered(problem: Problem, hosts: _Hosts, source: int, step: _Step, held: torch.Tensor, compute: Callable[..., Any]) -> Any:
    """compute(k, v) of the source's rows that this rank needs; None: it needs none."""
    is_own = source == hosts.own  # sinks count with the own keys
    rows = held[:0]
    if step.has_work or step.route.travels or is_own:
        rows = gather_rows(hosts.inner, step.route, held, step.rows, problem.timeout)
    return compute(*apart(rows, problem.k, problem.v)) if step.has_work or is_own else None


def _arriving(problem: Problem, hosts: _Hosts, source: int, step: _Step, held: torch.Tensor, compute: Callable[..., Any]) -> Any:
    """As _gathered, but keys arrive while the kernel runs. If one rank of a host has work, all its ranks take part."""
    if not step.any_has_work and source != hosts.own:
        return None
    placement, results = _placement_of_step(problem.placement, hosts.count, hosts.own, source), None
    if placement is not None:
        k, v = apart(held, problem.k, problem.v)
        inner = dataclasses.replace(problem, k=k, v=v, control=cast(Any, hosts.inner), placement=placement,
                                    kept=problem.kept.setdefault(("exchange", source), {}))
        results = arrive.over(inner, source, compute)
    return _gathered(problem, hosts, source, step, held, compute) if results is None else results


_INNER = {"gather": _gathered, "arrive": _arriving}


@dataclass(frozen=True)
class OverHosts:
    """The method whose ranks of a host exchange rows by `inner`."""

    inner: str

    def forward(self, problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
        """O and LSE of this rank's queries."""
        hosts, state = _hosts_of(problem), State()
        for source, step, held in _steps(problem, hosts, _Ring(problem, hosts)):
            _INNER[self.inner](problem, hosts, source, step, held, functools.partial(
                state.add_keys, problem, source=("host", source), with_sinks=source == hosts.own))
        assert state.o is not None and state.lse is not None
        return state.o.to(problem.q.dtype), state.lse

    def backward(self, problem: Problem, do: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, dlse: torch.Tensor | None,
                 wanted: tuple[str, ...], want_sinks: bool) -> Gradients:
        """Gradients of this rank's rows; for tensors and sinks, this rank's contribution."""
        hosts = _hosts_of(problem)
        ring = _Ring(problem, hosts)
        tensors = problem.tensors or {}
        dq = torch.zeros(problem.q.shape, dtype=torch.float32, device=problem.q.device)
        by_name = {name: torch.zeros_like(tensors[name], dtype=torch.float32) for name in wanted}
        of_sinks = None
        sums = torch.zeros_like(beside(problem.k, problem.v), dtype=torch.float32)
        for source, step, held in _steps(problem, hosts, ring):
            is_own = source == hosts.own

            def compute(k: torch.Tensor, v: torch.Tensor, source: int = source, is_own: bool = is_own, **arrivals: Any) -> Gradients:
                return _problem.backward(problem, k, v, do, o, lse, dlse, wanted, want_sinks and is_own, ("host", source),
                                         **arrivals)

            part = _INNER[self.inner](problem, hosts, source, step, held, compute)
            if part is None:
                rows = torch.zeros((step.rows, *sums.shape[1:]), dtype=torch.float32, device=sums.device)
            else:
                dq += part.dq
                rows = beside(part.dk, part.dv).float()
                for name, gradient in part.tensors.items():
                    by_name[name] += gradient.float()
                of_sinks = part.sinks if is_own else of_sinks
            if step.any_has_work or is_own:
                returned = torch.empty_like(sums)
                return_rows(hosts.inner, step.route, rows, [(slice(None), returned)], problem.timeout)
                sums += returned
            sums = ring.finish(ring.start(sums, source))  # the sums follow their keys, and finally reach the owner
        dk, dv = (x.to(problem.k.dtype, memory_format=torch.contiguous_format) for x in apart(sums, problem.k, problem.v))
        return Gradients(dq.to(problem.q.dtype), dk, dv,
                         {name: gradient.to(tensors[name].dtype) for name, gradient in by_name.items()}, of_sinks)
