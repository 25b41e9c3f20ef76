"""fp8 in PyTorch: its types, the operator, compilation, and attention of 16-bit tensors by way of fp8."""

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention.torch as jt  # noqa: E402
from jit_attention.torch import op  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402


def exact(q, k, v, *, softmax_scale=None, causal=False):
    """o and LSE in double precision, (batch, seqlen, heads, head_dim)."""
    q, k, v = (x.detach().double().cpu().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale)
    if causal:
        rows, keys = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
        scores = scores.masked_fill(keys > rows + k.shape[2] - q.shape[2], -torch.inf)
    lse = scores.logsumexp(-1)
    p = torch.where(torch.isneginf(lse)[..., None], 0, (scores - lse[..., None]).exp())
    return (p @ v).transpose(1, 2), lse


def relative(o, right):
    return float((o.double().cpu() - right).pow(2).mean().sqrt() / right.pow(2).mean().sqrt())


@pytest.mark.parametrize("compiled", [False, True])
def test_types_and_the_operator(make, compiled):
    q, k, v = (make(2, n, heads, 32).to(torch.float8_e4m3fn) for n, heads in ((20, 4), (70, 2), (70, 2)))
    scale = torch.full((2,), 0.5, device=q.device)

    def compute(q, k, v):
        return jt.attention(q, k, v, q_descale=scale, k_descale=scale, v_descale=scale, out_dtype=torch.float16)

    o = (torch.compile(compute, fullgraph=True) if compiled else compute)(q, k, v)
    assert o.dtype == torch.float16
    assert relative(o, exact(*(x.to(torch.float32) / 2 for x in (q, k, v)))[0]) < 0.06
    assert ja.attention(q, k, v).dtype == torch.bfloat16


@pytest.mark.parametrize("interpolated_exponentials", [False, True])
def test_interpolated_exponentials(make, monkeypatch, interpolated_exponentials):
    """Eager, compiled and of 16-bit tensors, where the option reaches attention of fp8."""
    q, k, v = make(1, 70, 2, 64), make(1, 133, 2, 64), make(1, 133, 2, 64)

    def compute(q, k, v):
        return jt.attention(q, k, v, interpolated_exponentials=interpolated_exponentials)

    fp8 = [x.to(torch.float8_e4m3fn) for x in (q, k, v)]
    o = compute(*fp8)
    assert relative(o, exact(*(x.float() for x in fp8))[0]) < 0.06
    assert torch.equal(torch.compile(compute, fullgraph=True)(*fp8), o)
    with FakeTensorMode() as mode:
        fake = compute(*(mode.from_tensor(x) for x in fp8))
    assert (fake.shape, fake.stride(), fake.dtype, fake.device) == (o.shape, o.stride(), o.dtype, o.device)

    seen = []

    def spy(*tensors, **options):
        seen.append(options["interpolated_exponentials"])
        return op.attention(*tensors, **options)

    monkeypatch.setattr(jt.quantized, "attention", spy)
    of_16_bits = jt.quantized_attention(q, k, v, interpolated_exponentials=interpolated_exponentials)
    assert seen == [interpolated_exponentials]
    assert relative(of_16_bits, exact(q, k, v)[0]) < 0.06


def test_interpolated_exponentials_are_of_fp8(make):
    q = make(1, 8, 2, 32)
    with pytest.raises(ja.InvalidSpecError, match="interpolated_exponentials = true is for q, k and v of fp8"):
        jt.attention(q, q, q, interpolated_exponentials=True)


def outliers(make, *shape):
    """N(0, 1) + N(0, 100) for one of a hundred."""
    x = make(*shape, dtype=torch.float32)
    return (x + 10 * make(*shape, dtype=torch.float32) * (make(*shape, dtype=torch.float32) > 2.33)).to(
        torch.bfloat16
    )


def error(q, k, v, **options):
    o = jt.quantized_attention(q, k, v, **options)
    right, _ = exact(q, k, v)
    assert o.dtype == q.dtype and o.shape == right.shape
    return relative(o, right)


def test_rotation_spreads_outliers(make):
    q, k = (outliers(make, 1, 128, 2, 128) for _ in "qk")
    v = make(1, 128, 2, 128)
    plain, rotated = error(q, k, v), error(q, k, v, rotation_seed=3)
    assert rotated < 0.9 * plain
    assert torch.equal(
        jt.quantized_attention(q, k, v, rotation_seed=3), jt.quantized_attention(q, k, v, rotation_seed=3)
    )


def test_means_are_taken_away_and_added_again(make):
    q, k, v = make(2, 20, 4, 64), make(2, 96, 2, 64) + 20 * make(1, 1, 2, 64), make(2, 96, 2, 64) + 3
    together = error(q, k, v, center_keys=True, center_values=True)
    assert together < 0.02
    assert together < 0.3 * error(q, k, v, center_values=True) and together < 0.7 * error(q, k, v, center_keys=True)


