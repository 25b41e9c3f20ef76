"""The backend for models with sparse latent attention (DeepSeek V3.2, GLM 5), which needs a separate class in vLLM.

vLLM's indexer selects a token's latents, and its base class finds their rows, which are read by one call of
`jit_attention.sparse.dsa`, 16-bit or fp8_ds_mla. Prompts no longer than the selection use vLLM's own prefill.
"""

import dataclasses
from typing import ClassVar

import torch
import vllm
from vllm.model_executor.layers.attention.sparse_mla_attention import (
    SparseMLACommonImpl,
    SparseMLACommonMetadata,
    SparseMLACommonMetadataBuilder,
)
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backend import AttentionBackend, AttentionCGSupport, AttentionType, MultipleOf
from vllm.v1.attention.backends.mla.sparse_utils import align_blocks_to_rows, flat_kv_row_view

import jit_attention as ja

from .._core import _append_to_slots
from .._engines import check_version
from . import SERVED_VERSIONS
from .seen import Seen

check_version("vLLM", vllm.__version__, SERVED_VERSIONS)

_PACKED = "fp8_ds_mla"  # vLLM's name for latent_656

#: vLLM's refusal reasons, with alternatives.
_INSTEAD = {
    "head_size not supported": "chosen latents have 576 columns",
    "dtype not supported": "give --dtype bfloat16 or float16",
    "kv_cache_dtype not supported": f"give --kv-cache-dtype auto or {_PACKED}",
    "block_size not supported": "give --block-size 64, or a multiple of it",
    "non-MLA not supported": "leave --attention-backend out where some layers, as of a draft model, have no latents",
    "non-sparse not supported": "leave --attention-backend out where some layers, as of a draft model, see all latents",
    "compute capability not supported": "latent attention runs on GPUs of 9.0; leave --attention-backend out",
    "batch invariance not supported": "leave VLLM_BATCH_INVARIANT out",
    "DCP not supported": "leave out --decode-context-parallel-size, or use FLASHMLA_SPARSE",
    "PCP not supported": "leave out --prefill-context-parallel-size",
}  # fmt: skip


@dataclasses.dataclass
class JitAttentionSparseMLAMetadata(SparseMLACommonMetadata):
    """vLLM's metadata, unchanged."""


class JitAttentionSparseMLAMetadataBuilder(SparseMLACommonMetadataBuilder[JitAttentionSparseMLAMetadata]):
    metadata_cls = JitAttentionSparseMLAMetadata
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH  # vLLM's prefill is not captured

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        # Requests with up to this many new tokens read latents, as with FLASHMLA_SPARSE for few heads.
        self._init_reorder_batch_threshold(128, supports_spec_as_decode=True)
        compilation = vllm_config.compilation_config  # a run before the capture compiles kernels
        compilation.cudagraph_num_of_warmups = max(1, compilation.cudagraph_num_of_warmups)


