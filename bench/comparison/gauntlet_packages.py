"""Separate packages in the cases of tests/gauntlet: flash-attention 2, 3 and 4, FlashInfer, xFormers."""

import importlib
import math

from failures.interface import NotOffered

from .contender import Contender, import_failure, missing, package_version
from .flash_attention_peers import FlashAttention3, FlashAttention4
from .flashinfer_peers import FlashInfer, workspace
from .gauntlet_torch import TorchLibrary

OPEN = (-1, -1)


class Package(Contender):
    """A contender that only reports a package's presence and version."""

    def __init__(self, name, label, package, module):
        self.name, self.label, self.package, self.module = name, label, package, module

    def absent(self):
        return missing(self.module) or import_failure(self.module)

    def version(self):
        return package_version(self.package)


class Flash(TorchLibrary):
    """Common base of flash-attention's versions."""

    FIELDS = frozenset({"causal", "window", "softcap", "deterministic", "cu_seqlens_q", "cu_seqlens_k"})
    MODULE = ""

    def attend(self, problem, t):
        interface = importlib.import_module(self.MODULE)
        options = self.options(problem, t)
        if "page_table" in t:
            return self.over_pages(interface, problem, t, options)
        if "cu_seqlens_q" not in t:
            if "seqused_k" in t:
                return self.over_cache(interface, problem, t, options)
            return self.told(interface.flash_attn_func(t["q"], t["k"], t["v"], **options))
        return self.told(interface.flash_attn_varlen_func(t["q"], t["k"], t["v"], **self.boundaries(problem, t), **options))

    def boundaries(self, problem, t):
        return dict(cu_seqlens_q=t["cu_seqlens_q"], cu_seqlens_k=t["cu_seqlens_k"], max_seqlen_q=t["q"].shape[0],
                    max_seqlen_k=t["k"].shape[0])

    def options(self, problem, t):
        return dict(softmax_scale=problem.softmax_scale, causal=problem.causal, window_size=problem.window or OPEN,
                    softcap=problem.softcap, deterministic=problem.deterministic, return_attn_probs=True)

    def over_pages(self, interface, problem, t, options):
        raise NotOffered("no pages")

    def over_cache(self, interface, problem, t, options):
        raise NotOffered("no lengths of dense keys")

    def told(self, result):
        return result[0], result[1]


class Flash2(Flash):
    FIELDS = Flash.FIELDS | {"alibi_slopes", "page_table", "seqused_k"}
    MODULE = "flash_attn.flash_attn_interface"

    def options(self, problem, t):
        return super().options(problem, t) | dict(alibi_slopes=t.get("alibi_slopes"))

    def boundaries(self, problem, t):
        if "seqused_k" in t:
            raise NotOffered("no lengths beside boundaries")
        return super().boundaries(problem, t)

    def over_pages(self, interface, problem, t, options):
        lengths = t["seqused_k"].cumsum(0).int()
        cu_k = importlib.import_module("torch").nn.functional.pad(lengths, (1, 0)).int()
        return self.told(interface.flash_attn_varlen_func(
            t["q"], t["k"], t["v"], t["cu_seqlens_q"], cu_k, t["q"].shape[0], int(t["seqused_k"].max()),
            block_table=t["page_table"], **options))

    def over_cache(self, interface, problem, t, options):
        for name in ("deterministic", "return_attn_probs"):
            options.pop(name)
        return interface.flash_attn_with_kvcache(t["q"], t["k"], t["v"], cache_seqlens=t["seqused_k"],
                                                 return_softmax_lse=True, num_splits=problem.num_splits, **options)


class Flash3(Flash):
    FIELDS = Flash.FIELDS | {"page_table", "seqused_k", "seqused_q", "batch_invariant", "cache_leftpad"}

    @property
    def MODULE(self):
        return self.contender.module()

    def options(self, problem, t):
        splits = 1 if problem.batch_invariant else problem.num_splits
        return super().options(problem, t) | (dict(num_splits=splits) if splits else {})

    def boundaries(self, problem, t):
        used = {name: t[name] for name in ("seqused_q", "seqused_k") if name in t}
        return super().boundaries(problem, t) | used

    def over_pages(self, interface, problem, t, options):
        return self.cached(interface, t, options, page_table=t["page_table"], cu_seqlens_q=t["cu_seqlens_q"],
                           max_seqlen_q=t["q"].shape[0])

    def over_cache(self, interface, problem, t, options):
        return self.cached(interface, t, options)

    def cached(self, interface, t, options, **where):
        for name in ("deterministic", "return_attn_probs"):
            options.pop(name)
        pads = dict(cache_leftpad=t["cache_leftpad"]) if "cache_leftpad" in t else {}
        return self.told(interface.flash_attn_with_kvcache(t["q"], t["k"], t["v"], cache_seqlens=t["seqused_k"],
                                                           return_softmax_lse=True, **where, **pads, **options))


class Flash4(Flash):
    FIELDS = Flash.FIELDS | {"page_table", "seqused_k", "seqused_q", "sinks", "batch_invariant"}
    MODULE = "flash_attn.cute.interface"

    def options(self, problem, t):
        if min(problem.window or OPEN) < -1:
            raise NotOffered("sides below −1 mean what they say there")
        sides = tuple(None if side < 0 else side for side in problem.window or OPEN)
        options = dict(softmax_scale=problem.softmax_scale, causal=problem.causal, window_size=sides, softcap=problem.softcap,
                       deterministic=problem.deterministic, return_lse=True)
        return options | (dict(learnable_sink=t["sinks"].to(t["q"].dtype)) if "sinks" in t else {})

    def boundaries(self, problem, t):
        used = {name: t[name] for name in ("seqused_q", "seqused_k") if name in t}
        return super().boundaries(problem, t) | used

    def over_pages(self, interface, problem, t, options):
        return self.told(interface.flash_attn_varlen_func(
            t["q"], t["k"], t["v"], cu_seqlens_q=t["cu_seqlens_q"], seqused_k=t["seqused_k"], page_table=t["page_table"],
            max_seqlen_q=t["q"].shape[0], max_seqlen_k=t["page_table"].shape[1] * t["k"].shape[1], **options))

    def over_cache(self, interface, problem, t, options):
        return self.told(interface.flash_attn_varlen_func(t["q"], t["k"], t["v"], seqused_k=t["seqused_k"], **options))


