"""Serving suites: decode from a dense cache, from pages, with uneven requests, with prefill, from 8- and 4-bit caches,
and with multi-head latent attention."""

import dataclasses
import random

from .serving import Requests
from .stored_keys import KINDS

# batch, heads_q, heads_kv, keys; head_dim 128
DECODE = ((1, 32, 8, 1024), (1, 32, 8, 8192), (1, 64, 8, 131072), (16, 32, 8, 8192), (64, 32, 8, 4096),
          (128, 64, 8, 8192), (8, 64, 4, 2048), (256, 16, 2, 1024))
# more heads and head dims: (batch, heads_q, heads_kv, keys, head_dim)
DECODE_MORE = ((1, 8, 1, 8192, 128), (64, 8, 1, 4096, 128), (16, 32, 1, 8192, 128), (8, 32, 32, 4096, 128),
               (64, 64, 8, 8192, 64), (1, 64, 8, 8192, 64), (16, 16, 8, 8192, 256))
LAYOUTS = ((1, 32, 8, 8192), (64, 32, 8, 4096))  # also measured with other page sizes
PAGE = 16
OTHER_PAGES = (1, 32, 64, 256)
# multi-head latent attention, DeepSeek's head dims: (batch, heads_q, keys); 128 heads on one GPU, or 16 of them on each
# of eight
LATENTS = ((64, 128, 4096), (128, 128, 4096), (64, 16, 4096), (128, 16, 4096), (1, 128, 8192), (16, 16, 8192))
LATENT_PAGE, OTHER_LATENT_PAGES = 64, (1, 16)
# production mix: the share of requests by length
MIX = ((4096, 0.35), (8192, 0.20), (16384, 0.15), (32768, 0.12), (65536, 0.10), (131072, 0.08))


def requests(suite, label, groups, heads_q=32, heads_kv=8, head_dim=128, **fields):
    """Requests; values have the same head_dim."""
    return Requests(suite, label, tuple(groups), heads_q, heads_kv, head_dim, head_dim, **fields)


def _one_query(suite, batch, heads_q, heads_kv, keys, head_dim=128, label="", **fields):
    width = "" if head_dim == 128 else f"-d{head_dim}"
    return requests(suite, f"b{batch}-h{heads_q}/{heads_kv}-kv{keys}{width}{label}", [(batch, 1, keys)], heads_q,
                    heads_kv, head_dim, **fields)


def _tick(one):
    return f"b {one.batch}\n{one.heads_q}/{one.heads_kv}\n{one.max_seqlen_k}"


def _decode():
    rows = [_one_query("decode", *problem, panel="head_dim 128: batch, heads, keys") for problem in DECODE]
    for problem in DECODE_MORE:
        rows.append(_one_query("decode", *problem, panel="other heads, head_dim 64 and 256"))
    return [dataclasses.replace(one, tick=_tick(one) + ("" if one.head_dim == 128 else f"\nd {one.head_dim}"))
            for one in rows]


def _paged():
    pages = dict(kv_sequences="paged")
    rows = [_one_query("paged", *problem, label=f"-p{PAGE}", page_size=PAGE, panel=f"pages of {PAGE}, NHD", **pages)
            for problem in DECODE]
    for problem in LAYOUTS:
        batch, heads_q, heads_kv, keys = problem
        panel = f"batch {batch}, {keys} keys: layouts"
        rows.append(_one_query("paged", *problem, label=f"-p{PAGE}-hnd", page_size=PAGE, kv_layout="HND", panel=panel,
                               **pages))
        rows += [_one_query("paged", *problem, label=f"-p{size}", page_size=size, panel=panel, **pages)
                 for size in OTHER_PAGES]
    return [dataclasses.replace(one, tick=_tick(one) if "layouts" not in one.panel else
                                f"{one.page_size}{' HND' * (one.kv_layout == 'HND')}") for one in rows]


def random_lengths(count, longest, seed):
    """Lengths from 1 to `longest`, determined by the seed."""
    draw = random.Random(seed)
    return [draw.randint(1, longest) for _ in range(count)]


def uneven_lengths(count, seqlen, seed):
    """`count` uneven lengths whose squares sum to count * seqlen² up to rounding: equal work under a causal mask."""
    draw = random.Random(seed)
    raw = [draw.uniform(0.1, 1.9) for _ in range(count)]
    scale = seqlen * (count / sum(one * one for one in raw)) ** 0.5
    return [round(one * scale) for one in raw]


def _ragged():
    decode = dict(q_sequences="dense", kv_sequences="paged", page_size=PAGE, panel=f"decode, pages of {PAGE}")
    mix = [length for length, share in MIX for _ in range(round(32 * share))]
    rows = [requests("ragged", "1x128k-31x4k", [(1, 1, 131072), (31, 1, 4096)], tick="1 × 128k\n31 × 4k", **decode),
            requests("ragged", "1x64k-15x4k", [(1, 1, 65536), (15, 1, 4096)], tick="1 × 64k\n15 × 4k", **decode),
            requests("ragged", "64x512", [(64, 1, 512)], tick="64 × 512", **decode),
            requests("ragged", "random64-to8k", [(1, 1, n) for n in random_lengths(64, 8192, 0)],
                     tick="64 to 8k\nrandom", **decode),
            requests("ragged", f"mix{len(mix)}-4k-to128k", [(1, 1, n) for n in mix],
                     tick=f"{len(mix)} of\n4k to 128k", **decode)]
    count, seqlen = 8, 2048
    prefill = dict(mask="causal", panel=f"prefill of one work, causal: {count} × {seqlen}")
    equal, varlen = [(count, seqlen, seqlen)], dict(q_sequences="varlen", kv_sequences="varlen")
    uneven = [(1, n, n) for n in uneven_lengths(count, seqlen, 1)]
    return rows + [
        requests("ragged", "prefill-dense", equal, tick="dense", **prefill),
        requests("ragged", "prefill-equal", equal, tick="varlen,\nequal", **prefill, **varlen),
        requests("ragged", "prefill-uneven", uneven, tick="varlen,\nuneven", **prefill, **varlen)]


