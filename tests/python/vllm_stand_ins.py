"""The parts of vLLM 0.33 that jit_attention.vllm uses, for machines without vLLM."""

import dataclasses
import enum
import importlib.machinery
import sys
import types
from typing import Generic, TypeVar

import thread_group
import torch

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
    INT4_PER_TOKEN_HEAD = 4
    NVFP4 = 5


@dataclasses.dataclass(frozen=True)
class FullAttentionSpec:
    block_size: int
    num_kv_heads: int
    head_size: int
    dtype: object
    head_size_v: int
    kv_quant_mode: KVQuantMode = KVQuantMode.NONE
    num_head_slots: int | None = None
    state_content_bytes: int | None = None
    block_stride_alignment: int = 1
    dcp_sharded: bool = True


@dataclasses.dataclass(frozen=True)
class MultipleOf:
    base: int


class AttentionBackend:
    forward_includes_kv_cache_update = True
    supports_kv_cache_update_bypass = False

    @classmethod
    def is_mla(cls):
        return False

    @classmethod
    def is_sparse(cls):
        return False

    @classmethod
    def supports_head_size(cls, head_size):
        return head_size in cls.get_supported_head_sizes()

    @classmethod
    def validate_configuration(cls, head_size, dtype, kv_cache_dtype, block_size, use_mla, has_sink, use_sparse,
                               use_mm_prefix, use_per_head_quant_scales, device_capability, attn_type, **more):
        reasons = []
        if not cls.supports_head_size(head_size):
            reasons.append("head_size not supported")
        if kv_cache_dtype not in (None, *cls.supported_kv_cache_dtypes):
            reasons.append("kv_cache_dtype not supported")
        if more.get("use_dcp") and not cls.get_impl_cls().supports_dcp:
            reasons.append("DCP not supported")
        if use_mla != cls.is_mla():
            reasons.append("MLA not supported" if use_mla else "non-MLA not supported")
        if use_sparse != cls.is_sparse():
            reasons.append("sparse not supported" if use_sparse else "non-sparse not supported")
        if not cls.supports_compute_capability(device_capability):
            reasons.append("compute capability not supported")
        combination = cls.supports_combination(head_size, dtype, kv_cache_dtype, block_size, use_mla, has_sink,
                                               use_sparse, use_mm_prefix, device_capability)
        return reasons + ([combination] if combination else [])


class AttentionMetadata:
    pass


class AttentionImpl(Generic[T]):
    supports_dcp = False


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
    seq_lens_cpu_upper_bound: object = None


class QueryLenSupport(enum.Enum):
    SINGLE_ONLY = "single_only"
    UNIFORM = "uniform"
    VARLEN = "varlen"


class MLACommonBackend(AttentionBackend):
    @classmethod
    def is_mla(cls):
        return True

    @classmethod
    def supports_head_size(cls, head_size):
        return head_size in cls.get_supported_head_sizes()


@dataclasses.dataclass
class MLACommonDecodeMetadata:
    block_table: object
    seq_lens: object
    dcp_tot_seq_lens: object


@dataclasses.dataclass
class MLACommonMetadata(Generic[T]):
    num_decodes: int
    num_prefills: int
    num_decode_tokens: int
    causal: bool
    decode: T | None


class MLACommonMetadataBuilder(AttentionMetadataBuilder[T]):
    """Requests of few new tokens come first, as vLLM orders them."""

    dcp_world_size, dcp_rank = 1, 0

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device, metadata_cls=None, supports_dcp_with_varlen=False):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len, common, fast_build=False):
        lengths = (common.query_start_loc_cpu[1:] - common.query_start_loc_cpu[:-1]).tolist()
        count = next((i for i, n in enumerate(lengths) if n > self.reorder_batch_threshold), len(lengths))
        starts, tokens = common.query_start_loc[: count + 1], int(common.query_start_loc_cpu[count])
        tokens = common.num_actual_tokens if count == len(lengths) else tokens
        decode = self._build_decode(
            block_table_tensor=common.block_table_tensor[:count], seq_lens_device=common.seq_lens[:count],
            max_seq_len=common.max_seq_len, query_start_loc_cpu=starts.cpu(), query_start_loc_device=starts,
            num_decode_tokens=tokens, max_query_len=max(lengths[:count]), dcp_tot_seq_lens_device=None)
        return MLACommonMetadata(count, len(lengths) - count, tokens, common.causal is not False, decode)


