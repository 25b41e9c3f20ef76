#!/usr/bin/env python3
"""Host time of a call from Python, in microseconds: what a decode step of an engine pays before its work is on the stream.

Calls are made in batches that the stream has room for; the GPU's time is not in the figures, the driver's launch is. A
figure is the median of the batches, with the fastest one beside it. "attention" is jit_attention.attention, "prepared" an
Attention of jit_attention.prepare, "new output" either without out=, "layer" what the backend for vLLM calls of it.

    bench/host_time.py                                        PyTorch's tensors on a GPU
    bench/host_time.py --idle build/default/tests/bench/idle  no GPU: a driver that does nothing, stand-ins for tensors

With --idle figures are those of this library and of Python alone, without a driver's launch and without PyTorch, and mean
something beside other figures of the same machine only. "capsules" are arrays that speak __dlpack__ and nothing faster.

Exit status 1 when there is neither a GPU nor --idle.
"""

import argparse
import ctypes
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

HEADS_Q, HEADS_KV, HEAD_DIM, PAGE_SIZE = 32, 8, 128, 16
BATCH, PAGES = 32, 4096  # a decode step; the cache's pages
CALLS = 256  # per batch: fewer than a stream queues


class TorchArrays:
    """PyTorch tensors on the GPU, all zeros."""

    name = "torch.Tensor"

    def __init__(self):
        import torch

        self.synchronize = torch.cuda.synchronize
        self._torch = torch
        self._dtypes = dict(bf16=torch.bfloat16, fp32=torch.float32, int32=torch.int32, int64=torch.int64,
                            uint8=torch.uint8)

    def make(self, dtype, *shape):
        return self._torch.zeros(shape, dtype=self._dtypes[dtype], device="cuda")


class IdleArrays:
    """Arrays on the idle driver's GPU."""

    name = "stand-in with DLPack's C table"

    def __init__(self, folder):
        self.driver = ctypes.CDLL(str(folder / "libcuda.so.1"))  # later looked up by name
        sys.path.insert(0, str(folder))
        import idle_arrays

        self.synchronize = lambda: None
        self._type = idle_arrays.IdleArray

    def make(self, dtype, *shape):
        return self._type(dtype, list(shape))


class Capsules:
    """Arrays of a foreign type with only __dlpack__."""

    def __init__(self, arrays):
        self.name = "capsules"
        self.synchronize = arrays.synchronize
        self._arrays = arrays

    def make(self, dtype, *shape):
        return Capsule(self._arrays.make(dtype, *shape))


