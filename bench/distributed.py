"""Attention of one sequence over several GPUs: this library's methods beside PyTorch's context parallelism.

    python bench/distributed.py --ranks 2 --seqlen 8192 65536 --case causal documents --out runs.jsonl
    python bench/distributed.py --seqlen 8192 --which fwd --contender arrive --graphs --then --seqlen 65536 --contender gather
    JIT_ATTENTION_DEVICE=emulated:sm_90a python bench/distributed.py --device cpu --seqlen 128 --heads 2 --heads-kv 2 \
        --head-dim 32 --repeats 1

Starts a process for each rank. Options after --then are of further lines by the same processes; those that are left out stay
as they were. A figure takes at most --repeats times and about --seconds. One line of JSON per case, pass, length and
contender:

    time_ms     the slowest rank, median of the repeats; all ranks start at the same time
    E1          time of one GPU on the whole problem / (ranks · time)
    E2          time of one GPU on one rank's queries and all keys, slowest rank / time: what the exchange leaves
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
import contextlib
import copy
import dataclasses
import functools
import json
import math
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import distributed_peers  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
os.environ.setdefault("NVSHMEM_DISABLE_NVLS", "1")


PEERS = [f"{package}-{way}" for package, ways in distributed_peers.PEERS.items() for way in ways]


def document_lengths(seqlen, seed=1, median=4000):
    """Log-normal lengths of at most a quarter of the sequence."""
    rng, lengths = random.Random(seed), []
    while (left := seqlen - sum(lengths)) > 0:
        drawn = int(rng.lognormvariate(math.log(min(median, seqlen / 8)), 1.3))
        lengths.append(min(left, max(16, min(drawn, seqlen // 4))))
    return lengths


class Case:
    """A mask over a length, and the number of scores that it keeps."""

    def __init__(self, name, seqlen):
        import jit_attention as ja

        self.name, self.seqlen, self.documents = name, seqlen, None
        self.mask = ja.mask.causal()
        triangle = lambda length: length * (length + 1) // 2  # noqa: E731
        self.kept = triangle(seqlen)
        if name == "full":
            self.mask, self.kept = None, seqlen * seqlen
        elif name == "window":
            window = min(4096, max(16, seqlen // 4))
            self.mask, self.kept = ja.mask.sliding_window(window - 1, 0), triangle(seqlen) - triangle(seqlen - window)
        elif name == "documents":
            self.documents = document_lengths(seqlen)
            self.kept = sum(map(triangle, self.documents))


class Rank:
    """One process: its tensors and its measurements."""

    def __init__(self, rank, options):
        self.rank, self.options, self.size = rank, options, options.ranks
        self.on_gpu = options.device == "cuda"
        self.device = torch.device(options.device, rank) if self.on_gpu else torch.device("cpu")
        if self.on_gpu:
            torch.cuda.set_device(self.device)
        else:
            torch.set_num_threads(1)
        self.group = dist.group.WORLD
        self.mesh = torch.distributed.device_mesh.init_device_mesh(options.device, (self.size,), mesh_dim_names=("cp",))

    def barrier(self):
        if self.on_gpu:
            torch.cuda.synchronize()
        dist.barrier()

    def start_together(self):
        """Returns on all ranks within some microseconds: a rank that began earlier would be timed waiting for others."""
        self.barrier()
        [begin] = self.slowest(time.perf_counter() + ALIGNMENT)  # one clock, as ranks are processes of one host
        while time.perf_counter() < begin:
            pass

    def slowest(self, *values):
        """The maximum over all ranks, of each value."""
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.tolist()

    def measure(self, call):
        """Medians of the slowest rank's and the host's seconds."""
        for _ in range(self.options.warmups):
            call()
        times, hosts, first = [], [], time.perf_counter()
        for _ in range(self.options.repeats):
            self.start_together()
            began = time.perf_counter()
            if self.on_gpu:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                call()
                hosts.append(time.perf_counter() - began)
                end.record()
                end.synchronize()
                seconds = start.elapsed_time(end) / 1e3
            else:
                call()
                seconds = time.perf_counter() - began
                hosts.append(seconds)
            slowest, taken = self.slowest(seconds, time.perf_counter() - first)  # so that all ranks stop together
            times.append(slowest)
            if taken > self.options.seconds:
                break
        return statistics.median(times), statistics.median(hosts)

    def measure_burst(self, call, alone):
        """Seconds of the slowest rank for a call in the middle of others, median; `alone`: those of a call by itself."""
        count = max(1, math.ceil(BURST / alone))

        def burst():
            for _ in range(count):
                call()

        return self.measure(burst)[0] / count

    def inputs(self, seqlen):
        """q, k, v and do of the whole sequence, equal on all ranks."""
        o = self.options
        generator = torch.Generator(self.device).manual_seed(seqlen)
        make = lambda heads: torch.randn((1, seqlen, heads, o.head_dim), generator=generator, device=self.device,  # noqa: E731
                                         dtype=torch.float32).bfloat16()
        return make(o.heads), make(o.heads_kv), make(o.heads_kv), make(o.heads)


def with_gradients(forward, tensors, do):
    """A call of the forward and the backward pass."""
    leaves = [x.detach().requires_grad_() for x in tensors]
    return lambda: torch.autograd.grad(forward(*leaves), leaves, do)


def call_of(forward, tensors, do, which):
    if which == "fwd+bwd":
        return with_gradients(forward, tensors, do)

    def call():
        with torch.no_grad():
            return forward(*tensors)

    return call


@dataclasses.dataclass
class Contender:
    """A rank's computation, and the conversion of its result's shard to the whole (batch, seqlen, heads, …)."""

    forward: Callable
    tensors: list
    do: torch.Tensor
    whole: Callable
    close: Callable = lambda: None
    local: Callable | None = None  # the call's kernels, without an exchange
    placement: Any = None


#: Seconds of calls behind each other.
BURST = 0.02
#: Seconds between the agreement on a start and the start.
ALIGNMENT = 3e-4
#: Tolerated difference from one GPU, relative to the largest value.
TOLERANCE = 0.05


def errors_of(rank, contender, which, expected):
    """Errors of o, and of dq, dk and dv, on the worst rank. Gradients of repeated KV heads are summed."""
    if which == "fwd+bwd":
        leaves = [x.detach().requires_grad_() for x in contender.tensors]
        o = contender.forward(*leaves)
        found = [o, *torch.autograd.grad(o, leaves, contender.do)]
    else:
        with torch.no_grad():
            found = [contender.forward(*contender.tensors)]
    errors = []
    for x, right in zip(found, expected):
        x, right = contender.whole(x).float(), right.float()
        if x.shape[2] != right.shape[2]:
            x = x.unflatten(2, (right.shape[2], -1)).sum(3)
        error = ((x - right).abs().max() / right.abs().max()).item()
        errors += rank.slowest(error if math.isfinite(error) else math.inf)
    return errors


def ours(rank, case, which, method, mode):
    """A method of this library."""
    import jit_attention as ja
    from jit_attention.distributed import problem as problems
    from jit_attention.distributed.groups import control_of

    placement = ja.distributed.balance(case.mask, seqlen=case.seqlen, group=rank.group, documents=case.documents, mode=mode,
                                       granule=rank.options.granule)
    q, k, v, do = rank.inputs(case.seqlen)
    shards = [placement.shard(x, 1) for x in (q, k, v)]
    own_do = placement.shard(do, 1)

    def forward(q, k, v):
        return ja.distributed.attention(q, k, v, placement=placement, mask=case.mask, method=method,
                                        deterministic=rank.options.deterministic)

    def whole(x):
        return ja.distributed.unshard(x, 1, placement=placement)

    problem = problems.Problem(*shards, control_of(rank.group), placement, case.mask, deterministic=rank.options.deterministic)
    if method == "heads":
        of_mask = problems.mask_of_call(problem)
        each, each_kv = rank.options.heads // rank.size, rank.options.heads_kv // rank.size
        own = slice(rank.rank * each, (rank.rank + 1) * each), slice(rank.rank * each_kv, (rank.rank + 1) * each_kv)
        q, do = (x[:, :, own[0]].contiguous() for x in (q, do))
        k, v = (x[:, :, own[1]].contiguous() for x in (k, v))
        local = kernels(lambda: ja.attention(q, k, v, return_lse=True, **of_mask),
                        lambda o, lse: ja.attention_backward(do, q, k, v, o, lse, **of_mask), which)
    else:  # the method's own kernels, over all keys at once
        local = kernels(lambda: problems.forward(problem, k, v),
                        lambda o, lse: problems.backward(problem, k, v, own_do, o, lse, None, (), False), which)
    return Contender(forward, shards, own_do, whole, local=local, placement=placement)


def captured(call):
    """A CUDA graph of a call that has been made before, and what it returns."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's threads continue meanwhile
        results = call()
    return graph, results


