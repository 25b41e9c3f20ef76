"""Peers that are packages of their own: FlashAttention-3 and -4, and FlashInfer."""

import importlib
import statistics

from .contender import Contender, Runner, Unsupported, import_failure, missing, package_version
from .timing import sample_cold


class FlashAttention3(Contender):
    name, label, color = "fa3", "FlashAttention-3", "#2f7fb5"
    modules = ("flash_attn_interface", "fa3_fwd_interface")
    packages = ("flash_attn_3", "fa3_fwd", "flash-attn-3")
    splits = (0, 1, 2, 4, 8, 16, 32)  # of the keys, in decoding; 0: its own choice
    lse = dict(return_attn_probs=True)  # the argument that asks for the LSE

    def absent(self):
        return missing(*self.modules) or import_failure(self.module())

    def module(self):
        return next(module for module in self.modules if missing(module) is None)

    def version(self):
        return package_version(*self.packages)

    def options(self, cell):
        """Arguments that say mask and score."""
        if cell.mask == "prefix":
            raise Unsupported("no prefix mask")
        if cell.score == "alibi":
            raise Unsupported("no alibi")
        options = dict(causal=cell.mask in ("causal", "causal_document"))
        if cell.mask == "window":
            options["window_size"] = (cell.window, 0)
        if cell.score == "softcap":
            options["softcap"] = cell.softcap
        return options

    def with_lse(self, cell, inputs):
        interface = importlib.import_module(self.module())
        o, lse = interface.flash_attn_func(inputs.q, inputs.k, inputs.v, **self.options(cell), **self.lse)[:2]
        return o, lse, {}

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
        runners = {splits: Runner(caller(num_splits=splits)) for splits in self.splits}
        times = sample_cold(runners, seconds=0.1)
        best = min(times, key=lambda splits: statistics.median(times[splits]))
        return Runner(runners[best].call, detail=dict(num_splits=best))

    def packed(self, function, cell, inputs, options):
        """Documents laid end to end."""
        q, k, v = inputs.packed()
        offsets, longest = inputs.document_offsets, inputs.longest_document
        lengths = dict(cu_seqlens_q=offsets, cu_seqlens_k=offsets, max_seqlen_q=longest, max_seqlen_k=longest)
        shape = (cell.batch, cell.seqlen_q, cell.heads_q, cell.head_dim_v)

        def call():
            out = function(q, k, v, **lengths, **options)
            return (out[0] if isinstance(out, tuple) else out).view(shape)

        return Runner(call, detail=dict(call="flash_attn_varlen_func"))


class FlashAttention4(FlashAttention3):
    """FlashAttention's kernels in CuTe DSL; the first call of a kind compiles."""

    name, label, color = "fa4", "FlashAttention-4", "#12a5a0"
    modules = ("flash_attn.cute",)
    packages = ("flash-attn-4",)
    splits = (1,)  # it has no others on Hopper
    lse = dict(return_lse=True)

    def module(self):
        return "flash_attn.cute.interface"


class FlashInfer(Contender):
    """FlashInfer's ragged prefill and paged decode; its plan() is made beforehand and is not timed."""

    name, label, color = "flashinfer", "FlashInfer", "#a05a9c"
    WORKSPACE_BYTES = 512 << 20
    PAGE = 16
    HEAD_DIMS = ((64, 64), (128, 128), (192, 128), (256, 256))

    def absent(self):
        return missing("flashinfer") or import_failure("flashinfer")

    def version(self):
        return package_version("flashinfer-python", "flashinfer")

    def make(self, cell, inputs):
        if (cell.head_dim, cell.head_dim_v) not in self.HEAD_DIMS:
            raise Unsupported(f"no head_dim {cell.head_dim}/{cell.head_dim_v}")
        return self.decode(cell, inputs) if cell.seqlen_q == 1 else self.prefill(cell, inputs)

    def workspace(self, device):
        import torch

        return torch.zeros(self.WORKSPACE_BYTES, dtype=torch.uint8, device=device)

    def prefill(self, cell, inputs):
        import flashinfer
        import torch

        q, k, v = inputs.packed()
        if "document" in cell.mask:
            offsets_q = offsets_kv = inputs.document_offsets
        else:
            steps = torch.arange(cell.batch + 1, device=q.device, dtype=torch.int32)
            offsets_q, offsets_kv = steps * cell.seqlen_q, steps * cell.seqlen_kv
        options = dict(causal=cell.mask in ("causal", "causal_document", "window"))
        if cell.mask == "window":
            options["window_left"] = cell.window
        elif cell.mask == "prefix":
            rows = torch.arange(cell.seqlen_q, device=q.device)[:, None]
            keep = cell.keep(rows, torch.arange(cell.seqlen_kv, device=q.device)[None])
            options["custom_mask"] = keep.flatten().repeat(cell.batch)
        if cell.score == "softcap":
            options["logits_soft_cap"] = cell.softcap
        elif cell.score == "alibi":
            options["pos_encoding_mode"] = "ALIBI"
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(self.workspace(q.device), "NHD")
        wrapper.plan(offsets_q, offsets_kv, cell.heads_q, cell.heads_kv, cell.head_dim, cell.head_dim_v,
                     q_data_type=q.dtype, kv_data_type=q.dtype, **options)
        shape = (cell.batch, cell.seqlen_q, cell.heads_q, cell.head_dim_v)

        def call():
            return wrapper.run(q, k, v).view(shape)

        call()
        return Runner(call, detail=dict(call="BatchPrefillWithRaggedKVCacheWrapper", plan="made beforehand"))

    def decode(self, cell, inputs):
        import flashinfer
        import torch

        if cell.mask != "none" or cell.score != "none":
            raise Unsupported("measured without mask and score only in decoding")
        if cell.seqlen_kv % self.PAGE:
            raise Unsupported(f"seqlen_kv is no multiple of the page size {self.PAGE}")
        device, pages = inputs.q.device, cell.seqlen_kv // self.PAGE
        q = inputs.q[:, 0]
        paged = tuple(t.view(cell.batch * pages, self.PAGE, cell.heads_kv, t.shape[-1]) for t in (inputs.k, inputs.v))
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(self.workspace(device), "NHD",
                                                                use_tensor_cores=cell.gqa_ratio >= 4)
        wrapper.plan(torch.arange(cell.batch + 1, device=device, dtype=torch.int32) * pages,
                     torch.arange(cell.batch * pages, device=device, dtype=torch.int32),
                     torch.full((cell.batch,), self.PAGE, device=device, dtype=torch.int32),
                     cell.heads_q, cell.heads_kv, cell.head_dim, self.PAGE, q_data_type=q.dtype, kv_data_type=q.dtype)

        def call():
            return wrapper.run(q, paged).unsqueeze(1)

        call()
        return Runner(call, detail=dict(call="BatchDecodeWithPagedKVCacheWrapper", plan="made beforehand"))
