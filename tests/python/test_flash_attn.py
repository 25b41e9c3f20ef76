"""jit_attention.flash_attn over dense and varlen sequences, against double precision."""

import inspect
import pathlib
import re

import jit_attention as ja
import jit_attention.flash_attn as fa
import numpy
import pytest
from exact_attention import DTYPES, exact_attention, random_qkv
from flash_reference import flash_exact
from fp8_caches import FP8
from jit_attention.flash_attn import v3, v4
from seeded import some

SHARE = 9  # kernels take long to compile

PROBLEMS = {
    "plain": dict(heads_q=2, heads_kv=2),
    "grouped heads, causal, blind queries": dict(heads_q=4, heads_kv=2, seqlen_q=70, seqlen_kv=45, causal=True),
    "one head of keys, window": dict(heads_q=3, heads_kv=1, seqlen_q=33, seqlen_kv=90, window_size=(20, 5)),
    "causal window": dict(seqlen_q=50, seqlen_kv=77, causal=True, window_size=(13, 40)),
    "open to the left": dict(seqlen_q=50, seqlen_kv=77, window_size=(-1, 7)),
    "softcap and slopes": dict(heads_q=4, heads_kv=2, seqlen_kv=81, softcap=2.5, alibi=1, softmax_scale=0.3),
    "slopes of each entry, causal": dict(batch=2, seqlen_q=40, seqlen_kv=65, alibi=2, causal=True),
}


def drawn(rng, problem, dtype="bf16"):
    """q, k, v, the arguments of flash-attention, and the slopes among them."""
    names = "batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_kv"
    sizes = {name: problem[name] for name in names if name in problem}
    arguments = {name: value for name, value in problem.items() if name not in sizes and name != "alibi"}
    q, k, v = random_qkv(rng, head_dim=32, head_dim_v=40, dtype=dtype, **sizes)
    if "alibi" in problem:
        shape = (q.shape[0], q.shape[2])[2 - problem["alibi"] :]
        arguments["alibi_slopes"] = rng.uniform(0.01, 0.5, shape).astype(numpy.float32)
    return (q, k, v), arguments


def placed(place, arguments):
    return {name: place(x) if isinstance(x, numpy.ndarray) else x for name, x in arguments.items()}


@pytest.mark.parametrize("name", some(PROBLEMS))
def test_dense(rng, place, fetch, name):
    arrays, arguments = drawn(rng, PROBLEMS[name], "fp16" if name == "plain" else "bf16")
    o, lse, probabilities = fa.flash_attn_func(*map(place, arrays), return_attn_probs=True, **placed(place, arguments))
    assert probabilities is None
    flash_exact(*arrays, **arguments).check(fetch(o), fetch(lse))
    alone = fa.flash_attn_func(*map(place, arrays), **placed(place, arguments))
    assert numpy.array_equal(fetch(alone), fetch(o))


def test_arguments_by_position(rng, place, fetch):
    """Each version has an order of its own."""
    arrays, _ = drawn(rng, {"heads_q": 2})
    slopes = rng.uniform(0.01, 0.5, 2).astype(numpy.float32)
    here = tuple(map(place, arrays))
    expected = dict(softmax_scale=0.2, causal=True, window_size=(9, 9), softcap=3.0)
    o = fa.flash_attn_func(*here, 0.0, 0.2, True, (9, 9), 3.0, place(slopes), False, False)
    flash_exact(*arrays, alibi_slopes=slopes, **expected).check(fetch(o))
    o, lse = v3.flash_attn_func(*here, 0.2, True, None, None, None, None, (9, 9), 0, 3.0, 1, None, False, 0, True)
    flash_exact(*arrays, **expected).check(fetch(o), fetch(lse))
    o, lse = v4.flash_attn_func(*here, None, None, 0.2, True, (9, 9), None, 3.0)
    flash_exact(*arrays, **expected).check(fetch(o))
    assert lse is None


