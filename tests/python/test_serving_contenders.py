"""Suites of serving in bench/compare.py: inputs, the check of replays, and how each contender is called, on the CPU.

Packages are replaced by stand-ins that compute attention from the arguments that they are given, so that a page, a
length or an offset that a contender hands over wrongly shows as a wrong result."""

import dataclasses
import importlib.machinery
import pathlib
import sys
import types
import weakref

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from comparison import measure, reference, serving_suites, timing  # noqa: E402
from comparison.contender import Contender, Runner, Unsupported  # noqa: E402
from comparison.contenders import all_contenders  # noqa: E402
from comparison.flash_attention_peers import FlashAttention3, FlashAttention4, VllmFlashAttention3  # noqa: E402
from comparison.flashinfer_peers import BatchAttention, FlashInfer, Pod, Xqa  # noqa: E402
from comparison.ours import Bf16Cache, JitAttention, TwoCalls  # noqa: E402
from comparison.serving_inputs import make_request_inputs  # noqa: E402
from comparison.stored_keys import KINDS, StoredRows  # noqa: E402
from comparison.torch_peers import CuDnn, FlashAttention2  # noqa: E402
from comparison.vllm_peers import FlashMla, VllmInt4  # noqa: E402
from serving_stand_ins import FakeFlashInfer, serve  # noqa: E402


def batch(*groups, **fields):
    fields = {**dict(heads_q=4, heads_kv=2, head_dim=64, mode="cold"), **fields}
    return serving_suites.requests("test", "batch", groups, **fields)


PAGES = dict(kv_sequences="paged", page_size=16)
DENSE = batch((3, 1, 48))
PAGED = batch((1, 1, 70), (1, 1, 5), (2, 1, 32), **PAGES)
HND = dataclasses.replace(PAGED, kv_layout="HND")
PAGE_1 = batch((1, 1, 7), (1, 1, 19), kv_sequences="paged", page_size=1)
VARLEN = batch((1, 9, 9), (1, 33, 33), (1, 20, 20), mask="causal", q_sequences="varlen", kv_sequences="varlen")
PREFILL = batch((2, 24, 24), mask="causal")
MIXED = batch((1, 20, 70), (1, 9, 9), (1, 1, 40), (2, 1, 5), mask="causal", q_sequences="varlen", **PAGES)
CHUNKS = batch((2, 6, 21), mask="causal", q_sequences="varlen", **PAGES)
FP8 = dataclasses.replace(PAGED, kv_dtype="fp8_e4m3")
FP8_CHUNKS = dataclasses.replace(CHUNKS, kv_dtype="fp8_e4m3")
LATENTS = batch((1, 6, 70), (1, 1, 5), heads_kv=1, head_dim=96, mask="causal", q_sequences="varlen", **PAGES)
LATENTS = dataclasses.replace(LATENTS, head_dim_v=64, values_in_keys=True)
STORED = [dataclasses.replace(CHUNKS if kind == "int8" else PAGED, kv_dtype=kind, inline_scales=kind == "int4")
          for kind in KINDS]
PROBLEMS = dict(dense=DENSE, paged=PAGED, hnd=HND, page_1=PAGE_1, varlen=VARLEN, prefill=PREFILL, mixed=MIXED,
                chunks=CHUNKS, fp8=FP8, fp8_chunks=FP8_CHUNKS)
every_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


def check(contender, problem, seed=3):
    """The Check of a contender's result."""
    inputs = make_request_inputs(problem, "cpu", seed)
    runner, fields = measure.prepare(problem, inputs, reference.Reference(problem, inputs), contender)
    assert runner is not None, fields["reason"]
    return fields


def install(monkeypatch, name, **functions):
    module = types.ModuleType(name)
    module.__dict__.update(functions)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    monkeypatch.setitem(sys.modules, name, module)
    return module


# Inputs and reference


@every_problem
def test_the_reference_is_attention_of_each_request(problem):
    inputs = make_request_inputs(problem, "cpu", 1)
    expected = serve(inputs.shaped_q(problem).float(), inputs.k, inputs.v, problem.mask == "causal",
                     inputs.cu_seqlens_q if problem.q_sequences == "varlen" else None,
                     inputs.cu_seqlens_k if problem.kv_sequences == "varlen" else None,
                     inputs.seqused_k, inputs.page_table, scale=inputs.kv_descale)
    output = reference.Reference(problem, inputs).output
    assert output.shape == problem.output_shape()
    assert (output - expected.view(output.shape)).abs().max() < 1e-5


