"""jit_attention.torch.attention over varlen and paged sequences: eager, compiled, with fake tensors."""

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention.torch as jt  # noqa: E402
from torch import library  # noqa: E402

OPERATOR = torch.ops.jit_attention.attention.default


def int32(values, like):
    return torch.tensor(values, dtype=torch.int32, device=like.device)


def decoding(make, lengths_q=(1, 4, 2), lengths_k=(40, 9, 70)):
    """Varlen queries, and pages of 16 rows."""
    q, pages = make(sum(lengths_q), 4, 32), [make(17, 16, 2, 32) for _ in "kv"]
    table = torch.randperm(17, device=q.device)[:15].reshape(3, 5).to(torch.int32)
    begins = [sum(lengths_q[:i]) for i in range(4)]
    return (q, *pages), dict(cu_seqlens_q=int32(begins, q), seqused_k=int32(lengths_k, q), page_table=table)


def prompts(make, lengths=(7, 30, 1)):
    """Varlen queries and keys."""
    q, k, v = make(sum(lengths), 4, 32), make(sum(lengths), 2, 32), make(sum(lengths), 2, 24)
    begins = int32([sum(lengths[:i]) for i in range(4)], q)
    return (q, k, v), dict(cu_seqlens_q=begins, cu_seqlens_k=begins)


def dense(make):
    """A cache with lengths, left padding and sinks; some queries are padding."""
    q, k, v = make(3, 5, 4, 32), make(3, 40, 2, 32), make(3, 40, 2, 32)
    lengths = dict(seqused_q=int32([5, 0, 2], q), seqused_k=int32([40, 7, 33], q), cache_leftpad=int32([0, 3, 9], q))
    return (q, k, v), lengths | dict(sinks=torch.rand(4, device=q.device), zero_padding=True, num_splits=2)


def fp8_cache(make):
    """Decoding over pages of fp8 as bytes, with a number that is expanded to all requests and heads."""
    (q, k, v), sequences = decoding(make)
    k, v = ((10 * pages).to(torch.float8_e4m3fn).view(torch.uint8) for pages in (k, v))
    scales = torch.full((), 0.1, device=q.device).expand(3, 2)
    return (q, k, v), sequences | dict(k_descale=scales, v_descale=scales, kv_dtype="fp8_e4m3")


CALLS = {"decoding": decoding, "prompts": prompts, "dense": dense, "fp8_cache": fp8_cache}


def assert_same(ours, other):
    for a, b in zip(ours, other, strict=True):
        assert (a.shape, a.stride(), a.dtype, a.device) == (b.shape, b.stride(), b.dtype, b.device)
        if not isinstance(b, torch._subclasses.FakeTensor):
            assert torch.equal(a, b)


@pytest.mark.parametrize("case", CALLS)
def test_compiled_equals_eager_bit_for_bit(make, case):
    arrays, sequences = CALLS[case](make)

    def compute(arrays, sequences):
        return jt.attention(*arrays, mask=ja.mask.causal(), return_lse=True, **sequences)

    eager = compute(arrays, sequences)
    assert_same(eager, ja.attention(*arrays, mask=ja.mask.causal(), return_lse=True, **sequences))
    assert_same(torch.compile(compute, fullgraph=True)(arrays, sequences), eager)


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.parametrize("return_lse", [False, True])
def test_fake_results_are_as_real_ones(make, case, return_lse):
    from torch._subclasses.fake_tensor import FakeTensorMode

    arrays, sequences = CALLS[case](make)
    real = jt.attention(*arrays, return_lse=return_lse, **sequences)
    with FakeTensorMode() as mode:
        faked = {name: mode.from_tensor(x) if torch.is_tensor(x) else x for name, x in sequences.items()}
        fake = jt.attention(*map(mode.from_tensor, arrays), return_lse=return_lse, **faked)
    assert_same(real if return_lse else [real], fake if return_lse else [fake])


@pytest.mark.parametrize("case", CALLS)
def test_opcheck(make, case):
    arrays, sequences = CALLS[case](make)
    plain = repr((None, None, (), None))
    library.opcheck(OPERATOR, (*arrays, [], plain, None, True, "BSHD", None), sequences)


LENGTHS_Q, LENGTHS_K = (7, 30, 0, 1), (9, 21, 4, 0)


