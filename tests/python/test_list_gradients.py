"""Gradients of attention to lists of keys, against double precision: o and LSE are exact ones, so that no forward kernel runs."""

import jit_attention as ja
import numpy
import pytest
from jit_attention import _core
from request_batches import BF16, boundaries, int32, requests
from seeded import some
from test_key_lists import latents, positions, random_lists

SHARE = 6  # kernels take long to compile


def exact_gradients(batch, do, lists, counts, block, *, keep=None, score=None, slope=None, sinks=None, dlse=None, members=None,
                    queries=1):
    """o and LSE, then dq, dk, dv and d_sinks; `lists` has a row for each group of queries."""
    heads_q, head_dim = batch.q[0].shape[1:]
    total_q = len(do)
    o, lse = numpy.zeros(do.shape), numpy.full((heads_q, total_q), -numpy.inf)
    dq = numpy.zeros((total_q, heads_q, head_dim))
    dk, dv = ([numpy.zeros(x.shape) for x in those] for those in (batch.k, batch.v))
    d_sinks = numpy.zeros(heads_q)
    begins = boundaries(batch.lengths_q)
    for b, (q, k, v) in enumerate(zip(batch.q, batch.k, batch.v)):
        ratio = heads_q // k.shape[1]
        for i in range(len(q)):
            row = begins[b] + i
            group = row // queries
            for head in range(heads_q):
                kv_head = head // ratio
                own = lists[group, kv_head % lists.shape[1]].copy()
                if group * queries < begins[b]:
                    own[:] = -1  # the group is of the sequence in front
                if members is not None:
                    own[(members[group, kv_head % lists.shape[1]] >> row % queries & 1) == 0] = -1
                at = positions(own, counts[group, kv_head % counts.shape[1]], block, len(k))
                if keep is not None:
                    at = at[keep(i, at, len(q), len(k))]
                x, keys, values = (array.astype(numpy.float64) for array in (q[i, head], k[at, kv_head], v[at, kv_head]))
                raw = keys @ x * head_dim**-0.5
                scores = raw if score is None else score(raw, i, at)
                terms = scores if sinks is None else numpy.append(scores, sinks[head])
                if not len(terms):
                    continue
                largest = terms.max()
                lse[head, row] = largest + numpy.log(numpy.exp(terms - largest).sum())
                p = numpy.exp(scores - lse[head, row])
                o[row, head] = (p @ values).astype(q.dtype)  # as gradients get it, of which they take differences
                own_do = do[row, head].astype(numpy.float64)
                delta = own_do @ o[row, head] - (0 if dlse is None else dlse[head, row])
                ds = p * (values @ own_do - delta)
                if slope is not None:
                    ds = ds * slope(raw, i, at)
                ds *= head_dim**-0.5
                dq[row, head] = ds @ keys
                numpy.add.at(dk[b][:, kv_head], at, numpy.outer(ds, x))
                numpy.add.at(dv[b][:, kv_head], at, numpy.outer(p, own_do))
                if sinks is not None:
                    d_sinks[head] -= numpy.exp(sinks[head] - lse[head, row]) * delta
    return o, lse, (dq, numpy.concatenate(dk), numpy.concatenate(dv), d_sinks)


