"""Trees of sequences that share their beginnings: packed with their mask, in pages, and what the helper says."""

import jit_attention as ja
import numpy
import pytest
from block_masks import blocks_of
from exact_attention import exact_attention
from request_batches import BF16, boundaries
from seeded import some
from test_backward import check, exact_gradients

SHARE = 2  # kernels take long to compile

LENGTHS = {
    "answers": ([70, 40, 35, 50], [-1, 0, 0, 0]),
    "branches": ([30, 40, 25, 9, 33, 1, 60], [-1, 0, 1, 1, 0, 4, 4]),
    "any order": ([20, 64, 40, 0, 33], [2, -1, 1, 1, 2]),  # a segment of nothing, and parents behind their children
    "forest": ([40, 10, 12, 50, 31, 31], [-1, 0, 0, -1, 3, 3]),
}


def ancestors(tree):
    """(tokens, tokens): whether a token is the other one or continues it, by the segments' parents alone."""
    rows = sum(tree.lengths)
    sees = numpy.zeros((rows, rows), bool)
    for segment in range(len(tree.lengths)):
        own, above = tree.rows(segment), tree.parents[segment]
        sees[numpy.ix_(own, own)] = numpy.tri(len(own), dtype=bool)
        while above >= 0:
            sees[numpy.ix_(own, tree.rows(above))] = True
            above = tree.parents[above]
    return sees


def random_tree(rng, segments, most):
    parents = [-1 if i == 0 or rng.random() < 0.1 else int(rng.integers(0, i)) for i in range(segments)]
    return ja.tree(rng.integers(0, most, segments), parents)


def arrays(rng, place, rows, *, heads_q=4, heads_kv=2, head_dim=64):
    q, do = (rng.standard_normal((1, rows, heads_q, head_dim)).astype(BF16) for _ in range(2))
    k, v = (rng.standard_normal((1, rows, heads_kv, head_dim)).astype(BF16) for _ in range(2))
    return (do, q, k, v), [place(x) for x in (do, q, k, v)]


def test_the_helper_says_what_a_search_says(rng):
    for _ in range(40):
        tree = random_tree(rng, int(rng.integers(1, 20)), int(rng.integers(1, 9)))
        sees, rows = ancestors(tree), numpy.arange(sum(tree.lengths))
        assert sorted(tree.order) == list(range(len(tree.lengths)))
        assert numpy.array_equal(sees, (rows <= rows[:, None]) & (rows[:, None] < tree.ends))
        assert numpy.array_equal(tree.positions, sees.sum(1) - 1)
        before = [max(numpy.flatnonzero(row)[:-1], default=-1) for row in sees]
        assert numpy.array_equal(tree.previous, before)
        assert set(tree.leaves) == set(range(len(tree.lengths))) - set(tree.parents)
        source, token, offsets = tree.logprob_rows()
        for i, leaf in enumerate(tree.leaves):
            path = tree.path(leaf)
            here = slice(offsets[i], offsets[i + 1])
            assert numpy.array_equal(tree.positions[path], numpy.arange(len(path)))
            assert numpy.array_equal(source[here], path[:-1]) and numpy.array_equal(token[here], path[1:])


