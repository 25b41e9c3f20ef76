#!/usr/bin/env python3
"""Errors of attention whose scores are products of NVFP4, of FP8 and of bf16, against fp64: simulated, without a kernel.

Elements are rounded as the types are, and products, softmax and sums are fp64, so that what is left is the error of
the types alone. NVFP4 is e2m1 with a scale of e4m3 for 16 columns of a row and one of fp32 for a head; FP8 is e4m3
with a scale for a head, or for a row. P and V are bf16, or of FP8. `k - mean` takes the mean of keys away, which
moves all scores of a query alike.

    normal     N(0, 1)
    outlier    N(0, 1) + N(0, 100) * Bernoulli(0.001), as in the FlashAttention-3 paper
    biased-k   k with a bias of 3 standard deviations in each channel
    peaked     q and k of 3 standard deviations: a few keys have most of the weight

    bench/fp4_scores.py
    bench/fp4_scores.py --queries 128 --keys 1024 --head-dim 64 --seed 3

Writes a table of root mean squares of o's differences.
"""

import argparse

import numpy

LARGEST_E2M1, LARGEST_E4M3 = 6.0, 448.0


def rounded(x, mantissa, least_exponent):
    """`x` rounded to `mantissa` fraction bits, to nearest even; below the least exponent the step is constant."""
    _, exponent = numpy.frexp(x)
    step = numpy.exp2(numpy.maximum(exponent - 1, least_exponent) - float(mantissa))
    return numpy.rint(x / step) * step


def bf16(x):
    return rounded(x, 7, -126)


def e4m3(x):
    return numpy.clip(rounded(x, 3, -6), -LARGEST_E4M3, LARGEST_E4M3)


def e2m1(x):
    return numpy.clip(rounded(x, 1, 0), -LARGEST_E2M1, LARGEST_E2M1)


def scaled(x, scale, kind):
    """x / scale rounded to `kind`, times the scale; zeros for a scale of 0."""
    inverse = numpy.divide(1, scale, out=numpy.zeros_like(scale), where=scale != 0)
    return kind(x * inverse) * scale


def fp8(x, axis):
    return scaled(x, numpy.abs(x).max(axis=axis, keepdims=True) / LARGEST_E4M3, e4m3)


def nvfp4(x):
    parts = x.reshape(len(x), -1, 16)
    of_head = numpy.abs(x).max() / (LARGEST_E2M1 * LARGEST_E4M3)
    of_part = e4m3(numpy.abs(parts).max(axis=-1, keepdims=True) / LARGEST_E2M1 / of_head) * of_head
    return scaled(parts, of_part, e2m1).reshape(x.shape)


#: Rounding of q and k, and whether k's mean is subtracted before.
SCORES = {
    "bf16": (bf16, False),
    "fp8, head": (lambda x: fp8(x, None), False),
    "fp8, token": (lambda x: fp8(x, -1), False),
    "fp8, token, k - mean": (lambda x: fp8(x, -1), True),
    "nvfp4": (nvfp4, False),
    "nvfp4, k - mean": (nvfp4, True),
}
#: Rounding of P and V. P is at most 1.
VALUES = {
    "bf16": (bf16, bf16),
    "fp8": (lambda p: e4m3(p * 256) / 256, lambda v: fp8(v, None)),
}


def draw(kind, rows, columns, random):
    x = random.standard_normal((rows, columns))
    if kind == "outlier":
        x += 10 * random.standard_normal(x.shape) * (random.random(x.shape) < 0.001)
    return x * 3 if kind == "peaked" else x


def problem(kind, options, random):
    q = draw(kind, options.queries, options.head_dim, random)
    k = draw(kind, options.keys, options.head_dim, random)
    v = draw("outlier" if kind == "outlier" else "normal", options.keys, options.head_dim, random)
    if kind == "biased-k":
        k += 3 * random.standard_normal(options.head_dim)
    return bf16(q), bf16(k), bf16(v)


def attention(q, k, v, of_p=lambda p: p):
    scores = q @ k.T / numpy.sqrt(q.shape[1])
    p = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    return of_p(p) @ v / p.sum(axis=1, keepdims=True)


def errors(options):
    """Root mean squares, by (scores, values) and kind of inputs; o's own under "o"."""
    random = numpy.random.default_rng(options.seed)
    result = {"o": {}}
    for kind in ("normal", "outlier", "biased-k", "peaked"):
        q, k, v = problem(kind, options, random)
        right = attention(q, k, v)
        result["o"][kind] = numpy.sqrt(numpy.mean(right**2))
        for scores, (round_qk, takes_mean) in SCORES.items():
            keys = round_qk(k - k.mean(axis=0) if takes_mean else k)
            for values, (round_p, round_v) in VALUES.items():
                o = attention(round_qk(q), keys, round_v(v), round_p)
                rms = numpy.sqrt(numpy.mean((o - right) ** 2))
                result.setdefault((scores, values), {})[kind] = rms
    return result


def table(found):
    kinds = list(found["o"])
    lines = [f"| q and k | p and v | {' | '.join(kinds)} |", "| --- | --- |" + " ---: |" * len(kinds)]
    for key, row in found.items():
        names = ("o itself", "") if key == "o" else key
        lines.append("| " + " | ".join([*names, *(f"{row[kind]:.1e}" for kind in kinds)]) + " |")
    return "\n".join(lines)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--keys", type=int, default=4096)
    parser.add_argument("--head-dim", type=int, default=128, help="a multiple of 16")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if min(options.queries, options.keys, options.head_dim) < 1 or options.head_dim % 16 != 0:
        parser.error("--queries and --keys must be at least 1, and --head-dim a multiple of 16")
    return options


if __name__ == "__main__":
    print(table(errors(parse())))
