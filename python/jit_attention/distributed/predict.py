"""How long attention over several GPUs will take: a simulation of one rank's shards.

Other ranks' keys arrive through an NVLink queue, other hosts' first through an InfiniBand queue: a GPU fetches its
counterpart's shard, which NVLink distributes within the host. Work begins with own keys, and continues with shards as
they arrive.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidArgumentError

_METHODS = ("arrive", "gather", "ring", "heads")
#: FLOP/s of kernels whose rows have positions, and of others: forward and backward.
_RATES = ((683e12, 560e12), (730e12, 595e12))


@dataclass(frozen=True)
class Prediction:
    """The result of `predict`. Times are in seconds.

    Attributes:
        time: Time of one call on the slowest rank.
        local: Time of its kernels alone, if all keys were there.
        efficiency: local / time: what the exchange leaves (E2).
        copied_bytes: Bytes that a rank receives from others: keys and returned gradients.
    """

    time: float
    local: float
    efficiency: float
    copied_bytes: int


def predict(*, ranks: int, seqlen: int, heads_q: int, heads_kv: int, head_dim: int, backward: bool = False,
            kept: float = 0.5, imbalance: float = 1.0, needed: float = 1.0, method: str = "arrive",
            ranks_per_host: int = 8, rate: float | None = None, nvlink: float = 364e9, infiniband: float = 45e9,
            itemsize: int = 2, host: float = 0.0) -> Prediction:
    """Predicts the time of attention of one sequence over several GPUs.

    Args:
        ranks: GPUs: a number up to ranks_per_host, or a multiple of it.
        seqlen: Queries of the whole sequence, and as many keys.
        heads_q: Query heads.
        heads_kv: KV heads.
        head_dim: Elements of a key, and of a value.
        backward: Whether the backward pass is meant, with gradients in fp32.
        kept: The share of scores that the mask keeps: 0.5 for causal, 1 for full.
        imbalance: The largest load relative to the mean, as `Placement.imbalance`.
        needed: The share of the keys of others that a rank copies.
        method: "arrive": work begins before all keys are there. "gather": it does not. "ring": one shard is copied while
            another is computed. "heads": rows are exchanged for heads, before and after.
        ranks_per_host: GPUs that NVLink connects.
        rate: FLOP/s of the kernels. None: those of an H200 with head_dim 128 in long calls, 683e12 forward and 560e12
            backward where rows have positions, 730e12 and 595e12 by "heads".
        nvlink: Bytes/s that a GPU gets over NVLink.
        infiniband: Bytes/s that it gets from another host.
        itemsize: Bytes of an element.
        host: Seconds for which the GPU waits for the host of a call by itself, such as ``host_us`` of
            ``bench/distributed.py``; 0 in CUDA graphs, and behind work that takes longer.

    Returns:
        The prediction. It leaves out stragglers, clocks, and quantization of short shards: with ``host``, calls of 8,192 to
        65,536 tokens on two and four H200s took 0.77 to 1.19 times as long.

    Raises:
        InvalidArgumentError: A number is not positive, a share is above 1, or ranks do not fill hosts.

    Examples:
        >>> two = ja.distributed.predict(ranks=2, seqlen=65536, heads_q=32, heads_kv=8, head_dim=128)
        >>> two.efficiency > 0.99
        True
    """
    for name, value in (("ranks", ranks), ("seqlen", seqlen), ("heads_q", heads_q), ("heads_kv", heads_kv),
                        ("head_dim", head_dim), ("kept", kept), ("imbalance", imbalance), ("nvlink", nvlink),
                        ("infiniband", infiniband), ("itemsize", itemsize), ("ranks_per_host", ranks_per_host)):
        if not value > 0:
            raise InvalidArgumentError(f"{name}: is {value}; it must be positive", "arguments", name)
    if not host >= 0:
        raise InvalidArgumentError(f"host: is {host}; it must be at least 0, in seconds", "arguments", "host")
    for name, value in (("kept", kept), ("needed", needed)):
        if not 0 <= value <= 1:
            raise InvalidArgumentError(f"{name}: is {value}; it is a share, from 0 to 1", "arguments", name)
    hosts = max(1, ranks // ranks_per_host)
    if ranks > ranks_per_host and ranks % ranks_per_host:
        raise InvalidArgumentError(f"ranks: is {ranks}; beyond one host it must be a multiple of {ranks_per_host}",
                                   "arguments", "ranks")
    if method not in _METHODS:
        raise InvalidArgumentError(f"method: is {method!r}; it must be one of {', '.join(_METHODS)}", "arguments", "method")
    rows = seqlen / ranks
    rate = _RATES[method == "heads"][backward] if rate is None else rate
    per_pair = (10 if backward else 4) * heads_q * head_dim * kept * imbalance
    case = _Case(ranks=ranks, in_host=min(ranks, ranks_per_host), hosts=hosts, shard=per_pair * rows * rows / rate,
                 keys=2 * rows * heads_kv * head_dim * itemsize * needed,
                 gradients=2 * rows * heads_kv * head_dim * 4 * needed if backward else 0.0, nvlink=nvlink,
                 infiniband=infiniband, call=30e-6 if backward else 15e-6, results=rows * heads_q * head_dim * 4.0)
    local = ranks * case.shard
    if method == "heads":
        tensors = (4 * heads_q + 4 * heads_kv) if backward else (2 * heads_q + 2 * heads_kv)
        travelling = (ranks - 1) / ranks * rows * head_dim * itemsize * tensors
        link = nvlink if hosts == 1 else infiniband
        time = local + travelling / link + 4 * case.call
    else:
        travelling = (ranks - 1) * (case.keys + case.gradients)
        time = {"arrive": _arrive, "gather": _gather, "ring": _ring}[method](case)
    time = max(time, local + host)
    return Prediction(time, local, local / time, round(travelling))


@dataclass(frozen=True)
class _Case:
    ranks: int
    in_host: int
    hosts: int
    shard: float  # seconds of work on another shard's keys
    keys: float  # bytes of a shard's keys and values
    gradients: float  # bytes of returned gradients
    nvlink: float
    infiniband: float
    call: float
    results: float  # bytes of a rank's O in fp32

    def arrivals(self) -> list[float]:
        """Arrival times of other ranks' shards."""
        times = [(i + 1) * self.keys / self.nvlink for i in range(self.in_host - 1)]
        link, outer = times[-1] if times else 0.0, 0.0
        for _ in range(self.hosts - 1):
            outer += self.keys / self.infiniband
            link = max(link, outer)
            times.append(link)
            for _ in range(self.in_host - 1):
                link += self.keys / self.nvlink
                times.append(link)
        return times

    def sums(self) -> float:
        """Time after the last work: summing the slots of returned gradients."""
        return self.ranks * self.gradients / 4.5e12