def test_pages_are_permuted_and_each_belongs_to_one_request():
    inputs, hnd = (make_request_inputs(problem, "cpu", 1) for problem in (PAGED, HND))
    counts = [-(-length // 16) for length in PAGED.seqlens_k]
    pages = torch.cat([row[:count] for row, count in zip(inputs.page_table, counts)]).tolist()
    assert len(set(pages)) == len(pages) == sum(counts) < inputs.k.shape[0] and pages != sorted(pages)
    assert inputs.page_table.shape == (PAGED.batch, PAGED.max_pages) and inputs.page_table.dtype == torch.int32
    assert inputs.k.is_contiguous() and hnd.k.shape == inputs.k.shape and hnd.k.stride()[1:3] == (64, 16 * 64)
    assert inputs.cu_seqlens_k.tolist() == [0, 70, 75, 107, 139] and inputs.seqused_k.tolist() == [70, 5, 32, 32]


def test_caches_of_fp8_stand_for_numbers_of_bf16():
    inputs = make_request_inputs(FP8, "cpu", 1)
    wide = inputs.upcast()
    assert inputs.k.dtype == inputs.v.dtype == torch.float8_e4m3fn and wide.k.dtype == torch.bfloat16
    assert torch.equal(wide.k.float(), inputs.k.float() * inputs.kv_descale)
    assert torch.equal(inputs.q_in_fp8().float() * inputs.kv_descale, inputs.q.float())
    assert FP8.kv_bytes() * 2 == PAGED.kv_bytes() and FP8.flops() == PAGED.flops()


@pytest.mark.parametrize("queries", [1, 2])
def test_flash_mla_serves_latents(queries, monkeypatch):
    pages = dict(kv_sequences="paged", page_size=64, heads_kv=1, head_dim=96, mask="causal" if queries > 1 else "none")
    problem = dataclasses.replace(batch((1, queries, 70), (1, queries, 5), q_sequences="varlen", **pages),
                                  head_dim_v=64, values_in_keys=True)
    schedules = []

    def dense_decode_fwd(q, k, width, seqused_k, page_table, scale, causal, *schedule):
        assert q.shape == (2, queries, 4, 96) and scale == 96 ** -0.5
        schedules.append(schedule)
        o = serve(q, k, k[..., :width], causal, seqused_k=seqused_k, page_table=page_table)
        return o, "lse", "schedule", "splits"

    monkeypatch.setattr(FlashMla, "operators", lambda self: types.SimpleNamespace(dense_decode_fwd=dense_decode_fwd))
    check(FlashMla(), problem)
    assert schedules[0] == (None, None) and set(schedules[1:]) == {("schedule", "splits")}
    for other, match in ((PAGED, "latents"), (LATENTS, "pages of 64")):
        with pytest.raises(Unsupported, match=match):
            FlashMla().serve(other, make_request_inputs(other, "cpu", 1))


@pytest.mark.parametrize("problem", [dataclasses.replace(one, kv_dtype="int4", inline_scales=one is PAGED)
                                     for one in (PAGED, CHUNKS)])
def test_vllms_kernel_of_int4(problem, monkeypatch):
    def launch(*, q, k_cache, v_cache, out, k_scale_cache, v_scale_cache, block_table, seqused_k, cu_seqlens_q, **options):
        assert options["softmax_segm_output"].shape == (64, 4, 16, 64) and options["packing_factor"] == 2
        k, v = (StoredRows("int4", rows, scales).numbers() for rows, scales in ((k_cache, k_scale_cache),
                                                                               (v_cache, v_scale_cache)))
        assert not ((k_scale_cache.view(torch.int32) & 15) - 8).any()
        exact = serve(q, k, v, True, cu_seqlens_q=cu_seqlens_q, seqused_k=seqused_k, page_table=block_table)
        out.copy_(exact - VllmInt4().serve(problem, make_request_inputs(problem, "cpu", 1)).shift / 2)  # as TF32 does

    install(monkeypatch, VllmInt4.module, _launch_packed_attn=launch)
    check(VllmInt4(), problem)
    assert VllmInt4().preparing(problem) and "vllm" in (VllmInt4().absent() or "vllm")
    with pytest.raises(Unsupported, match="bf16"):
        VllmInt4().refuse_keys(PAGED)


@pytest.mark.parametrize("contender", [BatchAttention, CuDnn, FlashAttention3, Pod])
def test_who_reads_no_fp8_says_so(contender):
    inputs = make_request_inputs(FP8, "cpu", 1)
    runner, result = measure.prepare(FP8, inputs, reference.Reference(FP8, inputs), contender())
    assert runner is None and (result["status"], result["reason"]) == (
        "unsupported", "no keys of fp8_e4m3 under queries of bf16")


def test_inputs_are_those_of_the_seed():
    one, same, other = (make_request_inputs(PAGED, "cpu", seed) for seed in (1, 1, 2))
    assert torch.equal(one.k, same.k) and torch.equal(one.page_table, same.page_table)
    assert not torch.equal(one.k, other.k) and not torch.equal(one.page_table, other.page_table)


# Replays


class Given(Contender):
    name = label = "given"

    def serve(self, requests, inputs):
        return Runner(lambda: reference.Reference(requests, inputs).output.bfloat16())


@pytest.mark.parametrize("written, status", [(1.0, None), (1.1, "wrong"), (None, "wrong")])
def test_what_a_replay_writes_is_what_is_checked(monkeypatch, written, status):
    def capture(runner, calls):
        assert calls == 1
        output, right = runner.call(), runner.call()
        return types.SimpleNamespace(replay=lambda: written and output.copy_(written * right)), output

    monkeypatch.setattr(timing, "capture", capture)
    problem = dataclasses.replace(DENSE, mode="replay")
    inputs = make_request_inputs(problem, "cpu", 1)
    runner, fields = measure.prepare(problem, inputs, reference.Reference(problem, inputs), Given())
    assert (runner is None) == (status is not None) and fields.get("status") == status


def test_a_replay_keeps_what_its_graph_reads(monkeypatch):
    """Memory that the captured call alone knew of would else be given to whoever asks next."""
    monkeypatch.setattr(timing, "capture", lambda runner, calls: (None, None))
    lengths = torch.zeros(3)
    seen = weakref.ref(lengths)
    runner = Runner(lambda lengths=lengths: lengths.sum())
    replay = timing.replayed(runner)
    del runner, lengths
    assert seen() is not None
    del replay
    assert seen() is None


def test_a_replay_is_checked_as_the_call_is(monkeypatch):
    """Where only a part of the output, or the output without a scale, is what others compute."""
    problem = dataclasses.replace(DENSE, mode="replay")
    inputs = make_request_inputs(problem, "cpu", 1)
    doubled = 2 * reference.Reference(problem, inputs).output.bfloat16()

    class Scaled(Given):
        name = label = "scaled"

        def serve(self, requests, inputs):
            return Runner(lambda: doubled.clone(), compared=lambda o: o / 2)

    class Graph:
        def __init__(self, runner):
            self.runner, self.output = runner, runner.call()

        def replay(self):
            self.output.copy_(self.runner.call())

    def capture(runner, calls):
        graph = Graph(runner)
        return graph, graph.output

    monkeypatch.setattr(timing, "capture", capture)
    runner, fields = measure.prepare(problem, inputs, reference.Reference(problem, inputs), Scaled())
    assert runner is not None and "status" not in fields


def test_a_result_that_goes_wrong_while_it_is_timed_is_refused(monkeypatch):
    right, spoilt = [], []

    class Worsens(Given):
        name = label = "worsens"

        def serve(self, requests, inputs):
            right.append(reference.Reference(requests, inputs).output.bfloat16())
            return Runner(lambda: 2 * right[0] if spoilt else right[0])

    monkeypatch.setattr(timing, "sample_cold", lambda runners, seconds: spoilt.append(1) or dict.fromkeys(runners, [1.0]))
    good, bad = measure.measure(DENSE, [Given(), Worsens()], 0.1, device="cpu")
    assert good["status"] == "ok" and bad["status"] == "wrong" and bad["reason"].endswith("after it was timed")


def test_who_cannot_be_captured_is_not_replayed(monkeypatch):
    def capture(runner, calls):
        raise RuntimeError("not while capturing")

    monkeypatch.setattr(timing, "capture", capture)
    problem = dataclasses.replace(DENSE, mode="replay")
    inputs = make_request_inputs(problem, "cpu", 1)
    runner, fields = measure.prepare(problem, inputs, reference.Reference(problem, inputs), Given())
    assert runner is None and fields["status"] == "failed" and "not while capturing" in fields["reason"]
    assert fields["floor_us"] == round(problem.floor_us(), 2)


def test_replays_are_sampled_cold(monkeypatch):
    monkeypatch.setattr(timing, "sample_cold", lambda runners, seconds: {name: [7.0] for name in runners})
    assert measure.sample(dataclasses.replace(DENSE, mode="replay"), dict(one=None), 1.0) == (dict(one=dict(us=[7.0])),
                                                                                             {})


def test_the_fastest_variant_is_taken_and_who_raises_is_left_out(monkeypatch):
    def broken():
        raise RuntimeError("no such split\nand more")

    monkeypatch.setattr(timing, "sample_cold", lambda runners, seconds: {name: [name] * 3 for name in runners})
    runners = {3: Runner(lambda: 3), 1: Runner(broken), 2: Runner(lambda: 2)}
    name, runner, refused = timing.fastest(runners)
    assert (name, runner.call(), refused) == (2, 2, {1: "no such split"})
    with pytest.raises(RuntimeError, match="no such split"):
        timing.fastest({1: Runner(broken)})


# Contenders


@pytest.fixture
def first_is_fastest(monkeypatch):
    """Without a GPU: of several variants that run, the first one."""
    ordered = lambda runners, seconds: {name: [place] for place, name in enumerate(runners)}
    monkeypatch.setattr(timing, "sample_cold", ordered)


@pytest.fixture
def flash_attention(monkeypatch):
    """FlashAttention-3's interface: the calls made, [(function, arguments by name)]."""
    called = []

    def flash_attn_with_kvcache(q, k_cache, v_cache, *, causal, num_splits, cu_seqlens_q=None, max_seqlen_q=None,
                                page_table=None, cache_seqlens=None, scheduler_metadata=None):
        called.append(("kvcache", dict(num_splits=num_splits, max_seqlen_q=max_seqlen_q, plan=scheduler_metadata)))
        return serve(q, k_cache, v_cache, causal, cu_seqlens_q, None, cache_seqlens, page_table)

    def flash_attn_varlen_func(q, k, v, *, causal, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k):
        called.append(("varlen", dict(max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k)))
        return serve(q, k, v, causal, cu_seqlens_q, cu_seqlens_k), "lse"

    def get_scheduler_metadata(batch_size, max_seqlen_q, max_seqlen_k, *_, **options):
        return batch_size, max_seqlen_q, max_seqlen_k, options["page_size"], options["causal"], options["num_splits"]

    def flash_attn_func(q, k, v, *, causal, **_):
        called.append(("func", {}))
        return serve(q, k, v, causal)

    module = "fa3_fwd_interface"
    install(monkeypatch, module, flash_attn_with_kvcache=flash_attn_with_kvcache, flash_attn_func=flash_attn_func,
            flash_attn_varlen_func=flash_attn_varlen_func, get_scheduler_metadata=get_scheduler_metadata)
    for one in (FlashAttention3, FlashAttention4):
        monkeypatch.setattr(one, "module", lambda self: module)
    return called


@pytest.mark.parametrize("problem", [one for one in PROBLEMS.values() if one.kv_dtype == "bf16"])
def test_flash_attention_3_serves_every_problem(problem, flash_attention, first_is_fastest):
    fields = check(FlashAttention3(), problem)
    if problem.kv_sequences == "varlen":
        assert flash_attention[0] == ("varlen", dict(max_seqlen_q=33, max_seqlen_k=33))
        return
    splits = [options["num_splits"] for _, options in flash_attention if options["plan"] is None]
    assert set(splits) == set(FlashAttention3.splits if problem.max_seqlen_q == 1 else (0, 1))
    plans = {options["plan"] for _, options in flash_attention} - {None}
    width = problem.max_pages * problem.page_size if problem.page_size else None
    causal = problem.mask == "causal"
    assert plans == ({(problem.batch, problem.max_seqlen_q, width, problem.page_size, causal, 0)} if width else set())
    assert fields["detail"] == dict(num_splits=0)


def test_a_build_without_pages_is_left_out_with_its_own_reason(monkeypatch, flash_attention, first_is_fastest):
    def without_pages(*_, **__):
        raise RuntimeError("This flash attention build does not support paged KV.\nException raised from ...")

    monkeypatch.setattr(sys.modules["fa3_fwd_interface"], "flash_attn_with_kvcache", without_pages)
    inputs = make_request_inputs(PAGED, "cpu", 1)
    with pytest.raises(Unsupported, match="^This flash attention build does not support paged KV.$"):
        FlashAttention3().serve(PAGED, inputs)


def test_flash_attention_4_serves_prefill(flash_attention):
    check(FlashAttention4(), VARLEN)
    check(FlashAttention4(), PREFILL)
    assert [name for name, _ in flash_attention] == ["varlen", "func"]
    with pytest.raises(Unsupported, match="paged"):
        FlashAttention4().serve(PAGED, make_request_inputs(PAGED, "cpu", 1))


@pytest.mark.parametrize("problem", [PAGED, HND, PAGE_1, MIXED, CHUNKS, FP8])
def test_vllms_library_serves_pages(problem, monkeypatch, first_is_fastest):
    def fwd(q, k, v, *, is_causal, softmax_scale, scheduler_metadata, num_splits, **options):
        assert softmax_scale == problem.head_dim ** -0.5 and scheduler_metadata in (None, "plan")
        assert q.dtype == k.dtype == v.dtype
        scale = options["k_descale"]
        assert scale is None or (scale.shape == (problem.batch, problem.heads_kv) and scale is options["q_descale"])
        used = ("cu_seqlens_q", "seqused_k", "page_table")
        return [serve(q, k, v, is_causal, **{name: options[name] for name in used},
                      scale=None if scale is None else scale[0, 0]), "lse"]

    operators = types.SimpleNamespace(fwd=fwd, get_scheduler_metadata=lambda *_: "plan")
    monkeypatch.setattr(VllmFlashAttention3, "operators", lambda self: operators)
    check(VllmFlashAttention3(), problem)
    with pytest.raises(Unsupported, match="pages"):
        VllmFlashAttention3().serve(DENSE, make_request_inputs(DENSE, "cpu", 1))


def test_vllms_library_is_found_without_importing_the_package(monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)  # stand-ins of other files
    assert VllmFlashAttention3.LIBRARY in VllmFlashAttention3().absent()
    (tmp_path / "vllm/vllm_flash_attn").mkdir(parents=True)
    (tmp_path / "vllm/__init__.py").write_text("raise AssertionError")
    (tmp_path / "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so").write_text("no library")
    monkeypatch.syspath_prepend(tmp_path)
    reason = VllmFlashAttention3().absent()
    assert "cannot be loaded" in reason and "\n" not in reason


@pytest.fixture
def flashinfer(monkeypatch, first_is_fastest):
    fake = FakeFlashInfer()
    install(monkeypatch, "flashinfer", **fake.functions)
    return fake.made


@every_problem
def test_flashinfer_serves_every_problem(problem, flashinfer):
    check(FlashInfer(), problem)
    kind = ("Decode" if problem.max_seqlen_q == 1 else "Prefill") + (
        "WithPaged" if problem.max_seqlen_q == 1 or problem.page_size else "WithRagged")
    assert {name for name, _ in flashinfer} == {f"Batch{kind}KVCacheWrapper"}


def test_flashinfer_serves_values_in_keys(flashinfer):
    check(FlashInfer(), LATENTS)
    assert {name for name, _ in flashinfer} == {"BatchMLAPagedAttentionWrapper"}


@pytest.mark.parametrize("contender", [BatchAttention, CuDnn, FlashAttention3, Pod, Xqa])
def test_who_reads_no_values_in_keys_says_so(contender):
    inputs = make_request_inputs(LATENTS, "cpu", 1)
    assert inputs.v.data_ptr() == inputs.k.data_ptr() and LATENTS.kv_bytes() == 2 * 75 * 96
    runner, result = measure.prepare(LATENTS, inputs, reference.Reference(LATENTS, inputs), contender())
    assert runner is None and (result["status"], result["reason"]) == ("unsupported",
                                                                       "no values that are columns of keys")


def test_a_dense_cache_is_read_in_pages_in_order_or_not_at_all(flashinfer):
    odd = batch((2, 1, 40))
    with pytest.raises(Unsupported, match="no whole pages"):
        FlashInfer().serve(odd, make_request_inputs(odd, "cpu", 1))


@pytest.mark.parametrize("problem", [PAGED, HND, PAGE_1, MIXED, CHUNKS])
def test_batch_attention_serves_pages(problem, flashinfer):
    check(BatchAttention(), problem)


def test_pod_serves_prefill_and_decodes_together(flashinfer):
    check(Pod(), MIXED)
    for problem in (CHUNKS, PAGED, DENSE):
        with pytest.raises(Unsupported):
            Pod().serve(problem, make_request_inputs(problem, "cpu", 1))


@pytest.mark.parametrize("problem", [DENSE, PAGED, HND])
def test_xqa_serves_one_query_over_its_pages(problem, flashinfer):
    check(Xqa(), problem)


@pytest.mark.parametrize("problem, words", [(PAGE_1, "no pages of 1"), (MIXED, "one query"), (VARLEN, "one query")])
def test_xqa_is_left_out_of_what_it_does_not_serve(problem, words, flashinfer):
    with pytest.raises(Unsupported, match=words):
        Xqa().serve(problem, make_request_inputs(problem, "cpu", 1))


@pytest.mark.parametrize("problem", [PAGED, HND])
def test_cudnn_serves_pages_by_flashinfers_interface(problem, flashinfer, monkeypatch):
    install(monkeypatch, "cudnn")
    check(CuDnn(), problem)
    assert flashinfer == [("BatchDecodeWithPagedKVCacheWrapper", dict(backend="cudnn"))]
    with pytest.raises(Unsupported, match="one query"):
        CuDnn().serve(MIXED, make_request_inputs(MIXED, "cpu", 1))
    with pytest.raises(Unsupported, match="varlen"):
        CuDnn().serve(VARLEN, make_request_inputs(VARLEN, "cpu", 1))


@pytest.mark.parametrize("problem", [DENSE, PREFILL])
def test_torchs_own_kernels_serve_dense_sequences(problem):
    check(FlashAttention2(), problem)


@every_problem
def test_ours_is_called_as_the_problem_says(problem, monkeypatch):
    made = []

    def attention(q, k, v, *, mask, tuning, out=None, **arrays):
        made.append(sorted(arrays))
        scale, other = (arrays.pop(name, None) for name in ("k_descale", "v_descale"))
        assert scale is other and (scale is None) == (k.dtype == torch.bfloat16)
        result = serve(q, k, v, mask == "causal", **arrays, scale=scale)
        return result if out is None else out.copy_(result)

    install(monkeypatch, "jit_attention", attention=attention, mask=types.SimpleNamespace(causal=lambda: "causal"))
    check(JitAttention("off"), problem)
    names = dict(dense=[], varlen=["cu_seqlens_k"], paged=["page_table", "seqused_k"])[problem.kv_sequences]
    varlen = ["cu_seqlens_q"] if problem.q_sequences == "varlen" else []
    scales = ["k_descale", "v_descale"] if problem.kv_dtype != "bf16" else []
    assert made[0] == sorted(varlen + names + scales)
    assert (Bf16Cache().preparing(problem) is None) == (problem.kv_dtype == "bf16")
    if problem.kv_dtype != "bf16":
        made.clear()
        check(Bf16Cache("off"), problem)
        assert made[0] == sorted(varlen + names)
    made.clear()
    if TwoCalls().preparing(problem):
        check(TwoCalls("off"), problem)
        assert made[:2] == [["cu_seqlens_q", *names], names]
    assert bool(made) == (problem is MIXED)


@pytest.mark.parametrize("contender, problem", [
    *((JitAttention, problem) for problem in (*PROBLEMS.values(), LATENTS, *STORED)), (TwoCalls, MIXED)])
def test_ours_passes_the_check(contender, problem, emulated):
    inputs = make_request_inputs(problem, "cpu" if emulated else "cuda", 3)
    runner, fields = measure.prepare(problem, inputs, reference.Reference(problem, inputs), contender("off"))
    assert runner is not None, fields["reason"]


def test_everyone_takes_part_in_what_it_can_serve():
    cell = serving_suites.requests("test", "cell", [(1, 1, 8)]).cell()
    dense = {one.name for one in all_contenders() if one.preparing(cell)}
    serving = {one.name for one in all_contenders() if one.preparing(DENSE)}
    assert dense == {"ours", "cudnn", "cudnn-flex", "fa3", "fa4", "ffpa", "fa2", "flashinfer", "flex"}
    assert serving == {"ours", "cudnn", "fa3", "fa3_vllm", "fa4", "fa2", "flashinfer", "batch_attention", "pod", "xqa",
                       "flash_mla", "int4_vllm"}


def test_every_problem_is_replayed_on_a_gpu(emulated):
    if emulated or not torch.cuda.is_available():
        pytest.skip("there is no GPU that PyTorch and jit-attention share")
    for problem in PROBLEMS.values():
        replay = dataclasses.replace(problem, mode="replay")
        everyone = [one for one in all_contenders("off") if one.preparing(replay) and one.absent() is None]
        for one in measure.measure(replay, everyone, 0.1):
            assert one["status"] in ("ok", "unsupported"), (problem, one["contender"], one["reason"])
