"""Contenders of bench/compare.py: sampling, how peers are called, and the check of their results, on the CPU."""

import importlib.util
import itertools
import json
import math
import pathlib
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from comparison import backward, cells, fp8_suites, measure, reference, timing  # noqa: E402
from comparison.by_autograd import ByAutograd, Forward  # noqa: E402
from comparison.contender import Contender, Runner, Unsupported  # noqa: E402
from comparison.contenders import all_contenders  # noqa: E402
from comparison.flash_attention_peers import FlashAttention3, FlashAttention4  # noqa: E402
from comparison.flashinfer_peers import FlashInfer  # noqa: E402
from comparison.fp8_peers import SageAttention  # noqa: E402
from comparison.ours import InterpolatedExponentials, JitAttention  # noqa: E402
from comparison.torch_peers import CuDnn  # noqa: E402

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def small(**fields):
    base = dict(seqlen_kv=None, window=3, prefix=4, documents=3)
    return cells.cell("test", "small", 2, 9, 4, 8, **{**base, **fields})


def test_rounds_are_shuffled_and_bounded():
    orders = list(timing.rounds("abc", seconds=1e-9))
    assert len(orders) == timing.MIN_ROUNDS and all(sorted(order) == list("abc") for order in orders)
    assert len(set(map(tuple, orders))) > 1
    assert len(list(timing.rounds("abc", seconds=60))) == timing.MAX_ROUNDS


class FakeGpu:
    """A clock that calls and replays move, in the place of torch.cuda and its events."""

    def __init__(self, us):
        self.us, self.now, self.steps = us, 0.0, []

    def step(self, name, calls):
        self.now += calls * self.us[name]
        self.steps.append(name)

    def Event(self, enable_timing):
        class Event:
            record = lambda event: setattr(event, "at", self.now)
            elapsed_time = lambda event, end: (end.at - event.at) * 1e-3
            synchronize = lambda event: None

        return Event()

    def synchronize(self):
        self.steps.append("pause")


@needs_torch
def test_sustained_samples_are_bursts_without_a_pause(monkeypatch):
    import torch

    gpu = FakeGpu(dict(quick=10.0, slow=30_000.0, slower=40_000.0))
    monkeypatch.setattr(torch, "cuda", gpu)
    runners = {name: Runner(lambda name=name: gpu.step(name, 1)) for name in gpu.us}
    graph = Runner(None)
    graph.replay = lambda: gpu.step("quick", timing.BURST)
    us, host = timing.sample_sustained(runners, dict(quick=graph))
    assert us == {name: pytest.approx([value] * timing.SUSTAINED_ROUNDS) for name, value in gpu.us.items()}
    assert all(len(values) == timing.SUSTAINED_ROUNDS for values in host.values())
    rounds = [one.split() for one in " ".join(gpu.steps).split("pause")[1 - timing.SUSTAINED_ROUNDS:-1]]
    bursts = [[(name, len(list(steps))) for name, steps in itertools.groupby(one)] for one in rounds]
    assert all(sorted(one) == [("quick", 100), ("slow", 1), ("slower", 1)] for one in bursts)
    assert len(set(map(tuple, bursts))) > 1, "in shuffled order"


def test_who_cannot_be_captured_is_called_from_the_host_when_sustained(monkeypatch):
    def capture(runner):
        if runner.detail:
            raise RuntimeError(runner.detail["reason"])
        return "a graph", None

    def sample_sustained(runners, graphs):
        assert list(runners) == ["quick", "stubborn"] and graphs == dict(quick="a graph")
        return dict(quick=[3.0], stubborn=[90.0]), dict(quick=[8.0], stubborn=[88.0])

    monkeypatch.setattr(timing, "capture", capture)
    monkeypatch.setattr(timing, "sample_sustained", sample_sustained)
    runners = dict(quick=Runner(None), stubborn=Runner(None, detail=dict(reason="not while capturing")))
    times, refused = measure.sample(small(mode="sustained"), runners, 1.0)
    assert times["quick"] == dict(us=[3.0], host_us=[8.0], reason=None) and refused == {}
    reason = "called from the host: cannot be captured: not while capturing"
    assert times["stubborn"] == dict(us=[90.0], host_us=[88.0], reason=reason)


# Peers that are packages


