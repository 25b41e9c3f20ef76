"""Attention of one sequence over several GPUs, in any sizes: this library's methods beside other libraries'.

    python bench/distributed.py --ranks 2 --seqlen 8192 65536 --case causal documents --out runs.jsonl
    python bench/distributed.py --seqlen 8192 --which fwd --contender arrive --graphs --then --seqlen 65536 --contender gather
    JIT_ATTENTION_DEVICE=emulated:sm_90a python bench/distributed.py --device cpu --seqlen 128 --heads 2 --heads-kv 2 \
        --head-dim 32 --repeats 1

This program starts a process for each rank. `bench/compare.py --suite distributed` measures a fixed set of problems with
the same code. Options after --then are of further lines by the same processes; those that are left out stay as they were.
A figure takes at most --repeats times and about --seconds. One line of JSON per case, pass, length and contender:

    time_ms     the slowest rank, median of the repeats; all ranks start at the same time
    E1          time of one GPU on the whole problem / (ranks · time)
    E2          time of one rank's kernels without an exchange, slowest rank / time: what the exchange leaves
    E3          FLOP/s per GPU of kept scores / those of one GPU with full attention of that length
    copied_mb   keys and values that the worst rank gets from others in the forward pass
    host_us     of the call on the host, before the GPU is done
    graph_ms    with --graphs, on GPUs: time_ms of replays of a CUDA graph of the call, of this library's methods
    burst_ms    with --bursts: of a call among others that follow it at once for 20 ms, which hides the host; E2_burst is E2 of
                such calls
    same_bits   with --graphs: whether replays leave the bits of eager calls, on all ranks
    error       largest difference from one GPU's result and, if timed, gradients, in terms of their largest values; a
                contender that computes something else has failed, and is not timed

All ranks measure baselines at the same time, so that clocks are those of busy GPUs. NVLink multicast stays off.
"""

import argparse
import copy
import json
import math
import os
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402
from comparison import group_rank  # noqa: E402
from comparison.cells import Cell  # noqa: E402
from comparison.contender import Unsupported  # noqa: E402
from comparison.group_ours import one_gpu, ours  # noqa: E402
from comparison.group_packages import RingLlama3, RingZigzag, YunchangUlysses, YunchangZigzag  # noqa: E402
from comparison.group_shards import TOLERANCE, errors_of  # noqa: E402
from comparison.group_suites import CASES, GRANULE, group_cell  # noqa: E402
from comparison.group_torch import TorchFlex, TorchRing, TorchRingCuDnn  # noqa: E402

PEERS = {one.name: one for one in (TorchRing, TorchRingCuDnn, TorchFlex, RingZigzag, RingLlama3, YunchangUlysses, YunchangZigzag)}
METHODS = ("arrive", "gather", "ring", "heads", "auto")


def captured(call):
    """A CUDA graph of a call that has been made before, and what it returns."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's threads continue meanwhile
        results = call()
    return graph, results


def have_same_bits(rank, call, graph, results):
    """Whether five replays leave what eager calls return, on all ranks."""
    as_list = lambda x: [x] if isinstance(x, torch.Tensor) else list(x)
    right = [x.clone() for x in as_list(call())]
    is_same = True
    for _ in range(5):
        for x in as_list(results):
            x.fill_(math.nan)
        rank.barrier()
        graph.replay()
        torch.cuda.synchronize()
        is_same = is_same and all(map(torch.equal, as_list(results), right))
    return rank.slowest(0.0 if is_same else 1.0) == [0]


def burst_of(rank, call, alone):
    return statistics.median(rank.sample_burst(call, alone))


def baselines(rank, cell, known):
    """Seconds of one GPU on the whole problem, and with a full mask; and its results: o, and gradients if timed."""
    baseline, times = one_gpu(cell, rank), []
    for mask, call in ((cell.mask, baseline.masked), ("none", baseline.full)):
        key = mask, cell.seqlen_q, cell.heads_q, cell.heads_kv, cell.head_dim, cell.gradients
        if key not in known:
            known[key], _ = rank.measure(call)
        times.append(known[key])
    return *times, baseline.expected


def prepared(rank, cell, name):
    method, _, mode = name.partition("-")
    if name in PEERS:
        return PEERS[name]().spread(cell, rank)
    if method not in METHODS:
        raise ValueError(f"{name} is no contender: a method ({', '.join(METHODS)}), perhaps with a mode, or {', '.join(PEERS)}")
    return ours(cell, rank, method, mode or "balanced")


def fields_of(rank, cell, options, name, shards, one, full):
    """The fields of a contender's line."""
    call = shards.call(cell.gradients)
    seconds, host = rank.measure(call)
    kept = Cell.kept_pairs(cell) / cell.seqlen_q ** 2
    more = dict(time_ms=seconds * 1e3, E1=one / (rank.size * seconds), E3=kept * full / (rank.size * seconds), host_us=host * 1e6)
    if options.bursts:  # ahead of a capture, after which the host checks more in each call
        more["burst_ms"] = burst_of(rank, call, seconds) * 1e3
    if options.graphs and name not in PEERS:
        graph, results = captured(call)
        more["same_bits"] = have_same_bits(rank, call, graph, results)
        more["graph_ms"] = rank.measure(graph.replay)[0] * 1e3
    if shards.placement is not None:
        placement = shards.placement
        alone, _ = rank.measure(shards.local)
        bytes_of = [placement.remote_bytes(r, heads_kv=cell.heads_kv, head_dim=cell.head_dim) for r in range(rank.size)]
        more |= dict(E2=alone / seconds, imbalance=placement.imbalance, copied_mb=max(bytes_of) / 1e6)
        if options.bursts:
            more["E2_burst"] = burst_of(rank, shards.local, alone) * 1e3 / more["burst_ms"]
    return more


