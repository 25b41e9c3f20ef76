"""Parts of sequences that tables place in the whole: against double precision of the whole problem, cut to the part."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from request_batches import boundaries, int32
from seeded import some
from shards import NO_ROW, any_part, attend, contiguous, positions, striped, table, zigzag
from test_dropout import kept, rng_state

SHARE = 15  # kernels take long to compile

BF16 = numpy.dtype(ml_dtypes.bfloat16)
SIDES = ["q", "k", "qk"]


class Part:
    """Some rows of a sequence of `queries` queries and `keys` keys, and what is computed of them."""

    def __init__(self, rng, sides, *, queries=None, keys=None, heads=4, heads_kv=2, head_dim=64, own=None):
        self.m = queries or int(rng.integers(1, 400))
        self.n = keys or int(rng.integers(1, 400))
        whole = {"q": contiguous(0, self.m), "k": contiguous(0, self.n)}
        parts = own or {side: any_part(rng, length) for side, length in (("q", self.m), ("k", self.n))}
        self.sides = sides
        self.pieces = {side: (parts if side in sides else whole)[side] for side in "qk"}
        self.at_q, self.at_k = (positions(*self.pieces[side]) for side in "qk")
        self.heads = heads

        def rows(count, own_heads):
            return rng.standard_normal((count, own_heads, head_dim)).astype(BF16)

        self.q, self.do = rows(len(self.at_q), heads), rows(len(self.at_q), heads)
        self.k, self.v = rows(len(self.at_k), heads_kv), rows(len(self.at_k), heads_kv)

    def tables(self, rng=None):
        """Arguments that say where rows stand, with some pieces that are not used."""
        spare = 0 if rng is None else int(rng.integers(0, 3))
        result = {f"{side}_positions": table(self.pieces[side][0], len(self.pieces[side][0]) + spare)[None]
                  for side in self.sides}
        return result | {"global_seqlens": int32([[self.m, self.n]])}

    def grid(self, f):
        """f(query, key) of positions, with the alignment of the last query to the last key as a third argument."""
        return f(self.at_q[:, None], self.at_k[None], self.n - self.m)

    def run(self, place, fetch, exact, rng, *, gradients=True, **options):
        """Computes and compares; returns what is beside dq, dk and dv."""
        tables = {name: place(array) for name, array in self.tables(rng).items()}
        q, k, v, do = (place(x[None]) for x in (self.q, self.k, self.v, self.do))
        wanted = options.pop("d_tensors", None)
        o, lse = ja.attention(q, k, v, return_lse=True, **options, **tables)
        exact.check(fetch(o)[0], fetch(lse)[0])
        if not gradients:
            return None
        dq, dk, dv, *others = ja.attention_backward(do, q, k, v, o, lse, d_tensors=wanted, **options, **tables)
        exact.check(gradients=[fetch(x)[0] for x in (dq, dk, dv)])
        return fetch(others[0][wanted[0]]) if wanted else None


def causal(q, k, shift):
    return k <= q + shift


MASKS = {
    "none": (None, lambda q, k, shift: (q >= 0) & (k >= 0)),
    "causal": (ja.mask.causal(), causal),
    "inverse": (~ja.mask.causal(), lambda *at: ~causal(*at)),
    "window": (ja.mask.sliding_window(40, 3), lambda q, k, s: (k >= q + s - 40) & (k <= q + s + 3)),
    "top_left": (ja.mask.causal("top_left") | ja.mask.prefix(9), lambda q, k, shift: (k <= q) | (k < 9)),
    "rows": (ja.mask.text("return k <= q / 2 + 10;", name="rows"), lambda q, k, shift: k <= q // 2 + 10),
    "parts": (ja.mask.text("return (q - k) % 7 != 3 && k <= q + 40;", name="parts"),
              lambda q, k, shift: (numpy.fmod(q - k, 7) != 3) & (k <= q + 40)),
    "scores": (ja.mask.text("int x = 0; for (int i = 0; i < 3; ++i) x += (q ^ k) >> i; return x % 2 == 0;",
                            name="scores"),
               lambda q, k, shift: ((q ^ k) + ((q ^ k) >> 1) + ((q ^ k) >> 2)) % 2 == 0),
}


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("name", some(MASKS))
def test_masks(rng, place, fetch, name, sides):
    part = Part(rng, sides)
    mask, keep = MASKS[name]
    exact = attend(part.q, part.k, part.v, part.do, part.grid(keep))
    part.run(place, fetch, exact, rng, mask=mask)


@pytest.mark.parametrize("sides", some(SIDES))
def test_trees(rng, place, fetch, sides):
    part = Part(rng, sides)
    ends = numpy.maximum.accumulate(numpy.arange(part.n) + rng.integers(-1, 60, part.n)).astype(numpy.int32)
    own = part.at_q[:, None] + part.n - part.m
    keep = (part.at_k <= own) & (own < ends[part.at_k])
    exact = attend(part.q, part.k, part.v, part.do, keep)
    part.run(place, fetch, exact, rng, mask=ja.mask.tree(), tensors={"tree_ends": place(ends[None])})


@pytest.mark.parametrize("sides", some(SIDES))
def test_documents(rng, place, fetch, sides):
    part = Part(rng, sides)
    ids = numpy.sort(rng.integers(0, 4, max(part.m, part.n))).astype(numpy.int32)
    keep = (ids[part.at_q][:, None] == ids[part.at_k][None]) & part.grid(causal)
    exact = attend(part.q, part.k, part.v, part.do, keep)
    tensors = {"document_ids_q": place(ids[None, : part.m].copy()), "document_ids_kv": place(ids[None, : part.n].copy())}
    part.run(place, fetch, exact, rng, mask=ja.mask.causal() & ja.mask.document(), tensors=tensors)


@pytest.mark.parametrize("sides", some(SIDES))
def test_block_masks(rng, place, fetch, sides):
    part = Part(rng, sides)
    rows, columns = -(-part.m // 64), -(-part.n // 64)
    seen = rng.random((rows, columns)) < 0.5
    words = numpy.zeros((1, 1, rows, 2 * -(-columns // 32)), numpy.uint32)
    for row, column in zip(*numpy.nonzero(seen)):
        words[0, 0, row, column // 32 * 2] |= numpy.uint32(1 << column % 32)
        if min(part.n, (column + 1) * 64) - 1 <= row * 64 + part.n - part.m:  # the causal mask keeps all of it
            words[0, 0, row, column // 32 * 2 + 1] |= numpy.uint32(1 << column % 32)
    keep = part.grid(causal) & seen[part.at_q // 64][:, part.at_k // 64]
    exact = attend(part.q, part.k, part.v, part.do, keep)
    part.run(place, fetch, exact, rng, mask=ja.mask.block_mask(64, 64, ja.mask.causal()),
             tensors={"block_mask": place(words.view(numpy.int32))})


@pytest.mark.parametrize("sides", some(SIDES))
def test_alibi_and_its_slopes(rng, place, fetch, sides):
    part = Part(rng, sides)
    slopes = (0.5 ** numpy.arange(1, part.heads + 1)).astype(numpy.float32)
    far = part.grid(lambda q, k, shift: numpy.abs(q + shift - k))
    exact = attend(part.q, part.k, part.v, part.do, part.grid(causal),
                   lambda s: (s - slopes[:, None, None] * far, 1.0))
    found = part.run(place, fetch, exact, rng, mask=ja.mask.causal(), score=ja.score.alibi(),
                     tensors={"alibi_slopes": place(slopes)}, d_tensors=["alibi_slopes"])
    wanted = -(exact.ds * far).sum((1, 2))
    assert numpy.abs(found - wanted).max() < 0.02 * max(1, (numpy.abs(exact.ds) * far).sum((1, 2)).max())


@pytest.mark.parametrize("sides", some(SIDES))
def test_bias_of_the_whole_and_its_gradient(rng, place, fetch, sides):
    part = Part(rng, sides)
    bias = rng.standard_normal((1, part.heads, part.m, part.n)).astype(numpy.float32)
    own = numpy.ix_(range(part.heads), part.at_q, part.at_k)
    capped = ja.score.softcap(5.0).then(ja.score.bias())
    exact = attend(part.q, part.k, part.v, part.do, True,
                   lambda s: (5 * numpy.tanh(s / 5) + bias[0][own], 1 - numpy.tanh(s / 5) ** 2))
    found = part.run(place, fetch, exact, rng, score=capped, tensors={"bias": place(bias)}, d_tensors=["bias"])
    wanted = numpy.zeros(bias.shape)
    wanted[0][own] = exact.ds
    assert numpy.abs(found - wanted).max() < 0.02  # zero where the part has no score


@pytest.mark.parametrize("sides", some(SIDES))
def test_a_text_that_reads_a_table(rng, place, fetch, sides):
    part = Part(rng, sides)
    by_distance = rng.standard_normal(1024).astype(numpy.float32)
    at = part.grid(lambda q, k, shift: q - k + 512)
    exact = attend(part.q, part.k, part.v, part.do, True, lambda s: (s + by_distance[at], 1.0))
    score = ja.score.text("return score + far[q - k + 512];", name="relative", tensors={"far": "fp32"})
    found = part.run(place, fetch, exact, rng, score=score, tensors={"far": place(by_distance)}, d_tensors=["far"])
    wanted = numpy.bincount(at.ravel(), exact.ds.sum(0).ravel(), minlength=1024)
    assert numpy.abs(found - wanted).max() < 0.02 * max(1, numpy.abs(exact.ds).sum(0).max(initial=0) * 4)


@pytest.mark.parametrize("sides", SIDES)
def test_dropout_of_one_gpu(rng, place, fetch, sides):
    length = 4 * int(rng.integers(30, 90))
    aligned = rng.integers(0, 2) == 0  # whole groups of 16 queries and 32 keys
    run = 32 if aligned else int(rng.choice([1, 3, 16]))
    own = {side: striped(1, 3, run, length) if side == "q" or rng.integers(0, 2) else zigzag(0, 2, length)
           for side in "qk"}
    part = Part(rng, sides, queries=length, keys=length, own=own)
    state = rng_state(int(rng.integers(0, 2**62)), 11)
    weights = kept((1, part.heads, part.m, part.n), 0.3, int(state[0]), 11)[0] / 0.7
    exact = attend(part.q, part.k, part.v, part.do, part.grid(causal), None,
                   weights[numpy.ix_(range(part.heads), part.at_q, part.at_k)])
    part.run(place, fetch, exact, rng, mask=ja.mask.causal(), dropout_p=0.3, rng_state=place(state))


@pytest.mark.parametrize("sides", some(SIDES))
@pytest.mark.parametrize("head_dim", some([8, 96, 128, 256, 320]))
def test_head_dims(rng, place, fetch, head_dim, sides):
    part = Part(rng, sides, head_dim=head_dim)
    exact = attend(part.q, part.k, part.v, part.do, part.grid(causal))
    part.run(place, fetch, exact, rng, mask=ja.mask.causal())


def varlen_parts(rng, sides, lengths):
    return [Part(rng, sides, queries=m, keys=n) for m, n in lengths]


def stacked_tables(parts, sides):
    """Tables of several entries: as many pieces as the longest one has."""
    result = {"global_seqlens": int32([[part.m, part.n] for part in parts])}
    for side in sides:
        most = max(len(part.pieces[side][0]) for part in parts)
        result[f"{side}_positions"] = numpy.stack([table(part.pieces[side][0], most) for part in parts])
    return result


def of_each(parts, keep):
    return [attend(part.q, part.k, part.v, part.do, part.grid(keep)) for part in parts]


@pytest.mark.parametrize("sides", some(SIDES))
def test_varlen_parts(rng, place, fetch, sides):
    parts = varlen_parts(rng, sides, [(70, 200), (1, 30), (150, 90)])
    q, k, v, do = (place(numpy.concatenate([getattr(part, name) for part in parts])) for name in ("q", "k", "v", "do"))
    arrays = {"cu_seqlens_q": boundaries([len(part.q) for part in parts]),
              "cu_seqlens_k": boundaries([len(part.k) for part in parts])} | stacked_tables(parts, sides)
    arrays = {name: place(array) for name, array in arrays.items()} | {"mask": ja.mask.causal()}
    o, lse = ja.attention(q, k, v, return_lse=True, **arrays)
    gradients = ja.attention_backward(do, q, k, v, o, lse, **arrays)
    o, lse, gradients = fetch(o), fetch(lse), [fetch(x) for x in gradients]
    begin_q = begin_k = 0
    for part, exact in zip(parts, of_each(parts, causal)):
        rows, keys = slice(begin_q, begin_q + len(part.q)), slice(begin_k, begin_k + len(part.k))
        exact.check(o[rows], lse[:, rows], [gradients[0][rows], gradients[1][keys], gradients[2][keys]])
        begin_q, begin_k = rows.stop, keys.stop


def sharded_cache(rng, ranks, rank, run, lengths, page_size, queries):
    """A rank's part of interleaved caches: all queries and every ranks-th run of keys, in pages."""
    parts = []
    for m, n in zip(queries, lengths):
        own = {"k": striped(rank, ranks, run, n)}
        parts.append(Part(rng, "k", queries=m, keys=n, heads=8, own=own))
    most = max(1, max(-(-len(part.k) // page_size) for part in parts))
    pages = int32(rng.permutation(len(parts) * most).reshape(len(parts), most))
    k, v = (numpy.full((pages.size, page_size, 2, 64), numpy.nan, BF16) for _ in range(2))
    for part, own in zip(parts, pages):
        for i, (key, value) in enumerate(zip(part.k, part.v)):
            k[own[i // page_size], i % page_size], v[own[i // page_size], i % page_size] = key, value
    return parts, k, v, {"page_table": pages, "seqused_k": int32([len(part.k) for part in parts]),
                         "cu_seqlens_q": boundaries(queries)}


CACHE_MASKS = [
    (ja.mask.causal(), causal),
    (ja.mask.sliding_window(70, 0), lambda q, k, shift: (k <= q + shift) & (k >= q + shift - 70)),
    # Queries between the first and the last see fewer keys than both.
    (ja.mask.text("return k <= 60 + (q - 2) * (q - 2) * 40;", name="valley"),
     lambda q, k, shift: k <= 60 + (q - 2) * (q - 2) * 40),
]


@pytest.mark.parametrize("queries", some([[1, 1, 1], [4, 1, 20]]))
@pytest.mark.parametrize("run", some([1, 16, 64]))
def test_interleaved_caches(rng, place, fetch, run, queries):
    ranks = int(rng.integers(2, 5))
    mask, keep = CACHE_MASKS[int(rng.integers(0, len(CACHE_MASKS)))]
    parts, k, v, arrays = sharded_cache(rng, ranks, int(rng.integers(0, ranks)), run, [300, 3, 1000], 16, queries)
    arrays |= stacked_tables(parts, "k")
    if rng.integers(0, 2):  # one piece for all: the stripes of a rank
        arrays["k_positions"] = arrays["k_positions"][:1]
    arrays = {name: place(array) for name, array in arrays.items()}
    o, lse = ja.attention(place(numpy.concatenate([part.q for part in parts])), place(k), place(v), mask=mask,
                          return_lse=True, **arrays)
    o, lse, begin = fetch(o), fetch(lse), 0
    for part, exact in zip(parts, of_each(parts, keep)):
        rows = slice(begin, begin + len(part.q))
        exact.check(o[rows], lse[:, rows])
        begin = rows.stop


@pytest.mark.parametrize("run", some([1, 64]))
def test_interleaved_latents(rng, place, fetch, run):
    part = Part(rng, "k", queries=2, keys=500, heads=16, heads_kv=1, head_dim=576, own={"k": striped(1, 3, run, 500)})
    part.v = part.k[..., :512]
    exact = attend(part.q, part.k, part.v, part.q[..., :512], part.grid(causal))
    tables = {name: place(array) for name, array in part.tables(rng).items()}
    o, lse = ja.attention(place(part.q[None]), place(part.k[None]), head_dim_v=512, mask=ja.mask.causal(),
                          return_lse=True, **tables)
    exact.check(fetch(o)[0], fetch(lse)[0])


def test_ranks_together_are_one_gpu(rng, place, fetch):
    length, ranks = 333, 3
    q, k, v = (rng.standard_normal((1, length, 2, 64)).astype(BF16) for _ in range(3))
    whole = fetch(ja.attention(place(q), place(k), place(v), mask=ja.mask.causal()))[0]
    for rank in range(ranks):
        pieces, rows = zigzag(rank, ranks, length)
        own = positions(pieces, rows)
        o = ja.attention(place(q[:, own]), place(k), place(v), mask=ja.mask.causal(),
                         q_positions=place(table(pieces)[None]), global_seqlens=place(int32([[length, length]])))
        assert numpy.abs(fetch(o)[0] - whole[own]).max(initial=0) < 0.01


BAD_PIECES = [
    ("descending positions", [(0, 60, 10, 10), (10, 20, 64, 64)], "element [0, 1, 1], of request 0, is 20"),
    ("descending rows", [(0, 0, 10, 10), (10, 20, 5, 5), (5, 40, 5, 5)], "element [0, 2, 0], of request 0, is 5"),
    ("first row", [(3, 0, 64, 64)], "element [0, 0, 0], of request 0, is 3"),
    ("no run", [(0, 0, 0, 1)], "element [0, 0, 2], of request 0, is 0"),
    ("stride below run", [(0, 0, 8, 4)], "element [0, 0, 3], of request 0, is 4"),
    ("behind the end", [(0, 70, 64, 64)], "element [0, 0, 1], of request 0, is 70"),
    ("before the start", [(0, -1, 64, 64)], "element [0, 0, 1], of request 0, is -1"),
]


@pytest.mark.parametrize("name, pieces, message", BAD_PIECES)
def test_checked_calls_name_what_is_wrong(rng, place, name, pieces, message):
    q = place(rng.standard_normal((1, 40, 2, 64)).astype(BF16))
    call = ja.prepare(ja.AttentionSpec(head_dim=64, mask=ja.mask.causal(), q_positions=True, checked=True))
    lengths = place(int32([[100, 40]]))
    assert call(q, q, q, q_positions=place(table([(0, 5, 1, 2)])[None]), global_seqlens=lengths) is not None
    with pytest.raises(ja.InvalidArgumentError) as refused:
        call(q, q, q, q_positions=place(table(pieces)[None]), global_seqlens=lengths)
    assert refused.value.field == "q_positions" and message in str(refused.value)
    with pytest.raises(ja.InvalidArgumentError, match=r"global_seqlens: element \[0, 1\], of request 0, is -2"):
        call(q, q, q, q_positions=place(table([(0, 0, 40, 40)])[None]), global_seqlens=place(int32([[100, -2]])))


def test_nonsense_reads_nothing_else(rng, place, fetch):
    """An emulated device reports reads outside of tensors."""
    q, k = (rng.standard_normal((1, rows, 2, 64)).astype(BF16) for rows in (50, 90))
    edges = numpy.array([-(2**31), -1, 0, 1, 2, 49, 89, 90, 2**31 - 1], numpy.int32)
    tensors = {"document_ids_q": numpy.zeros((1, 60), numpy.int32), "document_ids_kv": numpy.zeros((1, 95), numpy.int32),
               "bias": numpy.zeros((1, 1, 60, 95), numpy.float32)}
    tensors = {name: place(array) for name, array in tensors.items()}
    for _ in range(8):
        tables = {"q_positions": rng.choice(edges, (1, 3, 4)), "k_positions": rng.choice(edges, (1, 2, 4)),
                  "global_seqlens": rng.choice(edges, (1, 2))}
        options = {name: place(array) for name, array in tables.items()}
        options |= {"mask": ja.mask.document() | ja.mask.causal(), "score": ja.score.bias(), "tensors": tensors}
        o, lse = ja.attention(place(q), place(k), place(k), return_lse=True, **options)
        assert not numpy.isnan(fetch(o)).any()
        gradients = ja.attention_backward(place(q), place(q), place(k), place(k), o, lse, d_tensors=["bias"], **options)
        assert not any(numpy.isnan(fetch(x)).any() for x in (*gradients[:3], gradients[3]["bias"]))


def refused(arguments, **options):
    with pytest.raises(ja.InvalidArgumentError) as error:
        ja.attention(*arguments, mask=ja.mask.causal(), **options)
    return error.value.field, str(error.value)


def test_refusals(rng, place):
    q = place(rng.standard_normal((2, 40, 2, 64)).astype(BF16))
    lengths, pieces = place(int32([[100, 40]])), place(table([(0, 5, 1, 2)])[None])
    assert refused((q, q, q), q_positions=pieces)[0] == "global_seqlens"
    assert refused((q, q, q), global_seqlens=lengths)[0] == "global_seqlens"
    assert refused((q, q, q), q_positions=place(table([(0, 5, 1, 2)])), global_seqlens=lengths)[0] == "q_positions"
    assert refused((q, q, q), q_positions=place(numpy.zeros((3, 1, 4), numpy.int32)),
                   global_seqlens=lengths)[0] == "q_positions"
    assert refused((q, q, q), q_positions=place(numpy.zeros((1, 0, 4), numpy.int32)),
                   global_seqlens=lengths)[0] == "q_positions"
    assert refused((q, q, q), k_positions=place(numpy.zeros((1, 1, 4), numpy.int64)),
                   global_seqlens=lengths)[0] == "k_positions"
    assert refused((q, q, q), k_positions=pieces, global_seqlens=place(int32([100, 40])))[0] == "global_seqlens"
    assert "twice" in refused((q, q, q), k_positions=pieces, global_seqlens=lengths, tensors={"k_positions": pieces})[1]
    with pytest.raises(ja.InvalidSpecError, match="draft_tree"):
        ja.AttentionSpec(mask=ja.mask.draft_tree(), q_positions=True)
    with pytest.raises(ja.InvalidSpecError, match="block_scores"):
        ja.AttentionSpec(mask=ja.mask.block_scores(64, 64), k_positions=True)
    # Tensors are those of the whole sequence, and of one length.
    ids = {"document_ids_q": place(numpy.zeros((1, 100), numpy.int32)),
           "document_ids_kv": place(numpy.zeros((1, 40), numpy.int32)),
           "bias": place(numpy.zeros((1, 1, 90, 40), numpy.float32))}
    with pytest.raises(ja.InvalidArgumentError) as error:
        ja.attention(q, q, q, mask=ja.mask.document(), score=ja.score.bias(), tensors=ids, q_positions=pieces,
                     global_seqlens=lengths)
    assert error.value.field == "bias"


def test_unused_tables_end_with_no_row():
    assert table([(0, 1, 2, 3)], 2).tolist() == [[0, 1, 2, 3], [NO_ROW, 0, 1, 1]]


def test_gradients_of_torch(rng, place, fetch):
    torch = pytest.importorskip("torch")
    jt = pytest.importorskip("jit_attention.torch")
    part = Part(rng, "qk", queries=150, keys=170)
    exact = attend(part.q, part.k, part.v, part.do, part.grid(causal))

    def tensor(array):
        made = torch.from_numpy(array.astype(numpy.float32)).to(torch.bfloat16)[None]
        return made if ja.devices()[0].emulated else made.cuda()

    tables = {name: torch.from_numpy(array).to(tensor(part.q).device) for name, array in part.tables(rng).items()}
    q, k, v = (tensor(array).requires_grad_() for array in (part.q, part.k, part.v))
    o = jt.attention(q, k, v, mask=ja.mask.causal(), **tables)
    o.backward(tensor(part.do))
    exact.check(fetch(o.float())[0], gradients=[fetch(x.grad.float())[0] for x in (q, k, v)])
    with pytest.raises(ja.InvalidArgumentError, match="twice"):
        jt.attention(q, k, v, tensors=tables, **tables)
