"""Modules that FlashAttention-4's tests import: their helpers, and this library's functions in place of kernels."""

import importlib.util
import sys
import types

import jit_attention as ja
import torch
from jit_attention.flash_attn import problem, v4
from jit_attention.torch import attention
from scores import score_of


def install(checkout):
    """Puts stand-ins for flash_attn.cute and cutlass into sys.modules; the tests' helpers come from the checkout."""
    jit = lambda function: function  # scores are identified by name, never called
    cute = module("cutlass.cute", jit=jit)
    math = module("cutlass._mlir.dialects.math")
    module("cutlass", Int32=int, Float32=float, cute=cute,
           _mlir=module("cutlass._mlir", dialects=module("cutlass._mlir.dialects", math=math)))
    interface = module("flash_attn.cute.interface", flash_attn_func=flash_attn_func,
                       flash_attn_varlen_func=flash_attn_varlen_func, _flash_attn_fwd=forward, _flash_attn_bwd=backward,
                       get_scheduler_metadata=lambda **_: None, _flash_attn_bwd_sparse_mla=None,
                       _tile_size_bwd_sm90=None)
    module("flash_attn.cute.cache_utils", JITCache=None)
    module("flash_attn.cute.block_sparsity", BlockSparseTensorsTorch=None)
    module("flash_attn", cute=module("flash_attn.cute", interface=interface))
    spec = importlib.util.spec_from_file_location("flash_attn.cute.testing", checkout / "flash_attn/cute/testing.py")
    helpers = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = helpers
    spec.loader.exec_module(helpers)


def module(name, **contents):
    made = types.ModuleType(name)
    made.__dict__.update(contents, __path__=[])
    sys.modules[name] = made
    return made


def flash_attn_func(q, k, v, *, score_mod=None, score_mod_bwd=None, aux_tensors=None, aux_scalars=None, **options):
    if score_mod is None:
        return v4.flash_attn_func(q, k, v, **options)
    options.pop("pack_gqa", None)  # a hint
    return attention(q, k, v, return_lse=True, **score_of(score_mod, aux_tensors, aux_scalars), **options)


flash_attn_varlen_func = v4.flash_attn_varlen_func


def forward(q, k, v, *, out=None, lse=None, return_lse=False, score_mod=None, aux_tensors=None, aux_scalars=None,
            window_size_left=None, window_size_right=None, tile_mn=None, pack_gqa=None, **options):
    """FlashAttention-4's forward, without gradients. `tile_mn` and `pack_gqa` are hints."""
    with torch.no_grad():
        if score_mod is None:
            o, lse = v4.flash_attn_varlen_func(q, k, v, window_size=(window_size_left, window_size_right),
                                               return_lse=True, **options)
        else:
            o, lse = attention(q, k, v, return_lse=True, **score_of(score_mod, aux_tensors, aux_scalars),
                               **reading(options))
    if out is not None:
        out.copy_(o)
    return o if out is None else out, lse if return_lse else None


def reading(options):
    """The sequence arguments of a call with a score; refuses others."""
    known = "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "page_table", "softmax_scale"
    hints = "max_seqlen_q", "max_seqlen_k"
    unknown = [name for name in options if name not in (*known, *hints)]
    if unknown:
        raise TypeError(f"{unknown[0]}: is not known beside a score_mod")
    return {name: value for name, value in options.items() if name in known}


def backward(q, k, v, out, dout, lse, softmax_scale=None, causal=False, softcap=0.0, *, window_size_left=None,
             window_size_right=None, deterministic=False, dq=None, dk=None, dv=None, score_mod=None,
             score_mod_bwd=None, aux_tensors=None, aux_scalars=None, dlse=None, pack_gqa=None):
    """FlashAttention-4's backward: `jit_attention.attention_backward`."""
    given = problem.problem(softmax_scale=softmax_scale, causal=causal, softcap=softcap,
                            window_size=(window_size_left, window_size_right), window_may_shift=True)
    given.pop("sinks")
    if score_mod is not None:
        given.update(score_of(score_mod, aux_tensors, aux_scalars))
    tensors = [tensor.detach() for tensor in (dout, q, k, v, out, lse)]
    gradients = ja.attention_backward(*tensors, **given, dq=dq, dk=dk, dv=dv, dlse=dlse, deterministic=deterministic)
    return tuple(given or made for given, made in zip((dq, dk, dv), gradients)) if dq is None else (dq, dk, dv)
