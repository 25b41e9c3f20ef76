"""Eager gradients of jit_attention.torch.attention: without PyTorch's dispatcher, but where something watches operators."""

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention.torch as jt  # noqa: E402
from jit_attention.torch import eager, op  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

SLOPE = ja.score.text("return score - rate * (q > k ? q - k : k - q);", name="slope", constants={"rate": 0.5})
CHOSEN = ja.mask.text("return k <= q + 26 && chosen[k] != 0;", name="chosen", tensors={"chosen": "int32"})
CASES = {
    "nothing": {},
    "built in": dict(mask=ja.mask.causal(), score=ja.score.softcap(3.0)),
    "texts": dict(mask=CHOSEN, score=SLOPE),
    "bias": dict(score=ja.score.bias("bf16")),
    "gate": dict(output=ja.output.sigmoid_gate()),
    "dropout": dict(dropout_p=0.25),
}


@pytest.fixture
def inputs(make):
    return [make(*shape).requires_grad_() for shape in ((2, 19, 4, 16), (2, 45, 2, 16), (2, 45, 2, 24))]


def tensors_of(case, make, device):
    made = {"texts": {"chosen": (torch.rand(45, device=device) < 0.7).int()},
            "bias": {"bias": make(1, 4, 1, 45).requires_grad_()},
            "gate": {"gate": make(2, 19, 4, 24).requires_grad_()}}  # fmt: skip
    return made.get(case, {})


def refuse(*_, **__):
    raise AssertionError("the operator was called")


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_the_operator(inputs, make, monkeypatch, case):
    q, k, v = inputs
    tensors = tensors_of(case, make, q.device)
    read = [tensor for tensor in tensors.values() if tensor.requires_grad]
    sinks = make(4).float().requires_grad_()
    do, dlse = make(2, 19, 4, 24), make(2, 4, 19).float()

    def step():
        torch.manual_seed(7)
        o, lse = jt.attention(q, k, v, tensors=tensors, sinks=sinks, return_lse=True, **CASES[case])
        return o, lse, *torch.autograd.grad((o, lse), (q, k, v, sinks, *read), (do, dlse))

    with monkeypatch.context() as patch:
        patch.setattr(op, "attention_operator", refuse)
        patch.setattr(eager, "backward_operator", refuse)
        eagerly = step()
    monkeypatch.setattr(op, "is_watched", lambda *_: True)
    assert all(torch.equal(a, b) for a, b in zip(eagerly, step(), strict=True))


def test_outputs_without_gradients(inputs):
    q, k, v = inputs
    o, aux = jt.attention(q, k, v, return_aux=("max_logit", "row_max"))
    assert o.requires_grad and not aux["max_logit"].requires_grad and not aux["row_max"].requires_grad
    only_lse = jt.attention(q, k, v, return_lse=True)[1]
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(only_lse.sum(), (q, k)))


def test_checkpoints_and_hooks_of_saved_tensors(inputs, make):
    q, k, v = inputs
    do = make(2, 19, 4, 24)

    def compute(q, k, v):
        return jt.attention(2 * q, k, v, mask=ja.mask.causal())

    expected = torch.autograd.grad(compute(q, k, v), (q, k, v), do)
    again = torch.autograd.grad(checkpoint(compute, q, k, v, use_reentrant=False), (q, k, v), do)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
        hooked = torch.autograd.grad(compute(q, k, v), (q, k, v), do)
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(expected, again, hooked, strict=True))


def test_saved_tensors_that_were_written_meanwhile(inputs, make):
    q, k, v = inputs
    for written in ("k", "o"):
        own = {"k": k * 1, "o": None}
        own["o"] = jt.attention(q, own["k"], v)
        with torch.no_grad():
            own[written].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            own["o"].backward(make(2, 19, 4, 24))


class Seen(TorchDispatchMode):
    """The operators that calls within it reach."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.name())
        return function(*args, **(kwargs or {}))


def test_modes_see_the_operators(inputs):
    with Seen() as seen:
        jt.attention(*inputs).sum().backward()
    assert "jit_attention::attention" in seen.names and "jit_attention::attention_backward" in seen.names
    o = jt.attention(*inputs)
    with Seen() as seen:
        o.sum().backward()
    assert "jit_attention::attention_backward" in seen.names


def test_gradients_of_gradients_are_refused(inputs):
    q, k, v = inputs
    (dq,) = torch.autograd.grad(jt.attention(q, k, v).float().square().sum(), q, create_graph=True)
    with pytest.raises(ja.InvalidArgumentError, match="no gradients themselves"):
        dq.sum().backward()


class Wrapped(torch.Tensor):
    """A tensor whose memory is another one's: only operators reach it."""

    @staticmethod
    def __new__(cls, tensor):
        return torch.Tensor._make_wrapper_subclass(cls, tensor.shape, dtype=tensor.dtype, device=tensor.device)

    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        unwrapped = torch.utils._pytree.tree_map_only(cls, lambda x: x.tensor, (args, kwargs or {}))
        return function(*unwrapped[0], **unwrapped[1])


@pytest.mark.parametrize("name", ["v", "sinks"])
def test_kinds_of_tensors_reach_the_operator(inputs, make, name):
    q, k, v = inputs
    given = dict(v=v.detach(), sinks=make(4).float())
    expected = jt.attention(q, k, **given)
    assert torch.equal(jt.attention(q, k, **given | {name: Wrapped(given[name])}), expected)


class Projected(torch.nn.Module):
    def __init__(self, k, v):
        super().__init__()
        self.layer = torch.nn.Linear(16, 16, dtype=k.dtype, device=k.device)
        self.register_buffer("k", k)
        self.register_buffer("v", v)

    def forward(self, q):
        return jt.attention(self.layer(q), self.k, self.v)


def test_traces_have_the_operator(inputs):
    q, k, v = (x.detach() for x in inputs)
    model = Projected(k, v)
    traced = torch.jit.trace(model, q, check_trace=False)
    assert torch.equal(traced(2 * q), model(2 * q))