def run_case(rank, cell, options, case, known, write):
    one, full, expected = baselines(rank, cell, known)
    common = dict(case=case, seqlen=cell.seqlen_q, which="fwd+bwd" if cell.gradients else "fwd", ranks=rank.size,
                  heads=cell.heads_q, heads_kv=cell.heads_kv, head_dim=cell.head_dim)
    write(**common, contender="one GPU", time_ms=one * 1e3)
    for name in options.contender:
        try:
            shards = prepared(rank, cell, name)
            try:
                errors = errors_of(rank, shards, expected)
                if not max(errors) < TOLERANCE:
                    raise ValueError(f"computes something else: errors of o and gradients are {errors}")
                write(**common, contender=name, error=max(errors), **fields_of(rank, cell, options, name, shards, one, full))
            finally:
                shards.close()
        except (RuntimeError, ValueError, AssertionError, NotImplementedError, ImportError, Unsupported) as error:
            write(**common, contender=name, failed=f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")


def joined(rank, options, store):
    """A rank of the group of all processes."""
    return group_rank.joined(rank, options.ranks, options.device, store)


def cell_of(options, case, seqlen, which):
    return group_cell(case, seqlen, which == "fwd+bwd", options.heads, options.heads_kv, options.head_dim, options.ranks,
                      granule=options.granule, deterministic=options.deterministic)


def run_cases(rank, options, known):
    """Lines of some options. Baselines are added to `known`."""

    def write(**fields):
        if rank.rank == 0:
            text = json.dumps({name: round(x, 4) if isinstance(x, float) else x for name, x in fields.items()})
            print(text, flush=True)
            if options.out:
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(text + "\n")

    rank.repeats, rank.seconds, rank.warm_up = options.repeats, options.seconds, options.warmups
    for seqlen in options.seqlen:
        for case in options.case:
            for which in options.which:
                run_case(rank, cell_of(options, case, seqlen, which), options, case, known, write)


def process(rank, parts, store):
    with joined(rank, parts[0], store) as own:
        known = {}
        for options in parts:
            run_cases(own, options, known)


def parts_of(arguments):
    """Options of the lines before the first --then, and after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seqlen", type=int, nargs="+", default=[8192, 16384, 65536])
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--heads-kv", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--granule", type=int, default=GRANULE)
    parser.add_argument("--case", nargs="+", choices=list(CASES),
                        default=["causal", "documents"])
    parser.add_argument("--which", nargs="+", choices=["fwd", "fwd+bwd"], default=["fwd", "fwd+bwd"])
    parser.add_argument("--contender", nargs="+",
                        help=f"a method, perhaps with a mode of placements; or {', '.join(PEERS)}; default: all, \"arrive\" on GPUs")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5, help="after which a figure is not repeated any more (5)")
    parser.add_argument("--warmups", type=int, default=3)
    parser.add_argument("--graphs", action=argparse.BooleanOptionalAction, default=False, help="time replays of CUDA graphs, too")
    parser.add_argument("--deterministic", action=argparse.BooleanOptionalAction, default=False, help="gradients of this library's methods whose bits repeat")
    parser.add_argument("--bursts", action=argparse.BooleanOptionalAction, default=False, help="time calls that follow each other, too")
    parser.add_argument("--out", help="a file to which lines are added")
    parts, rest = [], list(arguments)
    while rest or not parts:
        end = rest.index("--then") if "--then" in rest else len(rest)
        options = parser.parse_args(rest[:end], copy.copy(parts[-1]) if parts else None)
        if options.contender is None:
            options.contender = [*["arrive"] * (options.device == "cuda"), "gather", "gather-contiguous", "ring", "heads", *PEERS]
        if options.graphs and options.device == "cpu":
            parser.error("argument --graphs: needs --device cuda")
        for name in ("ranks", "device"):
            if parts and getattr(options, name) != getattr(parts[0], name):
                parser.error(f"argument --{name}: is one for all lines, as processes start once")
        parts.append(options)
        rest = rest[end + 1:]
    return parts


def main(arguments=None):
    parts = parts_of(sys.argv[1:] if arguments is None else arguments)
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(process, (parts, os.path.join(folder, "store")), parts[0].ranks)


if __name__ == "__main__":
    sys.exit(main())
