"""jit_attention.flash_mla: what FlashMLA's functions return, against double precision over the numbers that rows stand for."""

import numpy
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention as ja  # noqa: E402
from jit_attention.flash_mla import flash_mla_sparse_fwd, flash_mla_with_kvcache, get_mla_metadata  # noqa: E402
from latents import FORMATS, head_dim, pool, put, rounded, view_of  # noqa: E402
from request_batches import int32  # noqa: E402
from seeded import some  # noqa: E402

WILD = int32([-(2**31), -123456, -1, 114514, 2**31 - 1])


@pytest.fixture(autouse=True)
def device(emulated):
    if not ja.supports(None, head_dim=576, head_dim_v=512, values_in_keys=True):
        pytest.skip("latents of this size are read on sm_90a alone")
    return "cpu" if emulated else "cuda"


def random(rng, device, *shape, dtype=torch.bfloat16):
    """Rows that lie apart, as slices of larger tensors do."""
    held = torch.full((*shape[:-1], shape[-1] + 128), torch.nan, dtype=dtype, device=device)
    held[..., : shape[-1]] = torch.from_numpy(rng.standard_normal(shape) / 4).to(device, dtype)
    return held[..., : shape[-1]]


def exact(q, keys, scale, columns=512):
    """(o, largest score, LSE) of rows q (heads, d) over keys (n, d), all in double precision."""
    if len(keys) == 0:
        return torch.zeros(len(q), columns), torch.full((len(q),), -torch.inf), torch.full((len(q),), torch.inf)
    scores = q.double().cpu() @ keys.double().cpu().T * scale
    lse = scores.logsumexp(-1)
    return (scores - lse[:, None]).exp() @ keys.double().cpu()[:, :columns], scores.max(-1).values, lse


def check(got, expected, sink=None):
    """(o, …, LSE) of rows: FlashMLA's own bounds, but for o whose sum cancels."""
    o, lse = expected[0], expected[-1]
    if sink is not None:
        o = o * torch.sigmoid(lse.nan_to_num(posinf=0) - sink.double().cpu())[:, None]
    for name, own, right, near in zip(("o", "max", "lse")[: len(got)], got, (o, *expected[1:]), (1e-3, 1e-5, 1e-5)):
        own = own.double().cpu()
        assert torch.equal(own.isinf(), right.isinf()), name
        finite = ~right.isinf()
        assert torch.equal(own[~finite], right[~finite].double()), name
        torch.testing.assert_close(own[finite], right[finite].double(), rtol=2.01 / 128 if name == "o" else 2e-5, atol=near)


def lists_of(rng, tokens, entries, rows, device):
    lists = int32(rng.integers(0, rows, (tokens, entries)))
    wild = rng.random(lists.shape) < 0.2
    lists[wild] = rng.choice(WILD, lists.shape)[wild]
    lists[rng.integers(tokens)] = -1
    return torch.from_numpy(lists).to(device)


def seen(entries, count, rows):
    own = entries[: entries.shape[0] if count is None else int(count)].cpu()
    return own[(own >= 0) & (own < rows)].long()


def sinks_of(rng, heads, device):
    sinks = torch.from_numpy(rng.standard_normal(heads).astype(numpy.float32))
    sinks[0], sinks[1] = torch.inf, -torch.inf
    return sinks.to(device)


