"""FlashAttention-3 and -4 as separate packages, and vLLM's build of FlashAttention-3."""

import dataclasses
import functools
import importlib
import importlib.util
import pathlib

from .by_autograd import ByAutograd, Forward
from .contender import Contender, Runner, Unsupported, first_line, import_failure, missing, package_version
from .fp8_suites import COARSER, as_fp8, quantized
from .sparse_suites import LEFT_WINDOWS
from .timing import fastest, made_beforehand


def splits_of(requests, splits):
    """The useful values of `splits`: for prefill only the package's own choice, and none."""
    return splits if requests.max_seqlen_q == 1 else tuple(one for one in splits if one < 2)


def scheduled(get_scheduler_metadata, requests, inputs):
    """FlashAttention-3's schedule for a call over pages, with its own number of splits; engines compute it once for all
    layers."""
    varlen = requests.q_sequences == "varlen"
    return get_scheduler_metadata(
        requests.batch, requests.max_seqlen_q, requests.max_pages * requests.page_size, requests.heads_q,
        requests.heads_kv, requests.head_dim, inputs.seqused_k, qkv_dtype=inputs.q.dtype, headdim_v=requests.head_dim_v,
        cu_seqlens_q=inputs.cu_seqlens_q if varlen else None, page_size=requests.page_size,
        causal=requests.mask == "causal", num_splits=0)


def best_splits(variants):
    """A Runner of the fastest call in {number of splits (0: its own choice), or "scheduled": call}. Raises Unsupported
    when the build supports none."""
    try:
        splits, runner, refused = fastest({name: Runner(call) for name, call in variants.items()})
    except RuntimeError as error:
        if "does not support" in str(error):
            raise Unsupported(first_line(error)) from None
        raise
    return Runner(runner.call, detail=dict(num_splits=splits, **(dict(refused=refused) if refused else {})))


def full_blocks(cell, inputs):
    """A SparseCell's blocks for FlashAttention-4: the number and list of full blocks in each row of blocks, and no
    partial blocks."""
    import torch
    from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch

    blocks = inputs.blocks[None]
    counts = blocks.sum(-1, dtype=torch.int32)
    columns = blocks.to(torch.int32).argsort(dim=-1, descending=True, stable=True).to(torch.int32)
    return BlockSparseTensorsTorch(mask_block_cnt=torch.zeros_like(counts), mask_block_idx=torch.zeros_like(columns),
                                   full_block_cnt=counts, full_block_idx=columns, block_size=(cell.block, cell.block))


