#!/usr/bin/env python3
"""Host time of a call of jit_attention.distributed.attention without a GPU, in microseconds: Python's and this library's.

One process stands for a rank: other ranks, the driver's GPU and the collective do nothing, and tensors that kernels would
read are stand-ins, so that what a call does beside its launches is left. For "arrive" that is all of it but the time of the
driver's calls, which are counted; for "gather" PyTorch's copies work on small tensors of the CPU. Figures mean something
beside others of the same machine only. "calls" counts functions of Python and of C that Python calls. "cold": 4 MB are
written between calls, so that little is left in the first two caches.

    bench/distributed_host_time.py --idle build/default/tests/bench/idle

On GPUs bench/distributed.py has the host time of whole calls.
"""

import argparse
import ctypes
import importlib
import os
import pathlib
import statistics
import sys
import time
import types

SEQLEN, HEADS_Q, HEADS_KV, HEAD_DIM = 512, 4, 1, 64
MODES = "contiguous", "zigzag"


class Stands:
    """Stand-ins for other ranks, CUDA streams and memory, and kernels' arrays."""

    def __init__(self, folder, ranks):
        self.driver = ctypes.CDLL(str(folder / "libcuda.so.1"))  # later looked up by name
        sys.path.insert(0, str(folder))
        import torch
        import torch.distributed as dist

        importlib.import_module("torch.testing._internal.distributed.fake_pg")  # collectives without effect
        from jit_attention import _core
        from jit_attention.distributed import arrive, groups, problem

        dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=ranks)
        torch.set_num_threads(1)
        self.torch, self._make = torch, importlib.import_module("idle_arrays").IdleArray
        self._attention, self._gradients = problem._attention, problem._attention_backward
        self._arrays, self._results = {}, {}
        wait = groups.Control.wait
        groups.Control.wait = lambda control, work, timeout, on_gpu: wait(control, work, timeout, True)
        groups.Control._compare = lambda *of_call: None
        groups.Control._texts = lambda control, what, text, timeout: [text] * control.size
        _core.device_of = lambda tensor, name: types.SimpleNamespace(arch="sm_90a")
        torch._C._cuda_getCurrentRawStream = lambda index: 0
        torch.cuda.synchronize = lambda device=None: None
        arrive._refusal = lambda problem: arrive._refusal_of(problem.placement)
        arrive._Shared.share = lambda shared, nbytes, control: self._share(shared, nbytes, control)
        problem._attention, problem._attention_backward = self.attend, self.differentiate

    def _share(self, shared, nbytes, control):
        whole = self.torch.zeros(nbytes + 256, dtype=self.torch.uint8)
        shared.memory = whole[-whole.data_ptr() % 256:][:nbytes]
        own = shared.memory.data_ptr()
        shared.peers = [own + (rank << 40) for rank in range(control.size)]

    def array(self, name, tensor):
        key = name, tensor.shape
        if key not in self._arrays:
            dtype = {self.torch.bfloat16: "bf16", self.torch.float32: "fp32", self.torch.int32: "int32"}[tensor.dtype]
            self._arrays[key] = self._make(dtype, list(tensor.shape))
        return self._arrays[key]

    def attend(self, q, k, v, tensors, **options):
        """The library's call, with stand-in arrays for its arguments."""
        given = dict(q=q, k=k, v=v, out=q, **{name: x for name, x in options.items() if isinstance(x, self.torch.Tensor)})
        arrays = {name: self.array(name, x) for name, x in given.items()}
        named = {name: self.array(name, x) for name, x in tensors.items()}
        self._attention(**options | arrays, tensors=named)
        if q.shape not in self._results:
            self._results[q.shape] = q.new_zeros((*q.shape[:3], v.shape[3])), q.new_zeros((*q.shape[:1], q.shape[2], q.shape[1]), dtype=self.torch.float32)
        return self._results[q.shape]

    def differentiate(self, do, q, k, v, o, lse, dq, dk, dv, tensors, dlse, **options):
        """The library's call of gradients, likewise."""
        given = dict(do=do, q=q, k=k, v=v, o=o, lse=lse, dq=dq, dk=dk, dv=dv,
                     **{name: x for name, x in options.items() if isinstance(x, self.torch.Tensor)})
        arrays = {name: self.array(name, x) for name, x in given.items()}
        named = {name: self.array(name, x) for name, x in tensors.items()}
        self._gradients(**options | arrays, tensors=named)
        return dq, dk, dv, {}

    def driver_calls(self):
        return self.driver.idle_driver_launches(), self.driver.idle_driver_other_work()


def calls_of(function):
    """How many functions Python calls meanwhile."""
    count = [0]

    def note(frame, event, argument):
        count[0] += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count[0] - 1  # the last one is setprofile


def samples_of(function, repeats, between=lambda: None):
    """Microseconds of calls, but of the first three."""
    samples = []
    for step in range(repeats + 3):
        between()
        began = time.perf_counter_ns()
        function()
        if step >= 3:
            samples.append((time.perf_counter_ns() - began) / 1e3)
    return samples


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=pathlib.Path, required=True, metavar="FOLDER", help="of the driver that does nothing")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="of the group (2)")
    parser.add_argument("--repeats", type=int, default=300, metavar="N", help="of each call (300)")
    options = parser.parse_args(arguments)
    if options.ranks not in (2, 4):
        parser.error(f"argument --ranks: {options.ranks}, which is not 2 or 4")
    os.environ.setdefault("JIT_ATTENTION_TUNING", "off")
    stands = Stands(options.idle.resolve(), options.ranks)
    import jit_attention as ja

    torch, mask = stands.torch, ja.mask.causal()
    print("| µs, median (fastest) | call | cold | calls | launches | other calls of the driver |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    flush = torch.zeros(1 << 20, dtype=torch.int32)
    for mode in MODES:
        placement = ja.distributed.balance(mask, seqlen=2 * SEQLEN, ranks=options.ranks, mode=mode)
        rows = placement.rows(0)
        q, k, v = (torch.zeros(1, rows, heads, HEAD_DIM, dtype=torch.bfloat16) for heads in (HEADS_Q, HEADS_KV, HEADS_KV))
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        do = torch.zeros_like(q)
        for method in ("arrive", "gather"):
            def forward(q=q, k=k, v=v, placement=placement, method=method):
                return ja.distributed.attention(q, k, v, placement=placement, mask=mask, method=method)

            def gradients(forward=forward, leaves=leaves, do=do):
                return torch.autograd.grad(forward(*leaves), leaves, do)

            for name, call in ((method, forward), (f"{method} with gradients", gradients)):
                warm = samples_of(call, options.repeats)
                cold = samples_of(call, options.repeats // 4 + 1, lambda: flush.fill_(1))
                before = stands.driver_calls()
                call()
                launches, others = (b - a for a, b in zip(before, stands.driver_calls()))
                figures = (f"{statistics.median(x):.1f} ({min(x):.1f})" for x in (warm, cold))
                print(f"| {name}, {mode} | {' | '.join(figures)} | {calls_of(call)} | {launches} | {others} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