@pytest.mark.parametrize("window", some([(None, -7), (-9, None), (-5, 20), (30, -12), (-1, -1), (3, -4)]), ids=str)
def test_windows_of_version_4_may_lie_beside_a_query(rng, place, fetch, window):
    (q, k, v), _ = drawn(rng, {"heads_q": 2, "seqlen_q": 50, "seqlen_kv": 77})
    o, lse = v4.flash_attn_func(*map(place, (q, k, v)), window_size=window, return_lse=True)
    left, right = (None, None) if None not in window and sum(window) < 0 else window
    shift = 77 - 50

    def keep(b, h, i, j):
        return ((left is None) | (j >= i + shift - (left or 0))) & ((right is None) | (j <= i + shift + (right or 0)))

    exact_attention(q, k, v, keep=keep).check(fetch(o), fetch(lse))


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_sinks_of_version_4(rng, place, fetch, dtype):
    arrays, _ = drawn(rng, {"heads_q": 4, "heads_kv": 2, "seqlen_q": 40, "seqlen_kv": 30})
    sinks = rng.standard_normal(4).astype(DTYPES.get(dtype, numpy.dtype(numpy.float32)))
    o, lse = v4.flash_attn_func(
        *map(place, arrays), learnable_sink=place(sinks), causal=True, window_size=(12, None), return_lse=True
    )
    exact = flash_exact(*arrays, causal=True, window_size=(12, None), sinks=sinks.astype(numpy.float64))
    exact.check(fetch(o), fetch(lse))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seqlen_q", [50, 90])
def test_chunks_of_version_3(rng, place, fetch, seqlen_q, causal):
    """Queries that stand before the first key are of no chunk."""
    arrays, _ = drawn(rng, {"seqlen_q": seqlen_q, "seqlen_kv": 60})
    o, lse = v3.flash_attn_func(*map(place, arrays), causal=causal, attention_chunk=24, return_attn_probs=True)
    flash_exact(*arrays, causal=causal, chunk=24).check(fetch(o), fetch(lse))


def test_packed(rng, place, fetch):
    (q, k, v), _ = drawn(rng, {"heads_q": 2})
    v = v[..., :32]
    exact = flash_exact(q, k, v, causal=True)
    qkv, kv = place(numpy.stack([q, k, v], 2)), place(numpy.stack([k, v], 2))
    exact.check(fetch(fa.flash_attn_qkvpacked_func(qkv, causal=True)))
    exact.check(fetch(fa.flash_attn_kvpacked_func(place(q), kv, causal=True)))
    exact.check(fetch(v3.flash_attn_qkvpacked_func(qkv, causal=True)))
    grouped = numpy.concatenate([q, k[:, :, :1], v[:, :, :1]], 2)
    o = v3.flash_attn_qkvpacked_func(place(grouped), causal=True, num_heads_q=2)
    flash_exact(q, k[:, :, :1], v[:, :, :1], causal=True).check(fetch(o))


LENGTHS_Q, LENGTHS_K = (7, 0, 30, 1), (20, 9, 21, 0)


def boundaries(lengths):
    return numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(numpy.int32)


def check_varlen(fetch, o, lse, arrays, **arguments):
    """Each sequence against its own exact result."""
    q, k, v = arrays
    slopes = arguments.pop("alibi_slopes", None)
    begins = boundaries(LENGTHS_Q), boundaries(LENGTHS_K)
    for b in range(len(LENGTHS_Q)):
        rows, keys = (slice(begin[b], begin[b + 1]) for begin in begins)
        own = slopes[b] if slopes is not None and slopes.ndim == 2 else slopes
        exact = flash_exact(q[rows][None], k[keys][None], v[keys][None], alibi_slopes=own, **arguments)
        exact.check(fetch(o)[rows][None], fetch(lse)[None, :, rows])


def varlen_arrays(rng):
    kind = DTYPES["bf16"]
    shapes = ((sum(LENGTHS_Q), 4, 32), (sum(LENGTHS_K), 2, 32), (sum(LENGTHS_K), 2, 32))
    return [rng.standard_normal(shape).astype(kind) for shape in shapes]


