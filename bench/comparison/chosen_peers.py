"""Peers of chosen keys: FlashMLA's sparse kernels and DeepGEMM's indexer, as vLLM's package ships them, FlashInfer's msa_ops,
fla's NSA, and for blocks of video cuDNN's and FastVideo's kernels."""

import importlib
import importlib.util
import pathlib
import sys
import types

from .contender import Contender, Runner, Unsupported, first_line, import_failure, missing, package_version
from .timing import fastest, made_beforehand


def inside_vllm(name):
    """The path of a file or folder of the package vllm, which is not imported; None where there is none."""
    spec = importlib.util.find_spec("vllm")
    places = (pathlib.Path(place) / name for place in (spec.submodule_search_locations if spec else ()))
    return next((path for path in places if path.exists()), None)


class _InsideVllm(Contender):
    INSIDE = ""  # what vLLM's package must have

    def absent(self):
        if inside_vllm(self.INSIDE) is None:
            return f"no package vllm with {self.INSIDE} is installed"
        try:
            self.loaded()
        except Exception as error:  # a binary for another PyTorch fails in many ways
            return f"{self.INSIDE} cannot be loaded: {first_line(error)}"
        return None

    def loaded(self):
        raise NotImplementedError

    def version(self):
        return f"of vLLM {package_version('vllm')}"


class FlashMlaSparse(_InsideVllm):
    """Kernels of 8, 16, 32, 64 or 128 heads over bf16 rows; over rows of 656 bytes of 64 or 128, to which fewer are padded."""

    name, label, color = "flashmla-sparse", "FlashMLA sparse", "#2f6f8f"
    INSIDE = "_flashmla_C.abi3.so"
    PACKED_HEADS = 64

    def loaded(self):
        import torch

        torch.ops.load_library(str(inside_vllm(self.INSIDE)))
        return torch.ops._flashmla_C

    def attend_to_latents(self, problem, inputs):
        operators, scale, values = self.loaded(), problem.HEAD_DIM ** -0.5, problem.HEAD_DIM_V
        if inputs.packed is None:
            return _called(lambda: operators.sparse_prefill_fwd(inputs.q, inputs.rows, inputs.lists, scale, values, None, None,
                                                                None)[0], call="sparse_prefill_fwd")
        heads = max(problem.heads, self.PACKED_HEADS)
        q = inputs.q.new_zeros(problem.tokens, 1, heads, problem.HEAD_DIM)
        q[:, 0, : problem.heads] = inputs.q

        def decode(metadata=None, splits=None):
            return operators.sparse_decode_fwd(q, inputs.packed, inputs.lists, None, None, metadata, splits, None, None, None,
                                               values, scale, None, False)

        planned = decode()[2:]  # how it splits keys, which later calls of these lengths are given
        return _called(lambda: decode(*planned)[0][:, 0, : problem.heads], call="sparse_decode_fwd")


class DeepGemm(_InsideVllm):
    """Its kernels are compiled by nvcc at the first call."""

    name, label, color = "deepgemm", "DeepGEMM", "#7a6fb0"
    INSIDE = "third_party/deep_gemm"
    MODULE = "comparison_deep_gemm"  # the package by itself: importing vLLM would take much more

    def loaded(self):
        if self.MODULE not in sys.modules:
            folder = inside_vllm(self.INSIDE)
            spec = importlib.util.spec_from_file_location(self.MODULE, folder / "__init__.py",
                                                          submodule_search_locations=[str(folder)])
            sys.modules[self.MODULE] = module = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[self.MODULE]
                raise
        return sys.modules[self.MODULE]

    def scores(self, problem, inputs):
        return self.loaded().fp8_fp4_mqa_logits((inputs.q, None), (inputs.k, inputs.k_scale), inputs.weights, inputs.starts,
                                                inputs.ends, problem.keys)

    def score_index(self, problem, inputs):
        return _called(lambda: self.scores(problem, inputs), call="fp8_fp4_mqa_logits")

    def choose_by_index(self, problem, inputs):
        """Its scores and the faster of PyTorch's and FlashInfer's top-k. It leaves scores of unseen keys as they were, which all
        are among the last `tokens`; PyTorch's has to see −inf there."""
        import torch

        least = problem.keys - problem.tokens
        unseen = torch.arange(least, problem.keys, device=inputs.q.device) >= inputs.ends[:, None]

        def by_torch():
            scores = self.scores(problem, inputs)
            scores[:, least:].masked_fill_(unseen, float("-inf"))
            return scores.topk(problem.chosen, sorted=False).indices

        def by_flashinfer():
            from flashinfer.topk import top_k_ragged_transform

            return top_k_ragged_transform(self.scores(problem, inputs), inputs.starts, inputs.ends, problem.chosen)

        best, runner, refused = fastest({"torch.topk": Runner(by_torch), "flashinfer.top_k_ragged_transform": Runner(by_flashinfer)})
        return Runner(runner.call, detail=dict(call=best, **(dict(refused=refused) if refused else {})))


class Fla(Contender):
    """parallel_nsa of blocks that are given, without compressed keys and window."""

    name, label, color = "fla", "fla NSA", "#c28f2c"
    LEAST_GROUP = 16

    def absent(self):
        return missing("fla") or import_failure("fla.ops.nsa.parallel")

    def version(self):
        return package_version("fla-core", "flash-linear-attention")

    def attend_to_blocks(self, problem, inputs):
        from fla.ops.nsa.parallel import parallel_nsa

        group = problem.heads_q // problem.heads_kv
        if group < self.LEAST_GROUP or group & (group - 1):
            raise Unsupported(f"{group} query heads a KV head: a power of two from {self.LEAST_GROUP} on")
        q, k, v, lists = (x[None] for x in (inputs.q, inputs.k, inputs.v, inputs.lists))
        return _called(lambda: parallel_nsa(q, k, v, block_indices=lists, block_counts=problem.chosen, block_size=problem.block,
                                            cu_seqlens=(inputs.starts_q.long(), inputs.starts_k.long()))[0],
                       call="parallel_nsa")


