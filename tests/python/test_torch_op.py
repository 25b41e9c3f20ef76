"""jit_attention.torch.attention: eager and compiled, masks as text, gradients, CUDA graphs."""

import copy
import pickle

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention.torch as jt  # noqa: E402
from jit_attention.flash_attn import flash_attn_func  # noqa: E402
from jit_attention.torch import op, operator  # noqa: E402
from torch import library  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.utils._pytree import tree_structure  # noqa: E402

OPERATOR = torch.ops.jit_attention.attention.default
NEIGHBORS = ja.mask.text(
    "return (k - q) % every == 0 || chosen[k] != 0;",
    name="neighbors",
    constants={"every": 3},
    tensors={"chosen": "int32"},
)
SLOPE = ja.score.text("return score - rate * (q > k ? q - k : k - q);", name="slope", constants={"rate": 0.5})


def random_qkv(make, batch=2, seqlen_q=19, seqlen_kv=45, head_dim_v=24):
    return make(batch, seqlen_q, 4, 16), make(batch, seqlen_kv, 2, 16), make(batch, seqlen_kv, 2, head_dim_v)


def assert_same(ours, other):
    for a, b in zip(ours, other, strict=True):
        assert a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
        assert torch.equal(a, b)


MASKS_AND_SCORES = {
    "nothing": (None, None, ()),
    "built in": (ja.mask.causal() & ja.mask.sliding_window(9), ja.score.softcap(3.0), ()),
    "inverted": (~ja.mask.causal("top_left"), None, ()),
    "texts": (NEIGHBORS & ja.mask.causal(), SLOPE.then(ja.score.alibi()), ("chosen", "alibi_slopes")),
    "bias": (None, ja.score.bias("bf16"), ("bias",)),
}


def tensors_named(names, q, k, make):
    known = {
        "chosen": lambda: torch.randint(2, (k.shape[1],), device=q.device, dtype=torch.int32),
        "alibi_slopes": lambda: torch.rand(4, device=q.device),
        "bias": lambda: make(1, 4, 1, k.shape[1]),
    }
    return {name: known[name]() for name in names}


@pytest.mark.parametrize("tuning", [None, "off", "recorded"])
def test_gradients_are_tuned_as_the_result_is(make, monkeypatch, tuning):
    modes, compute = [], operator._attention_backward

    def noted(*arrays, **keywords):
        modes.append(keywords["tuning"])
        return compute(*arrays, **keywords)

    monkeypatch.setattr(operator, "_attention_backward", noted)
    q, k, v = (x.requires_grad_() for x in random_qkv(make))
    jt.attention(q, k, v, tuning=tuning).sum().backward()
    assert modes == [tuning] and q.grad.isfinite().all()


@pytest.mark.parametrize("case", MASKS_AND_SCORES)
def test_compiled_equals_eager_bit_for_bit(make, case):
    mask, score, names = MASKS_AND_SCORES[case]
    q, k, v = random_qkv(make)
    tensors = tensors_named(names, q, k, make)

    def compute(q, k, v, tensors):
        return jt.attention(q, k, v, mask=mask, score=score, softmax_scale=0.3, return_lse=True, tensors=tensors)

    assert_same(torch.compile(compute, fullgraph=True)(q, k, v, tensors), compute(q, k, v, tensors))
    plain = ja.attention(q, k, v, mask=mask, score=score, softmax_scale=0.3, return_lse=True, tensors=tensors)
    assert_same(compute(q, k, v, tensors), plain)


def test_masks_and_scores_built_inside_of_a_compiled_function(make):
    q, k, v = random_qkv(make)

    def compute(q, k, v, size):
        mask = ja.mask.causal() & (ja.mask.sliding_window(size) | ja.mask.prefix(2))
        odd = ja.mask.text("return k % every != 0;", name="odd", constants={"every": size})
        return jt.attention(q, k, v, mask=mask & odd, score=ja.score.softcap(2.0).then(SLOPE), return_lse=True)

    compiled = torch.compile(compute, fullgraph=True, dynamic=False)
    for size in (4, 7):
        assert_same(compiled(q, k, v, size), compute(q, k, v, size))


