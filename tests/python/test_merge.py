"""merge() against double precision, and what it refuses."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import DTYPES, exact_attention, random_qkv

FP32 = numpy.dtype(numpy.float32)


def exact_merge(outs, lses):
    """The merge of (states, ..., heads, head_dim) and (states, ..., tokens) with heads before tokens."""
    lses = numpy.where(numpy.isposinf(lses), -numpy.inf, lses.astype(numpy.float64))
    largest = lses.max(0)
    finite = numpy.where(numpy.isneginf(largest), 0, largest)
    weights = numpy.exp(lses - finite)
    total = weights.sum(0)
    with numpy.errstate(divide="ignore"):
        lse = numpy.log(total) + finite
    shares = numpy.swapaxes(weights / numpy.where(total == 0, 1, total), -1, -2)[..., None]
    outs = numpy.where(shares == 0, 0, outs.astype(numpy.float64))
    return (shares * outs).sum(0), lse


def random_states(rng, states, shape, dtype=FP32, empty=0.25):
    """Outputs (states, *shape) and lses, of which some have no keys, and NaN for output."""
    outs = rng.standard_normal((states, *shape)).astype(dtype)
    lses = (20 * rng.standard_normal((states, *shape[:-1]))).astype(numpy.float32)
    dropped = rng.random(lses.shape) < empty
    dropped.reshape(states, -1)[:, 0] = True  # a row without keys in any
    outs[dropped] = numpy.nan
    lses[dropped] = rng.choice([-numpy.inf, numpy.inf], dropped.sum())
    return outs, numpy.ascontiguousarray(numpy.swapaxes(lses, -1, -2))


def check(fetch, result, expected, dtype):
    o, lse = map(fetch, result)
    tolerance = {"float32": 1e-6, "float16": 2**-11, "bfloat16": 2**-8}[dtype.name]
    assert o.shape == expected[0].shape and lse.shape == expected[1].shape
    numpy.testing.assert_allclose(o, expected[0], rtol=tolerance, atol=1e-5)
    numpy.testing.assert_allclose(lse, expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("states", [1, 2, 7, 33])
@pytest.mark.parametrize("shape", [(5, 3, 64), (2, 5, 3, 40)], ids=["varlen", "dense"])
def test_equals_double_precision(rng, place, fetch, states, shape):
    outs, lses = random_states(rng, states, shape)
    expected = exact_merge(outs, lses)
    if outs.ndim == 4:
        check(fetch, ja.merge(place(outs), place(lses)), expected, FP32)
    if states <= 32:
        check(fetch, ja.merge([place(o.copy()) for o in outs], [place(lse.copy()) for lse in lses]), expected, FP32)


def test_a_stack_of_five_dimensions_is_its_slices(rng, emulated, fetch):
    outs, lses = random_states(rng, 4, (2, 5, 3, 16))
    if emulated:
        check(fetch, ja.merge(outs, lses), exact_merge(outs, lses), FP32)
    torch = pytest.importorskip("torch")  # whose tensors are no sequences to Python's C interface
    device = "cpu" if emulated else "cuda"
    result = ja.merge(torch.from_numpy(outs).to(device), torch.from_numpy(lses).to(device))
    check(fetch, result, exact_merge(outs, lses), FP32)


@pytest.mark.parametrize("in_name", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("out_name", ["bf16", "fp16", "fp32"])
def test_types(rng, place, fetch, in_name, out_name):
    types = DTYPES | {"fp32": FP32}
    outs, lses = random_states(rng, 3, (4, 2, 72), types[in_name])
    result = ja.merge(place(outs), place(lses), out_dtype=out_name)
    assert str(result[0].dtype).endswith(types[out_name].name)
    check(fetch, result, exact_merge(outs, lses), types[out_name])


def test_lse_as_others_write_it(rng, place, fetch):
    """(tokens, heads) of SGLang, and (states, batch, tokens, heads) of flash_attn_combine, as transposed views."""
    outs, lses = random_states(rng, 2, (6, 4, 32), DTYPES["bf16"])
    by_token = numpy.ascontiguousarray(numpy.swapaxes(lses, 1, 2))
    views = numpy.swapaxes(by_token, 1, 2)
    check(fetch, ja.merge(place(outs), place(views)), exact_merge(outs, lses), DTYPES["bf16"])


def test_out_is_written_and_returned(rng, place, fetch):
    outs, lses = random_states(rng, 2, (5, 3, 16))
    whole = place(numpy.full((5, 3, 48), numpy.nan, numpy.float32))
    out, out_lse = whole[..., 16:32], place(numpy.full((3, 5), numpy.nan, numpy.float32))
    o, lse = ja.merge(place(outs), place(lses), out=out, out_lse=out_lse)
    assert o is out and lse is out_lse
    check(fetch, (o, lse), exact_merge(outs, lses), FP32)
    assert numpy.isnan(fetch(whole)[..., :16]).all() and numpy.isnan(fetch(whole)[..., 32:]).all()


def test_into_one_of_the_states(rng, place, fetch):
    outs, lses = random_states(rng, 3, (5, 3, 16), DTYPES["bf16"])
    parts = [place(o.copy()) for o in outs], [place(lse.copy()) for lse in lses]
    result = ja.merge(*parts, out=parts[0][1], out_lse=parts[1][1])
    check(fetch, result, exact_merge(outs, lses), DTYPES["bf16"])


def test_attention_over_parts_of_the_keys(rng, place, fetch):
    q, k, v = random_qkv(rng, batch=2, seqlen_q=9, seqlen_kv=150)
    cuts = [0, 64, 65, 150]
    states = [
        ja.attention(place(q), place(k[:, a:b].copy()), place(v[:, a:b].copy()), return_lse=True)
        for a, b in zip(cuts, cuts[1:])
    ]
    o, lse = ja.merge([o for o, _ in states], [lse for _, lse in states])
    exact_attention(q, k, v).check(fetch(o), fetch(lse))


def test_nan_is_not_hidden(rng, place, fetch):
    outs, lses = random_states(rng, 2, (2, 1, 8), empty=0)
    lses[0, 0, 1] = numpy.nan
    o, lse = ja.merge(place(outs), place(lses))
    assert numpy.isnan(fetch(o)[1]).all() and numpy.isnan(fetch(lse)[0, 1])


def test_repeated_runs_give_equal_bits(rng, place, fetch):
    outs, lses = map(place, random_states(rng, 7, (40, 8, 128), DTYPES["bf16"]))
    first = list(map(fetch, ja.merge(outs, lses)))
    for _ in range(3):
        assert all(numpy.array_equal(a, fetch(b)) for a, b in zip(first, ja.merge(outs, lses)))


@pytest.mark.parametrize("shape", [(0, 3, 16), (2, 0, 3, 16), (4, 0, 16)])
def test_nothing_to_do(place, shape):
    outs = [place(numpy.zeros(shape, numpy.float32))] * 2
    lse_shape = (*shape[:-3], shape[-2], shape[-3])
    o, lse = ja.merge(outs, [place(numpy.zeros(lse_shape, numpy.float32))] * 2)
    assert tuple(o.shape) == shape and tuple(lse.shape) == lse_shape


REFUSALS = {
    "outs": ({"outs": []}, "is empty"),
    "lses": ({"lses": []}, "has 0 arrays, and outs 2"),
    "outs[1]": ({"outs": [(4, 2, 16), (4, 3, 16)]}, "has heads = 3; it must be 2"),
    "lses[0]": ({"lses": [(4, 2), (2, 4)]}, "has heads = 4; it must be 2"),
    "out": ({"out": (4, 2, 8)}, "has head_dim_v = 8; it must be 16"),
    "out_lse": ({"out_lse": (4, 2)}, "has heads = 4; it must be 2"),
    "out_dtype": ({"out_dtype": "int32"}, "must be None"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_argument(place, name):
    def array(shape):
        return place(numpy.zeros(shape, numpy.float32))

    changes, message = REFUSALS[name]
    shapes = {"outs": [(4, 2, 16)] * 2, "lses": [(2, 4)] * 2} | changes
    arguments = {
        key: value
        if isinstance(value, str)
        else ([array(shape) for shape in value] if isinstance(value, list) else array(value))
        for key, value in shapes.items()
    }
    with pytest.raises(ja.InvalidArgumentError, match=message) as refusal:
        ja.merge(**arguments)
    assert refusal.value.field == name


def test_too_many_views_are_refused(rng, place):
    arrays = [place(numpy.zeros((4, 2 + i % 2, 16), numpy.float32)[:, :2]) for i in range(40)]
    lses = [place(numpy.zeros((2, 4), numpy.float32)) for _ in range(40)]
    with pytest.raises(ja.InvalidArgumentError, match="more than 32 views") as refusal:
        ja.merge(arrays, lses)
    assert refusal.value.field == "outs"


def test_specs_that_cannot_be_served(place):
    with pytest.raises(ja.InvalidSpecError, match="head_dim_v = 1025"):
        ja.merge(place(numpy.zeros((2, 4, 2, 1025), numpy.float32)), place(numpy.zeros((2, 2, 4), numpy.float32)))
