"""Processes that are the ranks of a gloo group, each with an emulated device, and what they compute."""

import multiprocessing
import os
import signal
import tempfile
import traceback

import numpy


def serve(rank, size, store, pipe):
    """Runs what the test sends, until it sends nothing."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    while (task := pipe.recv()) is not None:
        function, arguments = task
        try:
            pipe.send((None, function(rank, *arguments)))
        except BaseException as error:
            pipe.send((error, traceback.format_exc()))


class Ranks:
    """`size` processes that compute the same functions at the same time."""

    def __init__(self, size):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "torch.distributed", "jit_attention.distributed.api",
                                        "jit_attention.distributed.context"])
        self.folder = tempfile.mkdtemp(prefix="jit-attention-ranks-")
        self.size, self.pipes, self.processes = size, [], []
        for rank in range(size):
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(rank, size, os.path.join(self.folder, "store"), there),
                                      daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def start(self, function, *arguments, but=()):
        """`arguments` may have a callable, which is given the rank."""
        for rank, pipe in enumerate(self.pipes):
            if rank not in but:
                pipe.send((function, [x[rank] if isinstance(x, ByRank) else x for x in arguments]))

    def results(self, but=(), seconds=240):
        """The values that ranks returned, or the errors that they raised."""
        found = []
        for rank, pipe in enumerate(self.pipes):
            if rank in but:
                continue
            assert pipe.poll(seconds), f"rank {rank} has not answered for {seconds} s"
            found.append(pipe.recv())
        return found

    def run(self, function, *arguments):
        """The values that all ranks return; raises the first error."""
        self.start(function, *arguments)
        results = self.results()
        for error, trace in results:
            if error is not None:
                raise AssertionError(f"a rank raised:\n{trace}") from error
        return [value for _, value in results]

    def errors(self, function, *arguments):
        """The errors that all ranks raise."""
        self.start(function, *arguments)
        return [error for error, _ in self.results()]

    def kill(self, rank):
        os.kill(self.processes[rank].pid, signal.SIGKILL)

    def close(self):
        for process in self.processes:
            process.kill()
            process.join()


class ByRank(list):
    """An argument of which each rank gets its own."""


GROUP = None  # of calls, in a rank; None: the default one


def renew(rank):
    """Makes another group of all ranks, as after a failure."""
    import torch.distributed as dist

    global GROUP
    GROUP = dist.new_group()


def plain(tensor):
    return None if tensor is None else tensor.detach().float().numpy()


def inputs(seed, seqlen, heads_q, heads_kv, head_dim, batch=1):
    """q, k, v, do and dlse of the whole sequence, equal in every process."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    make = lambda heads: torch.randn((batch, seqlen, heads, head_dim), generator=generator).bfloat16()  # noqa: E731
    q, k, v, do = make(heads_q), make(heads_kv), make(heads_kv), make(heads_q)
    return q, k, v, do, torch.randn((batch, heads_q, seqlen), generator=generator)


def compute(rank, seed, sizes, placement, options, gradients=True, more=None, wrong=None, named=False):
    """O, LSE and gradients of this rank's shard, then gradients of tensors and sinks, as NumPy's. `named`: without a placement."""
    import jit_attention as ja
    import torch

    q, k, v, do, dlse = inputs(seed, *sizes)
    options = dict(options) | (wrong or {})
    q, k, v, do = (placement.shard(x, 1, rank) for x in (q, k, v, do))
    q = q[:, : options.pop("rows", None)]
    dlse = placement.shard(dlse, 2, rank)
    q, k, v = (x.requires_grad_(gradients) for x in (q, k, v))
    leaves = {}
    if "sinks" in options:
        leaves["sinks"] = options["sinks"] = torch.from_numpy(options["sinks"]).requires_grad_(gradients)
    if "tensors" in options:
        options["tensors"] = {name: torch.from_numpy(array) for name, array in options["tensors"].items()}
        for name in more or ():
            leaves[name] = options["tensors"][name].requires_grad_(gradients)
    if "rng_state" in options:
        options["rng_state"] = torch.from_numpy(options["rng_state"])
    o, lse = ja.distributed.attention(q, k, v, group=GROUP, placement=None if named else placement, return_lse=True, **options)
    if not gradients:
        return plain(o), plain(lse)
    finite = lse.masked_fill(lse == -torch.inf, 0)
    ((o.float() * do.float()).sum() + (finite * dlse).sum()).backward()
    return plain(o), plain(lse), plain(q.grad), plain(k.grad), plain(v.grad), {
        name: plain(leaf.grad) for name, leaf in leaves.items()}


def compute_on(rank, archs, *arguments):
    """What compute() returns, and the architecture of this rank's device, which is the first of this process."""
    os.environ["JIT_ATTENTION_DEVICE"] = f"emulated:{archs[rank]}"
    import jit_attention as ja

    return *compute(rank, *arguments), ja.devices()[0].arch


def whole(placement, parts, dim):
    return placement.unshard([numpy.asarray(part) for part in parts], dim)
