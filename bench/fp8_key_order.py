#!/usr/bin/env python3
"""What the order of keys costs attention of fp8 where the first keys stand out, as attention sinks do.

Root mean squares of the errors of forward_wgmma against fp64 with keys from the first to the last one, and from the
last to the first, which is `descending` of its config. Scores of keys are N(0, 1); those of the first --sinks keys are
larger than the largest of a row by a gap, on the average. Their values are N(0, 1) times --sink-values. Runs on a GPU
or an emulated device; needs PyTorch.

    exact      q, k and v of numbers that e4m3 has: what is left is P, and the sums
    quantised  bf16, of which jit_attention.quantize_qkv makes fp8: scales of heads, v without its mean
    rest       the same but for what rounding the sinks' values costs
    sinks      their part of the rows' weights;  others: the root mean square of what other keys add to o

    JIT_ATTENTION_DEVICE=emulated:sm_90a bench/fp8_key_order.py --seqlen 4096
    JIT_ATTENTION_DEVICE=emulated:sm_90a bench/fp8_key_order.py --seqlen 16384 --sinks 4 --mean 1 --causal
"""

import argparse
import math
import sys

import jit_attention as ja
import torch

GAPS = (None, 2, 4, 6, 8, 10, 12)
SHARED = 6.0  # length of what all queries have in common
CONFIG = ("family=forward_wgmma tile_q=128 tile_kv={} stages_q=1 stages_k=2 stages_v=2 direct_o=true "
          "converter_warps=2 descending={}")
E4M3 = torch.float8_e4m3fn


def make_inputs(gap, options):
    """q, k and v, (1, seqlen, 1, head_dim), fp32."""
    generator = torch.Generator().manual_seed(options.seed)
    d, sinks = options.head_dim, options.sinks
    q, k, v = (torch.randn(1, rows, 1, d, generator=generator) for rows in (options.queries, *[options.seqlen] * 2))
    v = v + options.mean
    if gap is not None:  # queries share a direction that sinks alone have
        shared = torch.randn(d, generator=generator)
        shared /= shared.norm()
        q, k = (x - (x @ shared)[..., None] * shared for x in (q, k))
        largest = (q[0, :, 0] @ k[0, :, 0].T / math.sqrt(d)).amax(-1).mean()
        q = q + SHARED * shared
        k[:, :sinks] = (largest + gap) * math.sqrt(d) / SHARED * shared
        v[:, :sinks] = options.sink_values * torch.randn(1, sinks, 1, d, generator=generator)
    return q, k, v


def exact(q, k, v, options):
    """(o in fp64, what keys behind the sinks add to it, the part of the weights that sinks have)."""
    q, k, v = (x[0, :, 0].double() for x in (q, k, v))
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if options.causal:
        scores += torch.full_like(scores, -math.inf).triu(1 + len(k) - len(q))
    weights = scores.softmax(-1)
    sinks = options.sinks
    return weights @ v, weights[:, sinks:] @ v[sinks:], weights[:, :sinks].sum(-1).mean().item()


def outputs(q, k, v, options, scales, v_mean=False):
    """o of both orders, (queries, head_dim) in fp64."""
    spec = ja.AttentionSpec(dtype="fp8_e4m3", head_dim=q.shape[-1], out_dtype="fp32", v_mean=v_mean,
                            mask=ja.mask.causal() if options.causal else ja.mask.none())
    for descending in ("false", "true"):
        attend = ja.prepare(spec, config=CONFIG.format(options.tile_kv, descending))
        yield torch.as_tensor(attend(q, k, v, **scales))[0, :, 0].double().cpu()


def rms(x):
    return x.square().mean().sqrt().item()


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seqlen", type=int, default=4096, help="keys (4096)")
    parser.add_argument("--queries", type=int, default=64, help="the last positions (64)")
    parser.add_argument("--head-dim", type=int, default=128, help="(128)")
    parser.add_argument("--tile-kv", type=int, default=128, help="keys of a tile (128)")
    parser.add_argument("--sinks", type=int, default=1, help="of the first keys (1)")
    parser.add_argument("--sink-values", type=float, default=0.1, help="standard deviation of their values (0.1)")
    parser.add_argument("--mean", type=float, default=0.0, help="of the other values (0)")
    parser.add_argument("--causal", action="store_true", help="with a causal mask")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (0)")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    place = "cpu" if ja.devices()[0].emulated else "cuda"
    orders = ("first to last", "last to first")
    kinds = [f"{kind}, {order}" for kind in ("exact", "quantised", "rest") for order in orders]
    print("| " + " | ".join(["gap", "sinks", "others", *kinds]) + " |")
    print("| --- " * (3 + len(kinds)) + "|")
    for gap in GAPS:
        inputs = make_inputs(gap, options)
        fp8, bf16 = ([x.to(dtype) for x in inputs] for dtype in (E4M3, torch.bfloat16))
        made = ja.quantize_qkv(*(x.to(place) for x in bf16), scales="head", center_values=True)
        mean = made.v_mean.double().cpu().view(1, 1, 1, -1)
        rounded = made.v.double().cpu() * made.scales["v_descale"].double().cpu().view(1, 1, 1, 1) + mean
        sunk = torch.cat([rounded[:, :options.sinks], bf16[2][:, options.sinks:].double()], 1)
        right, others, weight = exact(*fp8, options)
        found = [rms(o - right) for o in outputs(*(x.to(place) for x in fp8), options, {})]
        of_quantised = [*outputs(made.q, made.k, made.v, options, made.scales, True)]
        for v in (bf16[2], sunk):
            right = exact(*bf16[:2], v, options)[0]
            found += [rms(o - right) for o in of_quantised]
        cells = [f"{weight if gap is not None else 0:.3f}", f"{rms(others):.1e}", *map("{:.2e}".format, found)]
        print(f"| {'none' if gap is None else gap} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
