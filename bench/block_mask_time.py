#!/usr/bin/env python3
"""How long it takes to make a block mask of 8,192 x 8,192, beside FlexAttention's create_block_mask.

    bench/block_mask_time.py

Medians of 15, microseconds: "host" until the call returns, "done" until the device has the table, and "device" of a
CUDA graph of the call. create_block_mask under torch.compile, with _compile=True, and as it is. Needs a GPU and
PyTorch.

Exit status 2 without a GPU and for wrong arguments.
"""

import argparse
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment  # noqa: E402

ROWS = 8192
RUNS = 15


def masks():
    """{name: (text, kinds of its tensors, tensors, mask_mod)}."""
    import torch

    ids = torch.sort(torch.randint(0, 16, (1, ROWS), device="cuda", dtype=torch.int32), dim=1).values.contiguous()
    blocks = (torch.rand(64, 64, device="cuda") < 0.1).to(torch.uint8)
    return {
        "causal": ("return k <= q;", {}, {}, lambda b, h, i, j: i >= j),
        "documents": ("return ids[b * seqlen_kv + q] == ids[b * seqlen_kv + k];", {"ids": "int32"}, {"ids": ids},
                      lambda b, h, i, j: ids[b, i] == ids[b, j]),
        "longformer": ("return (q - k <= 256 && k - q <= 256) || k < 64 || q < 64;", {}, {},
                       lambda b, h, i, j: ((i - j <= 256) & (j - i <= 256)) | (j < 64) | (i < 64)),
        "blocks": ("return blocks[q / 128 * 64 + k / 128] != 0;", {"blocks": "uint8"}, {"blocks": blocks},
                   lambda b, h, i, j: blocks[i // 128, j // 128] != 0),
    }


def times(make):
    """Times for creating a mask in each call, as text."""
    import torch
    from graph_time import captured, replay_us

    make()
    host, done = [], []
    for _ in range(RUNS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        make()
        host.append((time.perf_counter() - begin) * 1e6)
        torch.cuda.synchronize()
        done.append((time.perf_counter() - begin) * 1e6)
    try:
        graph = captured(make)
        device = f"{statistics.median(replay_us(graph) for _ in range(RUNS)):.1f}"
    except RuntimeError as error:  # parts of it cannot be captured
        device = f"unknown ({error})"
    return f"host {statistics.median(host):.0f} us, done {statistics.median(done):.0f} us, device {device} us"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    environment.require_gpu(parser)
    import jit_attention as ja
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    q = torch.empty(1, ROWS, 1, 128, device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(create_block_mask)
    for name, (text, kinds, tensors, mod) in masks().items():
        mask = ja.mask.text(text, name=name, tensors=kinds)
        for scores in (False, True):
            make = lambda: ja.block_mask(q, q, mask=mask, tensors=tensors or None, scores=scores)
            print(f"{name}, scores {scores}: {times(make)}", flush=True)
        for way, make in {"torch.compile": lambda: compiled(mod, None, None, ROWS, ROWS, device="cuda"),
                          "_compile=True": lambda: create_block_mask(mod, None, None, ROWS, ROWS, device="cuda",
                                                                     _compile=True),
                          "eager": lambda: create_block_mask(mod, None, None, ROWS, ROWS, device="cuda")}.items():
            print(f"{name}, FlexAttention {way}: {times(make)}", flush=True)


if __name__ == "__main__":
    main()
