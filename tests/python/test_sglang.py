"""jit_attention.sglang: with SGLang's own classes where they can be imported, else with stand-ins of them."""

import importlib.util
import pathlib
import types

import numpy
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention as ja  # noqa: E402
import jit_attention.sglang as plugin  # noqa: E402
import ml_dtypes  # noqa: E402
import sglang_stand_ins  # noqa: E402
from flash_reference import flash_exact  # noqa: E402
from stored_caches import held_nvfp4  # noqa: E402

if importlib.util.find_spec("sglang") is None:
    sglang_stand_ins.install()
import sglang  # noqa: E402
from jit_attention.sglang import backend as integration  # noqa: E402
from sglang.srt.arg_groups import choices, resolution_hooks  # noqa: E402
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS  # noqa: E402
from sglang.srt.layers.quantization import fp4_kv_cache_quant_method as quantization  # noqa: E402
from sglang.srt.layers.radix_attention import AttentionType  # noqa: E402
from sglang.srt.mem_cache import memory_pool  # noqa: E402

for _ in range(2):
    plugin.register()

BF16 = numpy.dtype(ml_dtypes.bfloat16)
HEADS, HEADS_KV, HEAD_DIM = 4, 2, 64
CONTEXT, NEW = (40, 13, 70), (1, 37, 5)


@pytest.fixture
def device(emulated):
    return "cpu" if emulated else "cuda"


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    """Options of the command line; tests change them."""
    said = types.SimpleNamespace(enable_deterministic_inference=False, speculative_algorithm=None, dcp_enabled=False)
    monkeypatch.setattr(integration, "get_exec", lambda: types.SimpleNamespace(deterministic=said))
    monkeypatch.setattr(integration, "get_spec", lambda: said)
    monkeypatch.setattr(integration, "get_parallel", lambda: said)
    return said


def to_torch(array, device):
    return torch.from_numpy(array.view(numpy.int16).copy()).view(torch.bfloat16).to(device)


