"""Block masks against double precision, what calls refuse to use them for, and PyTorch's own."""

import dataclasses

import jit_attention as ja
import numpy
import pytest
from block_masks import BY_HEAD, SEGMENTS, blocks_of, gradients, random_segments
from exact_attention import exact_attention, random_qkv

SHARE = 9  # kernels take long to compile


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


def test_varlen_sequences(rng, place, fetch):
    lengths = [70, 0, 130, 33]
    cu = numpy.cumsum([0, *lengths]).astype(numpy.int32)
    arrays = [x[0] for x in random_qkv(rng, seqlen_q=int(cu[-1]), seqlen_kv=int(cu[-1]), heads_q=2)]
    q, k, v, boundaries = map(place, (*arrays, cu))
    where = {"cu_seqlens_q": boundaries, "cu_seqlens_k": boundaries}
    mask = ja.mask.causal() & ja.mask.sliding_window(40)
    bm = ja.block_mask(q, k, mask=mask, block_size=(32, 32), max_seqlen_q=130, max_seqlen_k=130, **where)
    assert bm.table.shape[0] == 4 and bm.table.shape[2] == 5 and bm.varlen_q and bm.varlen_k
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


#: Masks that keep the same of whatever lengths, and others.
OF_ANY_LENGTHS = (
    ja.mask.none(),
    ja.mask.prefix(20),
    ja.mask.causal("top_left") | ja.mask.prefix(3),
    ja.mask.sliding_window(9, 30, "top_left"),
    ~ja.mask.text("return k % 5 == 0 && h == 1;", name="causal"),
    ja.mask.prefix_lengths(),
)
OF_THEIR_LENGTHS = (
    ja.mask.causal(),
    ja.mask.causal("top_left") | ja.mask.sliding_window(9),
    ja.mask.prefix(3) & ja.mask.causal_per_request(),
    ja.mask.text("return k < seqlen_kv - 7;", name="top_left"),
)


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("mask", OF_ANY_LENGTHS + OF_THEIR_LENGTHS, ids=str)
def test_lengths_that_a_table_was_not_made_for(rng, place, fetch, mask, scores):
    """Where a table would be another one with them; else the result is right."""
    q, k, v = map(place, random_qkv(rng, batch=2, seqlen_q=60, seqlen_kv=90, heads_q=2))
    numbers = {"seqused_q": [33, 60], "seqused_k": [17, 71], "cache_leftpad": [4, 0]}
    lengths = {name: place(numpy.array(x, numpy.int32)) for name, x in numbers.items()}
    read = {"prefix_lengths": [5, 40], "is_causal": [1, 0]}
    tensors = {name: place(numpy.array(read[name], numpy.int32)) for name in mask.tensors}
    known = {"mask": mask, "tensors": tensors, "block_size": (16, 32), "scores": scores}
    right = ja.attention(q, k, v, mask=mask, tensors=tensors, zero_padding=True, **lengths)
    made = ja.block_mask(q, k, **known, **lengths)
    assert list(made.lengths) == list(lengths)
    for bm in (made, *[ja.block_mask(q, k, **known)] * (mask in OF_ANY_LENGTHS)):
        o = ja.attention(q, k, v, block_mask=bm, zero_padding=True, **lengths)
        numpy.testing.assert_allclose(fetch(o), fetch(right), atol=2e-3)

    def refused(match, bm, lengths):
        with pytest.raises(ja.InvalidArgumentError, match=match):
            ja.attention(q, k, v, block_mask=bm, **lengths)
        if not lengths.keys() & {"cache_leftpad"}:
            lse = place(numpy.zeros((2, 2, 60), numpy.float32))
            with pytest.raises(ja.InvalidArgumentError, match=match):
                ja.attention_backward(q, q, k, v, q, lse, block_mask=bm, **lengths)

    for name in lengths:
        less = {other: x for other, x in lengths.items() if other != name}
        refused(f"was made with {name}, and the call is without; give it, or make one without {name}", made, less)
        if mask in OF_THEIR_LENGTHS:
            bm = ja.block_mask(q, k, **known, **less)
            refused(f"was made without {name}, and the call is with; make one with the same {name}", bm, lengths)


