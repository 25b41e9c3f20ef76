"""The suite of sparse masks in bench/compare.py: its masks by brute force, texts that say the same, and how each
contender is given them, on the CPU with stand-ins for what needs a GPU."""

import importlib.util
import itertools
import pathlib
import sys
import types

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from comparison import cells, measure, ours_sparse, records, reference, report, sparse_suites  # noqa: E402
from comparison.contender import Unsupported  # noqa: E402
from comparison.contenders import all_contenders  # noqa: E402
from comparison.flash_attention_peers import FlashAttention3, FlashAttention4  # noqa: E402
from comparison.flashinfer_peers import FlashInfer  # noqa: E402
from comparison.ours import BlockMasks, BuiltIn, JitAttention, MaskBits  # noqa: E402
from comparison.torch_peers import CuDnn, FlashAttention2, Flex  # noqa: E402

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
OURS = JitAttention("off")
needs_ours = pytest.mark.skipif(OURS.absent() is not None, reason=f"ours: {OURS.absent()}")
MASKS = ("causal", "window", "prefix", "document", *sparse_suites.SPARSE_MASKS)
UNEVEN = [mask for mask in MASKS if mask != "document"]  # with more keys than queries, or fewer


def small(mask, seqlen_q=32, seqlen_kv=32, **fields):
    base = dict(window=6, prefix=5, documents=3, stride=4, global_tokens=3, block=4,
                random_blocks=2 if mask in ("bigbird", "blocks") else 0)
    return sparse_suites.sparse_cell("test", mask, 2, seqlen_q, 4, 32, seqlen_kv=seqlen_kv, heads_kv=4, mask=mask,
                                     **{**base, **fields})


def sees(cell, b, h, q, k):
    """A mask in plain Python, of single numbers."""
    p = q + cell.seqlen_kv - cell.seqlen_q
    ids = np.repeat(np.arange(cell.documents), cell.document_lengths(b)) if cell.mask == "document" else None
    chosen = cell.random_blocks > 0 and k // cell.block in cell.block_columns(h, q // cell.block)
    first = min(p, k) < cell.global_tokens
    return {
        "causal": lambda: k <= p,
        "window": lambda: p - cell.window <= k <= p,
        "prefix": lambda: k <= p or k < cell.prefix,
        "document": lambda: ids[q] == ids[k],
        "causal_window": lambda: p - cell.window <= k <= p,
        "dilated": lambda: k in range(p, p - cell.window - 1, -cell.stride),
        "longformer": lambda: abs(p - k) <= cell.window or first,
        "bigbird": lambda: abs(p - k) <= cell.window or first or chosen,
        "blocks": lambda: chosen,
    }[cell.mask]()


def by_brute_force(cell):
    """bool (batch, heads, queries, keys)."""
    shape = cell.batch, cell.heads_q, cell.seqlen_q, cell.seqlen_kv
    places = itertools.product(*map(range, shape))
    return np.array([bool(sees(cell, *place)) for place in places]).reshape(shape)


SIZED = [*((mask, 32, 32) for mask in MASKS), *((mask, *sizes) for mask in UNEVEN for sizes in ((16, 40), (40, 16)))]


@pytest.mark.parametrize("mask, seqlen_q, seqlen_kv", SIZED)
def test_kept_pairs_are_what_the_mask_keeps(mask, seqlen_q, seqlen_kv):
    for per_head in (False, True) if mask == "blocks" else (False,):
        cell = small(mask, seqlen_q, seqlen_kv, per_head=per_head)
        kept = by_brute_force(cell)
        assert cell.kept_pairs() * cell.heads_q == kept.sum() > 0
        assert cell.flops() == 4 * kept.sum() * cell.head_dim
        assert (kept != kept[:, :1]).any() == per_head


