"""Suites dsa, block-topk and video-sparse of bench/compare.py: inputs, the check, and how each contender is called, on the CPU.

Peers are replaced by stand-ins that compute from the arguments that they are given."""

import dataclasses
import importlib
import pathlib
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import jit_attention as ja  # noqa: E402
from comparison import chosen_inputs, chosen_peers, measure, reference, timing  # noqa: E402
from comparison.chosen_suites import CHOSEN_SUITES, ChosenBlocks, ChosenKeys, ChosenLatents, IndexKeys  # noqa: E402
from comparison.contender import Contender, Runner  # noqa: E402
from comparison.contenders import all_contenders  # noqa: E402
from comparison.flashinfer_peers import FlashInfer  # noqa: E402
from comparison.ours import JitAttention  # noqa: E402
from comparison.sparse_suites import sparse_cell  # noqa: E402

ROWS = ChosenLatents("test", "rows", 5, 300, heads=8, chosen=64, mode="cold")
PACKED = ChosenLatents("test", "packed", 5, 320, heads=8, chosen=64, packed=True, mode="cold")
INDEX = IndexKeys("test", "index", 6, 200, heads=8, mode="cold")
CHOICE = ChosenKeys("test", "choice", 6, 200, heads=8, chosen=20, mode="cold")
BLOCKS = ChosenBlocks("test", "blocks", 70, 1024, heads_q=32, heads_kv=2, head_dim=64, chosen=4, mode="cold")
SMALL_BLOCKS = dataclasses.replace(BLOCKS, block=64)
PROBLEMS = dict(rows=ROWS, packed=PACKED, index=INDEX, choice=CHOICE, blocks=BLOCKS, small_blocks=SMALL_BLOCKS)
VIDEO = sparse_cell("test", "video", 2, 256, 3, 64, mask="blocks", block=64, random_blocks=2, per_head=True)


def prepared(contender, problem, device="cpu"):
    make = measure.KINDS_OF_INPUTS.get(type(problem), measure.make_inputs)
    inputs = make(problem, device, 3)
    expected = measure.KINDS_OF_REFERENCES.get(type(problem), reference.Reference)(problem, inputs)
    return measure.prepare(problem, inputs, expected, contender)


def passes(contender, problem, device="cpu"):
    runner, fields = prepared(contender, problem, device)
    assert runner is not None, fields["reason"]
    return fields


