"""Block masks against double precision, what calls refuse to use them for, and PyTorch's own."""

import dataclasses
import sys

import jit_attention as ja
import numpy
import pytest
from exact_attention import exact_attention, random_qkv

SHARE = 2  # kernels take long to compile

SEGMENTS = ja.mask.text(
    "return segment[b * seqlen_kv + k] == segment[b * seqlen_kv + q] || k < 3;",
    name="segments",
    tensors={"segment": "int32"},
)
BY_HEAD = ja.mask.text("return h % 2 == 0 ? k <= q : k >= q;", name="by_head")


def gradients(q, k, v, do, keep):
    """dq, dk and dv in double precision, of arrays (batch, seqlen, heads, head_dim)."""
    ratio = q.shape[2] // k.shape[2]
    wide = [x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in (q, k, v, do)]
    qs, ks, vs, dos = wide[0], numpy.repeat(wide[1], ratio, 1), numpy.repeat(wide[2], ratio, 1), wide[3]
    scale = q.shape[-1] ** -0.5
    scores = scale * qs @ ks.transpose(0, 1, 3, 2)
    kept = numpy.broadcast_to(keep(*numpy.ogrid[tuple(slice(size) for size in scores.shape)]), scores.shape)
    weights = numpy.where(kept, numpy.exp(scores - scores.max(-1, keepdims=True)), 0)
    total = weights.sum(-1, keepdims=True)
    p = weights / numpy.where(total == 0, 1, total)
    dp = dos @ vs.transpose(0, 1, 3, 2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    folded = [
        x.reshape(x.shape[0], -1, ratio, *x.shape[2:]).sum(2)
        for x in (scale * ds.transpose(0, 1, 3, 2) @ qs, p.transpose(0, 1, 3, 2) @ dos)
    ]
    return [x.transpose(0, 2, 1, 3) for x in (scale * ds @ ks, *folded)]


def blocks_of(table, columns):
    """What a table says: whether something is seen of blocks, and whether all is."""
    words = numpy.asarray(table).astype(numpy.int32).view(numpy.uint32)[..., :-1]  # the last one: rows by work
    bits = (words[..., None] >> numpy.arange(32, dtype=numpy.uint32)) & 1
    return [bits[..., first::2, :].reshape(*words.shape[:3], -1)[..., :columns] for first in (0, 1)]


def random_segments(rng, batch, length):
    return numpy.sort(rng.integers(0, 5, (batch, length)), -1).astype(numpy.int32)


def test_forward_and_backward_over_a_text(rng, place, fetch):
    arrays = random_qkv(rng, batch=2, seqlen_q=200, seqlen_kv=200, heads_q=4, heads_kv=2)
    ids = random_segments(rng, 2, 200)
    q, k, v, segment = map(place, (*arrays, ids))
    bm = ja.block_mask(q, k, mask=SEGMENTS, tensors={"segment": segment}, block_size=(64, 64), scores=False)
    assert (bm.batch, bm.heads, bm.block_size, bm.within) == (2, None, (64, 64), SEGMENTS)
    assert bm.mask == ja.mask.block_mask(64, 64, SEGMENTS) and set(bm.tensors) == {"segment", "block_mask"}
    assert tuple(bm.table.shape) == (2, 1, 4, 3)

    def keep(b, h, i, j):
        return (ids[b, i] == ids[b, j]) | (j < 3)

    o, lse = ja.attention(q, k, v, block_mask=bm, return_lse=True)
    exact_attention(*arrays, keep=keep).check(fetch(o), fetch(lse))
    same = ja.attention(q, k, v, mask=SEGMENTS, tensors={"segment": segment}, block_mask=bm)
    by_hand = ja.attention(q, k, v, mask=bm.mask, tensors=bm.tensors)
    assert numpy.array_equal(fetch(same), fetch(o)) and numpy.array_equal(fetch(by_hand), fetch(o))

    do = rng.standard_normal(arrays[0].shape).astype(arrays[0].dtype)
    grads = ja.attention_backward(place(do), q, k, v, o, lse, block_mask=bm)
    for got, expected in zip(grads, gradients(*arrays, do, keep)):
        numpy.testing.assert_allclose(fetch(got), expected, atol=0.02 * numpy.abs(expected).max())


@pytest.mark.parametrize("scores", [True, 3])
def test_known_scores_are_those_of_the_mask(rng, place, fetch, scores):
    arrays = random_qkv(rng, batch=2, seqlen_q=200, seqlen_kv=200, heads_q=4, heads_kv=2)
    q, k, v, segment = map(place, (*arrays, random_segments(rng, 2, 200)))
    asked = ja.block_mask(q, k, mask=SEGMENTS, tensors={"segment": segment}, block_size=(64, 64), scores=False)
    bm = ja.block_mask(q, k, mask=SEGMENTS, tensors={"segment": segment}, block_size=(64, 64), scores=scores)
    is_whole = scores is not True
    names = {"block_mask", "block_places", "block_scores"} | ({"segment"} if is_whole else set())
    assert set(bm.tensors) == names and bm.scores == scores and bm.within == SEGMENTS
    assert bm.mask == ja.mask.block_scores(64, 64, SEGMENTS if is_whole else None)
    places, seen, full = fetch(bm.tensors["block_places"]), *blocks_of(fetch(bm.table), 4)
    assert tuple(bm.tensors["block_scores"].shape) == (2, 1, 3 if is_whole else 16, 128)
    for b in range(2):
        partial = (seen & ~full)[b, 0].astype(bool)
        expected = numpy.full((4, 4), -1)
        expected[partial] = numpy.arange(partial.sum())
        expected[expected >= (3 if is_whole else 16)] = -1
        assert numpy.array_equal(places[b, 0], expected)

    o, lse = ja.attention(q, k, v, block_mask=bm, return_lse=True)
    right = exact_attention(
        *arrays, keep=lambda b, h, i, j: (fetch(segment)[b, i] == fetch(segment)[b, j]) | (j < 3)
    )
    right.check(fetch(o), fetch(lse))
    same = ja.attention(q, k, v, mask=SEGMENTS, tensors={"segment": segment}, block_mask=bm)
    by_hand = ja.attention(q, k, v, mask=bm.mask, tensors=bm.tensors)
    assert numpy.array_equal(fetch(same), fetch(o)) and numpy.array_equal(fetch(by_hand), fetch(o))
    do = place(rng.standard_normal(arrays[0].shape).astype(arrays[0].dtype))
    right = [fetch(x) for x in ja.attention_backward(do, q, k, v, o, lse, block_mask=asked)]
    by_bits = {"mask": bm.mask, "tensors": bm.tensors}
    beside = {"block_mask": bm, "mask": SEGMENTS, "tensors": {"segment": segment}}
    for given in ({"block_mask": bm}, beside, by_bits):
        for got, expected in zip(ja.attention_backward(do, q, k, v, o, lse, **given), right):
            assert numpy.array_equal(fetch(got), expected)


def test_scores_are_known_unasked_where_that_pays(rng, place, monkeypatch):
    q, k, _ = map(place, random_qkv(rng, batch=2, seqlen_q=90, seqlen_kv=90, heads_q=2))
    segment = place(random_segments(rng, 2, 90))

    def known(mask, **given):
        bm = ja.block_mask(q, k, mask=mask, block_size=(32, 32), **given)
        assert ("block_scores" in bm.tensors) == bm.scores
        return bm.scores

    read = {"tensors": {"segment": segment}}
    is_hopper = ja.devices()[0].arch == "sm_90a"
    assert known(SEGMENTS, **read) == is_hopper
    assert not known(SEGMENTS, scores=False, **read) and known(SEGMENTS, scores=True, **read)
    assert not known(BY_HEAD) and known(BY_HEAD, scores=True)  # reads nothing
    of_two_entries = 2 * 3 * 3 * 32 * 32 // 8
    for most, expected in ((of_two_entries, is_hopper), (of_two_entries - 1, False)):
        monkeypatch.setattr(sys.modules["jit_attention.block_mask"], "_MOST_UNASKED_BYTES", most)
        assert known(SEGMENTS, **read) == expected


@pytest.mark.parametrize("scores", [False, True])
def test_a_picture(rng, place, scores):
    q, k, _ = map(place, random_qkv(rng, batch=2, seqlen_q=100, seqlen_kv=70, heads_q=2))
    ids = numpy.zeros((2, 70), numpy.int32)
    ids[1, 40:] = 1
    mask = ja.mask.text("return segment[b * seqlen_kv + k] == h;", name="of_head", tensors={"segment": "int32"})
    bm = ja.block_mask(q, k, mask=mask, tensors={"segment": place(ids)}, block_size=(32, 32), scores=scores)
    sizes = {"tile_q": 32, "tile_kv": 32}
    assert set(map(tuple, bm.show(entry=0, head=0, **sizes).classes)) == {("full",) * 3}
    assert set(map(tuple, bm.show(entry=0, head=1, **sizes).classes)) == {("empty",) * 3}
    shown = bm.show(entry=1, head=1, **sizes)
    assert set(map(tuple, shown.classes)) == {("empty", "partial", "full")} and "<svg" in shown._repr_svg_()


def looks_up_bits(do, q, k, v, o, lse, **given):
    return any("block_scores" in kernel.source for kernel in ja.prepare_backward(do, q, k, v, o, lse, **given))


@pytest.mark.parametrize("scores", [True, 3])
def test_gradients_ask_the_mask_where_they_can(rng, place, fetch, scores):
    arrays = random_qkv(rng, batch=2, seqlen_q=90, seqlen_kv=90, heads_q=2)
    q, k, v, segment = map(place, (*arrays, random_segments(rng, 2, 90)))
    bm = ja.block_mask(q, k, mask=SEGMENTS, tensors={"segment": segment}, block_size=(32, 32), scores=scores)
    o, lse = ja.attention(q, k, v, block_mask=bm, return_lse=True)
    call = (place(rng.standard_normal(arrays[0].shape).astype(arrays[0].dtype)), q, k, v, o, lse)
    assert not looks_up_bits(*call, block_mask=bm)
    without = dataclasses.replace(bm, read={})  # as made by hand: what the mask reads is not there
    assert looks_up_bits(*call, block_mask=without) and looks_up_bits(*call, mask=bm.mask, tensors=bm.tensors)
    for got, expected in zip(*(ja.attention_backward(*call, block_mask=given) for given in (bm, without))):
        assert numpy.array_equal(fetch(got), fetch(expected))


def test_a_score_reads_what_the_mask_does(rng, place, fetch):
    """Known scores need it no more, and the score does."""
    arrays = random_qkv(rng, batch=2, seqlen_q=90, seqlen_kv=90, heads_q=2)
    near = rng.standard_normal((2, 90)).astype(numpy.float32)
    q, k, v, weights = map(place, (*arrays, near))
    mask = ja.mask.text("return weights[b * seqlen_kv + k] > 0.0f || k < 3;", name="some", tensors={"weights": "fp32"})
    score = ja.score.text("return score + weights[b * seqlen_kv + k];", name="more", tensors={"weights": "fp32"})
    tensors = {"weights": weights}
    do = place(rng.standard_normal(arrays[0].shape).astype(arrays[0].dtype))
    results = []
    for scores in (False, True):
        bm = ja.block_mask(q, k, mask=mask, tensors=tensors, block_size=(32, 32), scores=scores)
        given = {"block_mask": bm, "score": score, "tensors": tensors}
        o, lse = ja.attention(q, k, v, return_lse=True, **given)
        *grads, by_name = ja.attention_backward(do, q, k, v, o, lse, d_tensors=["weights"], **given)
        results.append([o, lse, *grads, by_name["weights"]])
    for got, expected in zip(*results, strict=True):
        assert numpy.array_equal(fetch(got), fetch(expected))
    with pytest.raises(ja.InvalidArgumentError, match="other: was given, but neither mask nor score reads"):
        ja.attention(q, k, v, block_mask=bm, tensors={"other": weights})


def test_gradients_of_a_mask_that_reads_all_that_a_call_may(rng, place, fetch):
    """Eight arrays, so that there is no room for the table beside them: bits are looked up."""
    arrays = random_qkv(rng, seqlen_q=50, seqlen_kv=50)
    q, k, v = map(place, arrays)
    kept = rng.integers(0, 2, (8, 50)).astype(numpy.int32)
    tensors = {f"kept{i}": place(row) for i, row in enumerate(kept)}
    body = " || ".join(f"kept{i}[k] > 0 && q % 8 == {i}" for i in range(8))
    mask = ja.mask.text(f"return k == 0 || {body};", name="eight", tensors=dict.fromkeys(tensors, "int32"))
    bm = ja.block_mask(q, k, mask=mask, tensors=tensors, block_size=(32, 32), scores=True)
    o, lse = ja.attention(q, k, v, block_mask=bm, return_lse=True)
    do = rng.standard_normal(arrays[0].shape).astype(arrays[0].dtype)
    call = (place(do), q, k, v, o, lse)
    assert looks_up_bits(*call, block_mask=bm)
    expected = gradients(*arrays, do, lambda b, h, i, j: (j == 0) | (kept[i % 8, j] > 0))
    for got, right in zip(ja.attention_backward(*call, block_mask=bm), expected):
        numpy.testing.assert_allclose(fetch(got), right, atol=0.02 * numpy.abs(right).max())


def test_room_for_scores(rng, place):
    q, k, _ = map(place, random_qkv(rng, seqlen_q=100, seqlen_kv=150))
    for scores in (0, -1):
        with pytest.raises(ja.InvalidSpecError, match="scores: is"):
            ja.block_mask(q, k, mask=BY_HEAD, scores=scores)
    counts, indices = place(numpy.ones((1, 1, 4), numpy.int32)), place(numpy.zeros((1, 1, 4, 2), numpy.int32))
    bm = ja.BlockMask.from_lists(
        counts, indices, seqlen_q=100, seqlen_k=150, block_size=(32, 16), mask=ja.mask.prefix(9), scores=True
    )
    assert tuple(bm.tensors["block_scores"].shape) == (1, 1, 4 * 2, 64)


def test_tables_say_what_is_seen(rng, place, fetch):
    q, k, _ = map(place, random_qkv(rng, batch=2, seqlen_q=100, seqlen_kv=150, heads_q=3))
    table = ja.block_mask(q, k, mask=BY_HEAD, block_size=(32, 16)).table
    assert tuple(table.shape) == (1, 3, 4, 3)
    seen, full = blocks_of(fetch(table), 10)
    for h in range(3):
        i, j = numpy.ogrid[:100, :150]
        kept = (j <= i) if h % 2 == 0 else (j >= i)
        for row, column in numpy.ndindex(4, 10):
            block = kept[32 * row : 32 * row + 32, 16 * column : 16 * column + 16]
            assert (seen[0, h, row, column], full[0, h, row, column]) == (block.any(), block.all())


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_single_score_makes_a_block_partial(rng, place, fetch, is_kept):
    q, k, _ = map(place, random_qkv(rng, seqlen_q=100, seqlen_kv=150))
    one = ja.mask.text(
        f"return (q * 1000 + k == place[0]) == {str(is_kept).lower()};", name="one", tensors={"place": "int32"}
    )
    corners = [(i, j) for i in (0, 31, 99) for j in (0, 15, 31, 149)]
    for i, j in [*corners, (int(rng.integers(100)), int(rng.integers(150)))]:
        tensors = {"place": place(numpy.array([1000 * i + j], numpy.int32))}
        table = ja.block_mask(q, k, mask=one, tensors=tensors, block_size=(32, 16)).table
        seen, full = blocks_of(fetch(table), 10)
        others = numpy.full((1, 1, 4, 10), not is_kept)
        others[..., i // 32, j // 16] = True
        assert numpy.array_equal(seen, others), (i, j)
        others[..., i // 32, j // 16] = False
        assert numpy.array_equal(full, others), (i, j)


@pytest.mark.parametrize("mask", [None, ja.mask.causal()], ids=["all", "causal"])
def test_blocks_of_the_caller(rng, place, fetch, mask):
    arrays = random_qkv(rng, batch=2, seqlen_q=130, seqlen_kv=130, heads_q=2)
    q, k, v = map(place, arrays)
    blocks = rng.integers(0, 2, (2, 2, 3, 5)).astype(bool)
    bm = ja.block_mask(q, k, mask=mask, blocks=place(blocks), block_size=(48, 32))
    assert (bm.batch, bm.heads) == (2, 2)
    expected = exact_attention(
        *arrays, keep=lambda b, h, i, j: blocks[b, h, i // 48, j // 32] & ((j <= i) | (mask is None))
    )
    o, lse = ja.attention(q, k, v, block_mask=bm, return_lse=True)
    expected.check(fetch(o), fetch(lse))


def test_lists_in_any_order(rng, place, fetch):
    arrays = random_qkv(rng, batch=1, seqlen_q=128, seqlen_kv=200, heads_q=2)
    counts = numpy.array([[[2, 0, 3, 1]]], numpy.int32)
    indices = numpy.array([[[[3, 0, 1], [1, 1, 1], [6, 2, 6], [99, 0, 0]]]], numpy.int32)
    full_counts = numpy.array([[[1, 1, 0, 0]]], numpy.int32)
    full_indices = numpy.array([[[[1], [5], [0], [0]]]], numpy.int32)
    named = [{0: False, 3: False, 1: True}, {5: True}, {6: False, 2: False}, {}]
    bm = ja.BlockMask.from_lists(
        *map(place, (counts, indices)),
        full_counts=place(full_counts),
        full_indices=place(full_indices),
        seqlen_q=128,
        seqlen_k=200,
        block_size=(32, 32),
        mask=ja.mask.prefix(110),
    )
    assert (bm.batch, bm.heads) == (None, None)

    seen, full = blocks_of(fetch(bm.table), 7)
    for row, blocks in enumerate(named):
        assert set(numpy.flatnonzero(seen[0, 0, row])) == {c for c, f in blocks.items() if f or 32 * c < 110}
        assert set(numpy.flatnonzero(full[0, 0, row])) == {c for c, f in blocks.items() if f or 32 * c + 32 <= 110}

    # Attention with the lists of blocks that the mask is asked about.
    q, k, v = map(place, arrays)
    asked = numpy.zeros((4, 7), bool)
    for row, blocks in enumerate(([3, 0], [], [6, 2], [])):
        asked[row, blocks] = True
    bm = ja.BlockMask.from_lists(
        *map(place, (counts, indices)), seqlen_q=128, seqlen_k=200, block_size=(32, 32), mask=ja.mask.prefix(110)
    )
    expected = exact_attention(*arrays, keep=lambda b, h, i, j: asked[i // 32, j // 32] & (j < 110))
    expected.check(fetch(ja.attention(q, k, v, block_mask=bm)))


def random_bsr(rng, rows, columns):
    """Rows of blocks as BSR and as a map."""
    blocks = rng.integers(0, 3, (rows, columns)) == 0
    indptr = numpy.cumsum([0, *blocks.sum(-1)])
    return indptr.astype(numpy.int32), numpy.nonzero(blocks)[1].astype(numpy.int32), blocks


@pytest.mark.parametrize("kind", ["device", "host", "lists"])
def test_block_sparse_rows(rng, place, fetch, kind):
    arrays = random_qkv(rng, batch=2, seqlen_q=128, seqlen_kv=200, heads_q=2)
    q, k, v = map(place, arrays)
    indptr, indices, blocks = random_bsr(rng, 4, 7)
    given = {
        "device": lambda: map(place, (indptr, indices)),
        "host": lambda: (indptr.astype(numpy.int64), indices.astype(numpy.uint16)),
        "lists": lambda: (indptr.tolist(), indices.tolist()),
    }[kind]()
    sizes = {"seqlen_q": 128, "seqlen_k": 200, "block_size": (32, 32)}
    bm = ja.BlockMask.from_bsr(*given, mask=ja.mask.prefix(150), like=None if kind == "device" else q, **sizes)
    assert (bm.batch, bm.heads, type(bm.table)) == (None, None, type(q))
    o, lse = ja.attention(q, k, v, block_mask=bm, return_lse=True)
    exact_attention(*arrays, keep=lambda b, h, i, j: blocks[i // 32, j // 32] & (j < 150)).check(fetch(o), fetch(lse))


def test_block_sparse_rows_of_each_head(rng, place, fetch):
    """One list of blocks, in which the rows of each batch entry and head begin where they like."""
    arrays = random_qkv(rng, batch=2, seqlen_q=90, seqlen_kv=130, heads_q=2)
    q, k, v = map(place, arrays)
    parts = [random_bsr(rng, 3, 5) for _ in range(4)]
    begins = numpy.cumsum([3, *(part[1].size for part in parts)])
    indptr = numpy.stack([part[0] + begin for part, begin in zip(parts, begins)]).reshape(2, 2, 4).astype(numpy.int32)
    indices = numpy.concatenate([[-9, 99, 1], *(part[1] for part in parts)]).astype(numpy.int32)  # three are no row's
    blocks = numpy.stack([part[2] for part in parts]).reshape(2, 2, 3, 5)
    sizes = {"seqlen_q": 90, "seqlen_k": 130, "block_size": (32, 32)}
    bm = ja.BlockMask.from_bsr(place(indptr), place(indices), **sizes)
    assert (bm.batch, bm.heads) == (2, 2)
    expected = exact_attention(*arrays, keep=lambda b, h, i, j: blocks[b, h, i // 32, j // 32])
    expected.check(fetch(ja.attention(q, k, v, block_mask=bm)))


def test_scipys_rows(rng, place, fetch):
    sparse = pytest.importorskip("scipy.sparse")
    arrays = random_qkv(rng, seqlen_q=64, seqlen_kv=96)
    q, k, v = map(place, arrays)
    scores = numpy.kron(rng.integers(0, 2, (4, 3)), numpy.ones((16, 32)))
    bsr = sparse.bsr_array(scores, blocksize=(16, 32))
    bm = ja.BlockMask.from_bsr(
        bsr.indptr, bsr.indices, seqlen_q=64, seqlen_k=96, block_size=bsr.blocksize, like=q
    )
    expected = exact_attention(*arrays, keep=lambda b, h, i, j: scores[i, j] != 0)
    expected.check(fetch(ja.attention(q, k, v, block_mask=bm)))


def test_block_sparse_rows_that_are_refused(rng, place):
    q, _, _ = map(place, random_qkv(rng, seqlen_q=60, seqlen_kv=90))

    def refused(match, indptr, indices, kind=ja.InvalidArgumentError, **keywords):
        sizes = {"seqlen_q": 60, "seqlen_k": 90, "block_size": (32, 32), "like": q}
        with pytest.raises(kind, match=match):
            ja.BlockMask.from_bsr(indptr, indices, **sizes | keywords)

    ja.BlockMask.from_bsr([0, 2, 3], [0, 2, 0], seqlen_q=60, seqlen_k=90, block_size=(32, 32), like=q)
    refused(r"indptr: has 3 elements for each list of rows; it must have 4", [0, 2, 3], [0, 2, 0], seqlen_q=70)
    refused(r"indptr: has 4 at \[2\]; it must be from 0 to 3", [0, 2, 4], [0, 2, 0])
    refused(r"indptr: has -1 at \[0\]", [-1, 2, 3], [0, 2, 0])
    refused(r"indptr: falls from 3 to 2 at \[0, 1, 2\]", [[[0, 1, 3], [0, 3, 2]]], [0, 1, 2])
    refused(r"indices: has 3 at \[1\]; it must be from 0 to 2, as there are 3 blocks of keys", [0, 2, 3], [0, 3, 0])
    refused(r"indices: has -1 at \[2\]", [0, 2, 3], [0, 2, -1])
    refused(r"indices: has 0 at \[1\], after 2; blocks of a row must ascend$", [0, 2, 3], [2, 0, 0])
    refused(r"indices: has 1 at \[4\], after 1; .* each named once", [[[0, 0, 2], [2, 3, 5]]], [0, 1, 2, 1, 1])
    refused("indices: is float64; it must be of whole numbers", [0, 2, 3], [0.0, 2.0, 1.0])
    refused("indices: has 2 dimensions; it must have 1", [0, 1, 2], [[0, 1]])
    refused("indptr: has 2 dimensions; it must have 1 or 3", [[0, 1, 2]], [0, 1])
    refused("block_q.* 100 must be a multiple of 16", [0, 1, 2], [0, 1], ja.InvalidSpecError, block_size=(100, 32))
    refused("like: is a list, to whose device nothing is copied", [0, 1, 2], [0, 1], like=[])


class Shaped:
    """Has a shape, and is in nobody's memory."""

    def __init__(self, *shape):
        self.shape = shape


def test_errors_name_the_array_that_says_where_the_call_is(place):
    counts = place(numpy.full((1, 1, 2), 1, numpy.int32))
    indices = place(numpy.zeros((1, 1, 2, 2), numpy.int32))
    for name, lists in (
        ("counts", {"counts": Shaped(1, 1, 2), "indices": indices, "full_counts": counts, "full_indices": indices}),
        ("full_counts", {"counts": None, "indices": None, "full_counts": Shaped(1, 1, 2), "full_indices": indices}),
    ):
        with pytest.raises(TypeError, match=f"^{name} is a Shaped, which is no array"):
            ja.BlockMask.from_lists(**lists, seqlen_q=256, seqlen_k=256)
    with pytest.raises(TypeError, match="^indptr is a Shaped, which is no array"):
        ja.BlockMask.from_bsr(Shaped(1, 1, 3), Shaped(2), seqlen_q=256, seqlen_k=256)
    with pytest.raises(TypeError, match="^q is a Shaped, which is no array"):
        ja.block_mask(Shaped(1, 256, 2, 64), Shaped(1, 256, 2, 64))


def test_block_sparse_rows_that_nobody_looks_at(rng, place, fetch):
    """On a device rows may be anything: what can be read counts, and nothing else is."""
    from jit_attention import _core

    q, _, _ = map(place, random_qkv(rng, seqlen_q=60, seqlen_kv=90))
    indptr = place(numpy.array([[[2, 9, -4, 3]]], numpy.int32))  # ends behind the list, before its beginning
    indices = place(numpy.array([7, 0, 1, 1, -5], numpy.int32))
    (table,) = _core.make_block_mask(q, like_name="q", mask=ja.mask.none(), block_q=32, block_kv=32, batch=1, heads=1, heads_q=1,
                                  seqlen_q=96, seqlen_k=90, indptr=indptr, indices=indices)
    seen, _ = blocks_of(fetch(table), 3)
    assert numpy.array_equal(seen[0, 0], [[0, 1, 0], [0, 0, 0], [1, 1, 0]])


def test_lists_for_all_of_a_mask_that_differs(rng, place, fetch):
    arrays = random_qkv(rng, seqlen_q=40, seqlen_kv=40, heads_q=3)
    q, k, v = map(place, arrays)
    lists = [place(numpy.full((1, 1, 3, *last), 2, numpy.int32)) for last in ((), (3,))]
    lists[1][..., 0] = 0
    sizes = {"seqlen_q": 40, "seqlen_k": 40, "block_size": (16, 16), "mask": BY_HEAD}
    bm = ja.BlockMask.from_lists(*lists, heads_q=3, **sizes)
    assert (bm.batch, bm.heads) == (None, 3)
    expected = exact_attention(
        *arrays, keep=lambda b, h, i, j: (j // 16 != 1) & numpy.where(h % 2 == 0, j <= i, j >= i)
    )
    expected.check(fetch(ja.attention(q, k, v, block_mask=bm)))
    with pytest.raises(ja.InvalidArgumentError, match="heads_q 1, and the call has 3"):
        ja.attention(q, k, v, block_mask=ja.BlockMask.from_lists(*lists, **sizes))


def test_ragged_sequences(rng, place, fetch):
    lengths = [70, 0, 130, 33]
    cu = numpy.cumsum([0, *lengths]).astype(numpy.int32)
    arrays = [x[0] for x in random_qkv(rng, seqlen_q=int(cu[-1]), seqlen_kv=int(cu[-1]), heads_q=2)]
    q, k, v, boundaries = map(place, (*arrays, cu))
    where = {"cu_seqlens_q": boundaries, "cu_seqlens_k": boundaries}
    mask = ja.mask.causal() & ja.mask.sliding_window(40)
    bm = ja.block_mask(q, k, mask=mask, block_size=(32, 32), max_seqlen_q=130, max_seqlen_k=130, **where)
    assert bm.table.shape[0] == 4 and bm.table.shape[2] == 5 and bm.ragged_q and bm.ragged_k
    o = fetch(ja.attention(q, k, v, block_mask=bm, **where))
    known = ja.block_mask(
        q, k, mask=mask, block_size=(32, 32), max_seqlen_q=130, max_seqlen_k=130, scores=True, **where
    )
    assert (fetch(known.tensors["block_places"]) >= 0).sum((1, 2, 3)).tolist()[1] == 0
    assert numpy.abs(fetch(ja.attention(q, k, v, block_mask=known, **where)).astype(float) - o).max() < 1e-2
    for begin, end in zip(cu, cu[1:]):
        of_one = [x[None, begin:end] for x in arrays]
        exact_attention(*of_one, keep=lambda b, h, i, j: (j <= i) & (i - j <= 40)).check(o[None, begin:end])
    with pytest.raises(ja.InvalidArgumentError, match="made with cu_seqlens_q, and the call is without"):
        ja.attention(q[None], k[None], v[None], block_mask=bm)


def test_pages(rng, place, fetch):
    lengths = numpy.array([70, 0, 113], numpy.int32)
    q, k, v = random_qkv(rng, batch=3, seqlen_q=20, seqlen_kv=128, heads_q=4, heads_kv=2)
    table = rng.permutation(24).reshape(3, 8).astype(numpy.int32)
    pages = [numpy.empty((24, 16, *x.shape[2:]), x.dtype) for x in (k, v)]
    for to, x in zip(pages, (k, v)):
        to[table] = x.reshape(3, 8, 16, *x.shape[2:])
    where = {"page_table": place(table), "seqused_k": place(lengths)}
    mask = ja.mask.causal() & ja.mask.sliding_window(50)
    arrays = [place(x) for x in (q, *pages)]
    bm = ja.block_mask(*arrays[:2], mask=mask, block_size=(16, 32), **where)
    assert (bm.batch, bm.seqlen_k) == (3, 128)
    o = fetch(ja.attention(*arrays, block_mask=bm, **where))

    for entry, length in enumerate(lengths):
        of_one = q[entry, None], k[entry, None, :length], v[entry, None, :length]

        def keep(b, h, i, j, shift=length - 20):
            return (j <= i + shift) & (i + shift - j <= 50)

        exact_attention(*of_one, keep=keep).check(o[entry, None])


def test_prepared_kernels(rng, place, fetch):
    arrays = random_qkv(rng, batch=2, seqlen_q=90, seqlen_kv=90, heads_q=2)
    q, k, v = map(place, arrays)
    bm = ja.block_mask(q, k, mask=ja.mask.causal(), block_size=(32, 32))
    spec = ja.AttentionSpec(dtype="fp16", head_dim=64, mask=ja.mask.causal())
    for with_arrays in ((), (q, k, v)):
        kernel = ja.prepare(spec, *with_arrays, block_mask=bm)
        assert kernel.spec.mask == bm.mask
        exact_attention(*arrays, keep=lambda b, h, i, j: j <= i).check(fetch(kernel(q, k, v, block_mask=bm)))
    with pytest.raises(ja.InvalidArgumentError, match="prepared for causal; prepare it with block_mask"):
        ja.prepare(spec)(q, k, v, block_mask=bm)
    other = ja.block_mask(q, k, mask=ja.mask.causal(), block_size=(64, 32))
    both = r"is of mask block_mask\(64, 32, causal\), and the kernel was prepared for block_mask\(32, 32, causal\)"
    with pytest.raises(ja.InvalidArgumentError, match=both):
        kernel(q, k, v, block_mask=other)


class OnTheSecondGpu:
    """Says so, as an array there does."""

    def __init__(self, array):
        self.shape, self.dtype = array.shape, array.dtype

    def __dlpack_device__(self):
        return 2, 1

    def __dlpack__(self, **_):
        raise BufferError("is not handed over")


def test_tables_of_another_device(rng, place):
    q, k, v = map(place, random_qkv(rng, seqlen_q=60, seqlen_kv=60))
    bm = ja.block_mask(q, k, mask=ja.mask.causal(), block_size=(32, 32), scores=True)
    o, lse = ja.attention(q, k, v, block_mask=bm, return_lse=True)
    for name in ("block_mask", "block_places", "block_scores"):
        tensors = bm.tensors | {name: OnTheSecondGpu(bm.tensors[name])}
        elsewhere = dataclasses.replace(bm, tensors=tensors, table=tensors["block_mask"])
        match = f"{name}: is in GPU 1, but q is in .*; all arrays of a call must be in one place"
        with pytest.raises(ja.InvalidArgumentError, match=match):
            ja.attention(q, k, v, block_mask=elsewhere)
        if name == "block_mask":
            with pytest.raises(ja.InvalidArgumentError, match=match):
                ja.attention_backward(o, q, k, v, o, lse, block_mask=elsewhere)


def test_calls_that_a_table_was_not_made_for(rng, place):
    q, k, v = map(place, random_qkv(rng, batch=2, seqlen_q=60, seqlen_kv=90, heads_q=2))
    ids = [place(numpy.zeros((2, n), numpy.int32)) for n in (60, 90)]
    tensors = {"document_ids_q": ids[0], "document_ids_kv": ids[1]}
    mask = ja.mask.document() & BY_HEAD
    bm = ja.block_mask(q, k, mask=mask, tensors=tensors, block_size=(32, 32))
    assert (bm.batch, bm.heads) == (2, 2)
    ja.attention(q, k, v, block_mask=bm)

    def refused(match, q=q, k=k, v=v, kind=ja.InvalidArgumentError, **keywords):
        with pytest.raises(kind, match=match):
            ja.attention(q, k, v, **{"block_mask": bm} | keywords)

    def shaped(*shape):
        return place(numpy.zeros(shape, numpy.float16))

    refused("seqlen_q 60, and the call has 59", q=shaped(2, 59, 2, 64))
    refused("seqlen_k 90, and the call has 91", k=shaped(2, 91, 2, 64), v=shaped(2, 91, 2, 64))
    refused("batch 2, and the call has 1", q=shaped(1, 60, 2, 64), k=shaped(1, 90, 2, 64), v=shaped(1, 90, 2, 64))
    refused("heads_q 2, and the call has 4", q=shaped(2, 60, 4, 64))
    refused("was made of mask .*document.*, and the call's mask is causal", mask=ja.mask.causal())
    refused("document_ids_q: is not the array", tensors={"document_ids_q": place(numpy.ones((2, 60), numpy.int32))})
    refused("must be a jit_attention.BlockMask", block_mask=bm.table, kind=TypeError)
    with pytest.raises(ja.InvalidArgumentError, match="seqlen_q 60, and the call has 59"):
        short = shaped(2, 59, 2, 64)
        lse = place(numpy.zeros((2, 2, 59), numpy.float32))
        ja.attention_backward(short, short, k, v, short, lse, block_mask=bm)
    with pytest.raises(AttributeError):
        bm.seqlen_q = 59


def test_what_block_mask_refuses(rng, place):
    q, k, _ = map(place, random_qkv(rng, batch=2, seqlen_q=60, seqlen_kv=60, heads_q=2))
    used = place(numpy.array([60, 60], numpy.int32))
    for keywords, kind, match in (
        ({"block_size": (100, 128)}, ja.InvalidSpecError, "block_q.* 100 must be a multiple of 16"),
        ({"mask": "causal"}, TypeError, "mask must be a jit_attention.Mask"),
        ({"mask": ja.mask.block_mask(64, 64)}, ja.InvalidSpecError, "must have no block_mask in it"),
        ({"mask": SEGMENTS}, ja.InvalidArgumentError, "segment: is read by the mask or score but was not given"),
        ({"layout": "SBHD"}, ja.InvalidArgumentError, "layout: is 'SBHD'"),
        ({"max_seqlen_q": 61}, ja.InvalidArgumentError, "max_seqlen_q: is 61"),
        ({"per_batch": False, "seqused_k": used}, ja.InvalidArgumentError, "per_batch: is False"),
        ({"blocks": place(numpy.ones((2, 3), bool))}, ja.InvalidArgumentError, "blocks: has 2 dimensions"),
    ):
        with pytest.raises(kind, match=match):
            ja.block_mask(q, k, **keywords)
    with pytest.raises(ja.InvalidArgumentError, match="counts: is missing"):
        ja.BlockMask.from_lists(None, None, seqlen_q=1, seqlen_k=1)


def test_pytorchs_own(rng, make, fetch):
    torch = pytest.importorskip("torch")
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    q, k, v = make(2, 150, 4, 64), make(2, 190, 2, 64), make(2, 190, 2, 64)

    def near(b, h, i, j):
        return (i - j <= 30) & (j - i <= 50)

    of_torch = flex.create_block_mask(near, 1, 1, 150, 190, device=q.device, BLOCK_SIZE=(64, 32))
    same = ja.mask.sliding_window(30, 50, "top_left")
    bm = ja.BlockMask.from_torch(of_torch, same)
    assert (bm.batch, bm.heads, bm.seqlen_q, bm.seqlen_k, bm.block_size) == (None, None, 150, 190, (64, 32))
    assert torch.is_tensor(bm.table)
    o, lse = ja.attention(q, k, v, block_mask=bm, return_lse=True)
    half = [fetch(x).astype(numpy.float32).astype("bfloat16") for x in (q, k, v)]
    exact_attention(*half, keep=near).check(fetch(o), fetch(lse))
    # What the lists say, and not what the mask says: a row of blocks taken out.
    of_torch.kv_num_blocks[..., 1] = 0
    of_torch.full_kv_num_blocks[..., 1] = 0
    o = ja.attention(q, k, v, block_mask=ja.BlockMask.from_torch(of_torch, same))
    exact_attention(*half, keep=lambda b, h, i, j: near(b, h, i, j) & (i // 64 != 1)).check(fetch(o))
    with pytest.raises(ja.InvalidArgumentError, match="mask: is missing, and some blocks are seen in part"):
        ja.BlockMask.from_torch(of_torch)
    of_torch.kv_num_blocks[...] = 0
    assert ja.BlockMask.from_torch(of_torch).within == ja.mask.none()


@pytest.mark.parametrize("size", [64, (64,), (64, 64, 64), None])
def test_a_block_has_two_sides(size):
    q = numpy.zeros((1, 64, 1, 16), numpy.float16)
    lists = (numpy.zeros((1, 1, 1), numpy.int32), numpy.zeros((1, 1, 1, 1), numpy.int32))
    for make in (
        lambda: ja.block_mask(q, q, block_size=size),
        lambda: ja.BlockMask.from_lists(*lists, seqlen_q=64, seqlen_k=64, block_size=size),
        lambda: ja.BlockMask.from_bsr(*lists, seqlen_q=64, seqlen_k=64, block_size=size),
    ):
        with pytest.raises(TypeError, match="block_size must be two numbers, of queries and of keys"):
            make()