class FlashInferLibrary(TorchLibrary):
    """FlashInfer's prefill wrappers, over varlen keys and pages; a call includes plan(). LSE has base 2."""

    FIELDS = frozenset({"causal", "window", "softcap", "cu_seqlens_q", "cu_seqlens_k", "seqused_k", "page_table"})

    def attend(self, problem, t):
        import flashinfer
        import torch

        if min(problem.window or OPEN) < -1:
            raise NotOffered("no sides below −1")
        if problem.window and problem.window[1] >= 0 and not problem.causal:
            raise NotOffered("no window to the right")
        q, k, v, device = t["q"], t["k"], t["v"], t["q"].device
        heads = (q.shape[-2], k.shape[-2])
        options = dict(causal=problem.causal, window_left=problem.window[0] if problem.window else -1,
                       logits_soft_cap=problem.softcap or None, sm_scale=problem.softmax_scale, q_data_type=q.dtype)
        if "page_table" in t:
            size, used = k.shape[1], t["seqused_k"]
            counts = (used + size - 1) // size
            starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
            indices = torch.cat([row[:count] for row, count in zip(t["page_table"], counts.tolist())])
            wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(device), "NHD")
            wrapper.plan(t["cu_seqlens_q"], starts, indices, (used - 1) % size + 1, *heads, q.shape[-1], size, **options)
            return self.natural(wrapper.run(q, (k, v), return_lse=True))
        if "seqused_k" in t:
            raise NotOffered("no lengths beside boundaries")
        batch, dense = q.shape[0], "cu_seqlens_q" not in t
        if dense:
            ends = [torch.arange(batch + 1, device=device, dtype=torch.int32) * x.shape[1] for x in (q, k)]
            flat = [x.flatten(0, 1) for x in (q, k, v)]
            if any(one.data_ptr() != x.data_ptr() for one, x in zip(flat, (q, k, v))):
                raise NotOffered("no dense arrays whose rows are not evenly apart")
        else:
            ends, flat = [t["cu_seqlens_q"], t["cu_seqlens_k"]], [q, k, v]
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace(device), "NHD")
        wrapper.plan(*ends, *heads, q.shape[-1], head_dim_vo=v.shape[-1], **options)
        o, lse = self.natural(wrapper.run(*flat, return_lse=True))
        if dense:
            o, lse = o.view(*q.shape[:3], v.shape[-1]), lse.view(heads[0], batch, q.shape[1]).transpose(0, 1)
        return o, lse

    def replayed(self, problem, other):
        raise NotOffered("plan() reads lengths on the host")

    def queued(self, problems):
        raise NotOffered("plan() reads lengths on the host")

    def on_streams(self, problems):
        raise NotOffered("plan() reads lengths on the host")

    @staticmethod
    def natural(result):
        o, lse = result
        return o, lse.T * math.log(2)

    def merge(self, outs, lses):
        import flashinfer

        place = self.placing.place
        (v_a, v_b), (s_a, s_b) = map(place, outs), (place(x).T.contiguous() / math.log(2) for x in lses)
        o, lse = flashinfer.merge_state(v_a, s_a, v_b, s_b)
        return self.placing.fetch(o), self.placing.fetch(lse.T * math.log(2))


class XFormers(TorchLibrary):
    """memory_efficient_attention, with masks as tensors."""

    FIELDS = frozenset({"causal", "bias"})

    def attend(self, problem, t):
        import torch
        from xformers.ops import LowerTriangularMask, memory_efficient_attention

        q, k, v = t["q"], t["k"], t["v"]
        if problem.ratio > 1:
            k, v = (x.repeat_interleave(problem.ratio, 2) for x in (k, v))
        if problem.causal and ("bias" in t or q.shape[1] != k.shape[1]):
            raise NotOffered("a causal mask of another shape is no case here")
        if problem.d_bias:
            raise NotOffered("no gradient of a bias that is broadcast")
        mask = LowerTriangularMask() if problem.causal else None
        if "bias" in t:
            if not torch.equal(t["bias"].to(q.dtype).float(), t["bias"].float()):
                raise NotOffered("no bias beyond q's type")
            room = -(-k.shape[1] // 8) * 8  # rows with the required alignment
            mask = torch.zeros(q.shape[0], q.shape[2], q.shape[1], room, dtype=q.dtype, device=q.device)[..., : k.shape[1]]
            mask[...] = t["bias"].to(q.dtype)
        return memory_efficient_attention(q, k, v, attn_bias=mask, scale=problem.softmax_scale), None


def libraries():
    """{name: function that creates a library}."""
    return {"fa2": lambda: Flash2(Package("fa2", "flash-attention 2", "flash-attn", Flash2.MODULE)),
            "fa3": lambda: Flash3(FlashAttention3()), "fa4": lambda: Flash4(FlashAttention4()),
            "flashinfer": lambda: FlashInferLibrary(FlashInfer()),
            "xformers": lambda: XFormers(Package("xformers", "xFormers", "xformers", "xformers.ops"))}
