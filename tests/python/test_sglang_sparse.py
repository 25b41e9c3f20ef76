"""jit_attention.sglang under models whose tokens choose latents, with stand-ins of SGLang's classes."""

import importlib.util
import types

import numpy
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention as ja  # noqa: E402
import jit_attention.sglang as plugin  # noqa: E402
import sglang_stand_ins  # noqa: E402
from exact_attention import exact_attention  # noqa: E402
from latents import rounded  # noqa: E402
from request_batches import BF16  # noqa: E402

if importlib.util.find_spec("sglang") is None:
    sglang_stand_ins.install()
from jit_attention.sglang import sparse  # noqa: E402
from sglang.srt.mem_cache import memory_pool  # noqa: E402
from sglang.srt.models.deepseek_common import attention_backend_handler, utils  # noqa: E402

has_sglang = "stand_ins" not in str(sparse.DeepseekSparseAttnBackend.__module__)
HEADS, LATENT, ROTATED, PAGE, ENTRIES = 8, 512, 64, 64, 90
SCALE = 0.07


@pytest.fixture(autouse=True)
def said(monkeypatch):
    """What the command line said; tests change it."""
    settings = types.SimpleNamespace(enable_deterministic_inference=False, speculative_algorithm=None, dcp_enabled=False)
    monkeypatch.setattr(sparse, "get_exec", lambda: types.SimpleNamespace(deterministic=settings))
    for name in ("get_spec", "get_parallel"):
        monkeypatch.setattr(sparse, name, lambda: settings)
    monkeypatch.setattr(memory_pool, "DSATokenToKVPool", Pool)
    return settings


@pytest.fixture
def device(emulated):
    if not ja.supports(None, head_dim=576, head_dim_v=512, values_in_keys=True):
        pytest.skip("latents of this size are read on sm_90a alone")
    if has_sglang:
        pytest.skip("SGLang's own base class wants an engine around it")
    return "cpu" if emulated else "cuda"


def to_torch(array, device):
    return torch.from_numpy(array.view(numpy.int16).copy()).view(torch.bfloat16).to(device)


class Pool(memory_pool.DSATokenToKVPool):
    """Slots of 16-bit latents, or of packed ones, in pages of which all that nobody owns is NaN."""

    kv_lora_rank, qk_rope_head_dim, index_kpool = LATENT, ROTATED, 1

    def __init__(self, packed=False, pages=0, device="cpu"):
        self.dsa_kv_cache_store_fp8 = packed
        self.dtype = torch.float8_e4m3fn if packed else torch.bfloat16
        size = pages * PAGE, 1, 656 if packed else LATENT + ROTATED
        self.bytes = torch.full(size, 255, dtype=torch.uint8, device=device) if packed else None
        self.buffer = self.bytes.view(self.dtype) if packed else torch.full(size, torch.nan, dtype=self.dtype, device=device)

    def get_key_buffer(self, layer_id):
        return self.buffer

    def set_mla_kv_buffer(self, layer, loc, k, k_rope):
        rows = torch.cat([k, k_rope], -1)
        if self.bytes is None:
            self.buffer[loc] = rows
            return
        numbers = rows[:, 0].view(torch.int16).cpu().numpy().view(BF16)
        codes, scales, rotated, _ = rounded("latent_656", numbers)
        parts = numpy.concatenate([codes, scales.view(numpy.uint8), rotated], 1)
        self.bytes[loc] = torch.from_numpy(parts[:, None]).to(loc.device)


def runner(pool, **changed):
    return types.SimpleNamespace(**dict(token_to_kv_pool=pool, page_size=PAGE, hisparse_coordinator=None,
                                        model_config=types.SimpleNamespace(num_attention_heads=HEADS)) | changed)


LAYER = types.SimpleNamespace(layer_id=0, tp_q_head_num=HEADS, v_head_dim=LATENT, scaling=SCALE)


