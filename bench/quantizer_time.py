#!/usr/bin/env python3
"""How long jit_attention.quantize_qkv takes, beside a copy of 157 MB by PyTorch.

    bench/quantizer_time.py [--programs]

For 16,384 tokens of four sizes: microseconds of a CUDA graph with a cold L2 cache, and the share of the copy's bytes a
second that they come to, where bf16 is read once and fp8 written once. Dense, with lengths of all rows, and varlen;
or with --programs dense by both programs: that which reads rows twice, and that which keeps them in shared memory.
Needs a GPU and PyTorch.

Exit status 2 without a GPU and for wrong arguments.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment  # noqa: E402

TOKENS = 16384
SIZES = ((128, 16, 16, 8192), (64, 32, 32, 8192), (256, 8, 8, 8192), (128, 32, 8, 4096))  # head_dim, heads, KV, rows
MEANS = dict(center_keys=True, center_values=True)
SCHEMES = {
    "token": dict(scales="token"),
    "block": dict(scales="block"),
    "head": dict(scales="head"),
    "token, rotated": dict(scales="token", rotation_seed=1),
    "head, rotated": dict(scales="head", rotation_seed=1),
    "head, means": dict(scales="head", **MEANS),
    "token, rotated, means": dict(scales="token", rotation_seed=1, **MEANS),
    "head, rotated, means": dict(scales="head", rotation_seed=1, **MEANS),
    "token, v given": dict(scales="token", value_scales="given"),
    "given": dict(scales="given", value_scales="given"),
}


def copy_rate():
    """Bytes per microsecond that a copy reads and writes."""
    import torch
    from graph_time import captured, cold_us

    source = torch.randn(75 << 20, device="cuda").bfloat16()
    target = torch.empty_like(source)
    us = cold_us([captured(lambda: target.copy_(source))])[0]
    print(f"a copy of {source.numel() * 2 / 1e6:.0f} MB: {us:.1f} us, {4 * source.numel() / us / 1e6:.2f} TB/s")
    return 4 * source.numel() / us


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", action="store_true", help="dense calls by both programs, beside each other")
    parser.add_argument("--batch", type=int, help="batch entries of the 16,384 tokens, in place of each size's own")
    arguments = parser.parse_args()
    if arguments.batch is not None and (arguments.batch < 1 or TOKENS % arguments.batch != 0):
        parser.error(f"--batch is {arguments.batch}; it must divide {TOKENS}")
    environment.require_gpu(parser)
    import jit_attention as ja
    import torch
    from graph_time import captured, cold_us

    rate = copy_rate()
    for head_dim, heads, heads_kv, rows in SIZES:
        batch = arguments.batch or TOKENS // rows
        rows = TOKENS // batch
        q, k, v = (torch.randn(batch, rows, count, head_dim, device="cuda").bfloat16()
                   for count in (heads, heads_kv, heads_kv))
        begins = torch.arange(0, TOKENS + 1, rows, dtype=torch.int32, device="cuda")
        used = torch.full((batch,), rows, dtype=torch.int32, device="cuda")
        ways = {"dense": ((q, k, v), {}), "padded": ((q, k, v), dict(seqused_q=used, seqused_k=used)),
                "varlen": ([x.flatten(0, 1) for x in (q, k, v)], dict(cu_seqlens_q=begins, cu_seqlens_k=begins))}
        if arguments.programs:
            ways = {"read twice": ((q, k, v), dict(keep_rows=False)), "kept": ((q, k, v), dict(keep_rows=True)),
                    "as it chooses": ((q, k, v), {})}
        for scheme, options in SCHEMES.items():
            parts = []
            for way, (arrays, lengths) in ways.items():
                try:
                    us = cold_us([captured(lambda: ja.quantize_qkv(*arrays, **lengths, **options))])[0]
                    parts.append(f"{way} {us:.1f} us {3 * sum(x.numel() for x in arrays) / us / rate:.3f}")
                except ja.Error as error:
                    parts.append(f"{way}: {error}")
            print(f"head_dim {head_dim}, heads {heads}/{heads_kv}, {batch} x {rows}, {scheme}: {'; '.join(parts)}",
                  flush=True)


if __name__ == "__main__":
    main()
