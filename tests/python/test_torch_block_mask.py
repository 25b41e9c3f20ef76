"""Block masks of jit_attention.torch.attention: this library's and FlexAttention's, eager, compiled, with gradients."""

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention.torch as jt  # noqa: E402
from torch import library  # noqa: E402

SEGMENTS = ja.mask.text("return segment[b * seqlen_kv + k] == segment[b * seqlen_kv + q] || k < 3;", name="segments",
                        tensors={"segment": "int32"})
NEAR = ja.mask.sliding_window(30, 20, "top_left")
# torch 2.15's compiler traces how an error is made; torch 2.11's says that it cannot.
TRACES_ERRORS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 15)
BY_HEAD = ja.mask.text("return h % 2 == 0 ? k <= q : k >= q;", name="by_head")


def near(b, h, i, j):
    return (i - j <= 30) & (j - i <= 20)


def by_head(b, h, i, j):
    return torch.where(h % 2 == 0, j <= i, j >= i)


def random_qkv(make, batch=2, seqlen=70):
    return make(batch, seqlen, 4, 16), make(batch, seqlen, 2, 16), make(batch, seqlen, 2, 24)


def segments_of(q):
    return torch.randint(4, q.shape[:2], dtype=torch.int32, device=q.device).sort(-1).values


def of_segments(q, k, segment, scores=False):
    return ja.block_mask(q, k, mask=SEGMENTS, tensors={"segment": segment}, block_size=(32, 16), scores=scores)


def of_flex(q, k, rule=near, heads=None):
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    return flex.create_block_mask(rule, None, heads, q.shape[1], k.shape[1], device=q.device, BLOCK_SIZE=(32, 16))


def gradients_of(compute, q, k, v, do):
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    o = compute(*inputs)
    return o.detach(), *torch.autograd.grad(o, inputs, do)


def exact(keep):
    """Attention of every score, in double precision."""
    def compute(q, k, v):
        q, k, v = (x.double() for x in (q, k, v))
        k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], 2) for x in (k, v))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
        return torch.einsum("bhij,bjhd->bihd", scores.masked_fill(~keep, -torch.inf).softmax(-1), v)
    return compute


def positions(q, k):
    sizes = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
    return [torch.arange(n, device=q.device).reshape([n if d == i else 1 for d in range(4)])
            for i, n in enumerate(sizes)]


def assert_same(ours, other):
    assert all(torch.equal(a, b) for a, b in zip(ours, other, strict=True))


def assert_near(ours, right):
    for a, b in zip(ours, right, strict=True):
        assert a.shape == b.shape and (a.double() - b).abs().max() <= 0.02 * b.abs().max()


@pytest.mark.parametrize("kind", ["own", "own, all scores known", "own, some known", "flex", "flex by head"])
def test_eager_compiled_and_with_gradients(make, kind):
    q, k, v = random_qkv(make)
    if kind.startswith("own"):
        segment = segments_of(q)
        scores = {"own": False, "own, all scores known": True}.get(kind, 2)
        given = dict(block_mask=of_segments(q, k, segment, scores))
        b, _, i, j = positions(q, k)
        keep = (segment[b, i] == segment[b, j]) | (j < 3)
        plain = given["block_mask"]
    else:
        rule, mask = (near, NEAR) if kind == "flex" else (by_head, BY_HEAD)
        given = dict(block_mask=of_flex(q, k, rule, 4 if rule is by_head else None), mask=mask)
        keep = rule(*positions(q, k))
        plain = ja.BlockMask.from_torch(given["block_mask"], mask)

    def compute(q, k, v):
        return jt.attention(q, k, v, **given)

    o = compute(q, k, v)
    assert torch.equal(o, ja.attention(q, k, v, block_mask=plain))
    do = make(*o.shape)
    results = gradients_of(compute, q, k, v, do)
    assert torch.equal(results[0], o)
    assert_near(results, gradients_of(exact(keep), q, k, v, do.double()))
    for keywords in ({}, {"dynamic": True}):
        torch._dynamo.reset()
        compiled = torch.compile(compute, fullgraph=True, **keywords)
        assert torch.equal(compiled(q, k, v), o)
        assert_same(gradients_of(compiled, q, k, v, do), results)