@pytest.mark.parametrize(
    "options",
    [{"scales": "token", "value_scales": "channel"}, {"scales": "block"}, {"dtype": "fp8_e5m2"}, {"layout": "BHSD"}],
)
def test_masks_layouts_and_scales(make, options):
    """Rows that see no key are 0, and their LSE −inf, with a mean of v, too."""
    q, k, v = make(2, 40, 4, 32), make(2, 30, 2, 32), make(2, 30, 2, 32) + 1
    given = [x.transpose(1, 2).contiguous() for x in (q, k, v)] if "layout" in options else (q, k, v)
    o, lse = jt.quantized_attention(*given, mask=ja.mask.causal(), center_keys=True, center_values=True, return_lse=True,
                                    softmax_scale=0.3, **options)  # fmt: skip
    o = o.transpose(1, 2) if "layout" in options else o
    right, right_lse = exact(q, k, v, softmax_scale=0.3, causal=True)
    assert relative(o, right) < (0.1 if "dtype" in options else 0.05)
    assert (o[:, :10] == 0).all() and torch.isneginf(lse[:, :, :10]).all()
    assert float((lse[:, :, 10:].double().cpu() - right_lse[:, :, 10:]).abs().max()) < (
        0.6 if "dtype" in options else 0.4
    )


def test_sinks_beside_keys_without_their_mean(make):
    """A sink does not shift with the scores."""
    q, k, v = make(1, 20, 4, 32), make(1, 40, 2, 32) + 2, make(1, 40, 2, 32) + 1
    sinks = torch.tensor([-1.0, 0.0, 3.0, 8.0], device=q.device)
    o, lse = jt.quantized_attention(q, k, v, sinks=sinks, center_keys=True, center_values=True, return_lse=True)
    right, right_lse = exact(q, k, v)
    own = sinks.double().cpu()[None, :, None]
    with_sink = torch.logaddexp(right_lse, own)
    right = right * (right_lse - with_sink).exp().transpose(1, 2)[..., None]
    assert relative(o, right) < 0.05
    assert float((lse.double().cpu() - with_sink).abs().max()) < 0.3


@pytest.mark.parametrize("scales", ["head", "token", "block"])
def test_varlen(make, scales):
    """Each sequence by itself, with means, and scales of heads, of all; blocks that sequences share."""
    lengths = [20, 90, 1]
    q, k, v = make(111, 4, 32), make(111, 2, 32) + 2, make(111, 2, 32) + 1
    bounds = torch.tensor([0, 20, 110, 111], dtype=torch.int32, device=q.device)
    o, lse = jt.quantized_attention(
        q, k, v, cu_seqlens_q=bounds, cu_seqlens_k=bounds, scales=scales, center_keys=True, center_values=True,
        mask=ja.mask.causal(), return_lse=True, layout="BHSD",
    )  # fmt: skip
    for begin, length in zip((0, 20, 110), lengths):
        own = slice(begin, begin + length)
        right, right_lse = exact(*(x[None, own] for x in (q, k, v)), causal=True)
        assert relative(o[own], right[0]) < 0.06
        assert float((lse[:, own].double().cpu() - right_lse[0]).abs().max()) < 0.3


def padded(rows, used, fill):
    """Rows behind so many of each batch entry are `fill`."""
    behind = torch.arange(rows.shape[1], device=rows.device) >= used[:, None]
    return rows.masked_fill(behind[..., None, None], fill)


@pytest.mark.parametrize(
    "options", [{}, {"scales": "token", "rotation_seed": 1, "value_scales": "channel"}, {"scales": "block"}]
)
def test_lengths(make, options):
    """Whatever rows behind a sequence hold, o and LSE are those of the sequence by itself."""
    q, k, v = make(2, 70, 4, 32), make(2, 150, 2, 32) + 3, make(2, 150, 2, 32) + 1
    used_q, used_k = (torch.tensor(x, dtype=torch.int32, device=q.device) for x in ([70, 20], [100, 31]))
    made = []
    for fill in (0, 30, torch.nan):
        given = padded(q, used_q, fill), padded(k, used_k, fill), padded(v, used_k, fill)
        made.append(jt.quantized_attention(*given, seqused_q=used_q, seqused_k=used_k, center_keys=True,
                                           center_values=True, return_lse=True, **options))  # fmt: skip
    for b, (n, keys) in enumerate(((70, 100), (20, 31))):
        own = q[b : b + 1, :n], k[b : b + 1, :keys], v[b : b + 1, :keys]
        right, right_lse = exact(*own)
        for o, lse in made:
            assert torch.equal(o[b, :n], made[0][0][b, :n]) and torch.equal(lse[b, :, :n], made[0][1][b, :, :n])
        assert relative(o[b, :n], right[0]) < 0.06
        assert float((lse[b, :, :n].double().cpu() - right_lse[0]).abs().max()) < 0.3