def test_blocks_alone_serve_calls_with_lengths(rng, place, fetch):
    arrays = random_qkv(rng, batch=2, seqlen_q=60, seqlen_kv=90, heads_q=2)
    q, k, v = map(place, arrays)
    blocks = rng.integers(0, 2, (4, 3)).astype(bool)
    blocks[:, 0] = True
    indptr = numpy.cumsum([0, *blocks.sum(1)]).astype(numpy.int32)
    sizes = {"seqlen_q": 60, "seqlen_k": 90, "block_size": (16, 32)}
    rows = place(indptr), place(numpy.nonzero(blocks)[1].astype(numpy.int32))
    lists = blocks.sum(1), numpy.argsort(~blocks, 1, "stable")
    lists = [place(x[None, None].astype(numpy.int32)) for x in lists]
    used = numpy.array([40, 71], numpy.int32)
    for bm in (
        ja.block_mask(q, k, blocks=place(blocks[None, None]), block_size=(16, 32)),
        ja.BlockMask.from_lists(*lists, **sizes),
        ja.BlockMask.from_bsr(*rows, **sizes),
    ):
        o = ja.attention(q, k, v, block_mask=bm, seqused_k=place(used))
        expected = exact_attention(*arrays, keep=lambda b, h, i, j: blocks[i // 16, j // 32] & (j < used[b]))
        expected.check(fetch(o))
    bm = ja.BlockMask.from_bsr(*rows, mask=ja.mask.causal(), **sizes)
    with pytest.raises(ja.InvalidArgumentError, match="made without seqused_k, and the call is with"):
        ja.attention(q, k, v, block_mask=bm, seqused_k=place(used))


def test_lengths_that_hold_something_else(rng, place, fetch, emulated):
    """Arrays of NumPy are checked, also where they were written since; arrays of a device are not read."""
    q, k, v = map(place, random_qkv(rng, batch=2, seqlen_q=60, seqlen_kv=90, heads_q=2))
    used = numpy.array([17, 71], numpy.int32)
    bm = ja.block_mask(q, k, mask=ja.mask.causal(), block_size=(16, 32), seqused_k=place(used))
    o = ja.attention(q, k, v, block_mask=bm, seqused_k=place(used))
    same = ja.attention(q, k, v, block_mask=bm, seqused_k=place(used.copy()))
    assert numpy.array_equal(fetch(same), fetch(o))
    if not emulated:
        assert bm.lengths == {"seqused_k": None}
        return
    used[1] = 90
    match = r"was made with 71 at \[1\] of seqused_k, and the call has 90 there; make one of that call's arrays"
    with pytest.raises(ja.InvalidArgumentError, match=match):
        ja.attention(q, k, v, block_mask=bm, seqused_k=used)
    lse = numpy.zeros((2, 2, 60), numpy.float32)
    with pytest.raises(ja.InvalidArgumentError, match=match):
        ja.attention_backward(o, q, k, v, o, lse, block_mask=bm, seqused_k=used)
    spec = ja.AttentionSpec(dtype="fp16", head_dim=64, mask=ja.mask.causal())
    for call in (ja.prepare(spec, block_mask=bm), lambda *given, **more: ja.prepare(spec, *given, **more)):
        with pytest.raises(ja.InvalidArgumentError, match=match):
            call(q, k, v, block_mask=bm, seqused_k=used)


def test_what_block_mask_refuses(rng, place):
    q, k, _ = map(place, random_qkv(rng, batch=2, seqlen_q=60, seqlen_kv=60, heads_q=2))
    used = place(numpy.array([60, 60], numpy.int32))

    def of_ones(*shape):
        return place(numpy.ones(shape, bool))

    for keywords, kind, match in (
        ({"block_size": (100, 128)}, ja.InvalidSpecError, "block_q.* 100 must be a multiple of 16"),
        ({"mask": "causal"}, TypeError, "mask must be a jit_attention.Mask"),
        ({"mask": ja.mask.block_mask(64, 64)}, ja.InvalidSpecError, "must have no block_mask in it"),
        ({"mask": SEGMENTS}, ja.InvalidArgumentError, "segment: is read by the mask or score but was not given"),
        ({"layout": "SBHD"}, ja.InvalidArgumentError, "layout: is 'SBHD'"),
        ({"max_seqlen_q": 61}, ja.InvalidArgumentError, "max_seqlen_q: is 61"),
        ({"per_batch": False, "seqused_k": used}, ja.InvalidArgumentError, "per_batch: is False, but sequences"),
        ({"blocks": of_ones(2, 3)}, ja.InvalidArgumentError, "blocks: has 2 dimensions"),
        ({"blocks": of_ones(1, 1, 1, 2)}, ja.InvalidArgumentError, "blocks: has columns = 2; it must be 1"),
        ({"blocks": of_ones(3, 1, 1, 1)}, ja.InvalidArgumentError, "blocks: has batch = 3; it must be 2"),
        ({"blocks": place(numpy.ones((1, 1, 1, 1), numpy.int32))}, ja.InvalidArgumentError,
         "blocks: is int32; it must be bool or uint8"),
    ):
        with pytest.raises(kind, match=match):
            ja.block_mask(q, k, **keywords)
    with pytest.raises(ja.InvalidArgumentError, match="counts: is missing"):
        ja.BlockMask.from_lists(None, None, seqlen_q=1, seqlen_k=1)


def test_one_table_for_what_differs(rng, place):
    q, k, _ = map(place, random_qkv(rng, batch=2, seqlen_q=60, seqlen_kv=60, heads_q=2))
    segment = {"segment": place(numpy.zeros((2, 60), numpy.int32))}
    blocks = [place(numpy.ones((2, 1, 1, 1), bool)), place(numpy.ones((1, 2, 1, 1), bool))]
    for name, keywords, reason in (
        ("per_batch", {"mask": SEGMENTS, "tensors": segment}, r"the mask text\(segments\) goes by batch entries"),
        ("per_batch", {"mask": ja.mask.prefix_lengths()}, "the mask prefix_lengths goes by batch entries"),
        ("per_batch", {"blocks": blocks[0]}, "blocks differ between batch entries"),
        ("per_head", {"mask": BY_HEAD}, r"the mask text\(by_head\) goes by query heads"),
        ("per_head", {"blocks": blocks[1]}, "blocks differ between query heads"),
    ):
        with pytest.raises(ja.InvalidArgumentError, match=f"{name}: is False, but {reason}; give True or None"):
            ja.block_mask(q, k, **{name: False}, **keywords)
    bm = ja.block_mask(q, k, mask=ja.mask.causal(), per_batch=False, per_head=False)
    assert (bm.batch, bm.heads) == (None, None)


@pytest.mark.parametrize("side", ["q", "k"])
def test_tables_too_small_for_varlen_sequences(rng, emulated, side):
    """Lengths in memory of the host are looked at."""
    if not emulated:
        pytest.skip("lengths are on the device")
    cu = numpy.array([0, 50, 130], numpy.int32)
    q = rng.standard_normal((130, 2, 16)).astype(numpy.float16)
    where = {"cu_seqlens_q": cu, "cu_seqlens_k": cu}

    def refused(most, longest, **keywords):
        given = f"max_seqlen_{side}"
        match = f"{given}: is {most}, but the longest sequence has {longest} rows; give {longest} or more, or None"
        with pytest.raises(ja.InvalidArgumentError, match=match):
            ja.block_mask(q, q, **{given: most}, **where | keywords)
        assert getattr(ja.block_mask(q, q, **{given: longest}, **where | keywords), f"seqlen_{side}") == longest

    refused(79, 80)
    used = numpy.array([40, 60], numpy.int32)
    refused(59, 60, **{f"seqused_{side}": used})
    if side == "k":
        refused(45, 50, seqused_k=used, cache_leftpad=numpy.array([1, 10], numpy.int32))
    refused(49, 50, **{f"cu_seqlens_{side}": numpy.array([0, 50, 50], numpy.int32)})


def test_pictures_of_what_is_not_there(rng, place):
    q, k, _ = map(place, random_qkv(rng, batch=2, seqlen_q=60, seqlen_kv=60, heads_q=3))
    of_all = ja.block_mask(q, k, mask=ja.mask.causal())
    of_each = ja.block_mask(q, k, per_batch=True, per_head=True)
    assert repr(of_all.show(entry=7, head=9)) == repr(of_all.show())
    for name, size in (("entry", 2), ("head", 3)):
        for bm, place_there, most in ((of_all, -1, 2**24 - 1), (of_each, -1, size - 1), (of_each, size, size - 1)):
            match = f"^{name}: is {place_there}; it must be from 0 to {most}$"
            with pytest.raises(ja.InvalidArgumentError, match=match):
                bm.show(**{name: place_there})
        with pytest.raises(TypeError, match=f"{name} must be an int, not 1.5"):
            of_all.show(**{name: 1.5})


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
    # The lists decide, not the mask: a row of blocks is taken out.
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
