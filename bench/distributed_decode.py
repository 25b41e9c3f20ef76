#!/usr/bin/env python3
"""Steps of decoding over a cache that GPUs of one host share out, beside one GPU with the whole cache.

    bench/distributed_decode.py
    bench/distributed_decode.py --case 1x131072 16x8192 --page-size 16 --out data.jsonl
    bench/distributed_decode.py --device cpu --case 2x100   # that it runs

A case is BATCHxKEYS: requests of one query, and the keys of each. Page i of a request is on rank i mod N. A step of a rank
is one call of attention over its pages, with the heads of all, and one `exchange_merge`; every rank has all queries. Steps
are captured as one CUDA graph a rank, and replayed at the same time after an exchange that lets all begin together. Times
are of the slowest rank, in µs a step, medians of replays. Caches above 128 MB are read from memory in each step.

"one GPU" is the whole cache on one, "attention" a rank's part of a step without the exchange, "exchange" the other part
alone, "all" and "heads" whole steps after which ranks have all heads, or their own. Results of every rank are compared with
those of one GPU. --positions gives the call the places of keys, as windows and drafts of several tokens need them. Needs
GPUs that see each other's memory, and PyTorch.

Exit status 1 if results differ, 2 for wrong arguments.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import pathlib
import statistics
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import jit_attention as ja  # noqa: E402
import torch  # noqa: E402
from comparison import environment, report  # noqa: E402

TOLERANCE = 0.02  # of the largest number of o
SHARES = "all", "heads"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The result of one case."""

    batch: int
    keys: int
    heads: int
    heads_kv: int
    head_dim: int
    page_size: int
    positions: bool


def pages_of(sizes, keys, rank, ranks):
    """The numbers of a request's keys and pages on a rank."""
    whole, page = keys // sizes.page_size, sizes.page_size
    full = len(range(rank, whole, ranks))
    rest = keys - whole * page if whole % ranks == rank else 0
    return full * page + rest, full + (rest > 0)


class Cache:
    """A rank's part of all requests' keys, generated from a seed, and its calls."""

    def __init__(self, sizes, rank, ranks, device):
        self.sizes, self.rank, self.ranks, self.device = sizes, rank, ranks, device
        count, each = pages_of(sizes, sizes.keys, rank, ranks)
        b, page, whole_pages = sizes.batch, sizes.page_size, -(-sizes.keys // sizes.page_size)
        generator = torch.Generator(device).manual_seed(1)
        draw = lambda *shape: torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)  # noqa: E731
        self.q = draw(b, 1, sizes.heads, sizes.head_dim)
        shape = (whole_pages, page, sizes.heads_kv, sizes.head_dim)
        self.k, self.v = (torch.empty((max(1, b * each), *shape[1:]), device=device, dtype=torch.bfloat16) for _ in "kv")
        order = torch.randperm(b * each, generator=torch.Generator().manual_seed(2)).to(device)
        self.table = order.view(b, each).int()
        for request, x in itertools.product(range(b), (self.k, self.v)):
            x[order.view(b, each)[request]] = draw(*shape)[rank::ranks]
        self.options = dict(page_table=self.table, seqused_k=torch.full((b,), count, dtype=torch.int32, device=device))
        if sizes.positions:
            places = [[[0, rank * page, page, ranks * page]]]
            self.options |= dict(mask=ja.mask.causal(), k_positions=torch.tensor(places, dtype=torch.int32, device=device),
                                 global_seqlens=torch.tensor([[1, sizes.keys]], dtype=torch.int32, device=device))

    def attention(self):
        """o (batch, heads, head_dim) and LSE (heads, batch) over this rank's keys."""
        o, lse = ja.attention(self.q, self.k, self.v, return_lse=True, **self.options)
        return o[:, 0], lse[:, :, 0].t()

    def config(self):
        """The config of the attention call, as text; with positions, that of the call without them."""
        s = self.sizes
        spec = ja.AttentionSpec(dtype="bf16", head_dim=s.head_dim, gqa_ratio=s.heads // s.heads_kv, sequences_kv="paged",
                                page_size=s.page_size)
        kernel = ja.prepare(spec, device=self.device.index).kernel(
            self.q, self.k, self.v, **{name: self.options[name] for name in ("page_table", "seqused_k")})
        return " ".join(f"{name}={value}" for name, value in kernel.config.items())


class Exchange:
    """All ranks' buffers for one exchange, in one process."""

    def __init__(self, sizes, share, ranks, ordinals):
        self.share = share
        self.nbytes = ja.exchange_merge_bytes(ranks=ranks, tokens=sizes.batch, heads=sizes.heads, head_dim_v=sizes.head_dim,
                                              dtype="bf16", share=share)
        self.buffers = [ja.ExchangeBuffer(self.nbytes, device=ordinal, peers=ordinals) for ordinal in ordinals]
        self.peers = [buffer.address for buffer in self.buffers]

    def merged(self, rank, o, lse):
        """o of the rows that a rank receives."""
        return ja.exchange_merge(o, lse, peers=self.peers, nbytes=self.nbytes, rank=rank, share=self.share)[0]

    def check(self):
        """Raises when a call has failed."""
        for address in self.peers:
            if fault := ja.exchange_fault(address):
                raise RuntimeError(fault)


def on_all(ranks, call):
    """Results of concurrent calls, one per rank."""
    results = [None] * ranks

    def run(rank):
        try:
            results[rank] = call(rank)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def captured(device, call, steps):
    """A graph of `steps` calls."""
    stream = torch.cuda.Stream(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), torch.cuda.graph(graph, stream=stream):
        for _ in range(steps):
            call()
    return graph


