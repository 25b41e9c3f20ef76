#!/usr/bin/env python3
"""The ladder and the tuned kernel beside FlashAttention-2 and cuDNN (PyTorch's SDPA), in one run.

    bench/ladder.py --tool build/tools/jit-attention [--causal] [--out results.jsonl]

Needs a GPU and PyTorch. The kernels are the ones that `jit-attention dump` writes, launched through the driver on
PyTorch's tensors; every result is checked against fp32 attention before it is timed. Samples are interleaved over all
kernels, each after the L2 cache was overwritten; the figure is the median.
"""

import argparse
import ctypes
import datetime
import json
import math
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPE = dict(batch=1, heads=8, seqlen_q=4096, seqlen_kv=8192, head_dim=128)
L2_FLUSH_BYTES = 256 << 20


class Driver:
    """The calls of libcuda for a launch, in PyTorch's current context."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name} failed with {result}")

    def load(self, folder):
        """The kernel in a dump folder, as a function of (grid, params)."""
        report = json.loads((folder / "report.json").read_text())
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), (folder / "kernel.cubin").read_bytes())
        self.call("cuModuleGetFunction", ctypes.byref(function), module, report["name"].encode())
        max_dynamic_smem = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.call("cuFuncSetAttribute", function, max_dynamic_smem, report["smem_bytes"])

        def launch(grid, params):
            buffer = ctypes.create_string_buffer(params, len(params))
            arguments = (ctypes.c_void_p * 1)(ctypes.cast(buffer, ctypes.c_void_p))
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            self.call("cuLaunchKernel", function, *grid, report["threads"], 1, 1, report["smem_bytes"], stream,
                      arguments, None)

        return report, launch


def pack_params(q, k, v, o):
    """AttentionParams of templates/base/params.cuh, without LSE and functor tensors."""
    batch, seqlen_q, heads, head_dim = q.shape
    pointers = struct.pack("<5Q", *(t.data_ptr() for t in (q, k, v, o)), 0)
    strides = b"".join(struct.pack("<3q", *t.stride()[:3]) for t in (q, k, v, o)) + bytes(24)
    sizes = struct.pack("<6if", batch, 0, 0, heads, seqlen_q, k.shape[1], 1 / math.sqrt(head_dim)) + bytes(4)
    return pointers + strides + sizes + bytes(8 * 32)


def reference(q, k, v, causal):
    q, k, v = (t.transpose(1, 2).float() for t in (q, k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        queries, keys = scores.shape[-2:]
        scores.masked_fill_(torch.ones(queries, keys, device="cuda").triu(1 + keys - queries).bool(), -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)


def run_tool(tool, *arguments):
    result = subprocess.run([tool, *arguments], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{tool} {' '.join(arguments)} failed:\n{result.stderr}{result.stdout}")
    return result.stdout


def measure(functions, samples):
    flush = torch.empty(L2_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    times = {name: [] for name in functions}
    for function in functions.values():
        for _ in range(3):
            function()
    for _ in range(samples):
        for name, function in functions.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            begin.record()
            function()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True, help="path of the jit-attention program")
    parser.add_argument("--causal", action="store_true", help="causal mask (seqlen_q = seqlen_kv = 8192)")
    parser.add_argument("--batch", type=int, default=SHAPE["batch"])
    parser.add_argument("--heads", type=int, default=SHAPE["heads"])
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--out", help="append JSON lines to this file")
    options = parser.parse_args()
    shape = dict(SHAPE, batch=options.batch, heads=options.heads)
    if options.causal:
        shape["seqlen_q"] = shape["seqlen_kv"]  # PyTorch aligns a causal mask top-left, this library bottom-right

    mask = ["--mask", "causal"] if options.causal else []
    bench = json.loads(run_tool(options.tool, "bench", "--ladder", "--json", *mask, "--batch", str(shape["batch"]),
                                "--heads", str(shape["heads"]), "--seqlen-q", str(shape["seqlen_q"]), "--seqlen-kv",
                                str(shape["seqlen_kv"]), "--head-dim", str(shape["head_dim"])))

    torch.manual_seed(datetime.datetime.now().microsecond)
    tensor = lambda seqlen: torch.randn(shape["batch"], seqlen, shape["heads"], shape["head_dim"], device="cuda",
                                        dtype=torch.bfloat16)
    q, k, v = tensor(shape["seqlen_q"]), tensor(shape["seqlen_kv"]), tensor(shape["seqlen_kv"])
    o = torch.empty_like(q)
    expected = reference(q, k, v, options.causal)
    params = pack_params(q, k, v, o)
    driver = Driver()
    functions, notes = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for row in bench["rows"]:
            if "trouble" in row:  # a step for another architecture
                continue
            target = pathlib.Path(folder) / row["name"]
            run_tool(options.tool, "dump", "--out", str(target), "--arch", "sm_90a", "--head-dim",
                     str(shape["head_dim"]), "--config", row["config"], *mask)
            report, launch = driver.load(target)
            tile_q = report["config"]["tile_q"]
            grid = (shape["heads"], (shape["seqlen_q"] + tile_q - 1) // tile_q, shape["batch"])
            functions[row["name"]] = lambda launch=launch, grid=grid: launch(grid, params)
            notes[row["name"]] = row["config"]

    for name, function in functions.items():
        o.fill_(math.nan)
        function()
        torch.cuda.synchronize()
        error = (o.float() - expected).norm() / expected.norm()
        if not error < 1e-2:
            sys.exit(f"{name} is wrong: relative error {error}")

    bhsd = [t.transpose(1, 2) for t in (q, k, v)]
    for name, backend in (("FlashAttention-2", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)):
        def peer(backend=backend):
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(*bhsd, is_causal=options.causal)
        functions[name] = peer
        notes[name] = f"torch {torch.__version__}"

    times = measure(functions, options.samples)
    flops = 4 * shape["batch"] * shape["heads"] * shape["seqlen_q"] * shape["seqlen_kv"] * shape["head_dim"]
    if options.causal:
        flops /= 2
    peer_us = statistics.median(times["FlashAttention-2"])
    print(f"{torch.cuda.get_device_name()}, {shape}, {'causal' if options.causal else 'no mask'}")
    print(f"{'kernel':<18}{'median us':>10}{'TFLOP/s':>9}{'x FA2':>7}  config")
    lines = []
    for name, samples in times.items():
        median = statistics.median(samples)
        print(f"{name:<18}{median:>10.1f}{flops / median * 1e-6:>9.1f}{peer_us / median:>7.3f}  {notes[name]}")
        lines.append(dict(date=datetime.date.today().isoformat(), gpu=torch.cuda.get_device_name(),
                          causal=options.causal, **shape, kernel=name, note=notes[name], median_us=round(median, 2),
                          min_us=round(min(samples), 2), tflops=round(flops / median * 1e-6, 1),
                          over_flash_attention_2=round(peer_us / median, 3)))
    if options.out:
        with open(options.out, "a") as file:
            for line in lines:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
