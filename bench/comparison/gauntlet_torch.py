"""Libraries for PyTorch tensors in the cases of tests/gauntlet: common code, and PyTorch's own attention."""

import contextlib
import dataclasses
import functools
import inspect
import threading

from failures.interface import Library, NotOffered, Refused
from failures.placing import OnGpu
from failures.problem import Outcome, Problem

from .contender import Contender, Unsupported, first_line, missing
from .torch_peers import CuDnn, FlashAttention2, Flex, _ScaledDotProductAttention, torch_version

DEFAULTS = {field.name: field.default for field in dataclasses.fields(Problem)}
ALWAYS = {"q", "k", "v", "d_o", "only", "softmax_scale", "num_splits", "d_bias", "d_sinks"}  # num_splits is a hint
LOST = ("CUDA error", "CUDNN_STATUS_EXECUTION", "illegal memory", "device-side assert")


def asked(problem):
    """Names of the fields set in a problem."""
    return {name for name, value in vars(problem).items() if name in DEFAULTS and value is not DEFAULTS[name]
            and not (isinstance(value, (int, float)) and value == DEFAULTS[name])}


class TorchLibrary(Library):
    """A Library based on `attend(problem, t)`, which returns (o, lse or None) for the problem's tensors t by name.

    contender: its presence and version. FIELDS: problem fields that it supports.
    """

    FIELDS = frozenset()

    def __init__(self, contender: Contender, device="cuda"):
        self.contender, self.placing = contender, OnGpu(device)

    def attend(self, problem, t):
        raise NotImplementedError

    def context(self, problem):
        """The context around calls."""
        return contextlib.nullcontext()

    def run(self, problem, t):
        """attend(), with the library's refusals as Refused and a lost GPU as an error."""
        with self.refusals():
            return self.attend(problem, t)

    @contextlib.contextmanager
    def refusals(self):
        try:
            yield
        except NotOffered:
            raise
        except Exception as error:
            if any(text in str(error) for text in LOST):
                raise
            raise Refused(f"{type(error).__name__}: {first_line(error)}") from None

    def placed(self, problem):
        """A problem's arrays on the GPU, by name. Raises NotOffered for features that the library lacks."""
        if lacking := asked(problem) - self.FIELDS - ALWAYS:
            raise NotOffered(f"no {', '.join(sorted(lacking))}")
        return {name: self.placing.place(value) for name, value in vars(problem).items() if hasattr(value, "strides")}

    def forward(self, problem):
        t = self.placed(problem)
        with self.context(problem):
            return self.fetched(problem, *self.run(problem, t))

    def gradients(self, problem):
        t = self.placed(problem)
        wanted = ["q", "k", "v", *["bias"] * problem.d_bias, *["sinks"] * problem.d_sinks]
        leaves = {name: t[name].detach().requires_grad_() for name in wanted}
        with self.context(problem):
            o, lse = self.run(problem, t | leaves)
            with self.refusals():
                found = self.placing.torch.autograd.grad(o, list(leaves.values()), t["d_o"])
        outcome = self.fetched(problem, o, lse)
        outcome.dq, outcome.dk, outcome.dv = (self.placing.fetch(x, problem.only) for x in found[:3])
        for name, gradient in list(zip(wanted, found))[3:]:
            setattr(outcome, f"d_{name}", self.placing.fetch(gradient))
        return outcome

    def replayed(self, problem, other):
        t, changed = self.placed(problem), self.placed(other)
        with self.context(problem):
            self.run(problem, t)  # raises refusals before a capture
            return self.fetched(other, *self.placing.replay(lambda: self.run(problem, t), t, changed))

    def queued(self, problems):
        placed = [self.placed(problem) for problem in problems]
        with self.context(problems[0]):
            results = [self.run(problem, t) for problem, t in zip(problems, placed)]
        return [self.fetched(problem, *result) for problem, result in zip(problems, results)]

    def on_streams(self, problems):
        placed = [self.placed(problem) for problem in problems]
        calls = [functools.partial(self.run, problem, t) for problem, t in zip(problems, placed)]
        with self.context(problems[0]):
            calls[0]()
            results = self.placing.on_streams(calls)
        return [self.fetched(problem, *result) for problem, result in zip(problems, results)]

    def chained(self, problem, count):
        t = self.placed(problem)
        with self.context(problem):
            for _ in range(count):
                o, lse = self.run(problem, t)
                t = t | dict(q=o)
        return self.fetched(problem, o, lse)

    def fetched(self, problem, o, lse=None):
        fetch = functools.partial(self.placing.fetch, only=problem.only)
        return Outcome(o=fetch(o), lse=None if lse is None else fetch(lse))


