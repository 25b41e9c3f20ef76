"""What jit_attention.vllm uses of vLLM 0.33, as that version has it: for machines that do not have vLLM."""

import dataclasses
import enum
import importlib.machinery
import sys
import types
from typing import Generic, TypeVar

T = TypeVar("T")


class AttentionType(str, enum.Enum):
    DECODER = "decoder"
    ENCODER = "encoder"
    ENCODER_ONLY = "encoder_only"
    ENCODER_DECODER = "encoder_decoder"


class AttentionCGSupport(enum.Enum):
    ALWAYS = 3
    UNIFORM_BATCH = 2
    UNIFORM_SINGLE_TOKEN_DECODE = 1
    NEVER = 0


class KVQuantMode(enum.IntEnum):
    NONE = 0
    FP8_PER_TENSOR = 1
    INT8_PER_TOKEN_HEAD = 2
    FP8_PER_TOKEN_HEAD = 3


@dataclasses.dataclass(frozen=True)
class FullAttentionSpec:
    block_size: int
    num_kv_heads: int
    head_size: int
    dtype: object
    head_size_v: int
    kv_quant_mode: KVQuantMode = KVQuantMode.NONE
    state_content_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class MultipleOf:
    base: int


class AttentionBackend:
    forward_includes_kv_cache_update = True
    supports_kv_cache_update_bypass = False

    @classmethod
    def validate_configuration(cls, head_size, dtype, kv_cache_dtype, block_size, use_mla, has_sink, use_sparse,
                               use_mm_prefix, use_per_head_quant_scales, device_capability, attn_type, **more):
        reasons = []
        if not cls.supports_head_size(head_size):
            reasons.append("head_size not supported")
        if kv_cache_dtype not in (None, *cls.supported_kv_cache_dtypes):
            reasons.append("kv_cache_dtype not supported")
        if use_mla:
            reasons.append("MLA not supported")
        if not cls.supports_compute_capability(device_capability):
            reasons.append("compute capability not supported")
        combination = cls.supports_combination(head_size, dtype, kv_cache_dtype, block_size, use_mla, has_sink,
                                               use_sparse, use_mm_prefix, device_capability)
        return reasons + ([combination] if combination else [])


class AttentionMetadata:
    pass


class AttentionImpl(Generic[T]):
    pass


class AttentionMetadataBuilder(Generic[T]):
    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        self.vllm_config, self.device = vllm_config, device

    @classmethod
    def get_cudagraph_support(cls, vllm_config, kv_cache_spec):
        return cls._cudagraph_support


@dataclasses.dataclass
class CommonAttentionMetadata:
    query_start_loc: object
    query_start_loc_cpu: object
    seq_lens: object
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    block_table_tensor: object
    slot_mapping: object
    causal: object = True


class DeviceCapability(tuple):
    def __new__(cls, major, minor):
        return tuple.__new__(cls, (major, minor))


class AttentionBackendEnum(enum.Enum):
    FLASH_ATTN = "flash_attn.FlashAttentionBackend"
    CUSTOM = None

    def is_overridden(self):
        return self in _OVERRIDES

    def clear_override(self):
        _OVERRIDES.pop(self, None)

    def get_path(self):
        return _OVERRIDES.get(self, self.value)

    def get_class(self):
        module, _, name = self.get_path().rpartition(".")
        return getattr(__import__(module, fromlist=[name]), name)


_OVERRIDES = {}


def register_backend(backend, class_path=None):
    _OVERRIDES[backend] = class_path


def install():
    """Puts modules of these names where `import` finds them."""
    contents = {
        "vllm": dict(__version__="0.33.0"),
        "vllm.envs": dict(VLLM_BATCH_INVARIANT=False),
        "vllm.platforms": {},
        "vllm.platforms.interface": dict(DeviceCapability=DeviceCapability),
        "vllm.v1": {},
        "vllm.v1.kv_cache_interface": dict(FullAttentionSpec=FullAttentionSpec, KVQuantMode=KVQuantMode),
        "vllm.v1.attention": {},
        "vllm.v1.attention.backend": dict(
            AttentionBackend=AttentionBackend, AttentionCGSupport=AttentionCGSupport, AttentionImpl=AttentionImpl,
            AttentionMetadata=AttentionMetadata, AttentionMetadataBuilder=AttentionMetadataBuilder,
            AttentionType=AttentionType, CommonAttentionMetadata=CommonAttentionMetadata, MultipleOf=MultipleOf),
        "vllm.v1.attention.backends": {},
        "vllm.v1.attention.backends.registry": dict(AttentionBackendEnum=AttentionBackendEnum,
                                                    register_backend=register_backend),
    }  # fmt: skip
    for name, attributes in contents.items():
        module = sys.modules[name] = types.ModuleType(name)
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        vars(module).update(attributes, __path__=[], __spec__=spec)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
