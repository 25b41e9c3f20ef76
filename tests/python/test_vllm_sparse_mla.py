"""jit_attention.vllm under models whose tokens choose latents: vLLM's own classes where it is installed, else stand-ins."""

import importlib.util
import types

import numpy
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention as ja  # noqa: E402
import jit_attention.vllm as plugin  # noqa: E402
import vllm_stand_ins  # noqa: E402
from exact_attention import exact_attention  # noqa: E402
from latents import rounded  # noqa: E402
from request_batches import BF16, int32  # noqa: E402
from seeded import some  # noqa: E402

if importlib.util.find_spec("vllm") is None:
    vllm_stand_ins.install()
from jit_attention.vllm import chosen, sparse_mla  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402
from vllm.v1.attention.backend import AttentionCGSupport, AttentionType  # noqa: E402
from vllm.v1.attention.backends import registry  # noqa: E402

has_vllm = "stand_ins" not in str(sparse_mla.SparseMLACommonImpl.__module__)
HEADS, LATENT, ROTATED, PAGE, ENTRIES = 8, 512, 64, 64, 90
SCALE = 0.07


@pytest.fixture(autouse=True)
def device(emulated):
    if not ja.supports(None, head_dim=576, head_dim_v=512, values_in_keys=True):
        pytest.skip("latents of this size are read on sm_90a alone")
    if has_vllm:
        pytest.skip("vLLM's own base class wants an engine around it")
    return "cpu" if emulated else "cuda"


def to_torch(array, device):
    return torch.from_numpy(array.view(numpy.int16).copy()).view(torch.bfloat16).to(device)


def impl_of(lists=None, **changed):
    given = dict(num_heads=HEADS, head_size=LATENT + ROTATED, scale=SCALE, num_kv_heads=1, alibi_slopes=None,
                 sliding_window=None, kv_cache_dtype="auto", logits_soft_cap=None, attn_type=AttentionType.DECODER,
                 kv_sharing_target_layer_name=None, q_lora_rank=None, kv_lora_rank=LATENT, qk_nope_head_dim=128,
                 qk_rope_head_dim=ROTATED, qk_head_dim=192, v_head_dim=128, kv_b_proj=None,
                 topk_indices_buffer=lists)  # fmt: skip
    return sparse_mla.JitAttentionSparseMLAImpl(**given | changed)


