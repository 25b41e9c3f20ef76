"""quantize_qkv() against double precision: elements, scales, means, and attention of what it makes."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import DTYPES
from test_append import angles_at, exact_rows, random_table

SHARE = 9  # kernels take long to compile

LARGEST = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0}
KINDS = {"fp8_e4m3": ml_dtypes.float8_e4m3fn, "fp8_e5m2": ml_dtypes.float8_e5m2}


def inputs(rng, kind, varlen=False, seqlen_q=6, seqlen_kv=20, bias=0.0):
    shapes = [(seqlen_q, 4, 64), (seqlen_kv, 2, 64), (seqlen_kv, 2, 32)]
    drawn = [rng.standard_normal(shape if varlen else (2, *shape)) for shape in shapes]
    drawn[1] += bias * rng.standard_normal((2, 64))
    drawn[2] += bias
    return [x.astype(kind) for x in drawn]


def in_numbers(fetch, elements, scales):
    return fetch(elements) * fetch(scales).astype(numpy.float64)


def near(fetch, made, scale, exact, out_dtype="fp8_e4m3"):
    """Within half of an element's spacing, which is at most 2^-3 (e5m2: 2^-2) of the number."""
    step = 2.0**-4 if out_dtype == "fp8_e4m3" else 2.0**-3
    least = 2.0**-10 if out_dtype == "fp8_e4m3" else 2.0**-17
    scale = numpy.broadcast_to(scale, exact.shape)
    difference = numpy.abs(in_numbers(fetch, made, scale) - exact)
    assert (difference <= 1.001 * step * numpy.abs(exact) + (least + 1e-3) * scale).all()


