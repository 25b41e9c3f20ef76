"""Output functors: what becomes of o where it is written, in every kernel that applies them, and their gradients."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import exact_attention, random_qkv
from request_batches import boundaries, call, paged, requests

SHARE = 12  # kernels take long to compile

BF16 = numpy.dtype(ml_dtypes.bfloat16)
CHAIN = ja.output.sigmoid_gate().then(ja.output.scale()).then(ja.output.residual())
SOFTPLUS = ja.output.text(
    "const auto weight = log1pf(expf(gate));\nreturn value * weight * table[d % 3] + bias * (q % 2) + h + 2 * b;",
    name="softplus", constants={"bias": 0.25}, tensors={"gate": "fp32 as_row", "table": "fp32"})

CONFIGS = {
    "forward_mma_sync": (130, 64, ""),
    "chosen, two warps for the columns": (20, 320, None),
    "forward_wgmma": (130, 64, "forward_wgmma"),
    "forward_wgmma direct": (130, 72, "forward_wgmma output=direct"),
    "forward_wgmma separate": (130, 64, "forward_wgmma output=separate"),
    "forward_split_kv": (5, 72, ""),
    "forward_split_wgmma": (5, 64, "forward_split_wgmma"),
    "forward_split_cluster": (5, 72, ""),
}


def sigmoid(x):
    return 1 / (1 + numpy.exp(-numpy.asarray(x, numpy.float64)))


def normal(rng, *shape, dtype=BF16):
    return rng.standard_normal(shape).astype(dtype)


def chain_tensors(rng, shape):
    return {"gate": normal(rng, *shape), "scale": normal(rng, 1, 1, shape[2], dtype=numpy.float32),
            "residual": normal(rng, *shape)}


def chained(o, gate, scale, residual):
    return o * sigmoid(gate) * scale.astype(numpy.float64)[..., None] + residual.astype(numpy.float64)


def softplus(o, gate, table):
    b, q, h, d = numpy.ogrid[tuple(slice(size) for size in o.shape)]
    weight = numpy.log1p(numpy.exp(gate.astype(numpy.float64)))[..., None]
    return o * weight * table[d % 3] + 0.25 * (q % 2) + h + 2 * b


def close(got, exact, o):
    """Errors of those of o, rounded, through a functor whose slope is at most about 10."""
    numpy.testing.assert_allclose(got, exact, rtol=2**-8, atol=10 * (2 * o.plain_error + o.rounding))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("functor", ["chain", "text"])
def test_all_kernels(rng, place, fetch, name, functor):
    seqlen_q, head_dim, config = CONFIGS[name]
    seqlen_kv, ratio = seqlen_q + 70, 4 if seqlen_q == 5 else 2
    q, k, v = random_qkv(rng, batch=2, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv, heads_q=4, heads_kv=4 // ratio,
                         head_dim=head_dim, dtype="bf16")
    keep = lambda b, h, i, j: (i != 3) & (j <= i + 70)
    mask = ja.mask.text(f"return q != 3 && k <= q + {seqlen_kv - seqlen_q};", name="late")  # a row without keys
    o = exact_attention(q, k, v, keep=keep)
    if functor == "chain":
        output, tensors, exact = CHAIN, chain_tensors(rng, q.shape), chained
    else:
        output, exact = SOFTPLUS, softplus
        tensors = {"gate": normal(rng, *q.shape[:3], dtype=numpy.float32),
                   "table": numpy.float32([0.5, -1, 2])}
    spec = ja.AttentionSpec(head_dim=head_dim, gqa_ratio=ratio, mask=mask, output=output)
    prepared = ja.prepare(spec, config=None if config is None else "family=" + (config or name))
    out, raw = (place(numpy.full(q.shape, numpy.nan, BF16)) for _ in range(2))
    held, aux = prepared(place(q), place(k), place(v), out=out, return_aux={"o_raw": raw},
                         tensors={name: place(tensor) for name, tensor in tensors.items()})
    assert held is out and aux["o_raw"] is raw
    o.check(fetch(raw))
    assert not fetch(raw)[:, 3].any()
    close(fetch(out), exact(o.o, **tensors), o)
    numpy.testing.assert_allclose(fetch(out)[:, 3], exact(o.o * 0, **tensors)[:, 3], rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("tile_q, order", [(64, "free"), (128, "ping_pong")])
def test_o_is_finished_under_the_next_work_tile(rng, place, fetch, tile_q, order):
    """Blocks have several work tiles of one to five tiles of keys."""
    if ja.devices()[0].arch != "sm_90a":
        pytest.skip("the family is Hopper's")
    q, k, v = random_qkv(rng, batch=1, seqlen_q=5 * tile_q - 20, seqlen_kv=300, heads_q=8, heads_kv=2, head_dim=64,
                         dtype="bf16")
    tensors = chain_tensors(rng, q.shape)
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4, mask=ja.mask.causal(), output=CHAIN)
    fields = f"tile_q={tile_q} tile_kv=64 stages_q=2 stages_k=2 stages_v=2 order={order} output=over_q rescale=on_overflow"
    got = ja.prepare(spec, config=f"family=forward_wgmma {fields}")(
        place(q), place(k), place(v), tensors={name: place(one) for name, one in tensors.items()})
    late = k.shape[1] - q.shape[1]
    o = exact_attention(q, k, v, keep=lambda b, h, i, j: j <= i + late)
    close(fetch(got), chained(o.o, **tensors), o)


@pytest.mark.parametrize("functor", ["chain", "text"])
def test_bits_are_equal_in_all_kernels(rng, place, fetch, functor):
    """With one key o is v in all of them, so that what is left is the functor's arithmetic."""
    results = []
    q, k, v = random_qkv(rng, batch=1, seqlen_q=5, seqlen_kv=1, heads_q=4, heads_kv=1, head_dim=64, dtype="bf16")
    tensors = chain_tensors(rng, q.shape) if functor == "chain" else {
        "gate": normal(rng, 1, 5, 4, dtype=numpy.float32), "table": numpy.float32([0.3, -1.1, 2.7])}
    output = CHAIN if functor == "chain" else SOFTPLUS
    configs = ["forward_mma_sync", "forward_split_kv", "forward_wgmma", "forward_wgmma output=direct", "forward_split_wgmma",
               "forward_split_cluster"]
    for config in configs if ja.devices()[0].arch == "sm_90a" else configs[:2]:
        spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4, output=output)
        got = ja.prepare(spec, config=f"family={config}")(
            place(q), place(k), place(v), tensors={name: place(one) for name, one in tensors.items()})
        results.append(fetch(got))
    assert results[0].any() and all(numpy.array_equal(results[0], other) for other in results[1:])