def seen(problem, t):
    """bool (batch or 1, heads or 1, seqlen_q, seqlen_kv): keys that a dense problem's queries see; None: all."""
    import torch

    m, n, device = t["q"].shape[1], t["k"].shape[1], t["q"].device
    if min(problem.window or (0,)) < -1:
        raise NotOffered("no sides below −1")
    if problem.blocks is not None and len(problem.blocks[0]) * problem.blocks[1] < max(m, n):
        raise NotOffered("no blocks of its own")
    place = torch.arange(m, device=device)[:, None] + n - m
    key, keep = torch.arange(n, device=device), None
    both = lambda first, second: second if first is None else first & second
    if problem.causal:
        keep = key <= place
    for side, bound in zip((-1, 1), problem.window or (-1, -1)):
        if bound >= 0:
            keep = both(keep, side * (key - place) <= bound)
    if problem.blocks is not None:
        table = torch.from_numpy(problem.blocks[0]).to(device)
        for axis in (0, 1):
            table = table.repeat_interleave(problem.blocks[1], axis)
        keep = both(keep, table[:m, :n])
    keep = None if keep is None else keep[None, None]
    if "keep" in t:
        keep = both(keep, t["keep"])
    return keep


class SharedContext:
    """A process-wide context shared by threads: the first one enters it, the last one leaves it."""

    def __init__(self, make):
        self._make, self._lock, self._users, self._entered = make, threading.Lock(), 0, None

    def __enter__(self):
        with self._lock:
            if self._users == 0:
                self._entered = self._make()
                self._entered.__enter__()
            self._users += 1

    def __exit__(self, *error):
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._entered.__exit__(None, None, None)


@contextlib.contextmanager
def deterministic_algorithms():
    import torch

    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


class Sdpa(TorchLibrary):
    """scaled_dot_product_attention with one backend."""

    FIELDS = frozenset({"causal", "window", "keep", "bias", "blocks", "deterministic"})

    def __init__(self, contender, *arguments, **options):
        super().__init__(contender, *arguments, **options)
        self._alone, self._deterministic = SharedContext(contender.alone), SharedContext(deterministic_algorithms)

    @contextlib.contextmanager
    def context(self, problem):
        with self._alone, self._deterministic if problem.deterministic else contextlib.nullcontext():
            yield

    def attend(self, problem, t):
        import torch
        import torch.nn.functional as F

        q, k, v = (t[name].transpose(1, 2) for name in "qkv")
        options = dict(scale=problem.softmax_scale, enable_gqa=problem.ratio > 1)
        others = asked(problem) & {"window", "keep", "bias", "blocks"}
        if problem.causal and not others and q.shape[2] == k.shape[2]:
            options["is_causal"] = True
        elif (mask := seen(problem, t)) is not None or "bias" in t:
            if "bias" in t:
                bias = t["bias"].expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
                mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
            options["attn_mask"] = mask.expand(*mask.shape[:2], q.shape[2], k.shape[2])
        try:
            with self.contender.reasons():
                return F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2), None
        except Unsupported as reason:
            raise Refused(str(reason)) from None


class Efficient(_ScaledDotProductAttention):
    name, label, backend, words = "efficient", "memory-efficient attention (PyTorch)", "EFFICIENT_ATTENTION", "efficient"


class Math(_ScaledDotProductAttention):
    name, label, backend, words = "math", "step by step (PyTorch)", "MATH", "math"


class VarlenContender(Contender):
    name, label = "varlen", "torch.nn.attention.varlen"

    def absent(self):
        return missing("torch.nn.attention.varlen")

    def version(self):
        return torch_version()