@pytest.mark.parametrize("heads, columns", some([(64, 576), (128, 512), (3, 576)]))
@pytest.mark.parametrize("dtype", some([torch.bfloat16, torch.float16]))
@pytest.mark.parametrize("is_plain", [True, False])
def test_sparse_prefill(rng, device, heads, columns, dtype, is_plain):
    tokens, rows, entries = 4, 150, 70
    q, kv = random(rng, device, tokens, heads, columns, dtype=dtype), random(rng, device, rows, 1, columns, dtype=dtype)
    lists = lists_of(rng, tokens, entries, rows, device)
    sinks = None if is_plain else sinks_of(rng, heads, device)
    counts = None if is_plain else torch.from_numpy(int32(rng.integers(0, entries + 1, tokens))).to(device)
    out, max_logits, lse = flash_mla_sparse_fwd(q, kv, lists[:, None], 0.5, attn_sink=sinks, topk_length=counts)
    assert (out.dtype, max_logits.shape, lse.shape) == (dtype, (tokens, heads), (tokens, heads))
    assert max_logits.is_contiguous() and lse.is_contiguous()
    for i in range(tokens):
        expected = exact(q[i], kv[seen(lists[i], None if counts is None else counts[i], rows), 0], 0.5)
        check((out[i], max_logits[i], lse[i]), expected, sinks)


