"""jit_attention.vllm under models with latent attention: vLLM's own classes where it is installed, else stand-ins."""

import importlib.util
import types

import numpy
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention as ja  # noqa: E402
import jit_attention.vllm as plugin  # noqa: E402
import ml_dtypes  # noqa: E402
import vllm_stand_ins  # noqa: E402
from flash_reference import flash_exact  # noqa: E402

if importlib.util.find_spec("vllm") is None:
    vllm_stand_ins.install()
import vllm.config  # noqa: E402
import vllm.envs  # noqa: E402
from jit_attention.vllm import chosen, mla  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402
from vllm.v1.attention.backend import AttentionCGSupport, AttentionType, CommonAttentionMetadata  # noqa: E402
from vllm.v1.attention.backends import registry  # noqa: E402

BF16 = numpy.dtype(ml_dtypes.bfloat16)
HEADS, LATENT, ROTATED, PAGE = 16, 256, 64, 64
SCALE = 0.07
NEW, CONTEXT = (1, 4, 0, 37, 1), (130, 60, 0, 0, 5)  # tokens of each request, one of which is a graph's padding


@pytest.fixture(autouse=True)
def device(emulated):
    if not ja.supports(None, head_dim=LATENT + ROTATED, head_dim_v=LATENT, values_in_keys=True):
        pytest.skip("latents of this size are read on sm_90a alone")
    return "cpu" if emulated else "cuda"


def to_torch(array, device):
    return torch.from_numpy(array.view(numpy.int16).copy()).view(torch.bfloat16).to(device)