def check(place, fetch, batch, lists, counts, block, *, is_latent=False, is_slots=False, rng, spec=None, behind=0, **options):
    """`behind` rows of q and of k are no sequence's."""
    heads_q = batch.q[0].shape[1]
    do = rng.standard_normal((sum(batch.lengths_q), heads_q, batch.v[0].shape[-1])).astype(batch.q[0].dtype)
    functions = {name: options.pop(name) for name in ("keep", "score", "slope") if name in options}
    part_bytes = {name: options.pop(name) for name in ("part_bytes",) if name in options}
    sinks, dlse, members = (options.pop(name, None) for name in ("sinks", "dlse", "members"))
    queries = 1 if members is None else -(-sum(batch.lengths_q) // len(lists))
    o, lse, right = exact_gradients(batch, do, lists, counts, block, sinks=sinks, dlse=dlse, members=members, queries=queries,
                                    **functions)
    head_dim, head_dim_v = batch.q[0].shape[-1], batch.v[0].shape[-1]
    spec = ja.AttentionSpec(
        dtype="bf16" if batch.q[0].dtype.itemsize == 2 and "bfloat" in str(batch.q[0].dtype) else "fp16", head_dim=head_dim,
        head_dim_v=head_dim_v, gqa_ratio=heads_q // batch.k[0].shape[1], sequences_q="varlen", sequences_kv="varlen",
        values_in_keys=is_latent, list_block=block, list_slots=is_slots, list_queries=queries, sinks=sinks is not None,
        **(spec or {}))
    q, k, v = (numpy.concatenate(those) for those in (batch.q, batch.k, batch.v))

    def with_rest(x, rest=behind, dimension=0):
        wild = numpy.full((*x.shape[:dimension], rest, *x.shape[dimension + 1:]), numpy.nan, x.dtype)
        return place(numpy.concatenate([x, wild], dimension))

    def of_all(entries):
        """Rows that are no sequence's have lists, too, of anything."""
        wild = rng.integers(-(2**31), 2**31, (behind, *entries.shape[1:])).astype(numpy.int32)
        return numpy.concatenate([entries, wild])

    def run():
        return _core._list_gradients(
            with_rest(do), with_rest(q), with_rest(k), None if is_latent else with_rest(v), with_rest(o.astype(q.dtype)),
            with_rest(lse.astype(numpy.float32), dimension=1), spec, cu_seqlens_q=place(boundaries(batch.lengths_q)),
            cu_seqlens_k=place(boundaries(batch.lengths_k)), sinks=None if sinks is None else place(sinks),
            dlse=None if dlse is None else with_rest(dlse, dimension=1), d_sinks=sinks is not None,
            tensors={"key_lists": place(of_all(lists)), "key_counts": place(of_all(counts))}
            | ({} if members is None else {"key_members": place(members)}), **part_bytes)

    results = [fetch(x) if x is not None else None for x in run()]
    for first, second in zip(results, run()):
        assert first is None or numpy.array_equal(first, fetch(second))
    dq, dk, dv, d_sinks = right
    if is_latent:
        dk[..., :head_dim_v] += dv
        dv = None
    names = ("dq", "dk", "dv", "d_sinks")
    for name, ours, exact in zip(names, results, (dq, dk, dv, d_sinks if sinks is not None else None)):
        if exact is None:
            assert ours is None, name
            continue
        rows = len(exact)
        assert numpy.isfinite(ours).all(), name
        assert not ours[rows:].any(), f"{name} of rows that are no sequence's"
        error = numpy.abs(ours[:rows] - exact).max(initial=0)
        assert error <= 0.015 * numpy.abs(exact).max(initial=0) + 1e-3, f"{name} is off by {error}"
    return results


def groups_of(batch, queries):
    """The requests as those who share lists see them."""
    return type(batch)([numpy.concatenate(batch.q)[::queries]], [numpy.concatenate(batch.k)], [numpy.concatenate(batch.v)])


@pytest.mark.parametrize("block,ratio,head_dim,head_dim_v", some([(1, 8, 64, 64), (4, 3, 128, 72), (48, 1, 64, 128), (128, 16, 96, 96)]))
def test_blocks_of_heads(rng, place, fetch, block, ratio, head_dim, head_dim_v):
    """Each KV head of each query has a list of its own; the last block of a sequence ends behind it."""
    batch = requests(rng, [3, 0, 1, 5], [200, 17, 0, 129], heads_kv=2, ratio=ratio, head_dim=head_dim, head_dim_v=head_dim_v)
    lists, counts = random_lists(rng, batch, max(3, 100 // block), block)
    check(place, fetch, batch, lists, counts, block, rng=rng, behind=int(rng.choice([0, 2])))


@pytest.mark.parametrize("heads,head_dim,head_dim_v", some([(20, 576, 512), (70, 320, 256), (8, 64, 40)]))
def test_latents(rng, place, fetch, heads, head_dim, head_dim_v):
    """Gradients of values and of keys are one; lists are longer than a tile, and rows are more than one."""
    batch = latents(rng, [2, 1], [90, 140], heads=heads, head_dim=head_dim, head_dim_v=head_dim_v)
    lists, counts = random_lists(rng, batch, 75, 1)
    check(place, fetch, batch, lists, counts, 1, is_latent=True, rng=rng, behind=2,
          sinks=rng.standard_normal(heads).astype(numpy.float32))


@pytest.mark.parametrize("block", some([1, 32]))
def test_masks_and_scores_of_positions(rng, place, fetch, block):
    """And the gradient of LSE."""
    batch = requests(rng, [9, 3], [130, 77], heads_kv=1, ratio=4)
    lists, counts = random_lists(rng, batch, max(3, 60 // block), block)
    check(place, fetch, batch, lists, counts, block, rng=rng, dlse=rng.standard_normal((4, 12)).astype(numpy.float32),
          spec=dict(mask=ja.mask.sliding_window(60), score=ja.score.text("return score * score * 0.5f + 0.01f * (k - q);",
                                                                          name="apart")),
          keep=lambda i, j, n, m: (j <= i + m - n) & (j >= i + m - n - 60),
          score=lambda s, i, j: s * s * 0.5 + 0.01 * (j - i), slope=lambda s, i, j: s)


@pytest.mark.parametrize("queries,block", some([(2, 1), (7, 16), (32, 4)]))
def test_latents_of_neighbors(rng, place, fetch, queries, block):
    """Queries that share a list see the entries whose bit is theirs, those behind a sequence's end none."""
    batch = latents(rng, [2 * queries, queries - 1], [130, 77], heads=4, head_dim=64, head_dim_v=48)
    groups = type(batch)([q[::queries] for q in batch.q], batch.k, batch.v)
    lists, counts = random_lists(rng, groups, -(-70 // block), block)
    members = rng.integers(-(2**31), 2**31, lists.shape).astype(numpy.int32)
    check(place, fetch, batch, lists, counts, block, is_latent=True, members=members, rng=rng, spec=dict(mask=ja.mask.causal()),
          keep=lambda i, j, n, m: j <= i + m - n)


@pytest.mark.parametrize("block", some([1, 16]))
def test_slots_and_lists_that_take_turns(rng, place, fetch, block):
    """Entries name rows where they lie; memory is for one list at a time."""
    batch = requests(rng, [6], [180], heads_kv=2, ratio=2, dtype=numpy.dtype(numpy.float16))
    lists, counts = random_lists(rng, batch, max(4, 40 // block), block)
    results = check(place, fetch, batch, lists, counts, block, is_slots=True, rng=numpy.random.default_rng(7))
    turns = check(place, fetch, batch, lists, counts, block, is_slots=True, rng=numpy.random.default_rng(7), part_bytes=1)
    for ours, others in zip(results[:3], turns[:3]):
        assert numpy.array_equal(ours, others)


@pytest.mark.parametrize("block,ratio,head_dim,head_dim_v",
                         some([(128, 16, 128, 128), (64, 16, 128, 128), (128, 1, 64, 64), (64, 4, 72, 40), (128, 8, 96, 128),
                               (64, 32, 64, 64)]))
@pytest.mark.parametrize("kind", some(["plain", "masked", "shared", "turns"], 2))
def test_chosen_blocks(rng, place, fetch, block, ratio, head_dim, head_dim_v, kind):
    """By wgmma on sm_90a: tiles of queries from anywhere, of two heads of keys and several sequences."""
    lengths = [40, 0, 33] if ratio == 1 else [9, 0, 1, 4]
    batch = requests(rng, lengths, [300, 40, 129, 7][:len(lengths)], heads_kv=2, ratio=ratio, head_dim=head_dim,
                     head_dim_v=head_dim_v)
    queries = int(rng.choice([2, 3, 8])) if kind == "shared" else 1
    lists, counts = random_lists(rng, groups_of(batch, queries) if queries > 1 else batch, 5, block)
    shape = (2 * ratio, sum(lengths))
    options = {
        "plain": lambda: dict(behind=2, sinks=rng.standard_normal(2 * ratio).astype(numpy.float32)),
        "masked": lambda: dict(
            dlse=rng.standard_normal(shape).astype(numpy.float32), keep=lambda i, j, n, m: (j <= i + m - n) & (j >= i + m - n - 90),
            spec=dict(mask=ja.mask.sliding_window(90), score=ja.score.text("return score * score * 0.5f + 0.01f * (k - q);",
                                                                           name="apart")),
            score=lambda s, i, j: s * s * 0.5 + 0.01 * (j - i), slope=lambda s, i, j: s),
        "shared": lambda: dict(members=rng.integers(-(2**31), 2**31, lists.shape).astype(numpy.int32),
                               spec=dict(mask=ja.mask.causal()), keep=lambda i, j, n, m: j <= i + m - n),
        "turns": lambda: dict(part_bytes=int(rng.choice([1, 1 << 19])), spec=dict(mask=ja.mask.text("return (q + k) % 3 != 0;", name="third")),
                              keep=lambda i, j, n, m: (i + j) % 3 != 0)}[kind]()
    check(place, fetch, batch, lists, counts, block, rng=rng, **options)


@pytest.mark.parametrize("part_bytes", some([1 << 30, 1 << 19]))
def test_a_block_that_all_queries_choose(rng, place, fetch, part_bytes):
    """Blocks of the grid share its list, and add to its gradients in a fixed order."""
    batch = requests(rng, [70], [200], heads_kv=1, ratio=64, head_dim=64, head_dim_v=128)
    lists, counts = random_lists(rng, batch, 4, 128)
    lists[:, 0, 0] = 0
    check(place, fetch, batch, lists, counts, 128, rng=rng, part_bytes=part_bytes)


def test_nothing(rng, place, fetch):
    """Without queries, and without entries, gradients of keys are 0."""
    batch = requests(rng, [0], [30], heads_kv=1, ratio=2)
    check(place, fetch, batch, numpy.zeros((0, 1, 4), numpy.int32), numpy.zeros((0, 1), numpy.int32), 1, rng=rng)
    batch = requests(rng, [3], [30], heads_kv=1, ratio=2)
    check(place, fetch, batch, numpy.zeros((3, 1, 4), numpy.int32), numpy.zeros((3, 1), numpy.int32), 1, rng=rng)


@pytest.mark.parametrize("rows", [30, 200])
def test_no_sequences(place, fetch, rows):
    """Rows that no sequence has leave gradients of keys 0."""
    q, k = (place(numpy.ones((n, heads, 64), BF16)) for n, heads in ((3, 2), (rows, 1)))
    lists = {"key_lists": place(numpy.zeros((3, 1, 4), numpy.int32)), "key_counts": place(numpy.full((3, 1), 4, numpy.int32))}
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=2, sequences_q="varlen", sequences_kv="varlen", list_block=64)
    _, dk, dv = _core._list_gradients(q, q, k, k, q, place(numpy.zeros((2, 3), numpy.float32)), spec, tensors=lists,
                                      cu_seqlens_q=place(int32([0])), cu_seqlens_k=place(int32([0])))[:3]
    assert not fetch(dk).any() and not fetch(dv).any()


def test_what_is_refused(place, tmp_path):
    q, k = place(numpy.ones((3, 2, 64), numpy.float16)), place(numpy.ones((40, 1, 64), numpy.float16))
    lse = place(numpy.zeros((2, 3), numpy.float32))
    lists = {"key_lists": place(numpy.zeros((3, 1, 4), numpy.int32)), "key_counts": place(numpy.zeros((3, 1), numpy.int32))}
    ends = dict(cu_seqlens_q=place(int32([0, 3])), cu_seqlens_k=place(int32([0, 40])))
    fields = dict(dtype="fp16", head_dim=64, gqa_ratio=2, sequences_q="varlen", sequences_kv="varlen")

    def refused(match, kind=ja.InvalidSpecError, tensors=lists, v=k, **changed):
        with pytest.raises(kind, match=match):
            _core._list_gradients(q, q, k, v, q, lse, ja.AttentionSpec(**(fields | changed)), tensors=tensors, **ends)

    refused("list_block = 0 must be from 1 to 128: gradients without lists are those of Attention::backward")
    refused("sequences_kv = paged must be varlen", list_block=16, sequences_kv="paged", page_size=16)
    refused("key_counts", ja.InvalidArgumentError, {"key_lists": lists["key_lists"]}, list_block=16)
    refused("v: ", ja.InvalidArgumentError, v=None, list_block=16)
    listed = ja.AttentionSpec(list_block=16, **fields)
    with pytest.raises(ja.InvalidSpecError, match="list_block = 16 has no backward here.*jit::list_gradients"):
        ja.write_pack(str(tmp_path / "pack"), [listed], ["sm_90a"], training=True)


def test_more_heads_than_a_grid_has_are_refused(place):
    """Before anything is launched."""
    heads, head_dim = 65536, 16
    x, rows = (place(numpy.ones((tokens, heads, head_dim), numpy.float16)) for tokens in (1, 16))
    spec = ja.AttentionSpec(dtype="fp16", head_dim=head_dim, sequences_q="varlen", sequences_kv="varlen", list_block=16,
                            list_queries=1)
    with pytest.raises(ja.InvalidArgumentError, match="k: has 65536 heads; gradients from lists have at most 65535"):
        _core._list_gradients(x, x, rows, rows, x, place(numpy.ones((heads, 1), numpy.float32)), spec,
                              cu_seqlens_q=place(boundaries([1])), cu_seqlens_k=place(boundaries([16])),
                              tensors={"key_lists": place(numpy.zeros((1, heads, 1), numpy.int32)),
                                       "key_counts": place(numpy.ones((1, heads), numpy.int32))})
