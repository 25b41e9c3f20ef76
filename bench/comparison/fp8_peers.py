"""8-bit peers in separate packages: cuDNN's fp8 graphs, for CuDnn, and SageAttention."""

import math

from .contender import Contender, Runner, Unsupported, import_failure, missing, package_version
from .fp8_suites import COARSER, E4M3_MAX, as_fp8, quantized


class CuDnnGraph:
    """A graph of cuDNN's frontend of one sdpa_fp8, with the tensors that it reads and writes.

    q, k and v of e4m3, (batch, seqlen, heads, head_dim); descales: numbers for each of these three tensors. o, in the
    same order, is of e4m3 on Hopper, where there is no other, and of bf16 on later GPUs. The scales of P and of o are
    those of Transformer Engine's delayed scaling: from the largest magnitudes of a call before, in which they are 1.
    Raises Unsupported where there is no such package, and for what cuDNN does not serve.
    """

    SCALES = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")

    def __init__(self, cell, q, k, v, descales=(1.0, 1.0, 1.0)):
        import torch

        reason = missing("cudnn") or import_failure("cudnn")
        if reason:
            raise Unsupported(f"its fp8 is called by nvidia-cudnn-frontend: {reason}")
        import cudnn

        self.cudnn, self.device = cudnn, q.device
        bf16 = torch.cuda.get_device_capability(q.device)[0] >= 10
        self.o = torch.empty(cell.output_shape(), device=q.device, dtype=torch.bfloat16 if bf16 else q.dtype)
        one = lambda value: torch.full((1, 1, 1, 1), value, device=q.device)
        self.scales = {name: one(1.0) for name in self.SCALES} | dict(zip(self.SCALES, map(one, descales)))
        self.amax_s, self.amax_o = one(0.0), one(0.0)
        self.handle = cudnn.create_handle()
        self.graph, self.tensors = self.build(cell, q, k, v, self.handle)
        self.workspace = torch.empty(max(self.graph.get_workspace_size(), 1), device=q.device, dtype=torch.uint8)
        self.set_scales(self.call)

    def build(self, cell, q, k, v, handle):
        """(graph, {its tensors: ours}), ready for execute()."""
        cudnn = self.cudnn
        graph, tensors = self.describe(cell, q, k, v, handle)
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            graph.check_support()
        except cudnn.cudnnGraphNotSupportedError as error:
            raise Unsupported(str(error).strip().splitlines()[0]) from None
        graph.build_plans()
        return graph, tensors

    def describe(self, cell, q, k, v, handle):
        """The graph before cuDNN has validated it."""
        types = self.cudnn.data_type
        graph = self.cudnn.pygraph(io_data_type=types.FP8_E4M3, intermediate_data_type=types.FLOAT,
                                   compute_data_type=types.FLOAT, handle=handle)
        tensors = {}

        def tensor(name, ours, data_type):
            made = graph.tensor(name=name, dim=list(ours.shape), stride=list(ours.stride()), data_type=data_type)
            tensors[made] = ours
            return made

        def output(made, ours, data_type):
            made.set_output(True).set_dim(list(ours.shape)).set_stride(list(ours.stride())).set_data_type(data_type)
            tensors[made] = ours

        inputs = {name: tensor(name, ours.transpose(1, 2), types.FP8_E4M3) for name, ours in zip("qkv", (q, k, v))}
        inputs.update((name, tensor(name, ours, types.FLOAT)) for name, ours in self.scales.items())
        o, _, amax_s, amax_o = graph.sdpa_fp8(**inputs, attn_scale=cell.head_dim ** -0.5, generate_stats=False,
                                              use_causal_mask=cell.mask == "causal", use_padding_mask=False)
        output(o, self.o.transpose(1, 2), types.FP8_E4M3 if self.o.dtype == q.dtype else types.BFLOAT16)
        output(amax_s, self.amax_s, types.FLOAT)
        output(amax_o, self.amax_o, types.FLOAT)
        return graph, tensors

    def set_scales(self, call):
        """Sets the scales of P and o from the results of one `call`."""
        call()
        factors = [E4M3_MAX / amax if 0 < amax < math.inf else 1.0
                   for amax in (self.amax_s.item(), self.amax_o.item())]
        self.scales["scale_s"].fill_(factors[0])
        self.scales["descale_s"].fill_(1 / factors[0])
        if self.o.dtype.itemsize == 1:
            self.scales["scale_o"].fill_(factors[1])

    def call(self):
        """o, times scale_o."""
        import torch

        self.cudnn.set_stream(handle=self.handle, stream=torch.cuda.current_stream(self.device).cuda_stream)
        self.graph.execute(self.tensors, self.workspace, handle=self.handle)
        return self.o

    def descaled(self, o):
        """o of a call in fp32."""
        return o.float() / self.scales["scale_o"].view(1)