class Engine:
    """A pool of slots with NaN in all that nobody owns, and requests with contexts in it."""

    def __init__(self, rng, device, page_size, dtype=torch.bfloat16, new=NEW, keep=slice(None)):
        self.device, self.new, self.context = device, new[keep], CONTEXT[keep]
        self.lengths = [c + n for c, n in zip(CONTEXT, new)][keep]
        rows = lambda count, heads: rng.standard_normal((count, heads, HEAD_DIM)).astype(BF16)  # noqa: E731
        self.q = [rows(n, HEADS) for n in new][keep]
        self.k, self.v = ([rows(c + n, HEADS_KV) for c, n in zip(CONTEXT, new)][keep] for _ in "kv")
        pages = 3 * (160 // page_size) + 1
        slots = pages * page_size
        self.slots = slots
        pool = object.__new__(memory_pool.MHATokenToKVPool)
        pool.dtype, pool.store_dtype = dtype, dtype if dtype == torch.bfloat16 else torch.uint8
        size = (slots, HEADS_KV, HEAD_DIM)
        self.buffers = [torch.full(size, torch.nan, device=device).to(dtype) for _ in "kv"]
        pool.get_key_buffer, pool.get_value_buffer = (lambda layer_id, of=of: self.buffers[of] for of in (0, 1))

        def store(layer, where, k, v, k_scale=None, v_scale=None):
            for buffer, new, scale in zip(self.buffers, (k, v), (k_scale, v_scale)):
                buffer[where.loc] = (new if scale is None else new.float() / scale).to(dtype)

        pool.set_kv_buffer = store
        order = rng.permutation(numpy.arange(1, pages))  # the first page is of padding
        most = 160 // page_size
        table = numpy.zeros((5, 160), numpy.int32)
        for b in range(len(self.lengths)):
            table[b + 1] = (order[b * most:(b + 1) * most, None] * page_size + numpy.arange(page_size)).ravel()[:160]
        self.table = torch.from_numpy(table).to(device)
        self.runner = types.SimpleNamespace(token_to_kv_pool=pool, page_size=page_size,
                                            req_to_token_pool=types.SimpleNamespace(req_to_token=self.table))

    def layer(self, **fields):
        return types.SimpleNamespace(**dict(
            layer_id=0, tp_q_head_num=HEADS, tp_k_head_num=HEADS_KV, qk_head_dim=HEAD_DIM, v_head_dim=HEAD_DIM,
            scaling=HEAD_DIM**-0.5, logit_cap=0.0, sliding_window_size=-1, is_cross_attention=False, k_scale=None,
            v_scale=None, xai_temperature_len=-1, attn_type=AttentionType.DECODER) | fields)

    def batch(self, lengths, new, decode):
        int64 = lambda values: torch.tensor(values, dtype=torch.int64, device=self.device)  # noqa: E731
        places = [(b, i) for b in range(len(lengths)) for i in range(lengths[b] - new[b], lengths[b])]
        slots = [self.table[b + 1, i].item() for b, i in places]
        mode = types.SimpleNamespace(is_decode_or_idle=lambda: decode)
        return types.SimpleNamespace(req_pool_indices=int64(range(1, len(lengths) + 1)), seq_lens=int64(lengths),
                                     extend_seq_lens=None if decode else int64(new), out_cache_loc=int64(slots),
                                     forward_mode=mode)

    def step(self, backend, layer, begins, lengths, decode, **more):
        new = [n - c for n, c in zip(lengths, begins)]
        batch = self.batch(lengths, new, decode)

        def part(rows):
            return to_torch(numpy.concatenate([x[c:n] for x, c, n in zip(rows, begins, lengths)]), self.device)

        q = [numpy.concatenate([numpy.zeros((c, HEADS, HEAD_DIM), BF16), own]) for own, c in zip(self.q, self.context)]
        backend.init_forward_metadata(batch)
        forward = backend.forward_decode if decode else backend.forward_extend
        return forward(part(q).flatten(1), part(self.k), part(self.v), layer, batch, **more)

    def run(self, layer, **more):
        backend = ATTENTION_BACKENDS["jit_attention"](self.runner)
        self.step(backend, layer, [0] * len(self.lengths), self.context, False, **more)  # prompts
        decode = all(n == 1 for n in self.new)
        return self.step(backend, layer, self.context, self.lengths, decode, **more)

    def check(self, o, **problem):
        o = o.view(-1, HEADS, HEAD_DIM).double().cpu().numpy()
        begin = 0
        for q, k, v in zip(self.q, self.k, self.v):
            flash_exact(q[None], k[None], v[None], **problem).check(o[None, begin : begin + len(q)])
            begin += len(q)


SINKS = numpy.array([0.5, -1.0, 2.0, 0.0], numpy.float32)


@pytest.mark.parametrize("new", [NEW, (1, 1, 1)])
@pytest.mark.parametrize("page_size", [1, 16])
def test_chunks_and_decoding(rng, device, page_size, new):
    engine = Engine(rng, device, page_size, new=new)
    engine.check(engine.run(engine.layer()), causal=True)


def test_windows_softcap_and_sinks(rng, device):
    engine = Engine(rng, device, 16)
    sinks = torch.tensor(SINKS, device=device).bfloat16()
    o = engine.run(engine.layer(sliding_window_size=8, logit_cap=2.0), sinks=sinks)
    engine.check(o, window_size=(8, 0), softcap=2.0, sinks=SINKS)


def test_layers_that_look_both_ways(rng, device):
    engine = Engine(rng, device, 16)
    engine.check(engine.run(engine.layer(attn_type=AttentionType.ENCODER_ONLY)), causal=False)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_caches_of_fp8(rng, device, dtype):
    engine = Engine(rng, device, 16, dtype)
    scales = [torch.tensor(scale, device=device) for scale in (0.05, 0.02)]
    o = engine.run(engine.layer(k_scale=scales[0], v_scale=scales[1]))
    fp8 = ml_dtypes.float8_e4m3fn if dtype == torch.float8_e4m3fn else ml_dtypes.float8_e5m2
    for name, scale in (("k", numpy.float32(0.05)), ("v", numpy.float32(0.02))):
        stored = [(x.astype(numpy.float32) / scale).astype(fp8) for x in getattr(engine, name)]
        setattr(engine, name, [x.astype(numpy.float64) * scale for x in stored])
    engine.check(o, causal=True)


class Nvfp4(Engine):
    """A pool of nvfp4 of a model's layers from the second on, as SGLang makes it beside this backend."""

    def __init__(self, rng, device, page_size, new=NEW, name="jit_attention", native_scale_layout=False):
        super().__init__(rng, device, page_size, new=new)
        method = quantization.NVFP4KVCacheMethod(3, device, page_size, native_scale_layout=native_scale_layout)
        method.configure_attention_backends(name, name)
        pool = self.runner.token_to_kv_pool = object.__new__(memory_pool.MHATokenToKVPool)
        vars(pool).update(method.create_buffers(self.slots, HEADS_KV, HEAD_DIM, 2, device), start_layer=1,
                          quant_method=method, dtype=torch.float4_e2m1fn_x2, layer_transfer_counter=None)
        for buffers in (pool.k_buffer, pool.v_buffer, pool.k_scale_buffer, pool.v_scale_buffer):
            for buffer in buffers or ():
                buffer.fill_(0x7F)  # scales that are NaN
        self.scales = dict(zip("kv", rng.uniform(0.1, 1, 2).astype(numpy.float32)))
        method.k_scales_gpu[2], method.v_scales_gpu[2] = (float(scale) for scale in self.scales.values())


@pytest.mark.parametrize("page_size, new", [(1, (1, 1, 1)), (16, NEW)])
def test_caches_of_nvfp4(rng, device, page_size, new):
    engine = Nvfp4(rng, device, page_size, new)
    pool = engine.runner.token_to_kv_pool
    o = engine.run(engine.layer(layer_id=2))
    table = engine.table.cpu().numpy()
    for name, scale in engine.scales.items():
        held = []
        numbers, blocks = (getattr(pool, f"{name}_{kind}")[1].cpu().numpy() for kind in ("buffer", "scale_buffer"))
        for b, rows in enumerate(getattr(engine, name)):
            slots = table[b + 1, : len(rows)]
            held.append(held_nvfp4(numbers[slots], blocks[slots], rows, numpy.full(HEADS_KV, scale)))
        setattr(engine, name, held)
    engine.check(o, causal=True)
    assert all((buffer[0] == 0x7F).all() for buffer in (pool.k_buffer, pool.v_buffer))  # of the layer before


def resolved(step, **changed):
    """What a step of SGLang's resolution does, which knows no other backends."""
    options = dict(kv_cache_dtype="nvfp4", attention_backend="jit_attention", prefill_attention_backend=None,
                   decode_attention_backend=None, prefill_kv_cache_dequant_dtype="auto", enable_unified_memory=False)

    def builtin(server_args):
        raise AssertionError("by SGLang")

    builtin.__name__ = step
    resolution_hooks.run_hook(builtin, types.SimpleNamespace(**options | changed))


STEPS = "handle_nvfp4_prefill_kv_dequant_dtype", "handle_kv4_compatibility"


@pytest.mark.parametrize("step", STEPS)
def test_nvfp4_is_allowed_beside_this_backend_alone(step):
    resolved(step)
    resolved(step, attention_backend=None, prefill_attention_backend="jit_attention", decode_attention_backend="jit_attention")
    for others in (dict(kv_cache_dtype="fp4_mx_block16"), dict(attention_backend="triton"),
                   dict(decode_attention_backend="trtllm_mha"), dict(kv_cache_dtype="auto")):
        with pytest.raises(AssertionError, match="by SGLang"):
            resolved(step, **others)


def test_what_nvfp4_is_refused_with(rng, device, settings):
    with pytest.raises(NotImplementedError, match="--prefill-kv-cache-dequant-dtype fp8_e4m3: leave it out"):
        resolved(STEPS[0], prefill_kv_cache_dequant_dtype="fp8_e4m3")
    with pytest.raises(NotImplementedError, match="nvfp4 beside --enable-unified-memory: leave that out"):
        resolved(STEPS[1], enable_unified_memory=True)
    with pytest.raises(NotImplementedError, match="order of scales that SGLang keeps for SM100: give"):
        plugin.create(Nvfp4(rng, device, 16, native_scale_layout=True).runner)
    engine = Nvfp4(rng, device, 16)
    engine.runner.token_to_kv_pool.quant_method = types.SimpleNamespace(name="fp4_mx_block16")
    with pytest.raises(NotImplementedError, match="a cache of fp4_mx_block16: give .* or nvfp4"):
        plugin.create(engine.runner)
    engine = Nvfp4(rng, device, 16)
    settings.dcp_enabled, settings.attn_dcp_size, settings.attn_dcp_rank = True, 2, 0
    with pytest.raises(NotImplementedError, match="nvfp4 that GPUs share out: give"):
        plugin.create(engine.runner)


def test_deterministic_inference_does_not_depend_on_the_batch(rng, device, settings):
    settings.enable_deterministic_inference = True
    whole, alone = Engine(rng, device, 16), Engine(rng, device, 16, keep=slice(1, 2))
    alone.q, alone.k, alone.v = whole.q[1:2], whole.k[1:2], whole.v[1:2]
    together, by_itself = (engine.run(engine.layer()) for engine in (whole, alone))
    assert torch.equal(together[1:38], by_itself)


def test_it_is_registered_once():
    assert ATTENTION_BACKENDS["jit_attention"] is plugin.create
    for names in (choices.ATTENTION_BACKEND_CHOICES, choices.DETERMINISTIC_ATTENTION_BACKEND_CHOICES,
                  choices.RADIX_SUPPORTED_DETERMINISTIC_ATTENTION_BACKEND):  # without: no prefix caching
        assert names.count("jit_attention") == 1
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    project = tomllib.loads((pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["sglang.srt.plugins"] == {"jit_attention": "jit_attention.sglang:register"}


def test_what_is_refused(rng, device, monkeypatch, settings):
    engine = Engine(rng, device, 16)
    with pytest.raises(NotImplementedError, match="cross attention: choose another"):
        engine.run(engine.layer(is_cross_attention=True))
    with pytest.raises(NotImplementedError, match="q_rope: choose another"):
        engine.run(engine.layer(), q_rope=torch.zeros(1))
    settings.speculative_algorithm = "EAGLE"
    with pytest.raises(NotImplementedError, match="--speculative-algorithm EAGLE: leave it out"):
        plugin.create(engine.runner)
    settings.speculative_algorithm = None
    pool = engine.runner.token_to_kv_pool = object.__new__(memory_pool.MLATokenToKVPool)
    pool.dtype, pool.store_dtype = torch.float8_e4m3fn, torch.uint8
    with pytest.raises(NotImplementedError, match="latents of torch.float8_e4m3fn: give --kv-cache-dtype auto"):
        plugin.create(engine.runner)
    engine.runner.token_to_kv_pool = object()
    with pytest.raises(NotImplementedError, match="keys in a object: give --disable-hybrid-swa-memory"):
        plugin.create(engine.runner)
    monkeypatch.setattr(sglang, "__version__", "0.6.0")
    with pytest.raises(ImportError, match="serves SGLang 0.5.23, and this is 0.6.0"):
        plugin.create(engine.runner)


LATENT, ROTATED, NOPE = 256, 64, 128


class Latents(Engine):
    """A pool of latents. Layers read it, but for prompts without a prefix, whose heads have keys of their own."""

    def __init__(self, rng, device, page_size, new=NEW):
        super().__init__(rng, device, page_size, new=new)
        columns = LATENT + ROTATED
        self.q = [rng.standard_normal((n, HEADS, columns)).astype(BF16) for n in new]
        self.k = [rng.standard_normal((n, 1, columns)).astype(BF16) for n in self.lengths]
        self.v = [x[..., :LATENT] for x in self.k]
        slots = len(self.buffers[0])
        self.buffer = torch.full((slots, 1, columns), torch.nan, dtype=torch.bfloat16, device=device)
        pool = self.runner.token_to_kv_pool = object.__new__(memory_pool.MLATokenToKVPool)
        pool.dtype = pool.store_dtype = torch.bfloat16
        pool.kv_cache_dim, pool.get_key_buffer = columns, lambda layer_id: self.buffer

        def store(layer, where, k, v):
            self.buffer[where.loc] = k

        pool.set_kv_buffer = store

    def layer(self, **fields):
        latent = dict(tp_k_head_num=1, tp_v_head_num=1, qk_head_dim=LATENT + ROTATED, v_head_dim=LATENT, scaling=0.07)
        return super().layer(**latent | fields)


@pytest.fixture
def reads_latents():
    if not ja.supports(None, head_dim=LATENT + ROTATED, head_dim_v=LATENT, values_in_keys=True):
        pytest.skip("latents of this size are read on sm_90a alone")


@pytest.mark.parametrize("new", [NEW, (1, 1, 1)])
@pytest.mark.parametrize("page_size", [1, 16])
def test_latents(rng, device, page_size, new, reads_latents):
    engine = Latents(rng, device, page_size, new)
    backend, layer = ATTENTION_BACKENDS["jit_attention"](engine.runner), engine.layer()
    for begins, ends in (([0] * 3, engine.context), (engine.context, engine.lengths)):
        own = [n - c for c, n in zip(begins, ends)]
        batch = engine.batch(ends, own, decode=begins[0] > 0 and new[1] == 1)
        rows = [to_torch(numpy.concatenate([x[c:n] for x, c, n in zip(engine.k, begins, ends)]), device)]
        q = engine.q if begins[0] else [numpy.zeros((n, HEADS, LATENT + ROTATED), BF16) for n in own]
        backend.init_forward_metadata(batch)
        forward = backend.forward_decode if batch.forward_mode.is_decode_or_idle() else backend.forward_extend
        o = forward(to_torch(numpy.concatenate(q), device).flatten(1), rows[0], rows[0][..., :LATENT], layer, batch)
    o = o.view(-1, HEADS, LATENT).double().cpu().numpy()
    for q, k, v in zip(engine.q, engine.k, engine.v):
        flash_exact(q[None], k[None], v[None], causal=True, softmax_scale=0.07).check(o[None, : len(q)])
        o = o[len(q) :]


def test_prompts_of_latents_have_keys_of_each_head(rng, device):
    """SGLang stores the latents itself, and gives keys and values of heads."""
    engine = Latents(rng, device, 16)
    layer = engine.layer(tp_k_head_num=HEADS, tp_v_head_num=HEADS, qk_head_dim=NOPE + ROTATED, v_head_dim=NOPE)
    rows = lambda columns: [rng.standard_normal((n, HEADS, columns)).astype(BF16) for n in engine.new]  # noqa: E731
    q, k, v = rows(NOPE + ROTATED), rows(NOPE + ROTATED), rows(NOPE)
    backend = ATTENTION_BACKENDS["jit_attention"](engine.runner)
    batch = engine.batch(engine.new, engine.new, decode=False)
    backend.init_forward_metadata(batch)
    o = backend.forward_extend(*(to_torch(numpy.concatenate(x), device).flatten(1) for x in (q, k, v)), layer, batch,
                               save_kv_cache=False)  # fmt: skip
    assert engine.buffer.isnan().all()
    o = o.view(-1, HEADS, NOPE).double().cpu().numpy()
    for own in zip(q, k, v):
        flash_exact(*(x[None] for x in own), causal=True, softmax_scale=0.07).check(o[None, : len(own[0])])
        o = o[len(own[0]) :]
