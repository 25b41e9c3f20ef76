"""ja.sparse.nsa: its three branches and their gradients against every score in double precision."""

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from seeded import some  # noqa: E402

DEFAULTS = dict(chosen=16, block=64, stride=16, span=32, window=512, init_blocks=1, local_blocks=2)


@pytest.fixture(autouse=True)
def serves():
    if not ja.devices()[0].arch == "sm_90a":
        pytest.skip("scores of blocks are of sm_90a alone")


def attend(q, k, v, keep):
    """o of one sequence, and probabilities (heads, queries, keys); rows without keys have 0."""
    ratio = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(ratio, 1) for x in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q, k) * q.shape[-1] ** -0.5
    largest = scores.detach().amax(-1, keepdim=True) if k.shape[0] else 0
    weights = torch.where(keep, scores - largest, -torch.inf).exp()
    total = weights.sum(-1, keepdim=True)
    probabilities = weights / torch.where(total == 0, 1, total)
    return torch.einsum("hij,jhd->ihd", probabilities, v), probabilities


def exact(q, k, v, k_compressed, v_compressed, gates, *, chosen, block, stride, span, window, init_blocks, local_blocks):
    """(o, how far each query's choice is from another one) of one sequence in double precision."""
    tokens, heads_kv = q.shape[0], k.shape[1]
    i, j = torch.arange(tokens)[:, None], torch.arange(tokens)[None]
    c = torch.arange(k_compressed.shape[0])
    of_compressed, probabilities = attend(q, k_compressed, v_compressed, c * stride + span - 1 <= i)
    probabilities = probabilities.detach().unflatten(0, (heads_kv, -1)).sum(1)
    blocks = -(-tokens // block)
    scores = torch.zeros(heads_kv, tokens, blocks, dtype=torch.double)
    for key in c:
        for begin in range(key * stride, key * stride + span, stride):
            if begin // block < blocks:
                scores[..., begin // block] += probabilities[..., key]
    b, own = torch.arange(blocks), i // block
    scores = torch.where((b < init_blocks) | (b > own - local_blocks), torch.inf, scores)
    scores = torch.where(b <= own, scores, -torch.inf)
    order = scores.sort(dim=-1, descending=True, stable=True)
    count = min(chosen, blocks)
    is_chosen = torch.zeros_like(scores).scatter_(-1, order.indices[..., :count], 1).bool() & (b <= own)
    gap = torch.full((heads_kv, tokens), torch.inf, dtype=torch.double)
    if count < blocks:
        gap = (order.values[..., count - 1] - order.values[..., count]).nan_to_num(torch.inf)
    keep = is_chosen[..., j[0] // block] & (j <= i)
    of_blocks, _ = attend(q, k, v, keep.repeat_interleave(q.shape[1] // heads_kv, 0))
    of_window, _ = attend(q, k, v, (j <= i) & (j > i - window))
    return sum(gates[..., n : n + 1] * x for n, x in enumerate((of_compressed, of_blocks, of_window))), gap.amin(0)


def problem(make, lengths, heads_kv, ratio, head_dim, *, stride, span, gate_dtype=torch.float32, **_):
    """q, k, v, compressed keys and values, and gates, with the boundaries of tokens and of compressed keys."""
    rows = [max((n - span) // stride + 1, 0) for n in lengths]
    rand = lambda count, heads: make(count, heads, head_dim)  # noqa: E731
    tokens, compressed = sum(lengths), sum(rows)
    gates = make(tokens, heads_kv * ratio, 3, dtype=gate_dtype).sigmoid()
    inputs = [rand(tokens, heads_kv * ratio), *(rand(tokens, heads_kv) for _ in "kv"), *(rand(compressed, heads_kv) for _ in "kv")]
    return [*inputs, gates], [torch.tensor([0, *x], device=gates.device).cumsum(0).int() for x in (lengths, rows)]


CASES = [
    ([450], dict(chosen=4), 1, 4, 64, torch.bfloat16),
    ([130, 20, 300], dict(chosen=4, block=32, window=50), 2, 2, 64, torch.float32),
    ([330], dict(chosen=3, block=64, stride=64, span=64, local_blocks=1), 1, 16, 128, torch.bfloat16),
]


@pytest.mark.parametrize("lengths, changed, heads_kv, ratio, head_dim, gate_dtype", some(CASES))
def test_branches_and_gradients(make, lengths, changed, heads_kv, ratio, head_dim, gate_dtype):
    options = DEFAULTS | changed
    inputs, (starts, rows) = problem(make, lengths, heads_kv, ratio, head_dim, gate_dtype=gate_dtype, **options)
    inputs = [x.requires_grad_() for x in inputs]
    packed = {} if len(lengths) == 1 else dict(cu_seqlens=starts, cu_seqlens_compressed=rows, max_seqlen=max(lengths))
    o = ja.sparse.nsa(*inputs, **changed, **packed)
    wide = [x.detach().double().cpu().requires_grad_() for x in inputs]
    parts = []
    for (begin, end), (first, last) in zip(*(zip(x[:-1].tolist(), x[1:].tolist()) for x in (starts, rows))):
        own, compressed = slice(begin, end), slice(first, last)
        parts.append(exact(*(x[own] for x in wide[:3]), *(x[compressed] for x in wide[3:5]), wide[5][own], **options))
    right, gap = (torch.cat(x) for x in zip(*parts))
    is_sure = gap > 1e-4  # elsewhere the last block that is chosen may be another one
    assert is_sure.float().mean() > 0.9
    assert o.shape == right.shape and (o.detach().cpu().double() - right)[is_sure].abs().max() < 0.03
    do = torch.randn(right.shape) * is_sure[:, None, None]
    ours = torch.autograd.grad(o, inputs, do.to(o.device, o.dtype))
    for name, a, b in zip(("q", "k", "v", "k_compressed", "v_compressed", "gates"), ours,
                          torch.autograd.grad(right, wide, do.double()), strict=True):
        assert (a.double().cpu() - b).abs().max() <= 0.02 * b.abs().max() + 1e-6, name


def test_without_gradients(make):
    """Where neighbors share what they read."""
    inputs, _ = problem(make, [200], 1, 4, 64, gate_dtype=torch.bfloat16, **DEFAULTS)
    o = ja.sparse.nsa(*inputs, chosen=3)
    assert (o - ja.sparse.nsa(*(x.requires_grad_() for x in inputs), chosen=3).detach()).abs().max() < 0.02


@pytest.mark.parametrize("changed, match", [
    (dict(span=48), "span: is 48; it must be stride, 16, or twice"), (dict(block=72), "block: is 72; it must be a multiple"),
    (dict(cu_seqlens=torch.tensor([0, 200])), "cu_seqlens_compressed: is missing beside cu_seqlens"),
    (dict(cu_seqlens_compressed=torch.tensor([0, 11])), "cu_seqlens: is missing beside cu_seqlens_compressed"),
    (dict(window=0), "window: is 0; it must be at least 1"), (dict(stride=0, span=0), "stride: is 0; it must be at least 1"),
    (dict(chosen=2), "init_blocks|local_blocks")])
def test_bad_arguments(make, changed, match):
    inputs, _ = problem(make, [200], 1, 4, 64, **DEFAULTS)
    with pytest.raises(ja.Error, match=match):
        ja.sparse.nsa(*inputs, **changed)