class Step:
    """Requests of random latents, and what vLLM hands to a layer for them."""

    def __init__(self, rng, device, new=NEW, context=CONTEXT, page_size=PAGE):
        self.new, self.context, self.device, self.page_size = new, context, device, page_size
        self.lengths = [c + n for c, n in zip(context, new)]
        self.q = [rng.standard_normal((n, HEADS, LATENT + ROTATED)).astype(BF16) for n in new]
        self.k = [rng.standard_normal((n, 1, LATENT + ROTATED)).astype(BF16) for n in self.lengths]
        most = max(-(-n // page_size) for n in self.lengths)
        self.pages = len(new) * most + 2
        self.table = rng.permutation(self.pages)[: len(new) * most].reshape(len(new), most).astype(numpy.int32)
        self.cache = torch.full((self.pages, page_size, LATENT + ROTATED), torch.nan, dtype=torch.bfloat16,
                                device=device)  # fmt: skip

    def store(self, impl):
        """Contexts, then new tokens, each by a call of its own; rows behind those that have a slot, too."""
        for begins, ends in (((0,) * len(self.new), self.context), (self.context, self.lengths)):
            at = [(b, i) for b in range(len(self.new)) for i in range(begins[b], ends[b])]
            rows = to_torch(numpy.stack([self.k[b][i] for b, i in at] + 2 * [numpy.full_like(self.k[0][0], 7)]),
                            self.device)  # fmt: skip
            slots = [int(self.table[b, i // self.page_size]) * self.page_size + i % self.page_size for b, i in at]
            slots = torch.tensor([*slots, -1], dtype=torch.int64, device=self.device)
            impl.do_kv_cache_update(rows[:, 0, :LATENT], rows[..., LATENT:], self.cache, slots, "auto", None)

    def common(self, causal=True, padding=2):
        starts = torch.tensor([0, *numpy.cumsum(self.new)], dtype=torch.int32)
        int32 = lambda values: torch.tensor(values, dtype=torch.int32, device=self.device)  # noqa: E731
        return CommonAttentionMetadata(
            query_start_loc=starts.to(self.device), query_start_loc_cpu=starts, num_reqs=len(self.new),
            seq_lens=int32(self.lengths), num_actual_tokens=int(starts[-1]) + padding, max_query_len=max(self.new),
            max_seq_len=4096, block_table_tensor=int32(self.table),
            slot_mapping=torch.zeros(0, dtype=torch.int64, device=self.device), causal=causal)  # fmt: skip

    def run(self, impl, causal=True, parts=True):
        q = numpy.concatenate([*self.q, numpy.full((2, HEADS, LATENT + ROTATED), numpy.nan, BF16)])
        q = to_torch(q, self.device)
        given = (q[..., :LATENT], q[..., LATENT:]) if parts else q
        o, lse = impl.forward_mqa(given, self.cache, builder(self.device).build(0, self.common(causal)), None)
        assert lse is None and o.shape == (len(q), HEADS, LATENT) and (o[-2:] == 0).all()
        return o[:-2]

    def check(self, o, causal=True):
        o, begin = o.double().cpu().numpy(), 0
        for q, k in zip(self.q, self.k):
            flash_exact(q[None], k[None], k[None, ..., :LATENT], causal=causal, softmax_scale=SCALE).check(
                o[None, begin : begin + len(q)])
            begin += len(q)


def builder(device):
    """Without what vLLM's own class makes for prefill, which wants a whole engine."""
    made = object.__new__(mla.JitAttentionMLAMetadataBuilder)
    made.device, made.use_pcp, made.dcp_world_size, made.non_causal_multi_token_decode = device, False, 1, True
    made.model_config = types.SimpleNamespace(get_head_size=lambda: LATENT + ROTATED)
    made.metadata_cls = mla.MLACommonMetadata
    return made


def impl_of(**changed):
    given = dict(num_heads=HEADS, head_size=LATENT + ROTATED, scale=SCALE, num_kv_heads=1, alibi_slopes=None,
                 sliding_window=None, kv_cache_dtype="auto", logits_soft_cap=None, attn_type=AttentionType.DECODER,
                 kv_sharing_target_layer_name=None, q_lora_rank=None, kv_lora_rank=LATENT, qk_nope_head_dim=128,
                 qk_rope_head_dim=ROTATED, qk_head_dim=192, v_head_dim=128, kv_b_proj=None)  # fmt: skip
    if hasattr(vllm.config, "VllmConfig"):
        config = vllm.config.VllmConfig(device_config=vllm.config.DeviceConfig("cpu"))
        with vllm.config.set_current_vllm_config(config):
            return mla.JitAttentionMLAImpl(**given | changed)
    return mla.JitAttentionMLAImpl(**given | changed)


def test_a_layer_whose_cache_is_replaced(rng, device):
    step, impl = Step(rng, device), impl_of()
    step.store(impl)
    right, step.cache = step.run(impl), step.cache.clone()
    first = step.cache
    step.cache = torch.zeros_like(first)
    assert not step.run(impl).any()
    step.cache.set_(first)  # the same object, at another place
    assert torch.equal(step.run(impl), right)


@pytest.mark.parametrize("page_size", [16, 64])
def test_latents_are_stored_and_read(rng, device, page_size):
    step, impl = Step(rng, device, page_size=page_size), impl_of()
    step.store(impl)
    o = step.run(impl)
    step.check(o)
    assert torch.equal(o, step.run(impl, parts=False))


def shared_out(step, ranks, run):
    """Each rank's part of a step whose latents are sharded: a step of its own pages, and its local lengths."""
    for rank in range(ranks):
        own = object.__new__(Step)
        own.__dict__.update(step.__dict__)
        own.k = [k[(numpy.arange(len(k)) // run) % ranks == rank] for k in step.k]
        own.lengths = [len(k) for k in own.k]
        own.cache = torch.full_like(step.cache, torch.nan)
        for b, k in enumerate(own.k):
            for i, row in enumerate(k):
                own.cache[int(own.table[b, i // own.page_size]), i % own.page_size] = to_torch(row[0], own.device)
        yield own


@pytest.mark.parametrize("run, new, causal", [(1, (1, 1, 0, 1), True), (16, (3, 1, 0, 40), True), (1, (4, 2, 0, 4), True),
                                              (16, (4, 4, 0, 4), False)])  # fmt: skip
def test_latents_that_ranks_share_out(rng, device, monkeypatch, run, new, causal):
    """As vLLM merges what ranks return, against the whole in double precision."""
    whole, ranks = Step(rng, device, new, (130, 60, 0, 2)), 3
    monkeypatch.setattr(mla.JitAttentionMLAImpl, "need_to_return_lse_for_decode", True, raising=False)
    total = torch.tensor(whole.lengths, dtype=torch.int32, device=device)
    results = []
    for rank, own in enumerate(shared_out(whole, ranks, run)):
        made, common = builder(device), own.common(causal)
        made.dcp_world_size, made.dcp_rank = ranks, rank
        made._key_places = torch.tensor([[[0, rank * run, run, ranks * run]]], dtype=torch.int32, device=device)
        decode = made._build_decode(common.block_table_tensor, common.seq_lens, 4096, common.query_start_loc_cpu,
                                    common.query_start_loc, common.num_actual_tokens, max(new), total)
        q = numpy.concatenate([*whole.q, numpy.full((2, HEADS, LATENT + ROTATED), numpy.nan, BF16)])
        metadata = types.SimpleNamespace(decode=decode, causal=causal)
        o, lse = impl_of().forward_mqa(to_torch(q, device), own.cache, metadata, None)
        assert lse.shape == o.shape[:2] and (o[-2:] == 0).all() and (lse[-2:] == -torch.inf).all()
        assert not torch.isnan(o).any() and not torch.isnan(lse).any()
        results.append((o[:-2].double(), lse[:-2].double()))
    lse = torch.stack([lse for _, lse in results])
    weights = torch.softmax(lse, 0).nan_to_num()
    whole.check(sum(o * w[..., None] for (o, _), w in zip(results, weights)), causal)


def test_blocks_of_drafts_that_are_not_causal(rng, device):
    step, impl = Step(rng, device, new=(4, 4), context=(70, 3)), impl_of()
    step.store(impl)
    step.check(step.run(impl, causal=False), causal=False)


def test_bits_do_not_depend_on_the_batch(rng, device, monkeypatch):
    monkeypatch.setattr(vllm.envs, "VLLM_BATCH_INVARIANT", True, raising=False)
    whole, alone, impl = Step(rng, device), Step(rng, device, NEW[1:2], CONTEXT[1:2]), impl_of()
    alone.q, alone.k = whole.q[1:2], whole.k[1:2]
    for step in (whole, alone):
        step.store(impl)
    assert impl.split_keys == 512 and torch.equal(whole.run(impl)[1:5], alone.run(impl))


def test_metadata_is_handed_on(rng, device):
    common = Step(rng, device).common()
    metadata = builder(device).build(0, common)
    assert (metadata.num_decodes, metadata.num_prefills, metadata.num_decode_tokens) == (5, 0, 45)
    for name in ("query_start_loc", "seq_lens"):
        assert getattr(metadata.decode, name).data_ptr() == getattr(common, name).data_ptr()
    assert metadata.decode.block_table.data_ptr() == common.block_table_tensor.data_ptr()
    assert builder(device).update_draft_decode_metadata(metadata) is None


def test_vllm_measures_its_memory():
    assert impl_of().do_kv_cache_update(None, None, torch.empty(0), None, "auto", None) is None


@pytest.mark.parametrize("is_latent", [True, False])
def test_custom_is_the_class_for_the_model(monkeypatch, is_latent):
    plugin.register()
    model = types.SimpleNamespace(use_mla=is_latent, hf_text_config=types.SimpleNamespace())
    monkeypatch.setattr(chosen, "get_current_vllm_config_or_none", lambda: types.SimpleNamespace(model_config=model))
    backend = registry.AttentionBackendEnum.CUSTOM.get_class()
    assert backend.__name__ == ("JitAttentionMLABackend" if is_latent else "JitAttentionBackend")
    assert backend.get_name() == "CUSTOM" and backend.is_mla() == is_latent
    with pytest.raises(AttributeError, match="chosen has no attribute Other"):
        _ = chosen.Other


def test_what_is_declared():
    builder = mla.JitAttentionMLABackend.get_builder_cls()
    assert builder.get_cudagraph_support(None, None) == AttentionCGSupport.UNIFORM_BATCH
    assert builder.query_len_support.value == "varlen" and builder.reorder_batch_threshold == 128
    assert mla.JitAttentionMLABackend.supports_batch_invariance() and not mla.JitAttentionMLAImpl.supports_pcp
    impl = mla.JitAttentionMLAImpl
    assert impl.supports_dcp and impl.can_return_lse_for_decode and impl.lse_base_on_e
    assert impl.supports_mtp_with_cp_non_trivial_interleave_size


def configuration(**changed):
    served = dict(head_size=576, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=64, use_mla=True,
                  has_sink=False, use_sparse=False, use_mm_prefix=False, use_per_head_quant_scales=False,
                  device_capability=DeviceCapability(9, 0), attn_type="decoder", use_batch_invariant=True)  # fmt: skip
    return mla.JitAttentionMLABackend.validate_configuration(**served | changed)


def test_configurations_that_are_served():
    assert configuration() == []
    for changed in (dict(head_size=320, block_size=16), dict(kv_cache_dtype="bfloat16"), dict(use_non_causal=True)):
        assert configuration(**changed) == []


@pytest.mark.parametrize(
    "changed, sentence",
    [
        (dict(head_size=512), "320 or 576 columns; TRITON_MLA has others"),
        (dict(kv_cache_dtype="fp8_e4m3"), "give --kv-cache-dtype auto; FLASHMLA and TRITON_MLA"),
        (dict(use_mla=False), "non-MLA not supported: leave --attention-backend out"),
        (dict(device_capability=DeviceCapability(10, 0)), "on GPUs of 9.0; TRITON_MLA"),
        (dict(device_capability=DeviceCapability(8, 0)), "on GPUs of 9.0; TRITON_MLA"),
        (dict(kv_cache_dtype="float16"), "a cache of float16 under queries of torch.bfloat16; give auto"),
    ],
)
def test_configurations_that_are_not(changed, sentence):
    (reason,) = configuration(**changed)
    assert sentence in reason


@pytest.mark.parametrize(
    "changed, sentence",
    [
        (dict(sliding_window=9), "does not serve sliding_window beside latent attention: choose another"),
        (dict(attn_type=AttentionType.ENCODER), "latent attention of type"),
        (dict(head_size=520, kv_lora_rank=456), "head_dim_v 456, which must be a multiple of 128"),
    ],
)
def test_layers_that_are_refused(changed, sentence):
    with pytest.raises(NotImplementedError, match=sentence):
        impl_of(**changed)