def _arrive(case: _Case) -> float:
    halves = 2 if case.gradients else 1  # of own keys; the second half hides returning gradients
    now, out, delay, outer = case.shard / halves, 0.0, 0.0, 0.0
    for place, arrival in enumerate(case.arrivals()):
        now = max(now, arrival + delay) + case.shard
        if case.gradients:
            out = max(out, now) + case.gradients / case.nvlink
            delay += case.gradients / case.nvlink
            if place >= case.in_host - 1 and (place - case.in_host + 1) % case.in_host == 0:
                outer = max(outer, now) + case.gradients / case.infiniband
    now += case.shard * (1 - 1 / halves)
    return max(now, out, outer) + case.sums() + case.call + 5e-6 * (case.hosts - 1)


def _gather(case: _Case) -> float:
    arrivals = case.arrivals()
    returning = (case.ranks - 1) * case.gradients / (case.nvlink if case.hosts == 1 else case.infiniband)
    return (arrivals[-1] if arrivals else 0.0) + case.ranks * case.shard + returning + case.sums() + 2 * case.call


def _ring(case: _Case) -> float:
    link = case.nvlink if case.hosts == 1 else case.infiniband
    # O is read twice and written once to be merged, and so is dQ.
    step = max(case.shard + 3 * case.results / 4.5e12, (case.keys + case.gradients) / link)
    return case.shard + (case.ranks - 1) * step + (case.gradients / link) + case.ranks * 12e-6 + case.call


