"""Parts of sequences that tables place in the whole: against double precision of the whole problem, cut to the part."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from request_batches import boundaries, int32
from seeded import some
from shards import NO_ROW, any_part, attend, contiguous, positions, striped, table, zigzag
from test_dropout import kept, rng_state

SHARE = 3  # kernels take long to compile

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
    assert numpy.abs(found - wanted).max() < 0.02 * max(1, numpy.abs(exact.ds).sum(0).max() * 4)


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