@pytest.mark.parametrize("slopes", [None, 1, 2])
def test_varlen(rng, place, fetch, slopes):
    arrays = varlen_arrays(rng)
    arguments = dict(causal=True, window_size=(11, -1), softcap=4.0)
    if slopes is not None:
        arguments["alibi_slopes"] = rng.uniform(0.01, 0.5, (4, 4)[2 - slopes :]).astype(numpy.float32)
    lengths = place(boundaries(LENGTHS_Q)), place(boundaries(LENGTHS_K)), max(LENGTHS_Q), max(LENGTHS_K)
    o, lse, _ = fa.flash_attn_varlen_func(
        *map(place, arrays), *lengths, return_attn_probs=True, **placed(place, arguments)
    )
    check_varlen(fetch, o, lse, arrays, **arguments)
    if slopes is None:
        o, lse = v3.flash_attn_varlen_func(*map(place, arrays), *lengths, return_attn_probs=True, **arguments)
        check_varlen(fetch, o, lse, arrays, **arguments)


def test_varlen_packed(rng, place, fetch):
    arrays = q, k, v = varlen_arrays(rng)
    lengths = place(boundaries(LENGTHS_Q)), place(boundaries(LENGTHS_K)), max(LENGTHS_Q), max(LENGTHS_K)
    kv = place(numpy.stack([k, v], 1))
    o, lse, _ = fa.flash_attn_varlen_kvpacked_func(place(q), kv, *lengths, causal=True, return_attn_probs=True)
    check_varlen(fetch, o, lse, arrays, causal=True)
    qkv = numpy.stack([k, k, v], 1)
    o = fa.flash_attn_varlen_qkvpacked_func(place(qkv), place(boundaries(LENGTHS_K)), max(LENGTHS_K), causal=True)
    begins = boundaries(LENGTHS_K)
    for b in range(4):
        own = qkv[None, begins[b] : begins[b + 1]]
        exact = flash_exact(own[:, :, 0], own[:, :, 1], own[:, :, 2], causal=True)
        exact.check(fetch(o)[None, begins[b] : begins[b + 1]])