@pytest.mark.parametrize("has_counts", [True, False])
@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize("packed", [False, True])
def test_chosen_slots(rng, device, packed, decode, has_counts):
    """The last two rows of q are of no request, and lists, of which the last one is empty, have none for them."""
    tokens = 5
    length = 3 * PAGE + 11
    pool = Pool(packed, 9, device)
    slots = rng.permutation(9 * PAGE)[:length]
    rows = rng.standard_normal((length, 1, LATENT + ROTATED)).astype(BF16)
    q = rng.standard_normal((tokens, HEADS, LATENT + ROTATED)).astype(BF16)
    sinks = rng.standard_normal(HEADS).astype(BF16) if decode else None
    places = numpy.full((tokens - 2, ENTRIES), -1)
    counts = [ENTRIES, 33, 0]
    for row, count in enumerate(counts):
        places[row, :count] = rng.permutation(length)[:count]
    lists = numpy.where(places < 0, -1, slots[places]).astype(numpy.int32)
    batch = types.SimpleNamespace(out_cache_loc=torch.from_numpy(slots).to(device), counts=None)
    if has_counts:  # of padded rows as many as SGLang's lengths say, none of which their lists have
        batch.counts = torch.tensor([*counts, 1, 1], dtype=torch.int32, device=device)
    backend = plugin.create(runner(pool))
    assert type(backend) is sparse.JitAttentionSparseBackend
    backend.init_forward_metadata(batch)
    forward = backend.forward_decode if decode else backend.forward_extend
    parts = [to_torch(x, device) for x in (q[..., :LATENT], q[..., LATENT:], rows[..., :LATENT], rows[..., LATENT:])]
    o = forward(parts[0].flatten(1), parts[2], parts[2], LAYER, batch, q_rope=parts[1].flatten(1), k_rope=parts[3],
                topk_indices=torch.from_numpy(lists).to(device),
                attn_sink=None if sinks is None else to_torch(sinks, device))  # fmt: skip
    assert o.shape == (tokens, HEADS, LATENT) and (o[2:] == 0).all()
    o = o.double().cpu().numpy()
    exact = rounded("latent_656", rows[:, 0])[3] if packed else rows[:, 0].astype(float)
    for row, count in enumerate(counts[:2]):
        own = exact[places[row, :count]].astype(BF16).astype(float)[None, :, None]
        keys, score = own, None
        if sinks is not None:  # a key of zeros whose score is the sink
            keys = numpy.concatenate([numpy.zeros_like(own[:, :1]), own], 1)
            score = lambda s, b, h, q, k: numpy.where(k == 0, sinks.astype(float)[h], s)  # noqa: E731
        exact_attention(q[None, row : row + 1], keys, keys[..., :LATENT], softmax_scale=SCALE, score=score).check(
            o[None, row : row + 1])


def test_short_prompts_are_sglangs(device):
    backend = plugin.create(runner(Pool()))
    backend.use_mha = True
    assert backend.forward_extend(None, None, None, LAYER, None) == "by SGLang itself"


def test_sglang_asks_by_the_name(device):
    plugin.create(runner(Pool()))
    plugin.create(runner(Pool(packed=True)))
    handlers = attention_backend_handler.AttentionBackendRegistry._handlers
    assert handlers["jit_attention"] is attention_backend_handler.handle_attention_dsa
    assert utils.FORWARD_ABSORB_CORE_ATTENTION_BACKENDS.count("jit_attention") == 1


def refused(pool=None, **changed):
    with pytest.raises(NotImplementedError) as error:
        sparse.JitAttentionSparseBackend(runner(pool or Pool(), **changed))
    return str(error.value).removeprefix("jit_attention.sglang does not serve ")


@pytest.mark.parametrize("setting, value, sentence", [
    ("enable_deterministic_inference", True, "--enable-deterministic-inference where tokens choose latents: leave it out"),
    ("speculative_algorithm", "EAGLE", "--speculative-algorithm EAGLE: leave it out"),
    ("dcp_enabled", True, "--dcp-size where tokens choose latents: leave it out")])
def test_settings_that_are_refused(device, said, setting, value, sentence):
    setattr(said, setting, value)
    assert refused().startswith(sentence)


def test_pools_and_layers_that_are_refused(device):
    pool = Pool()
    pool.index_kpool = 4
    assert refused(pool) == "index keys pooled by 4: give --attention-backend dsa"
    pool = Pool()
    pool.dtype = torch.float8_e4m3fn
    assert refused(pool).startswith("latents of torch.float8_e4m3fn without scales: leave out --dsa-prefill-backend")
    assert refused(hisparse_coordinator=object()) == "--enable-hisparse: leave it out, or give --attention-backend dsa"
    pool = Pool()
    pool.kv_lora_rank = 456
    assert refused(pool).startswith("chosen latents with head_dim_v 456, which must be a multiple of 128")
