"""Random calls of serving, with all that these may have together, against double precision.

JIT_ATTENTION_TEST_SWEEP says how many, JIT_ATTENTION_TEST_SEED which, JIT_ATTENTION_TEST_CALL runs one of them again.
"""

import os
from dataclasses import dataclass

import jit_attention as ja
import numpy
from exact_attention import DTYPES, exact_attention
from fp8_caches import FP8
from request_batches import Requests, boundaries, causal, int32, paged, requests
from seeded import SEED

UNTOUCHED = 7.0


def mask_none(rng, batch):
    return None, {}, None


def mask_causal(rng, batch):
    return ja.mask.causal(), {}, causal


def mask_window(rng, batch):
    left, right = int(rng.integers(0, 90)), int(rng.integers(0, 4))

    def keep(b, h, i, j, n, m):
        return (i + m - n - j <= left) & (j - (i + m - n) <= right)

    return ja.mask.sliding_window(left, right), {}, keep


def mask_text(rng, batch):
    limit = int32(rng.integers(0, 300, len(batch.q)))
    mask = ja.mask.text("return (k <= q + seqlen_kv - seqlen_q && (k * 7 + q + h + b) % 5 != 0) || k < limit[b];",
                        name="holes", tensors={"limit": "int32"})

    def keep(b, h, i, j, n, m):
        return (j <= i + m - n) & ((j * 7 + i + h + b) % 5 != 0) | (j < limit[b])

    return mask, {"limit": limit}, keep


def mask_prefix(rng, batch):
    lengths = int32(rng.integers(-3, 200, len(batch.q)))

    def keep(b, h, i, j, n, m):
        return (j < lengths[b]) | (j <= i + m - n) & (i + m - n - j <= 8)

    return ja.mask.prefix_lengths() | ja.mask.sliding_window(8, 0), {"prefix_lengths": lengths}, keep


def mask_per_request(rng, batch):
    is_causal = int32(rng.integers(0, 2, len(batch.q)))

    def keep(b, h, i, j, n, m):
        return causal(b, h, i, j, n, m) if is_causal[b] else j >= 0

    return ja.mask.causal_per_request(), {"is_causal": is_causal}, keep


def score_none(rng, batch):
    return None, {}, None


def score_softcap(rng, batch):
    return ja.score.softcap(5.0), {}, lambda s, b, h, i, j, n, m: 5 * numpy.tanh(s / 5)


def score_alibi(rng, batch):
    slopes = rng.random((len(batch.q), batch.q[0].shape[1])).astype(numpy.float32) / 5

    def score(s, b, h, i, j, n, m):
        return s - slopes[b].reshape(1, -1, 1, 1) * abs(i + m - n - j)

    return ja.score.alibi(), {"alibi_slopes": slopes}, score


def score_text(rng, batch):
    score = ja.score.text("return score * 0.5f - 0.01f * (float)(seqlen_kv - k) + 0.1f * h;", name="tilted")
    return score, {}, lambda s, b, h, i, j, n, m: s * 0.5 - 0.01 * (m - j) + 0.1 * h


MASKS = [mask_none, mask_causal, mask_window, mask_text, mask_prefix, mask_per_request]
SCORES = [score_none, score_none, score_softcap, score_alibi, score_text]


@dataclass
class Call:
    """The arrays of a call, what it is asked for, and what each request must come out with."""

    arrays: dict
    options: dict
    spec: ja.AttentionSpec
    asked: Requests  #: with keys and values as numbers
    keep: object
    score: object
    needs_copies: bool  #: TMA cannot read its cache

    def may_have(self, config):
        """Whether kernels of this config read what the arrays say of lengths, and the cache as it lies."""
        is_dense = {self.spec.sequences_q, self.spec.sequences_kv} == {"dense"}
        reads_lengths = not is_dense or config["family"].startswith("forward_split")
        return reads_lengths and (not self.needs_copies or config.get("copies") == "cp_async")

    def expected(self, b):
        """o (queries, heads, head_dim_v), lse (heads, queries), and what o may be off by."""
        q, k, v = self.asked.q[b], self.asked.k[b], self.asked.v[b]
        sizes = len(q), len(k)
        exact = exact_attention(
            q[None], k[None], v[None],
            keep=self.keep and (lambda _, h, i, j: self.keep(b, h, i, j, *sizes)),
            score=self.score and (lambda s, _, h, i, j: self.score(s, b, h, i, j, *sizes)),
            p_dtype=DTYPES[self.spec.dtype],
        )
        o, lse = exact.o[0], exact.lse[0]
        if self.spec.sinks:
            sink = self.arrays["sinks"].astype(numpy.float64)[:, None]
            whole = numpy.logaddexp(lse, sink)
            o, lse = o * numpy.exp(lse - whole).T[..., None], whole
        return o, lse, 2 * exact.plain_error + exact.rounding


