#!/usr/bin/env python3
"""Errors of attention of 8 and 4 bits and of its peers against fp64, by the quantization and the distribution of q, k
and v: all three of FP8, or caches of k and v under bf16 q.

Root mean squares of o's differences, and of o itself. Inputs are bf16; for jit-attention q, k and v are quantized by
jit_attention.quantize_qkv, o is fp32. Peers are those contenders of bench/compare.py that have fp8, or another 8 bits:
they are given the same inputs, with the scales that their own users give them, and o is of the type that they have.
Those that are not there, or fail, are listed below the table with the reason. Runs on a GPU, or without peers on an
emulated device; needs PyTorch.

    normal     N(0, 1)
    outlier    N(0, 1) + N(0, 100) * Bernoulli(0.001), as in the FlashAttention-3 paper
    biased-k   k with a bias of 3 standard deviations in each channel
    mean-v     v with a mean of 1
    long       mean-v, of --long keys and few queries: a column for each number of keys
    sink       the first key has most of the weight of most rows, and a small value

    bench/fp8_accuracy.py --seqlen 4096 --heads 16 --long 65536 131072
    bench/fp8_accuracy.py --peers fa3 cudnn --schemes head "head, means"
    JIT_ATTENTION_DEVICE=emulated:sm_90a bench/fp8_accuracy.py --seqlen 256 --heads 1 --long 4096

Exit status 1 when an error of jit-attention is no number; 2 for wrong arguments.
"""

import argparse
import concurrent.futures
import math
import pathlib
import sys

import jit_attention as ja
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import cells  # noqa: E402
from comparison.contender import Unsupported, first_line  # noqa: E402
from comparison.contenders import CONTENDERS  # noqa: E402
from comparison.fp8_suites import Fp8Cell  # noqa: E402
from comparison.inputs import Inputs  # noqa: E402

#: The schemes: arguments of quantize_qkv, fields of the kernel's config, and spec fields if any. With 16-bit q, as with
#: an FP8 cache, only k and v are quantized, with a scale per head or token.
SCHEMES = {
    "tensor": ({"scales": "given", "value_scales": "given"}, ""),
    "head": ({"scales": "head"}, ""),
    "head, interpolated": ({"scales": "head"}, "", {"interpolated_exponentials": True}),
    "token": ({"scales": "token"}, ""),
    "block": ({"scales": "block"}, ""),
    "token, v by channel": ({"scales": "token", "value_scales": "channel"}, ""),
    "token, v-mean": ({"scales": "token", "center_values": True}, ""),
    "head, rotated": ({"scales": "head", "rotation_seed": 1}, ""),
    "block, rotated": ({"scales": "block", "rotation_seed": 1}, ""),
    "token, rotated": ({"scales": "token", "rotation_seed": 1}, ""),
    "head, means": ({"scales": "head", "center_keys": True, "center_values": True}, ""),
    "token, rotated, means": (
        {"scales": "token", "rotation_seed": 1, "center_keys": True, "center_values": True},
        "",
    ),
    "head, promoted": ({"scales": "head"}, "tile_kv=96 stages_q=2 stages_v=2 converter_warps=4 promote_every=4"),
}
KEPT_QUERIES = {"q of 16 bits, head": "head", "q of 16 bits, token": "token"}
#: Caches with bf16 q, written by `append`; rotated: q, k and v times a Hadamard matrix with random signs, o rotated
#: back.
CACHES = {
    "cache of bf16": ("bf16", False),
    "cache of int8": ("int8", False),
    "cache of int4": ("int4", False),
    "cache of int4, rotated": ("int4", True),
    "cache of nvfp4": ("nvfp4", False),
    "cache of mxfp4": ("mxfp4", False),
    "cache of mxfp4, rotated": ("mxfp4", True),
}
BLOCKS = {"nvfp4": 16, "mxfp4": 32}  # columns per one-byte scale
SCHEME_NAMES = (*SCHEMES, *KEPT_QUERIES, *CACHES)
INPUTS = ("normal", "outlier", "biased-k", "mean-v", "long", "sink")
LONG_QUERIES = 64
SINK_SCORE = 11  # gives the first of 4,096 keys 0.9 of the weight
PEERS = {one.name: one for one in CONTENDERS if one.make_quantized is not None}


def columns_of(options):
    """(column title, name of the inputs, number of keys) for each column."""
    for name in options.inputs:
        if name != "long":
            yield name, name, options.seqlen
            continue
        for keys in options.long:
            yield f"long {keys}", name, keys