def have_same_bits(rank, call, graph, results):
    """Whether five replays leave what eager calls return, on all ranks."""
    as_list = lambda x: [x] if isinstance(x, torch.Tensor) else list(x)  # noqa: E731
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


def kernels(forward, backward, which):
    """A call of only the kernels."""

    def call():
        with torch.no_grad():
            o, lse = forward()
            if which == "fwd+bwd":
                backward(o, lse)

    return call


def torch_sdpa(rank, case, which, backend):
    """PyTorch's ring over scaled_dot_product_attention. Its context shards buffers and replaces the function in
    torch.nn.functional, which must therefore be looked up inside it."""
    from torch.distributed.tensor.experimental import _context_parallel as cp
    from torch.distributed.tensor.experimental import context_parallel
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if case.name not in ("causal", "full"):
        raise ValueError("its ring has causal and full masks alone")
    # Its ring needs as many KV heads as query heads.
    q, k, v, do = (x.transpose(1, 2).repeat_interleave(rank.options.heads // x.shape[2], 1).contiguous()
                   for x in rank.inputs(case.seqlen))
    kind = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[backend]
    cp._cp_options.enable_load_balance = case.name == "causal"  # it cannot balance full masks
    context = context_parallel(rank.mesh, buffers=[q, k, v, do], buffer_seq_dims=[2] * 4, no_restore_buffers={q, k, v, do})
    context.__enter__()

    def forward(q, k, v):
        with sdpa_kernel([kind]):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=case.name == "causal")

    def whole(x):
        return cp.context_parallel_unshard(rank.mesh, [x.detach()], [2])[0].transpose(1, 2)

    return Contender(forward, [q, k, v], do, whole, close=lambda: context.__exit__(None, None, None))