@pytest.mark.parametrize("scores", [True, 2])
def test_gradients_ask_the_mask_of_which_scores_are_known(make, monkeypatch, scores):
    q, k, v = random_qkv(make)
    segment = segments_of(q)
    bm = of_segments(q, k, segment, scores)
    asked, for_gradients = [], ja.BlockMask._for_gradients

    def watched(*given):
        mask, tensors = for_gradients(*given)
        asked.append((mask, set(tensors)))
        return mask, tensors

    monkeypatch.setattr(ja.BlockMask, "_for_gradients", watched)

    def compute(q, k, v):
        return jt.attention(q, k, v, block_mask=bm)

    do = make(*q.shape[:3], v.shape[-1])
    results = gradients_of(compute, q, k, v, do)
    assert asked == [(ja.mask.block_mask(32, 16, SEGMENTS), {"block_mask", "segment"})]
    assert_same(gradients_of(torch.compile(compute, fullgraph=True), q, k, v, do), results)
    assert asked[1:] == asked[:1]
    o, lse = ja.attention(q, k, v, block_mask=bm, return_lse=True)
    by_bits = ja.attention_backward(do, q, k, v, o, lse, mask=bm.mask, tensors=bm.tensors)
    assert_same(results, [o, *by_bits])
    o = compute(q.clone().requires_grad_(), k, v)
    segment += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.backward(do)


def test_a_score_reads_what_the_mask_does(make):
    q, k, v = random_qkv(make)
    weights = torch.nn.Parameter(make(70).float())
    mask = ja.mask.text("return weights[k] > 0.0f || k < 3;", name="some", tensors={"weights": "fp32"})
    score = ja.score.text("return score + weights[k];", name="more", tensors={"weights": "fp32"})
    results = []
    for scores in (False, True):
        with torch.no_grad():
            bm = ja.block_mask(q, k, mask=mask, tensors={"weights": weights}, block_size=(32, 16), scores=scores)
        o = jt.attention(q, k, v, block_mask=bm, score=score, tensors={"weights": weights})
        results.append((o, *torch.autograd.grad(o.sum(), weights)))
    assert_same(*results)


def test_a_block_mask_is_an_argument_of_compiled_functions(make):
    compiled = torch.compile(lambda q, k, v, bm: jt.attention(q, k, v, block_mask=bm), fullgraph=True)
    for batch, seqlen in ((2, 70), (3, 41), (2, 70)):
        q, k, v = random_qkv(make, batch, seqlen)
        bm = of_segments(q, k, segments_of(q))
        assert torch.equal(compiled(q, k, v, bm), ja.attention(q, k, v, block_mask=bm))


def test_block_sparse_rows_of_the_host_come_to_where_tensors_are(make):
    q, k, v = random_qkv(make, seqlen=64)
    sizes = dict(seqlen_q=64, seqlen_k=64, block_size=(32, 32))
    bm = ja.BlockMask.from_bsr(torch.tensor([0, 1, 3]), [1, 0, 1], like=q, **sizes)
    assert torch.is_tensor(bm.table) and bm.table.device == q.device
    _, _, i, j = positions(q, k)
    right = exact((i >= 32) | (j >= 32))(q, k, v)
    assert (jt.attention(q, k, v, block_mask=bm).double() - right).abs().max() <= 0.02 * right.abs().max()
    there = [torch.tensor(x, dtype=torch.int32, device=q.device) for x in ([0, 1, 3], [1, 0, 1])]
    assert torch.equal(ja.BlockMask.from_bsr(*there, **sizes).table, bm.table)
    with pytest.raises(ja.InvalidArgumentError, match=r"indices: has 1 at \[2\], after 1"):
        ja.BlockMask.from_bsr([0, 1, 3], torch.tensor([1, 1, 1]), like=q, **sizes)


def test_varlen_sequences(make):
    lengths = [40, 0, 61]
    q, k, v = (x[0] for x in random_qkv(make, 1, sum(lengths)))
    cu = torch.tensor([0, 40, 40, 101], dtype=torch.int32, device=q.device)
    where = dict(cu_seqlens_q=cu, cu_seqlens_k=cu)
    bm = ja.block_mask(q, k, mask=ja.mask.causal(), block_size=(32, 16), max_seqlen_q=61, max_seqlen_k=61, **where)

    def compute(q, k, v):
        return jt.attention(q, k, v, block_mask=bm, **where)

    o, do = compute(q, k, v), make(*q.shape[:2], v.shape[-1])
    assert torch.equal(o, ja.attention(q, k, v, mask=ja.mask.causal(), **where))
    results = gradients_of(compute, q, k, v, do)
    assert torch.equal(results[0], o)
    for begin, end in ((0, 40), (40, 101)):
        keep = torch.ones(end - begin, end - begin, dtype=torch.bool, device=q.device).tril()
        parts = [x[None, begin:end] for x in (q, k, v, do.double())]
        assert_near([x[None, begin:end] for x in results], gradients_of(exact(keep), *parts))
    compiled = torch.compile(compute, fullgraph=True)
    assert_same(gradients_of(compiled, q, k, v, do), results)
    with pytest.raises(ja.InvalidArgumentError, match="made with cu_seqlens_q, and the call is without"):
        jt.attention(q[None], k[None], v[None], block_mask=bm)