class FlashAttention3(Contender):
    name, label, color = "fa3", "FlashAttention-3", "#2f7fb5"
    modules = ("flash_attn_interface", "fa3_fwd_interface")
    packages = ("flash_attn_3", "fa3_fwd", "flash-attn-3")
    splits = (0, 1, 2, 4, 8, 16, 32)  # of the keys, in decoding; 0: its own choice
    scaling = "a scale for each batch entry and KV head"
    lse = dict(return_attn_probs=True)  # argument that requests the LSE
    MASKS = ("none", "causal", *LEFT_WINDOWS, "document", "causal_document")

    def absent(self):
        return missing(*self.modules) or import_failure(self.module())

    def module(self):
        return next(module for module in self.modules if missing(module) is None)

    def version(self):
        return package_version(*self.packages)

    def options(self, cell):
        """Keyword arguments for mask and score."""
        if cell.mask not in self.MASKS:
            raise Unsupported(f"no {cell.mask} mask")
        if cell.score in ("alibi", "bias"):
            raise Unsupported(f"no {cell.score}")
        options = dict(causal=cell.mask in ("causal", "causal_document"))
        if cell.mask in LEFT_WINDOWS:
            options["window_size"] = (cell.window, 0)
        if cell.score == "softcap":
            options["softcap"] = cell.softcap
        return options

    def with_lse(self, cell, inputs):
        interface = importlib.import_module(self.module())
        o, lse = interface.flash_attn_func(inputs.q, inputs.k, inputs.v, **self.options(cell), **self.lse)[:2]
        return o, lse, {}

    def make_sparse(self, cell, inputs):
        return self.make(cell, inputs)

    def make_fp8(self, cell, inputs):
        return Runner(self.attend_fp8(cell, *as_fp8(inputs)), coarser=COARSER)

    def make_quantized(self, cell, inputs):
        made = {name: quantized(getattr(inputs, name), cell.heads_kv) for name in "qkv"}
        descales = {f"{name}_descale": scales for name, (_, scales) in made.items()}
        return Runner(self.attend_fp8(cell, *(tensor for tensor, _ in made.values()), **descales))

    def attend_fp8(self, cell, q, k, v, **descales):
        """A call with fp8 q, k and v."""
        function, options = importlib.import_module(self.module()).flash_attn_func, self.options(cell)

        def call():
            out = function(q, k, v, **options, **descales)
            return out[0] if isinstance(out, tuple) else out

        return call

    def make(self, cell, inputs):
        options = self.options(cell)
        interface = importlib.import_module(self.module())
        if "document" in cell.mask:
            return self.packed(interface.flash_attn_varlen_func, cell, inputs, options)

        def caller(**more):
            q, k, v, function = inputs.q, inputs.k, inputs.v, interface.flash_attn_func

            def call():
                out = function(q, k, v, **options, **more)
                return out[0] if isinstance(out, tuple) else out

            return call

        if cell.seqlen_q > 1 or len(self.splits) == 1:
            return Runner(caller())
        splits, runner, _ = fastest({splits: Runner(caller(num_splits=splits)) for splits in self.splits})
        return Runner(runner.call, detail=dict(num_splits=splits))

    def serve(self, requests, inputs):
        interface = importlib.import_module(self.module())
        if requests.kv_sequences == "varlen":
            return self.varlen(interface.flash_attn_varlen_func, requests, inputs)
        q, k, v = inputs.shaped_q(requests), inputs.k, inputs.v
        options = dict(causal=requests.mask == "causal")
        if requests.q_sequences == "varlen":
            options.update(cu_seqlens_q=inputs.cu_seqlens_q, max_seqlen_q=requests.max_seqlen_q)
        if requests.kv_sequences == "paged":
            options.update(page_table=inputs.page_table, cache_seqlens=inputs.seqused_k)

        def caller(**more):
            return lambda: interface.flash_attn_with_kvcache(q, k, v, **options, **more).view(requests.output_shape())

        variants = {splits: caller(num_splits=splits) for splits in splits_of(requests, self.splits)}
        if requests.kv_sequences == "paged":
            plan = functools.cache(lambda: scheduled(interface.get_scheduler_metadata, requests, inputs))
            variants["scheduled"] = lambda: caller(num_splits=0, scheduler_metadata=plan())()
        return best_splits(variants)

    def merge(self, problem, inputs):
        import torch

        interface = importlib.import_module(self.module())
        if problem.dtype != "fp32" or not hasattr(interface, "flash_attn_combine"):
            raise Unsupported("it combines fp32 states only")
        o, lse = (t.unsqueeze(1) for t in (inputs.o, inputs.lse))  # a batch of one
        call = lambda: interface.flash_attn_combine(o, lse, out_dtype=torch.bfloat16)[0].squeeze(0)
        call()
        return Runner(call, detail=dict(call="flash_attn_combine"))

    def varlen(self, function, requests, inputs):
        """Computes packed requests."""
        q, k, v = inputs.q, inputs.k, inputs.v
        options = dict(causal=requests.mask == "causal", cu_seqlens_q=inputs.cu_seqlens_q,
                       cu_seqlens_k=inputs.cu_seqlens_k, max_seqlen_q=requests.max_seqlen_q,
                       max_seqlen_k=requests.max_seqlen_k)

        def call():
            out = function(q, k, v, **options)
            return out[0] if isinstance(out, tuple) else out

        return Runner(call, detail=dict(call="flash_attn_varlen_func"))

    def packed(self, function, cell, inputs, options):
        """Computes packed documents."""
        attend, (q, k, v) = self.attend_packed(function, cell, inputs, options), inputs.packed()
        return Runner(lambda: attend(q, k, v), detail=dict(call="flash_attn_varlen_func"))

    @staticmethod
    def attend_packed(function, cell, inputs, options):
        """A function of q, k and v (batch * seqlen, heads, head_dim); o as the cell's."""
        offsets, longest = inputs.document_offsets, inputs.longest_document
        lengths = dict(cu_seqlens_q=offsets, cu_seqlens_k=offsets, max_seqlen_q=longest, max_seqlen_k=longest)
        shape = (cell.batch, cell.seqlen_q, cell.heads_q, cell.head_dim_v)

        def attend(q, k, v):
            out = function(q, k, v, **lengths, **options)
            return (out[0] if isinstance(out, tuple) else out).view(shape)

        return attend