def training(make, spare):
    """Varlen queries and keys that want gradients, each request with room for more rows, which hold NaN."""
    arrays, sequences = [], {}
    for name, lengths, shapes in (("q", LENGTHS_Q, [(4, 32)]), ("k", LENGTHS_K, [(2, 32), (2, 24)])):
        for shape in shapes:
            rows = [part for n in lengths for part in (make(n, *shape), make(spare, *shape) * torch.nan)]
            arrays.append(torch.cat(rows).requires_grad_())
        like = arrays[0]
        begins = [sum(lengths[:i]) + i * spare for i in range(len(lengths) + 1)]
        sequences["cu_seqlens_" + name] = int32(begins, like)
        if spare:
            sequences["seqused_" + name] = int32(lengths, like)
    return arrays, sequences


def exact_gradients(do, arrays, spare, *shared):
    """Autograd's own in double precision, request by request; 0 in rows of nobody. Shared by all are temperatures and
    sinks of heads."""
    gradients = [torch.zeros(x.shape, dtype=torch.double) for x in (*arrays, *shared)]
    begin_q = begin_k = 0
    for n, m in zip(LENGTHS_Q, LENGTHS_K):
        places = slice(begin_q, begin_q + n), slice(begin_k, begin_k + m), slice(begin_k, begin_k + m)
        begin_q, begin_k = begin_q + n + spare, begin_k + m + spare
        own = [x.detach().cpu()[at].double().requires_grad_() for x, at in zip(arrays, places)]
        ks, vs = (x.repeat_interleave(2, 1) for x in own[1:])
        own += [x.detach().cpu().double().requires_grad_() for x in shared]
        scores = torch.einsum("ihd,jhd->hij", own[0], ks) * 32**-0.5
        if shared:
            scores = scores * own[3][:, None, None]
        keep = torch.arange(m)[None, :] <= torch.arange(n)[:, None] + m - n
        seen = keep.any(-1, keepdim=True)
        scores = scores.masked_fill(~(keep | ~seen), -torch.inf)
        if shared:
            scores = torch.cat([scores, own[4][:, None, None].expand(-1, n, 1)], -1)
        p = scores.softmax(-1)[..., :m] * seen
        o = torch.einsum("hij,jhd->ihd", p, vs)
        parts = torch.autograd.grad(o, own, do.cpu()[places[0]].double())
        for whole, part, at in zip(gradients, parts, (*places, *(... for _ in shared))):
            whole[at] += part
    return gradients


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("spare", [0, 3])
def test_gradients(make, spare, compiled):
    arrays, sequences = training(make, spare)

    def compute(arrays, sequences):
        return jt.attention(*arrays, mask=ja.mask.causal(), **sequences)

    o = (torch.compile(compute, fullgraph=True) if compiled else compute)(arrays, sequences)
    do = make(*o.shape)
    gradients = torch.autograd.grad(o, arrays, do)
    for name, ours, right in zip("qkv", gradients, exact_gradients(do, arrays, spare), strict=True):
        assert ours.shape == right.shape and ours.dtype == torch.bfloat16
        assert (ours.cpu().double() - right).abs().max() <= 0.02 * right.abs().max(), name


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_what_requests_share(make, compiled):
    arrays, sequences = training(make, 3)
    temperatures, sinks = ((make(4).float().abs() + 0.5).requires_grad_() for _ in range(2))
    score = ja.score.text("return score * temperatures[h];", name="temperature", tensors={"temperatures": "fp32"})

    def compute(arrays, sequences, temperatures, sinks):
        return jt.attention(*arrays, mask=ja.mask.causal(), score=score, tensors={"temperatures": temperatures},
                            sinks=sinks, **sequences)

    compute = torch.compile(compute, fullgraph=True) if compiled else compute
    o = compute(arrays, sequences, temperatures, sinks)
    do = make(*o.shape)
    gradients = torch.autograd.grad(o, (*arrays, temperatures, sinks), do)
    exact = exact_gradients(do, arrays, 3, temperatures, sinks)
    for name, ours, right in zip(["q", "k", "v", "temperatures", "sinks"], gradients, exact, strict=True):
        tolerance = 0.02 if right.dim() > 1 else 0.06  # of sums of all scores, which nearly cancel
        assert (ours.cpu().double() - right).abs().max() <= tolerance * right.abs().max(), name


def test_opcheck_of_gradients(make):
    arrays, sequences = training(make, 2)
    arrays = [x.detach() for x in arrays]
    o, lse = jt.attention(*arrays, return_lse=True, **sequences)
    problem = repr((None, None, (), None))
    library.opcheck(torch.ops.jit_attention.attention_backward.default,
                    (make(*o.shape), *arrays, o, lse, [], problem, None, "BSHD"), sequences)


