#!/usr/bin/env python3
"""The time of attention of fp8 with keys from the last one to the first, beside that from the first to the last.

    bench/fp8_key_order_time.py

16,384 tokens, heads * head_dim 2,048, in bursts of CUDA graphs, in turns; the config that the cost model chooses, in
both orders. fp8_key_order.py has the errors. Needs a GPU of sm_90a and PyTorch.

Exit status 2 without a GPU and for wrong arguments.
"""

import argparse
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment  # noqa: E402

BURST_US, BURSTS = 6000, 5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    environment.require_gpu(parser)
    import jit_attention as ja
    import torch
    from graph_time import captured, replay_us

    torch.manual_seed(0)
    for head_dim in (64, 128, 256):
        for rows in (1024, 4096, 16384):
            heads, batch = 2048 // head_dim, 16384 // rows
            q, k, v = (torch.randn(batch, rows, heads, head_dim, device="cuda").to(torch.float8_e4m3fn) for _ in "qkv")
            for mask in (ja.mask.none(), ja.mask.causal()):
                spec = ja.AttentionSpec(dtype="fp8_e4m3", head_dim=head_dim, mask=mask)
                config = dict(ja.prepare(spec, q, k, v, tuning="off").kernel(q, k, v).config)
                kernels = [ja.prepare(spec, config=config | {"descending": order}) for order in (False, True)]
                outputs = [kernel(q, k, v) for kernel in kernels]
                graphs = [captured(lambda: kernel(q, k, v, out=out)) for kernel, out in zip(kernels, outputs)]
                count = max(2, int(BURST_US / replay_us(graphs[0], 2)))
                up, down = (statistics.median(times) for times in zip(
                    *([replay_us(graph, count) for graph in graphs] for _ in range(BURSTS))))
                flops = 4 * batch * heads * rows * rows * head_dim / (1 if mask == ja.mask.none() else 2)
                print(f"head_dim {head_dim}, {rows} tokens, mask {mask}: up {flops / up / 1e6:.1f}, "
                      f"down {flops / down / 1e6:.1f} TFLOP/s, {up / down:.3f}", flush=True)


if __name__ == "__main__":
    main()