def make_inputs(name, keys, options, device):
    """bf16 q, k and v, (1, seqlen, heads, head_dim), determined by the seed."""
    generator = torch.Generator("cpu").manual_seed(options.seed)
    is_long = name == "long"
    heads, d = (1 if is_long else options.heads), options.head_dim

    def normal(rows):
        return torch.randn(1, rows, heads, d, generator=generator)

    q, k, v = normal(LONG_QUERIES if is_long else keys), normal(keys), normal(keys)
    if name == "outlier":
        q, k, v = (
            x + 10 * normal(x.shape[1]) * (torch.rand(x.shape, generator=generator) < 1e-3) for x in (q, k, v)
        )
    elif name == "biased-k":
        k = k + 3 * torch.randn(1, 1, heads, d, generator=generator)
    elif name in ("mean-v", "long"):
        v = v + 1
    elif name == "sink":
        # Queries share a direction with only the first key: its score is SINK_SCORE, the others are N(0, 1).
        q[..., 0], k[..., 0] = SINK_SCORE ** 0.5, 0
        k[:, 0] = 0
        k[:, 0, :, 0] = (SINK_SCORE * d) ** 0.5
        v[:, 0] *= 0.1
    return [x.to(torch.bfloat16).to(device) for x in (q, k, v)]


def exact(q, k, v):
    """fp64 attention, (1, seqlen, heads, head_dim), head by head."""
    o = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    for head in range(q.shape[2]):
        own_q, own_k, own_v = (x[0, :, head].double() for x in (q, k, v))
        scores = own_q @ own_k.T / math.sqrt(q.shape[-1])
        o[0, :, head] = scores.softmax(-1) @ own_v
    return o


def quantized(q, k, v, scheme, config, fields=None):
    """o in fp32 for one scheme."""
    given = dict(scheme)
    if given["scales"] == "given":
        for name, x in (("q", q), ("k", k), ("v", v)):
            given[f"{name}_descale"] = (x.float().abs().max() / 448).reshape(1)
    made = ja.quantize_qkv(q, k, v, **given)
    spec = ja.AttentionSpec(
        dtype="fp8_e4m3",
        head_dim=q.shape[-1],
        out_dtype="fp32",
        descale_per="head" if given["scales"] == "given" else given["scales"],
        v_descale_per="channel" if given.get("value_scales") == "channel" else "head",
        v_mean=made.v_mean is not None,
        **(fields or {}),
    )
    prepared = ja.prepare(spec, config=f"family=forward_wgmma output=direct {config}" if config else None)
    return prepared(made.q, made.k, made.v, **made.scales)


def rounded(x, scales):
    """x in e4m3 and its scales, one for each KV head or for each token and KV head."""
    largest = x.float().abs().amax(dim=-1 if scales == "token" else (1, 3))
    scale = (largest / 448).clamp(min=1e-12)
    by_row = scale[..., None] if scales == "token" else scale[:, None, :, None]
    return (x.float() / by_row).to(torch.float8_e4m3fn), scale


def kept_queries(q, k, v, scales):
    """o for bf16 q with k and v in e4m3."""
    (k8, k_scale), (v8, v_scale) = rounded(k, scales), rounded(v, scales)
    spec = ja.AttentionSpec(dtype="bf16", kv_dtype="fp8_e4m3", head_dim=q.shape[-1], descale_per=scales)
    return ja.prepare(spec)(q, k8, v8, k_descale=k_scale, v_descale=v_scale)


def hadamard(d, device):
    """A random orthogonal matrix: Sylvester's with random signs, over the root of its size."""
    matrix = torch.ones(1, 1)
    while len(matrix) < d:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    signs = torch.randint(0, 2, (d, 1), generator=torch.Generator().manual_seed(1)) * 2 - 1
    return (signs * matrix / d**0.5).to(device)


