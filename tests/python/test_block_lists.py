"""Blocks that the caller names: maps, lists and block-sparse rows."""

import jit_attention as ja
import numpy
import pytest
from block_masks import BY_HEAD, blocks_of
from exact_attention import exact_attention, random_qkv
from jit_attention import _core

SHARE = 6  # kernels take long to compile


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


NO_MASK = ja.mask.none()


def unchecked_table(q, *, mask=NO_MASK, **given):
    """The table of lists that are not read on the host, as on a device."""
    (table,) = _core.make_block_mask(
        q, like_name="q", mask=mask, block_q=32, block_kv=32, batch=1, heads=1, heads_q=1, **given
    )
    return table


def test_lists_in_any_order(rng, place, fetch):
    arrays = random_qkv(rng, batch=1, seqlen_q=128, seqlen_kv=200, heads_q=2)
    counts = numpy.array([[[2, 0, 3, 1]]], numpy.int32)
    indices = numpy.array([[[[3, 0, 1], [1, 1, 1], [6, 2, 6], [99, 0, 0]]]], numpy.int32)
    full_counts = numpy.array([[[1, 1, 0, 0]]], numpy.int32)
    full_indices = numpy.array([[[[1], [5], [0], [0]]]], numpy.int32)
    named = [{0: False, 3: False, 1: True}, {5: True}, {6: False, 2: False}, {}]
    q, k, v = map(place, arrays)
    sizes = {"seqlen_q": 128, "seqlen_k": 200, "mask": ja.mask.prefix(110)}
    lists = {"counts": place(counts), "indices": place(indices)}
    table = unchecked_table(
        q, **lists, full_counts=place(full_counts), full_indices=place(full_indices), **sizes
    )
    seen, full = blocks_of(fetch(table), 7)
    for row, blocks in enumerate(named):
        assert set(numpy.flatnonzero(seen[0, 0, row])) == {c for c, f in blocks.items() if f or 32 * c < 110}
        assert set(numpy.flatnonzero(full[0, 0, row])) == {c for c, f in blocks.items() if f or 32 * c + 32 <= 110}

    # Attention with the lists of blocks that the mask is asked about.
    asked = numpy.zeros((4, 7), bool)
    for row, blocks in enumerate(([3, 0], [], [6, 2], [])):
        asked[row, blocks] = True
    tensors = {"block_mask": unchecked_table(q, **lists, **sizes)}
    o = ja.attention(q, k, v, mask=ja.mask.block_mask(32, 32, ja.mask.prefix(110)), tensors=tensors)
    exact_attention(*arrays, keep=lambda b, h, i, j: asked[i // 32, j // 32] & (j < 110)).check(fetch(o))


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
    most = numpy.array([2**64 - 1], numpy.uint64)
    refused(r"indices: has 18446744073709551615 at \[0\]; it must be from 0 to 2", [0, 1, 1], most)
    refused(r"indptr: has 18446744073709551615 at \[2\]", numpy.append(numpy.array([0, 1], numpy.uint64), most), [0])


def test_lists_that_are_refused():
    """Errors of lists in host memory name places in the array that has them."""
    sizes = {"seqlen_q": 60, "seqlen_k": 90, "block_size": (32, 32)}

    def refused(match, counts, indices, full="", **keywords):
        lists = {f"{full}counts": counts, f"{full}indices": indices}
        lists = {name: x if x is None else numpy.array(x, numpy.int32) for name, x in lists.items()}
        with pytest.raises(ja.InvalidArgumentError, match=match) as caught:
            ja.BlockMask.from_lists(**{"counts": None, "indices": None} | lists, **sizes | keywords)
        assert caught.value.field == match.partition(":")[0]

    def lists(*rows):
        return [[rows]]

    for full in ("", "full_"):
        refused(rf"{full}counts: has 3 at \[0, 0, 1\]; it must be from 0 to 2, the room of a list of {full}indices",
                lists(1, 3), lists([0, 1], [0, 1]), full)
        refused(rf"{full}counts: has -1 at \[0, 0, 0\]", lists(-1, 0), lists([0, 1], [0, 1]), full)
        refused(rf"{full}indices: has 3 at \[0, 0, 1, 1\]; it must be from 0 to 2, as there are 3 blocks of keys",
                lists(1, 2), lists([0, 9], [0, 3]), full)
        refused(rf"{full}indices: has -1 at \[0, 0, 0, 0\]", lists(1, 0), lists([-1, 0], [0, 0]), full)
        refused(rf"{full}indices: has 0 at \[0, 0, 1, 1\], after 2; blocks of a row must ascend$",
                lists(0, 2), lists([2, 1], [2, 0]), full)
        refused(rf"{full}indices: has 1 at \[0, 0, 1, 2\], after 1; .* each named once",
                lists(0, 3), lists([2, 1, 0], [0, 1, 1]), full)
        refused(f"{full}indices: is missing, and {full}counts is given", lists(0, 0), None, full)
    refused(r"indices: has 2 at \[0, 0, 1, 1\], after 2", [[[0, 0]], [[0, 2]]], lists([0, 0], [2, 2]), batch=2)
    refused("counts: is missing, and indices is given", None, lists([0], [0]), full_counts=numpy.zeros((1, 1, 2), "i4"),
            full_indices=numpy.zeros((1, 1, 2, 1), "i4"))


def test_errors_name_arguments_as_they_were_given(place):
    for sizes, name, reason in (
        ({"counts": (1, 1, 3)}, "counts", "has rows = 3; it must be 2"),
        ({"indices": (3, 1, 2, 1)}, "indices", "has batch = 3; it must be 2"),
        ({"full_counts": (3, 1, 2)}, "full_counts", "has batch = 3; it must be 2"),
        ({"full_indices": (2, 1, 4, 1)}, "full_indices", "has rows = 4; it must be 2"),
    ):
        all_sizes = {"counts": (2, 1, 2), "full_counts": (1, 1, 2), "indices": (1, 1, 2, 1)}
        all_sizes = all_sizes | {"full_indices": all_sizes["indices"]} | sizes
        lists = {argument: place(numpy.zeros(shape, numpy.int32)) for argument, shape in all_sizes.items()}
        with pytest.raises(ja.InvalidArgumentError, match=f"^{name}: {reason}") as caught:
            ja.BlockMask.from_lists(**lists, seqlen_q=60, seqlen_k=90, block_size=(32, 32), batch=2)
        assert caught.value.field == name
    bsr = place(numpy.zeros((3, 1, 3), numpy.int32)), place(numpy.zeros(0, numpy.int32))
    with pytest.raises(ja.InvalidArgumentError, match="^indptr: has batch = 3; it must be 2"):
        ja.BlockMask.from_bsr(*bsr, seqlen_q=60, seqlen_k=90, block_size=(32, 32), batch=2)
    with pytest.raises(TypeError, match="batch must be an int, not 1.5"):
        ja.BlockMask.from_bsr(*bsr, seqlen_q=60, seqlen_k=90, block_size=(32, 32), batch=1.5)


def test_what_is_no_array(place):
    q = place(numpy.zeros((1, 60, 2, 64), numpy.float16))
    lists, sizes = numpy.zeros((1, 1, 1), numpy.int32), {"seqlen_q": 60, "seqlen_k": 90}
    with pytest.raises(TypeError, match="^blocks is a list, which is no array: give one that has __dlpack__"):
        ja.block_mask(q, q, blocks=[[[[1]]]])
    with pytest.raises(TypeError, match="^counts is a list, which is no array"):
        ja.BlockMask.from_lists([[[0]]], numpy.zeros((1, 1, 1, 1), numpy.int32), **sizes)
    with pytest.raises(TypeError, match="^indices is a tuple, which is no array"):
        ja.BlockMask.from_lists(lists, ((((0,),),),), **sizes)
    with pytest.raises(TypeError, match="^cu_seqlens_q is a list, which is no array"):
        ja.block_mask(q[0], q, cu_seqlens_q=[0, 60])
    own = ja.block_mask(q, q)
    for given, name in (("x", "str"), (None, "NoneType"), (own, "jit_attention.BlockMask, which calls take as it is")):
        match = f"^block_mask must be a torch.nn.attention.flex_attention.BlockMask, not a {name}"
        with pytest.raises(TypeError, match=match):
            ja.BlockMask.from_torch(given)


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
    q, _, _ = map(place, random_qkv(rng, seqlen_q=60, seqlen_kv=90))
    indptr = place(numpy.array([[[2, 9, -4, 3]]], numpy.int32))  # ends behind the list, before its beginning
    indices = place(numpy.array([7, 0, 1, 1, -5], numpy.int32))
    table = unchecked_table(q, seqlen_q=96, seqlen_k=90, indptr=indptr, indices=indices)
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