class MLACommonImpl(Generic[T]):
    supports_pcp = True
    supports_dcp = can_return_lse_for_decode = need_to_return_lse_for_decode = False

    def __init__(self, num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype,
                 logits_soft_cap, attn_type, kv_sharing_target_layer_name, q_lora_rank, kv_lora_rank, qk_nope_head_dim,
                 qk_rope_head_dim, qk_head_dim, v_head_dim, kv_b_proj, indexer=None, q_pad_num_heads=None):
        self.num_heads, self.head_size, self.scale, self.kv_lora_rank = num_heads, head_size, scale, kv_lora_rank


@dataclasses.dataclass
class SparseMLACommonMetadata:
    num_actual_tokens: int
    block_table: object
    req_id_per_token: object
    block_size: int
    num_decode_tokens: int


class SparseMLACommonMetadataBuilder(AttentionMetadataBuilder[T]):
    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.block_size = kv_cache_spec.block_size

    def _init_reorder_batch_threshold(self, threshold, supports_spec_as_decode=False):
        self.reorder_batch_threshold = threshold

    def build(self, common_prefix_len, common, fast_build=False):
        lengths = common.query_start_loc_cpu[1:] - common.query_start_loc_cpu[:-1]
        requests = torch.arange(len(lengths), dtype=torch.int32).repeat_interleave(lengths)
        padded = torch.zeros(common.num_actual_tokens, dtype=torch.int32, device=common.query_start_loc.device)
        padded[: len(requests)] = requests
        return self.metadata_cls(common.num_actual_tokens, common.block_table_tensor, padded, self.block_size,
                                 common.num_actual_tokens)


class SparseMLACommonImpl(Generic[T]):
    """Where chosen latents lie is found as vLLM's kernel finds it: rows of a flat view, those that are none behind all."""

    dcp_world_size = 1

    def __init__(self, num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype,
                 logits_soft_cap, attn_type, kv_sharing_target_layer_name, q_lora_rank, kv_lora_rank, qk_nope_head_dim,
                 qk_rope_head_dim, qk_head_dim, v_head_dim, kv_b_proj, indexer=None, topk_indices_buffer=None,
                 index_group_builder=None, q_pad_num_heads=None):
        self.num_heads, self.head_size, self.scale, self.kv_lora_rank = num_heads, head_size, scale, kv_lora_rank
        self.topk_indices_buffer = topk_indices_buffer if indexer is None else indexer.topk_indices_buffer

    def forward_mqa(self, q, kv_cache, metadata, layer):
        tokens = q[0].shape[0] if isinstance(q, tuple) else q.shape[0]
        chosen, table = self.topk_indices_buffer[:tokens], metadata.block_table
        _, block_stride = flat_kv_row_view(kv_cache, metadata.block_size)
        block = chosen.clamp(min=0) // metadata.block_size
        exists = (chosen >= 0) & (block < table.shape[1])
        pages = table[metadata.req_id_per_token[:tokens, None].long(), block.clamp(max=table.shape[1] - 1).long()]
        rows = torch.where(exists, pages * block_stride + chosen % metadata.block_size, -1)
        rows = rows.gather(1, exists.int().argsort(dim=1, descending=True, stable=True)).int()
        return self._forward_mqa_kernel(q, kv_cache, rows, exists.sum(1).int(), layer=layer,
                                        block_size=metadata.block_size, is_decode=True)


def flat_kv_row_view(kv_cache, block_size):
    blocks, _, columns = kv_cache.shape
    stride = kv_cache.stride(0) // columns
    return kv_cache.as_strided(((blocks - 1) * stride + block_size, columns), (columns, 1)), stride


def align_blocks_to_rows(spec, rows=1):
    return dataclasses.replace(spec, block_stride_alignment=rows * spec.state_content_bytes)


class MiniMaxM3SparseBackend(AttentionBackend):
    @staticmethod
    def get_name():
        return "MINIMAX_M3_SPARSE"


@dataclasses.dataclass
class MiniMaxM3SparseMetadata(AttentionMetadata):
    seq_lens: object
    max_seq_len: int
    slot_mapping: object
    num_actual_tokens: int
    decode: object = None