@needs_torch
@pytest.mark.parametrize("mask, seqlen_q, seqlen_kv", SIZED)
def test_keep_is_the_mask(mask, seqlen_q, seqlen_kv):
    import torch

    cell = small(mask, seqlen_q, seqlen_kv, per_head=mask == "blocks")
    inputs = measure.make_inputs(cell, "cpu", 0)
    q, k = torch.arange(seqlen_q)[:, None], torch.arange(seqlen_kv)[None]
    kept = by_brute_force(cell)
    for b, h in itertools.product(range(cell.batch), range(cell.heads_q)):
        assert np.array_equal(inputs.keep(cell, b, h, q, k).expand(seqlen_q, seqlen_kv).numpy(), kept[b, h])
    scores = reference.masked_scores(cell, inputs, 1, 8, 16, torch.float32)
    assert np.array_equal(~scores.isneginf().numpy(), kept[1, :, 8:16])


def test_blocks_that_cannot_be_are_refused():
    for fields, words in ((dict(seqlen_kv=30), "no whole blocks of 4"), (dict(random_blocks=9), "no 9 blocks"),
                          (dict(mask="bigbird", per_head=True), "heads choose")):
        with pytest.raises(ValueError, match=words):
            small(**{"mask": "blocks", **fields})


def test_the_suite_holds_what_it_is_for():
    suite = {one.label: one for one in sparse_suites.SPARSE_SUITES["sparse"]}
    sizes = {(one.batch, one.heads_q, one.seqlen_q, one.seqlen_kv, one.head_dim) for one in suite.values()}
    assert sizes == {(4, 16, 8192, 8192, 128)}
    assert {one.mask for one in suite.values()} == set(MASKS)
    dense = 4 * 8192 * 8192
    share = {label: one.kept_pairs() / dense for label, one in suite.items()}
    assert share["causal-window1024"] == share["window1024"] == pytest.approx(0.117, abs=0.001)
    assert share["blocks"] == share["blocks-per-head"] == 6 / 64
    assert share["dilated"] == pytest.approx(513 / 8192 * 0.875, rel=0.01), "the first 2048 queries see half of it"
    assert share["longformer"] < share["bigbird"] < share["longformer"] + 3 / 64
    assert "heads by themselves" in str(suite["blocks-per-head"]) and "heads by" not in str(suite["blocks"])


# Ours


@needs_torch
@needs_ours
@pytest.mark.parametrize("mask", [mask for mask in MASKS if mask != "blocks"])
def test_texts_say_what_the_mask_is(mask):
    import jit_attention as ja

    for seqlen_q, seqlen_kv in ((32, 32), *(((16, 40), (40, 16)) if mask != "document" else ())):
        cell = small(mask, seqlen_q, seqlen_kv)
        text, tensors = ours_sparse.text_mask(cell, measure.make_inputs(cell, "cpu", 0))
        sizes = dict(seqlen_q=seqlen_q, seqlen_kv=seqlen_kv, batch=cell.batch, heads_q=cell.heads_q, entry=1,
                     tensors=tensors and {name: one.numpy() for name, one in tensors.items()})
        shown, kept = ja.tile_map(text, tile_q=1, tile_kv=1, **sizes), by_brute_force(cell)[1, 0]
        assert shown.notes == [], "bounds follow it"
        assert np.array_equal(np.array(shown.classes) == "full", kept)
        assert np.array_equal(np.array(shown.classes) == "empty", ~kept)
        if seqlen_q == seqlen_kv:
            large = ja.tile_map(text, tile_q=6, tile_kv=6, **sizes).counts
            assert (large["empty"] > 0) == cell.bounds_tell, "else it wants a block mask"


def prepared(contender, cell, device="cpu"):
    """(runner, fields) of a contender whose results were checked."""
    import torch

    with torch.no_grad():
        inputs = measure.make_inputs(cell, device, 3)
        return measure.prepare(cell, inputs, reference.Reference(cell, inputs), contender)


