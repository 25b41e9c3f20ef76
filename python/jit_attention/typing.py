"""Types for annotations: arrays, the names that arguments accept, and the dicts that functions return."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypedDict, TypeVar

__all__ = [
    "Alignment",
    "Array",
    "ArrayT",
    "Config",
    "DTypeObject",
    "Fp8DType",
    "InputDType",
    "Layout",
    "OperandDType",
    "OutputDType",
    "OutputName",
    "PackedKernel",
    "ScaleKind",
    "SequenceKind",
    "StoredDType",
    "Stream",
    "SupportsCudaArrayInterface",
    "SupportsCudaStream",
    "SupportsDLPack",
    "TuningMode",
    "TuningReport",
]


class SupportsDLPack(Protocol):
    """An array of PyTorch, CuPy, JAX, NumPy and others that exports itself by DLPack."""

    def __dlpack__(self, *args: Any, **keywords: Any) -> Any:
        """A capsule that holds the array."""
        ...


class SupportsCudaArrayInterface(Protocol):
    """An array in GPU memory that describes itself by the CUDA array interface, such as Numba's."""

    @property
    def __cuda_array_interface__(self) -> Any:
        """Address, shape, strides and element type."""
        ...


class SupportsCudaStream(Protocol):
    """A CUDA stream of PyTorch, CuPy, cuda.core and others."""

    def __cuda_stream__(self) -> Any:
        """The version of the protocol, 0, and the stream's handle."""
        ...


class SupportsItemsize(Protocol):
    """An element type object, such as ``torch.bfloat16`` or ``numpy.dtype("float16")``."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        ...


Array = SupportsDLPack | SupportsCudaArrayInterface
"""Every array that calls accept."""
ArrayT = TypeVar("ArrayT", bound=Array)
"""An array type that a function returns because the caller passed it: ``torch.Tensor`` in, ``torch.Tensor`` out."""

Stream = int | SupportsCudaStream
"""A CUDA stream: its handle as an integer, or an object that has one."""

DTypeObject = SupportsItemsize | type[Any]
"""An element type as an object: ``torch.bfloat16``, ``numpy.dtype("float16")``, ``ml_dtypes.bfloat16``."""
OperandDType = Literal["bf16", "fp16"]
"""The 16-bit element types of q, k and v."""
Fp8DType = Literal["fp8_e4m3", "fp8_e5m2"]
"""The 8-bit element types."""
StoredDType = Literal["fp8_e4m3", "fp8_e5m2", "int8", "int4", "nvfp4", "mxfp4",
                      "latent_656", "latent_584", "latent_528"]
"""The element types of KV caches of 8 and 4 bits; latent_… are rows of FP8 latents with their scales, by bytes."""
InputDType = Literal["bf16", "fp16", "fp8_e4m3", "fp8_e5m2"]
"""The element types of q, k and v."""
OutputDType = Literal["bf16", "fp16", "fp32", "fp8_e4m3", "int8"]
"""The element types of a result."""

Layout = Literal["BSHD", "BHSD"]
"""Order of dimensions: (batch, seqlen, heads, head_dim) or (batch, heads, seqlen, head_dim)."""
TuningMode = Literal["off", "recorded", "first_run", "exhaustive"]
"""When configs are measured: never, only looked up, at the first call of a size, or all of them."""
OutputName = Literal["max_logit", "row_max", "mean_score", "o_descale", "o_raw", "running_lse"]
"""Outputs of attention beside the result and LSE."""
ScaleKind = Literal["head", "token", "block"]
"""Which elements of k and v share a dequantization scale."""
SequenceKind = Literal["dense", "varlen", "paged"]
"""How the sequences of a batch are stored."""
Alignment = Literal["bottom_right", "top_left"]
"""Where the first query stands if there are more keys than queries, or fewer."""
Config = dict[str, Any] | str
"""A kernel config: its fields and their values, or the text that ``str`` of a C++ config gives."""


class TuningReport(TypedDict):
    """The result of `jit_attention.tune`.

    Attributes:
        configs: The chosen configs: one, or two for a backward pass of two kernels.
        median_us: Time of a call with them, in microseconds.
        default_us: Time of a call with the cost model's configs, in microseconds.
        candidates: Number of configs that were measured.
        out_of_time: Whether the time limit ended the search.
        log: One line per candidate.
    """

    configs: list[dict[str, Any]]
    median_us: float
    default_us: float
    candidates: int
    out_of_time: bool
    log: list[str]


class PackedKernel(TypedDict):
    """One kernel that `jit_attention.write_pack` wrote.

    Attributes:
        spec: The spec in one line.
        target: The architecture, such as "sm_90a".
        config: The config in one line.
        name: Name of the kernel, as profilers show it.
        key: Key of its cache entry.
        bytes: Size in the file.
        compile_ms: Wall time of its compilation in milliseconds.
        cached: Whether it came from the disk cache.
        sizes: Number of the examined call sizes that it serves.
        all_sizes: Whether calls of every size launch it, beside other kernels.
    """

    spec: str
    target: str
    config: str
    name: str
    key: str
    bytes: int
    compile_ms: float
    cached: bool
    sizes: int
    all_sizes: bool
