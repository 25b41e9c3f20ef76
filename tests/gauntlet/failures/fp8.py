"""Keys, values and queries of fp8, and their scales."""

import ml_dtypes
import numpy

from .case import case
from .exact import solve
from .interface import check_forward
from .problem import dense, paged, varlen

E4M3 = numpy.dtype(ml_dtypes.float8_e4m3fn)


def stored(asked, k_descale, v_descale):
    """The problem with keys and values of e4m3, divided by their scales."""
    codes = [
        (x.astype(numpy.float32) / scale[..., :, None]).astype(E4M3)
        for x, scale in ((asked.k, k_descale), (asked.v, v_descale))
    ]
    return asked.change(k=codes[0], v=codes[1], k_descale=k_descale, v_descale=v_descale)


@case(
    "flashinfer-ai/flashinfer#4979",
    "FlashInfer",
    "scales of keys and values are taken and ignored over varlen sequences",
    "outputs of varlen keys of e4m3 with scales of 0.25 and 0.5 equal double precision over scaled keys",
)
def check_scales_of_varlen_keys(library, run):
    asked = varlen(run.rng, [5, 30], run.pick([40, 70], [400, 700]), heads=8, heads_kv=2, head_dim=128, causal=True)
    check_forward(library, stored(asked, numpy.array([0.25], numpy.float32), numpy.array([0.5], numpy.float32)))


@case(
    "sgl-project/sgl-kernel-xpu#252",
    "SGLang on XPU, in review",
    "scales of each KV head are read as one scalar",
    "outputs over pages of e4m3 whose heads have scales of 0.02 to 0.5 equal double precision",
)
def check_scales_of_heads(library, run):
    asked = paged(run.rng, [1, 3], run.pick([40, 70], [400, 700]), heads=8, heads_kv=4, head_dim=64, causal=True)
    scales = numpy.array([0.02, 0.5, 0.1, 0.25], numpy.float32)
    check_forward(library, stored(asked, scales, scales[::-1].copy()))


@case(
    "sgl-project/sglang#34765",
    "MLA in SGLang",
    "keys are scaled back, values are not",
    "outputs of decoding over dense caches of e4m3 with different scales of keys and values equal double precision",
)
def check_scale_of_values(library, run):
    asked = dense(run.rng, batch=2, seqlen_q=1, seqlen_kv=run.pick(90, 900), heads=8, heads_kv=2, head_dim=128)
    check_forward(library, stored(asked, numpy.array([0.1], numpy.float32), numpy.array([0.03], numpy.float32)))


@case(
    "thu-ml/SageAttention#164",
    "SageAttention",
    "values that are all equal have a scale of 0, and come out as NaN",
    "quantized attention over constant values, whose mean is taken off, gives the constant",
)
def check_constant_values(library, run):
    asked = dense(run.rng, seqlen_q=run.pick(70, 700), heads=2, head_dim=64)
    asked.v = numpy.full_like(asked.v, 0.001)
    asked.v[..., 5] = 3
    o = library.quantized(asked).o
    error = numpy.abs(o - asked.v.astype(float)[:, :1]).max()
    assert error <= 0.03, f"the constant comes out off by {error:.3g}"  # NaN is not below it


@case(
    "thu-ml/SageAttention#340",
    "SageAttention-3",
    "causal attention of few bits is off by 2.7 of values of N(0, 1)",
    "quantized causal attention is off by 0.25 at most, 0.03 in root mean square",
)
def check_quantized_causal(library, run):
    asked = dense(run.rng, seqlen_q=run.pick(150, 2048), heads=2, head_dim=128, causal=True)
    difference = library.quantized(asked).o - solve(asked).o
    worst, mean = numpy.abs(difference).max(), (difference**2).mean() ** 0.5
    assert worst <= 0.25 and mean <= 0.03, f"o is off by {worst:.3g}, {mean:.3g} in root mean square"