@needs_torch
@needs_ours
@pytest.mark.parametrize("mask", ["causal_window", "longformer", "dilated"])
def test_ours_passes_the_check_with_texts(mask, emulated):
    runner, fields = prepared(OURS, small(mask), "cpu" if emulated else "cuda")
    assert runner is not None, fields["reason"]
    assert fields["detail"]["mask"] == "text" and fields["detail"]["config"]["tile_q"] > 0


@needs_torch
@needs_ours
def test_built_in_masks_stand_beside_texts(emulated):
    assert {mask for mask in MASKS if BuiltIn().preparing(small(mask))} == set(sparse_suites.BUILT_IN)
    runner, fields = prepared(BuiltIn("off"), small("causal_window"), "cpu" if emulated else "cuda")
    assert runner is not None, fields["reason"]
    assert "mask" not in fields["detail"]


@needs_torch
@needs_ours
@pytest.mark.parametrize("contender, mask, per_head", [
    (OURS, "document", False), (OURS, "bigbird", False), (OURS, "blocks", True),
    (BlockMasks("off"), "longformer", False), (MaskBits("off"), "longformer", False)],
    ids=["document", "bigbird", "blocks", "longformer", "known"])
def test_ours_passes_the_check_with_block_masks(contender, mask, per_head, emulated):
    import jit_attention

    if not hasattr(jit_attention, "block_mask"):
        pytest.skip("this build of jit_attention makes no block masks")
    cell = small(mask, 64, 64, block=16, per_head=per_head)
    assert contender.preparing(cell)
    runner, fields = prepared(contender, cell, "cpu" if emulated else "cuda")
    assert runner is not None, fields["reason"]
    assert fields["detail"]["block_mask"] == "made beforehand" and fields["detail"]["block_mask_ms"] > 0


def test_who_takes_part():
    for mask in MASKS:
        cell = small(mask)
        for contender in (BlockMasks(), MaskBits()):
            is_absent = contender.preparing(cell) is None
            assert is_absent == (mask in ("document", "bigbird", "blocks")), "there `ours` has a block mask itself"
        here = {one.name for one in all_contenders() if one.preparing(cell)}
        assert here >= {"ours", "flex", "fa3", "fa4", "fa2", "cudnn", "flashinfer"} and "ours_two_calls" not in here
    assert BuiltIn().preparing(cells.cell("test", "dense", 1, 8, 1, 8)) is None


# Peers


@needs_torch
@pytest.mark.parametrize("mask, per_head", [*((mask, False) for mask in MASKS), ("blocks", True)])
def test_flex_is_given_the_mask(monkeypatch, mask, per_head):
    import backward_stand_ins as stand_ins
    import torch
    from torch.nn.attention import flex_attention as module

    given = []

    def flex_attention(*arrays, block_mask, **options):
        given.append(block_mask)
        return stand_ins.flex_attention(*arrays, block_mask=block_mask, **options)

    monkeypatch.setattr(module, "flex_attention", flex_attention)
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    runner, fields = prepared(Flex(), small(mask, per_head=per_head))
    assert runner is not None, fields["reason"]
    assert fields["detail"]["block_mask_ms"] > 0
    assert given[-1].shape == (2 if mask == "document" else 1, 4 if per_head else 1, 32, 32)


def dense_attention(q, k, v, kept):
    """Expected o of q, k, v (batch, seqlen, heads, d); kept: bool, broadcast to (batch, heads, queries, keys)."""
    import torch

    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) * q.shape[-1] ** -0.5
    return torch.einsum("bhqk,bkhd->bqhd", scores.masked_fill(~kept, -np.inf).softmax(-1), v.double()).to(q.dtype)


def wide(blocks, rows, columns):
    return blocks.repeat_interleave(rows, -2).repeat_interleave(columns, -1)


