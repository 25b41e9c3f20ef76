"""The largest scores of each row: exact, of equal scores the smaller column, in ascending order."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest

SHARE = 16
POISON = -77


def chosen(scores, k, start, end, init_blocks=0, local_blocks=0):
    """The columns that a row's list must have, by a stable sort in double precision."""
    columns = scores.shape[0]
    start = min(max(start, 0), columns)
    end = max(min(end, columns), start)
    free = (min(start + init_blocks, end), max(end - local_blocks, min(start + init_blocks, end)))
    forced = [*range(start, free[0]), *range(free[1], end)]
    seen = scores[free[0]:free[1]].astype(numpy.float64)
    seen = numpy.where(numpy.isnan(seen), -1e300, seen)  # behind every number, in front of −inf
    order = numpy.argsort(-seen, kind="stable")
    order = order[~numpy.isneginf(seen[order])][: k - len(forced)]
    return numpy.sort(numpy.concatenate([forced, order + free[0]])).astype(numpy.int64)


def check(result, scores, k, starts=None, ends=None, name=lambda row, columns: columns, **blocks):
    indices, counts = (numpy.asarray(x) for x in result)
    rows, columns = scores.shape[0], scores.shape[-1]
    heads = scores if scores.ndim == 3 else scores[:, None]
    indices, counts = indices.reshape(rows, -1, k), counts.reshape(rows, -1)
    for row in range(rows):
        for head in range(heads.shape[1]):
            start = 0 if starts is None else int(starts[row])
            end = columns if ends is None else int(ends[row])
            wanted = name(row, chosen(heads[row, head], k, start, end, **blocks))
            assert counts[row, head] == len(wanted), (row, head)
            numpy.testing.assert_array_equal(indices[row, head, : len(wanted)], wanted, err_msg=f"row {row}, head {head}")
            assert (indices[row, head, len(wanted):] == -1).all()


def run(place, fetch, scores, k, starts=None, ends=None, **options):
    shape = scores.shape[:-1]
    out = place(numpy.full((*shape, k), POISON, numpy.int32))
    out_counts = place(numpy.full(shape, POISON, numpy.int32))
    arrays = {name: place(x) for name, x in (("starts", starts), ("ends", ends)) if x is not None}
    result = ja.top_k(place(scores), k, out=out, out_counts=out_counts, **arrays, **options)
    assert result[0] is out and result[1] is out_counts
    return [fetch(x) for x in result]


