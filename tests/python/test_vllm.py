"""jit_attention.vllm: with vLLM's own classes where it is installed, else with stand-ins of them."""

import importlib.util
import logging
import pathlib
import sys
import types

import numpy
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention as ja  # noqa: E402
import jit_attention.vllm as plugin  # noqa: E402
import ml_dtypes  # noqa: E402
import vllm_stand_ins  # noqa: E402
from flash_reference import flash_exact  # noqa: E402
from jit_attention._engines import check_version  # noqa: E402
from stored_caches import held_nvfp4  # noqa: E402

if importlib.util.find_spec("vllm") is None:
    vllm_stand_ins.install()
import vllm  # noqa: E402
import vllm.envs  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402
from vllm.v1.attention.backend import AttentionCGSupport, AttentionType, CommonAttentionMetadata  # noqa: E402
from vllm.v1.attention.backends import registry  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVQuantMode  # noqa: E402

plugin.register()
Backend = registry.AttentionBackendEnum.CUSTOM.get_class()

BF16 = numpy.dtype(ml_dtypes.bfloat16)
FP8 = {"fp8": ml_dtypes.float8_e4m3fn, "fp8_e4m3": ml_dtypes.float8_e4m3fn, "fp8_e5m2": ml_dtypes.float8_e5m2}
NEW = (1, 37, 0, 1, 5)  # tokens of each request in this step; one is padding of a graph
CONTEXT = (40, 13, 0, 0, 70)


@pytest.fixture
def device(emulated):
    return "cpu" if emulated else "cuda"


@pytest.fixture
def batch_invariant(monkeypatch):
    monkeypatch.setattr(vllm.envs, "VLLM_BATCH_INVARIANT", True, raising=False)


def to_torch(array, device):
    if array.dtype == BF16:
        return torch.from_numpy(array.view(numpy.int16).copy()).view(torch.bfloat16).to(device)
    return torch.from_numpy(array.copy()).to(device)


