"""The backend for models with latent attention (MLA), which needs a separate class in vLLM.

Decoding, verified drafts and short chunks read the cache of latents by one call of `jit_attention.attention`. Long
prompts are read by vLLM's own prefill, over keys and values of each head.
"""

import dataclasses
from typing import ClassVar

import torch
import vllm
from vllm import envs
from vllm.model_executor.layers.attention.mla_attention import (
    MLACommonBackend,
    MLACommonDecodeMetadata,
    MLACommonImpl,
    MLACommonMetadata,
    MLACommonMetadataBuilder,
    QueryLenSupport,
)
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backend import AttentionCGSupport, AttentionType, MultipleOf

import jit_attention as ja

from .._core import _append_to_slots, _attend_to_pages
from .._engines import SPLIT_KEYS, check_version
from . import SERVED_VERSIONS
from .seen import Seen

check_version("vLLM", vllm.__version__, SERVED_VERSIONS)

#: vLLM's refusal reasons, with alternatives.
_INSTEAD = {
    "head_size not supported": "a latent and what is rotated have 320 or 576 columns; TRITON_MLA has others",
    "dtype not supported": "give --dtype bfloat16 or float16",
    "kv_cache_dtype not supported": "give --kv-cache-dtype auto; FLASHMLA and TRITON_MLA have caches of fp8",
    "block_size not supported": "give --block-size 64, or another multiple of 16",
    "non-MLA not supported": "leave --attention-backend out where some layers, as of a draft model, have no latents",
    "sparse not supported": "leave --attention-backend out for models that pick keys",
    "compute capability not supported": "latent attention runs on GPUs of 9.0; TRITON_MLA runs on others",
    "attention sinks not supported": "no other backend has them beside latent attention, either",
    "sliding window not supported": "leave --attention-backend out for models whose latents have windows",
    "PCP not supported": "leave out --prefill-context-parallel-size, or use FLASH_ATTN_MLA",
}  # fmt: skip


@dataclasses.dataclass
class JitAttentionMLADecodeMetadata(MLACommonDecodeMetadata):
    """vLLM's own tensors of the requests that read latents.

    Attributes:
        query_start_loc: int32 (requests + 1), where the tokens of requests begin.
        key_places: int32 (1, 1, 4), where this rank's latents stand in their sequences, if ranks share them out and some
            request has several tokens; else None: each token sees all latents of its request that are here.
    """

    query_start_loc: torch.Tensor
    key_places: torch.Tensor | None = None
    lengths: torch.Tensor | None = None  # tokens and latents of each request, over all ranks

    def places(self):
        """Position arguments of attention for latents. The first layer of a step computes them, in a graph if there is
        one."""
        if self.key_places is None:
            return {}
        if self.lengths is None:
            tokens = self.query_start_loc[1:] - self.query_start_loc[:-1]
            self.lengths = torch.stack([tokens, self.dcp_tot_seq_lens.to(torch.int32)], dim=1)
        return dict(k_positions=self.key_places, global_seqlens=self.lengths)


class JitAttentionMLAMetadataBuilder(MLACommonMetadataBuilder[MLACommonMetadata]):
    # A captured call reads lengths and pages at each replay; vLLM's prefill cannot be captured.
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH
    query_len_support: ClassVar[QueryLenSupport] = QueryLenSupport.VARLEN
    supports_non_causal_multi_token_decode: ClassVar[bool] = True
    supports_draft_decode_metadata_update = True
    reorder_batch_threshold: int = 128  # requests with up to this many new tokens read latents, as with FLASHMLA
    supports_non_causal_multi_token_dcp: ClassVar[bool] = True
    _key_places = None  # set when ranks shard latents

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device, supports_dcp_with_varlen=True)
        if self.dcp_world_size > 1:
            run = vllm_config.parallel_config.cp_kv_cache_interleave_size
            self._key_places = torch.tensor([[[0, self.dcp_rank * run, run, self.dcp_world_size * run]]],
                                            dtype=torch.int32, device=device)
        compilation = vllm_config.compilation_config  # a run before the capture compiles kernels
        compilation.cudagraph_num_of_warmups = max(1, compilation.cudagraph_num_of_warmups)

    def _build_decode(self, block_table_tensor, seq_lens_device, max_seq_len, query_start_loc_cpu,
                      query_start_loc_device, num_decode_tokens, max_query_len, dcp_tot_seq_lens_device):
        return JitAttentionMLADecodeMetadata(block_table_tensor, seq_lens_device, dcp_tot_seq_lens_device,
                                             query_start_loc_device, self._key_places if max_query_len > 1 else None)

    def update_draft_decode_metadata(self, metadata):
        """Does nothing: no metadata is derived from lengths and pages."""


