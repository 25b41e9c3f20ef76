"""jit_attention.sglang under MiniMax M3, whose tokens choose blocks of keys, with stand-ins of SGLang's classes."""

import importlib.util
import types

import numpy
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention.sglang as plugin  # noqa: E402
import sglang_stand_ins  # noqa: E402
from request_batches import requests  # noqa: E402
from seeded import some  # noqa: E402

if importlib.util.find_spec("sglang") is None:
    sglang_stand_ins.install()
from jit_attention.sglang import backend as dense  # noqa: E402
from jit_attention.sglang import minimax_m3  # noqa: E402
from sglang.srt.layers.attention import minimax_sparse_backend  # noqa: E402
from sglang.srt.layers.attention.minimax_sparse_ops import minimax_sparse  # noqa: E402
from sglang.srt.mem_cache import memory_pool  # noqa: E402

has_sglang = "stand_ins" not in str(minimax_m3.MiniMaxSparseAttnBackend.__module__)
pytestmark = pytest.mark.skipif(has_sglang, reason="SGLang's own base class wants an engine around it")
HEADS_KV, RATIO, HEAD_DIM, BLOCK, ENTRIES = 2, 8, 128, 128, 3


def to_torch(array, device):
    return torch.from_numpy(array.view(numpy.int16).copy()).view(torch.bfloat16).to(device)


@pytest.fixture(autouse=True)
def said(monkeypatch):
    """What the command line said; tests change it."""
    settings = types.SimpleNamespace(enable_deterministic_inference=False, speculative_algorithm=None, dcp_enabled=False)
    for module in (dense, minimax_m3):
        monkeypatch.setattr(module, "get_exec", lambda: types.SimpleNamespace(deterministic=settings))
        for name in ("get_spec", "get_parallel"):
            monkeypatch.setattr(module, name, lambda: settings)
    monkeypatch.setattr(minimax_sparse_backend, "MiniMaxSparseAttnBackend", minimax_sparse_backend.MiniMaxSparseAttnBackend)
    monkeypatch.setattr(memory_pool, "MiniMaxSparseKVPool", Pool)
    monkeypatch.setattr(minimax_m3.JitAttentionDenseBackend, "pools", (Pool,))
    return settings


class Pool(memory_pool.MiniMaxSparseKVPool):
    """Slots of one layer's keys and values, of which all that nobody owns is NaN."""

    def __init__(self, page_size=BLOCK, pages=1, dtype=torch.bfloat16, device="cpu"):
        self.dtype = self.store_dtype = dtype
        self.page_size = page_size
        size = pages * page_size, HEADS_KV, HEAD_DIM
        self.k, self.v = (torch.full(size, torch.nan, device=device).to(dtype) for _ in range(2))

    def get_key_buffer(self, layer_id):
        return self.k

    def get_value_buffer(self, layer_id):
        return self.v

    def get_kv_buffer(self, layer_id):
        return self.k, self.v

    def set_fused_kv_index_buffer(self, layer, loc, k, v, idx_k, idx_v):
        self.k[loc], self.v[loc] = k, v

    def set_kv_buffer(self, layer, where, k, v):
        self.k[where.loc], self.v[where.loc] = (x.view(-1, HEADS_KV, HEAD_DIM) for x in (k, v))


def runner(pool, slots=None, **changed):
    return types.SimpleNamespace(**dict(token_to_kv_pool=pool, page_size=pool.page_size, hisparse_coordinator=None,
                                        req_to_token_pool=types.SimpleNamespace(req_to_token=slots)) | changed)


