"""O, dQ, dK and dV in fp32 beside 16-bit q, k and v: parts of sums over ranks, which are rounded once."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import exact_attention, random_qkv
from seeded import some

SHARE = 2  # kernels take long to compile
CAUSAL = ja.mask.causal()


def keep(b, h, q, k):
    return q >= k


def assert_rounded(wide, narrow):
    """But for one rounding, and another config of the kernel."""
    assert numpy.isfinite(wide).all()
    assert numpy.abs(wide - narrow).max() <= 1.2e-2 * numpy.abs(narrow).max()


@pytest.fixture(autouse=True)
def hopper():
    if ja.devices()[0].arch != "sm_90a":
        pytest.skip("kernels of sm_90a write fp32")


@pytest.mark.parametrize("head_dim, heads_kv", some([(64, 4), (128, 2)]))
def test_fp32_is_what_is_rounded_to_16_bits(rng, place, fetch, head_dim, heads_kv):
    q, k, v = random_qkv(rng, seqlen_q=90, seqlen_kv=90, heads_q=4, heads_kv=heads_kv, head_dim=head_dim, dtype="bf16")
    do = rng.standard_normal(q.shape).astype(q.dtype)
    q_, k_, v_, do_ = map(place, (q, k, v, do))
    wide, lse = ja.attention(q_, k_, v_, mask=CAUSAL, return_lse=True, out_dtype="fp32")
    narrow, _ = ja.attention(q_, k_, v_, mask=CAUSAL, return_lse=True)
    exact = exact_attention(q, k, v, keep=keep)
    exact.check(fetch(wide), fetch(lse))
    assert_rounded(fetch(wide), fetch(narrow))

    gradients = [place(numpy.full(x.shape, numpy.nan, numpy.float32)) for x in (q, k, v)]
    found = ja.attention_backward(do_, q_, k_, v_, wide, lse, mask=CAUSAL, deterministic=True,
                                  **dict(zip(("dq", "dk", "dv"), gradients)))
    rounded = ja.attention_backward(do_, q_, k_, v_, narrow, lse, mask=CAUSAL, deterministic=True)
    for own, other in zip(found, rounded):
        assert (fetch(own).astype(q.dtype) != fetch(own)).mean() > 0.5
        assert_rounded(fetch(own), fetch(other))


def test_varlen_rows_and_large_ones(rng, place, fetch):
    """Rows behind the last are not written. Scores of 2^17 and more take the way of large rows."""
    lengths = numpy.array([0, 33, 80], numpy.int32)
    q, k, v = (x[0] for x in random_qkv(rng, seqlen_q=90, seqlen_kv=90, heads_q=2, head_dim=64, dtype="bf16"))
    k[40:60] *= 3e5
    q_, k_, v_, cu = map(place, (q, k, v, lengths))
    packed = dict(mask=CAUSAL, cu_seqlens_q=cu, cu_seqlens_k=cu)
    out = place(numpy.full(q.shape, 7, numpy.float32))
    o, lse = ja.attention(q_, k_, v_, out=out, out_dtype="fp32", return_lse=True, **packed)
    narrow, _ = ja.attention(q_, k_, v_, return_lse=True, **packed)
    assert (fetch(o)[80:] == 7).all()
    assert_rounded(fetch(o)[:80], fetch(narrow)[:80])
    results = {name: place(numpy.full(q.shape, 7, numpy.float32)) for name in ("dq", "dk", "dv")}
    found = ja.attention_backward(q_, q_, k_, v_, o, lse, **results, **packed)
    rounded = ja.attention_backward(q_, q_, k_, v_, place(fetch(o).astype(q.dtype)), lse, **packed)
    for own, other in zip(found, rounded):
        own, other = fetch(own), fetch(other)
        assert (own[80:] == 7).all()
        assert_rounded(own[:80], other[:80])


def test_what_is_refused(rng, place):
    q, k, v = map(place, random_qkv(rng, seqlen_q=20, seqlen_kv=20, head_dim=64))
    with pytest.raises(ja.InvalidSpecError, match="out_dtype = bf16 must be that of q, fp16, fp8_e4m3, int8, or fp32"):
        ja.attention(q, k, v, out_dtype="bf16")
    with pytest.raises(ja.InvalidSpecError, match="without pages and split_keys"):
        ja.attention(q, k, v, out_dtype="fp32", split_keys=64)
    assert any("out_dtype" in str(refusal) for refusal in ja.refusals("sm_80", dtype="bf16", head_dim=64, out_dtype="fp32"))
    o, lse = ja.attention(q, k, v, return_lse=True)
    wide = place(numpy.zeros(q.shape, numpy.float32))
    with pytest.raises(ja.InvalidArgumentError, match="^(o|dq|dv): "):
        ja.attention_backward(q, q, k, v, o, lse, dk=wide)