def paged(rng, k, v, page_size=8):
    """Keys of the sequences as pages in any order, and their table."""
    columns = -(-max(LENGTHS_K) // page_size)
    table = rng.permutation(4 * columns).reshape(4, columns).astype(numpy.int32)
    begins = boundaries(LENGTHS_K)
    pages = []
    for rows in (k, v):
        cache = numpy.zeros((4 * columns, page_size, *rows.shape[1:]), rows.dtype)
        for b in range(4):
            for i in range(LENGTHS_K[b]):
                cache[table[b, i // page_size], i % page_size] = rows[begins[b] + i]
        pages.append(cache)
    return pages, table


def test_varlen_queries_over_pages(rng, place, fetch):
    arrays = q, k, v = varlen_arrays(rng)
    pages, table = paged(rng, k, v)
    begins = place(boundaries(LENGTHS_Q)), place(boundaries(LENGTHS_K))
    o, lse, _ = fa.flash_attn_varlen_func(
        place(q), *map(place, pages), *begins, 30, 21, causal=True, block_table=place(table), return_attn_probs=True
    )
    check_varlen(fetch, o, lse, arrays, causal=True)
    used = place(numpy.array(LENGTHS_K, numpy.int32))
    o, lse = v4.flash_attn_varlen_func(
        place(q), *map(place, pages), cu_seqlens_q=begins[0], seqused_k=used, page_table=place(table), causal=True,
        return_lse=True,
    )
    check_varlen(fetch, o, lse, arrays, causal=True)


@pytest.mark.parametrize("splits", some([1, 3, 40]))
@pytest.mark.parametrize("shape", [(2, 9, 3, 24), (11, 3, 24)])
def test_combine(rng, place, fetch, shape, splits):
    partial = rng.standard_normal((splits, *shape)).astype(numpy.float32)
    lses = rng.normal(0, 3, (splits, *shape[:-1])).astype(numpy.float32)
    lses[rng.random(lses.shape) < 0.2] = -numpy.inf
    with numpy.errstate(divide="ignore", invalid="ignore"):
        largest = lses.max(0, keepdims=True)
        weights = numpy.where(numpy.isneginf(lses), 0, numpy.exp(lses.astype(float) - largest))
        expected_lse = (numpy.log(weights.sum(0)) + largest[0]).astype(float)
        share = numpy.nan_to_num(weights / weights.sum(0))
    o, lse = fa.flash_attn_combine(place(partial), place(lses))
    numpy.testing.assert_allclose(fetch(o), (partial * share[..., None]).sum(0), rtol=1e-4, atol=1e-5)
    empty = numpy.isneginf(lses).all(0)
    assert numpy.array_equal(numpy.isneginf(fetch(lse)), empty)
    numpy.testing.assert_allclose(fetch(lse)[~empty], expected_lse[~empty], rtol=1e-5, atol=1e-5)
    short, none = v4.flash_attn_combine(place(partial), place(lses), out_dtype="bf16", return_lse=False)
    assert none is None
    numpy.testing.assert_allclose(fetch(short), fetch(o), rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("form", some(["dense", "packed", "varlen", "cache"]))
def test_fp8(rng, place, fetch, emulated, form):
    """q, k and v of e4m3 with scales of each entry and head of keys, as FlashAttention-3 has them; o is bf16."""
    if not emulated:
        pytest.skip("NumPy's fp8 cannot be carried to a GPU")
    batch, heads, heads_kv, rows = 2, 4, 4 if form == "packed" else 2, 40
    scales = {f"{x}_descale": rng.uniform(0.02, 0.1, (batch, heads_kv)).astype(numpy.float32) for x in "qkv"}
    shapes = [(batch, rows, h, 32) for h in (heads, heads_kv, heads_kv)]
    arrays, numbers = [], []
    for x, shape in zip("qkv", shapes):
        own = scales[f"{x}_descale"].repeat(shape[2] // heads_kv, 1)[:, None, :, None]
        arrays.append((rng.standard_normal(shape) / own).astype(FP8["fp8_e4m3"]))
        numbers.append(arrays[-1].astype(numpy.float64) * own)
    here = {name: place(x) for name, x in scales.items()}
    if form == "packed":
        o, lse = v3.flash_attn_qkvpacked_func(
            place(numpy.stack(arrays, 2)), causal=True, return_attn_probs=True, **here
        )
    elif form == "varlen":
        begins = place(numpy.array([0, rows, 2 * rows], numpy.int32))
        flat = [place(x.reshape(-1, *x.shape[2:])) for x in arrays]
        o, lse = v3.flash_attn_varlen_func(
            *flat, begins, begins, rows, rows, causal=True, return_attn_probs=True, **here
        )
    elif form == "cache":
        o, lse, *_ = v3.flash_attn_with_kvcache(
            *map(place, arrays), cache_seqlens=rows, causal=True, return_softmax_lse=True, **here
        )
        with pytest.raises(ja.InvalidArgumentError, match="k: is given beside q_descale"):
            v3.flash_attn_with_kvcache(*map(place, arrays), place(arrays[1]), place(arrays[2]), cache_seqlens=0, **here)
    else:
        o, lse = v3.flash_attn_func(*map(place, arrays), causal=True, return_attn_probs=True, **here)
    o, lse = fetch(o), fetch(lse)
    if form == "varlen":
        o, lse = o.reshape(shapes[0]), lse.reshape(heads, batch, rows).swapaxes(0, 1)
    exact = exact_attention(*numbers, keep=lambda b, h, i, j: j <= i, p_dtype=FP8["fp8_e4m3"])
    assert numpy.abs(o - exact.o).max() <= 2 * exact.plain_error + 2.0**-8 * numpy.abs(exact.o).max()
    numpy.testing.assert_allclose(lse, exact.lse, atol=2e-3)


REFUSALS = [
    (fa.flash_attn_func, "window_size", {"window_size": 3}, "is 3; it must be .left, right."),
    (v4.flash_attn_func, "window_size", {"window_size": (1, 2, 3)}, "it must be .left, right."),
    (fa.flash_attn_func, "window_size", {"window_size": (-2, 0)}, "has -2; it must be -1 or more"),
    (fa.flash_attn_func, "window_size", {"window_size": (1.5, 0)}, "has 1.5; it must be whole numbers"),
    (fa.flash_attn_func, "return_attn_probs", {"return_attn_probs": True, "dropout_p": 0.1}, "with dropout_p = 0.1"),
    (v3.flash_attn_func, "attention_chunk", {"attention_chunk": -3}, "has -3; it must be 0 or more"),
    (v3.flash_attn_func, "qv", {"qv": 1}, "side by side"),
    (v3.flash_attn_func, "k_descale", {"k_descale": numpy.ones((1, 1), numpy.float32)}, "kv_dtype of 8 or 4 bits"),
    (v4.flash_attn_func, "mask_mod", {"mask_mod": max}, "jit_attention.mask.text"),
    (v4.flash_attn_func, "block_sparse_tensors", {"block_sparse_tensors": ()}, "follows from the mask"),
    (v4.flash_attn_func, "gather_kv_indices", {"gather_kv_indices": 1}, "mask of your own"),
]


@pytest.mark.parametrize("function, field, arguments, message", REFUSALS, ids=[f"{r[1]}: {r[3]}" for r in REFUSALS])
def test_refusals_name_the_argument(place, function, field, arguments, message):
    q, k, v = (place(numpy.zeros((1, 4, 1, 16), numpy.float16)) for _ in "qkv")
    with pytest.raises(ja.InvalidArgumentError, match=message) as refusal:
        function(q, k, v, **placed(place, arguments))
    assert refusal.value.field == field and str(refusal.value).startswith(field + ":")


@pytest.mark.parametrize("shape, lse_shape, field", [((1, 8, 2), (1, 8), "out_partial"),
                                                    ((2, 1, 8, 4, 64), (2, 1, 4, 8), "lse_partial")])  # fmt: skip
def test_partial_results_are_refused_by_name(place, shape, lse_shape, field):
    with pytest.raises(ja.InvalidArgumentError, match=f"^{field}: has shape") as refusal:
        fa.flash_attn_combine(*(place(numpy.ones(one, numpy.float32)) for one in (shape, lse_shape)))
    assert refusal.value.field == field


def test_shapes_and_tables_are_refused_by_name(place):
    zeros = lambda *shape: place(numpy.zeros(shape, numpy.float16))
    with pytest.raises(ja.InvalidArgumentError, match=r"qkv: has shape \(1, 4, 2, 1, 16\); it must be \(batch, seq"):
        fa.flash_attn_qkvpacked_func(zeros(1, 4, 2, 1, 16))
    with pytest.raises(ja.InvalidArgumentError, match="num_heads_q: is 2, of 5 heads"):
        v3.flash_attn_qkvpacked_func(zeros(1, 4, 5, 16), num_heads_q=2)
    begins = place(numpy.array([0, 4], numpy.int32))
    q = zeros(4, 1, 16)
    table = place(numpy.zeros((1, 1), numpy.int64))
    with pytest.raises(ja.InvalidArgumentError, match="^block_table: ") as refusal:
        fa.flash_attn_varlen_func(q, zeros(1, 4, 1, 16), zeros(1, 4, 1, 16), begins, begins, 4, 4, block_table=table)
    assert refusal.value.field == "block_table"


def test_the_document_has_every_function_and_argument():
    text = (pathlib.Path(__file__).resolve().parents[2] / "docs/flash_attention.md").read_text()
    tables = text.split("## What differs")[0].split("\n## ")[1:]
    functions, arguments = (set(re.findall(r"`(\w+)`", table)) for table in tables)
    public = [getattr(module, name) for module in (fa, v3, v4) for name in module.__all__]
    assert functions == {function.__name__ for function in public}
    known = {name for function in public for name in inspect.signature(function).parameters}
    known -= {"args", "kwargs", "out_partial", "lse_partial", "out", "out_dtype", "num_heads_q"}
    assert known <= arguments, known - arguments
