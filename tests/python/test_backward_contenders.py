"""Contenders of the suites of training in bench/compare.py: how gradients are asked of each, and the check of them, on
the CPU with stand-ins for what needs a GPU."""

import contextlib
import pathlib
import sys
import types

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import backward_stand_ins as stand_ins  # noqa: E402
from comparison import backward, cells, measure, records  # noqa: E402
from comparison.by_autograd import ByAutograd, Forward, deterministic_torch, own_stream  # noqa: E402
from comparison.contender import Contender, Unsupported  # noqa: E402
from comparison.flash_attention_peers import FlashAttention4  # noqa: E402
from comparison.ours import JitAttention  # noqa: E402
from comparison.torch_peers import CuDnn, FlashAttention2, Flex  # noqa: E402

PROBLEMS = [(mask, "none") for mask in cells.MASKS] + [("none", "softcap"), ("causal", "softcap"), ("causal", "alibi"),
                                                       ("none", "bias")]


def small(kind=cells.BackwardCell, head_dim=8, **fields):
    base = dict(heads_kv=2, window=3, prefix=4, documents=3, softcap=2.0)
    own = {name: fields.pop(name) for name in ("deterministic", "packed") if name in fields}
    return cells.backward_of(cells.cell("test", "small", 2, 9, 4, head_dim, **{**base, **fields}), "test", kind, **own)


def prepared(contender, cell, seed=3, device="cpu"):
    """(runner, fields) of a contender whose results were checked."""
    with torch.no_grad():
        inputs = backward.make_backward_inputs(cell, device, seed)
        return measure.prepare(cell, inputs, backward.BackwardReference(cell, inputs), contender)


@pytest.fixture
def flex(monkeypatch):
    from torch.nn.attention import flex_attention as module

    monkeypatch.setattr(module, "flex_attention", stand_ins.flex_attention)
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    return Flex()


@pytest.fixture
def fa4(monkeypatch):
    package = stand_ins.FlashAttention()
    monkeypatch.setitem(sys.modules, "a_flash_attention", package)
    monkeypatch.setattr(FlashAttention4, "module", lambda self: "a_flash_attention")
    return FlashAttention4(), package.calls


@pytest.mark.parametrize("mask, score", PROBLEMS)
def test_flex_is_given_mask_and_score(flex, mask, score):
    runner, fields = prepared(flex, small(mask=mask, score=score))
    assert runner is not None, fields["reason"]
    assert (fields["detail"].get("block_mask_ms", 0) > 0) == (mask != "none")


@pytest.mark.parametrize("mask, score", PROBLEMS)
def test_fa4_is_given_mask_and_score_or_says_why_not(fa4, mask, score):
    cell = small(mask=mask, score=score, packed="document" in mask)
    runner, fields = prepared(fa4[0], cell)
    if mask == "prefix" or score in ("alibi", "bias"):
        assert fields["status"] == records.UNSUPPORTED and fields["reason"] in ("no prefix mask", f"no {score}")
    else:
        assert runner is not None, fields["reason"]


def test_fa4_is_asked_for_equal_bits_and_torch_as_well(fa4):
    contender, calls = fa4
    for deterministic in (False, True):
        runner, fields = prepared(contender, small(mask="causal", deterministic=deterministic))
        assert runner is not None, fields["reason"]
        assert calls[-1] == dict(causal=True, **(dict(deterministic=True) if deterministic else {}))
        assert fields["check"].get("repeated", False) is deterministic
        with runner.context():
            assert torch.are_deterministic_algorithms_enabled() == deterministic
        assert not torch.are_deterministic_algorithms_enabled()


def test_equal_bits_are_asked_for_without_filling_tensors():
    before = torch.utils.deterministic.fill_uninitialized_memory
    with pytest.raises(KeyError), deterministic_torch():
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
        raise KeyError
    assert torch.utils.deterministic.fill_uninitialized_memory == before
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("peer", [CuDnn, FlashAttention2])
def test_peers_by_torch_say_what_they_do_not_serve(peer):
    for fields in (dict(mask="prefix"), dict(score="softcap"), dict(mask="causal", score="bias")):
        cell = small(**fields)
        with pytest.raises(Unsupported, match="no "):
            peer().forward_of(cell, backward.make_backward_inputs(cell, "cpu", 0))


def test_cpu_kernels_of_torch_give_gradients_and_steps():
    for kind in (cells.BackwardCell, cells.TrainingCell):
        runner, fields = prepared(FlashAttention2(), small(kind, mask="causal"))
        assert runner is not None, fields["reason"]


def test_fa2_takes_packed_sequences(monkeypatch):
    from torch.nn.attention import varlen

    def varlen_attn(q, k, v, cu_q, cu_k, max_q, max_k, window_size):
        left, right = window_size
        options = dict(causal=right == 0, **dict(window_size=(left, 0)) if left > 0 else {})
        return package.flash_attn_varlen_func(q, k, v, cu_q, cu_k, max_q, max_k, **options)[0]

    package = stand_ins.FlashAttention()
    monkeypatch.setattr(varlen, "varlen_attn", varlen_attn)
    for mask in ("window", "document", "causal_document"):
        runner, fields = prepared(FlashAttention2(), small(mask=mask))
        assert runner is not None, fields["reason"]


