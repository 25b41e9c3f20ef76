"""The parts of SGLang 0.5.23 that jit_attention.sglang uses, for machines without SGLang."""

import enum
import importlib.machinery
import math
import sys
import types
from dataclasses import dataclass

import torch


class AttentionBackend:
    needs_cpu_seq_lens = True

    def init_forward_metadata(self, forward_batch):
        self.init_forward_metadata_out_graph(forward_batch)
        self.init_forward_metadata_in_graph(forward_batch)

    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False):
        pass


class AttentionType(enum.Enum):
    DECODER = "decoder"
    DECODER_BIDIRECTIONAL = "decoder_bidirectional"
    ENCODER_ONLY = "encoder_only"


@dataclass
class KVWriteLoc:
    loc: object
    swa_loc: object = None
    full_loc: object = None
    physical: bool = False


class MHATokenToKVPool:
    pass


class MLATokenToKVPool:
    pass


class DSATokenToKVPool(MLATokenToKVPool):
    pass


class TopkTransformMethod(enum.IntEnum):
    PAGED = 1
    RAGGED = 2


class DeepseekSparseAttnBackend(AttentionBackend):
    """What it does of a step where its kernel is flashmla_sparse, with lists as the fused top-k leaves them: of slots, or of rows
    of what is gathered for a prompt. Its metadata is given."""

    needs_cpu_seq_lens = False

    def __init__(self, model_runner):
        pool = model_runner.token_to_kv_pool
        self.token_to_kv_pool, self.physical_page_size = pool, model_runner.page_size
        self.dsa_kv_cache_store_fp8, self.use_mha = pool.dsa_kv_cache_store_fp8, False
        self.num_q_heads = model_runner.model_config.num_attention_heads
        self.kv_lora_rank, self.qk_rope_head_dim = pool.kv_lora_rank, pool.qk_rope_head_dim
        self.dsa_prefill_impl = self.dsa_decode_impl = "flashmla_kv" if pool.dsa_kv_cache_store_fp8 else "fa3"
        self.enable_auto_select_prefill_impl = True

    def init_forward_metadata(self, forward_batch):
        self.forward_metadata = types.SimpleNamespace(dsa_cache_seqlens_int32=forward_batch.counts)
        if self.enable_auto_select_prefill_impl:
            self.dsa_prefill_impl = "flashmla_kv" if self.dsa_kv_cache_store_fp8 else "flashmla_sparse"

    def get_topk_transform_method(self, forward_mode=None):
        return TopkTransformMethod.RAGGED if self.dsa_kv_cache_store_fp8 else TopkTransformMethod.PAGED

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **more):
        if self.use_mha:
            return "by SGLang itself"
        return self._forward(self.dsa_prefill_impl, q, k, layer, forward_batch, save_kv_cache, **more)

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, **more):
        return self._forward(self.dsa_decode_impl, q, k, layer, forward_batch, save_kv_cache, **more)

    def _forward(self, kernel, q, k, layer, forward_batch, save_kv_cache, q_rope=None, k_rope=None, topk_indices=None,
                 attn_sink=None):
        assert kernel == "flashmla_sparse" and self.get_topk_transform_method(None) == TopkTransformMethod.PAGED
        if save_kv_cache:
            self.token_to_kv_pool.set_mla_kv_buffer(layer, forward_batch.out_cache_loc, k, k_rope)
        q = torch.cat([x.view(x.shape[0], layer.tp_q_head_num, -1) for x in (q, q_rope)], -1)
        short = q.shape[0] - topk_indices.shape[0]
        return self._forward_flashmla_sparse(
            q_all=q, kv_cache=self.token_to_kv_pool.get_key_buffer(layer.layer_id), v_head_dim=layer.v_head_dim,
            page_table_1=torch.nn.functional.pad(topk_indices, (0, 0, 0, short), value=-1), sm_scale=layer.scaling,
            topk_length=self.forward_metadata.dsa_cache_seqlens_int32, attn_sink=attn_sink)


class MiniMaxSparseKVPool:
    pass