def fake_flash_attention(monkeypatch, module):
    """A package in the place of FlashAttention's: [(function, number of arrays, arguments by name)] of its calls."""
    called = []

    def function(name):
        def call(*arrays, **options):
            called.append((name, len(arrays), options))
            return arrays[0].clone(), "lse"

        return call

    fake = types.ModuleType(module)
    fake.flash_attn_func, fake.flash_attn_varlen_func = function("func"), function("varlen")
    monkeypatch.setitem(sys.modules, module, fake)
    return called


@needs_torch
@pytest.mark.parametrize("peer, module, lse", [
    (FlashAttention3, "fa3_fwd_interface", "return_attn_probs"),
    (FlashAttention4, "flash_attn.cute.interface", "return_lse")])
def test_flash_attention_is_called_as_its_interface_wants(monkeypatch, peer, module, lse):
    called = fake_flash_attention(monkeypatch, module)
    monkeypatch.setattr(peer, "module", lambda self: module)
    cells = [small(mask=mask, score=score) for mask, score in
             (("none", "none"), ("causal", "softcap"), ("window", "none"), ("causal_document", "none"))]
    for cell in cells:
        inputs = measure.make_inputs(cell, "cpu", 0)
        assert peer().make(cell, inputs).call().shape == inputs.q.shape
    assert [(name, arrays) for name, arrays, _ in called] == [("func", 3)] * 3 + [("varlen", 3)]
    options = [one for _, _, one in called]
    assert options[0] == dict(causal=False) and options[1] == dict(causal=True, softcap=30.0)
    assert options[2] == dict(causal=False, window_size=(3, 0))
    assert options[3]["causal"] and options[3]["max_seqlen_k"] == inputs.longest_document
    assert options[3]["cu_seqlens_q"] is inputs.document_offsets
    assert peer().with_lse(cells[0], inputs)[1:] == ("lse", {}) and called[-1][2] == {"causal": False, lse: True}
    for refused in (small(mask="prefix"), small(score="alibi")):
        with pytest.raises(Unsupported):
            peer().make(refused, inputs)


@needs_torch
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_numbers_of_fp8_and_who_multiplies_them(monkeypatch, mask):
    import torch

    called = fake_flash_attention(monkeypatch, "fa3_fwd_interface")
    monkeypatch.setattr(FlashAttention3, "module", lambda self: "fa3_fwd_interface")
    cell = cells.backward_of(small(mask=mask), "fp8", fp8_suites.Fp8Cell)
    inputs = measure.KINDS_OF_INPUTS[type(cell)](cell, "cpu", 0)
    plain = measure.make_inputs(cell, "cpu", 0)
    wides, numbers = (plain.q, plain.k, plain.v), (inputs.q, inputs.k, inputs.v)
    for ours, wide, exact in zip(fp8_suites.as_fp8(inputs), wides, numbers):
        assert ours.dtype == torch.float8_e4m3fn and torch.equal(ours.to(torch.bfloat16), exact)
        assert not torch.equal(wide, exact) and (wide - exact).abs().max() <= wide.abs().max() / 16
    runner = FlashAttention3().preparing(cell)(cell, inputs)
    runner.call()
    assert runner.coarser == 32 and called == [("func", 3, dict(causal=mask == "causal"))]
    assert FlashAttention4().preparing(cell) is None and JitAttention().preparing(cell) is not None
    interpolated = InterpolatedExponentials()
    assert interpolated.preparing(small(mask=mask)) is None and interpolated.preparing(cell) is not None
    rows, width = 2 * 9 * 4, 8
    assert cell.bytes() == rows * width * (3 + 2) and cell.flops() == small(mask=mask).flops()


def fp8_cell(**fields):
    return cells.backward_of(small(**fields), "fp8", fp8_suites.Fp8Cell)