def test_suites_hold_what_they_are_for():
    for name, cells in CHOSEN_SUITES.items():
        assert all(cell.suite == name and cell.unit for cell in cells) and len({cell.name for cell in cells}) == len(cells)
    assert {(one.heads, one.packed) for one in CHOSEN_SUITES["dsa"] if isinstance(one, ChosenLatents)} == {
        (128, False), (64, False), (16, False), (8, False), (128, True), (16, True), (8, True)}
    assert {one.keys // one.block for one in CHOSEN_SUITES["block-topk"]} == {512, 1408, 800}
    shapes = {(one.seqlen_q, one.heads_q, one.block, one.random_blocks) for one in CHOSEN_SUITES["video-sparse"]}
    assert shapes == {(32768, 16, 64, 64), (109632, 7, 64, 64)}
    who = {one.name for one in all_contenders() if any(one.preparing(cell) for cell in CHOSEN_SUITES["dsa"])}
    assert who == {"ours", "flashmla-sparse", "deepgemm"}
    who = {one.name for one in all_contenders() if one.preparing(BLOCKS)}
    assert who == {"ours", "flashinfer", "fla"}
    assert {one.name for one in all_contenders() if one.preparing(VIDEO)} >= {"ours", "flashinfer", "cudnn-blocks", "fastvideo"}


def test_work_is_counted_by_brute_force():
    positions = range(1024 - 70, 1024)
    inputs = chosen_inputs.make_block_inputs(BLOCKS, "cpu", 1)
    pairs = sum(1 for token, position in enumerate(positions) for block in inputs.lists[token, 0].tolist()
                for key in range(block * 128, block * 128 + 128) if key <= position)
    assert BLOCKS.flops() == 4 * pairs * 32 * 64
    assert INDEX.flops() == 2 * 8 * 128 * sum(range(195, 201))
    assert ROWS.flops() == 2 * 5 * 8 * 64 * (576 + 512)
    with pytest.raises(ValueError, match="no 9 whole blocks of 128"):
        dataclasses.replace(BLOCKS, chosen=9)


def test_inputs_say_the_same_twice():
    inputs = chosen_inputs.make_block_inputs(BLOCKS, "cpu", 1)
    rows = inputs.pages[inputs.page_table[0].long()].transpose(1, 2).flatten(0, 1)
    assert torch.equal(rows, torch.cat([inputs.k, inputs.v], -1)) and torch.equal(rows, rows.to(torch.float8_e4m3fn).bfloat16())
    own = (torch.arange(1024 - 70, 1024) // 128)[:, None]
    assert (inputs.lists[..., -1] == own).all() and (inputs.lists.diff(dim=-1) > 0).all() and (inputs.lists >= 0).all()
    latents = chosen_inputs.make_latent_inputs(PACKED, "cpu", 1)
    rows = latents.packed.view(-1, 656)
    assert torch.equal(rows[:, :512].contiguous().view(torch.float8_e4m3fn).bfloat16(), latents.rows[:, 0, :512])
    assert (rows[:, 512:528].contiguous().view(torch.float32) == 1).all()
    assert torch.equal(rows[:, 528:].contiguous().view(torch.bfloat16), latents.rows[:, 0, 512:])
    assert (latents.lists.diff(dim=-1) > 0).all() and latents.lists.max() < 320


class Repeating(Contender):
    """Right but for one key of one compared token, which is chosen twice."""

    name = label = "repeating"

    def choose_by_index(self, problem, inputs):
        scores = chosen_inputs.IndexReference(problem, inputs).output
        scores = scores.masked_fill(torch.arange(problem.keys) >= inputs.ends[:, None], -torch.inf)
        indices = scores.topk(problem.chosen).indices
        indices[2, -1] = indices[2, -2]
        return Runner(lambda: indices)


def test_a_key_that_is_chosen_twice_is_noticed():
    runner, fields = prepared(Repeating(), CHOICE)
    assert runner is None and fields["status"] == "wrong"


class Spoiled(Contender):
    """Right but for one row of one compared token."""

    name = label = "spoiled"

    def attend_to_blocks(self, problem, inputs):
        expected = chosen_inputs.BlockReference(problem, inputs)
        output = torch.zeros(problem.tokens, problem.heads_q, problem.head_dim)
        output[expected.sample] = expected.output
        output[expected.sample[1], 3] *= 1.1
        return Runner(lambda: output)


def test_a_wrong_row_is_noticed():
    runner, fields = prepared(Spoiled(), BLOCKS)
    assert runner is None and fields["status"] == "wrong"


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_ours(problem, emulated):
    if not isinstance(problem, ChosenBlocks) and not ja.supports(None, head_dim=576, head_dim_v=512, values_in_keys=True):
        pytest.skip("of sm_90a alone")
    passes(JitAttention("off"), problem, "cpu" if emulated else "cuda")


def test_ours_of_video(emulated):
    passes(JitAttention("off"), VIDEO, "cpu" if emulated else "cuda")


# Peers


def latents(q, rows, lists, scale):
    """o (tokens, heads, 512) in q's type."""
    chosen = rows[lists.long()].float()
    weights = (torch.einsum("thd,tkd->thk", q.float(), chosen) * scale).softmax(-1)
    return torch.einsum("thk,tkd->thd", weights, chosen[..., :512]).to(q.dtype)


@pytest.fixture
def flashmla(monkeypatch):
    called = []

    def sparse_prefill_fwd(q, kv, indices, scale, d_v, attn_sink, topk_length, out):
        assert d_v == 512 and attn_sink is topk_length is out is None and indices.dtype == torch.int32
        called.append(q.shape[1])
        return latents(q, kv[:, 0], indices[:, 0], scale), None, None

    def sparse_decode_fwd(q, cache, indices, topk_length, attn_sink, metadata, splits, extra, extra_indices, extra_length, d_v,
                          scale, out, batch_invariant):
        assert cache.shape[1:] == (64, 1, 656) and q.shape[2] in (64, 128) and (metadata is None) == (not called)
        called.append(metadata)
        rows = cache.view(-1, 656)
        rows = torch.cat([rows[:, :512].contiguous().view(torch.float8_e4m3fn).bfloat16(),
                          rows[:, 528:].contiguous().view(torch.bfloat16)], 1)
        return latents(q[:, 0], rows, indices[:, 0], scale)[:, None], None, "planned", "splits"

    operators = types.SimpleNamespace(sparse_prefill_fwd=sparse_prefill_fwd, sparse_decode_fwd=sparse_decode_fwd)
    monkeypatch.setattr(chosen_peers.FlashMlaSparse, "loaded", lambda self: operators)
    return called


def test_flashmla_takes_rows_of_both_kinds(flashmla):
    assert passes(chosen_peers.FlashMlaSparse(), ROWS)["detail"]["call"] == "sparse_prefill_fwd" and flashmla == [8, 8]
    flashmla.clear()
    assert passes(chosen_peers.FlashMlaSparse(), PACKED)["detail"]["call"] == "sparse_decode_fwd"
    assert flashmla == [None, "planned", "planned"], "how keys are split is planned once"


DEEP_GEMM = """
import torch
def fp8_fp4_mqa_logits(q, kv, weights, starts, ends, most):
    q, scale = q
    k, k_scale = kv
    assert scale is None and (starts == 0).all() and most == len(k)
    products = torch.einsum("thd,kd->htk", q.float(), k.float()).relu()
    scores = torch.einsum("th,htk->tk", weights, products) * k_scale
    return scores.masked_fill(torch.arange(len(k)) >= ends[:, None], float("nan"))  # as nobody cleans them
"""


def test_deep_gemm_is_read_from_vllms_package(monkeypatch, tmp_path):
    folder = tmp_path / "third_party" / "deep_gemm"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('of another PyTorch')\n")
    monkeypatch.setattr(chosen_peers, "inside_vllm", lambda name: tmp_path / name)
    assert "cannot be loaded: of another PyTorch" in chosen_peers.DeepGemm().absent()
    (folder / "__init__.py").write_text(DEEP_GEMM)
    importlib.invalidate_caches()
    monkeypatch.setattr(chosen_peers.DeepGemm, "MODULE", "stand_in_deep_gemm")
    assert chosen_peers.DeepGemm().absent() is None
    assert passes(chosen_peers.DeepGemm(), INDEX)["detail"]["call"] == "fp8_fp4_mqa_logits"
    put(monkeypatch, flashinfer__topk=dict(top_k_ragged_transform=lambda scores, offsets, lengths, k: scores.masked_fill(
        torch.arange(scores.shape[1]) >= lengths[:, None], -torch.inf).topk(k).indices.int() + offsets[:, None]))
    for fast in ("torch.topk", "flashinfer.top_k_ragged_transform"):
        monkeypatch.setattr(timing, "sample_cold", lambda runners, seconds: {name: [1.0 + (name != fast)] for name in runners})
        assert passes(chosen_peers.DeepGemm(), CHOICE)["detail"]["call"] == fast
    sys.modules.pop("stand_in_deep_gemm")


def test_what_vllm_lacks_is_named(monkeypatch):
    monkeypatch.setattr(chosen_peers, "inside_vllm", lambda name: None)
    assert chosen_peers.FlashMlaSparse().absent() == "no package vllm with _flashmla_C.abi3.so is installed"
    assert chosen_peers.DeepGemm().absent() == "no package vllm with third_party/deep_gemm is installed"


def blocks_of(q, k, v, lists, block):
    """o of the last queries of one sequence; lists (tokens, heads_kv, entries)."""
    ratio = q.shape[1] // k.shape[1]
    place = torch.arange(len(k) - len(q), len(k))[:, None]
    seen = (lists[..., None] == torch.arange(len(k)) // block).any(2) & (torch.arange(len(k)) <= place)[:, None]
    k, v, seen = k.repeat_interleave(ratio, 1), v.repeat_interleave(ratio, 1), seen.repeat_interleave(ratio, 1)
    scores = torch.einsum("thd,khd->thk", q.float(), k.float()) * q.shape[-1] ** -0.5
    return torch.einsum("thk,khd->thd", scores.masked_fill(~seen, -torch.inf).softmax(-1), v.float()).to(q.dtype)


def put(monkeypatch, **modules):
    """Modules by name, with __ for a dot, and packages above them."""
    for name, contents in modules.items():
        parts = name.split("__")
        for end in range(1, len(parts) + 1):
            module = types.ModuleType(".".join(parts[:end]))
            module.__path__ = []
            monkeypatch.setitem(sys.modules, module.__name__, module)
            if end > 1:
                setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], module)
        vars(module).update(contents)


def test_flashinfer_is_given_pages_of_e4m3(monkeypatch):
    def msa_sparse_attention(q, k, v, lists, starts, causal, page_table, seqused_k):
        assert k.dtype == v.dtype == torch.float8_e4m3fn and v.data_ptr() - k.data_ptr() == k.shape[-1], "K before V in a row"
        assert causal and starts.tolist() in ([0, 70], [0, 40]) and seqused_k.tolist() == [1024] and lists.is_contiguous()
        k, v = (x[page_table[0].long()].transpose(1, 2).flatten(0, 1).bfloat16() for x in (k, v))
        return blocks_of(q, k, v, lists.transpose(0, 1), 128)

    def msa_sparse_decode_attention(q, k, v, lists, page_table, seqused_k):
        assert page_table.shape == (40, 8) and seqused_k.tolist() == list(range(985, 1025))
        k, v = (x[page_table[7].long()].transpose(1, 2).flatten(0, 1).bfloat16() for x in (k, v))
        return blocks_of(q, k, v, lists.transpose(0, 1), 128)

    put(monkeypatch, flashinfer__msa_ops=dict(msa_sparse_attention=msa_sparse_attention,
                                              msa_sparse_decode_attention=msa_sparse_decode_attention))
    assert passes(FlashInfer(), BLOCKS)["detail"]["call"] == "msa_sparse_attention"
    monkeypatch.setattr(timing, "sample_cold", lambda runners, seconds: {
        name: [1.0 if "decode" in name else 2.0] for name in runners})
    assert passes(FlashInfer(), dataclasses.replace(BLOCKS, tokens=40))["detail"]["call"] == "msa_sparse_decode_attention"
    runner, fields = prepared(FlashInfer(), SMALL_BLOCKS)
    assert runner is None and fields["status"] == "unsupported" and "blocks of 128" in fields["reason"]


def test_fla_is_given_blocks_of_any_size(monkeypatch):
    def parallel_nsa(q, k, v, block_indices, block_counts, block_size, cu_seqlens):
        assert block_counts == 4 and [x.tolist() for x in cu_seqlens] == [[0, 70], [0, 1024]]
        return blocks_of(q[0], k[0], v[0], block_indices[0], block_size)[None]

    put(monkeypatch, fla__ops__nsa__parallel=dict(parallel_nsa=parallel_nsa))
    for problem in (BLOCKS, SMALL_BLOCKS):
        assert passes(chosen_peers.Fla(), problem)["detail"]["call"] == "parallel_nsa"
    runner, fields = prepared(chosen_peers.Fla(), dataclasses.replace(BLOCKS, heads_q=8))
    assert runner is None and "4 query heads a KV head" in fields["reason"]


def listed(q, k, v, lists, counts):
    """o (batch, seqlen, heads, head_dim) of blocks of 64; lists (batch, heads, blocks, entries)."""
    inside = torch.arange(lists.shape[-1]) < counts[..., None]
    blocks = ((lists[..., None] == torch.arange(k.shape[1] // 64)) & inside[..., None]).any(3)
    keep = blocks.repeat_interleave(64, 2).repeat_interleave(64, 3)
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * q.shape[-1] ** -0.5
    return torch.einsum("bhqk,bkhd->bqhd", scores.masked_fill(~keep, -torch.inf).softmax(-1), v.float()).to(q.dtype)


def test_cudnn_takes_the_fastest_of_its_splits(monkeypatch):
    def block_sparse_attention_forward(q, k, v, lists, sparse_block_size, layout, kv_splits):
        assert layout == "bshd" and sparse_block_size == 64 and lists.dtype == torch.int32 and lists.is_contiguous()
        return dict(o_tensor=listed(q, k, v, lists, torch.full(lists.shape[:3], lists.shape[3])))

    put(monkeypatch, cudnn__block_sparse_attention=dict(block_sparse_attention_forward=block_sparse_attention_forward))
    monkeypatch.setattr(timing, "sample_cold", lambda runners, seconds: {
        name: [1.0 if name == "kv_splits auto" else 2.0] for name in runners})
    detail = passes(chosen_peers.CuDnnBlocks(), VIDEO)["detail"]
    assert detail["call"] == "kv_splits auto" and detail["block_mask_ms"] > 0
    for changed, words in ((dict(block=32), "blocks of 64 or 128"), (dict(mask="dilated", random_blocks=0, per_head=False), "no dilated")):
        runner, fields = prepared(chosen_peers.CuDnnBlocks(), dataclasses.replace(VIDEO, **changed))
        assert runner is None and words in fields["reason"]


FAST_VIDEO = """
def triton_block_sparse_attn_forward(q, k, v, lists, counts, sizes):
    from test_chosen_contenders import listed
    assert all(x.is_contiguous() for x in (q, k, v)) and sizes.tolist() == [64] * 4
    return listed(*(x.transpose(1, 2) for x in (q, k, v)), lists, counts).transpose(1, 2), None
"""


def test_fastvideos_files_are_read_without_its_binary(monkeypatch, tmp_path):
    folder = tmp_path / "fastvideo_kernel" / "triton_kernels"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise ImportError('a binary of another PyTorch')\n")
    (folder / "block_sparse_attn_triton.py").write_text(FAST_VIDEO)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(chosen_peers, "missing", lambda name: None)
    monkeypatch.delitem(sys.modules, "fastvideo_kernel", raising=False)
    assert chosen_peers.FastVideo().absent() is None
    assert passes(chosen_peers.FastVideo(), VIDEO)["detail"]["call"] == "triton_block_sparse_attn_forward"
    for name in [name for name in sys.modules if name.partition(".")[0] == "fastvideo_kernel"]:
        monkeypatch.delitem(sys.modules, name)