def test_pages_hold_paths(rng):
    for _ in range(40):
        tree, page_size = random_tree(rng, int(rng.integers(1, 20)), int(rng.integers(1, 9))), int(rng.integers(1, 6))
        pages = tree.pages(page_size)
        used = numpy.zeros(len(pages.rows), int)
        for i, segment in enumerate(tree.order):
            path, table = tree.path(segment), pages.page_table[i]
            assert pages.seqused_k[i] == len(path)
            assert numpy.array_equal(pages.rows[table].reshape(-1)[: len(path)], path)
            used[table[: -(-len(path) // page_size)]] += 1
            if tree.lengths[segment]:
                begin, end = pages.cu_seqlens_q[i : i + 2]
                assert numpy.array_equal(numpy.arange(begin, end), tree.rows(segment))
        assert (used > 0).all(), "no page is of nobody"
        assert pages.rows.size <= sum(tree.lengths) + 2 * page_size * len(tree.lengths)


@pytest.mark.parametrize("name", some(LENGTHS, 2))
def test_packed_rows_equal_double_precision(rng, place, fetch, name):
    tree = ja.tree(*LENGTHS[name])
    sees = ancestors(tree)
    (do, q, k, v), on_device = arrays(rng, place, len(tree.ends), head_dim=int(rng.choice([64, 128])))
    options = dict(mask=ja.mask.tree(), tensors={"tree_ends": place(tree.ends[None])})
    o, lse = ja.attention(*on_device[1:], return_lse=True, **options)
    keep = lambda b, h, i, j: sees[i, j]  # noqa: E731
    exact_attention(q, k, v, keep=keep).check(fetch(o), fetch(lse))
    exact = exact_gradients(do, q, k, v, keep=keep)
    got = [ja.attention_backward(*on_device, o, lse, deterministic=deterministic, **options)
           for deterministic in (True, True, False)]
    for result in got:
        check([fetch(x) for x in result], exact)
    for first, second in zip(*got[:2]):
        assert numpy.array_equal(fetch(first), fetch(second))


@pytest.mark.parametrize("case", some(["not nested", "behind", "beyond", "more keys", "fewer keys", "sinks", "window"], 3))
def test_ends_are_any_numbers(rng, place, fetch, case):
    rows = 150
    seqlen_q = {"more keys": 61, "fewer keys": 200}.get(case, rows)
    q, do = (rng.standard_normal((2, seqlen_q, 4, 64)).astype(BF16) for _ in range(2))
    k, v = (rng.standard_normal((2, rows, 2, 64)).astype(BF16) for _ in range(2))
    ends = rng.integers(0, rows + 1, (2, rows)) if case != "beyond" else rng.integers(rows, 2**31, (2, rows))
    if case == "behind":
        ends = numpy.minimum(ends, numpy.arange(rows) + rng.integers(-3, 2, (2, rows)))
        ends[:, 70] = -(2**31)
    ends = ends.astype(numpy.int32)
    mask, options = ja.mask.tree(), {}
    if case == "sinks":
        options["sinks"] = place(rng.standard_normal(4).astype(numpy.float32))
    if case == "window":
        mask &= ja.mask.sliding_window(40)

    def keep(b, h, i, j):
        own = i + rows - seqlen_q
        return (j <= own) & (own < ends[b, j]) & ((own - j <= 40) | (case != "window"))

    options |= dict(mask=mask, tensors={"tree_ends": place(ends)})
    o, lse = ja.attention(*map(place, (q, k, v)), return_lse=True, **options)
    if case == "sinks":  # a key without a value
        exact = exact_attention(q, k, v, keep=keep)
        sink = fetch(options["sinks"])[None, :, None]
        wanted = numpy.logaddexp(exact.lse, sink)
        assert numpy.abs(fetch(lse) - wanted).max() < 1e-3
        assert numpy.abs(fetch(o) - exact.o * numpy.exp(exact.lse - wanted).transpose(0, 2, 1)[..., None]).max() < 0.02
        return
    exact_attention(q, k, v, keep=keep).check(fetch(o), fetch(lse))
    got = ja.attention_backward(*map(place, (do, q, k, v)), o, lse, **options)
    check([fetch(x) for x in got], exact_gradients(do, q, k, v, keep=keep))


@pytest.mark.parametrize("deterministic", some([False, True]))
def test_varlen_sequences_have_a_tree_each(rng, place, fetch, deterministic):
    trees = [ja.tree(*LENGTHS["answers"]), ja.tree([], []), ja.tree([5], [-1]), ja.tree(*LENGTHS["any order"])]
    lengths = [len(tree.ends) for tree in trees]
    (do, q, k, v), on_device = arrays(rng, lambda x: place(x[0]), sum(lengths))
    ends = place(boundaries(lengths))
    options = dict(mask=ja.mask.tree(), cu_seqlens_q=ends, cu_seqlens_k=ends,
                   tensors={"tree_ends": place(numpy.concatenate([tree.ends for tree in trees]))})
    o, lse = ja.attention(*on_device[1:], return_lse=True, **options)
    got = [fetch(x) for x in ja.attention_backward(*on_device, o, lse, deterministic=deterministic, **options)]
    o, lse = fetch(o), fetch(lse)
    for tree, begin, end in zip(trees, numpy.cumsum([0, *lengths]), numpy.cumsum(lengths)):
        sees, own = ancestors(tree), [x[:, begin:end] for x in (do, q, k, v)]
        keep = lambda b, h, i, j, sees=sees: sees[i, j]  # noqa: E731
        exact_attention(*own[1:], keep=keep).check(o[None, begin:end], lse[None, :, begin:end])
        check([x[None, begin:end] for x in got], exact_gradients(*own, keep=keep))


def test_the_last_queries_of_a_sequence_in_pages(rng, place, fetch):
    """Drafts with siblings: ends of a request's keys, of which the last ones are the draft's."""
    tree = ja.tree([90, 2, 1, 1], [-1, 0, 1, 1])
    q, k, v = (rng.standard_normal((1, 94, heads, 64)).astype(BF16) for heads in (4, 2, 2))
    q = q[:, -4:]
    ends, table = numpy.full((1, 112), -1, numpy.int32), rng.permutation(7).astype(numpy.int32)
    ends[0, :94] = tree.ends
    pages = numpy.full((2, 7, 16, 2, 64), numpy.nan, BF16)
    for page, x in zip(pages, (k, v)):
        for i in range(94):
            page[table[i // 16], i % 16] = x[0, i]
    o, lse = ja.attention(place(q), *map(place, pages), page_table=place(table[None]),
                          seqused_k=place(numpy.array([94], numpy.int32)), mask=ja.mask.tree(), return_lse=True,
                          tensors={"tree_ends": place(ends)})
    sees = ancestors(tree)[-4:]
    exact_attention(q, k, v, keep=lambda b, h, i, j: sees[i, j]).check(fetch(o), fetch(lse))


@pytest.mark.parametrize("name", some(LENGTHS, 2))
def test_pages_have_the_bits_of_rollouts_and_their_gradients(rng, place, fetch, name, emulated):
    tree = ja.tree(*LENGTHS[name])
    (do, q, k, v), on_device = arrays(rng, place, len(tree.ends))
    page_size = int(rng.choice([1, 7, 16, 64]))
    pages = tree.pages(page_size)
    options = dict(mask=ja.mask.causal(), split_keys=64, return_lse=True)
    table = {"page_table": place(pages.page_table), "seqused_k": place(pages.seqused_k),
             "cu_seqlens_q": place(pages.cu_seqlens_q)}
    o, lse = ja.attention(place(q[0]), place(k[0][pages.rows]), place(v[0][pages.rows]), **table, **options)

    own_o, own_lse = fetch(o), fetch(lse)
    for leaf in tree.leaves:  # each sequence as a rollout has it: its prompt at once, some tokens of its own one by one
        path, own = tree.path(leaf), len(tree.rows(leaf))
        if own == 0:
            continue
        k_own, v_own = k[:, path], v[:, path]
        for begin, end in ((0, len(path) - own), (len(path) - own, len(path) - own + 1), (len(path) - 1, len(path))):
            if begin == end:
                continue
            call = [place(x) for x in (q[:, path[begin:end]], k_own[:, :end], v_own[:, :end])]
            rollout, rollout_lse = ja.attention(*call, **options)
            assert numpy.array_equal(fetch(rollout)[0], own_o[path[begin:end]])
            assert numpy.array_equal(fetch(rollout_lse)[0], own_lse[:, path[begin:end]])

    dense = [place(x.astype(kind)[None]) for x, kind in ((own_o, BF16), (own_lse, numpy.float32))]
    got = ja.attention_backward(*on_device, *dense, mask=ja.mask.tree(), tensors={"tree_ends": place(tree.ends[None])})
    sees = ancestors(tree)
    keep = lambda b, h, i, j: sees[i, j]  # noqa: E731
    exact_attention(q, k, v, keep=keep).check(own_o[None], own_lse[None])
    check([fetch(x) for x in got], exact_gradients(do, q, k, v, keep=keep))


def flops(launches):
    return sum(launch.counts["total"].get("tensor_flops", 0) for launch in launches)


def tiles_seen(sees, tile_q, tile_kv):
    rows, columns = (-(-size // side) for size, side in zip(sees.shape, (tile_q, tile_kv)))
    padded = numpy.zeros((rows * tile_q, columns * tile_kv), bool)
    padded[: sees.shape[0], : sees.shape[1]] = sees
    return int(padded.reshape(rows, tile_q, columns, tile_kv).any((1, 3)).sum())


PROMPT_AND_ANSWERS = ([200] + [100] * 4, [-1, 0, 0, 0, 0])
CONFIGS = {
    "family=forward_mma_sync tile_q=64 tile_kv=32 warps=4": (64, 32),
    "family=forward_wgmma tile_q=64 tile_kv=64": (64, 64),
    "family=forward_split_kv row_warps=4 key_warps=1 tile_kv=32 stages=2": (64, 32),
}


@pytest.mark.parametrize("config", some(CONFIGS))
def test_no_tile_without_a_key_is_visited(rng, place, emulated, config):
    if not emulated:
        pytest.skip("a GPU counts no flops")
    if "forward_wgmma" in config and ja.devices()[0].arch != "sm_90a":
        pytest.skip("forward_wgmma is for sm_90a")
    tree = ja.tree(*PROMPT_AND_ANSWERS)
    (_, q, k, v), _ = arrays(rng, place, 600, heads_q=1, heads_kv=1)
    with ja.trace() as seen:
        spec = ja.AttentionSpec(dtype="bf16", head_dim=64, mask=ja.mask.tree())
        ja.prepare(spec, config=config)(q, k, v, tensors={"tree_ends": tree.ends[None]})
    tile_q, tile_kv = CONFIGS[config]
    tiles = tiles_seen(ancestors(tree), tile_q, tile_kv)
    assert tiles < 0.9 * tiles_seen(numpy.tri(600, dtype=bool), tile_q, tile_kv)
    assert flops(seen.launches) == tiles * 4 * tile_q * tile_kv * 64


@pytest.mark.parametrize("head_dim", some([64, 128]))
def test_nor_in_the_backward(rng, place, emulated, head_dim):
    if not emulated or ja.devices()[0].arch != "sm_90a":
        pytest.skip("tiles are those of backward_wgmma, counted")
    tree = ja.tree(*PROMPT_AND_ANSWERS)
    (do, q, k, v), _ = arrays(rng, place, 600, heads_q=2, heads_kv=1, head_dim=head_dim)
    options = dict(mask=ja.mask.tree(), tensors={"tree_ends": tree.ends[None]})
    o, lse = ja.attention(q, k, v, return_lse=True, **options)
    with ja.trace() as seen:
        ja.attention_backward(do, q, k, v, o, lse, **options)
    assert any("backward_wgmma" in launch.kernel for launch in seen.launches)
    assert flops(seen.launches) == 2 * tiles_seen(ancestors(tree), 64, 128) * 5 * 2 * 64 * 128 * head_dim


def test_blocks_have_their_classes(rng, place, fetch):
    tree = random_tree(rng, 12, 90)
    rows, sees = len(tree.ends), ancestors(tree)
    x = place(numpy.zeros((1, rows, 1, 64), BF16))
    table = ja.block_mask(x, x, mask=ja.mask.tree(), tensors={"tree_ends": place(tree.ends[None])},
                          block_size=(32, 48), scores=False)
    seen, full = (blocks[0, 0] for blocks in blocks_of(fetch(table.table), -(-rows // 48)))
    for i in range(-(-rows // 32)):
        for j in range(-(-rows // 48)):
            block = sees[i * 32 : (i + 1) * 32, j * 48 : (j + 1) * 48]
            assert bool(seen[i, j]) == block.any(), (i, j)
            assert bool(seen[i, j] & full[i, j]) == block.all(), (i, j)


def test_sequences_of_block_masks_have_a_tree_each(rng, place, fetch):
    trees = [random_tree(rng, 9, 40), random_tree(rng, 5, 60)]
    lengths = [len(tree.ends) for tree in trees]
    x, ends = place(numpy.zeros((sum(lengths), 1, 64), BF16)), place(boundaries(lengths))
    table = ja.block_mask(x, x, mask=ja.mask.tree(), block_size=(32, 32), scores=False, cu_seqlens_q=ends,
                          cu_seqlens_k=ends, tensors={"tree_ends": place(numpy.concatenate([t.ends for t in trees]))})
    for b, tree in enumerate(trees):
        tiles = -(-lengths[b] // 32)
        seen, _ = (blocks[b, 0, :tiles, :tiles] for blocks in blocks_of(fetch(table.table), tiles))
        sees = numpy.pad(ancestors(tree), (0, -lengths[b] % 32))
        assert numpy.array_equal(seen, sees.reshape(tiles, 32, tiles, 32).any((1, 3)))


def test_torch_differentiates_it(rng, emulated):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    import jit_attention.torch

    tree = ja.tree(*LENGTHS["answers"])
    device, sees = "cpu" if emulated else "cuda", ancestors(tree)
    arrays = [rng.standard_normal((1, len(tree.ends), heads, 64)).astype(numpy.float32) for heads in (4, 4, 2, 2)]
    do, q, k, v = (torch.from_numpy(x).to(device, torch.bfloat16) for x in arrays)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    tensors = {"tree_ends": torch.from_numpy(tree.ends)[None].to(device)}
    o = jit_attention.torch.attention(*leaves, mask=ja.mask.tree(), tensors=tensors)
    got = torch.autograd.grad(o, leaves, do)
    exact = exact_gradients(*(x.detach().float().cpu().numpy() for x in (do, q, k, v)), keep=lambda b, h, i, j: sees[i, j])
    check([x.float().cpu().numpy() for x in got], exact)


def test_ranks_share_the_work_of_trees(place):
    tree = ja.tree(*PROMPT_AND_ANSWERS)
    tensors = {"tree_ends": place(tree.ends[None])}
    placement = ja.distributed.balance(ja.mask.tree(), seqlen=600, ranks=2, granule=16, tensors=tensors)
    sees = ancestors(tree)
    for rank in range(2):  # which needs no answer but those whose queries it has
        needed = numpy.zeros(38, bool)
        for begin, end in placement.needs[rank]:
            needed[begin:end] = True
        rows = placement.positions(rank)
        blocks = numpy.add.reduceat(sees[rows].any(0), numpy.arange(0, 600, 16)) > 0
        assert numpy.array_equal(needed, blocks)


@pytest.mark.parametrize("lengths, parents, field, message", [
    ([1, 2], [-1], "parents", "has 1 numbers, and lengths 2"),
    ([1, -2], [-1, 0], "lengths", "has -2 for segment 1"),
    ([1, 2], [-1, 2], "parents", "has 2 for segment 1"),
    ([1, 2], [-2, 0], "parents", "has -2 for segment 0"),
    ([1, 2, 3], [-1, 2, 1], "parents", "segment 1 in a circle"),
    ([1], [0], "parents", "segment 0 in a circle"),
    ([2**31, 1], [-1, 0], "lengths", "2147483649 tokens"),
])
def test_the_helper_refuses(lengths, parents, field, message):
    with pytest.raises(ja.InvalidArgumentError, match=message) as caught:
        ja.tree(lengths, parents)
    assert caught.value.field == field


def test_pages_of_no_keys_and_segments_that_are_none_are_refused():
    with pytest.raises(ja.InvalidArgumentError, match="page_size: is 0"):
        ja.tree([1], [-1]).pages(0)
    for of_segment in (ja.tree([1], [-1]).rows, ja.tree([1], [-1]).path):
        for segment in (-1, 1):
            with pytest.raises(ja.InvalidArgumentError, match="segment: is .*1, and the tree has 1"):
                of_segment(segment)
    assert ja.tree([], []).pages(4).rows.shape == (0, 4)


@pytest.mark.parametrize("ends, message", [
    (numpy.zeros((1, 59), numpy.int32), "seqlen_kv"), (numpy.zeros((2, 60), numpy.int32), "batch"),
    (numpy.zeros((60,), numpy.int32), "1 dimensions"), (numpy.zeros((1, 60), numpy.int64), "int64"), (None, "not given")])
def test_wrong_ends_are_named(rng, place, ends, message):
    q = place(numpy.zeros((1, 60, 2, 64), BF16))
    tensors = {} if ends is None else {"tree_ends": place(ends)}
    with pytest.raises(ja.InvalidArgumentError, match=message) as caught:
        ja.attention(q, q, q, mask=ja.mask.tree(), tensors=tensors)
    assert caught.value.field == "tree_ends"


BAD_ENDS = [
    ("itself", 7, 7, "is 7; it must be from 8 to 40"), ("negative", 7, -(2**31), "is -2147483648; it must be from 8 to 40"),
    ("beyond the sequence", 0, 91, "is 91; it must be from 1 to 90"), ("largest", 45, 2**31 - 1, "it must be from 46 to 65"),
    ("crosses the prompt's end", 25, 41, "is 41; it must be from 26 to 40"),
    ("crosses by one", 64, 66, "is 66; it must be from 65 to 65"),
    ("of the whole forest", 41, 90, "is 90; it must be from 42 to 65, where what contains key 41 ends")]  # fmt: skip


@pytest.mark.parametrize("name, key, end, message", BAD_ENDS)
@pytest.mark.parametrize("layout", some(["dense", "varlen", "pages"]))
def test_checked_calls_name_ends_of_no_tree(rng, place, layout, name, key, end, message):
    """Of two sequences; the second one has the wrong end. Padding, and pages that are not used, may hold anything."""
    trees = [ja.tree([16, 8], [-1, 0]), ja.tree([20, 20, 25, 25], [-1, 0, -1, -1])]
    lengths = [len(tree.ends) for tree in trees]
    spec = dict(head_dim=64, mask=ja.mask.tree() | ja.mask.prefix(3), checked=True)
    ends = numpy.full((2, 96), -9, numpy.int32)
    ends[0] = numpy.arange(1, 97)
    ends[1, :90], ends[1, 90:] = trees[1].ends, numpy.arange(91, 97)
    arrays = {}
    if layout == "dense":
        q = k = place(rng.standard_normal((2, 96, 2, 64)).astype(BF16))
        message = message.replace("to 90", "to 96")
        end = 97 if name == "beyond the sequence" else end
        message = message.replace("is 91", "is 97")
    else:
        spec["sequences_q"] = "varlen"
        arrays["cu_seqlens_q"] = place(boundaries(lengths))
        q = k = place(rng.standard_normal((sum(lengths), 2, 64)).astype(BF16))
    if layout == "varlen":
        spec["sequences_kv"] = "varlen"
        arrays["cu_seqlens_k"] = arrays["cu_seqlens_q"]
        ends = numpy.concatenate([tree.ends for tree in trees])
    if layout == "pages":
        spec |= dict(sequences_kv="paged", page_size=16)
        k = place(rng.standard_normal((12, 16, 2, 64)).astype(BF16))
        arrays |= dict(page_table=place(rng.permutation(12).astype(numpy.int32).reshape(2, 6)),
                       seqused_k=place(numpy.array(lengths, numpy.int32)))
        ends[0, 24:], ends[1, 90:] = -9, -9
    call = ja.prepare(ja.AttentionSpec(**spec))
    wrong = ends.copy()
    wrong[lengths[0] + key if layout == "varlen" else (1, key)] = end
    assert call(q, k, k, tensors={"tree_ends": place(ends)}, **arrays) is not None
    with pytest.raises(ja.InvalidArgumentError) as refused:
        call(q, k, k, tensors={"tree_ends": place(wrong)}, **arrays)
    assert refused.value.field == "tree_ends" and message in str(refused.value)
    assert f"tree_ends: element [1, {key}], of request 1, is" in str(refused.value)


def test_checked_calls_agree_with_a_search_of_nested_ends(rng, place):
    """Any ends: refused if and only if some key's subtree is not within one that contains the key."""
    call, keys = ja.prepare(ja.AttentionSpec(head_dim=64, mask=ja.mask.tree(), checked=True)), 24
    q = place(rng.standard_normal((1, keys, 1, 64)).astype(BF16))
    answers = []
    for _ in range(30):
        ends = random_tree(rng, 6, 5).ends
        ends = numpy.concatenate([ends, numpy.arange(len(ends) + 1, keys + 1)])[:keys].clip(max=keys).astype(numpy.int32)
        if rng.random() < 0.7:
            ends[rng.integers(keys)] = rng.integers(1, keys + 1)
        k = numpy.arange(keys)
        inside = (k[:, None] < k) & (k < ends[:, None])
        answers.append(bool((ends > k).all() and not (inside & (ends > ends[:, None])).any()))
        try:
            call(q, q, q, tensors={"tree_ends": place(ends[None])})
            assert answers[-1], ends
        except ja.InvalidArgumentError:
            assert not answers[-1], ends
    assert len(set(answers)) == 2


def test_wrong_ends_of_varlen_keys_are_named(place):
    q, ends = place(numpy.zeros((60, 2, 64), BF16)), place(numpy.array([0, 20, 60], numpy.int32))
    for shape in ((2, 60), (59,), (1, 60)):
        with pytest.raises(ja.InvalidArgumentError, match="tree_ends"):
            ja.attention(q, q, q, mask=ja.mask.tree(), cu_seqlens_q=ends, cu_seqlens_k=ends,
                         tensors={"tree_ends": place(numpy.zeros(shape, numpy.int32))})