def upcast(tensor, scales):
    """The values of e4m3 elements, in fp32."""
    if scales.dim() == 1:
        return tensor.float() * scales
    return tensor.float() * scales.repeat_interleave(tensor.shape[2] // scales.shape[1], 1)[:, None, :, None]


@needs_torch
@pytest.mark.parametrize("heads", [None, 2, 4])
def test_scales_of_tensors_and_of_heads(heads):
    import torch

    x = torch.randn(2, 9, 4, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    x[1, :, :2] *= 100
    x[0, :, 2:] = 0
    tensor, scales = fp8_suites.quantized(x, heads)
    assert tensor.dtype == torch.float8_e4m3fn and scales.shape == ((1,) if heads is None else (2, heads))
    assert (upcast(tensor, scales) - x.float()).abs().max() <= x.float().abs().max() / 16
    if heads is not None:
        assert (tensor[1].float().abs().amax((0, 2)) == 448).any() and scales.min() > 0
        small_heads = upcast(tensor, scales)[0, :, :2] - x[0, :, :2].float()
        assert small_heads.abs().max() <= x[0, :, :2].float().abs().max() / 16


@needs_torch
def test_flash_attention_3_is_given_scales_of_kv_heads(monkeypatch):
    import torch

    called = fake_flash_attention(monkeypatch, "fa3_fwd_interface")
    monkeypatch.setattr(FlashAttention3, "module", lambda self: "fa3_fwd_interface")
    cell = fp8_cell(heads_kv=2, mask="causal")
    inputs = measure.make_inputs(cell, "cpu", 0)
    o = FlashAttention3().make_quantized(cell, inputs).call()
    (name, arrays, options), = called
    assert (name, arrays, o.dtype) == ("func", 3, torch.float8_e4m3fn) and options.pop("causal")
    assert sorted(options) == ["k_descale", "q_descale", "v_descale"]
    assert all(one.shape == (2, 2) and one.dtype == torch.float32 for one in options.values())
    assert (upcast(o, options["q_descale"]) - inputs.q.float()).abs().max() < 0.2
    assert FlashAttention4().make_quantized is None and JitAttention().make_quantized is None


@needs_torch
def test_flashinfer_is_given_scales_of_all_heads(monkeypatch):
    import torch

    class Wrapper:
        def __init__(self, workspace, layout, backend):
            assert (layout, backend) == ("NHD", "fa3")

        def plan(self, *arguments, **options):
            planned.append((arguments, options))

        def run(self, q, k, v, *scales):
            ran.append(scales)
            return q.bfloat16()

    planned, ran = [], []
    fake = types.ModuleType("flashinfer")
    fake.BatchPrefillWithRaggedKVCacheWrapper = Wrapper
    monkeypatch.setitem(sys.modules, "flashinfer", fake)
    monkeypatch.setattr("comparison.flashinfer_peers.WORKSPACE_BYTES", 16)
    monkeypatch.setattr(FlashInfer, "HEAD_DIMS", ((8, 8),))
    one = cells.cell("test", "small", 1, 9, 4, 8, heads_kv=2, mask="causal")
    cell = cells.backward_of(one, "fp8", fp8_suites.Fp8Cell)
    inputs = measure.KINDS_OF_INPUTS[type(cell)](cell, "cpu", 0)
    runner = FlashInfer().make_fp8(cell, inputs)
    assert runner.coarser == 32 and torch.equal(runner.call(), inputs.q)
    assert [tuple(one.tolist()) for one in ran[-1]] == [(1,) * 4, (1,) * 2, (1,) * 2]
    assert planned[-1][0][2:] == (4, 2, 8, 8) and planned[-1][1]["o_data_type"] == torch.bfloat16
    assert planned[-1][1]["q_data_type"] == torch.float8_e4m3fn and planned[-1][1]["causal"]
    FlashInfer().make_quantized(cell, inputs)
    assert [one.shape for one in ran[-1]] == [(4,), (2,), (2,)] and (ran[-1][0] != 1).any()
    assert "fp8" in FlashInfer.left_out
    with pytest.raises(Unsupported, match="all batch entries"):
        FlashInfer().make_quantized(fp8_cell(), inputs)


@needs_torch
def test_sage_attention_is_given_16_bits_of_its_own(monkeypatch):
    import torch

    called = []

    def sageattn(q, k, v, **options):
        called.append(options)
        k -= k.mean(1, keepdim=True)  # as it does
        return q.clone()

    fake = types.ModuleType("sageattention")
    fake.sageattn = sageattn
    monkeypatch.setitem(sys.modules, "sageattention", fake)
    cell = cells.backward_of(cells.cell("test", "small", 2, 64, 4, 64, mask="causal"), "fp8", fp8_suites.Fp8Cell)
    inputs = measure.KINDS_OF_INPUTS[type(cell)](cell, "cpu", 0)
    before = inputs.k.clone()
    runner = SageAttention().preparing(cell)(cell, inputs)
    assert runner.call().dtype == torch.bfloat16 and torch.equal(inputs.k, before) and runner.coarser == 32
    assert called[-1] == dict(tensor_layout="NHD", is_causal=True)
    for refused, reason in ((fp8_cell(), "no head_dim 8/8"), (fp8_cell(mask="window"), "no window mask"),
                            (fp8_cell(mask="causal", seqlen_kv=12), "as many queries as keys")):
        with pytest.raises(Unsupported, match=reason):
            SageAttention().make_fp8(refused, inputs)
    varlen = cells.backward_of(cells.cell("test", "small", 1, 65, 4, 64), "fp8", fp8_suites.Fp8Cell)
    with pytest.raises(Unsupported, match="behind the last one"):
        SageAttention().make_fp8(varlen, inputs)
    assert SageAttention().preparing(small()) is None


class FakeCuDnn(types.ModuleType):
    """A package in the place of cuDNN's frontend, whose graphs of sdpa_fp8 compute in fp32 and round as cuDNN does."""

    class Tensor:
        def __getattr__(self, name):
            return lambda value: self

    class cudnnGraphNotSupportedError(Exception):
        pass

    class Types:
        FLOAT, FP8_E4M3, BFLOAT16 = "float", "e4m3", "bf16"

    data_type, heur_mode, refuses = Types, types.SimpleNamespace(A="A", FALLBACK="fallback"), False

    def __init__(self):
        super().__init__("cudnn")
        self.seen, self.streams = [], []

    def create_handle(self):
        return "handle"

    def set_stream(self, handle, stream):
        self.streams.append((handle, stream))

    def pygraph(self, **options):
        return FakeCuDnn.Graph(self)

    class Graph:
        def __init__(self, module):
            self.module, self.names = module, {}

        def tensor(self, name, dim, stride, data_type):
            made = FakeCuDnn.Tensor()
            self.names[made] = name
            self.module.seen.append((name, tuple(dim), tuple(stride), data_type))
            return made

        def sdpa_fp8(self, **arguments):
            self.arguments, self.made = arguments, [FakeCuDnn.Tensor() for _ in range(4)]
            return self.made

        def validate(self):
            if self.module.refuses:
                raise FakeCuDnn.cudnnGraphNotSupportedError("no engine for this graph\nand more")

        build_operation_graph = check_support = build_plans = validate
        create_execution_plans = lambda self, modes: None
        get_workspace_size = lambda self: 0

        def execute(self, tensors, workspace, handle):
            import torch

            assert handle == "handle" and workspace.numel() == 1
            given = {self.names[key]: tensor.float() for key, tensor in tensors.items() if key in self.names}
            q, k, v = (given[name] * given[f"descale_{name}"] for name in "qkv")
            scores = q @ k.transpose(2, 3) * self.arguments["attn_scale"]
            if self.arguments["use_causal_mask"]:
                scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
            weights = (scores - scores.amax(-1, keepdim=True)).exp()
            rounded = (weights * given["scale_s"]).to(torch.float8_e4m3fn).float() * given["descale_s"]
            o = rounded @ v / weights.sum(-1, keepdim=True)
            tensors[self.made[0]].copy_((o * given["scale_o"]).to(tensors[self.made[0]].dtype))
            tensors[self.made[2]].copy_(weights.amax())
            tensors[self.made[3]].copy_(o.abs().amax())


@needs_torch
@pytest.mark.parametrize("mask, capability", [("none", 9), ("causal", 9), ("causal", 10)])
def test_cudnn_computes_fp8_by_graphs(monkeypatch, mask, capability):
    import torch

    fake = FakeCuDnn()
    monkeypatch.setitem(sys.modules, "cudnn", fake)
    fake.__spec__ = types.SimpleNamespace()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (capability, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: types.SimpleNamespace(cuda_stream=7))
    cell = fp8_cell(mask=mask)
    inputs = measure.KINDS_OF_INPUTS[type(cell)](cell, "cpu", 0)
    reference_of = reference.Reference(cell, inputs)
    runner, fields = measure.prepare(cell, inputs, reference_of, CuDnn())
    assert runner is not None, fields["reason"]
    own = torch.float8_e4m3fn if capability == 9 else torch.bfloat16
    assert runner.call().dtype == own and fields["detail"]["o"] == str(own).removeprefix("torch.")
    assert (runner.checked_part(runner.call()) - reference_of.output).norm() < 0.06 * reference_of.output.norm()
    assert fake.streams[-1] == ("handle", 7)
    shapes = {name: (dim, stride) for name, dim, stride, _ in fake.seen}
    assert shapes["q"] == ((2, 4, 9, 8), (9 * 4 * 8, 8, 4 * 8, 1)) and shapes["scale_o"][0] == (1, 1, 1, 1)

    wide = measure.make_inputs(cell, "cpu", 1)
    wide.q *= 50
    wide.k /= 50
    o = CuDnn().make_quantized(cell, wide).call()
    right = reference.Reference(cell, wide).output
    assert o.dtype == torch.float32 and (o - right).norm() < 0.1 * right.norm()
    fake.refuses = True
    with pytest.raises(Unsupported, match="^no engine for this graph$"):
        CuDnn().make_fp8(cell, inputs)
    with pytest.raises(Unsupported, match="top-left"):
        CuDnn().make_fp8(fp8_cell(mask="causal", seqlen_kv=12), inputs)


@needs_torch
def test_cudnn_without_its_frontend_is_unsupported_with_the_reason(monkeypatch):
    monkeypatch.setattr("comparison.fp8_peers.missing", lambda *modules: f"{modules[0]} is not installed")
    cell = fp8_cell()
    inputs = measure.KINDS_OF_INPUTS[type(cell)](cell, "cpu", 0)
    runner, result = measure.prepare(cell, inputs, None, CuDnn())
    assert runner is None and result["status"] == "unsupported"
    assert result["reason"] == "its fp8 is called by nvidia-cudnn-frontend: cudnn is not installed"


# The check, on the CPU


class Given(Contender):
    """A contender that returns what it is told."""

    def __init__(self, name, output):
        self.name, self.label, self.output = name, name, output

    def make(self, cell, inputs):
        return Runner(lambda: self.output(cell, inputs))


def fp32_attention(cell, inputs):
    return reference.Reference(cell, inputs).output.bfloat16()


def one_row_off(cell, inputs):
    output = fp32_attention(cell, inputs)
    output[-1, -1, -1] *= 1.1
    return output


def half_a_tile_missing(cell, inputs):
    output = fp32_attention(cell, inputs)
    output[0, :2] = 0
    return output


def not_a_number(cell, inputs):
    output = fp32_attention(cell, inputs)
    output[0, 0, 0, 0] = math.nan
    return output


def refuse(cell, inputs):
    raise Unsupported("not today")


def break_down(cell, inputs):
    raise RuntimeError("first line\nsecond line")


@needs_torch
@pytest.mark.parametrize("mask, score", [(mask, "none") for mask in cells.MASKS] + [("causal", "softcap"),
                                                                                      ("causal", "alibi")])
def test_the_reference_is_attention(mask, score):
    torch = pytest.importorskip("torch")
    cell = small(mask=mask, score=score, heads_kv=2, softcap=2.0)
    inputs = measure.make_inputs(cell, "cpu", 1)
    expected = torch.empty(cell.batch, cell.seqlen_q, cell.heads_q, cell.head_dim_v, dtype=torch.float64)
    q, k = torch.arange(cell.seqlen_q)[:, None], torch.arange(cell.seqlen_kv)[None]
    for b in range(cell.batch):
        ids = inputs.document_ids
        for h in range(cell.heads_q):
            key, value = (t[b, :, h // cell.gqa_ratio].double() for t in (inputs.k, inputs.v))
            scores = inputs.q[b, :, h].double() @ key.T / math.sqrt(cell.head_dim)
            if score == "softcap":
                scores = 2.0 * torch.tanh(scores / 2.0)
            elif score == "alibi":
                scores = scores - 2.0 ** (-8 * (h + 1) / cell.heads_q) * (q - k).abs()
            if mask != "none":
                keep = cell.keep(q, k, *(() if ids is None else (ids[b, :, None], ids[b, None])))
                scores = torch.where(keep, scores, -math.inf)
            expected[b, :, h] = scores.softmax(-1) @ value
    assert (reference.Reference(cell, inputs).output - expected).abs().max() < 1e-5


@needs_torch
def test_a_query_without_keys_gives_zero():
    cell = small(mask="causal", seqlen_kv=5)
    output = reference.Reference(cell, measure.make_inputs(cell, "cpu", 1)).output
    assert (output[:, :4] == 0).all() and (output[:, 4:] != 0).any()


@needs_torch
def test_wrong_results_are_refused_and_not_timed(monkeypatch):
    timed = []

    def sample(cell, runners, seconds):
        timed.extend(runners)
        return {name: dict(us=[10.0]) for name in runners}, {}

    monkeypatch.setattr(measure, "sample", sample)
    outputs = dict(ours=one_row_off, right=fp32_attention, zeros=half_a_tile_missing, nan=not_a_number,
                   shape=lambda cell, inputs: inputs.q[:, :1], unable=refuse, broken=break_down)
    cell = small(mask="causal")
    results = measure.measure(cell, [Given(*item) for item in outputs.items()], 1.0, device="cpu")
    status = {one["contender"]: one["status"] for one in results}
    assert status == dict(ours="wrong", right="ok", zeros="wrong", nan="wrong", shape="failed", unable="unsupported",
                          broken="failed")
    assert timed == ["right"]
    reasons = {one["contender"]: one["reason"] for one in results}
    assert reasons["unable"] == "not today" and reasons["broken"] == "RuntimeError: first line"
    json.dumps(results, allow_nan=False)


@needs_torch
def test_cpu_kernels_of_torch_agree_with_the_reference():
    from comparison.torch_peers import FlashAttention2

    cell = small(mask="causal", heads_kv=2)
    inputs = measure.make_inputs(cell, "cpu", 3)
    runner, fields = measure.prepare(cell, inputs, reference.Reference(cell, inputs), FlashAttention2())
    assert runner is not None, fields["reason"]
    assert fields["check"]["error"] <= fields["check"]["limit"]


@needs_torch
@pytest.mark.skipif(JitAttention().absent() is not None, reason=f"ours: {JitAttention().absent()}")
@pytest.mark.parametrize("mask, score", [(mask, "none") for mask in cells.MASKS] + [("causal", "softcap"),
                                                                                      ("causal", "alibi")])
def test_ours_passes_the_check(mask, score, emulated):
    cell = cells.cell("test", "emulated", 1, 40, 4, 32, heads_kv=2, mask=mask, score=score, window=7, prefix=9,
                       documents=3, softcap=2.0)
    inputs = measure.make_inputs(cell, "cpu" if emulated else "cuda", 3)
    runner, fields = measure.prepare(cell, inputs, reference.Reference(cell, inputs), JitAttention("off"))
    assert runner is not None, fields["reason"]
    assert fields["detail"]["config"]["tile_q"] > 0


def test_every_mode_is_measured_on_a_gpu(emulated):
    torch = pytest.importorskip("torch")
    if emulated or not torch.cuda.is_available():
        pytest.skip("there is no GPU that PyTorch and jit-attention share")
    everyone = [one for one in all_contenders("off") if one.name in ("ours", "fa2") and one.absent() is None]
    for mode in cells.MODES:
        cell = cells.cell("test", mode, 1, 128, 4, 64, mask="causal", mode=mode)
        for one in measure.measure(cell, everyone, 0.1):
            assert one["status"] == "ok", one["reason"]
            assert 0 < one["us"]["min"] <= one["us"]["median"] <= one["us"]["max"] < 1e5


class Autograd(ByAutograd, Contender):
    """Gradients by torch's own autograd, times `factor`."""

    name = label = "autograd"

    def __init__(self, factor=1.0):
        self.factor = factor

    def forward_of(self, cell, inputs):
        import torch.nn.functional as F

        def forward(q, k, v):
            o = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), enable_gqa=True,
                                               is_causal=cell.mask == "causal")
            return self.factor * o.transpose(1, 2)

        return Forward(forward)


@needs_torch
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_gradients_are_checked(mask):
    import torch

    cell = cells.backward_of(small(heads_kv=2, mask=mask), "test")
    assert Autograd().preparing(cell) and FlashAttention3().preparing(cell) is None
    inputs = backward.make_backward_inputs(cell, "cpu", seed=3)
    with torch.no_grad():
        right = backward.BackwardReference(cell, inputs)
        for factor, correct in ((1.0, True), (1.1, False)):
            runner = Autograd(factor).differentiate(cell, inputs)
            assert right.check(runner.call()).correct == correct
            assert right.check(runner.call()).correct == correct, "a second call"
        gradients = list(runner.call())
        gradients[1] = gradients[1] * float("nan")
        assert not right.check(gradients).correct