def test_nan_gates_are_their_elements_own(rng, place, fetch):
    q, k, v = random_qkv(rng, batch=1, seqlen_q=70, seqlen_kv=90, heads_q=2, heads_kv=2, head_dim=64, dtype="bf16")
    gate = normal(rng, *q.shape)
    gate[0, ::9, 1, ::5] = numpy.nan
    gate[0, 5] = -numpy.inf
    got = fetch(ja.attention(place(q), place(k), place(v), output=ja.output.sigmoid_gate(), tensors={"gate": place(gate)}))
    assert numpy.array_equal(numpy.isnan(got), numpy.isnan(gate.astype(numpy.float32)))
    assert not got[0, 5].any()


@pytest.mark.parametrize("split_keys", [0, 128])
@pytest.mark.parametrize("paging", [0, 16])
def test_requests(rng, place, fetch, paging, split_keys):
    lengths_q, lengths_k = [1, 40, 0, 3], [700, 40, 5, 130]
    batch = requests(rng, lengths_q, lengths_k)
    arrays = paged(rng, batch, paging) if paging else {
        "k": numpy.concatenate(batch.k), "v": numpy.concatenate(batch.v), "cu_seqlens_k": boundaries(lengths_k)}
    arrays["cu_seqlens_q"] = boundaries(lengths_q)
    q = numpy.concatenate(batch.q)
    # As a projection of queries and gates has it: heads · 2 head_dim columns.
    both = normal(rng, *q.shape[:2], 128)
    both[..., :64] = q
    tensors = {"gate": place(both)[..., 64:]}
    plain = fetch(call(place, q, arrays, mask=ja.mask.causal(), split_keys=split_keys))
    got, aux = call(place, both[..., :64], arrays, mask=ja.mask.causal(), split_keys=split_keys, tensors=tensors,
                    output=ja.output.sigmoid_gate(), return_aux=("o_raw",))
    numpy.testing.assert_allclose(fetch(aux["o_raw"]), plain, rtol=2**-6, atol=2e-3)
    numpy.testing.assert_allclose(fetch(got), plain * sigmoid(both[..., 64:]), rtol=2**-6, atol=2e-3)