class MiniMaxSparseAttnBackend(AttentionBackend):
    """What it does of a step on a GPU where neither MSA nor dense decoding is at hand, with lists that are given as `idx_q`."""

    def __init__(self, runner):
        self.kv_pool = runner.token_to_kv_pool
        assert isinstance(self.kv_pool, MiniMaxSparseKVPool)
        self.req_to_token, self.page_size, self.block_size_k = runner.req_to_token_pool.req_to_token, self.kv_pool.page_size, 128
        self.use_msa = self._use_msa_decode = self._msa_owns_decode = self.use_dense_sparse_decode = True
        self.dense_backend = None

    def init_forward_metadata_in_graph(self, forward_batch):
        pass

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, *, idx_q, idx_k, idx_v):
        """Rows of q behind those of requests are padding."""
        assert not self.use_msa
        self.kv_pool.set_fused_kv_index_buffer(layer, forward_batch.out_cache_loc, k, v, idx_k, idx_v)
        k_cache, v_cache = self.kv_pool.get_kv_buffer(layer.layer_id)
        tokens = int(sum(forward_batch.extend_seq_lens_cpu))
        o = sys.modules[_MINIMAX].flash_prefill_with_gqa_share_sparse(
            q=q[:tokens], k_cache=k_cache, v_cache=v_cache, sink=None, req_to_token=self.req_to_token,
            slot_ids=forward_batch.req_pool_indices, topk_idx=idx_q, block_size_q=1, block_size_k=128, cu_seqlens=None,
            seq_lens=forward_batch.seq_lens, prefix_lens=None, max_seqlen_q=8, sm_scale=None, cu_seqblocks_q=None,
            max_seqblock_q=None, q_scale=None, k_scale=None, v_scale=None, loc_mapping=None)  # fmt: skip
        return None, torch.cat([o, o.new_zeros(q.shape[0] - tokens, *o.shape[1:])]).flatten(1)

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, *, idx_q, idx_k, idx_v):
        assert not (self._use_msa_decode or self._msa_owns_decode or self.use_dense_sparse_decode)
        self.kv_pool.set_fused_kv_index_buffer(layer, forward_batch.out_cache_loc, k, v, idx_k, idx_v)
        k_cache, v_cache = self.kv_pool.get_kv_buffer(layer.layer_id)
        o = sys.modules[_MINIMAX].flash_decode_with_gqa_share_sparse(
            q=q, sink=None, k_cache=k_cache, v_cache=v_cache, req_to_token=self.req_to_token, seq_lens=forward_batch.seq_lens,
            slot_ids=forward_batch.req_pool_indices, block_size=128, topk_idx=idx_q, sm_scale=None, page_size=self.page_size,
            q_scale=None, k_scale=None, v_scale=None, hisparse_slots=None)  # fmt: skip
        return None, o.flatten(1)


_MINIMAX = "sglang.srt.layers.attention.minimax_sparse_ops.minimax_sparse"


class AttentionBackendRegistry:
    _handlers = {}

    @classmethod
    def register(cls, backend_name, handler_func):
        cls._handlers[backend_name] = handler_func


def handle_attention_dsa(attn, forward_batch):
    raise NotImplementedError

def cp_lse_ag_out_rs_mha(out, lse, group, return_lse=False):
    """out (tokens, heads of all, head_dim), which changes, and LSE (tokens, heads of all) of each rank, merged, for the rank's
    own heads."""
    assert out.shape[:2] == lse.shape and out.dtype == lse.dtype == torch.float32
    whole = torch.logsumexp(group.all_gather(lse.contiguous()[None], dim=0), 0)
    out = group.all_reduce(out.mul_(torch.exp(lse - whole).nan_to_num(0)[..., None]))
    own = whole.shape[1] // group.world_size
    heads = slice(own * group.rank_in_group, own * (group.rank_in_group + 1))
    return (out[:, heads].contiguous(), whole[:, heads].contiguous()) if return_lse else out[:, heads].contiguous()