def test_rows_around_varlen_sequences(make):
    """As engines have them that fill tensors up to the size of a captured graph."""
    q, k, v = make(64, 4, 32), make(140, 2, 32) + 2, make(140, 2, 32) + 1
    bounds = [torch.tensor(x, dtype=torch.int32, device=q.device) for x in ([0, 20, 50], [10, 40, 120])]
    used = torch.tensor([30, 60], dtype=torch.int32, device=q.device)
    for x, of in ((q, [(0, 50)]), (k, [(10, 40), (40, 100)]), (v, [(10, 40), (40, 100)])):
        kept = torch.zeros(len(x), dtype=torch.bool)
        for begin, end in of:
            kept[begin:end] = True
        x[~kept.to(x.device)] = torch.nan
    o = jt.quantized_attention(q, k, v, cu_seqlens_q=bounds[0], cu_seqlens_k=bounds[1], seqused_k=used,
                               center_keys=True, center_values=True)  # fmt: skip
    for rows, keys in ((slice(0, 20), slice(10, 40)), (slice(20, 50), slice(40, 100))):
        assert relative(o[rows], exact(q[None, rows], k[None, keys], v[None, keys])[0][0]) < 0.06


@pytest.mark.parametrize("scales", ["token", "block"])
@pytest.mark.parametrize("varlen", [False, True])
def test_compiled(make, varlen, scales):
    q, k, v = make(1, 70, 4, 32), make(1, 140, 2, 32) + 2, make(1, 140, 2, 32) + 1
    bounds = [torch.tensor([0, 30, x.shape[1]], dtype=torch.int32, device=q.device) for x in (q, k)]
    q, k, v = (x[0] if varlen else x for x in (q, k, v))
    used = torch.tensor([100], dtype=torch.int32, device=q.device)
    lengths = dict(cu_seqlens_q=bounds[0], cu_seqlens_k=bounds[1]) if varlen else dict(seqused_k=used)

    def compute(q, k, v, **lengths):
        return jt.quantized_attention(
            q, k, v, scales=scales, rotation_seed=2, center_keys=True, center_values=True, return_lse=True, **lengths
        )

    compiled, eager = torch.compile(compute, fullgraph=True)(q, k, v, **lengths), compute(q, k, v, **lengths)
    assert all(torch.equal(a, b) for a, b in zip(compiled, eager))


def test_autocast_converts(make, emulated):
    q, k, v = (make(1, 8, 2, 32, dtype=torch.float32) for _ in "qkv")
    with torch.autocast("cpu" if emulated else "cuda", dtype=torch.bfloat16):
        o = jt.quantized_attention(q, k, v)
    assert torch.equal(o, jt.quantized_attention(*(x.bfloat16() for x in (q, k, v))))


def test_zeros_and_nothing(make):
    zeros = torch.zeros_like(make(1, 8, 2, 32))
    assert (jt.quantized_attention(zeros, zeros, zeros, center_values=True) == 0).all()
    none = zeros[:, :0]
    assert (jt.quantized_attention(zeros, none, none, center_keys=True, center_values=True) == 0).all()


@pytest.mark.parametrize(
    "options, argument, words",
    [
        ({"dtype": "bf16"}, "dtype", "must be one of 'fp8_e4m3'"),
        ({"scales": "tensor"}, "scales", "must be one of 'head', 'token', 'block'"),
        ({"cu_seqlens_k": torch.tensor([0, 8], dtype=torch.int32)}, "cu_seqlens_q", "is missing; give both"),
        ({"descale_per": "token"}, "descale_per", "has no place here"),
        ({"value_scales": "token"}, "value_scales", "must be one of 'head', 'channel'"),
        ({"rotation_seed": -1}, "rotation_seed", "must be from 0"),
        ({"rotation_seed": 1, "head_dim": 48}, "rotation_seed", "a power of two"),
        ({"center_keys": True, "score": ja.score.softcap(3)}, "center_keys", "must be False with a score"),
        ({"q_descale": 1}, "q_descale", "has no place here"),
        ({"cache_leftpad": torch.zeros(1, dtype=torch.int32)}, "cache_leftpad", "has no place here"),
        ({"requires_grad": True}, "q", "there are no gradients of fp8"),
        ({"kind": torch.float32}, "q", "must be torch.bfloat16"),
        ({"return_rng_state": True}, "return_rng_state", "there is no dropout"),
    ],
)
def test_refusals(make, options, argument, words):
    q, k, v = (make(1, 8, 2, options.get("head_dim", 32), dtype=options.get("kind", torch.bfloat16)) for _ in "qkv")
    q.requires_grad_(options.get("requires_grad", False))
    given = {name: value for name, value in options.items() if name not in ("head_dim", "kind", "requires_grad")}
    with pytest.raises(ja.InvalidArgumentError) as refused:
        jt.quantized_attention(q, k, v, **given)
    assert refused.value.field == argument and words in str(refused.value)