class MiniMaxM3SparseMetadataBuilder(AttentionMetadataBuilder[MiniMaxM3SparseMetadata]):
    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH

    def build(self, common_prefix_len, common, fast_build=False):
        return MiniMaxM3SparseMetadata(common.seq_lens, common.max_seq_len, common.slot_mapping, common.num_actual_tokens)


class MiniMaxM3SparseImpl:
    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, kv_cache_dtype="auto", *, topk_blocks,
                 sparse_block_size, msa_decode_backend="triton"):
        self.num_heads, self.head_size, self.scale, self.num_kv_heads = num_heads, head_size, scale, num_kv_heads
        self.topk_blocks, self.block_size = topk_blocks, sparse_block_size


def select_main_backend_and_impl_cls(*, topk_blocks, kv_cache_dtype, num_kv_heads, emits_sparse_block_table=False):
    return MiniMaxM3SparseBackend, "vLLM's own"


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


def get_dcp_group():
    return thread_group.of_this_thread()


def get_dcp_world_size_and_rank(is_sharded=True):
    group = thread_group.of_this_thread()
    return (group.world_size, group.rank_in_group) if group is not None and is_sharded else (1, 0)


def cp_lse_ag_out_rs(out, lse, group, return_lse=False):
    """out (tokens, heads of all, head_dim) and LSE (tokens, heads of all) of each rank, merged, for the rank's own heads."""
    assert out.shape[:2] == lse.shape and lse.is_contiguous() and lse.dtype == torch.float32
    lses = group.all_gather(lse[None], dim=0)
    whole = torch.logsumexp(lses, 0)
    own = out.float() * torch.exp(lse - whole).nan_to_num(0)[..., None]
    out = group.reduce_scatter(own.to(out.dtype), dim=1)  # which adds in the dtype of out
    own = whole.shape[1] // group.world_size
    return out, whole[:, own * group.rank_in_group :][:, :own]


def install():
    """Puts modules of these names where `import` finds them."""
    contents = {
        "vllm": dict(__version__="0.33.0"),
        "vllm.config": dict(get_current_vllm_config_or_none=lambda: None),
        "vllm.envs": dict(VLLM_BATCH_INVARIANT=False),
        "vllm.distributed": {},
        "vllm.distributed.parallel_state": dict(get_dcp_group=get_dcp_group,
                                                get_dcp_world_size_and_rank=get_dcp_world_size_and_rank),
        "vllm.forward_context": dict(get_forward_context=None),
        "vllm.model_executor": {},
        "vllm.model_executor.layers": {},
        "vllm.model_executor.layers.attention": {},
        "vllm.model_executor.layers.attention.mla_attention": dict(
            MLACommonBackend=MLACommonBackend, MLACommonDecodeMetadata=MLACommonDecodeMetadata,
            MLACommonImpl=MLACommonImpl, MLACommonMetadata=MLACommonMetadata,
            MLACommonMetadataBuilder=MLACommonMetadataBuilder, QueryLenSupport=QueryLenSupport),
        "vllm.model_executor.layers.attention.sparse_mla_attention": dict(
            SparseMLACommonImpl=SparseMLACommonImpl, SparseMLACommonMetadata=SparseMLACommonMetadata,
            SparseMLACommonMetadataBuilder=SparseMLACommonMetadataBuilder),
        "vllm.models": {},
        "vllm.models.minimax_m3": {},
        "vllm.models.minimax_m3.common": {},
        "vllm.models.minimax_m3.common.sparse_attention": dict(
            MiniMaxM3SparseBackend=MiniMaxM3SparseBackend, MiniMaxM3SparseImpl=MiniMaxM3SparseImpl,
            MiniMaxM3SparseMetadata=MiniMaxM3SparseMetadata,
            MiniMaxM3SparseMetadataBuilder=MiniMaxM3SparseMetadataBuilder),
        "vllm.models.minimax_m3.nvidia": {},
        "vllm.models.minimax_m3.nvidia.model": dict(
            select_main_backend_and_impl_cls=select_main_backend_and_impl_cls),
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
        "vllm.v1.attention.backends.mla": {},
        "vllm.v1.attention.backends.mla.sparse_utils": dict(flat_kv_row_view=flat_kv_row_view,
                                                            align_blocks_to_rows=align_blocks_to_rows),
        "vllm.v1.attention.ops": {},
        "vllm.v1.attention.ops.dcp": dict(cp_lse_ag_out_rs=cp_lse_ag_out_rs, dcp_a2a_lse_reduce=None),
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