def gradient_case(rng, lengths, layout, head_dim, head_dim_v):
    """Arrays of a call, and its arguments that say where sequences lie."""
    total = (sum(lengths),) if lengths else (2, 70)
    shapes = [(*total, heads, width) for heads, width in
              ((4, head_dim), (2, head_dim), (2, head_dim_v), (4, head_dim_v), (4, head_dim_v))]
    arrays = [normal(rng, *shape) for shape in shapes]
    scale = normal(rng, *total, 4, dtype=numpy.float32)
    if layout == "BHSD":
        arrays = [numpy.ascontiguousarray(one.swapaxes(1, 2)) for one in arrays]
        scale = numpy.ascontiguousarray(scale.swapaxes(1, 2))
    options = dict(cu_seqlens_q=boundaries(lengths), cu_seqlens_k=boundaries(lengths)) if lengths else dict(layout=layout)
    return arrays, scale, options


@pytest.mark.parametrize("lengths, layout, head_dim, head_dim_v, deterministic", [
    (None, "BSHD", 64, 64, False), (None, "BHSD", 64, 64, True), (None, "BSHD", 96, 72, True),
    ([30, 1, 50, 7], "BSHD", 64, 64, True), (None, "BSHD", 160, 160, False)])
def test_gradients(rng, place, fetch, lengths, layout, head_dim, head_dim_v, deterministic):
    (q, k, v, gate, dy), scale, options = gradient_case(rng, lengths, layout, head_dim, head_dim_v)
    options = {name: place(one) if isinstance(one, numpy.ndarray) else one for name, one in options.items()}
    output = ja.output.text("return tanhf(value) * sigmoid(gate);", name="own", tensors={"gate": "bf16 as_o"}).then(
        ja.output.scale())
    tensors = {"gate": place(gate), "scale": place(scale)}
    inputs, mask = [place(one) for one in (q, k, v)], ja.mask.causal()
    _, lse, aux = ja.attention(*inputs, mask=mask, output=output, tensors=tensors, return_lse=True,
                               return_aux=("o_raw",), **options)
    raw = fetch(aux["o_raw"])
    d_gate = place(numpy.full((*gate.shape[:-1], 2 * gate.shape[-1]), numpy.nan, BF16))[..., ::2]  # columns lie apart
    *gradients, of_tensors = ja.attention_backward(
        place(dy), *inputs, aux["o_raw"], lse, mask=mask, output=output, tensors=tensors, deterministic=deterministic,
        d_tensors={"gate": d_gate, "scale": None}, **options)
    sigma, curve, factor, dy = sigmoid(gate), numpy.tanh(raw), scale.astype(numpy.float64)[..., None], fetch(place(dy))
    do = dy * factor * sigma * (1 - curve**2)
    composed = ja.attention_backward(place(do.astype(BF16)), *inputs, aux["o_raw"], lse, mask=mask,
                                     deterministic=deterministic, **options)
    for got, wanted in zip(gradients, composed, strict=True):
        numpy.testing.assert_allclose(fetch(got), fetch(wanted), rtol=0.02, atol=0.02)
    numpy.testing.assert_allclose(fetch(of_tensors["gate"]), dy * factor * curve * sigma * (1 - sigma), rtol=2**-7, atol=1e-5)
    numpy.testing.assert_allclose(fetch(of_tensors["scale"]), (dy * curve * sigma).sum(-1), rtol=1e-4, atol=1e-4)


