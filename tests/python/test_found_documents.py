"""Documents that follow one another, found on the device, beside ids in any order: o and LSE in double precision."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import DTYPES, random_qkv
from seeded import some

SEQLEN = 600  # up to three documents of an entry are sequences


def runs(rng, count):
    """Ids in runs, of names in any order."""
    cuts = numpy.sort(rng.choice(numpy.arange(1, SEQLEN), count - 1, replace=False))
    return numpy.repeat(rng.permutation(100)[:count], numpy.diff([0, *cuts, SEQLEN]))


IDS = {
    "runs": lambda rng: [runs(rng, 3), runs(rng, 2)],
    "one": lambda rng: [numpy.full(SEQLEN, 7), runs(rng, 1)],
    "an id comes back": lambda rng: [runs(rng, 2), numpy.arange(SEQLEN) // 250 % 2],
    "many": lambda rng: [runs(rng, 3), numpy.arange(SEQLEN) // 50],
}


def exact(q, k, v, keep):
    q, k, v = (x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    k, v = (numpy.repeat(x, q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = numpy.where(keep[:, None], q @ k.transpose(0, 1, 3, 2) * q.shape[-1] ** -0.5, -numpy.inf)
    largest = scores.max(-1, keepdims=True)
    weights = numpy.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    return (weights / total @ v).transpose(0, 2, 1, 3), (numpy.log(total) + largest)[..., 0]


@pytest.mark.parametrize("causal", some([False, True]))
def test_ids_of_each_call_decide(rng, place, fetch, causal):
    """Calls of one size with other ids each: nothing of the call before is left, and o begins as NaN."""
    inputs = random_qkv(
        rng, dtype="bf16", batch=2, seqlen_q=SEQLEN, seqlen_kv=SEQLEN, heads_q=2, heads_kv=1, head_dim=64
    )
    q, k, v = map(place, inputs)
    mask = ja.mask.causal() & ja.mask.document() if causal else ja.mask.document()
    for name in ("runs", "an id comes back", "one", "many", "runs"):
        ids = numpy.stack(IDS[name](rng)).astype(numpy.int32)
        tensors = dict(document_ids_q=place(ids), document_ids_kv=place(ids))
        out = place(numpy.full(inputs[0].shape, numpy.nan, DTYPES["bf16"]))
        o, lse = ja.attention(q, k, v, mask=mask, tensors=tensors, out=out, return_lse=True)
        alone = ja.attention(q, k, v, mask=mask, tensors=tensors)
        keep = ids[:, :, None] == ids[:, None, :]
        if causal:
            keep = keep & numpy.tri(SEQLEN, dtype=bool)
        expected, expected_lse = exact(*inputs, keep)
        assert numpy.abs(fetch(o) - expected).max() < 0.03, name
        assert numpy.abs(fetch(lse) - expected_lse).max() < 1e-3, name
        assert (fetch(alone) == fetch(o)).all(), name


def test_queries_of_other_documents(rng, place, fetch):
    """Ids of queries that differ from those of keys."""
    inputs = random_qkv(
        rng, dtype="bf16", batch=1, seqlen_q=SEQLEN, seqlen_kv=SEQLEN, heads_q=1, heads_kv=1, head_dim=64
    )
    ids = numpy.arange(SEQLEN)[None] // 300
    ids_q = (1 - ids).astype(numpy.int32)
    o = ja.attention(
        *map(place, inputs),
        mask=ja.mask.document(),
        tensors=dict(document_ids_q=place(ids_q), document_ids_kv=place(ids.astype(numpy.int32))),
    )
    expected, _ = exact(*inputs, ids_q[:, :, None] == ids[:, None, :])
    assert numpy.abs(fetch(o) - expected).max() < 0.03


def test_a_plan_serves_calls_of_other_lengths(rng, place, fetch):
    """Calls of one size class share a plan: more keys than queries, and q and o whose batch entries lie apart."""
    keys = SEQLEN + 130
    q, k, v = random_qkv(
        rng, dtype="bf16", batch=2, seqlen_q=SEQLEN, seqlen_kv=keys, heads_q=2, heads_kv=1, head_dim=64
    )
    ids = numpy.stack([numpy.arange(keys) // 250, numpy.arange(keys) // 300]).astype(numpy.int32)
    for seqlen_q, seqlen_kv in ((SEQLEN, SEQLEN), (SEQLEN, keys), (SEQLEN - 70, SEQLEN - 70), (SEQLEN, SEQLEN)):
        inputs = q[:, :seqlen_q], k[:, :seqlen_kv], v[:, :seqlen_kv]
        own = ids[:, :seqlen_q].copy(), ids[:, :seqlen_kv].copy()
        keep = own[0][:, :, None] == own[1][:, None, :]
        expected, expected_lse = exact(*inputs, keep)
        for are_apart in (False, True):
            given = inputs if are_apart else map(numpy.ascontiguousarray, inputs)
            tensors = dict(zip(("document_ids_q", "document_ids_kv"), map(place, own), strict=True))
            o, lse = ja.attention(*map(place, given), mask=ja.mask.document(), tensors=tensors, return_lse=True)
            assert numpy.abs(fetch(o) - expected).max() < 0.03, (seqlen_q, seqlen_kv, are_apart)
            assert numpy.abs(fetch(lse) - expected_lse).max() < 1e-3, (seqlen_q, seqlen_kv, are_apart)
