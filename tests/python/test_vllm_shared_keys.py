"""jit_attention.vllm where ranks share keys out (decode context parallelism), beside the whole in double precision.

Ranks are threads; vLLM's classes are stand-ins, as vLLM's own collectives need processes with GPUs."""

import copy
import types

import numpy
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import thread_group  # noqa: E402
import vllm_stand_ins  # noqa: E402
from flash_reference import flash_exact  # noqa: E402
from test_vllm import BF16, Backend, Step, layer_of, to_torch  # noqa: E402
from vllm.v1.attention import backend as interface  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec  # noqa: E402

if interface.AttentionImpl is not vllm_stand_ins.AttentionImpl:
    pytest.skip("vLLM's own groups need processes with GPUs", allow_module_level=True)

HEADS, HEADS_KV, SIZE, PAGE = 4, 1, 64, 16  # heads of each rank; their keys are those of all ranks


@pytest.fixture
def device(emulated):
    return "cpu" if emulated else "cuda"


class Ranks:
    """Requests whose keys `ranks` ranks share out, and their step."""

    def __init__(self, rng, device, ranks, run, new, context, dtype="auto"):
        self.ranks, self.interleave, self.device, self.dtype = ranks, run, device, dtype
        self.whole = Step(rng, device, new, context, heads=ranks * HEADS, heads_kv=HEADS_KV, head_size=SIZE, page_size=PAGE)
        self.layer = layer_of(device)

    def here(self, rank):
        """The positions of the rank's keys of each request."""
        return [numpy.flatnonzero(numpy.arange(n) // self.interleave % self.ranks == rank) for n in self.whole.lengths]

    def builder(self):
        config = types.SimpleNamespace(
            compilation_config=types.SimpleNamespace(cudagraph_num_of_warmups=1),
            parallel_config=types.SimpleNamespace(cp_kv_cache_interleave_size=self.interleave),
            scheduler_config=types.SimpleNamespace(max_num_seqs=8))
        spec = FullAttentionSpec(PAGE, HEADS_KV, SIZE, torch.bfloat16, SIZE)
        return Backend.get_builder_cls()(spec, ["layer"], config, torch.device(self.device))

    def serve(self, rank, options, causal):
        impl = object.__new__(Backend.get_impl_cls())
        impl.dcp_world_size = self.ranks
        sinks = options.get("sinks")
        own_heads = slice(rank * HEADS, (rank + 1) * HEADS)
        given = options | (dict(sinks=sinks[own_heads]) if sinks is not None else {})
        impl.__init__(HEADS, SIZE, SIZE**-0.5, HEADS_KV, kv_cache_dtype=self.dtype, **given)
        own = copy.copy(self.whole)
        cache = own.cache(dtype=torch.uint8 if self.dtype != "auto" else torch.bfloat16)
        places = [(b, i, int(at)) for b, here in enumerate(self.here(rank)) for i, at in enumerate(here)]
        if places:
            key, value = (to_torch(numpy.stack([x[b][at] for b, _, at in places] + [x[0][0]]), self.device)
                          for x in (own.k, own.v))
            impl.do_kv_cache_update(self.layer, key, value, cache, own.slots([(b, i) for b, i, _ in places]))
        common = own.metadata(causal)
        metadata = self.builder().build(0, common)
        tokens = common.num_actual_tokens
        q = numpy.full((tokens, HEADS, SIZE), numpy.nan, own.q[0].dtype)
        q[: tokens - 2] = numpy.concatenate(own.q)[:, own_heads]
        # Attention reads the cache alone: layers that share another one's are given keys that mean nothing.
        new_k, new_v = (torch.full((tokens, HEADS_KV, SIZE), torch.nan, dtype=torch.bfloat16, device=self.device)
                        for _ in range(2))
        output = torch.full((tokens + 1, HEADS, SIZE), torch.nan, dtype=torch.bfloat16, device=self.device)
        assert impl.forward(self.layer, to_torch(q, self.device), new_k, new_v, cache, metadata, output) is output
        assert (output[tokens - 2 : tokens] == 0).all() and output[tokens:].isnan().all()
        return output[: tokens - 2]

    def run(self, options=None, causal=True):
        """(tokens, heads of all, head_size)."""
        return torch.cat(thread_group.run(self.ranks, lambda rank: self.serve(rank, options or {}, causal)), 1)


@pytest.mark.parametrize("ranks, run, new, context", [
    (2, 1, (1, 1, 0, 1), (40, 13, 0, 2)),  # decoding, and padding of a graph
    (3, 16, (1, 4, 1), (100, 7, 0)),  # drafts, and ranks without a key
    (2, 16, (37, 1, 5), (13, 70, 0)),  # a chunk of a prompt beside decoding
])
def test_causal(rng, device, ranks, run, new, context):
    step = Ranks(rng, device, ranks, run, new, context)
    step.whole.check(step.run(), causal=True)


def test_partial_results_are_not_rounded_again(rng, device):
    """Eight ranks' addends in fp32: the error is that of rounding their partial results, and the whole, to bf16."""
    step = Ranks(rng, device, 8, 1, (1,) * 8, (100,) * 8)
    o = step.run().double().cpu().numpy()
    whole = step.whole
    exact = numpy.concatenate([flash_exact(q[None], k[None], v[None], causal=True).o[0]
                               for q, k, v in zip(whole.q, whole.k, whole.v)])
    once = numpy.abs(exact.astype(BF16).astype(float) - exact).mean()
    assert numpy.abs(o - exact).mean() < 2.2 * once  # 1.7; in bf16 2.9


@pytest.mark.parametrize("run", [1, 16])
def test_windows_softcap_and_sinks(rng, device, run):
    sinks = rng.standard_normal(2 * HEADS).astype("float32")
    step = Ranks(rng, device, 2, run, (3, 1, 20), (70, 90, 4))
    o = step.run(dict(sliding_window=24, logits_soft_cap=2.0, sinks=torch.tensor(sinks, device=device)))
    step.whole.check(o, window_size=(23, 0), softcap=2.0, sinks=sinks)


def test_steps_that_are_not_causal(rng, device):
    step = Ranks(rng, device, 2, 16, (4, 4), (50, 9))
    step.whole.check(step.run(causal=False), causal=False)
    by_request = torch.tensor([1, 0], dtype=torch.int32, device=device)
    step.whole.check(step.run(causal=by_request), causal=[True, False])


def test_prompts_without_a_context(rng, device):
    step = Ranks(rng, device, 2, 1, (37, 5), (0, 0))
    sinks = rng.standard_normal(2 * HEADS).astype("float32")
    step.whole.check(step.run(dict(sinks=torch.tensor(sinks, device=device))), causal=True, sinks=sinks)


def test_a_cache_of_fp8(rng, device):
    step = Ranks(rng, device, 2, 16, (1, 3), (40, 60), dtype="fp8_e4m3")
    import ml_dtypes

    for name in "kv":
        setattr(step.whole, name, [x.astype(ml_dtypes.float8_e4m3fn).astype(x.dtype) for x in getattr(step.whole, name)])
    step.whole.check(step.run(), causal=True)


def test_what_is_declared_and_refused():
    impl = Backend.get_impl_cls()
    assert impl.supports_dcp and impl.can_return_lse_for_decode and impl.lse_base_on_e
    assert impl.supports_mtp_with_cp_non_trivial_interleave_size
    layer = object.__new__(impl)
    layer.dcp_world_size = 2
    with pytest.raises(NotImplementedError, match="ALiBi where ranks share keys out: leave out --decode-context"):
        layer.__init__(HEADS, SIZE, 0.1, HEADS_KV, alibi_slopes=[0.5] * HEADS)