def cached(q, k, v, kind, is_rotated):
    """o for bf16 q with k and v from a cache."""
    turn = hadamard(q.shape[-1], q.device)
    if is_rotated:
        q, k, v = ((x.float() @ turn).to(torch.bfloat16) for x in (q, k, v))
    _, keys, heads, d = k.shape
    row, dtype = (d, torch.bfloat16) if kind == "bf16" else (d if kind == "int8" else d // 2, torch.uint8)
    caches = [torch.zeros(1, keys, heads, row, dtype=dtype, device=k.device) for _ in "kv"]
    scales, read = {}, {}
    for name in "kv" * (kind != "bf16"):
        if kind in BLOCKS:
            x = k if name == "k" else v  # tensor scale: maps the largest block scale to the largest e4m3
            largest = (x.float().abs().amax() / (6 * 448)).reshape(1) if kind == "nvfp4" else torch.ones(1)
            scales[f"{name}_scale"] = read[f"{name}_descale"] = largest.to(k.device)
            blocks = torch.zeros(1, keys, heads, d // BLOCKS[kind], dtype=torch.uint8, device=k.device)
            scales[f"{name}_block_scales"] = read[f"{name}_block_scales"] = blocks
        else:
            scales[f"{name}_scale"] = read[f"{name}_descale"] = torch.zeros(1, keys, heads, device=k.device)
    given = {} if kind == "bf16" else {"cache_dtype": kind}
    slots = torch.arange(keys, device=k.device)
    ja.append(k[0].contiguous(), v[0].contiguous(), *caches, slot_mapping=slots, **scales, **given)
    o = ja.attention(q, *caches, **read, **({} if kind == "bf16" else {"kv_dtype": kind}))
    return (o.float() @ turn.T) if is_rotated else o


def of_scheme(name, q, k, v):
    if name in CACHES:
        return cached(q, k, v, *CACHES[name])
    if name in KEPT_QUERIES:
        return kept_queries(q, k, v, KEPT_QUERIES[name])
    return quantized(q, k, v, *SCHEMES[name])


def of_peer(peer, q, k, v):
    """o in fp32 from a contender."""
    (_, seqlen_q, heads, d), seqlen_kv = q.shape, k.shape[1]
    cell = cells.backward_of(cells.cell("fp8-accuracy", "", 1, seqlen_q, heads, d, seqlen_kv), "fp8-accuracy", Fp8Cell)
    runner = peer.make_quantized(cell, Inputs(q.clone(), k.clone(), v.clone()))
    with runner.context(), torch.no_grad():
        o = runner.checked_part(runner.call())
    if o.shape != q.shape:
        raise ValueError(f"the result has shape {tuple(o.shape)}, not {tuple(q.shape)}")
    if o.is_cuda:
        torch.cuda.synchronize()
    return o.float()


def rmse(o, right):
    return (o.double() - right).square().mean().sqrt().item()


def peers_of(options, device):
    """{requested contender: None, or the reason why it is absent}."""
    there = {PEERS[name](): None for name in options.peers}
    for peer in there:
        there[peer] = "it needs a GPU, and this is an emulated one" if device.emulated else peer.absent()
    return there


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seqlen", type=int, default=4096, help="queries and keys (4096)")
    parser.add_argument("--heads", type=int, default=16, help="of q and k (16)")
    parser.add_argument("--head-dim", type=int, default=128, help="a power of two from 8 to 256 (128)")
    parser.add_argument("--long", type=int, nargs="+", default=(65536, 131072), metavar="KEYS",
                        help="keys of the long inputs (65536 131072)")
    parser.add_argument("--inputs", nargs="*", choices=INPUTS, default=INPUTS, help="only these")
    parser.add_argument("--schemes", nargs="*", choices=SCHEME_NAMES, default=SCHEME_NAMES, help="only these")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=tuple(PEERS), help="only these")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (0)")
    options = parser.parse_args(arguments)
    if options.head_dim not in (8, 16, 32, 64, 128, 256):
        parser.error(f"--head-dim {options.head_dim}: must be a power of two from 8 to 256")
    return options


def main(arguments=None):
    options = parse(arguments)
    device = ja.devices()[0]
    place = "cpu" if device.emulated else "cuda"
    columns = list(columns_of(options))
    print(
        f"{device.name}{', emulated' if device.emulated else ''}: {options.seqlen} queries and keys, {options.heads} "
        f"heads, head_dim {options.head_dim}; long: {LONG_QUERIES} queries, 1 head; seed {options.seed}\n"
    )
    print("| scheme | " + " | ".join(label for label, *_ in columns) + " |")
    print("| --- " * (1 + len(columns)) + "|")
    rows, problems = {name: [] for name in ("o itself", *options.schemes)}, []
    for _, name, keys in columns:
        q, k, v = make_inputs(name, keys, options, place)
        if not device.emulated and not problems:  # compiles all schemes' kernels concurrently
            with concurrent.futures.ThreadPoolExecutor() as pool:
                list(pool.map(lambda scheme, x=(q, k, v): of_scheme(scheme, *x), options.schemes))
        right = exact(q, k, v)
        problems.append((q, k, v, right))
        rows["o itself"].append(right.square().mean().sqrt().item())
        for scheme in options.schemes:
            rows[scheme].append(rmse(of_scheme(scheme, q, k, v), right))
    for name, row in rows.items():
        print(f"| {name} | " + " | ".join(f"{one:.2e}" for one in row) + " |", flush=True)
    notes = []
    for peer, reason in peers_of(options, device).items():  # last, since a peer may lose the GPU
        if reason:
            notes.append(f"{peer.label}: absent, {reason}")
            continue
        row, failures = [], {}
        for (label, *_), (q, k, v, right) in zip(columns, problems):
            try:
                row.append(f"{rmse(of_peer(peer, q, k, v), right):.2e}")
            except Exception as error:  # peers may raise anything
                kind = "" if isinstance(error, Unsupported) else f"{type(error).__name__}: "
                failures.setdefault(f"{kind}{first_line(error)}", []).append(label)
                row.append("–")
        print(f"| {peer.label} | " + " | ".join(row) + " |", flush=True)
        notes.append(f"{peer.label}: {peer.version()}, {peer.scaling}")
        notes += [f"{peer.label}, {', '.join(labels)}: {text}" for text, labels in failures.items()]
    if notes:
        print("\n" + "\n".join(f"- {note}" for note in notes), flush=True)
    return 0 if all(math.isfinite(one) for row in rows.values() for one in row) else 1


if __name__ == "__main__":
    sys.exit(main())
