"""Times of calls replayed as CUDA graphs, for the small programs beside compare.py. Needs a GPU and PyTorch."""

import statistics

import torch

FLUSHED = 256 << 20  # bytes overwritten before a cold call, more than any L2 cache
AHEAD = 20000  # clock cycles that the GPU waits, so that the host runs ahead


def captured(call):
    """A graph of one call, which has already run."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def replay_us(graph, count=1):
    """Microseconds per replay, for `count` in a row."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3 / count


def cold_us(graphs, rounds=12):
    """Medians of single replays in turns, each after overwriting the L2 cache: a list."""
    flushed = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")
    times = [[] for _ in graphs]
    for _ in range(rounds):
        for own, graph in zip(times, graphs):
            flushed.add_(1)
            torch.cuda._sleep(AHEAD)
            own.append(replay_us(graph))
    return [statistics.median(own) for own in times]