KINDS = {
    "random": lambda rng, shape: rng.standard_normal(shape),
    "equal": lambda rng, shape: numpy.full(shape, rng.standard_normal()),
    "few values": lambda rng, shape: rng.integers(-2, 3, shape),
    "zeros of both signs": lambda rng, shape: numpy.where(rng.random(shape) < 0.5, -0.0, 0.0),
    "relu": lambda rng, shape: numpy.maximum(rng.standard_normal(shape) - 2, 0),
    "nan": lambda rng, shape: numpy.where(rng.random(shape) < 0.6, numpy.nan, rng.standard_normal(shape)),
    "nan and -inf": lambda rng, shape: numpy.where(rng.random(shape) < 0.5, numpy.nan, -numpy.inf),
    "infinities": lambda rng, shape: rng.choice([numpy.inf, -numpy.inf, 1, -1], shape),
    "mostly -inf": lambda rng, shape: numpy.where(rng.random(shape) < 0.99, -numpy.inf, rng.standard_normal(shape)),
    "ascending": lambda rng, shape: numpy.broadcast_to(numpy.arange(shape[-1]), shape),
    "descending": lambda rng, shape: numpy.broadcast_to(-numpy.arange(shape[-1]), shape),
    "all exponents": lambda rng, shape: rng.standard_normal(shape) * 2.0 ** rng.integers(-140, 120, shape),
    "few are large": lambda rng, shape: numpy.where(rng.random(shape) < 0.002, 1e30, rng.standard_normal(shape)),
    "large at one end": lambda rng, shape: rng.standard_normal(shape) + 9 * (numpy.arange(shape[-1]) > shape[-1] - 300),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("columns, k", [(512, 16), (1024, 33), (1030, 64), (3001, 256), (9000, 2048), (70001, 100)])
def test_kinds(rng, place, fetch, kind, dtype, columns, k):
    element = numpy.float32 if dtype == "fp32" else ml_dtypes.bfloat16
    scores = numpy.ascontiguousarray(KINDS[kind](rng, (2, columns))).astype(numpy.float32).astype(element)
    check(run(place, fetch, scores, k), scores, k)


@pytest.mark.parametrize("kind", ["random", "few values", "relu", "nan", "large at one end"])
@pytest.mark.parametrize("rows", [1, 90])
def test_few_and_many_long_rows(rng, place, fetch, kind, rows):
    """Blocks of a cluster share few rows; more rows have a block each."""
    scores = numpy.ascontiguousarray(KINDS[kind](rng, (rows, 16500))).astype(numpy.float32)
    starts, ends = numpy.arange(rows, dtype=numpy.int32) % 7, 16400 + numpy.arange(rows, dtype=numpy.int32)
    check(run(place, fetch, scores, 300, starts, ends), scores, 300, starts, ends)


def test_fp16(rng, place, fetch):
    scores = rng.standard_normal((3, 2100)).astype(numpy.float16)
    check(run(place, fetch, scores, 50), scores, 50)


@pytest.mark.parametrize("columns", [0, 1, 31, 33, 1024, 1025, 2500])
def test_k_beyond_the_columns(rng, place, fetch, columns):
    scores = rng.standard_normal((3, columns)).astype(numpy.float32)
    check(run(place, fetch, scores, 2048), scores, 2048)
    check(run(place, fetch, scores, 1), scores, 1)


@pytest.mark.parametrize("columns, k", [(900, 40), (5000, 40)])
def test_starts_and_ends(rng, place, fetch, columns, k):
    """Ranges of all sizes, none, and such as lie outside."""
    rows = 30
    starts = rng.integers(0, columns, rows).astype(numpy.int32)
    ends = (starts + rng.integers(-20, columns, rows)).astype(numpy.int32)
    starts[:4], ends[:4] = [-5, columns + 9, 0, 2**31 - 1], [3, columns + 90, 2**31 - 1, -(2**31)]
    scores = rng.standard_normal((rows, columns)).astype(numpy.float32)
    check(run(place, fetch, scores, k, starts, ends), scores, k, starts, ends)
    check(run(place, fetch, scores, k, None, ends), scores, k, None, ends)


@pytest.mark.parametrize("columns, k", [(300, 16), (2600, 16), (70000, 16)])
@pytest.mark.parametrize("init_blocks, local_blocks", [(1, 2), (3, 0), (8, 8), (0, 16)])
def test_first_and_local_blocks(rng, place, fetch, columns, k, init_blocks, local_blocks):
    rows = 5
    starts = rng.integers(0, 40, rows).astype(numpy.int32)
    ends = rng.integers(columns - 50, columns, rows).astype(numpy.int32)
    ends[:2] = starts[:2] + [4, 20]
    scores = rng.standard_normal((rows, columns)).astype(numpy.float32)
    scores[:, ::3], scores[:, ::7] = -numpy.inf, numpy.nan
    blocks = dict(init_blocks=init_blocks, local_blocks=local_blocks)
    check(run(place, fetch, scores, k, starts, ends, **blocks), scores, k, starts, ends, **blocks)


@pytest.mark.parametrize("columns", [700, 3000])
def test_heads_and_strides(rng, place, fetch, columns):
    """Scores by heads first, as scorers write them, and rows that begin at any element."""
    scores = rng.standard_normal((3, 4, columns + 5)).astype(numpy.float32).transpose(1, 0, 2)[:, :, 3:-1]
    indices, counts = ja.top_k(place(scores), 20)
    check((fetch(indices), fetch(counts)), scores, 20)


@pytest.mark.parametrize("columns", [800, 4000])
def test_slots_of_a_table(rng, place, fetch, columns):
    rows, entries, page_size, k = 6, 3, 64, 100
    pages = columns // page_size - 2  # the last columns have no page
    table = rng.permutation(entries * pages).reshape(entries, pages).astype(numpy.int32)
    table[:, 1], table[0, 0] = -1, 2**31 - 1
    scores = rng.standard_normal((rows, columns)).astype(numpy.float32)

    def slots(row, columns):
        own = numpy.append(table[row * entries // rows], -1)[numpy.minimum(columns // page_size, pages)]
        return numpy.where((own < 0) | (own > 2**20), -1, own * page_size + columns % page_size)

    check(run(place, fetch, scores, k, page_table=place(table), page_size=page_size), scores, k, name=slots)


def test_nothing_to_do(place):
    indices, counts = ja.top_k(place(numpy.zeros((0, 40), numpy.float32)), 4)
    assert tuple(indices.shape) == (0, 4) and tuple(counts.shape) == (0,)


def test_equal_inputs_give_equal_results(rng, place, fetch):
    scores = rng.integers(0, 40, (2, 20000)).astype(numpy.float32)
    first = run(place, fetch, scores, 512)
    for _ in range(3):
        for x, y in zip(first, run(place, fetch, scores, 512)):
            numpy.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("options, match", [
    (dict(k=0), "k = 0"), (dict(k=2049), "2048"), (dict(k=4, init_blocks=3, local_blocks=2), "local_blocks"),
    (dict(page_size=16), "page_table"), (dict(page_table=numpy.zeros((1, 4), numpy.int32)), "page_size"),
    (dict(page_table=numpy.zeros((2, 4), numpy.int32), page_size=16), "entries"),
    (dict(starts=numpy.zeros(4, numpy.int32)), "starts"), (dict(ends=numpy.zeros(3, numpy.int64)), "ends"),
    (dict(out=numpy.zeros((3, 5), numpy.int32)), "out"), (dict(out_counts=numpy.zeros((3, 1, 1), numpy.int32)), "out_counts"),
])
def test_bad_arguments(place, options, match):
    options = {name: place(x) if isinstance(x, numpy.ndarray) else x for name, x in options.items()}
    with pytest.raises(ja.Error, match=match):
        ja.top_k(place(numpy.zeros((3, 50), numpy.float32)), options.pop("k", 4), **options)


def test_bad_scores(place):
    with pytest.raises(ja.InvalidArgumentError, match="scores"):
        ja.top_k(place(numpy.zeros(50, numpy.float32)), 4)
    with pytest.raises(ja.InvalidSpecError, match="int32"):
        ja.top_k(place(numpy.zeros((3, 50), numpy.int32)), 4)