def cache_of(rng, name, pages, page_size, device):
    """(cache as FlashMLA has it, numbers of its rows)."""
    memory = pool(rng, name, pages, page_size)
    codes, scales, rotated, numbers = rounded(name, rng.standard_normal((pages * page_size, head_dim(name))) / 4)
    for row in range(len(codes)):
        put(name, memory, page_size, row // page_size, row % page_size, codes[row], scales[row], rotated[row])
    return view_of(torch.from_numpy(memory).to(device), name, page_size), torch.from_numpy(numbers).bfloat16()


@pytest.mark.parametrize("name", [*some(FORMATS), None])
@pytest.mark.parametrize("has_extra", [False, True])
def test_sparse_decoding(rng, device, name, has_extra):
    """8-bit caches, and 16-bit ones, which FlashMLA refuses; two of them, whose pages have sizes of their own."""
    batch, seqlen, heads = 3, 2, some([16, 64])[0]
    columns = 576 if name is None else head_dim(name)
    q = random(rng, device, batch, seqlen, heads, columns)
    scopes, arguments = [], {}
    for prefix, page_size, entries in [("", 61, 60), ("extra_", 2, 20)][: 1 + has_extra]:
        pages = -(-130 // page_size)
        if name is None:
            cache = random(rng, device, pages, page_size, 1, columns)
            numbers = cache.reshape(-1, columns).cpu()
        else:
            cache, numbers = cache_of(rng, name, pages, page_size, device)
            cache = cache.view(some([torch.uint8, torch.float8_e4m3fn])[0])
        lists = lists_of(rng, batch * seqlen, entries, len(numbers), device).view(batch, seqlen, entries)
        counts = torch.from_numpy(int32(rng.integers(0, entries + 1, batch))).to(device)
        scopes.append((numbers, lists, counts))
        arguments[f"{prefix}k_cache"], arguments[f"{prefix}topk_length"] = cache, counts
        arguments["extra_indices_in_kvcache" if prefix else "indices"] = lists
    sinks = sinks_of(rng, heads, device)
    for given in (None, sinks):
        out, lse = flash_mla_with_kvcache(
            q, arguments.pop("k_cache") if given is sinks else arguments["k_cache"], None, None, 512,
            get_mla_metadata()[0], is_fp8_kvcache=name is not None, attn_sink=given,
            **{k: v for k, v in arguments.items() if k != "k_cache"})
        assert out.shape == (batch, seqlen, heads, 512) and lse.shape == (batch, heads, seqlen)
        for b in range(batch):
            for i in range(seqlen):
                keys = [numbers[seen(lists[b, i], counts[b], len(numbers))] for numbers, lists, counts in scopes]
                o, _, right = exact(q[b, i], torch.cat(keys), columns**-0.5)
                check((out[b, i], lse[b, :, i]), (o, right), given)


@pytest.mark.parametrize("name", [None, *some(FORMATS, 3)])
def test_dense_decoding(rng, device, name):
    """Rows behind a request are no numbers, its pages behind them none; a request may have no keys."""
    batch, seqlen, heads, page_size, columns = 3, 2, some([1, 9, 64])[0], 64, 576 if name is None else head_dim(name)
    lengths = [70, 0, 64]
    q = random(rng, device, batch, seqlen, heads, columns)
    if name is None:
        cache = random(rng, device, 7, page_size, 1, columns)
        numbers = cache.reshape(7, page_size, columns).cpu().clone()
    else:
        cache, numbers = cache_of(rng, name, 7, page_size, device)
        numbers = numbers.view(7, page_size, columns)
    table = torch.from_numpy(int32(rng.permutation(7)[:6].reshape(3, 2)))
    own = [numbers[table[b].long()].reshape(-1, columns)[: lengths[b]] for b in range(batch)]
    for b, length in enumerate(lengths):
        for page in range(2):
            behind = max(0, min(page_size, length - page * page_size))
            if name is None:
                cache[table[b, page].long(), behind:] = torch.nan
        table[b, -(-length // page_size) :] = 2147480000
    for causal in (False, True):
        out, lse = flash_mla_with_kvcache(
            q, cache, table.to(device), torch.tensor(lengths, dtype=torch.int32, device=device), 512,
            *get_mla_metadata(1, 2, topk=3), causal=causal, is_fp8_kvcache=name is not None)
        for b in range(batch):
            for i in range(seqlen):
                visible = lengths[b] - (seqlen - 1 - i if causal else 0)
                o, _, right = exact(q[b, i], own[b][: max(0, visible)], columns**-0.5)
                check((out[b, i], lse[b, :, i]), (o, right))


@pytest.mark.parametrize(
    "changed, sentence",
    [
        (dict(causal=True), "causal: must be False with indices"),
        (dict(indices=None, topk_length=1), "topk_length: is given without indices"),
        (dict(indices=None), "block_table: is missing"),
        (dict(extra_k_cache=1), "extra_indices_in_kvcache: is missing beside"),
        (dict(is_fp8_kvcache=True), "k_cache: has rows of 576 elements of torch.bfloat16; .* 656, 584 or 528"),
        (dict(num_splits=4), "num_splits: must be None"),
        (dict(q=torch.zeros(1, 2, 576)), "q: has 3 dimensions"),
        (dict(indices=torch.zeros(2, 1, 4, dtype=torch.int32)), r"indices: has shape \(2, 1, 4\); it must be \(1, 1, "),
        (dict(topk_length=torch.zeros(3)), r"topk_length: has shape \(3,\)"),
        (dict(attn_sink=torch.zeros(3)), r"attn_sink: is torch.float32 \(3,\); it must be torch.float32 \(8,\)"),
    ],
)
def test_refusals(device, changed, sentence):
    given = dict(q=torch.zeros(1, 1, 8, 576).bfloat16(), k_cache=torch.zeros(2, 64, 1, 576).bfloat16(), block_table=None,
                 cache_seqlens=None, head_dim_v=512, indices=torch.zeros(1, 1, 4, dtype=torch.int32))  # fmt: skip
    with pytest.raises(ja.InvalidArgumentError, match=sentence):
        flash_mla_with_kvcache(**{name: value.to(device) if isinstance(value, torch.Tensor) else value
                                  for name, value in (given | changed).items()})


def test_gradients_are_refused(make):
    q, pages = make(1, 1, 16, 576).requires_grad_(), make(2, 64, 1, 576)
    table, lengths = torch.tensor([[1, 0]], device=q.device).int(), torch.tensor([70], device=q.device).int()
    with pytest.raises(ja.InvalidArgumentError, match="FlashMLA's functions have no gradients"):
        flash_mla_with_kvcache(q, pages, table, lengths, 512, *get_mla_metadata())
    with pytest.raises(ja.InvalidArgumentError, match="FlashMLA's functions have no gradients"):
        flash_mla_sparse_fwd(q[0], pages[0], torch.zeros(1, 1, 2, dtype=torch.int32, device=q.device), 0.1)