def test_a_tensor_of_two_links_has_one_gradient(rng, place, fetch):
    (q, k, v, _, dy), scale, _ = gradient_case(rng, None, "BSHD", 64, 64)
    inputs, output = [place(one) for one in (q, k, v)], ja.output.scale().then(ja.output.scale())
    tensors = {"scale": place(scale)}
    _, lse, aux = ja.attention(*inputs, output=output, tensors=tensors, return_lse=True, return_aux=("o_raw",))
    *_, of_tensors = ja.attention_backward(place(dy), *inputs, aux["o_raw"], lse, output=output, tensors=tensors,
                                           d_tensors={"scale": None})
    exact = (dy.astype(numpy.float64) * 2 * scale[..., None].astype(numpy.float64) * fetch(aux["o_raw"])).sum(-1)
    numpy.testing.assert_allclose(fetch(of_tensors["scale"]), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("config", ["family=forward_mma_sync", None])
def test_rows_without_keys_beside_numbers_that_are_none(rng, place, fetch, config):
    """o before the functor is 0 there, whatever the values that rows of the same tile see."""
    q, k, v = (normal(rng, 1, 40, 2, 64) for _ in "qkv")
    v[0, 0] = numpy.nan
    spec = ja.AttentionSpec(head_dim=64, mask=ja.mask.text("return q % 2 == 0;", name="even"), output=ja.output.residual())
    residual = normal(rng, 1, 40, 2, 64)
    o = fetch(ja.prepare(spec, config=config)(*map(place, (q, k, v)), tensors={"residual": place(residual)}))
    numpy.testing.assert_array_equal(o[:, 1::2], residual[:, 1::2].astype(numpy.float64))
    assert numpy.isnan(o[:, ::2]).all()


def test_gradients_of_padding_rows_are_not_written(rng, place, fetch):
    (q, k, v, gate, dy), _, _ = gradient_case(rng, None, "BSHD", 64, 64)
    used = place(numpy.int32([70, 31]))
    tensors, output = {"gate": place(gate)}, ja.output.sigmoid_gate()
    inputs = [place(one) for one in (q, k, v)]
    lse, aux = ja.attention(*inputs, seqused_q=used, output=output, tensors=tensors, return_lse=True,
                            return_aux=("o_raw",))[1:]
    d_gate = place(numpy.full(gate.shape, 7, BF16))
    ja.attention_backward(place(dy), *inputs, aux["o_raw"], lse, seqused_q=used, output=output, tensors=tensors,
                          d_tensors={"gate": d_gate})
    raw, sigma = fetch(aux["o_raw"]), sigmoid(gate)
    exact = dy.astype(numpy.float64) * raw * sigma * (1 - sigma)
    exact[1, 31:] = 7
    numpy.testing.assert_allclose(fetch(d_gate), exact, rtol=2**-7, atol=1e-6)


def refused(error, text, call):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


def test_what_is_refused(rng, place):
    q, k, v = (place(one) for one in random_qkv(rng, batch=1, seqlen_q=16, seqlen_kv=16, heads_q=2, heads_kv=2,
                                                head_dim=64, dtype="bf16"))
    shape, output = (1, 16, 2, 64), ja.output.sigmoid_gate()
    wide = normal(rng, 1, 16, 2, 132)
    attend = lambda gate, **options: ja.attention(q, k, v, output=output, tensors={"gate": gate}, **options)
    argument, spec = ja.InvalidArgumentError, ja.InvalidSpecError
    refused(argument, "gate: is read by the output but was not given", lambda: ja.attention(q, k, v, output=output))
    refused(argument, "gate: has heads_q = 3; it must be 2", lambda: attend(place(normal(rng, 1, 16, 3, 64))))
    refused(argument, "gate: has 3 dimensions", lambda: attend(place(normal(rng, 16, 2, 64))))
    refused(argument, "gate: is fp32", lambda: attend(place(normal(rng, *shape, dtype=numpy.float32))))
    refused(argument, "gate: has rows that do not begin at multiples of 16 bytes", lambda: attend(place(wide)[..., 4:68]))
    refused(argument, "gate: ", lambda: attend(numpy.broadcast_to(normal(rng, 1, 16, 2, 1), shape)))  # stride 0
    gate = place(normal(rng, *shape))
    refused(argument, "gate", lambda: attend(gate, out=gate))
    refused(argument, "was given, but the spec has no output", lambda: ja.attention(q, k, v, return_aux=("o_raw",)))
    refused(argument, "neither mask nor score nor output", lambda: ja.attention(
        q, k, v, output=output, tensors={"gate": place(normal(rng, *shape)), "other": q}))
    refused(ja.Error, "forward_wide_wgmma applies no output functors; spec.output is sigmoid_gate", lambda: ja.compile(
        ja.AttentionSpec(output=output), "sm_90a", "family=forward_wide_wgmma"))
    refused(spec, "must be none with FP8 q", lambda: ja.AttentionSpec(dtype="fp8_e4m3", output=output))
    refused(spec, "must be none with values_in_keys", lambda: ja.AttentionSpec(values_in_keys=True, output=output))
    refused(spec, "must be none with list_block", lambda: ja.AttentionSpec(
        sequences_q="varlen", sequences_kv="varlen", list_block=16, output=output))
    refused(spec, "must be none with q_positions", lambda: ja.AttentionSpec(q_positions=True, output=output))
    refused(spec, "only outputs may read", lambda: ja.score.text("return score;", name="s", tensors={"t": "bf16 as_o"}))
    refused(spec, "must be bf16, fp16 or fp32", lambda: ja.output.text("return value;", name="s", tensors={"t": "int32 as_o"}))
    refused(spec, "already have", lambda: ja.output.text("return value;", name="s", constants={"value": 1}))
    refused(spec, "only scores may have", lambda: ja.output.parse(
        "text(s)", [ja.FunctorText("s", "return value;", derivative="return 1;")]))
    refused(spec, "at most 8", lambda: ja.output.parse(", ".join(["scale"] * 9)))
    refused(spec, "as bf16 as_row and as bf16 as_o", lambda: output.then(ja.output.row_gate()))
    refused(spec, "is read by the output and by the mask or score", lambda: ja.AttentionSpec(
        score=ja.score.text("return score + gate[0];", name="s", tensors={"gate": "fp32"}), output=output))
    refused(argument, "unknown output", lambda: ja.output.parse("gelu"))
    refused(argument, "as_o or as_row", lambda: ja.output.parse("text(s)", [ja.FunctorText("s", "return 1;", tensors={"t": "bf16 at_o"})]))


def test_gradients_that_are_refused(rng, place):
    (q, k, v, gate, dy), scale, _ = gradient_case(rng, None, "BSHD", 64, 64)
    arrays = [place(one) for one in (dy, q, k, v)]
    o, lse = ja.attention(*arrays[1:], return_lse=True)
    backward = lambda output, tensors: ja.attention_backward(
        *arrays, o, lse, output=output, tensors={name: place(one) for name, one in tensors.items()}, d_tensors=list(tensors))
    refused(ja.InvalidArgumentError, "no gradient of a tensor that is broadcast", lambda: backward(
        ja.output.scale(), {"scale": scale[:1, :1]}))
    pointer = ja.output.text("return value * table[d];", name="p", tensors={"table": "fp32"})
    refused(ja.InvalidArgumentError, "through a pointer", lambda: backward(pointer, {"table": numpy.ones(64, numpy.float32)}))


@pytest.mark.parametrize("compiled", [False, True])
def test_torch(rng, compiled):
    torch = pytest.importorskip("torch")
    import jit_attention.torch as jt

    device = "cpu" if ja.devices()[0].emulated else "cuda"
    draw = lambda *shape: torch.randn(*shape, device=device).bfloat16().requires_grad_()
    q, k, v, gate, residual = draw(1, 40, 4, 64), draw(1, 50, 2, 64), draw(1, 50, 2, 64), draw(1, 40, 4, 64), draw(1, 1, 4, 64)
    scale = torch.randn(1, 1, 4, device=device).requires_grad_()
    def attend(q, k, v, gate, scale, residual):
        return jt.attention(q, k, v, output=CHAIN, tensors=dict(gate=gate, scale=scale, residual=residual))

    leaves = q, k, v, gate, scale, residual
    y = (torch.compile(attend, fullgraph=True) if compiled else attend)(*leaves)
    dy = torch.randn_like(y)
    y.backward(dy)
    exact = [one.detach().double().requires_grad_() for one in leaves]
    qs, ks, vs, gates, scales, residuals = exact
    p = (torch.einsum("bqhd,bkhd->bhqk", qs, ks.repeat_interleave(2, 2)) / 8).softmax(-1)
    o = torch.einsum("bhqk,bkhd->bqhd", p, vs.repeat_interleave(2, 2))
    (o * gates.sigmoid() * scales[..., None] + residuals).backward(dy.double())
    for leaf, wanted in zip(leaves, exact, strict=True):
        error = (leaf.grad.double() - wanted.grad).abs().max() / wanted.grad.abs().max()
        assert leaf.grad.shape == leaf.shape and error < 0.02
    with torch.no_grad():
        assert (attend(*leaves) - y).abs().max() < 0.1