def _mixed():
    problems = (("2x512-64x4k", [(2, 512, 512), (64, 1, 4096)], "2 × 512\n64 decodes, 4k"),
                ("1x2k-of8k-32x4k", [(1, 2048, 8192), (32, 1, 4096)], "2k of 8k\n32 decodes, 4k"),
                ("2x1k-16x2k", [(2, 1024, 1024), (16, 1, 2048)], "2 × 1k\n16 decodes, 2k"),
                ("1x512-of32k-128x2k", [(1, 512, 32768), (128, 1, 2048)], "512 of 32k\n128 decodes, 2k"),
                ("4x512-of8k", [(4, 512, 8192)], "4 × 512 of 8k\nno decode"),
                ("verify-32x4-of4k", [(32, 4, 4096)], "32 × 4 of 4k\nno decode"))
    return [requests("mixed", label, groups, mask="causal", q_sequences="varlen", kv_sequences="paged",
                     page_size=PAGE, panel=f"prefill chunks and decodes in one call, pages of {PAGE}", tick=tick)
            for label, groups, tick in problems]


def _fp8_cache():
    rows = [_one_query("fp8-cache", *problem, label=f"-p{PAGE}", page_size=PAGE, kv_sequences="paged",
                       panel=f"decode, e4m3 in pages of {PAGE}") for problem in DECODE]
    rows = [dataclasses.replace(one, tick=_tick(one)) for one in rows]
    rows += [_one_query("fp8-cache", *problem, label=f"-p{size}", page_size=size, kv_sequences="paged", tick=str(size),
                        panel="batch 64, 4096 keys: rows of a page") for problem in LAYOUTS[1:] for size in OTHER_PAGES]
    prefill = dict(mask="causal", q_sequences="varlen", kv_sequences="paged", page_size=PAGE,
                   panel=f"prefill and chunks, e4m3 in pages of {PAGE}")
    problems = (("prefill-8x2k", [(8, 2048, 2048)], "8 × 2k"), ("4x512-of8k", [(4, 512, 8192)], "4 × 512\nof 8k"),
                ("verify-32x4-of4k", [(32, 4, 4096)], "32 × 4\nof 4k"),
                ("2x512-64x4k", [(2, 512, 512), (64, 1, 4096)], "2 × 512\n64 decodes, 4k"))
    rows += [requests("fp8-cache", label, groups, tick=tick, **prefill) for label, groups, tick in problems]
    return [dataclasses.replace(one, kv_dtype="fp8_e4m3") for one in rows]


def _stored(kind):
    pages = dict(page_size=PAGE, kv_sequences="paged")
    rows = [_one_query(kind, *problem, label=f"-p{PAGE}", panel=f"decode, {kind} in pages of {PAGE}", **pages)
            for problem in DECODE if problem[2] * problem[3] >= 8 * 2048]
    rows = [dataclasses.replace(one, tick=_tick(one)) for one in rows]
    if kind in ("int8", "int4"):
        rows.append(_one_query(kind, *LAYOUTS[1], label=f"-p{PAGE}-inline", inline_scales=True, tick="inline",
                               panel="batch 64, 4096 keys: scales behind their rows, as vLLM's", **pages))
    prefill = dict(mask="causal", q_sequences="varlen", panel=f"prefill and chunks, {kind} in pages of {PAGE}", **pages)
    problems = (("prefill-8x2k", [(8, 2048, 2048)], "8 × 2k"), ("4x512-of8k", [(4, 512, 8192)], "4 × 512\nof 8k"),
                ("1x2k-of8k", [(1, 2048, 8192)], "2k of 8k"), ("verify-32x4-of4k", [(32, 4, 4096)], "32 × 4\nof 4k"))
    rows += [requests(kind, label, groups, tick=tick, **prefill) for label, groups, tick in problems]
    return [dataclasses.replace(one, kv_dtype=kind) for one in rows]


def _mla():
    def row(label, groups, heads, page, panel, tick, mask="none", q_sequences="dense"):
        return Requests("mla", f"{label}-h{heads}-p{page}", tuple(groups), heads, 1, 576, 512, mask=mask,
                        q_sequences=q_sequences, kv_sequences="paged", page_size=page, values_in_keys=True, panel=panel,
                        tick=tick)

    rows = [row(f"b{batch}-kv{keys}", [(batch, 1, keys)], heads, LATENT_PAGE, f"decode, pages of {LATENT_PAGE}",
                f"b {batch}\n{heads} heads\n{keys}") for batch, heads, keys in LATENTS]
    rows += [row("b64-kv4096", [(64, 1, 4096)], 16, page, "batch 64, 16 heads, 4096 keys: rows of a page", str(page))
             for page in OTHER_LATENT_PAGES]
    panel = f"verifying and chunks, causal, pages of {LATENT_PAGE}"
    problems = (("verify-64x2-of4k", [(64, 2, 4096)], "64 × 2\nof 4k"),
                ("2x512-of4k", [(2, 512, 4096)], "2 × 512\nof 4k"))
    return rows + [row(label, groups, 16, LATENT_PAGE, panel, tick, "causal", "varlen")
                   for label, groups, tick in problems]


SERVING_SUITES = {"decode": _decode(), "paged": _paged(), "ragged": _ragged(), "mixed": _mixed(),
                  "fp8-cache": _fp8_cache(), **{kind: _stored(kind) for kind in KINDS}, "mla": _mla()}
