"""What all layers of a step are told: where requests begin, how long they are, and where their pages are."""

import dataclasses

import torch
from vllm.v1.attention.backend import AttentionCGSupport, AttentionMetadata, AttentionMetadataBuilder


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
    """

    num_actual_tokens: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    causal: bool | torch.Tensor = True


class JitAttentionMetadataBuilder(AttentionMetadataBuilder[JitAttentionMetadata]):
    # A captured call reads lengths and pages at each replay, of prefill, decoding and both.
    _cudagraph_support = AttentionCGSupport.ALWAYS
    supports_update_block_table = True
    supports_draft_decode_metadata_update = True

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        compilation = vllm_config.compilation_config  # kernels are compiled by a run before the capture
        compilation.cudagraph_num_of_warmups = max(1, compilation.cudagraph_num_of_warmups)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        common = common_attn_metadata
        return JitAttentionMetadata(common.num_actual_tokens, common.query_start_loc, common.seq_lens,
                                    common.block_table_tensor, common.slot_mapping, common.causal)

    def update_block_table(self, metadata, blk_table, slot_mapping):
        return dataclasses.replace(metadata, block_table=blk_table, slot_mapping=slot_mapping)

    def update_draft_decode_metadata(self, metadata):
        """Nothing is made from lengths and pages, so that nothing has to be made anew."""