def test_another_mask_recompiles(make):
    q, k, v = random_qkv(make)
    holder = {"mask": ja.mask.causal()}
    compute = lambda: jt.attention(q, k, v, mask=holder["mask"], return_lse=True)  # noqa: E731
    compiled = torch.compile(compute, fullgraph=True)
    first = compiled()
    holder["mask"] = ja.mask.sliding_window(3)
    assert not torch.equal(compiled()[0], first[0])
    assert_same(compiled(), compute())


def test_dicts_that_change_do_not_break_the_graph(make):
    q, k, v = random_qkv(make)
    tensors = tensors_named(["chosen"], q, k, make)
    seen = {}

    def compute(q, k, v):
        seen["q"] = q
        return jt.attention(q, k, v, mask=NEIGHBORS, return_lse=True, tensors=tensors)

    assert_same(torch.compile(compute, fullgraph=True)(q, k, v), compute(q, k, v))


def test_dynamic_shapes_compile_once(make):
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("inductor")

    def compute(q, k, v):
        return jt.attention(q * 2, k, v, mask=ja.mask.causal(), return_lse=True)

    compiled = torch.compile(compute, fullgraph=True, dynamic=True, backend=counter)
    for batch, seqlen_q, seqlen_kv in ((3, 19, 45), (7, 33, 33), (5, 8, 130)):  # at first all sizes differ
        q, k, v = random_qkv(make, batch, seqlen_q, seqlen_kv)
        assert_same(compiled(q, k, v), compute(q, k, v))
    assert counter.frame_count == 1