class JitAttentionMLAImpl(MLACommonImpl[MLACommonMetadata]):
    """Stores latents by one kernel, and attends to them by another one.

    A cache is (pages, page_size, kv_lora_rank + qk_rope_head_dim): of each token the latent, then what is rotated.
    """

    supports_pcp = False
    supports_dcp = True
    can_return_lse_for_decode = True
    lse_base_on_e = True
    supports_mtp_with_cp_non_trivial_interleave_size = True

    def __init__(self, num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype,
                 logits_soft_cap, attn_type, kv_sharing_target_layer_name, **latent):
        super().__init__(num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype,
                         logits_soft_cap, attn_type, kv_sharing_target_layer_name, **latent)
        others = dict(alibi_slopes=alibi_slopes, sliding_window=sliding_window, logits_soft_cap=logits_soft_cap)
        if given := [name for name, value in others.items() if value]:
            _refuse(f"{given[0]} beside latent attention")
        if attn_type != AttentionType.DECODER:
            _refuse(f"latent attention of type {attn_type}")
        # Layers may be created without a GPU, so the check uses the declared architecture.
        refused = ja.refusals("sm_90a", head_dim=head_size, head_dim_v=self.kv_lora_rank, gqa_ratio=num_heads,
                              values_in_keys=True)
        if refused:
            _refuse(f"latent attention with {refused[0].field} {refused[0].value}, which {refused[0].rule}")
        self.split_keys = SPLIT_KEYS if envs.VLLM_BATCH_INVARIANT else 0
        self._causal = ja.mask.causal()
        self._seen = Seen()

    def forward_mqa(self, q, kv_c_and_k_pe_cache, attn_metadata, layer):
        """Attention of the tokens that read latents, in one call.

        Args:
            q: (tokens, heads, kv_lora_rank + qk_rope_head_dim), or these two parts.
            kv_c_and_k_pe_cache: (pages, page_size, kv_lora_rank + qk_rope_head_dim).
            attn_metadata: of the builder above; its tokens that read latents come first.

        Returns:
            (tokens, heads, kv_lora_rank), in which rows that are no request's are 0, and None; or, where ranks share latents
            out, LSE (tokens, heads), natural logarithm, which is -inf where a request has none here.
        """
        decode = attn_metadata.decode
        q = q if isinstance(q, torch.Tensor) else torch.cat(q, dim=-1)
        out = q.new_empty(*q.shape[:2], self.kv_lora_rank)
        rows = self._seen.of(self._views_of, kv_c_and_k_pe_cache)[0]
        mask = self._causal if attn_metadata.causal else None
        if self.need_to_return_lse_for_decode:
            places = decode.places() if attn_metadata.causal else {}
            _, lse = ja.attention(q, rows, out=out, return_lse=True, mask=mask, softmax_scale=self.scale,
                                  head_dim_v=self.kv_lora_rank, split_keys=self.split_keys, zero_padding=True,
                                  cu_seqlens_q=decode.query_start_loc, page_table=decode.block_table,
                                  seqused_k=decode.seq_lens, **places)
            return out, lse.transpose(0, 1)
        _attend_to_pages(q, rows, None, out, out.shape[0], mask, None,
                         self.scale, None, None, self.split_keys, decode.query_start_loc, decode.block_table,
                         decode.seq_lens, None, None, None, self.kv_lora_rank)
        return out, None

    def do_kv_cache_update(self, kv_c_normed, k_pe, kv_cache, slot_mapping, kv_cache_dtype, k_scale, skip_scale=False):
        """Stores latents, (at least tokens, kv_lora_rank), and their rotated parts, (at least tokens, 1, …)."""
        if kv_cache.numel() == 0:  # during vLLM's memory profiling
            return
        slots = slot_mapping if slot_mapping.dim() == 1 else slot_mapping.flatten()
        _, latents, rotated = self._seen.of(self._views_of, kv_cache)
        _append_to_slots(k_pe, kv_c_normed, rotated, latents, slots, None, None, None)

    def _views_of(self, kv_cache, *no_scales):
        """Rows as (pages, page_size, 1, columns), their latents, and their rotated parts."""
        rows = kv_cache.unsqueeze(2)
        return rows, rows[..., : self.kv_lora_rank], rows[..., self.kv_lora_rank :]


class JitAttentionMLABackend(MLACommonBackend):
    """Latent attention for vLLM's 16-bit caches."""

    supported_dtypes: ClassVar[list] = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes: ClassVar[list] = ["auto", "float16", "bfloat16"]

    @staticmethod
    def get_name():
        return "CUSTOM"  # vLLM looks up its own enumeration by this name

    @staticmethod
    def get_impl_cls():
        return JitAttentionMLAImpl

    @staticmethod
    def get_builder_cls():
        return JitAttentionMLAMetadataBuilder

    @classmethod
    def get_supported_head_sizes(cls):
        return [320, 576]

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None):
        return [MultipleOf(16)]

    @classmethod
    def supports_compute_capability(cls, capability):
        return capability == DeviceCapability(9, 0)

    @classmethod
    def supports_non_causal(cls):
        return True

    @classmethod
    def supports_batch_invariance(cls):
        return True

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
                              "TRITON_MLA")
