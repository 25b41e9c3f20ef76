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
        "sglang.srt.layers.dcp": dict(
            cp_lse_ag_out_rs_mha=cp_lse_ag_out_rs_mha, cp_lse_ag_out_rs_mla=cp_lse_ag_out_rs_mla
        ),
        "sglang.srt.layers.radix_attention": dict(AttentionType=AttentionType),
        "sglang.srt.mem_cache": {},
        "sglang.srt.mem_cache.memory_pool": dict(
            KVWriteLoc=KVWriteLoc, MHATokenToKVPool=MHATokenToKVPool, MLATokenToKVPool=MLATokenToKVPool
        ),
        "sglang.srt.models": {},
        "sglang.srt.models.deepseek_common": {},
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
