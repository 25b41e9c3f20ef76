"""vLLM as its tests of kernels import it: latents by jit_attention.flash_mla, caches by `append` and `attention`."""

import enum
import sys
import types

import pytest
import torch

REPOSITORY = "vllm-project/vllm"
FILES = ("tests/quantization/**/test_per_token_kv_cache.py", "tests/kernels/attention/test_flashmla.py")
#: Tests of results; others are of vLLM itself.
RESULTS = ("test_flash_mla", "test_reshape_and_cache_per_token_head", "test_per_token_head_round_trip_accuracy",
           "test_int8_per_token_head_raw_cache_matches_round_reference", "test_per_token_head_negative_slot_skipped",
           "test_triton_unified_attention_per_token_head_scale")  # fmt: skip


def left_out(item):
    return None if item.originalname in RESULTS else "of vLLM itself"


def make_smaller(item, divisor):
    if item.originalname == "test_flash_mla" and divisor > 1:
        for name in ("b", "mean_sk"):
            item.callspec.params[name] = max(1, item.callspec.params[name] // divisor)


class KVQuantMode(enum.IntEnum):
    NONE = 0
    INT8_PER_TOKEN_HEAD = 2
    FP8_PER_TOKEN_HEAD = 3
    INT4_PER_TOKEN_HEAD = 4

    @property
    def kind(self):
        return {2: "int8", 3: "fp8_e4m3", 4: "int4"}.get(self.value)


class Platform:
    device_type = "cuda"

    def __getattr__(self, name):
        if name.startswith("is_"):  # is_cpu, is_rocm, …
            return lambda: False
        raise AttributeError(name)

    def is_device_capability_family(self, number):
        return torch.cuda.get_device_capability()[0] == number // 10

    def fp8_dtype(self):
        return torch.float8_e4m3fn


def single_rht(x, inverse=False):
    """Rows times signs and a Hadamard matrix, or back but for the factor of their columns."""
    from jit_attention.vllm.rotation import Rotation

    rotation = Rotation(x.shape[-1])
    matrix = rotation._matrix(0, x)
    return torch.matmul(x, matrix.T if inverse else matrix)


def reshape_and_cache(key, value, key_cache, value_cache, k_scale_cache, v_scale_cache, slot_mapping, kv_quant_mode):
    import jit_attention as ja

    if kv_quant_mode.kind == "int4":
        key, value = single_rht(key), single_rht(value)
    ja.append(key, value, key_cache, value_cache, slot_mapping=slot_mapping, k_scale=k_scale_cache, v_scale=v_scale_cache,
              cache_dtype=kv_quant_mode.kind)  # fmt: skip


def unified_attention(q, k, v, out, cu_seqlens_q, max_seqlen_q, seqused_k, max_seqlen_k, softmax_scale, causal, window_size,
                      block_table, softcap, q_descale=None, k_descale=None, v_descale=None, kv_quant_mode=KVQuantMode.NONE,
                      k_scale_cache=None, v_scale_cache=None, **workspaces):
    import jit_attention as ja

    assert causal and tuple(window_size) == (-1, -1) and not softcap, "no test asks for more"
    scales = {}
    if kv_quant_mode.kind is not None:
        scales = dict(kv_dtype=kv_quant_mode.kind, descale_per="token", k_descale=k_scale_cache, v_descale=v_scale_cache)
    ja.attention(q, k, v, out=out, mask=ja.mask.causal(), softmax_scale=softmax_scale, cu_seqlens_q=cu_seqlens_q,
                 seqused_k=seqused_k, page_table=block_table, **scales)


def no_fp8_queries(*arguments, **options):
    pytest.skip("FP8 latents under FP8 queries are not served")


def install():
    """Puts modules of these names into sys.modules."""
    from jit_attention import flash_mla

    fp8 = torch.finfo(torch.float8_e4m3fn)
    triton = types.SimpleNamespace(cdiv=lambda a, b: -(-a // b), testing=types.SimpleNamespace(do_bench=lambda f: 1.0))
    modules = {
        "vllm.model_executor.layers.quantization.utils.quant_utils": dict(get_fp8_min_max=lambda: (fp8.min, fp8.max)),
        "vllm.platforms": dict(current_platform=Platform()),
        "vllm.triton_utils": dict(triton=triton),
        "vllm.utils.math_utils": dict(next_power_of_2=lambda n: 1 << (n - 1).bit_length()),
        "vllm.utils.torch_utils": dict(set_random_seed=torch.manual_seed),
        "vllm.v1.attention.ops.flashmla": dict(
            flash_mla_with_kvcache=flash_mla.flash_mla_with_kvcache, get_mla_metadata=flash_mla.get_mla_metadata,
            flash_mla_with_kvcache_fp8=no_fp8_queries, get_mla_metadata_dense_fp8=no_fp8_queries,
            is_flashmla_dense_supported=lambda: (True, None)),
        "vllm.v1.attention.ops.int4_per_token_head": dict(single_rht=single_rht),
        "vllm.v1.attention.ops.triton_reshape_and_cache_flash": dict(
            triton_reshape_and_cache_flash_per_token_head_quant=reshape_and_cache),
        "vllm.v1.attention.ops.triton_unified_attention": dict(unified_attention=unified_attention),
        "vllm.v1.kv_cache_interface": dict(KVQuantMode=KVQuantMode, is_quantized_kv_cache=None),
    }  # fmt: skip
    for name, contents in modules.items():
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            module = sys.modules.setdefault(".".join(parts[:count]), types.ModuleType(".".join(parts[:count])))
            module.__path__ = []
        vars(module).update(contents)
