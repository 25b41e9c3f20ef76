"""Suites append and merge of bench/compare.py: inputs, the check, and how each contender is called, on the CPU.

FlashInfer and FlashAttention-3 are replaced by stand-ins that compute from the arguments that they are given."""

import dataclasses
import pathlib
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from comparison import measure, timing  # noqa: E402
from comparison.contender import Contender, Runner, Unsupported  # noqa: E402
from comparison.contenders import all_contenders  # noqa: E402
from comparison.flash_attention_peers import FlashAttention3  # noqa: E402
from comparison.flashinfer_peers import FlashInfer  # noqa: E402
from comparison.operation_inputs import MAKE_INPUTS, REFERENCES  # noqa: E402
from comparison.operations import Append, Merge  # noqa: E402
from comparison.ours import JitAttention  # noqa: E402
from comparison.report import OURS  # noqa: E402
from serving_stand_ins import FakeFlashInfer, rotate  # noqa: E402
from test_serving_contenders import first_is_fastest, install  # noqa: E402, F401

APPEND = Append("test", "append", ((1, 9, 12), (2, 1, 16), (1, 5, 0)), 4, 2, head_dim=32, page_size=8, mode="cold")
MERGES = dict(two=Merge("test", "two", 2, 5, 3, head_dim=16, mode="cold"),
              inside=Merge("test", "inside", 4, 5, 3, states_inside=True, head_dim=16, mode="cold"),
              fp32=Merge("test", "fp32", 4, 5, 3, dtype="fp32", head_dim=16, mode="cold"))
PROBLEMS = dict(append=APPEND, **MERGES)
every_merge = pytest.mark.parametrize("problem", MERGES.values(), ids=MERGES)
every_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


def prepared(contender, problem, device="cpu"):
    inputs = MAKE_INPUTS[type(problem)](problem, device, 3)
    return measure.prepare(problem, inputs, REFERENCES[type(problem)](problem, inputs), contender)


def passes(contender, problem, device="cpu"):
    runner, fields = prepared(contender, problem, device)
    assert runner is not None, fields["reason"]
    return fields