@pytest.mark.parametrize("varlen", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_elements_and_scales(rng, place, fetch, dtype, varlen):
    kind = numpy.float32 if dtype == "fp32" else DTYPES[dtype]
    for out_dtype, scales, value_scales in (("fp8_e4m3", "token", "head"), ("fp8_e5m2", "head", "channel")):
        q, k, v = inputs(rng, kind, varlen)
        made = ja.quantize_qkv(
            place(q), place(k), place(v), out_dtype=out_dtype, scales=scales, value_scales=value_scales
        )
        for given, elements, scale, by in (
            (q, made.q, made.q_descale, scales),
            (k, made.k, made.k_descale, scales),
            (v, made.v, made.v_descale, value_scales),
        ):
            exact = given.astype(numpy.float64)
            axes = {"token": -1, "head": (-3, -1), "channel": -3}[by]
            largest = numpy.abs(exact).max(axes, keepdims=True)
            if given is q and by == "head":  # of the queries that share keys
                largest = largest.reshape(*largest.shape[:-2], 2, 2, 1).max(-2, keepdims=True).repeat(2, -2)
                largest = largest.reshape(*exact.shape[:-3], 1, 4, 1)
            expected = (largest / LARGEST[out_dtype]).squeeze(axes)
            if given is q and by == "head":
                expected = expected[..., ::2]
            numpy.testing.assert_allclose(fetch(scale), expected, rtol=1e-5)
            near(fetch, elements, largest / LARGEST[out_dtype], exact, out_dtype)
        assert made.k_mean is None and made.v_mean is None and made.lse_shift is None


@pytest.mark.parametrize("varlen", [False, True])
def test_scales_of_blocks(rng, place, fetch, varlen):
    """Blocks of 64 rows from the first of a batch entry, or of all varlen rows, and a last, smaller one."""
    q, k, v = inputs(rng, numpy.float32, varlen, seqlen_q=70, seqlen_kv=140)
    made = ja.quantize_qkv(place(q), place(k), place(v), scales="block")
    for given, elements, scale in ((q, made.q, made.q_descale), (k, made.k, made.k_descale)):
        largest = numpy.abs(given).max(-1)
        blocks = [largest[..., i : i + 64, :].max(-2) for i in range(0, largest.shape[-2], 64)]
        expected = numpy.stack(blocks, -2) / 448.0
        numpy.testing.assert_allclose(fetch(scale), expected, rtol=1e-5)
        of_rows = expected.repeat(64, -2)[..., : largest.shape[-2], :]
        near(fetch, elements, of_rows[..., None], given.astype(numpy.float64))


def test_given_scales_and_arrays_to_write_to(rng, place, fetch):
    q, k, v = (place(x) for x in inputs(rng, DTYPES["bf16"]))
    scale = place(numpy.array([0.02], numpy.float32))
    first = ja.quantize_qkv(q, k, v, scales="given", value_scales="given", q_descale=scale, k_descale=scale)
    assert first.q_descale is scale and first.v_descale is None
    near(fetch, first.q, 0.02, fetch(q))
    near(fetch, first.v, 1.0, fetch(v))
    held = place(numpy.zeros(fetch(q).shape, numpy.uint8))
    again = ja.quantize_qkv(
        q, k, v, scales="given", value_scales="given", q_descale=scale, k_descale=scale, q_out=held
    )
    assert again.q is held
    bits = fetch(again.q).astype(numpy.uint8)
    numpy.testing.assert_array_equal(bits, fetch(first.q).astype(KINDS["fp8_e4m3"]).view(numpy.uint8))


def test_norm_and_positions(rng, place, fetch):
    """As `append` has them, before anything else; a row without a position is NaN."""
    q, k, v = inputs(rng, DTYPES["bf16"])
    weights = [rng.standard_normal(64).astype(numpy.float32) for _ in "qk"]
    table = random_table(rng, 32)
    positions = rng.integers(0, len(table), (2, 6))
    positions[1, 3] = len(table)
    made = ja.quantize_qkv(
        *(place(x) for x in (q, k, v)),
        cos_sin=place(table),
        q_positions=place(positions),
        q_norm_weight=place(weights[0]),
        k_norm_weight=place(weights[1]),
    )
    at = [numpy.minimum(positions, len(table) - 1), numpy.broadcast_to(numpy.arange(20), (2, 20))]
    for name, rows, weight, where in zip("qk", (q, k), weights, at):
        exact = numpy.stack([
            exact_rows(rows[b], angles=angles_at(table, where[b]), weight=weight) for b in range(2)
        ])  # fmt: skip
        largest = numpy.abs(exact).max(-1, keepdims=True)
        elements, scale = fetch(getattr(made, name)), fetch(getattr(made, f"{name}_descale"))
        if name == "q":
            assert numpy.isnan(elements[1, 3]).all() and (scale[1, 3] == 1).all()
            elements[1, 3] = exact[1, 3] / scale[1, 3][:, None]
            largest[1, 3] = 448
        numpy.testing.assert_allclose(scale, largest[..., 0] / 448, rtol=1e-4)
        near(fetch, elements, largest / 448, exact)


def exact_attention(q, k, v, scale):
    q, k, v = (numpy.swapaxes(x.astype(numpy.float64), 1, 2) for x in (q, k, v))
    k, v = (x.repeat(2, 1) for x in (k, v))
    scores = q @ numpy.swapaxes(k, -1, -2) * scale
    lse = numpy.log(numpy.exp(scores - scores.max(-1, keepdims=True)).sum(-1)) + scores.max(-1)
    return numpy.swapaxes(numpy.exp(scores - lse[..., None]) @ v, 1, 2), lse


def test_attention_of_what_it_makes(rng, place, fetch):
    """Subtracted means are added again, and lower the error."""
    q, k, v = inputs(rng, DTYPES["bf16"], seqlen_kv=100, bias=8.0)
    right, right_lse = exact_attention(q, k, v, 0.125)
    errors = []
    every = dict(rotation_seed=5, center_keys=True, center_values=True, return_lse_shift=True, value_scales="channel")
    for options in ({}, every, every | dict(scales="block")):
        made = ja.quantize_qkv(place(q), place(k), place(v), **({"scales": "head"} | options))
        o, lse = ja.attention(made.q, made.k, made.v, **made.scales, out_dtype="fp32", return_lse=True)
        o, lse = fetch(o), fetch(lse)
        if options:
            assert numpy.abs(lse - right_lse).max() < 0.2
        errors.append(numpy.sqrt(((o - right) ** 2).mean() / (right**2).mean()))
    assert max(errors[1:]) < 0.02 and max(errors[1:]) < 0.4 * errors[0], errors


def test_rows_of_no_sequence(rng, place, fetch):
    """Behind lengths, and in varlen tensors around sequences: what is made of others is what is made without them."""
    q, k, v = inputs(rng, DTYPES["bf16"], seqlen_q=8, seqlen_kv=40, bias=2.0)
    used_q, used_k = numpy.array([5, 8], numpy.int32), numpy.array([33, 0], numpy.int32)
    for rows, used in ((q, used_q), (k, used_k), (v, used_k)):
        for b, n in enumerate(used):
            rows[b, n:] = numpy.nan
            rows[b, n::2] = 1000
    options = dict(scales="head", center_keys=True, center_values=True, return_lse_shift=True)
    made = ja.quantize_qkv(*map(place, (q, k, v)), seqused_q=place(used_q), seqused_k=place(used_k), **options)
    own = [numpy.ascontiguousarray(x) for x in (q[0, :5], k[0, :33], v[0, :33])]
    alone = ja.quantize_qkv(*map(place, own), **options)

    def same(together, by_itself, **near):
        numpy.testing.assert_allclose(together, fetch(by_itself), **near)

    for name, n in (("q", 5), ("k", 33), ("v", 33)):
        same(fetch(getattr(made, name))[0, :n], getattr(alone, name))
        same(fetch(getattr(made, f"{name}_descale"))[0], getattr(alone, f"{name}_descale"))
    for name in ("k_mean", "v_mean"):
        same(fetch(getattr(made, name))[0], getattr(alone, name), rtol=1e-6)
        assert (fetch(getattr(made, name))[1] == 0).all()
    same(fetch(made.lse_shift)[0, :, :5], alone.lse_shift, rtol=1e-6)

    bounds = [numpy.array(x, numpy.int32) for x in ([0, 8, 16], [0, 40, 80])]
    packed = [x.reshape(-1, *x.shape[2:]) for x in (q, k, v)]
    held = [place(numpy.full(x.shape, 7, numpy.uint8)) for x in packed]
    varlen = ja.quantize_qkv(
        *map(place, packed), cu_seqlens_q=place(bounds[0]), cu_seqlens_k=place(bounds[1]), seqused_q=place(used_q),
        seqused_k=place(used_k), q_out=held[0], k_out=held[1], v_out=held[2], **options,
    )  # fmt: skip
    bits = fetch(varlen.k)
    numpy.testing.assert_array_equal(bits[33:], 7)
    assert (bits[:33] != 7).any()
    same(fetch(varlen.k_mean), alone.k_mean, rtol=1e-6)  # the other sequence has no key


def test_values_have_a_row_for_each_token(rng, place):
    q, k, v = (place(x) for x in inputs(rng, DTYPES["bf16"], False))
    made = ja.quantize_qkv(q, k, v)
    turned = numpy.empty(tuple(v.shape[i] for i in (0, 2, 3, 1)), numpy.uint8).transpose(0, 3, 1, 2)
    with pytest.raises(ja.errors.InvalidArgumentError, match="give it with a row of head_dim for each token and head"):
        ja.quantize_qkv(q, k, v, v_out=place(turned))
    assert made.v.shape == v.shape


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"scales": "row"}, "scales", "is none of given, head, token, channel, block"),
        ({"scales": "channel"}, "scales", "must be one of given, head, token, block"),
        ({"value_scales": "token"}, "value_scales", "must be one of given, head, channel"),
        ({"return_lse_shift": True}, "return_lse_shift", "must be False where center_keys is False"),
        ({"k": (2, 20, 3, 64)}, "v", "has heads_kv = 2; it must be 3"),
        ({"q": (6, 64)}, "q", "has 2 dimensions"),
        ({"q": (2, 6, 4, 60)}, "q", "must be a multiple of 8"),
        ({"out_dtype": "bf16"}, "out_dtype", "fp8_e4m3"),
        ({"seqused_k": numpy.zeros(3, numpy.int32)}, "seqused_k", "has batch = 3; it must be 2"),
        ({"seqused_q": numpy.zeros(2, numpy.int64)}, "seqused_q", "is int64; it must be int32"),
        ({"cu_seqlens_k": numpy.zeros(3, numpy.int32)}, "cu_seqlens_k", "give seqused_k, or varlen q"),
    ],
)
def test_refusals(rng, place, change, error, words):
    arrays = dict(zip("qkv", inputs(rng, DTYPES["bf16"])))
    for name in set(change) & set(arrays):
        arrays[name] = numpy.zeros(change.pop(name), DTYPES["bf16"])
    change = {name: place(x) if isinstance(x, numpy.ndarray) else x for name, x in change.items()}
    with pytest.raises((ja.errors.InvalidArgumentError, ja.errors.InvalidSpecError)) as refused:
        ja.quantize_qkv(*(place(x) for x in arrays.values()), **change)
    assert refused.value.field == error and words in str(refused.value)


def test_rows_are_kept_or_read_twice(rng, place, fetch):
    shapes = [(2, 70, 4, 64), (2, 300, 2, 64), (2, 300, 2, 64)]
    arrays = [place(rng.standard_normal(shape).astype(DTYPES["bf16"])) for shape in shapes]
    options = dict(scales="head", center_keys=True, center_values=True, return_lse_shift=True)
    twice = ja.quantize_qkv(*arrays, keep_rows=False, **options)
    try:
        kept = ja.quantize_qkv(*arrays, keep_rows=True, **options)
    except ja.InvalidArgumentError as error:
        assert "sm_90a does" in str(error)
        return
    for name in ("q", "k", "v", "q_descale", "k_descale", "v_descale", "k_mean", "v_mean", "lse_shift"):
        assert fetch(getattr(kept, name)).tobytes() == fetch(getattr(twice, name)).tobytes(), name
    with pytest.raises(ja.InvalidSpecError, match="keep_rows"):
        ja.quantize_qkv(*arrays, keep_rows=True, value_scales="given")
