"""Head dims above 256 against double precision: NumPy's arrays, PyTorch's, flash-attention's functions, caches."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import DTYPES, exact_attention, random_qkv
from test_backward import check, exact_gradients, random_problem

SHARE = 3  # kernels take long to compile
SIZES = [(512, 512), (264, 320), (384, 72), (64, 448)]


@pytest.mark.parametrize("head_dim, head_dim_v", SIZES)
def test_forward_and_backward(rng, place, fetch, head_dim, head_dim_v):
    problem = random_problem(rng, "bf16", seqlen_q=20, seqlen_kv=35, heads_q=4, heads_kv=2, head_dim=head_dim,
                             head_dim_v=head_dim_v)  # fmt: skip
    do, q, k, v = map(place, problem)
    mask = ja.mask.causal()
    o, lse = ja.attention(q, k, v, mask=mask, return_lse=True)
    keep = lambda b, h, i, j: j <= i + 15  # noqa: E731
    exact_attention(*problem[1:], keep=keep).check(fetch(o), fetch(lse))
    check(map(fetch, ja.attention_backward(do, q, k, v, o, lse, mask=mask)), exact_gradients(*problem, keep=keep))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tokens_over_pages(rng, place, fetch, dtype):
    lengths, page_size = [37, 5], 16
    q, k, v = random_qkv(rng, batch=2, seqlen_q=1, seqlen_kv=48, heads_q=8, heads_kv=1, head_dim=512, dtype=dtype)
    pages = [x.reshape(6, page_size, 1, 512)[[1, 3, 5, 0, 2, 4]] for x in (k, v)]
    table = numpy.array([[3, 0, 4], [1, 5, 2]], numpy.int32)
    o = ja.attention(*map(place, (q, *pages)), page_table=place(table),
                     seqused_k=place(numpy.array(lengths, numpy.int32)))  # fmt: skip
    keep = lambda b, h, i, j: j < numpy.array(lengths)[b]  # noqa: E731
    exact_attention(q, k, v, keep=keep).check(fetch(o))


def test_pytorch(make):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    from jit_attention.torch import scaled_dot_product_attention

    tensors = [make(1, heads, 24, 512).requires_grad_() for heads in (4, 2, 2)]
    exact = [x.detach().double().requires_grad_() for x in tensors]
    options = dict(is_causal=True, enable_gqa=True)
    ours = scaled_dot_product_attention(*tensors, **options)
    theirs = torch.nn.functional.scaled_dot_product_attention(*exact, **options)
    upstream = make(*ours.shape)
    ours.backward(upstream)
    theirs.backward(upstream.double())
    for own, other in zip([ours, *(x.grad for x in tensors)], [theirs, *(x.grad for x in exact)]):
        assert (own - other).abs().max() <= 0.02 * other.abs().max()


def test_flash_attention_functions(rng, place, fetch):
    from jit_attention.flash_attn import flash_attn_func

    q, k, v = random_qkv(rng, seqlen_q=9, seqlen_kv=33, heads_q=2, head_dim=512, head_dim_v=256)
    o = flash_attn_func(*map(place, (q, k, v)), causal=True)
    exact_attention(q, k, v, keep=lambda b, h, i, j: j <= i + 24).check(fetch(o))


def test_larger_ones_and_those_of_eight_bits_are_refused():
    with pytest.raises(ja.InvalidSpecError, match="head_dim = 520 must be a multiple of 8 from 8 to 512; nearest supported: 512"):
        ja.compile(ja.AttentionSpec(head_dim=520), "sm_80")
    with pytest.raises(ja.InvalidSpecError, match="from 8 to 256 with fp8 queries"):
        ja.compile(ja.AttentionSpec(dtype="fp8_e4m3", head_dim=512), "sm_80")
    assert ja.supports("sm_120", head_dim=512)
    assert ja.supports("sm_89", head_dim=512, kv_dtype="fp8_e4m3")