class JitAttentionSparseMLAImpl(SparseMLACommonImpl[JitAttentionSparseMLAMetadata]):
    """Stores latents by one kernel, and attends to selected ones by another.

    A cache is 16-bit (pages, page_size, 576), or (pages, page_size, 656) bytes.
    """

    group_conversion_decode_only: ClassVar[bool] = True
    supports_pcp = supports_dcp = supports_quant_query_input = False

    def __init__(self, num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype,
                 logits_soft_cap, attn_type, kv_sharing_target_layer_name, **latent):
        super().__init__(num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype,
                         logits_soft_cap, attn_type, kv_sharing_target_layer_name, **latent)
        others = dict(alibi_slopes=alibi_slopes, sliding_window=sliding_window, logits_soft_cap=logits_soft_cap)
        if given := [name for name, value in others.items() if value]:
            _refuse(f"{given[0]} beside chosen latents")
        if attn_type != AttentionType.DECODER:
            _refuse(f"chosen latents of type {attn_type}")
        self._kv_dtype = "latent_656" if kv_cache_dtype == _PACKED else None
        # Layers may be created without a GPU, so the check uses the declared architecture.
        fields = {} if self._kv_dtype is None else {"kv_dtype": self._kv_dtype}
        refused = ja.refusals("sm_90a", head_dim=head_size, head_dim_v=self.kv_lora_rank, gqa_ratio=num_heads,
                              values_in_keys=True, sequences_q="varlen", sequences_kv="varlen", list_block=1, **fields)
        if refused:
            _refuse(f"chosen latents with {refused[0].field} {refused[0].value}, which {refused[0].rule}")
        self._seen = Seen()

    def _forward_mqa_kernel(self, q, kv_cache, topk_indices, valid_counts, *, layer, block_size, is_decode):
        """Attention of tokens to the rows that they chose.

        Args:
            q: (tokens, heads, 576), or its two parts.
            kv_cache: (pages, page_size, 576 or 656).
            topk_indices: int32 (tokens, entries): rows of the cache, counted as `flat_kv_row_view` has them.
            valid_counts: int32 (tokens): how many of these count.

        Returns:
            (tokens, heads, 512), and None.
        """
        q = q if isinstance(q, torch.Tensor) else torch.cat(q, dim=-1)
        rows, _ = flat_kv_row_view(kv_cache, block_size)
        out = ja.sparse.dsa(q, rows.unsqueeze(1), topk_indices.unsqueeze(1), valid_counts.unsqueeze(1),
                            head_dim_v=self.kv_lora_rank, softmax_scale=self.scale, kv_dtype=self._kv_dtype)
        return out, None

    def do_kv_cache_update(self, kv_c_normed, k_pe, kv_cache, slot_mapping, kv_cache_dtype, k_scale, skip_scale=False):
        """Stores latents, (at least tokens, 512), and their rotated parts, (at least tokens, 1, 64)."""
        if kv_cache.numel() == 0:  # during vLLM's memory profiling
            return
        slots = slot_mapping if slot_mapping.dim() == 1 else slot_mapping.flatten()
        rows, latents, rotated = self._seen.of(self._views_of, kv_cache)
        if self._kv_dtype is None:
            _append_to_slots(k_pe, kv_c_normed, rotated, latents, slots, None, None, None)
            return
        tokens = slots.shape[0]
        ja.append(k_pe[:tokens], kv_c_normed[:tokens].unsqueeze(1), rows, None, slot_mapping=slots,
                  cache_dtype=self._kv_dtype)

    def _views_of(self, kv_cache, *no_scales):
        """Rows as (pages, page_size, 1, columns); for 16-bit caches also their latents and rotated parts."""
        rows = kv_cache.unsqueeze(2)
        return rows, rows[..., : self.kv_lora_rank], rows[..., self.kv_lora_rank :]


class JitAttentionSparseMLABackend(AttentionBackend):
    """Attention to selected latents in vLLM's 16-bit and fp8_ds_mla caches."""

    supported_dtypes: ClassVar[list] = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes: ClassVar[list] = ["auto", "float16", "bfloat16", _PACKED]

    @staticmethod
    def get_name():
        return "CUSTOM"  # vLLM looks up its own enumeration by this name

    @staticmethod
    def get_impl_cls():
        return JitAttentionSparseMLAImpl

    @staticmethod
    def get_builder_cls():
        return JitAttentionSparseMLAMetadataBuilder

    @classmethod
    def get_supported_head_sizes(cls):
        return [576]

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None):
        return [MultipleOf(64)]

    @classmethod
    def customize_spec(cls, spec):
        return align_blocks_to_rows(spec)

    @classmethod
    def is_mla(cls):
        return True

    @classmethod
    def is_sparse(cls):
        return True

    @classmethod
    def supports_compute_capability(cls, capability):
        return capability == DeviceCapability(9, 0)

    @classmethod
    def supports_combination(cls, head_size, dtype, kv_cache_dtype, *others, **more):
        stored = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(kv_cache_dtype, dtype)
        return None if stored == dtype else f"a cache of {kv_cache_dtype} under queries of {dtype}; give auto"

    @classmethod
    def validate_configuration(cls, *arguments, **configuration):
        reasons = super().validate_configuration(*arguments, **configuration)
        return [f"{reason}: {_INSTEAD[reason]}" if reason in _INSTEAD else reason for reason in reasons]


def _refuse(what):
    raise NotImplementedError(f"jit_attention.vllm does not serve {what}: choose another --attention-backend, such as "
                              "FLASHMLA_SPARSE")