class FlashInferOfChosen:
    """msa_ops on Hopper: pages of 128 e4m3 keys, whose numbers here are those of the others. A few tokens may as well be
    requests of one token each over the same pages."""

    MOST_REQUESTS = 64

    def attend_to_blocks(self, problem, inputs):
        import torch
        from flashinfer import msa_ops

        if problem.block != 128:
            raise Unsupported("blocks of 128 keys only")
        k, v = inputs.pages.to(torch.float8_e4m3fn).split(problem.head_dim, -1)
        lists = inputs.lists.transpose(0, 1).contiguous()
        calls = {"msa_sparse_attention": Runner(lambda: msa_ops.msa_sparse_attention(
            inputs.q, k, v, lists, inputs.starts_q, causal=True, page_table=inputs.page_table, seqused_k=inputs.lengths))}
        if problem.tokens <= self.MOST_REQUESTS:
            table = inputs.page_table.repeat(problem.tokens, 1)
            ends = torch.arange(problem.keys - problem.tokens, problem.keys, dtype=torch.int32, device=table.device) + 1
            calls["msa_sparse_decode_attention"] = Runner(lambda: msa_ops.msa_sparse_decode_attention(
                inputs.q, k, v, lists, page_table=table, seqused_k=ends))
        best, runner, refused = fastest(calls)
        return Runner(runner.call, detail=dict(call=best, **(dict(refused=refused) if refused else {})))


def listed_blocks(inputs):
    """(blocks of keys of each head and block of queries, int32, all as many; how many these are)."""
    import torch

    blocks = inputs.blocks
    entries = int(blocks.sum(-1).max())
    order = blocks.to(torch.int32).argsort(dim=-1, descending=True, stable=True)[..., :entries].to(torch.int32)
    return order.contiguous(), blocks.sum(-1, dtype=torch.int32)


class _OfBlocks(Contender):
    """Blocks alone, of a SparseCell whose heads are all alike in queries and keys."""

    SIZES = (64,)

    def make_sparse(self, cell, inputs):
        if cell.mask != "blocks":
            raise Unsupported(f"no {cell.mask} mask")
        if cell.block not in self.SIZES or cell.gqa_ratio > 1:
            raise Unsupported(f"blocks of {' or '.join(map(str, self.SIZES))}, and as many KV heads as query heads")
        (lists, counts), detail = made_beforehand(inputs.q.device, lambda: listed_blocks(inputs))
        shape = cell.batch, cell.heads_q
        return self.attend(cell, inputs, lists.expand(*shape, *lists.shape[1:]).contiguous(),
                           counts.expand(*shape, counts.shape[1]).contiguous(), detail)

    def attend(self, cell, inputs, lists, counts, detail):
        raise NotImplementedError


class CuDnnBlocks(_OfBlocks):
    """cuDNN frontend's block-sparse attention in CuTe DSL, in one part or in as many as it likes."""

    name, label, color = "cudnn-blocks", "cuDNN block-sparse", "#4d7a52"
    SIZES = (64, 128)

    def absent(self):
        return missing("cudnn") or import_failure("cudnn.block_sparse_attention")

    def version(self):
        return package_version("nvidia-cudnn-frontend")

    def attend(self, cell, inputs, lists, counts, detail):
        from cudnn.block_sparse_attention import block_sparse_attention_forward as forward

        calls = {f"kv_splits {splits}": Runner(lambda splits=splits: forward(
            inputs.q, inputs.k, inputs.v, lists, sparse_block_size=cell.block, layout="bshd", kv_splits=splits)["o_tensor"])
            for splits in (1, "auto")}
        best, runner, refused = fastest(calls)
        return Runner(runner.call, detail=dict(call=best, **detail, **(dict(refused=refused) if refused else {})))


class FastVideo(_OfBlocks):
    """Triton kernels of VSA. The package's binary is for another PyTorch; its Python files are read by themselves."""

    name, label, color = "fastvideo", "FastVideo (Triton)", "#b0607a"
    PACKAGE, MODULE = "fastvideo_kernel", "triton_kernels.block_sparse_attn_triton"

    def absent(self):
        reason = missing(self.PACKAGE) or missing("triton")
        if reason:
            return reason
        try:
            self.loaded()
        except Exception as error:
            return f"{self.MODULE} cannot be imported: {first_line(error)}"
        return None

    def loaded(self):
        """The module, without what the package imports first."""
        if self.PACKAGE not in sys.modules:
            spec = importlib.util.find_spec(self.PACKAGE)
            bare = sys.modules[self.PACKAGE] = types.ModuleType(self.PACKAGE)
            bare.__spec__, bare.__path__ = spec, list(spec.submodule_search_locations)  # find_spec asks for __spec__
        return importlib.import_module(f"{self.PACKAGE}.{self.MODULE}")

    def version(self):
        return package_version("fastvideo-kernel")

    def attend(self, cell, inputs, lists, counts, detail):
        import torch

        forward = self.loaded().triton_block_sparse_attn_forward
        q, k, v = (x.contiguous() for x in inputs.bhsd())
        sizes = torch.full((cell.seqlen_kv // cell.block,), cell.block, dtype=torch.int32, device=q.device)
        return _called(lambda: forward(q, k, v, lists, counts, sizes)[0].transpose(1, 2),
                       call="triton_block_sparse_attn_forward", **detail)


def _called(function, **detail):
    function()
    return Runner(function, detail=detail)
