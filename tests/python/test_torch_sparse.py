"""Gradients of jit_attention.sparse in PyTorch, against those of every score in double precision: how often a query lists a
key is added to scores as a logarithm."""

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from seeded import some  # noqa: E402


def exact(keep):
    """Attention of all scores, in double precision. `keep` may count: a key that is listed twice counts twice."""
    def compute(q, k, v):
        q, k, v = (x.double() for x in (q, k, v))
        k, v = (x.repeat_interleave(q.shape[-2] // k.shape[-2], -2) for x in (k, v))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5 + keep.double().log()
        largest = scores.amax(-1, keepdim=True).clamp(min=-1e300)
        weights = (scores - largest.detach()).exp()
        total = weights.sum(-1, keepdim=True)
        return torch.einsum("bhij,bjhd->bihd", weights / torch.where(total == 0, 1, total), v)
    return compute


def gradients_of(compute, inputs, do):
    inputs = [x.detach().requires_grad_() for x in inputs]
    o = compute(*inputs)
    return o.detach(), *torch.autograd.grad(o, inputs, do)


def assert_near(ours, right):
    for a, b in zip(ours, right, strict=True):
        assert a.shape == b.shape and not a.isnan().any()
        assert (a.double() - b).abs().max() <= 0.02 * b.abs().max() + 1e-6


@pytest.mark.parametrize("block,ratio,is_ragged", some([(64, 1, True), (64, 2, False), (128, 2, True)]))
def test_video(make, block, ratio, is_ragged):
    seqlen_q, seqlen_k = 3 * block - 9, 5 * block - 17
    q, k, v, do = make(1, seqlen_q, 2, 64), make(1, seqlen_k, 2 // ratio, 64), make(1, seqlen_k, 2 // ratio, 64), make(1, seqlen_q, 2, 64)
    lists = torch.randint(-2, 7, (1, 2, 3, 4), dtype=torch.int32, device=q.device)
    counts = torch.randint(0, 6, (1, 2, 3), dtype=torch.int32, device=q.device)
    counts[0, 0, 1] = 0
    valid = torch.randint(0, block + 1, (5,), dtype=torch.int32, device=q.device) if is_ragged else None
    listed = (torch.arange(4, device=q.device) < counts[..., None]) & (lists >= 0) & (lists < 5)
    blocks = torch.zeros(2, 3, 6, dtype=torch.bool, device=q.device).scatter_(2, torch.where(listed[0], lists[0], 5).long(), 1)[..., :5]
    keep = blocks.repeat_interleave(block, 1).repeat_interleave(block, 2)[:, :seqlen_q, :seqlen_k]
    if is_ragged:
        j = torch.arange(seqlen_k, device=q.device)
        keep = keep & (j % block < valid[j // block])

    def compute(q, k, v, **options):
        return ja.sparse.video(q, k, v, lists, counts, block=block, valid_rows=valid, **options)

    results = gradients_of(compute, (q, k, v), do)
    assert torch.equal(results[0], compute(q, k, v))
    assert_near(results, gradients_of(exact(keep[None]), (q, k, v), do.double()))
    again = [gradients_of(lambda *x: compute(*x, deterministic=True), (q, k, v), do) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*again, strict=True))
    assert_near(again[0], results)


def times_listed(indices, counts, block, keys):
    """How often each key is listed, (heads, tokens, keys)."""
    entries = torch.where(torch.arange(indices.shape[2], device=indices.device) < counts[..., None], indices, -1).long()
    at = entries[..., None] * block + torch.arange(block, device=indices.device)
    at = torch.where((entries[..., None] >= 0) & (at < keys), at, keys).flatten(2)
    zeros = torch.zeros(*indices.shape[:2], keys + 1, device=indices.device)
    return zeros.scatter_add_(2, at, torch.ones_like(at, dtype=zeros.dtype))[..., :keys].transpose(0, 1)


def random_lists(q, heads, entries, blocks):
    """Any order, some twice, some that are none; one list is empty."""
    lists = torch.randint(-2, blocks + 2, (q.shape[0], heads, entries), dtype=torch.int32, device=q.device)
    counts = torch.randint(0, entries + 3, lists.shape[:2], dtype=torch.int32, device=q.device)
    counts[1] = 0
    return lists, counts


@pytest.mark.parametrize("queries", some([1, 4]))
def test_block_top_k(make, queries):
    """Through o and LSE, eager and compiled."""
    tokens, keys, block, heads = 10, 130, 16, 2
    q, k, v, do = make(tokens, 4, 64), make(keys, heads, 64), make(keys, heads, 64), make(tokens, 4, 64)
    dlse = make(4, tokens, dtype=torch.float32) / 4
    lists, counts = random_lists(q, heads, 5, 9)
    times = times_listed(lists, counts, block, keys)
    if queries > 1:
        times = times.clamp(max=1)  # a union has each block once
    i, j = torch.arange(tokens, device=q.device)[:, None], torch.arange(keys, device=q.device)
    times = (times * (j <= i + keys - tokens)).repeat_interleave(2, 0)

    def compute(q, k, v):
        return ja.sparse.block_top_k(q, k, v, lists, counts, block=block, queries=queries, mask=ja.mask.causal(),
                                     return_lse=True)

    def right(q, k, v):
        scores = torch.einsum("ihd,jhd->hij", q, k.repeat_interleave(2, 1)) / 8 + times.double().log()
        seen = times.sum(-1, keepdim=True) > 0
        return exact(times[None])(q[None], k[None], v[None])[0], torch.where(seen, scores, 0).logsumexp(-1)

    def of(compute, *inputs):
        inputs = [x.detach().requires_grad_() for x in inputs]
        o, lse = compute(*inputs)
        seen = times.sum(-1) > 0
        return o.detach(), *torch.autograd.grad((o * do).sum() + (lse * dlse)[seen].sum(), inputs)

    results = of(compute, q, k, v)
    assert_near(results, of(right, q.double(), k.double(), v.double()))
    assert torch.equal(results[0], compute(q, k, v)[0])
    compiled = torch.compile(compute, fullgraph=True, backend="aot_eager")
    assert all(torch.equal(a, b) for a, b in zip(of(compiled, q, k, v), results, strict=True))


@pytest.mark.parametrize("has_pages", some([False, True]))
def test_dsa(make, has_pages):
    """Latents have one gradient, of keys and values; sinks have theirs."""
    if not ja.supports(None, head_dim=192, head_dim_v=128, values_in_keys=True):
        pytest.skip("latents are of sm_90a")
    tokens, rows, heads = 6, 96, 8
    q, latents, do = make(tokens, heads, 192), make(rows, 1, 192), make(tokens, heads, 128)
    sinks = make(heads, dtype=torch.float32)
    lists, counts = random_lists(q, 1, 70, rows)
    times = times_listed(lists, counts, 1, rows).repeat_interleave(heads, 0)

    def compute(q, latents, sinks):
        given = latents.view(6, 16, 1, 192) if has_pages else latents
        return ja.sparse.dsa(q, given, lists, counts, head_dim_v=128, sinks=sinks)

    def right(q, latents, sinks):
        scores = torch.einsum("ihd,jd->hij", q, latents[:, 0]) * 192**-0.5 + times.double().log()
        scores = torch.cat([scores, sinks[:, None, None].expand(-1, tokens, 1)], -1)
        return torch.einsum("hij,jd->ihd", scores.softmax(-1)[..., :-1], latents[:, 0, :128])

    results = gradients_of(compute, (q, latents, sinks), do)
    assert_near(results, gradients_of(right, (q.double(), latents.double(), sinks.double()), do.double()))
    assert torch.equal(results[0], compute(q, latents, sinks))
    assert all(torch.equal(a, b) for a, b in zip(gradients_of(compute, (q, latents, sinks), do), results, strict=True))


def test_gradients_that_are_refused(make):
    q, k = make(3, 2, 64).requires_grad_(), make(32, 1, 64)
    lists = torch.zeros(3, 1, 2, dtype=torch.int32, device=q.device)
    table, pages = torch.zeros(1, 2, dtype=torch.int32, device=q.device), k.view(2, 16, 1, 64)

    def refused(match, *given, **options):
        with pytest.raises(ja.InvalidArgumentError, match=match):
            ja.sparse.block_top_k(q, *given, lists, block=16, **options)

    used = torch.full((1,), 32, dtype=torch.int32, device=q.device)
    refused("page_table: was given with a q, k or v that requires grad", pages, pages, page_table=table, seqused_k=used)
    refused("cache_leftpad: was given with a q, k or v", k, k, cache_leftpad=used)
    refused("out: was given with a q, k or v", k, k, out=torch.empty_like(q))
    refused("return_lse: is an array", k, k, return_lse=torch.empty(2, 3, device=q.device))
    refused("return_aux: was given with a q, k or v", k, k, return_aux=("row_max",))
    weights = torch.ones(32, device=q.device, requires_grad=True)
    refused("tensors: 'weights' requires grad", k, k, tensors={"weights": weights},
            score=ja.score.text("return score + weights[k];", name="more", tensors={"weights": "fp32"}))
    with pytest.raises(ja.InvalidArgumentError, match="no gradients themselves"):
        o = ja.sparse.block_top_k(q, k, k, lists, block=16)
        (dq,) = torch.autograd.grad(o.float().square().sum(), q, create_graph=True)
        dq.sum().backward()


def test_pools_have_no_gradients(make):
    q, latents = make(2, 8, 576).requires_grad_(), make(9, 1, 576)
    pool = ja.sparse.Scope(latents, torch.zeros(2, 1, 3, dtype=torch.int32, device=q.device))
    with pytest.raises(ja.InvalidArgumentError, match="results of several pools have no gradients"):
        ja.sparse.scopes(q, pool, pool)


def test_compilers_break_where_the_operator_lacks_an_argument(make):
    q, pages = make(3, 2, 64), make(2, 16, 1, 64)
    lists = torch.tensor([[[0, -1]], [[1, 0]], [[1, 1]]], dtype=torch.int32, device=q.device)
    table = torch.tensor([[1, 0]], dtype=torch.int32, device=q.device)
    used = torch.full((1,), 30, dtype=torch.int32, device=q.device)

    def compute(q, pages):
        return ja.sparse.block_top_k(q * 2, pages, pages, lists, block=16, page_table=table, seqused_k=used)

    assert torch.equal(torch.compile(compute, backend="aot_eager")(q, pages), compute(q, pages))


def test_compilers_with_sizes_of_any_number(make):
    lists = torch.tensor([[[0, -1]], [[1, 0]], [[1, 1]]], dtype=torch.int32)

    def compute(q, k, lists):
        return ja.sparse.block_top_k(q * 2, k, k, lists, block=16)

    compiled = torch.compile(compute, backend="aot_eager", dynamic=True, fullgraph=True)
    for tokens in (3, 2):
        q, k = make(tokens, 2, 64), make(16 * tokens, 1, 64)
        own = lists[:tokens].to(q.device)
        assert torch.equal(compiled(q, k, own), compute(q, k, own))


def test_pages_that_lie_apart_are_not_copied_for_a_compiler(make):
    q, pages = make(3, 2, 64), make(4, 16, 1, 64)[::2]
    slots = torch.tensor([[[0, -1]], [[1, 0]], [[1, 1]]], dtype=torch.int32, device=q.device)

    def compute(q, pages):
        return ja.sparse.block_top_k(q * 2, pages, pages, slots, block=16)

    graphs = []
    compiled = torch.compile(compute, backend=lambda graph, _: graphs.append(graph) or graph.forward)
    assert torch.equal(compiled(q, pages), compute(q, pages))
    assert not any("flatten" in str(node.target) for graph in graphs for node in graph.graph.nodes)


def test_transforms_are_refused(make):
    q, k = make(3, 2, 64), make(32, 1, 64)
    lists = torch.zeros(3, 1, 2, dtype=torch.int32, device=q.device)
    with pytest.raises(ja.InvalidArgumentError, match="torch.vmap or a transform"):
        torch.func.grad(lambda q: ja.sparse.block_top_k(q, k, k, lists, block=16, tensors=None).float().sum())(q)


def test_indexer_loss(make):
    """A small step of training, from attention to its chosen keys to gradients, eager and compiled."""
    tokens, keys, heads, entries = 7, 90, 16, 40
    q, k, v = make(tokens, 4, 64), make(keys, 1, 64), make(keys, 1, 64)
    q_index, k_index, d_loss = make(tokens, heads, 64), make(keys, 64), make(tokens, dtype=torch.float32)
    weights = make(tokens, heads, dtype=torch.float32) / 32
    lists = torch.stack([torch.randperm(keys)[:entries] for _ in range(tokens)]).int().to(q.device)[:, None]
    lists[0, 0, 3:] = -1
    lse = ja.sparse.block_top_k(q, k, v, lists, block=1, return_lse=True)[1]

    def compute(q_index, k_index, weights):
        return ja.sparse.indexer_loss(q_index, k_index, weights, lists, ja.sparse.list_mass(q, k, lse, lists))

    def right(q_index, k_index, weights):
        rows, is_key = lists[:, 0].long().clamp(min=0), lists[:, 0] >= 0
        p = (torch.einsum("thd,tkd->thk", q.double(), k.double()[rows, 0]) / 8 - lse.T[..., None]).exp().sum(1) * is_key
        products = torch.einsum("thd,tkd->thk", q_index.double(), k_index.double()[rows]).relu()
        scores = (products * weights.double()[..., None]).sum(1).masked_fill(~is_key, -torch.inf)
        p = p / p.sum(-1, keepdim=True)
        each = torch.special.xlogy(p, p) - p * scores.log_softmax(-1).masked_fill(~is_key, 0)
        return each.sum(-1)

    inputs = q_index, k_index, weights
    results = gradients_of(compute, inputs, d_loss)
    assert_near(results, gradients_of(right, inputs, d_loss.double()))
    assert all(torch.equal(a, b) for a, b in zip(results, gradients_of(compute, inputs, d_loss), strict=True))
    compiled = torch.compile(compute, fullgraph=True, backend="aot_eager")
    assert all(torch.equal(a, b) for a, b in zip(gradients_of(compiled, inputs, d_loss), results, strict=True))
    with pytest.raises(ja.InvalidArgumentError, match="targets: requires grad"):
        ja.sparse.indexer_loss(*inputs, lists, torch.ones(lists.shape, device=q.device, requires_grad=True))