@pytest.mark.parametrize("cache_dtype, gap", some([("auto", 0), ("fp8_ds_mla", 0), ("fp8_ds_mla", 3), ("bfloat16", 2)]))
def test_latents_are_stored_and_chosen(rng, device, cache_dtype, gap):
    """Pages may lie apart, as those of several layers do."""
    lengths, new = [130, 70, 5], [1, 4, 2]
    packed = cache_dtype == "fp8_ds_mla"
    width, kind = (656, torch.uint8) if packed else (576, torch.bfloat16)
    most, pages = 3, 11
    table = int32(rng.permutation(pages)[: most * len(lengths)].reshape(len(lengths), most))
    memory = torch.full((pages, PAGE + gap, width), 255 if packed else torch.nan, dtype=kind, device=device)
    cache = memory[:, :PAGE]
    k = [rng.standard_normal((n, LATENT + ROTATED)).astype(BF16) for n in lengths]
    lists = int32(numpy.full((sum(new) + 2, ENTRIES), -1))
    for row, request in enumerate(numpy.repeat(range(len(new)), new)):
        count = min(lengths[request], ENTRIES - 10)
        lists[row, :count] = rng.permutation(lengths[request])[:count]
    lists[1, 3] = -1  # in between
    buffer = torch.from_numpy(lists).to(device)
    impl = impl_of(buffer, kv_cache_dtype=cache_dtype)
    at = [(b, i) for b in range(len(k)) for i in range(lengths[b])]
    slots = torch.tensor([int(table[b, i // PAGE]) * PAGE + i % PAGE for b, i in at] + [-1], dtype=torch.int64, device=device)
    rows = to_torch(numpy.stack([k[b][i] for b, i in at] + 3 * [numpy.full_like(k[0][0], 7)]), device)
    impl.do_kv_cache_update(rows[:, :LATENT], rows[:, None, LATENT:], cache, slots, cache_dtype, None)
    assert (memory[:, PAGE:] == 255).all() if packed else memory[:, PAGE:].isnan().all()

    q = rng.standard_normal((len(lists), HEADS, LATENT + ROTATED)).astype(BF16)
    given = to_torch(q, device)
    starts = torch.tensor([0, *numpy.cumsum(new)], dtype=torch.int32)
    common = types.SimpleNamespace(query_start_loc_cpu=starts, query_start_loc=starts.to(device), num_actual_tokens=len(q),
                                   block_table_tensor=torch.from_numpy(table).to(device))
    metadata = builder(device).build(0, common)
    o, lse = impl.forward_mqa((given[..., :LATENT], given[..., LATENT:]), cache, metadata, None)
    assert lse is None and o.shape == (len(q), HEADS, LATENT) and (o[-2:] == 0).all()
    assert torch.equal(o, impl.forward_mqa(given, cache, metadata, None)[0])
    o = o.double().cpu().numpy()
    for row, request in enumerate(numpy.repeat(range(len(new)), new)):
        exact = rounded("latent_656", k[request])[3] if packed else k[request].astype(float)
        own = exact[lists[row][lists[row] >= 0]].astype(BF16).astype(float)[:, None]
        exact_attention(q[None, row : row + 1], own[None], own[None, ..., :LATENT], softmax_scale=SCALE).check(
            o[None, row : row + 1])


def builder(device):
    config = types.SimpleNamespace(compilation_config=types.SimpleNamespace(cudagraph_num_of_warmups=0))
    made = sparse_mla.JitAttentionSparseMLAMetadataBuilder(types.SimpleNamespace(block_size=PAGE), ["layer"], config, device)
    assert config.compilation_config.cudagraph_num_of_warmups == 1
    return made


def test_vllm_measures_its_memory():
    assert impl_of().do_kv_cache_update(None, None, torch.empty(0), None, "auto", None) is None


def test_custom_is_the_class_for_the_model(monkeypatch):
    plugin.register()
    model = types.SimpleNamespace(use_mla=True, hf_text_config=types.SimpleNamespace(index_topk=2048))
    monkeypatch.setattr(chosen, "get_current_vllm_config_or_none", lambda: types.SimpleNamespace(model_config=model))
    backend = registry.AttentionBackendEnum.CUSTOM.get_class()
    assert backend is sparse_mla.JitAttentionSparseMLABackend
    assert backend.get_name() == "CUSTOM" and backend.is_mla() and backend.is_sparse()
    assert backend.get_impl_cls() is sparse_mla.JitAttentionSparseMLAImpl
    assert backend.get_builder_cls().get_cudagraph_support(None, None) == AttentionCGSupport.UNIFORM_BATCH


def configuration(**changed):
    served = dict(head_size=576, dtype=torch.bfloat16, kv_cache_dtype="fp8_ds_mla", block_size=64, use_mla=True,
                  has_sink=False, use_sparse=True, use_mm_prefix=False, use_per_head_quant_scales=False,
                  device_capability=DeviceCapability(9, 0), attn_type="decoder")  # fmt: skip
    return sparse_mla.JitAttentionSparseMLABackend.validate_configuration(**served | changed)


@pytest.mark.parametrize(
    "changed, sentence",
    [
        (dict(head_size=320), "chosen latents have 576 columns"),
        (dict(kv_cache_dtype="fp8_e4m3"), "give --kv-cache-dtype auto or fp8_ds_mla"),
        (dict(use_sparse=False), "non-sparse not supported: leave --attention-backend out"),
        (dict(device_capability=DeviceCapability(10, 0)), "on GPUs of 9.0"),
        (dict(kv_cache_dtype="float16"), "a cache of float16 under queries of torch.bfloat16; give auto"),
    ],
)
def test_configurations_that_are_not(changed, sentence):
    assert configuration() == configuration(kv_cache_dtype="auto") == []
    (reason,) = configuration(**changed)
    assert sentence in reason


@pytest.mark.parametrize(
    "changed, sentence",
    [
        (dict(logits_soft_cap=9.0), "does not serve logits_soft_cap beside chosen latents: choose another"),
        (dict(attn_type=AttentionType.ENCODER), "chosen latents of type"),
        (dict(head_size=520, kv_lora_rank=456), "head_dim_v 456, which must be a multiple of 128"),
    ],
)
def test_layers_that_are_refused(changed, sentence):
    with pytest.raises(NotImplementedError, match=sentence):
        impl_of(**changed)
