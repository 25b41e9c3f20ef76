"""Samples of several runners in one process, interleaved: disturbances affect all.

In each round every runner is measured once (or in one burst), in an order shuffled anew. Rounds go on until the time
is used up, but at least MIN_ROUNDS and at most MAX_ROUNDS; of sustained bursts there are SUSTAINED_ROUNDS.
"""

import math
import random
import statistics
import time

from .contender import Runner, first_line

FLUSH_BYTES = 256 << 20  # overwritten before each cold sample: several times the largest L2 cache
LEAD_CYCLES = 400_000  # GPU cycles of idling before each cold sample, while the host enqueues flush and call
WARM_UP = 3
MIN_ROUNDS, MAX_ROUNDS = 10, 100
FASTEST_SECONDS = 0.1  # for choosing among a contender's variants
MAKINGS = 7  # constructions of a block mask; the median counts
BURST = 20  # calls in a row of an eager sample, or in a graph
SUSTAINED_ROUNDS = 5
SUSTAINED_US = 20_000  # least duration of a sustained burst


def rounds(names, seconds, seed=0):
    """Yields shuffled lists of `names` until `seconds` are over."""
    names, shuffle = list(names), random.Random(seed).shuffle
    deadline = time.monotonic() + seconds
    for index in range(MAX_ROUNDS):
        if index >= MIN_ROUNDS and time.monotonic() > deadline:
            return
        shuffle(names)
        yield list(names)


def warm_up(runner):
    with runner.context():
        for _ in range(WARM_UP):
            runner.call()


def sample_cold(runners, seconds):
    """Microseconds on the GPU by CUDA events, each call after the L2 cache was overwritten: {name: [µs]}.
    The host is ahead of the GPU, so that its own time per call does not show."""
    import torch

    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    times = {name: [] for name in runners}
    for runner in runners.values():
        warm_up(runner)
    torch.cuda.synchronize()
    for order in rounds(runners, seconds):
        events = {}
        for name in order:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            with runners[name].context():
                torch.cuda._sleep(LEAD_CYCLES)
                flush.zero_()
                begin.record()
                runners[name].call()
                end.record()
            events[name] = begin, end
        torch.cuda.synchronize()
        for name, (begin, end) in events.items():
            times[name].append(begin.elapsed_time(end) * 1e3)
    return times


def host_time(runner):
    """Host time in microseconds to enqueue a call on an idle GPU."""
    import torch

    with runner.context():
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(BURST):
            runner.call()
        us = (time.perf_counter_ns() - begin) / BURST * 1e-3
        torch.cuda.synchronize()
    return us


def sample_eager(runners, seconds):
    """Microseconds by the host's clock per call, the GPU idle at the beginning: ({name: [µs until a call has been
    enqueued]}, {name: [µs until the GPU has finished one call]})."""
    import torch

    host, wall = {name: [] for name in runners}, {name: [] for name in runners}
    for runner in runners.values():
        warm_up(runner)
    for order in rounds(runners, seconds):
        for name in order:
            call = runners[name].call
            host[name].append(host_time(runners[name]))
            with runners[name].context():
                begin = time.perf_counter_ns()
                for _ in range(BURST):
                    call()
                    torch.cuda.synchronize()
                wall[name].append((time.perf_counter_ns() - begin) / BURST * 1e-3)
    return host, wall


def capture(runner, calls=BURST):
    """(graph, output): a CUDA graph of `calls` consecutive calls, and the last one's output, which each replay
    overwrites."""
    import torch

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with runner.context():
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                runner.call()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                output = runner.call()
    return graph, output


def replayed(runner):
    """A Runner of the same problem that replays a CUDA graph of one call and returns its output. It keeps `runner`
    alive, since a graph does not own the memory that it reads."""
    graph, output = capture(runner, 1)

    def call():
        graph.replay()
        return output

    return Runner(call, detail=runner.detail, keeps=runner, coarser=runner.coarser, compared=runner.compared)


def poison(output):
    """Fills a call's outputs with NaN, those of integers with −1, so that missing writes of the next replay show."""
    for tensor in output if isinstance(output, tuple) else (output,):
        tensor.fill_(math.nan if tensor.is_floating_point() else -1)


def fastest(runners):
    """(name, runner, refused) of the Runner with the smallest median time in a short run of sample_cold; refused:
    {name: reason} of those that raised in their first call. If all do, raises the first exception."""
    refused = {}
    for name, runner in runners.items():
        try:
            with runner.context():
                runner.call()
        except Exception as error:  # peers may raise anything
            refused[name] = error
    able = {name: runner for name, runner in runners.items() if name not in refused}
    if not able:
        raise next(iter(refused.values()))
    best = next(iter(able))
    if len(able) > 1:
        times = sample_cold(able, FASTEST_SECONDS)
        best = min(times, key=lambda name: statistics.median(times[name]))
    return best, able[best], {name: first_line(error) for name, error in refused.items()}


def made_beforehand(device, make):
    """(make()'s block mask, a Runner's detail with its warm time in milliseconds, from the call until the device has
    it)."""
    import torch

    def timed():
        begin = time.perf_counter()
        made = make()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return made, (time.perf_counter() - begin) * 1e3

    timed()
    runs = [timed() for _ in range(MAKINGS)]
    return runs[-1][0], dict(block_mask="made beforehand", block_mask_ms=round(statistics.median(ms for _, ms in runs), 3))


def sample_graphs(graphs, seconds):
    """Like sample_eager, per call in a replayed graph of BURST calls: the replay's launch, and until the GPU has
    finished."""
    import torch

    host, wall = {name: [] for name in graphs}, {name: [] for name in graphs}
    for graph in graphs.values():
        graph.replay()
    for order in rounds(graphs, seconds):
        for name in order:
            torch.cuda.synchronize()
            begin = time.perf_counter_ns()
            graphs[name].replay()
            host[name].append((time.perf_counter_ns() - begin) / BURST * 1e-3)
            torch.cuda.synchronize()
            wall[name].append((time.perf_counter_ns() - begin) / BURST * 1e-3)
    return host, wall


def sample_sustained(runners, graphs):
    """Microseconds on the GPU by CUDA events per call, in bursts of at least SUSTAINED_US without a pause or a flush:
    ({name: [µs]}, {name: [host µs per call]}). Runners with a graph of BURST calls in `graphs` are replayed; others are
    called from the host, whose time may show."""
    import torch

    steps = {name: (graphs[name].replay, BURST) if name in graphs else (runner.call, 1)
             for name, runner in runners.items()}

    def burst(name, count):
        """Records events around `count` steps."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with runners[name].context():
            begin.record()
            for _ in range(count):
                steps[name][0]()
            end.record()
        return begin, end

    times, host, counts = {name: [] for name in runners}, {}, {}
    for name, runner in runners.items():
        warm_up(runner)
        host[name] = [host_time(runner) for _ in range(SUSTAINED_ROUNDS)]
        burst(name, 1)
        begin, end = burst(name, WARM_UP)
        end.synchronize()
        counts[name] = math.ceil(SUSTAINED_US * WARM_UP / (begin.elapsed_time(end) * 1e3))
    order, shuffle = list(runners), random.Random(0).shuffle
    for _ in range(SUSTAINED_ROUNDS):
        shuffle(order)
        events = {name: burst(name, counts[name]) for name in order}
        torch.cuda.synchronize()
        for name, (begin, end) in events.items():
            times[name].append(begin.elapsed_time(end) * 1e3 / (counts[name] * steps[name][1]))
    return times, host