@pytest.fixture
def fa4(monkeypatch):
    """FlashAttention-4 with a package that reads lists of blocks; [the lists of each call]."""
    import torch

    called = []

    def flash_attn_func(q, k, v, block_sparse_tensors):
        lists = block_sparse_tensors
        called.append(lists)
        full = torch.zeros(lists.full_block_idx.shape, dtype=torch.bool)
        for place in itertools.product(*map(range, full.shape[:-1])):
            full[place][lists.full_block_idx[place][:lists.full_block_cnt[place]].long()] = True
        return dense_attention(q, k, v, wide(full, *lists.block_size)), None

    package, lists = types.ModuleType("an_interface"), types.ModuleType("lists")
    package.flash_attn_func = flash_attn_func
    lists.BlockSparseTensorsTorch = types.SimpleNamespace
    for name, module in (("an_interface", package), ("flash_attn", types.ModuleType("flash_attn")),
                         ("flash_attn.cute", types.ModuleType("flash_attn.cute")),
                         ("flash_attn.cute.block_sparsity", lists)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(FlashAttention4, "module", lambda self: "an_interface")
    return called


@needs_torch
@pytest.mark.parametrize("per_head", [False, True])
def test_fa4_is_given_full_blocks(fa4, per_head):
    cell = small("blocks", per_head=per_head)
    runner, fields = prepared(FlashAttention4(), cell)
    assert runner is not None, fields["reason"]
    assert fields["detail"]["block_mask_ms"] > 0
    lists = fa4[-1]
    assert lists.block_size == (4, 4) and not lists.mask_block_cnt.any()
    assert lists.full_block_cnt.shape == (1, 4 if per_head else 1, 8)
    assert str(lists.full_block_idx.dtype) == "torch.int32"


@needs_torch
@pytest.mark.parametrize("peer, refused", [
    (CuDnn, ["window", "prefix", "document", *sparse_suites.SPARSE_MASKS]),
    (FlashAttention2, ["prefix", "dilated", "longformer", "bigbird", "blocks"]),
    (FlashAttention3, ["prefix", "dilated", "longformer", "bigbird", "blocks"]),
    (FlashAttention4, ["prefix", "dilated", "longformer", "bigbird"])])
def test_who_does_not_serve_a_mask_says_which(peer, refused):
    for mask in refused:
        cell = small(mask)
        with pytest.raises(Unsupported, match=f"no {mask} mask"):
            peer().make_sparse(cell, measure.make_inputs(cell, "cpu", 0))


@needs_torch
def test_a_causal_window_is_a_window_for_those_who_have_one():
    assert FlashAttention3().options(small("causal_window")) == dict(causal=False, window_size=(6, 0))


@pytest.fixture
def flashinfer(monkeypatch):
    """FlashInfer's wrappers of blocks and of masks; [(wrapper, backend) of each plan]."""
    import torch

    planned = []

    class BlockSparseAttentionWrapper:
        def __init__(self, workspace, backend):
            self.backend = backend

        def plan(self, indptr, indices, m, n, r, c, heads_q, heads_kv, head_dim, **types):
            assert set(types) == {"q_data_type", "kv_data_type", "o_data_type"} and indices.dtype == torch.int32
            planned.append((type(self).__name__, self.backend))
            blocks = torch.zeros(m // r, n // c, dtype=torch.bool)
            for row, (begin, end) in enumerate(zip(indptr, indptr[1:])):
                blocks[row, indices[begin:end].long()] = True
            self.kept = wide(blocks, r, c)

        def run(self, q, k, v):
            return dense_attention(q[None], k[None], v[None], self.kept)[0]

    class VariableBlockSparseAttentionWrapper:
        def __init__(self, workspace, backend):
            self.backend = backend

        def plan(self, blocks, row_sizes, column_sizes, heads_q, heads_kv, head_dim, **types):
            if self.backend == "fa3":
                raise ValueError("not on this card")
            planned.append((type(self).__name__, self.backend))
            assert blocks.shape == (heads_kv, row_sizes.shape[1], column_sizes.shape[1])
            self.kept = wide(blocks, row_sizes[0, 0], column_sizes[0, 0])

        def run(self, q, k, v):
            assert all(t.is_contiguous() for t in (q, k, v))
            out = dense_attention(*(t.transpose(0, 1)[None] for t in (q, k, v)), self.kept[None])
            return out[0].transpose(0, 1).contiguous()

    class BatchPrefillWithRaggedKVCacheWrapper:
        def __init__(self, workspace, layout):
            pass

        def plan(self, offsets_q, offsets_kv, *sizes, custom_mask, causal, **types):
            assert not causal
            self.count = len(offsets_q) - 1
            self.kept = custom_mask.view(self.count, 1, int(offsets_q[1]), int(offsets_kv[1]))

        def run(self, q, k, v):
            return dense_attention(*(t.view(self.count, -1, *t.shape[1:]) for t in (q, k, v)), self.kept).flatten(0, 1)

    package = types.ModuleType("flashinfer")
    for one in (BlockSparseAttentionWrapper, VariableBlockSparseAttentionWrapper, BatchPrefillWithRaggedKVCacheWrapper):
        setattr(package, one.__name__, one)
    monkeypatch.setitem(sys.modules, "flashinfer", package)
    monkeypatch.setattr(FlashInfer, "HEAD_DIMS", ((32, 32),))
    return planned


def choosing(monkeypatch, name):
    """Lets the contender's own choice, which a GPU's times make, fall on the variant `name`."""
    from comparison import timing

    def sample_cold(runners, seconds):
        return {one: [1.0 if one == name else 2.0] for one in runners}

    monkeypatch.setattr(timing, "sample_cold", sample_cold)


@needs_torch
@pytest.mark.parametrize("per_head, way", [
    (True, "VariableBlockSparseAttentionWrapper cake"), (False, "VariableBlockSparseAttentionWrapper fa2"),
    (False, "BlockSparseAttentionWrapper fa3")])
def test_flashinfer_is_given_blocks_in_all_ways_and_takes_the_fastest(monkeypatch, flashinfer, per_head, way):
    choosing(monkeypatch, way)
    runner, fields = prepared(FlashInfer(), small("blocks", per_head=per_head))
    assert runner is not None, fields["reason"]
    detail = fields["detail"]
    assert detail["call"] == way and detail["block_mask_ms"] > 0
    assert detail["refused"] == {"VariableBlockSparseAttentionWrapper fa3": "not on this card"}
    assert {wrapper for wrapper, _ in flashinfer} == {"VariableBlockSparseAttentionWrapper",
                                                      *["BlockSparseAttentionWrapper"] * (not per_head)}


@needs_torch
@pytest.mark.parametrize("mask", ["dilated", "longformer", "bigbird"])
def test_flashinfer_is_given_other_masks_score_by_score(flashinfer, mask):
    runner, fields = prepared(FlashInfer(), small(mask))
    assert runner is not None, fields["reason"]


# The row of texts


def test_the_speed_of_texts_over_built_in_masks_is_a_row_and_a_sentence():
    suite = sparse_suites.SPARSE_SUITES["sparse"]
    results = []
    for cell, times in zip(suite, (dict(ours=100.0, ours_built_in=50.0), dict(ours=50.0, ours_built_in=100.0),
                                   dict(ours=100.0, ours_built_in=400.0, flex=300.0), dict(ours=10.0, flex=5.0))):
        results += [records.timed(cell, name, [us]) for name, us in times.items()]
    results.append(records.result(suite[3], "ours_built_in", records.FAILED, "no"))
    run = records.Run({}, results)
    table = report.rows(run, "sparse")
    assert table[-1] == ["texts", "1.59 of built in", "", "", "", ""] and len(table[-1]) == len(table[0])
    line = "Speed of masks as text over that of built-in ones: causal 0.50, window1024 2.00, prefix1024 4.00"
    assert line in report.notes(run, "sparse") and report.ratio(run.of("sparse")["sparse/prefix1024"]) == 3.0
    alone = records.Run({}, [records.timed(suite[0], "ours", [1.0]), records.timed(suite[0], "flex", [1.0])])
    assert report.rows(alone, "sparse")[-1][0] == "causal" and report.notes(alone, "sparse") == []
