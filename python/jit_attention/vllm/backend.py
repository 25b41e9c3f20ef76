"""The backend's declaration to vLLM."""

import dataclasses
from typing import ClassVar

import torch
import vllm
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backend import AttentionBackend, AttentionType, MultipleOf
from vllm.v1.kv_cache_interface import KVQuantMode

from .._engines import check_version
from . import SERVED_VERSIONS, nvfp4
from .layer import SCALE_BYTES, JitAttentionImpl
from .metadata import JitAttentionMetadataBuilder

check_version("vLLM", vllm.__version__, SERVED_VERSIONS)

#: vLLM's refusal reasons, with alternatives.
_INSTEAD = {
    "head_size not supported": "head sizes are multiples of 8 up to 512",
    "dtype not supported": "give --dtype bfloat16 or float16",
    "kv_cache_dtype not supported": "give --kv-cache-dtype auto, fp8_e4m3, fp8_e5m2, fp8_per_token_head, "
                                    "int8_per_token_head, int4_per_token_head or nvfp4",
    "block_size not supported": "give --block-size 16 or a multiple of it",
    "partial multimodal token full attention not supported": "TRITON_ATTN has it",
    "MLA not supported": "leave --attention-backend out for layers with latents in a model that vLLM lists without",
    "sparse not supported": "leave --attention-backend out for models that pick keys",
    "compute capability not supported": "GPUs from 8.0 on are served",
    "R-SWA not supported": "TRITON_ATTN has it",
    "PCP not supported": "leave out --prefill-context-parallel-size, or use FLASH_ATTN",
}


class JitAttentionBackend(AttentionBackend):
    """Paged attention of jit_attention: one call for all requests of a step, planned on the device."""

    supported_dtypes: ClassVar[list] = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes: ClassVar[list] = ["auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2",
                                                 "fp8_per_token_head", "int8_per_token_head", "int4_per_token_head",
                                                 "nvfp4"]  # fmt: skip
    forward_includes_kv_cache_update = False
    supports_kv_cache_update_bypass = True

    @staticmethod
    def get_name():
        return "CUSTOM"  # vLLM looks up its own enumeration by this name

    @staticmethod
    def get_impl_cls():
        return JitAttentionImpl

    @staticmethod
    def get_builder_cls():
        return JitAttentionMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None):
        return [MultipleOf(16)]  # any would do; layers with windows get the smallest

    @classmethod
    def customize_spec(cls, spec):
        """Adds room for scales: per token and head, inline after K and after V, or, with nvfp4, per block of columns."""
        if spec.state_content_bytes is None and spec.kv_quant_mode == KVQuantMode.NVFP4:
            if spec.head_size != spec.head_size_v:
                raise NotImplementedError(f"jit_attention.vllm does not serve nvfp4 with keys of {spec.head_size} columns and "
                                          f"values of {spec.head_size_v}: give --kv-cache-dtype fp8_e4m3")
            return dataclasses.replace(spec, num_head_slots=2 * spec.num_kv_heads,
                                       state_content_bytes=nvfp4.content_bytes(spec.head_size))
        numbers = {KVQuantMode.FP8_PER_TOKEN_HEAD: 1, KVQuantMode.INT8_PER_TOKEN_HEAD: 1,
                   KVQuantMode.INT4_PER_TOKEN_HEAD: 2}.get(spec.kv_quant_mode)  # in a byte
        if spec.state_content_bytes is not None or numbers is None:
            return spec
        columns = spec.head_size // numbers + spec.head_size_v // numbers
        return dataclasses.replace(spec, state_content_bytes=columns + 2 * SCALE_BYTES)

    @classmethod
    def supports_head_size(cls, head_size):
        return head_size % 8 == 0 and 8 <= head_size <= 512

    @classmethod
    def supports_compute_capability(cls, capability):
        return capability >= DeviceCapability(8, 0)

    @classmethod
    def supports_attn_type(cls, attn_type):
        return attn_type in tuple(AttentionType)

    @classmethod
    def supports_sink(cls):
        return True

    @classmethod
    def supports_sliding_window(cls):
        return True

    @classmethod
    def supports_non_causal(cls):
        return True

    @classmethod
    def supports_per_head_quant_scales(cls):
        return True

    @classmethod
    def supports_batch_invariance(cls):
        return True

    @classmethod
    def supports_combination(cls, head_size, dtype, kv_cache_dtype, *others, **more):
        stored = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(kv_cache_dtype, dtype)
        if stored != dtype:
            return f"a cache of {kv_cache_dtype} under queries of {dtype}; give --kv-cache-dtype auto or fp8_e4m3"
        if kv_cache_dtype == "nvfp4" and head_size % nvfp4.BLOCK:
            return f"nvfp4 has head sizes that are multiples of 16, not {head_size}; give --kv-cache-dtype fp8_e4m3"
        if kv_cache_dtype in ("int4_per_token_head", "nvfp4") and head_size > 256:
            return f"a cache of 4 bits has head sizes up to 256, not {head_size}; give --kv-cache-dtype fp8_e4m3"
        return None

    @classmethod
    def validate_configuration(cls, *arguments, **configuration):
        reasons = super().validate_configuration(*arguments, **configuration)
        return [f"{reason}: {_INSTEAD[reason]}" if reason in _INSTEAD else reason for reason in reasons]