class CuDnnFp8:
    """CuDnn's fp8 methods: PyTorch's interface to cuDNN has none."""

    scaling = "a scale for each tensor, of P and o, too; o is of e4m3 on Hopper"

    def make_fp8(self, cell, inputs):
        """The result is o times a scale, in the output type."""
        graph = self.fp8_graph(cell, *as_fp8(inputs))
        detail = dict(call="cudnn.pygraph.sdpa_fp8", version=package_version("nvidia-cudnn-frontend"),
                      o=str(graph.o.dtype).removeprefix("torch."))
        return Runner(graph.call, coarser=COARSER, detail=detail, compared=graph.descaled)

    def make_quantized(self, cell, inputs):
        (q, q_scale), (k, k_scale), (v, v_scale) = (quantized(t) for t in (inputs.q, inputs.k, inputs.v))
        graph = self.fp8_graph(cell, q, k, v, [scale.item() for scale in (q_scale, k_scale, v_scale)])
        return Runner(lambda: graph.descaled(graph.call()), detail=dict(o=str(graph.o.dtype).removeprefix("torch.")))

    @staticmethod
    def fp8_graph(cell, *tensors):
        if cell.mask not in ("none", "causal"):
            raise Unsupported(f"no {cell.mask} mask")
        if cell.mask == "causal" and cell.seqlen_q != cell.seqlen_kv:
            raise Unsupported("its causal mask of fp8 is top-left on Hopper, this cell's is bottom-right")
        return CuDnnGraph(cell, *tensors)


class SageAttention(Contender):
    """SageAttention 1, in Triton: q and k become int8 with a scale per block, P and v are fp16. Its calls quantize
    16-bit tensors. Version 2, whose P and v are FP8, has no wheel on PyPI."""

    name, label, color = "sage", "SageAttention (int8, fp16)", "#b5533c"
    scaling = "int8 with scales of blocks, k without its mean, v of fp16"
    HEAD_DIMS = (64, 96, 128)

    def absent(self):
        return missing("sageattention") or missing("triton") or import_failure("sageattention")

    def version(self):
        return package_version("sageattention")

    def make_fp8(self, cell, inputs):
        if cell.mask not in ("none", "causal"):
            raise Unsupported(f"no {cell.mask} mask")
        if cell.mask == "causal" and cell.seqlen_q != cell.seqlen_kv:
            raise Unsupported("causal with as many queries as keys only")
        if cell.head_dim not in self.HEAD_DIMS or cell.head_dim_v != cell.head_dim:
            raise Unsupported(f"no head_dim {cell.head_dim}/{cell.head_dim_v}")
        if cell.mask == "none" and cell.seqlen_kv % 64:
            raise Unsupported("version 1 counts keys behind the last one of a tile of 64")
        from sageattention import sageattn

        k, causal = inputs.k.clone(), cell.mask == "causal"  # it subtracts the mean in place
        call = lambda: sageattn(inputs.q, k, inputs.v, tensor_layout="NHD", is_causal=causal)
        call()
        return Runner(call, coarser=COARSER, detail=dict(call="sageattn", inputs="bf16, quantized in the call"))

    make_quantized = make_fp8