class Varlen(TorchLibrary):
    """PyTorch's varlen_attn: varlen sequences, since 2.13 also over pages."""

    FIELDS = frozenset({"causal", "window", "cu_seqlens_q", "cu_seqlens_k", "seqused_k", "page_table", "unwritten",
                        "batch_invariant"})

    def attend(self, problem, t):
        import torch
        from torch.nn.attention import varlen

        if "cu_seqlens_q" not in t:
            raise NotOffered("no dense sequences")
        offered = inspect.signature(varlen.varlen_attn).parameters
        options, function = dict(scale=problem.softmax_scale, return_aux=varlen.AuxRequest(lse=True)), varlen.varlen_attn
        left, right = problem.window or (-1, -1)
        if min(left, right) < -1:
            raise NotOffered("no sides below −1")
        options["window_size"] = (left, 0 if problem.causal else right)
        cu_k, longest = t.get("cu_seqlens_k"), t["k"].shape[0]
        if "page_table" in t:
            if "block_table" not in offered:
                raise NotOffered("no pages in this version of PyTorch")
            longest = t["page_table"].shape[1] * t["k"].shape[1]
            cu_k = torch.arange(len(t["cu_seqlens_q"]), dtype=torch.int32, device=t["q"].device) * longest
            options |= dict(seqused_k=t["seqused_k"], block_table=t["page_table"])
        elif "seqused_k" in t:
            raise NotOffered("no lengths beside boundaries")
        splits = 1 if problem.batch_invariant else problem.num_splits
        if splits and "num_splits" in offered:
            options["num_splits"] = splits
        elif problem.batch_invariant:
            raise NotOffered("no num_splits in this version of PyTorch")
        if problem.unwritten:
            if not hasattr(varlen, "varlen_attn_out"):
                raise NotOffered("no result to write to in this version of PyTorch")
            function = functools.partial(varlen.varlen_attn_out, torch.full_like(t["q"], torch.nan))
        return function(t["q"], t["k"], t["v"], t["cu_seqlens_q"], cu_k, t["q"].shape[0], longest, **options)


class FlexLibrary(TorchLibrary):
    """FlexAttention, recompiled for each problem."""

    FIELDS = frozenset({"causal", "window", "keep", "bias", "blocks", "softcap", "alibi_slopes"})

    def __init__(self, contender, device="cuda", compiled=True):
        super().__init__(contender, device)
        self.compiled = compiled

    def attend(self, problem, t):
        import torch
        from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

        q, k, v = (t[name].transpose(1, 2) for name in "qkv")
        keep, shift = seen(problem, t), k.shape[2] - q.shape[2]
        block_mask = None
        if keep is not None:
            batch, heads = keep.shape[0] - 1, keep.shape[1] - 1  # 0: shared by all
            keep = keep.expand(*keep.shape[:2], q.shape[2], k.shape[2])
            kept = lambda b, h, i, j: keep[b * (batch > 0), h * (heads > 0), i, j]
            block_mask = create_block_mask(kept, keep.shape[0] if batch else None, keep.shape[1] if heads else None,
                                           q.shape[2], k.shape[2], device=q.device)
        bias, slopes = t.get("bias"), t.get("alibi_slopes")

        def changed(score, b, h, i, j):
            if problem.softcap:
                score = problem.softcap * torch.tanh(score / problem.softcap)
            if slopes is not None:
                score = score - slopes[h] * (i + shift - j).abs()
            if bias is not None:
                at = [index * (size > 1) for index, size in zip((b, h, i, j), bias.shape)]
                score = score + bias[at[0], at[1], at[2], at[3]]
            return score

        plain = not problem.softcap and slopes is None and bias is None
        if self.compiled:
            torch._dynamo.reset()
        function = torch.compile(flex_attention, dynamic=False) if self.compiled else flex_attention
        o, aux = function(q, k, v, score_mod=None if plain else changed, block_mask=block_mask, return_aux=AuxRequest(lse=True),
                          scale=problem.softmax_scale, enable_gqa=problem.ratio > 1)
        return o.transpose(1, 2), aux.lse


def libraries():
    """{name: function that creates a library}, for those included in PyTorch."""
    return {"torch-flash": lambda: Sdpa(FlashAttention2()), "torch-cudnn": lambda: Sdpa(CuDnn()),
            "torch-efficient": lambda: Sdpa(Efficient()), "torch-math": lambda: Sdpa(Math()),
            "torch-varlen": lambda: Varlen(VarlenContender()), "flex": lambda: FlexLibrary(Flex())}
