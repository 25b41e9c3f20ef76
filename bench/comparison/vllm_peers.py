"""Kernels that the vLLM package ships beside FlashAttention-3: FlashMLA, as a library that needs no import of vLLM, and
attention over caches of int4 in Triton."""

import importlib
import importlib.util
import pathlib

from .contender import Contender, Runner, Unsupported, first_line, import_failure, missing, package_version
from .stored_keys import SCALES, ZERO_POINT

TF32_STEP = 2.0 ** -10  # of a number that is truncated to TF32, at most


class FlashMla(Contender):
    """FlashMLA's dense decoding: of its own package, or of the library in vLLM's, which is not imported."""

    name, label, color = "flash_mla", "FlashMLA", "#6b4e9b"
    reads_values_in_keys = True
    LIBRARY = "_flashmla_C.abi3.so"
    PAGE = 64

    def shared_object(self):
        spec = importlib.util.find_spec("vllm")
        places = (pathlib.Path(place) / self.LIBRARY for place in (spec.submodule_search_locations if spec else ()))
        return next((path for path in places if path.is_file()), None)

    def absent(self):
        if missing("flash_mla") is None:
            return import_failure("flash_mla.cuda")
        if self.shared_object() is None:
            return f"neither flash_mla nor a package vllm with {self.LIBRARY} is installed"
        try:
            self.operators()
        except Exception as error:  # a binary for another PyTorch fails in many ways
            return f"{self.LIBRARY} cannot be loaded: {first_line(error)}"
        return None

    def operators(self):
        if missing("flash_mla") is None:
            return importlib.import_module("flash_mla.cuda")
        import torch

        torch.ops.load_library(str(self.shared_object()))
        return torch.ops._flashmla_C

    def version(self):
        return package_version("flash-mla", "vllm")

    def serve(self, requests, inputs):
        if not requests.values_in_keys:
            raise Unsupported("latents alone")
        if requests.page_size != self.PAGE:
            raise Unsupported(f"pages of {self.PAGE} rows alone")
        if len(set(requests.seqlens_q)) > 1:
            raise Unsupported("as many queries of each request")
        operators = self.operators()
        q = inputs.q.unflatten(0, (requests.batch, requests.max_seqlen_q))

        out = () if missing("flash_mla") is None else (None,)  # an argument of vLLM's, which makes o where it is None

        def call(schedule=(None, None)):
            return operators.dense_decode_fwd(q, inputs.k, requests.head_dim_v, inputs.seqused_k, inputs.page_table,
                                              requests.head_dim ** -0.5, requests.mask == "causal", *schedule, *out)

        schedule = call()[2:]  # which engines make once for all layers
        return Runner(lambda: call(schedule)[0].flatten(0, 1), detail=dict(call="dense_decode_fwd",
                                                                           plan="made beforehand"))


class VllmInt4(Contender):
    """vLLM's kernel over `int4_per_token_head`, by itself: rotations of q, and of o back, are left out.

    It multiplies P times scales by numbers from 0 to 15 in TF32, of which Triton truncates the fp32 operand to ten bits, and
    subtracts zero points times P as it was. So all of o moves toward minus the zero point by up to 2^-10 of it (`shift`),
    which over 4,096 keys is more than all roundings of bf16."""

    name, label, color = "int4_vllm", "Triton int4 (vLLM)", "#4e9b8f"
    kv_dtypes = ("int4",)
    module = "vllm.v1.attention.ops.int4_per_token_head"
    SEGMENTS = 16  # of keys, of a decode that has fewer programs than FEW_PROGRAMS, as vLLM's backend has them
    FEW_PROGRAMS = 128

    def absent(self):
        return missing("vllm") or import_failure(self.module)

    def version(self):
        return package_version("vllm")

    def serve(self, requests, inputs):
        import torch

        if requests.kv_sequences != "paged":
            raise Unsupported("pages alone")
        if requests.mask != "causal" and requests.max_seqlen_q > 1:
            raise Unsupported("causal alone")
        launch = importlib.import_module(self.module)._launch_packed_attn
        few = self.FEW_PROGRAMS // requests.heads_kv
        sizes = few, requests.heads_q, self.SEGMENTS
        width = 1 << (requests.head_dim - 1).bit_length()
        floats = dict(dtype=torch.float32, device=inputs.q.device)
        k, v = inputs.stored
        out = torch.empty_like(inputs.q)
        options = dict(
            cu_seqlens_q=inputs.cu_seqlens_q, max_seqlen_q=requests.max_seqlen_q, seqused_k=inputs.seqused_k,
            softmax_scale=requests.head_dim ** -0.5, window_size=(-1, -1), block_table=inputs.page_table, softcap=0.0,
            sinks=None, alibi_slopes=None, use_alibi_sqrt=False, qq_bias=None, output_scale=None, mm_prefix_range=None,
            k_scale_cache=k.tokens, v_scale_cache=v.tokens, seq_threshold_3D=few,
            num_par_softmax_segments=self.SEGMENTS, softmax_segm_output=torch.empty(*sizes, width, **floats),
            softmax_segm_max=torch.empty(sizes, **floats), softmax_segm_expsum=torch.empty(sizes, **floats),
            packing_factor=2)

        def call():
            launch(q=inputs.q, k_cache=k.rows, v_cache=v.rows, out=out, **options)
            return out

        shift = TF32_STEP * ZERO_POINT * SCALES["int4"]
        return Runner(call, shift=shift, detail=dict(call="_launch_packed_attn", rotations="left out", shift=shift))
