"""Results over several calls, each of other keys: o and LSE continue in fp32."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import exact_attention, random_qkv
from seeded import some


@pytest.fixture(autouse=True)
def hopper():
    if ja.devices()[0].arch != "sm_90a":
        pytest.skip("kernels of sm_90a write fp32")


def continued(place, q, k, v, parts, **options):
    """o and LSE of calls that have keys [begin, end) each."""
    q_ = place(q)
    o = place(numpy.full((*q.shape[:3], v.shape[3]), numpy.nan, numpy.float32))
    lse = place(numpy.full((q.shape[0], q.shape[2], q.shape[1]), -numpy.inf, numpy.float32))
    for begin, end in parts:
        k_, v_ = (place(numpy.ascontiguousarray(x[:, begin:end])) for x in (k, v))
        found, outputs = ja.attention(q_, k_, v_, out=o, out_dtype="fp32", return_aux={"running_lse": lse}, **options)
        assert found is o and outputs["running_lse"] is lse
    return o, lse


@pytest.mark.parametrize("head_dim, heads_kv, m, n, parts", some([
    (64, 1, 90, 200, [(0, 64), (64, 200)]), (128, 4, 65, 150, [(100, 150), (0, 1), (1, 100)]),
    (256, 2, 33, 70, [(0, 70)]), (40, 4, 7, 300, [(200, 300), (0, 200)])]))
def test_parts_of_keys(rng, place, fetch, head_dim, heads_kv, m, n, parts):
    q, k, v = random_qkv(rng, batch=2, seqlen_q=m, seqlen_kv=n, heads_q=4, heads_kv=heads_kv, head_dim=head_dim, dtype="bf16")
    exact = exact_attention(q, k, v)
    o, lse = continued(place, q, k, v, parts)
    exact.check(fetch(o), fetch(lse))
    whole = fetch(ja.attention(*map(place, (q, k, v)), out_dtype="fp32"))
    error = numpy.sqrt(numpy.mean((fetch(o) - exact.o) ** 2)), numpy.sqrt(numpy.mean((whole - exact.o) ** 2))
    assert error[0] <= 1.02 * error[1]
    again, lse_again = continued(place, q, k, v, parts)
    assert (fetch(o) == fetch(again)).all() and (fetch(lse) == fetch(lse_again)).all()


def test_masks_sinks_and_rows_without_keys(rng, place, fetch):
    """A causal mask by positions: the second half of the keys is seen by none of the first queries. Sinks count once."""
    q, k, v = random_qkv(rng, seqlen_q=120, seqlen_kv=120, heads_q=2, head_dim=64, dtype="bf16")
    sinks = rng.standard_normal(2).astype(numpy.float32)
    lengths = place(numpy.array([[120, 120]], numpy.int32))
    q_, sinks_ = place(q), place(sinks)
    o, lse = place(numpy.full(q.shape, numpy.nan, numpy.float32)), place(numpy.full((1, 2, 120), -numpy.inf, numpy.float32))
    for begin, end in ((60, 120), (0, 60)):
        pieces = place(numpy.array([[[0, begin, 60, 60]]], numpy.int32))
        k_, v_ = (place(numpy.ascontiguousarray(x[:, begin:end])) for x in (k, v))
        ja.attention(q_, k_, v_, out=o, out_dtype="fp32", return_aux={"running_lse": lse}, mask=ja.mask.causal(),
                     k_positions=pieces, global_seqlens=lengths, **({"sinks": sinks_} if begin == 0 else {}))
        if begin == 60:
            assert (fetch(o)[:, :60] == 0).all() and (fetch(lse)[..., :60] == -numpy.inf).all()
    exact = exact_attention(q, k, v, keep=lambda b, h, i, j: i >= j)
    with_sinks = numpy.logaddexp(exact.lse, sinks[:, None])
    exact.o *= numpy.exp(exact.lse - with_sinks).transpose(0, 2, 1)[..., None]
    exact.lse = with_sinks
    exact.check(fetch(o), fetch(lse))


def test_what_is_refused(rng, place):
    q, k, v = map(place, random_qkv(rng, seqlen_q=20, seqlen_kv=20, heads_q=2, head_dim=64, dtype="bf16"))
    state = {"running_lse": place(numpy.zeros((1, 2, 20), numpy.float32))}
    with pytest.raises(ja.InvalidArgumentError, match="out: is missing; running_lse belongs to the results of earlier calls"):
        ja.attention(q, k, v, out_dtype="fp32", return_aux=state)
    out = place(numpy.zeros((1, 20, 2, 64), numpy.float32))
    asked = dict(out=out, out_dtype="fp32")
    with pytest.raises(ja.InvalidSpecError, match="running_lse .*must be false with an output functor"):
        ja.attention(q, k, v, return_aux=state, output=ja.output.scale(), tensors={"scale": place(numpy.ones(2, numpy.float32))}, **asked)
    with pytest.raises(ja.InvalidSpecError, match="running_lse .*must be false with mean_score"):
        ja.attention(q, k, v, return_aux=state | {"mean_score": None}, **asked)
    with pytest.raises(ja.InvalidSpecError, match="unless q, k and v have 16 bits and out_dtype is fp32"):
        ja.attention(q, k, v, return_aux=("running_lse",))