def torch_flex(rank, case, which):
    """PyTorch's FlexAttention after its all-gather, with its own load balancer."""
    from torch.distributed.tensor.experimental import _context_parallel as cp
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    ids = torch.zeros(case.seqlen, dtype=torch.int32, device=rank.device)
    if case.documents:
        lengths = torch.tensor(case.documents, device=rank.device)
        ids = torch.repeat_interleave(torch.arange(len(case.documents), device=rank.device), lengths)
    window = min(4096, max(16, case.seqlen // 4)) if case.name == "window" else case.seqlen

    def mask_mod(b, h, q, k):
        seen = (ids[q] == ids[k]) & (q - k < window)
        return seen if case.name == "full" else seen & (q >= k)

    block_mask = create_block_mask(mask_mod, 1, 1, case.seqlen, case.seqlen, device=rank.device.type)
    balancer = cp._PTRRLoadBalancer(block_mask, rank.size)
    q, k, v, do = (x.transpose(1, 2).contiguous() for x in rank.inputs(case.seqlen))
    q, k, v, do, block_mask = cp._context_parallel_shard(rank.mesh, [q, k, v, do, block_mask], [2] * 5, balancer)
    compiled = torch.compile(flex_attention, dynamic=False)
    name = rank.group.group_name

    def forward(q, k, v):
        k, v = cp.flex_cp_allgather(k.contiguous(), v.contiguous(), 2, name)
        return compiled(q, k, v, block_mask=block_mask, enable_gqa=rank.options.heads != rank.options.heads_kv)

    def whole(x):
        return cp.context_parallel_unshard(rank.mesh, [x.detach()], [2], balancer)[0].transpose(1, 2)

    return Contender(forward, [x.contiguous() for x in (q, k, v)], do.contiguous(), whole)


def baselines(rank, case, which, known):
    """Seconds of one GPU on the whole problem, and with a full mask; and its results: o, and gradients if timed."""
    import jit_attention as ja
    import jit_attention.torch as jt
    from jit_attention.distributed import problem as problems

    q, k, v, do = rank.inputs(case.seqlen)
    alone = ja.distributed.balance(case.mask, seqlen=case.seqlen, ranks=1, documents=case.documents)
    of_mask = problems.mask_of_call(problems.Problem(q, k, v, None, alone, case.mask))
    times = []
    for name, options in ((case.name, of_mask), ("full", {})):
        key = name, case.seqlen, which
        if key not in known:
            call = call_of(functools.partial(jt.attention, **options), [q, k, v], do, which)
            known[key], _ = rank.measure(call)
        times.append(known[key])
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    o = jt.attention(*leaves, **of_mask)
    expected = [o.detach(), *(torch.autograd.grad(o, leaves, do) if which == "fwd+bwd" else ())]
    return *times, expected


def run_case(rank, case, which, known, write):
    options = rank.options
    one, full, expected = baselines(rank, case, which, known)
    common = dict(case=case.name, seqlen=case.seqlen, which=which, ranks=rank.size, heads=options.heads,
                  heads_kv=options.heads_kv, head_dim=options.head_dim)
    write(**common, contender="one GPU", time_ms=one * 1e3)

    def line(contender, seconds, host, **more):
        e3 = case.kept / (rank.size * seconds) / (case.seqlen ** 2 / full)
        write(**common, contender=contender, time_ms=seconds * 1e3, E1=one / (rank.size * seconds), E3=e3,
              host_us=host * 1e6, **more)

    for name in options.contender:
        try:
            method, _, mode = name.partition("-")
            if method == "torch":
                contender = torch_flex(rank, case, which) if mode == "flex" else torch_sdpa(rank, case, which, mode)
            elif method in distributed_peers.PEERS:
                contender = Contender(*getattr(distributed_peers, method)(rank, case, mode))
            else:
                contender = ours(rank, case, which, method, mode or "balanced")
            try:
                errors = errors_of(rank, contender, which, expected)
                if not max(errors) < TOLERANCE:
                    raise ValueError(f"computes something else: errors of o and gradients are {errors}")
                call = call_of(contender.forward, contender.tensors, contender.do, which)
                timed = rank.measure(call)
                more = {}
                if options.graphs and method in ("arrive", "gather", "ring", "heads"):
                    graph, results = captured(call)
                    more["same_bits"] = have_same_bits(rank, call, graph, results)
                    more["graph_ms"] = rank.measure(graph.replay)[0] * 1e3
                if options.bursts:
                    more["burst_ms"] = rank.measure_burst(call, timed[0]) * 1e3
                if contender.placement is not None:
                    placement = contender.placement
                    alone, _ = rank.measure(contender.local)
                    bytes_of = [placement.remote_bytes(r, heads_kv=options.heads_kv, head_dim=options.head_dim)
                                for r in range(rank.size)]
                    more |= dict(E2=alone / timed[0], imbalance=placement.imbalance, copied_mb=max(bytes_of) / 1e6)
                    if options.bursts:
                        more["E2_burst"] = rank.measure_burst(contender.local, alone) * 1e3 / more["burst_ms"]
                line(name, *timed, error=max(errors), **more)
            finally:
                contender.close()
        except (RuntimeError, ValueError, AssertionError, NotImplementedError, ImportError) as error:
            write(**common, contender=name, failed=f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")


@contextlib.contextmanager
def joined(rank, options, store):
    """A rank of the group of all processes."""
    backend = "nccl" if options.device == "cuda" else "gloo"
    if options.device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=options.ranks)
    yield Rank(rank, options)
    dist.barrier()
    dist.destroy_process_group()


def run_cases(rank, options, known):
    """Lines of some options. Baselines are added to `known`."""

    def write(**fields):
        if rank.rank == 0:
            text = json.dumps({name: round(x, 4) if isinstance(x, float) else x for name, x in fields.items()})
            print(text, flush=True)
            if options.out:
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(text + "\n")

    rank.options = options
    for seqlen in options.seqlen:
        for name in options.case:
            for which in options.which:
                run_case(rank, Case(name, seqlen), which, known, write)


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
    parser.add_argument("--granule", type=int, default=128)
    parser.add_argument("--case", nargs="+", choices=["causal", "full", "window", "documents"],
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