class Capsule:
    def __init__(self, array):
        self._array = array
        self.shape = array.shape

    def __dlpack__(self, **arguments):
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def calls(arrays):
    """Names and argument-free functions that each make one call."""
    import jit_attention as ja

    make = arrays.make
    attention, append, merge = ja.attention, ja.append, ja.merge
    causal = ja.mask.causal()

    q, out = (make("bf16", BATCH, 1, HEADS_Q, HEAD_DIM) for _ in range(2))
    k, v = (make("bf16", BATCH, 256, HEADS_KV, HEAD_DIM) for _ in range(2))
    spec = ja.AttentionSpec(dtype="bf16", head_dim=HEAD_DIM, gqa_ratio=HEADS_Q // HEADS_KV, mask=causal)
    dense = ja.prepare(spec)
    yield "dense, attention", lambda: attention(q, k, v, mask=causal, out=out)
    yield "dense, attention, new output", lambda: attention(q, k, v, mask=causal)
    yield "dense, prepared", lambda: dense(q, k, v, out=out)

    k_pages, v_pages = (make("bf16", PAGES, PAGE_SIZE, HEADS_KV, HEAD_DIM) for _ in range(2))
    table, used = make("int32", BATCH, 64), make("int32", BATCH)
    paged_spec = ja.AttentionSpec(dtype="bf16", head_dim=HEAD_DIM, gqa_ratio=HEADS_Q // HEADS_KV, mask=causal,
                                  sequences_kv="paged", page_size=PAGE_SIZE)
    paged = ja.prepare(paged_spec)
    yield "decode paged, attention", lambda: attention(q, k_pages, v_pages, mask=causal, page_table=table,
                                                       seqused_k=used, out=out)
    yield "decode paged, prepared", lambda: paged(q, k_pages, v_pages, page_table=table, seqused_k=used, out=out)
    yield "decode paged, prepared, new output", lambda: paged(q, k_pages, v_pages, page_table=table, seqused_k=used)

    rows, boundaries = make("bf16", BATCH, HEADS_Q, HEAD_DIM), make("int32", BATCH + 1)
    rows_out = make("bf16", BATCH, HEADS_Q, HEAD_DIM)
    varlen = ja.prepare(ja.AttentionSpec(dtype="bf16", head_dim=HEAD_DIM, gqa_ratio=HEADS_Q // HEADS_KV, mask=causal,
                                         sequences_q="varlen", sequences_kv="paged", page_size=PAGE_SIZE))
    yield "varlen paged, prepared", lambda: varlen(rows, k_pages, v_pages, cu_seqlens_q=boundaries, page_table=table,
                                                   seqused_k=used, out=rows_out)

    new_k, new_v = (make("bf16", BATCH, HEADS_KV, HEAD_DIM) for _ in range(2))
    slots, positions, cos_sin = make("int64", BATCH), make("int64", BATCH), make("fp32", 4096, HEAD_DIM)
    yield "append", lambda: append(new_k, new_v, k_pages, v_pages, slot_mapping=slots, q=rows, q_out=rows_out,
                                   cos_sin=cos_sin, positions=positions)

    parts, lses = ([make(dtype, *shape) for _ in range(2)] for dtype, shape in
                   (("bf16", (BATCH, HEADS_Q, HEAD_DIM)), ("fp32", (HEADS_Q, BATCH))))
    lse_out = make("fp32", HEADS_Q, BATCH)
    yield "merge of two", lambda: merge(parts, lses, out=rows_out, out_lse=lse_out)

    o, do, dq = (make("bf16", BATCH, 256, HEADS_Q, HEAD_DIM) for _ in range(3))
    lse, dk, dv = make("fp32", BATCH, HEADS_Q, 256), *(make("bf16", BATCH, 256, HEADS_KV, HEAD_DIM) for _ in range(2))
    yield "gradients", lambda: ja.attention_backward(do, o, k, v, o, lse, mask=causal, dq=dq, dk=dk, dv=dv)

    from jit_attention._core import _append_to_slots as store
    from jit_attention._core import _attend_to_pages as attend

    scale, fp8 = HEAD_DIM**-0.5, "fp8_e4m3"
    k_bytes, v_bytes = (make("uint8", PAGES, PAGE_SIZE, HEADS_KV, HEAD_DIM) for _ in range(2))
    one = make("fp32", 1)
    yield "layer, append", lambda: store(new_k, new_v, k_pages, v_pages, slots, None, None, None)
    yield "layer, attend", lambda: attend(rows, k_pages, v_pages, rows_out, BATCH, causal, None, scale, None, None, 0,
                                          boundaries, table, used, None, None, None, None)
    yield "layer of fp8, append", lambda: store(new_k, new_v, k_bytes, v_bytes, slots, fp8, one, one)
    yield "layer of fp8, attend", lambda: attend(rows, k_bytes, v_bytes, rows_out, BATCH, causal, None, scale, None,
                                                 None, 0, boundaries, table, used, fp8, one, one, None)


def microseconds(call, synchronize, seconds):
    """Host time per call, for each batch."""
    for _ in range(3):
        call()
    synchronize()
    samples, until = [], time.perf_counter() + seconds
    while len(samples) < 5 or time.perf_counter() < until:
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        samples.append((time.perf_counter_ns() - begin) / CALLS / 1000)
        synchronize()
    return samples


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=pathlib.Path, metavar="FOLDER", help="of the driver that does nothing")
    parser.add_argument("--only", default="", metavar="TEXT", help="calls whose name has it")
    parser.add_argument("--seconds", type=float, default=0.5, metavar="S", help="for each call (0.5)")
    options = parser.parse_args(arguments)
    os.environ.setdefault("JIT_ATTENTION_TUNING", "off")
    if options.idle:
        arrays = IdleArrays(options.idle.resolve())
    else:
        from comparison import environment

        if reason := environment.no_gpu():
            parser.exit(1, f"{parser.prog}: {reason}; --idle measures without one\n")
        arrays = TorchArrays()
    print("| µs, median (fastest) |", " | ".join(kind.name for kind in (arrays, Capsules(arrays))), "|")
    print("| --- | ---: | ---: |")
    for (name, call), (_, slow_call) in zip(calls(arrays), calls(Capsules(arrays))):
        if options.only not in name:
            continue
        cells = []
        for one in (call, slow_call):
            samples = microseconds(one, arrays.synchronize, options.seconds)
            cells.append(f"{statistics.median(samples):.2f} ({min(samples):.2f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