def padded(rows, length):
    """The inputs of requests one by one, NaN behind each."""
    whole = numpy.full((len(rows), length, *rows[0].shape[1:]), numpy.nan, numpy.float32).astype(rows[0].dtype)
    for own, place in zip(rows, whole):
        place[: len(own)] = own
    return whole


def with_pads(rows, pads):
    return [numpy.concatenate([padded([x[:0]], pad)[0], x]) for pad, x in zip(pads, rows)]


def random_call(rng):
    def one_of(*choices):
        return choices[rng.integers(len(choices))]

    count, heads_kv, head_dim = one_of(1, 2, 3, 4), one_of(1, 2), one_of(32, 64, 80, 128)
    dtype = one_of("bf16", "fp16")
    batch = requests(
        rng, [one_of(0, 1, 1, 2, 7, 20, 40, 70) for _ in range(count)],
        [one_of(0, 1, 17, 64, 65, 150, 260) for _ in range(count)],
        heads_kv=heads_kv, ratio=one_of(1, 3, 4, 8), head_dim=head_dim, head_dim_v=one_of(head_dim, 64),
        dtype=DTYPES[dtype],
    )
    mask, of_mask, keep = one_of(*MASKS)(rng, batch)
    score, of_score, meaning = one_of(*SCORES)(rng, batch)
    arrays, options = {}, {"tensors": of_mask | of_score, "num_splits": one_of(0, 0, 1, 2, 5)}
    spec = {"dtype": dtype, "head_dim": head_dim, "head_dim_v": batch.v[0].shape[2], "mask": mask, "score": score,
            "gqa_ratio": batch.q[0].shape[1] // heads_kv, "sinks": one_of(False, False, True),
            "split_keys": one_of(0, 0, 64, 128)}
    if spec["sinks"]:
        arrays["sinks"] = 2 * rng.standard_normal(batch.q[0].shape[1]).astype(numpy.float32)

    stored, asked = batch, batch
    if one_of(False, False, True):
        spec["kv_dtype"] = one_of(*FP8)
        scales = {name: rng.uniform(0.2, 2, heads_kv).astype(numpy.float32) for name in ("k", "v")}
        codes = {name: [x.astype(FP8[spec["kv_dtype"]]) for x in getattr(batch, name)] for name in ("k", "v")}
        arrays |= {f"{name}_descale": scale for name, scale in scales.items()}
        wide = {name: [x.astype(numpy.float64) * scales[name][:, None] for x in codes[name]] for name in ("k", "v")}
        stored, asked = Requests(batch.q, **codes), Requests(batch.q, **wide)

    pads = [0] * count
    if one_of(False, False, True):
        pads = [int(rng.integers(0, 30)) for _ in pads]
        arrays["cache_leftpad"] = int32(pads)
    stored = Requests(batch.q, with_pads(stored.k, pads), with_pads(stored.v, pads))
    kind = one_of("dense", "varlen", "paged", "paged", "paged")
    spec["sequences_kv"] = kind
    if kind == "paged":
        spec["page_size"] = one_of(1, 5, 16, 32, 64, 100)
        arrays |= paged(rng, stored, spec["page_size"], layout=one_of("NHD", "HND"))
    elif kind == "varlen":
        arrays |= {"k": numpy.concatenate(stored.k), "v": numpy.concatenate(stored.v),
                   "cu_seqlens_k": boundaries(stored.lengths_k)}
    else:
        most = max(1, *stored.lengths_k, 1)
        arrays |= {"k": padded(stored.k, most), "v": padded(stored.v, most), "seqused_k": int32(stored.lengths_k)}

    spec["sequences_q"] = one_of("dense", "varlen")
    if spec["sequences_q"] == "varlen":
        spare = padded([batch.q[0][:0]], one_of(0, 3))[0]
        arrays |= {"q": numpy.concatenate([*batch.q, spare]), "cu_seqlens_q": boundaries(batch.lengths_q)}
    else:
        arrays |= {"q": padded(batch.q, max(1, *batch.lengths_q, 1)), "seqused_q": int32(batch.lengths_q)}
    options["zero_padding"] = one_of(False, False, True)
    return Call(arrays, options, ja.AttentionSpec(**spec), asked, keep, meaning,
                needs_copies=kind == "paged" and "cache_leftpad" in arrays)


