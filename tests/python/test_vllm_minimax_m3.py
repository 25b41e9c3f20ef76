"""jit_attention.vllm under MiniMax M3, whose tokens choose blocks of keys, with stand-ins of vLLM's classes."""

import importlib.util
import types

import numpy
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import vllm_stand_ins  # noqa: E402
from request_batches import int32, requests  # noqa: E402

if importlib.util.find_spec("vllm") is None:
    vllm_stand_ins.install()
from jit_attention.vllm import chosen, minimax_m3  # noqa: E402
from jit_attention.vllm.backend import JitAttentionBackend  # noqa: E402
from vllm.models.minimax_m3.nvidia import model as vllms_model  # noqa: E402
from vllm.v1.attention.backend import CommonAttentionMetadata  # noqa: E402

has_vllm = "stand_ins" not in str(minimax_m3.MiniMaxM3SparseImpl.__module__)
pytestmark = pytest.mark.skipif(has_vllm, reason="vLLM's own base class wants an engine around it")
HEADS_KV, RATIO, HEAD_DIM, BLOCK, ENTRIES = 2, 8, 128, 128, 3


def to_torch(array, device):
    return torch.from_numpy(array.view(numpy.int16).copy()).view(torch.bfloat16).to(device)


@pytest.mark.parametrize("lengths_q", [(1, 5, 2), (2, 2, 2)])
@pytest.mark.parametrize("heads_first", [True, False])
def test_blocks_that_tokens_chose(rng, emulated, monkeypatch, lengths_q, heads_first):
    """Two more rows are of padding, two of no step, and one token has no block at all."""
    device = "cpu" if emulated else "cuda"
    lengths_k, pages, tokens = (700, 40, 300), 12, sum(lengths_q)
    batch = requests(rng, lengths_q, lengths_k, heads_kv=HEADS_KV, ratio=RATIO, head_dim=HEAD_DIM)
    table = int32(rng.permutation(pages).reshape(2, 6))
    table = numpy.concatenate([table, int32([[10_000] * 6])])
    table[2, :3], table[1, 3:] = table[1, 3:], -1  # pages that do not exist behind what each request has
    size = (pages, HEADS_KV, BLOCK, 2 * HEAD_DIM) if heads_first else (pages, BLOCK, HEADS_KV, 2 * HEAD_DIM)
    memory = torch.full(size, torch.nan, dtype=torch.bfloat16, device=device)
    cache = memory if heads_first else memory.transpose(1, 2)
    for row, (k, v) in enumerate(zip(batch.k, batch.v)):
        for begin in range(0, len(k), BLOCK):
            part = to_torch(numpy.concatenate([k, v], -1)[begin : begin + BLOCK], device)
            cache[table[row, begin // BLOCK], :, : len(part)] = part.transpose(0, 1)
    lists = numpy.full((tokens + 4, HEADS_KV, ENTRIES), -1, numpy.int32)
    owners = numpy.repeat(range(3), lengths_q)
    for token, request in enumerate(owners):
        for head in range(HEADS_KV):
            own = rng.permutation(-(-lengths_k[request] // BLOCK))[: ENTRIES - 1]
            lists[token, head, : len(own)] = own
    lists[2, 1] = -1
    starts = torch.tensor([0, *numpy.cumsum(lengths_q)], dtype=torch.int32)
    common = CommonAttentionMetadata(
        starts.to(device), starts, torch.tensor(lengths_k, dtype=torch.int32, device=device), 3, tokens + 2, max(lengths_q), 700,
        torch.from_numpy(table).to(device), None)  # fmt: skip
    backend, implementation = minimax_m3.select_main_backend_and_impl_cls(None, kv_cache_dtype="auto")
    step = backend.get_builder_cls()(None, ["layer"], None, device).build(0, common)
    impl = implementation(HEADS_KV * RATIO, HEAD_DIM, HEAD_DIM**-0.5, HEADS_KV, kv_cache_dtype="auto", topk_blocks=ENTRIES,
                          sparse_block_size=BLOCK)
    assert implementation is backend.get_impl_cls() is minimax_m3.JitAttentionMiniMaxM3Impl
    layer = types.SimpleNamespace(layer_name="layer", topk_indices_buffer=torch.from_numpy(lists).to(device))
    q = rng.standard_normal((tokens + 4, HEADS_KV * RATIO * HEAD_DIM)).astype(batch.q[0].dtype)
    q[:tokens] = numpy.concatenate(batch.q).reshape(tokens, -1)
    for steps in (None, {"layer": step}):
        output = torch.full(q.shape, torch.nan, dtype=torch.bfloat16, device=device)
        monkeypatch.setattr(minimax_m3, "get_forward_context", lambda: types.SimpleNamespace(attn_metadata=steps))
        assert impl.forward(layer, to_torch(q, device), cache, output) is output
    assert (output[tokens : tokens + 2] == 0).all() and output[tokens + 2 :].isnan().all()

    def keep(request, h, i, j, seqlen_q, seqlen_k):
        first = sum(lengths_q[:request])
        chosen = (lists[first : first + seqlen_q, :, :, None] == numpy.arange(-(-seqlen_k // BLOCK))).any(2)
        return chosen[i, h // RATIO, j // BLOCK] & (j <= i + seqlen_k - seqlen_q)

    batch.check(output[:tokens].view(tokens, -1, HEAD_DIM).double().cpu().numpy(), keep=keep)


@pytest.fixture
def model(monkeypatch):
    """vLLM asks for the backend of a dense layer of M3."""
    monkeypatch.setattr(vllms_model, "select_main_backend_and_impl_cls", vllm_stand_ins.select_main_backend_and_impl_cls)
    config = types.SimpleNamespace(use_mla=False, hf_text_config=types.SimpleNamespace(sparse_attention_config={"a": 1}))
    monkeypatch.setattr(chosen, "get_current_vllm_config_or_none", lambda: types.SimpleNamespace(model_config=config))
    return config


def test_the_model_asks_here(model, caplog):
    for _ in range(2):
        assert chosen.Backend is JitAttentionBackend
    sizes = dict(topk_blocks=16, num_kv_heads=4)
    assert vllms_model.select_main_backend_and_impl_cls(kv_cache_dtype="bfloat16", **sizes) == (
        minimax_m3.JitAttentionMiniMaxM3Backend, minimax_m3.JitAttentionMiniMaxM3Impl)
    assert not caplog.records
    assert vllms_model.select_main_backend_and_impl_cls(kv_cache_dtype="fp8", **sizes)[1] == "vLLM's own"
    assert "vLLM's own backend over a cache of fp8; --kv-cache-dtype bfloat16" in caplog.text


def test_other_models_do_not(model):
    model.hf_text_config = types.SimpleNamespace(sparse_attention_config=None)
    assert chosen.Backend is JitAttentionBackend
    assert vllms_model.select_main_backend_and_impl_cls is vllm_stand_ins.select_main_backend_and_impl_cls