class Step:
    """Requests of random tokens, and what vLLM would hand to a layer for them."""

    def __init__(self, rng, device, new=NEW, context=CONTEXT, heads=4, heads_kv=2, head_size=64, page_size=16):
        self.new, self.context, self.device = new, context, device
        self.heads, self.heads_kv, self.head_size, self.page_size = heads, heads_kv, head_size, page_size
        self.lengths = [c + n for c, n in zip(context, new)]
        rows = lambda count, heads: rng.standard_normal((count, heads, head_size)).astype(BF16)  # noqa: E731
        self.q = [rows(n, heads) for n in new]
        self.k, self.v = ([rows(n, heads_kv) for n in self.lengths] for _ in "kv")
        most = max(1, max(-(-n // page_size) for n in self.lengths))
        self.pages = len(new) * most + 3
        self.table = rng.permutation(self.pages)[: len(new) * most].reshape(len(new), most).astype(numpy.int32)

    def cache(self, layout="NHD", dtype=torch.bfloat16, scale_bytes=0, numbers=1):
        """(pages, heads_kv, page_size, 2 · (head_size / numbers + scale_bytes)), NaN in every place: in e4m3 and e5m2,
        too. `numbers` are those of a byte."""
        heads, size = self.heads_kv, self.page_size
        order = (self.pages, size, heads) if layout == "NHD" else (self.pages, heads, size)
        row = self.head_size * dtype.itemsize // numbers
        columns = 2 * (row + scale_bytes)
        memory = torch.full((*order, columns), 0x7F, dtype=torch.uint8, device=self.device)
        memory[..., 1::2] = 0xFF
        memory.view(*order, 2, -1)[..., row:] = 0xFF  # scales
        cache = memory.view(dtype)
        return cache.transpose(1, 2) if layout == "NHD" else cache

    def slots(self, positions):
        """The tokens of (request, position), then a padding token."""
        return torch.tensor([int(self.table[b, i // self.page_size]) * self.page_size + i % self.page_size
                             for b, i in positions] + [-1], dtype=torch.int64, device=self.device)  # fmt: skip

    def store(self, impl, layer, cache):
        """Contexts, then the new tokens, each by a call of its own."""
        for begins, ends in ((0 * numpy.array(self.context), self.context), (self.context, self.lengths)):
            positions = [(b, i) for b in range(len(self.new)) for i in range(begins[b], ends[b])]
            key, value = (
                to_torch(numpy.stack([x[b][i] for b, i in positions] + 3 * [numpy.full_like(x[0][0], 7)]), self.device)
                for x in (self.k, self.v)
            )  # rows behind those that have a slot
            impl.do_kv_cache_update(layer, key, value, cache, self.slots(positions))

    def metadata(self, causal=True, padding=2):
        ends = numpy.concatenate([[0], numpy.cumsum(self.new)]).astype(numpy.int32)
        most = self.table.shape[1]
        table = numpy.where(numpy.arange(most) * self.page_size < numpy.array(self.lengths)[:, None], self.table, 0)
        starts = to_torch(ends, self.device)
        return CommonAttentionMetadata(
            query_start_loc=starts, query_start_loc_cpu=starts.cpu(), num_reqs=len(self.new),
            seq_lens=to_torch(numpy.array(self.lengths, numpy.int32), self.device),
            num_actual_tokens=int(ends[-1]) + padding, max_query_len=max(self.new), max_seq_len=4096,
            block_table_tensor=to_torch(table, self.device),
            slot_mapping=torch.zeros(0, dtype=torch.int64, device=self.device), causal=causal,
        )  # fmt: skip

    def run(self, impl, layer, cache, causal=True):
        """(tokens, heads, head_size), and the rows behind them."""
        common = self.metadata(causal)
        metadata = builder(self.device).build(0, common)
        tokens = common.num_actual_tokens
        queries = numpy.full((tokens, self.heads, self.head_size), numpy.nan, BF16)
        queries[: tokens - 2] = numpy.concatenate(self.q)
        shape = tokens + 1, self.heads, self.head_size
        output = torch.full(shape, torch.nan, dtype=torch.bfloat16, device=self.device)
        assert impl.forward(layer, to_torch(queries, self.device), None, None, cache, metadata, output) is output
        assert (output[tokens - 2 : tokens] == 0).all() and output[tokens:].isnan().all()
        return output[: tokens - 2]

    def check(self, o, **problem):
        o = o.double().cpu().numpy()
        begin = 0
        for b, n in enumerate(self.new):
            own = {name: value[b] if isinstance(value, list) else value for name, value in problem.items()}
            flash_exact(self.q[b][None], self.k[b][None], self.v[b][None], **own).check(o[None, begin : begin + n])
            begin += n


def builder(device):
    config = types.SimpleNamespace(compilation_config=types.SimpleNamespace(cudagraph_num_of_warmups=0))
    made = Backend.get_builder_cls()(None, ["layer"], config, torch.device(device))
    assert config.compilation_config.cudagraph_num_of_warmups == 1
    return made


def layer_of(device, k_scale=1.0, v_scale=1.0):
    scale = lambda value: torch.tensor(value, dtype=torch.float32, device=device)  # noqa: E731
    return types.SimpleNamespace(_k_scale=scale(k_scale), _v_scale=scale(v_scale))


def impl_of(step, **options):
    impl = Backend.get_impl_cls()(step.heads, step.head_size, step.head_size**-0.5, step.heads_kv, **options)
    impl.process_weights_after_loading(torch.bfloat16)
    return impl


SINKS = numpy.array([0.5, -1.0, 2.0, 0.0], numpy.float32)
SLOPES = [0.5, 0.25, 0.125, 0.0625]
PROBLEMS = {
    "plain": ({}, {}),
    "window": (dict(sliding_window=9), dict(window_size=(8, 0))),
    "softcap and ALiBi": (dict(logits_soft_cap=2.0, alibi_slopes=SLOPES), dict(softcap=2.0, alibi_slopes=SLOPES)),
    "sinks": (dict(sinks=torch.tensor(SINKS).bfloat16()), dict(sinks=SINKS)),
}


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_step_of_prefill_decoding_and_padding(rng, device, problem, layout):
    given, exact = PROBLEMS[problem]
    step = Step(rng, device)
    given = {name: value.to(device) if name == "sinks" else value for name, value in given.items()}
    impl, layer, cache = impl_of(step, **given), layer_of(device), step.cache(layout)
    step.store(impl, layer, cache)
    exact = {name: numpy.array(value) if name == "alibi_slopes" else value for name, value in exact.items()}
    step.check(step.run(impl, layer, cache), causal=True, **exact)


def test_heads_of_512(rng, device):
    step = Step(rng, device, new=(1, 5), context=(20, 13), heads=8, heads_kv=1, head_size=512)
    impl, layer, cache = impl_of(step), layer_of(device), step.cache()
    step.store(impl, layer, cache)
    step.check(step.run(impl, layer, cache), causal=True)


@pytest.mark.parametrize("causal", ["no", "by request"])
@pytest.mark.parametrize("window", [None, 9])
def test_steps_that_are_not_causal(rng, device, causal, window):
    step = Step(rng, device)
    impl, layer, cache = impl_of(step, sliding_window=window), layer_of(device), step.cache()
    step.store(impl, layer, cache)
    each = [False] * 5 if causal == "no" else [True, False, False, False, True]
    given = False if causal == "no" else torch.tensor(each, dtype=torch.int32, device=device)
    sides = (-1, -1) if window is None else (8, 8)
    step.check(step.run(impl, layer, cache, given), causal=each, window_size=sides)


@pytest.mark.parametrize("kind, stored, scales", [("fp8", torch.uint8, "tensor"), ("fp8_e5m2", torch.uint8, "heads"),
                                                  ("fp8_e4m3", torch.float8_e4m3fn, "heads")])  # fmt: skip
def test_a_cache_of_fp8(rng, device, kind, stored, scales):
    step = Step(rng, device)
    one, each = dict(k_scale=0.05, v_scale=0.02), dict(k_scale=[0.05, 0.1], v_scale=[0.02, 0.03])
    scales = one if scales == "tensor" else each
    impl, layer, cache = impl_of(step, kv_cache_dtype=kind), layer_of(device, **scales), step.cache(dtype=stored)
    step.store(impl, layer, cache)
    for name in "kv":
        scale = numpy.broadcast_to(numpy.float32(scales[f"{name}_scale"]), (2,))[:, None]
        stored = [(x.astype(numpy.float32) / scale).astype(FP8[kind]) for x in getattr(step, name)]
        setattr(step, name, [x.astype(numpy.float64) * scale for x in stored])
    step.check(step.run(impl, layer, cache), causal=True)


def test_a_layer_whose_cache_and_scales_are_replaced(rng, device):
    step = Step(rng, device)
    impl, layer = impl_of(step, kv_cache_dtype="fp8"), layer_of(device, 0.05, 0.02)
    first, second = step.cache(dtype=torch.uint8), step.cache(dtype=torch.uint8)
    step.store(impl, layer, first)
    right = step.run(impl, layer, first)
    second.copy_(first)
    first.zero_()  # keys and values of 0
    assert torch.equal(step.run(impl, layer, second), right) and not step.run(impl, layer, first).any()
    first.set_(second)  # the same object, at another place
    assert torch.equal(step.run(impl, layer, first), right)
    layer._v_scale.mul_(2)
    assert torch.equal(step.run(impl, layer, first), 2 * right)
    layer._v_scale = layer._v_scale * 2
    assert torch.equal(step.run(impl, layer, first), 4 * right)
    layer._k_scale = torch.zeros_like(layer._k_scale)  # all keys alike: other probabilities
    assert not torch.equal(step.run(impl, layer, first), 4 * right)


@pytest.mark.parametrize(
    "change, stores, reads",
    [
        (lambda cache: cache.repeat_interleave(2, -1)[..., ::2], "k_cache: has stride 2", "k: has stride 2"),
        (lambda cache: cache[..., :96], "v_cache: has head_dim_v = 32; it must be 64", None),
        (lambda cache: cache.float(), "fp32 must be one of bf16, fp16, fp8", "k: is fp32; attention takes bf16"),
    ],
)
def test_caches_that_no_kernel_reads_are_refused(rng, device, change, stores, reads):
    step = Step(rng, device)
    impl, layer, cache = impl_of(step), layer_of(device), change(step.cache())
    with pytest.raises(ja.Error, match=stores):
        step.store(impl, layer, cache)
    if reads is not None:
        with pytest.raises(ja.Error, match=reads):
            step.run(impl, layer, cache)


@pytest.mark.parametrize("layout, kind", [("NHD", "fp8"), ("HND", "fp8"), ("NHD", "int8")])
def test_a_cache_with_a_scale_for_each_token_and_head(rng, device, layout, kind):
    step = Step(rng, device)
    spec = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, head_size_v=64, dtype=torch.uint8,
                             kv_quant_mode=KVQuantMode[f"{kind.upper()}_PER_TOKEN_HEAD"])  # fmt: skip
    assert Backend.customize_spec(spec).state_content_bytes == 2 * (64 + 4)
    cache = step.cache(layout, torch.int8 if kind == "int8" else torch.uint8, scale_bytes=4)
    impl, layer = impl_of(step, kv_cache_dtype=f"{kind}_per_token_head"), layer_of(device)
    largest = 127 if kind == "int8" else 448
    rounded = (lambda x: numpy.rint(x)) if kind == "int8" else (lambda x: x.astype(FP8["fp8"]))
    step.store(impl, layer, cache)
    for name in "kv":
        rows = [x.astype(numpy.float32) for x in getattr(step, name)]
        scales = [numpy.abs(x).max(-1, keepdims=True, initial=0) / numpy.float32(largest) for x in rows]
        stored = [rounded(x / scale).astype(numpy.float64) * scale for x, scale in zip(rows, scales)]
        setattr(step, name, stored)
    step.check(step.run(impl, layer, cache), causal=True)


def numbers_of_4_bits(rows):
    """(…, columns) of rows of bytes, behind which lies their scale."""
    columns = rows.shape[-1] - 4
    bits = numpy.ascontiguousarray(rows[..., columns:]).view(numpy.int32)
    codes = numpy.stack([rows[..., :columns] & 15, rows[..., :columns] >> 4], -1).reshape(*rows.shape[:-1], 2 * columns)
    return (codes - (bits & 15).astype(float)) * (bits & -16).view(numpy.float32)


@pytest.mark.parametrize("layout, head_size", [("NHD", 64), ("HND", 96)])
def test_a_cache_of_4_bits_is_rotated(rng, device, layout, head_size, monkeypatch):
    monkeypatch.setattr(torch, "empty_like", lambda x: torch.full_like(x, torch.nan))  # rows that no request has, too
    step = Step(rng, device, head_size=head_size)
    for rows in step.k:
        rows[..., 5] *= 16  # an outlier, by which all other columns would be rounded
    spec = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=head_size, head_size_v=head_size, dtype=torch.uint8,
                             kv_quant_mode=KVQuantMode.INT4_PER_TOKEN_HEAD)  # fmt: skip
    cache = step.cache(layout, torch.uint8, scale_bytes=4, numbers=2)
    assert Backend.customize_spec(spec).state_content_bytes == cache.shape[-1]
    impl, layer = impl_of(step, kv_cache_dtype="int4_per_token_head"), layer_of(device)
    step.store(impl, layer, cache)
    o = step.run(impl, layer, cache)

    one = torch.eye(head_size, dtype=torch.float64, device=device)
    matrix, of_queries = (f(one).cpu().numpy() for f in (impl._rotation.stored, impl._rotation.of_queries))
    back = numpy.linalg.inv(matrix)
    assert numpy.array_equal(matrix @ of_queries.T, numpy.eye(head_size))
    memory = cache.cpu().numpy().reshape(*cache.shape[:3], 2, -1)
    for which, name in enumerate("kv"):
        stored = []
        for b, rows in enumerate(getattr(step, name)):
            at = numpy.arange(len(rows))
            own = numbers_of_4_bits(memory[step.table[b, at // 16], :, at % 16, which]) @ back
            stored.append(own)
            error = numpy.sqrt(numpy.mean((own - rows.astype(float)) ** 2, axis=(0, 2))) if len(rows) else 0
            # The step of 4 bits is 1/15 of a row's range; unrotated, the outlier's would be 1.5.
            assert numpy.all(error < (0.6 if name == "k" else 0.15)), error
        setattr(step, name, stored)
    begin = 0
    for b, n in enumerate(step.new):
        q = (step.q[b].astype(float) @ of_queries).astype(BF16).astype(float) @ matrix.T
        exact = flash_exact(q[None], step.k[b][None], step.v[b][None], causal=True).o[0]
        # P and the rotated o are rounded to bf16, and then o.
        error = numpy.abs(o[begin : begin + n].double().cpu().numpy() - exact)
        assert numpy.all(error <= 2**-7 * numpy.abs(exact).max(-1, keepdims=True))
        begin += n


def test_one_head_whose_stride_is_anything(rng, device):
    step = Step(rng, device, heads=3, heads_kv=1)
    impl, layer, cache = impl_of(step), layer_of(device), step.cache()
    cache = cache.as_strided(cache.shape, (cache.stride(0), 1, *cache.stride()[2:]))
    step.store(impl, layer, cache)
    step.check(step.run(impl, layer, cache), causal=True)


def test_bits_do_not_depend_on_the_batch(rng, device, batch_invariant):
    step = Step(rng, device)
    alone = Step(rng, device, new=NEW[1:2], context=CONTEXT[1:2])
    alone.q, alone.k, alone.v = step.q[1:2], step.k[1:2], step.v[1:2]
    results = []
    for each in (step, alone):
        impl, layer, cache = impl_of(each), layer_of(device), each.cache()
        each.store(impl, layer, cache)
        results.append(each.run(impl, layer, cache))
    assert torch.equal(results[0][1:38], results[1])
    step.check(results[0], causal=True)


@pytest.mark.parametrize("kind", [AttentionType.ENCODER_ONLY, AttentionType.ENCODER])
def test_encoders_have_no_cache(rng, device, kind):
    step = Step(rng, device, context=(0,) * 5)
    impl, layer = impl_of(step, attn_type=kind), layer_of(device)
    metadata = builder(device).build(0, step.metadata(padding=0))
    q, k, v = (to_torch(numpy.concatenate(x), device) for x in (step.q, step.k, step.v))
    impl.do_kv_cache_update(layer, k, v, None, None)
    step.check(impl.forward(layer, q, k, v, None, metadata, torch.full_like(q, torch.nan)), causal=False)


def test_what_is_declared():
    make = Backend.get_builder_cls()
    assert make.get_cudagraph_support(None, None) == AttentionCGSupport.ALWAYS
    assert make.supports_update_block_table and make.supports_draft_decode_metadata_update
    assert Backend.get_name() == "CUSTOM" and not Backend.forward_includes_kv_cache_update


def test_metadata_is_handed_on_and_blocks_are_replaced(rng, device):
    common = Step(rng, device).metadata()
    made = builder(device)
    metadata = made.build(0, common)
    assert metadata.query_start_loc is common.query_start_loc and metadata.seq_lens is common.seq_lens
    other = made.update_block_table(metadata, "table", "slots")
    assert (other.block_table, other.slot_mapping) == ("table", "slots") and other.seq_lens is common.seq_lens
    assert metadata.block_table is common.block_table_tensor
    assert made.update_draft_decode_metadata(metadata) is None


def pages_of_nvfp4(step, layout):
    """(pages, 2 · heads_kv, page_size, bytes) of NaN, some of which lies between pages, and its memory by pages."""
    heads, size, columns = step.heads_kv, step.page_size, step.head_size // 2 + step.head_size // 16
    memory = torch.full((step.pages, 2 * heads * size * columns + 64), 0x7F, dtype=torch.uint8, device=step.device)
    order = (2 * heads, size) if layout == "HND" else (size, 2 * heads)
    pages = memory[:, :-64].unflatten(1, (*order, columns))
    return pages if layout == "HND" else pages.transpose(1, 2), memory


@pytest.mark.parametrize("layout, head_size, scales", [("NHD", 64, "tensor"), ("HND", 96, "heads")])
def test_a_cache_of_nvfp4(rng, device, layout, head_size, scales):
    """A page has numbers of all keys, their scales, numbers of all values, and theirs."""
    step = Step(rng, device, head_size=head_size)
    spec = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=head_size, head_size_v=head_size, dtype=torch.uint8,
                             kv_quant_mode=KVQuantMode.NVFP4)  # fmt: skip
    cache, memory = pages_of_nvfp4(step, layout)
    made = Backend.customize_spec(spec)
    assert (made.num_head_slots, made.state_content_bytes) == (cache.shape[1], cache.shape[3])
    assert Backend.customize_spec(made) == made
    one, each = dict(k_scale=0.25, v_scale=0.5), dict(k_scale=[0.25, 0.1], v_scale=[0.5, 0.3])
    given = one if scales == "tensor" else each
    impl, layer = impl_of(step, kv_cache_dtype="nvfp4"), layer_of(device, **given)
    step.store(impl, layer, cache)

    heads, size, numbers, blocks = step.heads_kv, step.page_size, head_size // 2, head_size // 16
    begin, parts = 0, []
    for columns in 2 * (numbers, blocks):
        part = memory.cpu().numpy()[:, begin : begin + heads * size * columns]
        order = (heads, size) if layout == "HND" else (size, heads)
        part = part.reshape(len(memory), *order, columns)
        parts.append(part.swapaxes(1, 2) if layout == "HND" else part)
        begin += heads * size * columns
    assert (memory[:, begin:] == 0x7F).all()
    for which, name in enumerate("kv"):
        scale = numpy.broadcast_to(numpy.float32(given[f"{name}_scale"]), (heads,))
        held = []
        for b, rows in enumerate(getattr(step, name)):
            at = step.table[b, numpy.arange(len(rows)) // size], numpy.arange(len(rows)) % size
            held.append(held_nvfp4(parts[2 * which][at], parts[2 * which + 1][at], rows, scale))
        setattr(step, name, held)
    step.check(step.run(impl, layer, cache), causal=True)


def test_pages_of_nvfp4_that_are_refused(rng, device):
    step = Step(rng, device)
    impl, layer, (cache, _) = impl_of(step, kv_cache_dtype="nvfp4"), layer_of(device), pages_of_nvfp4(step, "NHD")
    with pytest.raises(ValueError, match="kv_cache: has strides .*pages of nvfp4 are dense"):
        step.store(impl, layer, cache[..., :27])
    spec = FullAttentionSpec(16, 2, 64, torch.uint8, 128, kv_quant_mode=KVQuantMode.NVFP4)
    with pytest.raises(NotImplementedError, match="keys of 64 columns and values of 128: give"):
        Backend.customize_spec(spec)


def configuration(**changed):
    served = dict(head_size=128, dtype=torch.bfloat16, kv_cache_dtype="fp8", block_size=16, use_mla=False, has_sink=True,
                  use_sparse=False, use_mm_prefix=False, use_per_head_quant_scales=True,
                  device_capability=DeviceCapability(9, 0), attn_type="decoder", has_sliding_window=True,
                  use_non_causal=True, use_batch_invariant=True, use_kv_connector=True,
                  use_adaptive_verification=True)  # fmt: skip
    return Backend.validate_configuration(**served | changed)


def test_configurations_that_are_served():
    assert configuration() == []
    for changed in (dict(kv_cache_dtype="auto"), dict(kv_cache_dtype="fp8_per_token_head"),
                    dict(kv_cache_dtype="int4_per_token_head"), dict(kv_cache_dtype="nvfp4", head_size=240),
                    dict(head_size=8, block_size=1024), dict(head_size=512), dict(attn_type="encoder_only"),
                    dict(kv_cache_dtype="bfloat16"), dict(device_capability=DeviceCapability(12, 0))):  # fmt: skip
        assert configuration(**changed) == []


@pytest.mark.parametrize(
    "changed, sentence",
    [
        (dict(head_size=576), "head_size not supported: head sizes are multiples of 8 up to 512"),
        (dict(head_size=100), "multiples of 8"),
        (dict(kv_cache_dtype="nvfp4_4over6"), "give --kv-cache-dtype auto, fp8_e4m3"),
        (dict(kv_cache_dtype="nvfp4", head_size=72), "multiples of 16, not 72"),
        (dict(kv_cache_dtype="nvfp4", head_size=512), "head sizes up to 256, not 512"),
        (dict(kv_cache_dtype="int4_per_token_head", head_size=512), "head sizes up to 256, not 512"),
        (dict(use_mla=True), "leave --attention-backend out"),
        (dict(device_capability=DeviceCapability(7, 5)), "GPUs from 8.0 on"),
        (dict(kv_cache_dtype="float16"), "a cache of float16 under queries of torch.bfloat16; give"),
    ],
)
def test_configurations_that_are_not(changed, sentence):
    (reason,) = configuration(**changed)
    assert sentence in reason


def test_what_a_layer_refuses(rng, device):
    step = Step(rng, device)
    with pytest.raises(NotImplementedError, match="chunk_lookback.*choose another"):
        impl_of(step, chunk_lookback=3)
    impl, layer = impl_of(step), layer_of(device)
    with pytest.raises(NotImplementedError, match="leave fuse_attn_quant out"):
        impl.forward(layer, None, None, None, None, None, torch.ones(1), output_scale=torch.ones(1))
    assert (impl.forward(layer, None, None, None, None, None, torch.ones(3)) == 0).all()  # vLLM measures memory


@pytest.mark.parametrize("version, is_served", [("0.33.0", True), ("0.33.1+cu130", True), ("0.34.0", False),
                                                ("0.3.3", False)])  # fmt: skip
def test_versions(version, is_served):
    if is_served:
        return check_version("vLLM", version, plugin.SERVED_VERSIONS)
    with pytest.raises(ImportError, match=f"serves vLLM 0.33, and this is {version}"):
        check_version("vLLM", version, plugin.SERVED_VERSIONS)


def test_the_entry_point_names_a_function_that_there_is():
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    project = tomllib.loads((pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (target,) = project["entry-points"]["vllm.general_plugins"].values()
    module, _, name = target.partition(":")
    assert getattr(importlib.import_module(module), name) is plugin.register


def test_another_plugin_keeps_its_place(caplog):
    custom = registry.AttentionBackendEnum.CUSTOM
    plugin.register()
    assert custom.get_class() is Backend
    try:
        registry.register_backend(custom, "theirs.Backend")
        with caplog.at_level(logging.WARNING, logger="jit_attention"):
            plugin.register()
        assert custom.get_path() == "theirs.Backend" and "VLLM_PLUGINS=jit_attention" in caplog.text
    finally:
        custom.clear_override()
        plugin.register()


@pytest.mark.skipif(not hasattr(vllm.envs, "VLLM_PLUGINS"), reason="needs vLLM itself")
def test_vllm_selects_it(monkeypatch):
    if importlib.util.find_spec("vllm._C_stable_libtorch") is None:  # an installation without its compiled parts
        monkeypatch.setitem(sys.modules, "vllm._C_stable_libtorch", types.ModuleType("vllm._C_stable_libtorch"))
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.v1.attention.selector import AttentionSelectorConfig

    class Hopper(NonNvmlCudaPlatform):
        @classmethod
        def get_device_capability(cls, device_id=0):
            return DeviceCapability(9, 0)

    wanted = AttentionSelectorConfig(head_size=128, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=None)
    custom = registry.AttentionBackendEnum.CUSTOM
    assert Hopper.get_attn_backend_cls(custom, wanted, 8).endswith("backend.JitAttentionBackend")
    with pytest.raises(ValueError, match="multiples of 8 up to 512"):
        Hopper.get_attn_backend_cls(custom, wanted._replace(head_size=520), 8)


@pytest.mark.skipif(not hasattr(vllm.envs, "VLLM_PLUGINS"), reason="needs vLLM itself")
def test_vllms_own_layer_stores_and_attends(rng, device):
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.forward_context import set_forward_context
    from vllm.model_executor.layers.attention import Attention

    step = Step(rng, device)
    config = VllmConfig(device_config=DeviceConfig(device))
    new = [(b, i) for b, length in enumerate(step.lengths) for i in range(step.context[b], length)]
    before = [(b, i) for b, length in enumerate(step.context) for i in range(length)]
    rows = lambda x, places: to_torch(numpy.stack([x[b][i] for b, i in places]), device)  # noqa: E731
    given = torch.nn.Parameter(torch.zeros(step.heads, dtype=torch.bfloat16, device=device), requires_grad=False)
    with set_current_vllm_config(config):
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            layer = Attention(step.heads, step.head_size, step.head_size**-0.5, num_kv_heads=step.heads_kv,
                              prefix="layers.0.attn", attn_backend=Backend, sinks=given)  # fmt: skip
        finally:
            torch.set_default_dtype(default)
        layer.kv_cache = step.cache()
        given.data.copy_(torch.from_numpy(SINKS))  # weights come when layers are there
        layer.process_weights_after_loading(torch.bfloat16)
        layer.impl.do_kv_cache_update(layer, rows(step.k, before), rows(step.v, before), layer.kv_cache,
                                      step.slots(before)[:-1])  # fmt: skip
        metadata = builder(device).build(0, step.metadata(padding=0))
        slots = {layer.layer_name: step.slots(new)[:-1]}
        with set_forward_context({layer.layer_name: metadata}, config, num_tokens=len(new), slot_mapping=slots):
            q = to_torch(numpy.concatenate(step.q), device)
            o = layer(q.flatten(1), rows(step.k, new).flatten(1), rows(step.v, new).flatten(1))
    step.check(o.view(-1, step.heads, step.head_size), causal=True, sinks=SINKS)