class FlashAttention4(ByAutograd, FlashAttention3):
    """FlashAttention's kernels in CuTe DSL; the first call of a kind compiles."""

    name, label, color = "fa4", "FlashAttention-4", "#12a5a0"
    modules = ("flash_attn.cute",)
    packages = ("flash-attn-4",)
    splits = (1,)  # its only value on Hopper
    lse = dict(return_lse=True)
    make_fp8 = make_quantized = None  # its fp8 needs later GPUs
    left_out = {suite: "it does not split the keys on Hopper, and compiles for long" for suite in
                ("decode", "paged", "mixed", "engine-shapes")}

    def module(self):
        return "flash_attn.cute.interface"

    def make_sparse(self, cell, inputs):
        """Only for blocks, as lists of full ones. Other such masks would need a CuTe DSL function."""
        if cell.mask != "blocks":
            return self.make(cell, inputs)
        interface = importlib.import_module(self.module())
        lists, detail = made_beforehand(inputs.q.device, lambda: full_blocks(cell, inputs))

        def call():
            out = interface.flash_attn_func(inputs.q, inputs.k, inputs.v, block_sparse_tensors=lists)
            return out[0] if isinstance(out, tuple) else out

        call()
        return Runner(call, detail=dict(call="flash_attn_func, block_sparse_tensors", **detail))

    def forward_of(self, cell, inputs):
        options, interface = self.options(cell), importlib.import_module(self.module())
        if cell.deterministic:
            options["deterministic"] = True
        if "document" in cell.mask:
            attend = self.attend_packed(interface.flash_attn_varlen_func, cell, inputs, options)
            return Forward(lambda q, k, v: attend(*(t.flatten(0, 1) for t in (q, k, v))),
                           detail=dict(call="flash_attn_varlen_func"))

        def call(q, k, v):
            out = interface.flash_attn_func(q, k, v, **options)
            return out[0] if isinstance(out, tuple) else out

        return Forward(call)

    def serve(self, requests, inputs):
        """Without pages: without splits of keys, it is measured only with prefill."""
        if requests.kv_sequences == "varlen":
            interface = importlib.import_module(self.module())
            return self.varlen(interface.flash_attn_varlen_func, requests, inputs)
        return self.serve_densely(requests, inputs)


class VllmFlashAttention3(Contender):
    """FlashAttention-3 from the vLLM package, without vLLM: it supports pages of any size, unlike some builds. Called
    as by vLLM, with varlen queries."""

    name, label, color = "fa3_vllm", "FlashAttention-3 (vLLM)", "#7fb4d8"
    LIBRARY = "vllm_flash_attn/_vllm_fa3_C.abi3.so"
    kv_dtypes = ("bf16", "fp8_e4m3")
    FP8_COARSER = 16  # needs e4m3 queries, too, with 4 bits fewer than bf16

    def shared_object(self):
        """The library's path in the vllm package, which is not imported; None: not installed."""
        spec = importlib.util.find_spec("vllm")
        places = (pathlib.Path(place) / self.LIBRARY for place in (spec.submodule_search_locations if spec else ()))
        return next((path for path in places if path.is_file()), None)

    def absent(self):
        path = self.shared_object()
        if path is None:
            return f"no package vllm with {self.LIBRARY} is installed"
        try:
            self.operators()
        except Exception as error:  # binaries for another PyTorch fail in many ways
            return f"{self.LIBRARY} cannot be loaded: {first_line(error)}"
        return None

    def operators(self):
        import torch

        torch.ops.load_library(str(self.shared_object()))
        return torch.ops._vllm_fa3_C

    def version(self):
        return package_version("vllm")

    def serve(self, requests, inputs):
        if requests.kv_sequences != "paged":
            raise Unsupported("measured over pages only")
        operators, q, descale, coarser = self.operators(), inputs.q, None, 1
        if inputs.kv_descale is not None:
            q, coarser = inputs.q_in_fp8(), self.FP8_COARSER
            descale = inputs.kv_descale.expand(requests.batch, requests.heads_kv)
        options = dict(
            k_new=None, v_new=None, q_v=None, out=None, cu_seqlens_q=inputs.cu_seqlens_q, cu_seqlens_k=None,
            cu_seqlens_k_new=None, seqused_q=None, seqused_k=inputs.seqused_k, max_seqlen_q=requests.max_seqlen_q,
            max_seqlen_k=requests.max_seqlen_k, page_table=inputs.page_table, kv_batch_idx=None, leftpad_k=None,
            rotary_cos=None, rotary_sin=None, seqlens_rotary=None, q_descale=descale, k_descale=descale,
            v_descale=descale, softmax_scale=requests.head_dim ** -0.5, is_causal=requests.mask == "causal", window_size_left=-1,
            window_size_right=-1, softcap=0.0, is_rotary_interleaved=True, pack_gqa=None, sm_margin=0, s_aux=None,
            cp_world_size=1, cp_rank=0, cp_tot_seqused_k=None)

        def caller(num_splits, scheduler_metadata=None):
            return lambda: operators.fwd(q, inputs.k, inputs.v, num_splits=num_splits,
                                         scheduler_metadata=scheduler_metadata, **options)[0]

        variants = {splits: caller(splits) for splits in splits_of(requests, FlashAttention3.splits)}
        plan = functools.cache(lambda: operators.get_scheduler_metadata(
            requests.batch, requests.max_seqlen_q, requests.max_seqlen_k, requests.heads_q, requests.heads_kv,
            requests.head_dim, requests.head_dim_v, q.dtype, inputs.seqused_k, inputs.cu_seqlens_q, None, None,
            None, None, requests.page_size, 0, requests.mask == "causal", -1, -1, False, 0, None, 0))
        variants["scheduled"] = lambda: caller(0, plan())()
        return dataclasses.replace(best_splits(variants), coarser=coarser)