def test_gradients_keep_to_the_order_of_the_current_stream(monkeypatch):
    steps = []

    class Stream:
        def __init__(self, name):
            self.name = name

        def wait_stream(self, other):
            steps.append(f"{self.name} waits for {other.name}")

    @contextlib.contextmanager
    def entered(stream):
        steps.append(f"on {stream.name}")
        yield
        steps.append(f"off {stream.name}")

    fake = types.SimpleNamespace(Stream=lambda device: Stream("own"), current_stream=lambda device: Stream("current"),
                                 stream=entered)
    monkeypatch.setattr(torch, "cuda", fake)
    ordered = own_stream(torch.device("cuda"))
    assert ordered(lambda: steps.append("call") or 7) == 7
    assert steps == ["own waits for current", "on own", "call", "off own", "current waits for own"]


class Own(ByAutograd, Contender):
    """The expected result of `attend(q, k, v)` without a mask."""

    name = label = "own"

    def __init__(self, attend):
        self.attend, self.forwards = attend, 0

    def forward_of(self, cell, inputs):
        def call(q, k, v):
            self.forwards += 1
            return self.attend(q, k, v)

        return Forward(call, detail=dict(call="own"))


def right(q, k, v):
    return stand_ins.flex_attention(*(t.transpose(1, 2) for t in (q, k, v)), enable_gqa=True).transpose(1, 2)


def test_a_step_of_training_has_its_forward_in_each_call():
    gradients, step = Own(right), Own(right)
    for contender, kind, forwards in ((gradients, cells.BackwardCell, 0), (step, cells.TrainingCell, 1)):
        runner, fields = prepared(contender, small(kind))
        assert runner is not None and fields["detail"] == dict(call="own"), fields.get("reason")
        before = contender.forwards
        with runner.context():
            assert [t.shape for t in runner.call()] == [(2, 9, 4, 8), (2, 9, 2, 8), (2, 9, 2, 8)]
        assert contender.forwards - before == forwards


def test_other_bits_in_a_second_call_are_wrong_where_equal_ones_are_asked_for():
    class Scaled(torch.autograd.Function):
        """o, whose gradient is off in the last bits, by more in each call."""

        @staticmethod
        def forward(ctx, o):
            return o

        @staticmethod
        def backward(ctx, d_o):
            calls.append(1)
            return d_o * (1 + len(calls) * 2 ** -8)

    for deterministic, status in ((False, None), (True, records.WRONG)):
        calls = []
        runner, fields = prepared(Own(lambda q, k, v: Scaled.apply(right(q, k, v))), small(deterministic=deterministic))
        assert fields.get("status") == status
    assert "other bits in a second call" in fields["reason"] and fields["check"]["repeated"] is False


@pytest.mark.parametrize("error, status", [(NotImplementedError("not on this card\nmore"), records.UNSUPPORTED),
                                           (AssertionError("head_dim"), records.FAILED)])
@pytest.mark.parametrize("kind", [cells.BackwardCell, cells.TrainingCell])
def test_what_raises_is_a_cell_with_the_reason(error, status, kind):
    def attend(q, k, v):
        raise error

    runner, fields = prepared(Own(attend), small(kind))
    assert runner is None and fields["status"] == status and str(error).splitlines()[0] in fields["reason"]


OURS = JitAttention("off")
needs_ours = pytest.mark.skipif(OURS.absent() is not None, reason=f"ours: {OURS.absent()}")


@needs_ours
@pytest.mark.parametrize("fields", [
    dict(mask="prefix", score="softcap"), dict(score="bias"), dict(mask="causal", score="alibi", deterministic=True),
    dict(mask="document"), dict(mask="causal_document", packed=True), dict(mask="document", packed=True)],
    ids=lambda fields: "-".join(map(str, fields.values())))
def test_ours_passes_the_check_of_gradients(fields, emulated):
    runner, known = prepared(OURS, small(head_dim=16, **fields), device="cpu" if emulated else "cuda")
    assert runner is not None, known["reason"]


@needs_ours
@pytest.mark.parametrize("fields", [dict(mask="causal", deterministic=True), dict(mask="causal_document", packed=True)],
                         ids=["causal", "packed"])
def test_ours_takes_steps_of_training(fields, emulated):
    cell = small(cells.TrainingCell, head_dim=16, **fields)
    runner, known = prepared(OURS, cell, device="cpu" if emulated else "cuda")
    assert runner is not None, known["reason"]


@needs_ours
@pytest.mark.parametrize("kind", [cells.BackwardCell, cells.TrainingCell])
def test_training_is_timed_on_a_gpu_and_graphs_hold_it(kind, emulated):
    if emulated or not torch.cuda.is_available():
        pytest.skip("there is no GPU that PyTorch and jit-attention share")
    cell = cells.backward_of(cells.cell("test", "gpu", 2, 256, 4, 64, mask="causal", mode="sustained"), "test", kind)
    for one in measure.measure(cell, [OURS, FlashAttention2()], 0.1):
        assert one["status"] == "ok" and one["reason"] is None, one["reason"]