def test_flex_lists_for_all_of_a_mask_that_differs(make):
    """The lists are one for all batch entries and heads; the mask within is not."""
    q, k, v = random_qkv(make)
    segment = segments_of(q)
    mask = SEGMENTS & BY_HEAD
    o = jt.attention(q, k, v, block_mask=of_flex(q, k), mask=mask, tensors={"segment": segment})
    b, h, i, j = positions(q, k)
    blocks = near(0, 0, i, j).reshape(70, 70).new_zeros(3, 5)
    for row in range(3):
        for column in range(5):
            blocks[row, column] = near(0, 0, i, j)[0, 0, 32 * row:32 * row + 32, 16 * column:16 * column + 16].any()
    keep = blocks[i // 32, j // 16] & ((segment[b, i] == segment[b, j]) | (j < 3)) & by_head(b, h, i, j)
    right = exact(keep)(q, k, v).nan_to_num(0)  # queries that see no key
    assert (o.double() - right).abs().max() <= 0.02 * right.abs().max()
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    same = jt.attention(*heads_first, block_mask=of_flex(q, k), mask=mask, tensors={"segment": segment}, layout="BHSD")
    assert torch.equal(same.transpose(1, 2), o)


@pytest.mark.parametrize("way", ["eager", "gradients", "compiled"])
def test_calls_that_a_block_mask_was_not_made_for(make, way):
    q, k, v = random_qkv(make)
    segment = segments_of(q)
    bm, flex = of_segments(q, k, segment), of_flex(q, k, heads=4)

    def refused(match, *arrays, kind=Exception, **keywords):
        def compute(*arrays):
            return jt.attention(*arrays, **{"block_mask": bm} | keywords)

        arrays = arrays or (q, k, v)
        if way == "gradients":
            arrays = [x.detach().requires_grad_() for x in arrays]
        if way == "compiled" and not TRACES_ERRORS:
            match = None
        with pytest.raises(kind, match=match):
            (torch.compile(compute, fullgraph=True) if way == "compiled" else compute)(*arrays)

    short = q[:, :69].contiguous()
    refused("seqlen_q 70, and the call has 69", short, k, v, kind=ja.InvalidArgumentError)
    refused("seqlen_k 70, and the call has 69", q, k[:, :69].contiguous(), v[:, :69].contiguous())
    refused("batch 2, and the call has 1", q[:1], k[:1], v[:1])
    refused("seqlen_q 70, and the call has 69", short, k, v, block_mask=flex, mask=NEAR)
    refused("heads_q 4, and the call has 2", q[:, :, :2].contiguous(), k, v, block_mask=flex, mask=NEAR)
    refused("was made of mask .*segments.*, and the call's mask is causal", mask=ja.mask.causal())
    refused("segment: is not the array", tensors={"segment": segment.clone()})
    refused("mask: is missing, and some blocks are seen in part", block_mask=flex)
    refused("must be a jit_attention.BlockMask, a torch", block_mask=bm.table)
    if q.is_cuda and way == "eager":
        with pytest.raises(ja.InvalidArgumentError, match="counts: .*CPU memory"):
            ja.BlockMask.from_torch(of_flex(q.cpu(), k.cpu()), NEAR)


def test_what_the_mask_reads_has_no_gradient(make):
    q, k, v = random_qkv(make)
    some = ja.mask.text("return weights[k] > 0;", name="some", tensors={"weights": "fp32"})
    weights = torch.nn.Parameter(make(70).float())
    for scores in (False, True):
        known = dict(mask=some, block_size=(32, 16), scores=scores)
        jt.attention(q, k, v, block_mask=ja.block_mask(q, k, tensors={"weights": weights.detach()}, **known))
        with torch.no_grad():
            wrong = ja.block_mask(q, k, tensors={"weights": weights}, **known)
        with pytest.raises(ja.InvalidArgumentError, match="'weights' requires grad"):
            jt.attention(q, k, v, block_mask=wrong)


@pytest.mark.parametrize("scores", [False, True])
def test_opcheck(make, scores):
    q, k, v = random_qkv(make)
    bm = of_segments(q, k, segments_of(q), scores)
    numbers, tensors = [32, 16, 70, 70, 2, -1, *[0] * 5, int(scores)], {**bm.tensors, **bm.read}
    problem = repr(((SEGMENTS.text, tuple(text.plain for text in SEGMENTS.texts)), None, tuple(tensors), None))
    arguments = (q, k, v, list(tensors.values()), problem, None, True, "BSHD", None)
    library.opcheck(torch.ops.jit_attention.attention.default, arguments, {"block_numbers": numbers})
    o, lse = ja.attention(q, k, v, block_mask=bm, return_lse=True)
    arguments = (make(*o.shape), q, k, v, o, lse, list(tensors.values()), problem, None, "BSHD")
    library.opcheck(torch.ops.jit_attention.attention_backward.default, arguments, {"block_numbers": numbers})