def cp_lse_ag_out_rs_mla(out, lse, group, is_lse_base_on_e=False):
    """The merge of latents, whose LSE is of base 2: (heads of the rank, tokens, latent)."""
    assert not is_lse_base_on_e and out.shape[:2] == lse.shape and lse.is_contiguous() and lse.dtype == torch.float32
    whole = torch.logsumexp(group.all_gather(lse[None], dim=0) * math.log(2), 0) / math.log(2)
    parts = out.float() * torch.exp2(lse - whole).nan_to_num(0)[..., None]
    return group.reduce_scatter(parts.transpose(0, 1).contiguous(), 0).to(out.dtype)


ATTENTION_BACKENDS = {}


def register_attention_backend(name):
    def decorator(function):
        ATTENTION_BACKENDS[name] = function
        return function

    return decorator


def install():
    """Puts modules of these names where `import` finds them."""
    contents = {
        "sglang": dict(__version__="0.5.23"),
        "sglang.srt": {},
        "sglang.srt.arg_groups": {},
        "sglang.srt.arg_groups.choices": dict(
            ATTENTION_BACKEND_CHOICES=["fa3"], DETERMINISTIC_ATTENTION_BACKEND_CHOICES=["fa3"],
            RADIX_SUPPORTED_DETERMINISTIC_ATTENTION_BACKEND=["fa3"],
        ),
        "sglang.srt.layers": {},
        "sglang.srt.layers.attention": {},
        "sglang.srt.layers.attention.attention_registry": dict(
            ATTENTION_BACKENDS=ATTENTION_BACKENDS, register_attention_backend=register_attention_backend
        ),
        "sglang.srt.layers.attention.base_attn_backend": dict(AttentionBackend=AttentionBackend),
        "sglang.srt.layers.attention.dsa": {},
        "sglang.srt.layers.attention.dsa.dsa_topk_backend": dict(TopkTransformMethod=TopkTransformMethod),
        "sglang.srt.layers.attention.dsa_backend": dict(DeepseekSparseAttnBackend=DeepseekSparseAttnBackend),
        "sglang.srt.layers.attention.minimax_sparse_backend": dict(
            MiniMaxSparseAttnBackend=MiniMaxSparseAttnBackend, MiniMaxSparseKVPool=MiniMaxSparseKVPool
        ),
        "sglang.srt.layers.attention.minimax_sparse_ops": {},
        _MINIMAX: dict(flash_prefill_with_gqa_share_sparse="SGLang's own", flash_decode_with_gqa_share_sparse="SGLang's own"),
        "sglang.srt.layers.dcp": dict(
            cp_lse_ag_out_rs_mha=cp_lse_ag_out_rs_mha, cp_lse_ag_out_rs_mla=cp_lse_ag_out_rs_mla
        ),
        "sglang.srt.layers.radix_attention": dict(AttentionType=AttentionType),
        "sglang.srt.mem_cache": {},
        "sglang.srt.mem_cache.memory_pool": dict(
            KVWriteLoc=KVWriteLoc, MHATokenToKVPool=MHATokenToKVPool, MLATokenToKVPool=MLATokenToKVPool,
            DSATokenToKVPool=DSATokenToKVPool, MiniMaxSparseKVPool=MiniMaxSparseKVPool
        ),
        "sglang.srt.models": {},
        "sglang.srt.models.deepseek_common": {},
        "sglang.srt.models.deepseek_common.attention_backend_handler": dict(
            AttentionBackendRegistry=AttentionBackendRegistry, handle_attention_dsa=handle_attention_dsa
        ),
        "sglang.srt.models.deepseek_common.utils": dict(FORWARD_ABSORB_CORE_ATTENTION_BACKENDS=["fa3", "flashinfer"]),
        "sglang.srt.runtime_context": dict(get_exec=None, get_parallel=None, get_spec=None),
    }
    for name, attributes in contents.items():
        module = sys.modules[name] = types.ModuleType(name)
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        vars(module).update(attributes, __path__=[], __spec__=spec)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