@pytest.mark.parametrize("page_size,lengths_q", some([(128, (1, 5, 2)), (64, (1, 1, 1)), (256, (1, 5, 2)), (128, (1, 1, 1)), (64, (1, 5, 2))]))
def test_blocks_that_tokens_chose(rng, emulated, page_size, lengths_q):
    """Two more rows of a prompt are padding; one token has no block at all."""
    device = "cpu" if emulated else "cuda"
    is_decode, lengths_k, tokens = max(lengths_q) == 1, (700, 40, 300), sum(lengths_q)
    rest = 0 if is_decode else 2
    batch = requests(rng, lengths_q, lengths_k, heads_kv=HEADS_KV, ratio=RATIO, head_dim=HEAD_DIM)
    own = [-(-length // page_size) for length in lengths_k]
    order = rng.permutation(sum(own) + 3)
    slots = numpy.zeros((6, 1024), numpy.int32)
    rows = rng.permutation(6)[:3]
    for row, begin, count in zip(rows, numpy.cumsum([0, *own]), own):
        at = (order[begin : begin + count, None] * page_size + numpy.arange(page_size)).ravel()
        slots[row, : len(at)] = at[:1024]
    pool = Pool(page_size, len(order), device=device)
    new = numpy.concatenate([slots[row, m - n : m] for row, n, m in zip(rows, lengths_q, lengths_k)])
    for row, k, v, n in zip(rows, batch.k, batch.v, lengths_q):
        pool.k[slots[row, : len(k) - n]], pool.v[slots[row, : len(k) - n]] = (to_torch(x[: len(x) - n], device) for x in (k, v))
    given = runner(pool, torch.from_numpy(slots).to(device))
    full = plugin.create(given)
    sparse = minimax_sparse_backend.MiniMaxSparseAttnBackend(given)
    assert type(sparse) is minimax_m3.JitAttentionMiniMaxM3Backend and type(full) is minimax_m3.JitAttentionDenseBackend
    sparse.dense_backend = full
    lists = numpy.full((HEADS_KV, tokens, ENTRIES), -1, numpy.int32)
    for token, request in enumerate(numpy.repeat(range(3), lengths_q)):
        for head in range(HEADS_KV):
            chosen = rng.permutation(-(-lengths_k[request] // BLOCK))[: ENTRIES - 1]
            lists[head, token, : len(chosen)] = chosen
    lists[1, 2] = -1
    step = types.SimpleNamespace(
        forward_mode=types.SimpleNamespace(is_decode_or_idle=lambda: is_decode), out_cache_loc=torch.from_numpy(new).long().to(device),
        req_pool_indices=torch.from_numpy(rows).to(device), seq_lens=torch.tensor(lengths_k, device=device),
        extend_seq_lens=torch.tensor(lengths_q, dtype=torch.int32, device=device), extend_seq_lens_cpu=lengths_q)
    for one in (sparse, full):
        one.init_forward_metadata(step)
    q = rng.standard_normal((tokens + rest, HEADS_KV * RATIO, HEAD_DIM)).astype(batch.q[0].dtype)
    q[:tokens] = numpy.concatenate(batch.q)
    layer = types.SimpleNamespace(
        layer_id=0, tp_q_head_num=HEADS_KV * RATIO, tp_k_head_num=HEADS_KV, tp_v_head_num=HEADS_KV, qk_head_dim=HEAD_DIM,
        v_head_dim=HEAD_DIM, scaling=HEAD_DIM**-0.5, logit_cap=0, sliding_window_size=-1, k_scale=None, is_cross_attention=False,
        xai_temperature_len=0, attn_type=dense.AttentionType.DECODER)
    k, v = (to_torch(numpy.concatenate([x[len(x) - n :] for x, n in zip(those, lengths_q)]), device) for those in (batch.k, batch.v))
    forward = sparse.forward_decode if is_decode else sparse.forward_extend
    index, o = forward(to_torch(q, device), k, v, layer, step, idx_q=torch.from_numpy(lists).to(device), idx_k=None, idx_v=None)
    assert index is None and o.shape == (tokens + rest, HEADS_KV * RATIO * HEAD_DIM) and not o[tokens:].any()
    assert minimax_sparse.flash_prefill_with_gqa_share_sparse == minimax_sparse.flash_decode_with_gqa_share_sparse == "SGLang's own"

    def keep(request, h, i, j, seqlen_q, seqlen_k):
        first = sum(lengths_q[:request])
        chosen = (lists[:, first : first + seqlen_q, :, None] == numpy.arange(-(-seqlen_k // BLOCK))).any(2)
        return chosen[h // RATIO, i, j // BLOCK] & (j <= i + seqlen_k - seqlen_q)

    batch.check(o[:tokens].view(tokens, -1, HEAD_DIM).double().cpu().numpy(), keep=keep)
    o = full._attend(to_torch(q[:tokens], device).flatten(1), k.flatten(1), v.flatten(1), layer, step, True)  # of a dense layer
    batch.check(o.view(tokens, -1, HEAD_DIM).double().cpu().numpy(), keep=lambda request, h, i, j, n, m: j <= i + m - n)


@pytest.mark.parametrize("setting, value, sentence", [
    ("enable_deterministic_inference", True, "--enable-deterministic-inference where tokens choose blocks: leave it out"),
    ("speculative_algorithm", "EAGLE3", "--speculative-algorithm EAGLE3: leave it out"),
    ("dcp_enabled", True, "--dcp-size where tokens choose blocks: leave it out")])
def test_refused_settings(said, setting, value, sentence):
    setattr(said, setting, value)
    with pytest.raises(NotImplementedError, match=f"does not serve {sentence}"):
        minimax_m3.JitAttentionMiniMaxM3Backend(runner(Pool()))


def test_refused_pools_and_neighbors():
    for given, sentence in ((runner(Pool(dtype=torch.float8_e4m3fn)), "chosen blocks of a cache of torch.float8_e4m3fn"),
                            (runner(Pool(), hisparse_coordinator=1), "--enable-hisparse")):
        with pytest.raises(NotImplementedError, match=sentence):
            minimax_m3.JitAttentionMiniMaxM3Backend(given)
    with pytest.raises(NotImplementedError, match="blocks of keys beside int: leave out --prefill-attention-backend"):
        minimax_m3.JitAttentionMiniMaxM3Backend(runner(Pool())).dense_backend = 3
