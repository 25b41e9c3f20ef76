"""A step's metadata for all layers: starts of requests, lengths, and pages."""

import dataclasses

import torch
from vllm.v1.attention.backend import AttentionCGSupport, AttentionMetadata, AttentionMetadataBuilder

from .._shared_keys import SharedKeys, lengths_here, places_here


@dataclasses.dataclass
class JitAttentionMetadata(AttentionMetadata):
    """vLLM's own tensors, which stay on the device: nothing is planned, copied or read by the host.

    Attributes:
        num_actual_tokens: rows of q that may belong to requests; in graphs those of padding are among them.
        query_start_loc: int32 (requests + 1), where the tokens of requests begin.
        seq_lens: int32 (requests), keys of each request, new ones included.
        block_table: int32 (requests, pages).
        slot_mapping: int64 (tokens), of each new token the page and the place in it; -1 for padding.
        causal: a bool, or int32 (requests), not 0 for requests that are causal.
        shared: where ranks share keys out.
    """

    num_actual_tokens: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    causal: bool | torch.Tensor = True
    shared: SharedKeys | None = None


class JitAttentionMetadataBuilder(AttentionMetadataBuilder[JitAttentionMetadata]):
    # A captured call reads lengths and pages at each replay, in prefill, decoding and mixed steps.
    _cudagraph_support = AttentionCGSupport.ALWAYS
    supports_update_block_table = True
    supports_draft_decode_metadata_update = True

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        compilation = vllm_config.compilation_config  # a run before the capture compiles kernels
        compilation.cudagraph_num_of_warmups = max(1, compilation.cudagraph_num_of_warmups)
        self._ranks = 1
        if getattr(kv_cache_spec, "dcp_sharded", False):
            from vllm.distributed.parallel_state import get_dcp_world_size_and_rank

            self._ranks, self._rank = get_dcp_world_size_and_rank(True)
        if self._ranks > 1:
            self._run = vllm_config.parallel_config.cp_kv_cache_interleave_size
            self._places = places_here(self._rank, self._ranks, self._run, device)
            # Graphs read these buffers at each replay, after the step's build.
            most = vllm_config.scheduler_config.max_num_seqs
            self._here = torch.zeros(most, dtype=torch.int32, device=device)
            self._lengths = torch.zeros(most, 2, dtype=torch.int32, device=device)
            self.supports_draft_decode_metadata_update = False

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        common = common_attn_metadata
        return JitAttentionMetadata(common.num_actual_tokens, common.query_start_loc, common.seq_lens,
                                    common.block_table_tensor, common.slot_mapping, common.causal,
                                    self._shared(common) if self._ranks > 1 else None)

    def _shared(self, common):
        count, starts = common.seq_lens.shape[0], common.query_start_loc
        here, lengths = self._here[:count], self._lengths[:count]
        here.copy_(lengths_here(common.seq_lens, self._rank, self._ranks, self._run))
        torch.sub(starts[1 : count + 1], starts[:count], out=lengths[:, 0])
        lengths[:, 1].copy_(common.seq_lens)
        return SharedKeys(self._places, here, lengths)

    def update_block_table(self, metadata, blk_table, slot_mapping):
        return dataclasses.replace(metadata, block_table=blk_table, slot_mapping=slot_mapping)

    def update_draft_decode_metadata(self, metadata):
        """Does nothing: no metadata is derived from lengths and pages."""