def test_sequences_without_gradients_are_refused(make):
    q, *others = decoding(make)[0]
    q.requires_grad_()
    with pytest.raises(ja.InvalidArgumentError, match="page_table: .*no gradients.*no_grad.*detach"):
        jt.attention(q, *others, **decoding(make)[1])
    (q, *others), sequences = dense(make)
    q.requires_grad_()
    with pytest.raises(ja.InvalidArgumentError, match="cache_leftpad: .*no gradients"):
        jt.attention(q, *others, **{name: sequences[name] for name in ("seqused_k", "cache_leftpad")})


def test_gradients_of_rows_in_use_of_dense_tensors(make):
    """Gradients equal those of varlen tensors with the same rows; 0 behind them, where q, k and v hold NaN."""
    used = dict(q=(5, 0, 30), k=(40, 7, 33), v=(40, 7, 33))
    arrays = dict(q=make(3, 30, 4, 32), k=make(3, 40, 2, 32), v=make(3, 40, 2, 24))
    for name, array in arrays.items():
        for entry, rows in zip(array, used[name]):
            entry[rows:] = torch.nan
        array.requires_grad_()
    lengths = {f"seqused_{name}": int32(used[name], arrays["q"]) for name in "qk"}
    o = jt.attention(*arrays.values(), mask=ja.mask.causal(), zero_padding=True, **lengths)
    do = make(*o.shape)
    gradients = torch.autograd.grad(o, list(arrays.values()), do)

    def packed(array, name):
        return torch.cat([entry[:rows] for entry, rows in zip(array.detach(), used[name])])

    varlen = [packed(array, name).requires_grad_() for name, array in arrays.items()]
    begins = {f"cu_seqlens_{name}": int32([sum(used[name][:i]) for i in range(4)], o) for name in "qk"}
    wanted = torch.autograd.grad(jt.attention(*varlen, mask=ja.mask.causal(), **begins), varlen, packed(do, "q"))
    for name, got, expected in zip("qkv", gradients, wanted):
        assert (packed(got, name) - expected).abs().max() <= 0.02 * expected.abs().max()
        assert not any(entry[rows:].any() for entry, rows in zip(got, used[name]))


def test_other_lengths_compile_nothing_anew(make):
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("inductor")
    mask = ja.mask.draft_tree()

    def compute(arrays, sequences, bits):
        return jt.attention(*arrays, mask=mask, return_lse=True, tensors={"draft_tree": bits}, **sequences)

    compiled = torch.compile(compute, fullgraph=True, dynamic=True, backend=counter)
    for lengths_q, lengths_k in [((1, 4, 2), (40, 9, 70)), ((3, 3, 3), (6, 80, 1)), ((8, 1, 2), (30, 30, 30))]:
        arrays, sequences = decoding(make, lengths_q, lengths_k)
        bits = torch.randint(-(2**31), 2**31, (len(arrays[0]), 1), device=arrays[0].device).to(torch.int32)
        assert_same(compiled(arrays, sequences, bits), compute(arrays, sequences, bits))
    assert counter.frame_count == 1


def test_errors_name_the_argument(make):
    arrays, sequences = decoding(make)
    with pytest.raises(ja.InvalidArgumentError, match="page_table: .*must be int32"):
        jt.attention(*arrays, **sequences | dict(page_table=sequences["page_table"].float()))


def test_scales_of_fp8_keys_count(make):
    """Caches of bytes, and of elements whose type says what they are."""
    (q, *pages), sequences = fp8_cache(make)
    stored = [one.view(torch.float8_e4m3fn) for one in pages]
    lengths = {name: sequences[name] for name in ("cu_seqlens_q", "seqused_k", "page_table")}
    exact = jt.attention(q, *((0.1 * one.float()).bfloat16() for one in stored), **lengths)
    o = jt.attention(q, *pages, **sequences)
    assert (o.float() - exact.float()).abs().max() < 0.03
    assert torch.equal(jt.attention(q, *stored, **sequences | dict(kv_dtype=None)), o)


def test_fp8_keys_have_no_gradients(make):
    arrays, sequences = fp8_cache(make)
    with pytest.raises(ja.InvalidArgumentError, match="k: is of fp8"):
        jt.attention(arrays[0].requires_grad_(), *arrays[1:], **sequences)