def step_us(devices, calls, together, options):
    """Microseconds of a step, for calls by rank that have already run; `together` aligns the ranks' starts."""
    graphs = [captured(device, call, options.steps) for device, call in zip(devices, calls)]
    times = []
    for repeat in range(options.repeats + 2):
        events = []
        for rank, device in enumerate(devices):
            with torch.cuda.device(device):
                together(rank)
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                graphs[rank].replay()
                end.record()
                events.append((begin, end))
        for device in devices:
            torch.cuda.synchronize(device)
        if repeat >= 2:
            times.append(max(begin.elapsed_time(end) for begin, end in events) * 1e3 / options.steps)
    return statistics.median(times)


def run_case(sizes, options, write):
    """Writes a line for each way to compute a case. Returns whether all results agree."""
    ranks, on_gpu = options.ranks, options.device == "cuda"
    devices = [torch.device("cuda", rank) if on_gpu else torch.device("cpu") for rank in range(ranks)]
    ordinals = list(range(ranks))
    whole = Cache(dataclasses.replace(sizes, positions=False), 0, 1, devices[0])
    right = whole.attention()[0].float().cpu()
    line = functools.partial(write, case=f"{sizes.batch}x{sizes.keys}", **dataclasses.asdict(sizes), ranks=ranks)
    if on_gpu:
        line(contender="one GPU", us=step_us(devices[:1], [whole.attention], lambda rank: None, options),
             config=whole.config())
    del whole
    caches = [Cache(sizes, rank, ranks, device) for rank, device in enumerate(devices)]
    parts = []
    for rank, cache in enumerate(caches):
        with torch.cuda.device(devices[rank]) if on_gpu else torch.no_grad():
            parts.append(cache.attention())
    is_right = True
    for share in SHARES:
        exchange = Exchange(sizes, share, ranks, ordinals)
        step = lambda rank: exchange.merged(rank, *caches[rank].attention())  # noqa: B023, E731
        alone = lambda rank: exchange.merged(rank, *parts[rank])  # noqa: B023, E731

        def checked(rank):
            with torch.cuda.device(devices[rank]) if on_gpu else torch.no_grad():
                # An emulated device times out when a peer is slow.
                return (step if on_gpu else alone)(rank).float().cpu()  # noqa: B023

        error = 0.0
        for rank, found in enumerate(on_all(ranks, checked)):
            own = slice(sizes.heads * rank // ranks, sizes.heads * (rank + 1) // ranks) if share == "heads" else slice(None)
            difference = (found - right[:, own]).abs().max() / right.abs().max()
            error = max(error, difference.item() if difference.isfinite() else float("inf"))
        is_right &= error < TOLERANCE
        if not on_gpu:
            line(contender=share, error=error)
            continue
        timed = functools.partial(step_us, devices, together=alone, options=options)
        if share == SHARES[0]:
            line(contender="attention", us=timed([cache.attention for cache in caches]), config=caches[0].config())
        line(contender=f"exchange {share}", us=timed([functools.partial(alone, rank) for rank in ordinals]))
        line(contender=share, us=timed([functools.partial(step, rank) for rank in ordinals]), error=error)
        exchange.check()
    return is_right


def case_of(text):
    batch, _, keys = text.partition("x")
    if not (batch.isdecimal() and keys.isdecimal() and int(batch) and int(keys)):
        raise argparse.ArgumentTypeError(f"{text!r} is not BATCHxKEYS, such as 16x8192")
    return int(batch), int(keys)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--case", type=case_of, nargs="+", default=[(1, 131072), (16, 8192), (64, 2048)], metavar="BATCHxKEYS")
    parser.add_argument("--heads", type=int, default=64)
    parser.add_argument("--heads-kv", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--page-size", type=int, nargs="+", default=[64])
    parser.add_argument("--positions", action="store_true")
    parser.add_argument("--steps", type=int, default=50, help="of a graph")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", help="a file to which lines are added")
    options = parser.parse_args(arguments)
    if options.device == "cuda":
        if torch.cuda.device_count() < options.ranks:
            parser.error(f"argument --ranks: is {options.ranks}, and there are {torch.cuda.device_count()} GPUs")
        print(environment.one_line(), "", *report.table_lines([["case", "page", "contender", "µs a step"]]), sep="\n",
              flush=True)
    else:
        ja.use_device(f"emulated:{','.join(['sm_90a'] * options.ranks)}")

    def write(case, contender, us=None, **fields):
        if fields.get("config") not in seen:  # after the table
            seen.add(fields["config"])
            print(f"{case}, {contender}: {fields['config']}", file=sys.stderr, flush=True)
        if us is not None:
            fields["us"] = round(us, 2)
            print(f"| {case} | {fields['page_size']} | {contender} | {us:.1f} |", flush=True)
        else:
            print(case, contender, f"differs by {fields['error']:.4f}", flush=True)
        if options.out:
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(dict(case=case, contender=contender) | fields) + "\n")

    is_right, seen = True, {None}
    for (batch, keys), page_size in itertools.product(options.case, options.page_size):
        sizes = Sizes(batch, keys, options.heads, options.heads_kv, options.head_dim, page_size, options.positions)
        is_right &= run_case(sizes, options, write)
    if not is_right:
        print("results differ from those of one GPU", file=sys.stderr)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