@pytest.mark.parametrize("layout", ["BSHD", "BHSD"])
@pytest.mark.parametrize("return_lse", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_fake_results_have_the_strides_of_real_ones(make, layout, return_lse, transposed):
    from torch._subclasses.fake_tensor import FakeTensorMode

    q, k, v = random_qkv(make) if layout == "BSHD" else (make(2, 4, 19, 16), make(2, 2, 45, 16), make(2, 2, 45, 8))
    if transposed:
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    real = jt.attention(q, k, v, layout=layout, return_lse=return_lse)
    with FakeTensorMode() as mode:
        fake = jt.attention(*(mode.from_tensor(x) for x in (q, k, v)), layout=layout, return_lse=return_lse)
    for a, b in zip(real if return_lse else [real], fake if return_lse else [fake], strict=True):
        assert (a.shape, a.stride(), a.dtype, a.device) == (b.shape, b.stride(), b.dtype, b.device)


def test_opcheck(make):
    q, k, v = random_qkv(make)
    bias = make(1, 1, 1, 45)
    plain = repr((None, None, (), None))
    biased = repr((("causal", ()), ("bias(bf16)", ()), ("bias",), None))
    library.opcheck(OPERATOR, (q, k, v, [], plain, None, True, "BSHD", None))
    library.opcheck(OPERATOR, (q, k, v, [bias], biased, 0.5, False, "BSHD", "off"))
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    library.opcheck(OPERATOR, (*heads_first, [], plain, None, True, "BHSD", None))


def test_export(make):
    class Module(torch.nn.Module):
        def forward(self, q, k, v):
            return jt.attention(q, k, v, mask=ja.mask.causal())

    q, k, v = random_qkv(make)
    length = torch.export.Dim("length", min=2, max=4096)
    program = torch.export.export(Module(), (q, k, v), dynamic_shapes={"q": None, "k": {1: length}, "v": {1: length}})
    assert OPERATOR in [node.target for node in program.graph.nodes]
    q, k, v = random_qkv(make, seqlen_kv=77)
    assert torch.equal(program.module()(q, k, v), Module()(q, k, v))


def parameter(tensor):
    return torch.nn.Parameter(tensor)


def exact_gradients(do, q, k, v, keep, score, softmax_scale):
    """Autograd's own in double precision, of (batch, seqlen, heads, head_dim) on the CPU."""
    q, k, v = (x.detach().cpu().double().requires_grad_() for x in (q, k, v))
    ks, vs = (x.repeat_interleave(q.shape[2] // k.shape[2], 2) for x in (k, v))
    scores = score(torch.einsum("bihd,bjhd->bhij", q, ks) * softmax_scale)
    if keep is not None:
        scores = scores.masked_fill(~keep, -torch.inf)
    o = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), vs)
    return torch.autograd.grad(o, (q, k, v), do.detach().cpu().double())


def assert_near(gradients, exact):
    for name, ours, right in zip("qkv", gradients, exact, strict=True):
        assert ours.shape == right.shape
        assert (ours.cpu().double() - right).abs().max() <= 0.02 * right.abs().max(), name


DIFFERENCE = torch.arange(45)[None, :] - torch.arange(19)[:, None]  # of key and query
GRADIENTS = {
    "nothing": (None, None, None, lambda s: s),
    "causal": (ja.mask.causal(), None, DIFFERENCE <= 45 - 19, lambda s: s),
    "softcap": (None, ja.score.softcap(1.5), None, lambda s: 1.5 * torch.tanh(s / 1.5)),
    "text": (None, SLOPE, None, lambda s: s - 0.5 * DIFFERENCE.abs()),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients(make, case, compiled):
    mask, score, keep, exact_score = GRADIENTS[case]
    q, k, v = map(parameter, random_qkv(make))

    def compute(q, k, v):
        return jt.attention(q, k, v, mask=mask, score=score, softmax_scale=0.3)

    o = (torch.compile(compute, fullgraph=True) if compiled else compute)(q, k, v)
    do = make(*o.shape)
    gradients = torch.autograd.grad(o, (q, k, v), do)
    assert [x.dtype for x in gradients] == [torch.bfloat16] * 3
    assert_near(gradients, exact_gradients(do, q, k, v, keep, exact_score, 0.3))
    # Summing gives gradients that are broadcast, and only k wants one.
    q, v = q.detach(), v.detach()
    (dk,) = torch.autograd.grad(compute(q, k, v).sum(), k)
    assert torch.equal(dk, torch.autograd.grad(compute(q, k, v), k, torch.ones_like(do))[0])


class Lost(torch.autograd.Function):
    """Itself, with no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return None


@pytest.mark.parametrize("trailing", ["left out", "given"])
def test_gradients_are_as_many_as_arguments_were_given(make, monkeypatch, trailing):
    """PyTorch 2.6 to 2.11 takes no others; later versions do not tell."""
    seen = []
    original = operator._of_inputs

    def spy(ctx, *gradients):
        seen.append((original(ctx, *gradients), ctx.needs_input_grad))
        return seen[-1][0]

    monkeypatch.setattr(operator, "_of_inputs", spy)
    monkeypatch.setattr(op, "is_watched", lambda *_: True)
    keywords = {} if trailing == "left out" else dict(deterministic=True)
    q, k, v = map(parameter, random_qkv(make))
    bias, sinks = parameter(make(1, 4, 1, 45)), parameter(make(4).float())
    biased = dict(score=ja.score.bias("bf16"), tensors={"bias": bias})
    for more in ({}, biased, dict(sinks=sinks), biased | dict(sinks=sinks)):
        jt.attention(q, k, v, **more, **keywords).sum().backward()
    Lost.apply(jt.attention(q, k, v, **keywords)).sum().backward()
    assert len(seen) == 5
    for gradients, needed in seen:
        assert tree_structure(gradients) == tree_structure(needed)
    last_given = [argument.name for argument in OPERATOR._schema.arguments].index("deterministic")
    assert [len(gradients) == last_given + 1 for gradients, _ in seen] == [trailing == "given"] * 5


def test_gradients_in_the_other_layout(make):
    q, k, v = random_qkv(make)
    heads_first = [parameter(x.transpose(1, 2)) for x in (q, k, v)]
    q, k, v = map(parameter, (q, k, v))
    do = make(2, 19, 4, 24)
    expected = torch.autograd.grad(jt.attention(q, k, v), (q, k, v), do)
    gradients = torch.autograd.grad(jt.attention(*heads_first, layout="BHSD"), heads_first, do.transpose(1, 2))
    assert all(torch.equal(a.transpose(1, 2), b) for a, b in zip(gradients, expected, strict=True))


def test_opcheck_of_gradients(make):
    q, k, v = random_qkv(make)
    o, lse = jt.attention(q, k, v, mask=ja.mask.causal(), return_lse=True)
    problem = repr((("causal", ()), None, (), None))
    arguments = (make(*o.shape), q, k, v, o, lse, [], problem, None, "BSHD")
    library.opcheck(torch.ops.jit_attention.attention_backward.default, arguments)
    bias, sinks, score = make(1, 4, 1, 45), make(4).float(), ja.score.bias("bf16")
    o, lse = jt.attention(q, k, v, score=score, tensors={"bias": bias}, sinks=sinks, return_lse=True)
    problem = repr((None, (score.text, ()), ("bias",), None))
    more = dict(dlse=make(*lse.shape).float(), sinks=sinks, wanted=[0], want_sinks=True)
    arguments = (make(*o.shape), q, k, v, o, lse, [bias], problem, None, "BSHD")
    library.opcheck(torch.ops.jit_attention.attention_backward.default, arguments, more)


RELATIVE = ja.score.text("return score * temperatures[h] + to_float(table[min(max(q - k, -3), 3) + 3]);",
                         name="relative", tensors={"table": "bf16", "temperatures": "fp32"})


STATED = ja.score.text(RELATIVE.texts[0].body, name="stated", tensors=RELATIVE.tensors, derivative="""
    d_temperatures[h] += score;
    d_table[min(max(q - k, -3), 3) + 3] += 1;
    return temperatures[h];""")


@pytest.mark.parametrize("compiled, text", [(False, RELATIVE), (True, RELATIVE), (False, STATED)])
def test_gradients_of_all_that_is_read(make, compiled, text):
    """Gradients of tensors that scores read, of sinks, and of a loss that also depends on lse."""
    q, k, v = map(parameter, random_qkv(make))
    bias, table = parameter(make(1, 4, 1, 45)), parameter(make(7))
    temperatures, sinks = parameter(make(4).float().abs() + 0.5), parameter(make(4).float())
    inputs = q, k, v, bias, table, temperatures, sinks
    score = ja.score.bias("bf16").then(text)

    def compute(q, k, v, bias, table, temperatures, sinks):
        tensors = {"bias": bias, "table": table, "temperatures": temperatures}
        return jt.attention(q, k, v, score=score, tensors=tensors, sinks=sinks, return_lse=True)

    def exact(q, k, v, bias, table, temperatures, sinks):
        ks, vs = (x.repeat_interleave(2, 2) for x in (k, v))
        scores = torch.einsum("bihd,bjhd->bhij", q, ks) * q.shape[-1] ** -0.5 + bias
        scores = scores * temperatures[:, None, None] + table[(-DIFFERENCE).clamp(-3, 3) + 3]
        sink = sinks[:, None, None].expand(*scores.shape[:3], 1)
        p = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
        return torch.einsum("bhij,bjhd->bihd", p, vs), torch.cat([scores, sink], -1).logsumexp(-1)

    o, lse = (torch.compile(compute, fullgraph=True) if compiled else compute)(*inputs)
    do, dlse = make(*o.shape), make(*lse.shape).float()
    gradients = torch.autograd.grad((o, lse), inputs, (do, dlse))
    assert [x.dtype for x in gradients] == [x.dtype for x in inputs]
    doubles = [x.detach().cpu().double().requires_grad_() for x in inputs]
    right = torch.autograd.grad(exact(*doubles), doubles, (do.cpu().double(), dlse.cpu().double()))
    for i, (ours, expected) in enumerate(zip(gradients, right, strict=True)):
        assert ours.shape == expected.shape
        # Sums over all queries cancel, and o is rounded.
        assert (ours.cpu().double() - expected).abs().max() <= (0.02 if i < 3 else 0.06) * expected.abs().max(), i
    if compiled:
        return
    # Only a bias wants one, and only lse is used.
    (of_bias,) = torch.autograd.grad(compute(*(x.detach() for x in (q, k, v)), bias, table.detach(),
                                             temperatures.detach(), sinks.detach())[1], bias, dlse)
    doubles = [x.detach().cpu().double().requires_grad_(x is bias) for x in inputs]
    (right,) = torch.autograd.grad(exact(*doubles)[1], doubles[3], dlse.cpu().double())
    assert (of_bias.cpu().double() - right).abs().max() <= 0.06 * right.abs().max()


def test_what_has_no_gradient_is_refused(make):
    q, k, v = random_qkv(make)
    weights = {"weights": parameter(make(45).float())}
    some = ja.mask.text("return weights[k] > 0;", name="some", tensors={"weights": "fp32"})
    masked = dict(mask=some, tensors=weights)

    def second():
        given = parameter(q)
        (dq,) = torch.autograd.grad(jt.attention(given, k, v).sum(), given, create_graph=True)
        dq.sum().backward()

    calls = [
        (lambda: jt.attention(q, k, v, **masked), "'weights' requires grad.*no_grad.*detach"),
        (torch.compile(lambda: jt.attention(parameter(q) * 1, k, v, **masked)), "requires grad.*no_grad.*detach"),
        (lambda: OPERATOR(parameter(q), k, v, [], repr((None, None, (), None)), None, False, "BSHD", None), "return_lse"),
        (second, "gradients of attention have no gradients.*create_graph"),
    ]
    for call, message in calls:
        with pytest.raises(Exception, match=message):
            call()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("compiled", [False, True])
def test_parameters_are_served_where_no_gradient_is_wanted(make, mode, compiled):
    q, k, v = random_qkv(make)
    bias = parameter(make(1, 4, 1, 45))

    def compute(q, k, v, bias):
        return jt.attention(q, k, v, score=ja.score.bias("bf16"), tensors={"bias": bias})

    expected = compute(q, k, v, bias.detach())
    with mode():
        o = (torch.compile(compute, fullgraph=True) if compiled else compute)(parameter(q), k, parameter(v), bias)
    assert not o.requires_grad and torch.equal(o, expected)


@pytest.mark.parametrize("dtypes, compiled", [("fp32", False), ("fp32", True), ("fp32 and bf16", False),
                                              ("bf16", False)])
def test_autocast_converts_as_for_torchs_own_attention(make, emulated, dtypes, compiled):
    q, k, v = random_qkv(make, head_dim_v=16)
    if dtypes != "bf16":
        q, v = q.float(), v.float()
    k = k.float() if dtypes == "fp32" else k
    q, k, v = map(parameter, (q, k, v))
    device = "cpu" if emulated else "cuda"

    def compute(q, k, v):
        with torch.autocast(device, dtype=torch.float16):
            return jt.attention(q, k, v, mask=ja.mask.causal())

    o = (torch.compile(compute, fullgraph=True) if compiled else compute)(q, k, v)
    with torch.autocast(device, dtype=torch.float16):
        rows = (x.transpose(1, 2) for x in (q, k, v))
        assert o.dtype == torch.nn.functional.scaled_dot_product_attention(*rows, enable_gqa=True).dtype
    halves = [parameter(x.detach().half()) for x in (q, k, v)]
    expected = jt.attention(*halves, mask=ja.mask.causal())
    assert torch.equal(o, expected)
    do = make(*o.shape, dtype=torch.float16)
    with torch.autocast(device, dtype=torch.float16):  # which says nothing to the backward pass
        gradients = torch.autograd.grad(o, (q, k, v), do)
    assert [x.dtype for x in gradients] == [x.dtype for x in (q, k, v)]
    for ours, right in zip(gradients, torch.autograd.grad(expected, halves, do), strict=True):
        torch.testing.assert_close(ours, right.to(ours.dtype), atol=2e-3, rtol=2e-3)  # sums in another order


def test_autocast_leaves_fp8_and_double_precision_alone(make, emulated):
    q, k, v = random_qkv(make, head_dim_v=16)
    q, k, v = (x.to(torch.float8_e4m3fn) for x in (q, k, v))
    expected = jt.attention(q, k, v)
    with torch.autocast("cpu" if emulated else "cuda", dtype=torch.float16):
        o = jt.attention(q, k, v)
        with pytest.raises(ja.InvalidArgumentError, match="q: has float64"):
            jt.attention(*(x.double() for x in (q, k, v)))
    assert torch.equal(o, expected)


def test_autocast_leaves_pages_alone(make, emulated):
    """Which would be copied as a whole, in each call."""
    q, pages = make(1, 1, 2, 16), make(4, 8, 1, 16)
    table = torch.tensor([[2, 1]], dtype=torch.int32, device=q.device)
    used = torch.tensor([11], dtype=torch.int32, device=q.device)
    with torch.autocast("cpu" if emulated else "cuda", dtype=torch.float16):
        o = jt.attention(q, pages, pages, page_table=table, seqused_k=used)
    assert torch.equal(o, jt.attention(q, pages, pages, page_table=table, seqused_k=used)) and o.dtype == q.dtype


TRANSFORMS = {
    "vmap beside a tensor called v": (
        lambda q, k, v: torch.vmap(
            lambda q: jt.attention(q, k, v, tensors={"v": v, "sinks": v},
                                   score=ja.score.text("return score + v[0] + sinks[0];", name="taken",
                                                       tensors={"v": "bf16", "sinks": "bf16"})))(q[None]),
        "q",
    ),
    "vmap": (lambda q, k, v: torch.vmap(jt.attention)(q[None], k[None], v[None]), "q"),
    "vmap of keys": (lambda q, k, v: torch.vmap(lambda k: jt.attention(q, k, v))(k[None]), "k"),
    "vmap of a bias": (
        lambda q, k, v: torch.vmap(
            lambda bias: jt.attention(q, k, v, score=ja.score.bias("bf16"), tensors={"bias": bias})
        )(k.new_zeros(2, 1, 1, 1, 45)),
        "bias",
    ),
    "grad": (lambda q, k, v: torch.func.grad(lambda q: jt.attention(q, k, v).sum())(q), "q"),
    "jvp": (lambda q, k, v: torch.func.jvp(lambda q: jt.attention(q, k, v), (q,), (q,)), "q"),
}


@pytest.mark.parametrize("case", TRANSFORMS)
def test_transforms_of_torch_are_refused_by_name(make, case):
    transform, name = TRANSFORMS[case]
    with pytest.raises(ja.InvalidArgumentError, match="give a batch.*torch.autograd.grad") as refused:
        transform(*random_qkv(make))
    assert refused.value.field == name


FORWARD_MODE = {
    "q": lambda dual, q, k, v: jt.attention(dual(q), k, v),
    "k": lambda dual, q, k, v: ja.attention(q, dual(k), v),
    "v": lambda dual, q, k, v: flash_attn_func(q, k, dual(v)),
    "q of padded heads": lambda dual, q, k, v: flash_attn_func(*(dual(x[..., :12]) for x in (q, k, v))),
    "q beside gradients": lambda dual, q, k, v: jt.attention(dual(q), k.clone().requires_grad_(), v),
    "q without gradients": lambda dual, q, k, v: torch.no_grad()(jt.attention)(dual(q), k, v),
    "q in fp8": lambda dual, q, k, v: jt.quantized_attention(dual(q), k, v, center_keys=True, rotation_seed=0),
    "q of sdpa": lambda dual, q, k, v: jt.scaled_dot_product_attention(dual(q), q, q),
    "bias": lambda dual, q, k, v: jt.scaled_dot_product_attention(q, q, q, dual(q[:1, :1, :1, :1])),
    "outs": lambda dual, q, k, v: ja.merge([dual(q)], [q[..., 0].transpose(1, 2).float().contiguous()]),
}


@pytest.mark.parametrize("case", FORWARD_MODE)
def test_tangents_of_forward_mode_are_refused_by_name(make, case):
    q, k, v = random_qkv(make)
    with forward_ad.dual_level():
        with pytest.raises(ja.InvalidArgumentError, match="has a tangent.*backward") as refused:
            FORWARD_MODE[case](lambda x: forward_ad.make_dual(x, torch.ones_like(x)), q, k, v)
        assert refused.value.field == case.partition(" ")[0]
        assert torch.equal(jt.attention(q, k, v), ja.attention(q, k, v))  # of tensors without one


def test_tangents_are_refused_by_compiled_programs(make):
    q, k, v = random_qkv(make)
    compiled = torch.compile(jt.attention)
    compiled(q, k, v)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(q, torch.ones_like(q))
        with pytest.raises(ja.InvalidArgumentError, match="has a tangent"):
            compiled(dual, k, v)


def test_tensors_from_outside_of_a_transform_are_served(make):
    q, k, v = random_qkv(make)
    sums = torch.vmap(lambda x: jt.attention(q, k, v).sum() + x)(torch.arange(3.0, device=q.device))
    assert sums.shape == (3,)


def test_errors_of_the_library_arrive(make):
    q, k, v = random_qkv(make)
    with pytest.raises(ja.InvalidArgumentError, match="heads"):
        jt.attention(q[:, :, :3], k, v)
    with pytest.raises(Exception, match="bf16, fp16 and fp8"):
        torch.compile(jt.attention)(q.float(), k.float(), v.float())
    wrong = ja.mask.text("return nonsense;", name="wrong")
    with pytest.raises(Exception, match="wrong:1"):
        torch.compile(lambda: jt.attention(q, k, v, mask=wrong))()


def test_texts_stay_values():
    text = copy.deepcopy(NEIGHBORS.texts[0])
    assert text == NEIGHBORS.texts[0] and hash(text) == hash(NEIGHBORS.texts[0])
    assert pickle.loads(pickle.dumps(NEIGHBORS)) == NEIGHBORS


def test_importing_loads_no_compiler_and_no_models(run_python):
    printed = run_python(
        "import sys, jit_attention.torch\n"
        "print([name for name in ('torch._dynamo', 'transformers') if name in sys.modules])"
    )
    assert printed.strip() == "[]"


@pytest.mark.parametrize("missing, call", [("torch", ""), ("transformers", ".register_with_transformers()")])
def test_a_missing_package_is_named(run_python, missing, call):
    printed = run_python(
        f"import sys, jit_attention\nsys.modules['{missing}'] = None\n"
        f"try:\n  import jit_attention.torch\n  jit_attention.torch{call}\nexcept ImportError as e:\n  print(e)"
    )
    assert "needs" in printed and f"pip install{' -U' if call else ''} {missing}" in printed


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")


@needs_gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_cuda_graph_replays_with_new_inputs(make, compiled):
    mask, score, names = MASKS_AND_SCORES["texts"]
    q, k, v = random_qkv(make)
    tensors = tensors_named(names, q, k, make)

    def compute(q, k, v):
        return jt.attention(q, k, v, mask=mask, score=score, return_lse=True, tensors=tensors)

    run = torch.compile(compute, fullgraph=True) if compiled else compute
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run(q, k, v)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run(q, k, v)
    for _ in range(3):
        for tensor, new in zip((q, k, v), random_qkv(make)):
            tensor.copy_(new)
        graph.replay()
        assert_same(results, compute(q.clone(), k.clone(), v.clone()))


@needs_gpu
def test_reduce_overhead(make):
    def compute(q, k, v):
        return jt.attention(q * 2, k, v, mask=ja.mask.causal()) + 1

    compiled = torch.compile(compute, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        q, k, v = random_qkv(make)
        torch.compiler.cudagraph_mark_step_begin()
        assert torch.equal(compiled(q, k, v), compute(q, k, v))


@needs_gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_work_goes_to_the_current_stream(make, compiled):
    run = torch.compile(jt.attention) if compiled else jt.attention
    q, k, v = random_qkv(make)
    expected = run(q, k, v)
    late = torch.zeros_like(q)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        late.copy_(q)
        o = run(late, k, v)
    side.synchronize()
    assert torch.equal(o, expected)
