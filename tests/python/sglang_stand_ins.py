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
    start_layer = 0

    def get_key_buffer(self, layer_id):
        return self.k_buffer[layer_id - self.start_layer].view(self.dtype)

    def get_value_buffer(self, layer_id):
        return self.v_buffer[layer_id - self.start_layer].view(self.dtype)

    def get_raw_kv_buffer(self, layer_id):
        numbers, scales = (self.k_buffer, self.v_buffer), (self.k_scale_buffer, self.v_scale_buffer)
        here = layer_id - self.start_layer
        return *(each[here] for each in numbers), *(each[here].view(torch.float8_e4m3fn) for each in scales)


class KVCacheAttentionPhase(str, enum.Enum):
    PREFILL = "prefill"
    DECODE = "decode"


class KVCacheAttentionAccessKind(str, enum.Enum):
    PLAIN = "plain"
    DEQUANT_WORKSPACE = "dequant_workspace"
    NATIVE_FP4 = "native_fp4"


@dataclass(frozen=True)
class KVCacheBackendMatcher:
    exact: frozenset = frozenset()


@dataclass(frozen=True)
class KVCacheAttentionAccess:
    phase: KVCacheAttentionPhase
    kind: KVCacheAttentionAccessKind
    backend_matcher: KVCacheBackendMatcher
    storage_dtype: object = None
    scale_recipe: str | None = None


KV_CACHE_ATTENTION_ACCESS_REGISTRY = {"nvfp4": (), "fp4_mx_block16": ()}


class NVFP4KVCacheMethod:
    """Buffers of slots: scales in their order, unless kernels of SM100 read them."""

    name = "nvfp4"

    def __init__(self, num_layers, device, page_size=16, native_scale_layout=None):
        self.k_scales_gpu, self.v_scales_gpu = (torch.ones(num_layers, device=device) for _ in range(2))
        self.has_native_layout = native_scale_layout

    def configure_attention_backends(self, prefill, decode):
        phases = zip(KVCacheAttentionPhase, (prefill, decode))
        self.accesses = [access for phase, name in phases for access in KV_CACHE_ATTENTION_ACCESS_REGISTRY[self.name]
                         if access.phase == phase and name in access.backend_matcher.exact]

    def create_buffers(self, size, head_num, head_dim, layer_num, device):
        def zeros(columns):
            return [torch.zeros(size, head_num, columns, dtype=torch.uint8, device=device) for _ in range(layer_num)]

        is_native = any(access.kind == KVCacheAttentionAccessKind.NATIVE_FP4 for access in self.accesses)
        has_scales = is_native and not self.has_native_layout
        return dict(k_buffer=zeros(head_dim // 2), v_buffer=zeros(head_dim // 2), store_dtype=torch.uint8,
                    k_scale_buffer=zeros(head_dim // 16) if has_scales else None,
                    v_scale_buffer=zeros(head_dim // 16) if has_scales else None)


RESOLUTION_HOOKS = {}


def register_resolution_hook(name):
    def decorator(function):
        RESOLUTION_HOOKS.setdefault(name, []).append(function)
        return function

    return decorator


def run_hook(builtin, server_args):
    step = builtin
    for hook in RESOLUTION_HOOKS.get(builtin.__name__, ()):
        step = lambda args, hook=hook, step=step: hook(args, step)  # noqa: E731
    step(server_args)


def attention_backends_of(view):
    return view.prefill_attention_backend or view.attention_backend, view.decode_attention_backend or view.attention_backend


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
        "sglang.srt.arg_groups.overrides": dict(attention_backends_of=attention_backends_of, resolved_view=lambda args: args,
                                                resolving_view=lambda args: args),
        "sglang.srt.arg_groups.resolution_hooks": dict(register_resolution_hook=register_resolution_hook, run_hook=run_hook),
        "sglang.srt.layers": {},
        "sglang.srt.layers.quantization": {},
        "sglang.srt.layers.quantization.fp4_kv_cache_quant_method": dict(
            KV_CACHE_ATTENTION_ACCESS_REGISTRY=KV_CACHE_ATTENTION_ACCESS_REGISTRY,
            KVCacheAttentionAccess=KVCacheAttentionAccess, KVCacheAttentionAccessKind=KVCacheAttentionAccessKind,
            KVCacheAttentionPhase=KVCacheAttentionPhase, KVCacheBackendMatcher=KVCacheBackendMatcher,
            NVFP4KVCacheMethod=NVFP4KVCacheMethod),
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