def test_slots_pages_and_positions_of_tokens_agree():
    inputs = MAKE_INPUTS[Append](APPEND, "cpu", 1)
    assert inputs.positions.tolist() == [*range(12, 21), 16, 16, *range(5)]
    assert inputs.batch_indices.tolist() == [0] * 9 + [1, 2] + [3] * 5
    assert inputs.cu_seqlens_q.tolist() == [0, 9, 10, 11, 16] and inputs.seqused_k.tolist() == [21, 17, 17, 5]
    pages = inputs.page_table[inputs.batch_indices.long(), inputs.positions // 8]
    assert torch.equal(inputs.slots, pages * 8 + inputs.positions % 8) and inputs.slots.unique().numel() == 16
    assert torch.equal(torch.cat([inputs.q, inputs.k, inputs.v], 1).flatten(1), inputs.qkv)


class Stores(Contender):
    """An append that is right but for what `spoil` does to its arrays (q, k_cache, v_cache)."""

    name = label = "stores"

    def __init__(self, spoil=lambda *arrays: None):
        self.spoil = spoil

    def append(self, problem, inputs):
        def call():
            cos_sin = inputs.cos_sin[inputs.positions][:, None]
            q, k = (rotate(t, cos_sin) for t in (inputs.q, inputs.k))
            for cache, rows in ((inputs.k_cache, k), (inputs.v_cache, inputs.v)):
                cache.view(-1, *cache.shape[2:])[inputs.slots] = rows
            self.spoil(q, inputs.k_cache, inputs.v_cache)
            return q, inputs.k_cache, inputs.v_cache

        return Runner(call)


def spoil_a_slot(q, k_cache, v_cache):
    slot = MAKE_INPUTS[Append](APPEND, "cpu", 3).slots[0]
    v_cache.view(-1, *v_cache.shape[2:])[slot] *= 1.5


def spoil_another_place(q, k_cache, v_cache):
    slots = set(MAKE_INPUTS[Append](APPEND, "cpu", 3).slots.tolist())
    free = next(slot for slot in range(k_cache.shape[0] * 8) if slot not in slots)
    k_cache.view(-1, *k_cache.shape[2:])[free, 0, 0] += 1


@pytest.mark.parametrize("spoil, status, words", [
    (lambda *arrays: None, None, ""), (spoil_a_slot, "wrong", "error"),
    (lambda q, k_cache, v_cache: q[3, 1].zero_(), "wrong", "error"),
    (spoil_another_place, "failed", "no new token's")])
def test_what_an_append_stores_is_checked_and_so_is_what_it_must_not(spoil, status, words):
    runner, fields = prepared(Stores(spoil), APPEND)
    assert fields.get("status") == status and words in (fields.get("reason") or "")


def test_places_filled_with_nan_count_as_untouched(monkeypatch):
    def capture(runner, calls):
        output = runner.call()
        return types.SimpleNamespace(replay=lambda: [old.copy_(torch.where(old.isnan(), new, old))
                                                     for old, new in zip(output, runner.call())]), output

    monkeypatch.setattr(timing, "capture", capture)
    passes(Stores(), dataclasses.replace(APPEND, mode="replay"))


@pytest.fixture
def flashinfer(monkeypatch, first_is_fastest):  # noqa: F811
    install(monkeypatch, "flashinfer", **FakeFlashInfer().functions)


def test_flashinfer_appends(flashinfer):
    assert passes(FlashInfer(), APPEND)["detail"] == dict(call="rope_then_append")


def test_flashinfers_one_launch_is_given_the_projection(monkeypatch, flashinfer):
    problem = dataclasses.replace(APPEND, heads_q=8, heads_kv=1, head_dim=128)

    def fused(qkv, cos_sin, seq_lens, q_indptr, page_indices, key_cache, value_cache, *, num_q_heads, num_kv_heads,
              clear_unused_last_page_rows):
        assert not clear_unused_last_page_rows
        heads = [count * 128 for count in (num_q_heads, num_kv_heads, num_kv_heads)]
        q, k, v = (t.unflatten(1, (-1, 128)) for t in qkv.split(heads, 1))
        for request in range(len(seq_lens)):
            begin, end = q_indptr[request], q_indptr[request + 1]
            positions = torch.arange(seq_lens[request] - (end - begin), seq_lens[request])
            places = page_indices[request, positions // 8].long(), positions % 8
            key_cache[places] = rotate(k[begin:end], cos_sin[positions][:, None])
            value_cache[places] = v[begin:end]
        rows = torch.cat([torch.arange(n - new, n) for n, new in zip(seq_lens.tolist(), q_indptr.diff().tolist())])
        return rotate(q, cos_sin[rows][:, None])

    install(monkeypatch, "flashinfer.cake_fused_qk_rope_append",
            cake_fused_qk_rmsnorm_rope_append_paged_kv_cache=fused)
    inputs = MAKE_INPUTS[Append](problem, "cpu", 3)
    reference = REFERENCES[Append](problem, inputs)
    assert reference.check(FlashInfer().one_launch(problem, inputs)()).correct
    passes(FlashInfer(), problem)


@every_merge
def test_flashinfer_merges_bf16(problem, flashinfer):
    if problem.dtype == "bf16":
        passes(FlashInfer(), problem)
    else:
        assert prepared(FlashInfer(), problem)[1]["status"] == "unsupported"


@every_merge
def test_flash_attention_3_combines_fp32(problem, monkeypatch):
    def flash_attn_combine(o, lse, out_dtype):
        assert o.dim() == 5 and lse.shape == o.shape[:-1] and o.dtype == torch.float32
        return (lse.softmax(0).nan_to_num(0)[..., None] * o).sum(0).to(out_dtype), "lse"

    install(monkeypatch, "fa3_fwd_interface", flash_attn_combine=flash_attn_combine)
    monkeypatch.setattr(FlashAttention3, "module", lambda self: "fa3_fwd_interface")
    if problem.dtype == "fp32":
        passes(FlashAttention3(), problem)
    else:
        with pytest.raises(Unsupported, match="fp32"):
            FlashAttention3().merge(problem, MAKE_INPUTS[Merge](problem, "cpu", 1))


@every_problem
def test_ours_passes_the_check(problem, emulated):
    passes(JitAttention("off"), problem, "cpu" if emulated else "cuda")


def test_everyone_takes_part_in_what_it_has():
    names = lambda problem: {one.name for one in all_contenders() if one.preparing(problem)}
    assert names(APPEND) == {"ours", "flashinfer"} and names(MERGES["two"]) == {"ours", "fa3", "fa4", "flashinfer"}


def test_floors_are_what_is_read_and_written():
    assert APPEND.bytes() == 16 * 32 * (2 * 2 * (4 + 2 * 2) + 4)
    assert MERGES["two"].bytes() == 5 * 3 * (2 * (16 * 2 + 4) + 16 * 2)
    assert MERGES["fp32"].floor_us() == pytest.approx(5 * 3 * (4 * (16 * 4 + 4) + 16 * 2) / 4.5e6)


@every_problem
def test_every_problem_is_replayed_on_a_gpu(problem, emulated):
    if emulated or not torch.cuda.is_available():
        pytest.skip("there is no GPU that PyTorch and jit-attention share")
    everyone = [one for one in all_contenders("off") if one.preparing(problem) and one.absent() is None]
    for one in measure.measure(dataclasses.replace(problem, mode="replay"), everyone, 0.1):
        may_be = ("ok",) if one["contender"] == OURS else ("ok", "unsupported", "failed")  # peers have few head dims
        assert one["status"] in may_be, (one["contender"], one["reason"])