def own_rows(call, array, b, axis):
    """The rows of a request in q, o or lse; `axis` is that of rows where they are varlen."""
    lengths = call.asked.lengths_q
    if call.spec.sequences_q == "dense":
        return array[b].take(range(lengths[b]), axis)
    begin = sum(lengths[:b])
    return array.take(range(begin, begin + lengths[b]), axis)


def check(call, o, lse):
    lengths = call.asked.lengths_q
    for b in range(len(lengths)):
        expected, expected_lse, allowed = call.expected(b)
        got, got_lse = own_rows(call, o, b, 0), own_rows(call, lse, b, 1)
        assert numpy.abs(got - expected).max(initial=0) <= allowed, f"o of request {b}, of which {allowed} is allowed"
        assert numpy.array_equal(numpy.isneginf(got_lse), numpy.isneginf(expected_lse)), f"lse of request {b}"
        seen = ~numpy.isneginf(expected_lse)
        assert numpy.abs(got_lse[seen] - expected_lse[seen]).max(initial=0) < 2e-3, f"lse of request {b}"
    beyond = [o[sum(lengths):]] if call.spec.sequences_q == "varlen" else [x[n:] for x, n in zip(o, lengths)]
    for rows in beyond:
        assert (rows == (0 if call.options["zero_padding"] else UNTOUCHED)).all(), "rows of no query"


def compute(call, config, place, fetch):
    shape = (*call.arrays["q"].shape[:-1], call.spec.head_dim_v)
    out = place(numpy.full(shape, UNTOUCHED, call.arrays["q"].dtype))
    arrays = {name: place(array) for name, array in call.arrays.items()}
    tensors = {name: place(array) for name, array in call.options["tensors"].items()}
    attention = ja.prepare(call.spec, config=config)
    q, k, v = (arrays.pop(name) for name in "qkv")
    o, lse = attention(q, k, v, out=out, return_lse=True, **arrays, **call.options | {"tensors": tensors})
    check(call, fetch(o), fetch(lse))


def test_random_calls(place, fetch):
    arch = ja.devices()[0].arch
    count = int(os.environ.get("JIT_ATTENTION_TEST_SWEEP", 5 if ja.devices()[0].emulated else 60))
    only = os.environ.get("JIT_ATTENTION_TEST_CALL")
    for number in range(count) if only is None else [int(only)]:
        rng = numpy.random.default_rng((SEED, number))
        call = random_call(rng)
        configs = [config for config in ja.candidate_configs(call.spec, arch) if call.may_have(config)]
        config = configs[int(rng.integers(len(configs)))] if configs and rng.integers(2) else None
        try:
            compute(call, config, place, fetch)
        except Exception as error:
            lengths = call.asked.lengths_q, call.asked.lengths_k
            raise AssertionError(f"JIT_ATTENTION_TEST_SEED={SEED} JIT_ATTENTION_TEST_CALL={number} runs it again: "
                                 f"{call.spec}, config {config}, lengths {lengths}, {sorted(call.arrays)}, "
                                 f"{call.options}") from error
