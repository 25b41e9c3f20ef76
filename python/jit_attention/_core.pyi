"""The extension module. Types and documentation of what it has are here: the build copies them into the module."""

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, overload

from .block_mask import BlockMask
from .functor import FunctorText
from .mask import Mask
from .output import OutputFunctor
from .score import Score
from .spec import AttentionSpec
from .typing import (
    Array,
    ArrayT,
    Config,
    DTypeObject,
    InputDType,
    Layout,
    OperandDType,
    OutputDType,
    OutputName,
    PackedKernel,
    ScaleKind,
    StoredDType,
    Stream,
    TuningMode,
    TuningReport,
)

__version__: str

@overload
def attention(
    q: ArrayT, k: Array, v: Array | None = None, *, mask: Mask | None = None, score: Score | None = None,
    softmax_scale: float | None = None, return_lse: Literal[False] = False, out: Array | None = None,
    dtype: InputDType | DTypeObject | None = None, layout: Layout = "BSHD", tensors: Mapping[str, Array] | None = None,
    stream: Stream | None = None, tuning: TuningMode | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    page_table: Array | None = None, cache_leftpad: Array | None = None, sinks: Array | None = None,
    q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
    k_block_scales: Array | None = None, v_block_scales: Array | None = None, v_mean: Array | None = None,
    lse_shift: Array | None = None,
    o_descale: Array | None = None, rng_state: Array | None = None, num_splits: int = 0, zero_padding: bool = False,
    split_keys: int = 0, dropout_p: float = 0.0, block_mask: BlockMask | None = None,
    kv_dtype: StoredDType | DTypeObject | None = None, descale_per: ScaleKind | None = None, head_dim_v: int | None = None,
    out_dtype: OutputDType | DTypeObject | None = None, interpolated_exponentials: bool = False,
    q_positions: Array | None = None, k_positions: Array | None = None, global_seqlens: Array | None = None,
    return_aux: None = None,
    output: OutputFunctor | None = None,
) -> ArrayT: ...
@overload
def attention(
    q: ArrayT, k: Array, v: Array | None = None, *, mask: Mask | None = None, score: Score | None = None,
    softmax_scale: float | None = None, return_lse: Literal[True] | Array, out: Array | None = None,
    dtype: InputDType | DTypeObject | None = None, layout: Layout = "BSHD", tensors: Mapping[str, Array] | None = None,
    stream: Stream | None = None, tuning: TuningMode | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    page_table: Array | None = None, cache_leftpad: Array | None = None, sinks: Array | None = None,
    q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
    k_block_scales: Array | None = None, v_block_scales: Array | None = None, v_mean: Array | None = None,
    lse_shift: Array | None = None,
    o_descale: Array | None = None, rng_state: Array | None = None, num_splits: int = 0, zero_padding: bool = False,
    split_keys: int = 0, dropout_p: float = 0.0, block_mask: BlockMask | None = None,
    kv_dtype: StoredDType | DTypeObject | None = None, descale_per: ScaleKind | None = None, head_dim_v: int | None = None,
    out_dtype: OutputDType | DTypeObject | None = None, interpolated_exponentials: bool = False,
    q_positions: Array | None = None, k_positions: Array | None = None, global_seqlens: Array | None = None,
    return_aux: None = None,
    output: OutputFunctor | None = None,
) -> tuple[ArrayT, ArrayT]: ...
@overload
def attention(
    q: ArrayT, k: Array, v: Array | None = None, *, mask: Mask | None = None, score: Score | None = None,
    softmax_scale: float | None = None, return_lse: bool | Array = False, out: Array | None = None,
    dtype: InputDType | DTypeObject | None = None, layout: Layout = "BSHD", tensors: Mapping[str, Array] | None = None,
    stream: Stream | None = None, tuning: TuningMode | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    page_table: Array | None = None, cache_leftpad: Array | None = None, sinks: Array | None = None,
    q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
    k_block_scales: Array | None = None, v_block_scales: Array | None = None, v_mean: Array | None = None,
    lse_shift: Array | None = None,
    o_descale: Array | None = None, rng_state: Array | None = None, num_splits: int = 0, zero_padding: bool = False,
    split_keys: int = 0, dropout_p: float = 0.0, block_mask: BlockMask | None = None,
    kv_dtype: StoredDType | DTypeObject | None = None, descale_per: ScaleKind | None = None, head_dim_v: int | None = None,
    out_dtype: OutputDType | DTypeObject | None = None, interpolated_exponentials: bool = False,
    q_positions: Array | None = None, k_positions: Array | None = None, global_seqlens: Array | None = None,
    return_aux: Sequence[OutputName] | Mapping[OutputName, Array | None],
    output: OutputFunctor | None = None,
) -> tuple[ArrayT, dict[str, ArrayT]] | tuple[ArrayT, ArrayT, dict[str, ArrayT]]: ...
@overload
def attention(
    q: ArrayT, k: Array, v: Array | None = None, *, mask: Mask | None = None, score: Score | None = None,
    softmax_scale: float | None = None, return_lse: bool | Array = False, out: Array | None = None,
    dtype: InputDType | DTypeObject | None = None, layout: Layout = "BSHD", tensors: Mapping[str, Array] | None = None,
    stream: Stream | None = None, tuning: TuningMode | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    page_table: Array | None = None, cache_leftpad: Array | None = None, sinks: Array | None = None,
    q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
    k_block_scales: Array | None = None, v_block_scales: Array | None = None, v_mean: Array | None = None,
    lse_shift: Array | None = None,
    o_descale: Array | None = None, rng_state: Array | None = None, num_splits: int = 0, zero_padding: bool = False,
    split_keys: int = 0, dropout_p: float = 0.0, block_mask: BlockMask | None = None,
    kv_dtype: StoredDType | DTypeObject | None = None, descale_per: ScaleKind | None = None, head_dim_v: int | None = None,
    out_dtype: OutputDType | DTypeObject | None = None, interpolated_exponentials: bool = False,
    q_positions: Array | None = None, k_positions: Array | None = None, global_seqlens: Array | None = None,
    return_aux: None = None,
    output: OutputFunctor | None = None,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Computes attention: softmax(mask(score(softmax_scale · q kᵀ))) v, for each batch entry and query head.

    The first call of a problem compiles a kernel for it, or loads it from the cache. Later calls only launch it.
    The arrays may be of PyTorch, CuPy, JAX and every other framework that supports DLPack or the CUDA array
    interface; they are read without a copy, and must be on one GPU. NumPy arrays are computed on an emulated device.

    Args:
        q: Queries (batch, seqlen_q, heads_q, head_dim), bf16 or fp16; or FP8, if k and v are FP8, too. Any strides,
            if the last one is 1.
        k: Keys (batch, seqlen_kv, heads_kv, head_dim), in q's type or FP8. heads_q is a multiple of heads_kv.
        v: Values (batch, seqlen_kv, heads_kv, head_dim_v), in k's type. None with head_dim_v. Head dims are multiples
            of 8 from 8 to 512; up to 256 with FP8 q or 4-bit k and v.
        mask: The keys that each query sees. None: all keys.
        score: The function of a score that is applied before the softmax. None: none.
        softmax_scale: A positive factor of q · k. None: 1/sqrt(head_dim).
        return_lse: Whether to return LSE, too, the natural logarithm of Σ exp(score): fp32 (batch, heads_q,
            seqlen_q), or (heads_q, total_q) for varlen queries. An array of that shape receives LSE.
        out: An array that receives the result, and is returned. It must not overlap the inputs. None: a new array.
        dtype: The element type of arrays that cannot state it: "bf16" or "fp16" for 16-bit integers, "fp8_e4m3" or
            "fp8_e5m2" for bytes (uint8).
        layout: "BSHD", the order of dimensions above, or "BHSD": q, k, v and the result are (batch, heads, seqlen,
            head_dim).
        tensors: The arrays that mask, score and output read, by name, at most 8. A 0-d array counts as one element.
        stream: A stream's handle, or an object with ``__cuda_stream__``. None: the current stream of q's framework.
        tuning: When configs are measured: "off", "recorded", "first_run" or "exhaustive". None: that of the
            environment variable JIT_ATTENTION_TUNING, by default "first_run".
        cu_seqlens_q: int32 (batch + 1). q, the result and out are varlen, (total_q, heads_q, head_dim): sequence b
            has rows cu_seqlens_q[b] to cu_seqlens_q[b + 1].
        cu_seqlens_k: int32 (batch + 1). The same for k and v.
        seqused_q: int32 (batch). Number of queries of each sequence, if the array has room for more.
        seqused_k: int32 (batch). Number of keys of each sequence, including newly appended ones.
        page_table: int32 (batch, max_pages). k and v are pages, (pages, page_size, heads_kv, head_dim), with any
            strides whose last is 1; row b lists the pages of sequence b in order.
        cache_leftpad: int32 (batch). Number of padding rows before the first key of each sequence.
        sinks: fp32 (heads_q). One extra logit per query head, added to the softmax denominator of every row and to
            LSE, without a value vector. It is not multiplied by softmax_scale.
        q_descale: fp32. Dequantization scales of FP8 q: one for all, (1); one per KV head, (heads_kv) or
            (batch, heads_kv), where each size may be 1; one per row, q's shape without head_dim; or one per 64 rows,
            (batch, ceil(seqlen_q / 64), heads_q), for varlen queries (ceil(total_q / 64), heads_q).
        k_descale: fp32. Dequantization scales of k of 8 or 4 bits, as those of q: (1), (heads_kv), (batch, heads_kv), or k's
            shape without head_dim. With FP8 q also one per 64 rows; for pages (pages, ceil(page_size / 64),
            heads_kv).
        v_descale: fp32. Dequantization scales of v of 8 or 4 bits, as those of k. With FP8 q one per head, or one per column,
            (batch, heads_kv, head_dim_v); the first two sizes may be 1, and the first one may be missing.
        k_block_scales: With kv_dtype "nvfp4" or "mxfp4": bytes, a scale for each 16 columns (e4m3) or 32 (e8m0) of k,
            k's shape with head_dim / 16 or head_dim / 32 as its last size.
        v_block_scales: The same for v.
        v_mean: fp32 (batch, heads_kv, head_dim_v), as v_descale per column, with FP8 q. The mean that was subtracted
            from v; it is added to o, except in rows that see no key.
        lse_shift: fp32, of LSE's shape, with FP8 q. q times the mean that was subtracted from k; softmax_scale times
            this is added to LSE, before sinks are.
        o_descale: fp32, with out_dtype "fp8_e4m3" or "int8" and 16-bit q: the dequantization scales of o, of LSE's
            shape, where sizes may be 1, or (heads_q): positive and finite. Larger numbers saturate. Without it,
            return_aux=("o_descale",) computes a scale for each row.
        rng_state: int64 (2). Seed and offset of dropout's random numbers. Equal states drop the same probabilities as
            flash-attention does.
        num_splits: The largest number of thread blocks that share the keys of a query. 0: the library chooses.
        zero_padding: Whether to write o = 0 and LSE = −inf to padding rows: rows beyond seqused_q, and rows outside
            the ranges of cu_seqlens_q. Otherwise they are not written.
        split_keys: A multiple of 64, not with FP8 q: keys are summed in spans of this length, so that the result of a
            sequence is bitwise identical in any batch. 0: its last bits may depend on the batch.
        dropout_p: The rate, 0 ≤ dropout_p < 1, at which probabilities are dropped; the others are divided by
            1 − dropout_p. LSE ignores dropout. Not with page_table, split_keys, or k and v of 8 or 4 bits.
        block_mask: The blocks that the mask keeps, made by `block_mask` for calls of these sizes; `mask` may be
            omitted.
        kv_dtype: "fp8_e4m3", "fp8_e5m2", "int8", "int4", "nvfp4" or "mxfp4": the element type of k and v that are
            bytes (uint8). The last three pack two numbers per byte, the first in its low half. With head_dim_v
            "latent_656", "latent_584" or "latent_528".
        descale_per: The granularity of k_descale and v_descale, if their shapes are ambiguous: "head", "token" or
            "block".
        head_dim_v: Instead of v: the first head_dim_v columns of k are the values, as in the latent cache of
            multi-head latent attention, 512 of 576. Head dims may then be up to 576 and 512.
        out_dtype: The result's element type. With FP8 q: "bf16", "fp16" or "fp32"; None: that of out, or "bf16". With
            16-bit q: q's type; on sm_90a "fp32", for partial results; or "fp8_e4m3" or "int8", with o_descale.
        interpolated_exponentials: With FP8 q, k and v: whether sm_90a may interpolate half of the probabilities if LSE is
            not returned. That is faster; P is rounded by a fifth more than by e4m3 alone.
        q_positions: int32 (batch, pieces, 4), where batch may be 1: the positions of the queries in the whole
            sequence of which they are a part. A piece is (row, position, run, stride): it begins at row `row` of the
            part and ends where the next piece begins; row r has position + i // run * stride + i % run with i = r −
            row. Positions ascend. Unused pieces have row = 2**31 − 1.
        k_positions: The same for keys, beside q_positions or alone.
        global_seqlens: int32 (batch, 2), where batch may be 1; required with q_positions or k_positions: numbers of
            queries and keys of whole sequences. Masks, scores and dropout see positions and these lengths, and
            `tensors` are those of whole sequences.
        return_aux: Names of further outputs, fp32 unless noted, for 16-bit q, k and v. Raised: "max_logit" (heads_q),
            the largest score of each head; "row_max", of LSE's shape, that of each query; after scale and `score`,
            without sinks. Continued: "running_lse", of LSE's shape, with `out` of out_dtype "fp32": the call adds its
            keys to both. Written: "mean_score", of LSE's shape, Σ P · score of each query; "o_descale", of LSE's shape,
            the scale of each row of 8-bit o; "o_raw", of o's shape and type, o before `output`. A dict gives arrays, or
            None for new ones; initialize arrays that are raised or continued to −inf, and pass them to several calls.
        output: The function that is applied to o in fp32 before it is rounded: a gate, a residual, a text. None:
            none. It reads arrays of `tensors`. Not with FP8 q.

    The arrays from cu_seqlens_q to rng_state are read only on the device, so a captured CUDA graph can be replayed
    with other contents. Query i of a sequence stands at key seqlen_k − seqlen_q + i.

    Returns:
        o (batch, seqlen_q, heads_q, head_dim_v), in q's framework and type, or in out_dtype; with return_lse (o,
        LSE). With return_aux a dict of arrays by their names follows. A query that sees no key has o = 0, and LSE =
        −inf or its sink. The work is queued on the stream; for frameworks without streams, such as JAX, it is complete.

    Raises:
        InvalidArgumentError: An array or another argument is wrong. Nothing was launched.
        InvalidSpecError: The library does not serve this problem; the message says what would work.
        TypeError: An argument has a wrong type or name.
        Error: Compiling, loading or launching failed; `jit_attention.errors` lists the classes.

    Thread safety:
        Any number of threads may call at the same time, on one stream or several. Threads that need the same new
        kernel compile it once. The interpreter lock is released.

    Examples:
        >>> q = np.ones((1, 16, 4, 64), ml_dtypes.bfloat16)  # batch, seqlen, heads, head_dim
        >>> k = v = np.ones((1, 16, 2, 64), ml_dtypes.bfloat16)
        >>> o, lse = ja.attention(q, k, v, mask=ja.mask.causal(), return_lse=True)
        >>> o.shape, lse.shape
        ((1, 16, 4, 64), (1, 4, 16))
    """

class Attention:
    """The kernels of one spec, for calls of every size on every GPU. Made by `prepare`.

    A call costs less than one of `attention`, because the spec is not derived from the arrays again. Immutable; any
    number of threads may call it at the same time.

    Examples:
        >>> call = ja.prepare(ja.AttentionSpec(head_dim=64, mask=ja.mask.causal()))
        >>> q = np.ones((1, 16, 4, 64), ml_dtypes.bfloat16)
        >>> call(q, q, q).shape
        (1, 16, 4, 64)
        >>> call.kernel(q, q, q).arch
        'sm_90a'
    """

    @property
    def spec(self) -> AttentionSpec:
        """The spec that it was prepared for."""

    @overload
    def __call__(
        self, q: ArrayT, k: Array, v: Array | None = None, *, return_lse: Literal[False] = False,
        out: Array | None = None, layout: Layout = "BSHD", tensors: Mapping[str, Array] | None = None,
        stream: Stream | None = None, cu_seqlens_q: Array | None = None, cu_seqlens_k: Array | None = None,
        seqused_q: Array | None = None, seqused_k: Array | None = None, page_table: Array | None = None,
        cache_leftpad: Array | None = None, sinks: Array | None = None, q_descale: Array | None = None,
        k_descale: Array | None = None, v_descale: Array | None = None, k_block_scales: Array | None = None,
        v_block_scales: Array | None = None, v_mean: Array | None = None, lse_shift: Array | None = None,
        o_descale: Array | None = None, rng_state: Array | None = None, num_splits: int = 0, zero_padding: bool = False, dropout_p: float = 0.0,
        block_mask: BlockMask | None = None,
        q_positions: Array | None = None, k_positions: Array | None = None, global_seqlens: Array | None = None,
        return_aux: None = None,
    ) -> ArrayT: ...
    @overload
    def __call__(
        self, q: ArrayT, k: Array, v: Array | None = None, *, return_lse: Literal[True] | Array,
        out: Array | None = None, layout: Layout = "BSHD", tensors: Mapping[str, Array] | None = None,
        stream: Stream | None = None, cu_seqlens_q: Array | None = None, cu_seqlens_k: Array | None = None,
        seqused_q: Array | None = None, seqused_k: Array | None = None, page_table: Array | None = None,
        cache_leftpad: Array | None = None, sinks: Array | None = None, q_descale: Array | None = None,
        k_descale: Array | None = None, v_descale: Array | None = None, k_block_scales: Array | None = None,
        v_block_scales: Array | None = None, v_mean: Array | None = None, lse_shift: Array | None = None,
        o_descale: Array | None = None, rng_state: Array | None = None, num_splits: int = 0, zero_padding: bool = False, dropout_p: float = 0.0,
        block_mask: BlockMask | None = None,
        q_positions: Array | None = None, k_positions: Array | None = None, global_seqlens: Array | None = None,
        return_aux: None = None,
    ) -> tuple[ArrayT, ArrayT]: ...
    @overload
    def __call__(
        self, q: ArrayT, k: Array, v: Array | None = None, *, return_lse: bool | Array = False,
        out: Array | None = None, layout: Layout = "BSHD", tensors: Mapping[str, Array] | None = None,
        stream: Stream | None = None, cu_seqlens_q: Array | None = None, cu_seqlens_k: Array | None = None,
        seqused_q: Array | None = None, seqused_k: Array | None = None, page_table: Array | None = None,
        cache_leftpad: Array | None = None, sinks: Array | None = None, q_descale: Array | None = None,
        k_descale: Array | None = None, v_descale: Array | None = None, k_block_scales: Array | None = None,
        v_block_scales: Array | None = None, v_mean: Array | None = None, lse_shift: Array | None = None,
        o_descale: Array | None = None, rng_state: Array | None = None, num_splits: int = 0, zero_padding: bool = False, dropout_p: float = 0.0,
        block_mask: BlockMask | None = None,
        q_positions: Array | None = None, k_positions: Array | None = None, global_seqlens: Array | None = None,
        return_aux: Sequence[OutputName] | Mapping[OutputName, Array | None],
    ) -> tuple[ArrayT, dict[str, ArrayT]] | tuple[ArrayT, ArrayT, dict[str, ArrayT]]: ...
    @overload
    def __call__(
        self, q: ArrayT, k: Array, v: Array | None = None, *, return_lse: bool | Array = False,
        out: Array | None = None, layout: Layout = "BSHD", tensors: Mapping[str, Array] | None = None,
        stream: Stream | None = None, cu_seqlens_q: Array | None = None, cu_seqlens_k: Array | None = None,
        seqused_q: Array | None = None, seqused_k: Array | None = None, page_table: Array | None = None,
        cache_leftpad: Array | None = None, sinks: Array | None = None, q_descale: Array | None = None,
        k_descale: Array | None = None, v_descale: Array | None = None, k_block_scales: Array | None = None,
        v_block_scales: Array | None = None, v_mean: Array | None = None, lse_shift: Array | None = None,
        o_descale: Array | None = None, rng_state: Array | None = None, num_splits: int = 0, zero_padding: bool = False, dropout_p: float = 0.0,
        block_mask: BlockMask | None = None,
        q_positions: Array | None = None, k_positions: Array | None = None, global_seqlens: Array | None = None,
        return_aux: None = None,
    ) -> ArrayT | tuple[ArrayT, ArrayT]:
        """Computes attention, as `jit_attention.attention` does, for arrays that match the spec.

        The arrays must have the spec's element types, head dims, ratio of query heads to KV heads, and alignment.
        The arguments, the result and the errors are those of `jit_attention.attention`.
        """

    def kernel(
        self, q: Array | None = None, k: Array | None = None, v: Array | None = None, *, layout: Layout = "BSHD",
        tensors: Mapping[str, Array] | None = None, cu_seqlens_q: Array | None = None,
        cu_seqlens_k: Array | None = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
        page_table: Array | None = None, cache_leftpad: Array | None = None, sinks: Array | None = None,
        q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
        k_block_scales: Array | None = None, v_block_scales: Array | None = None, v_mean: Array | None = None,
        lse_shift: Array | None = None,
        o_descale: Array | None = None, rng_state: Array | None = None,
    ) -> Kernel:
        """Returns the kernel that a call with these arrays launches, and compiles it if necessary.

        Without arrays: the kernel for sizes that no kernel was chosen for. The errors are those of `prepare`.
        """

class Kernel:
    """A compiled kernel, with its source, its machine code and how it was chosen.

    Immutable; it needs no GPU, and any number of threads may read it.

    Examples:
        >>> kernel = ja.compile(ja.AttentionSpec(head_dim=64), "sm_80")
        >>> kernel.arch, kernel.threads, kernel.spill_bytes
        ('sm_80', 128, 0)
    """

    @property
    def spec(self) -> str:
        """The spec in one line, such as "bf16 d128 mask=causal"."""
    @property
    def name(self) -> str:
        """Name of the kernel, as profilers show it."""
    @property
    def arch(self) -> str:
        """The architecture that it was compiled for, such as "sm_90a"."""
    @property
    def config(self) -> dict[str, Any]:
        """The config: the kernel family, and the fields that tuning chooses, such as tile sizes."""
    @property
    def source(self) -> str:
        """The generated CUDA C++ program. It includes templates, which `dump` writes beside it."""
    @property
    def ptx(self) -> str:
        """The PTX. It is compiled again, because caches keep only machine code. Raises CompileFailedError."""
    @property
    def sass(self) -> str:
        """The SASS, by nvdisasm or cuobjdump. Raises FileNotFoundError if neither is found."""
    @property
    def cubin(self) -> bytes:
        """The machine code, an ELF file."""
    @property
    def report(self) -> dict[str, Any]:
        """All other properties but the code itself, as a dict."""
    @property
    def registers(self) -> int:
        """Registers of a thread."""
    @property
    def spill_bytes(self) -> int:
        """Bytes of a thread's registers that the assembler spilled to local memory: stores plus loads."""
    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory of a thread block, in bytes."""
    @property
    def threads(self) -> int:
        """Threads of a thread block."""
    @property
    def key(self) -> str:
        """Key of the cache entry: 32 hexadecimal digits."""
    @property
    def cached(self) -> bool:
        """Whether the kernel came from the disk cache."""
    @property
    def compile_ms(self) -> float:
        """Wall time of the compilation in milliseconds, also if another process compiled."""
    @property
    def why(self) -> str:
        """How the config was chosen: "cost model …", "recorded …", "tuned …" or "given"."""
    @property
    def tuning_log(self) -> list[str]:
        """One line per config that this process measured; empty if it measured none."""
    def dump(self, folder: str | os.PathLike[str]) -> list[str]:
        """Writes the kernel to a folder: kernel.cu, kernel.ptx, kernel.cubin, report.json, and its templates.

        kernel.sass is written, too, if nvdisasm or cuobjdump is found. The folder is created. No file is created or
        replaced if the disk has no room for all of them.

        Args:
            folder: The folder.

        Returns:
            The paths of the files.

        Raises:
            IoError: A file cannot be written.
            CompileFailedError: The PTX cannot be compiled.

        Examples:
            >>> kernel = ja.compile(ja.AttentionSpec(head_dim=64), "sm_80")
            >>> any(path.endswith("kernel.cu") for path in kernel.dump(folder))
            True
        """

def compile(spec: AttentionSpec, arch: str, config: Config | None = None) -> Kernel:
    """Compiles the kernel of a spec for an architecture, or loads it from the cache. Needs no GPU.

    Args:
        spec: The problem.
        arch: The architecture, such as "sm_80" or "sm_90a".
        config: A dict of config fields, or their text, "tile_q=128 tile_kv=64". None: the cost model chooses a config
            for typical sizes that does not spill registers.

    Returns:
        The compiled kernel.

    Raises:
        InvalidSpecError: The library does not serve the spec on this architecture.
        InvalidArgumentError: arch or config cannot be read.
        NoValidConfigError: No config fits, or the given one does not.
        CompileFailedError: The compiler rejected the program; the error has the program and the compiler's log.
        NvrtcUnavailableError: libnvrtc was not found.
        OfflineError: The kernel is in no cache, and JIT_ATTENTION_OFFLINE forbids compiling.

    Thread safety:
        Threads may compile at the same time; the interpreter lock is released.

    Examples:
        >>> ja.compile(ja.AttentionSpec(head_dim=64), "sm_80").spec
        'bf16 d64'
    """

def candidate_configs(spec: AttentionSpec, arch: str) -> list[dict[str, Any]]:
    """Lists the legal kernel configs of a spec on an architecture, most promising first.

    Args:
        spec: The problem.
        arch: The architecture, such as "sm_80" or "sm_90a".

    Returns:
        The configs as dicts of fields, which `compile` and `prepare` accept.

    Raises:
        InvalidArgumentError: arch cannot be read.
        InvalidSpecError: The library does not serve the spec on this architecture.
        NoValidConfigError: No config fits the architecture.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> ja.candidate_configs(ja.AttentionSpec(head_dim=64), "sm_80")[0]["family"]
        'forward_mma_sync'
    """

def bits_of(spec: AttentionSpec, device: int | str | None = None) -> str:
    """Returns a text with every fact, except the inputs, that determines the bits of a query's o and LSE.

    With one version of NVRTC and equal texts, calls compute bitwise identical results, whatever their layouts,
    batches, chunks, configs and kernel families, under masks that count positions from the end. A trainer and an
    engine compare their texts before the first step.

    Args:
        spec: The problem, with split_keys.
        device: The number of a device, or an architecture, such as "sm_90a". None: the current device.

    Returns:
        The text: the version of the arithmetic, the architecture, and the fields of the spec that decide.

    Raises:
        InvalidSpecError: The bits depend on more: without split_keys, with FP8, 8- or 4-bit keys, latents, or head
            dims above 256.
        UnsupportedDeviceError: No kernels are written for the device's architecture.
        InvalidArgumentError: device cannot be read.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> trained = ja.AttentionSpec(head_dim=64, sequences_q="varlen", split_keys=4096)
        >>> served = ja.AttentionSpec(head_dim=64, sequences_kv="paged", page_size=16, split_keys=4096)
        >>> ja.bits_of(trained, "sm_90a") == ja.bits_of(served, "sm_90a")
        True
    """

def prepare(
    spec: AttentionSpec, q: Array | None = None, k: Array | None = None, v: Array | None = None, *,
    tensors: Mapping[str, Array] | None = None, layout: Layout = "BSHD", device: int | None = None,
    config: Config | None = None, tuning: TuningMode | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    page_table: Array | None = None, cache_leftpad: Array | None = None, sinks: Array | None = None,
    q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
    k_block_scales: Array | None = None, v_block_scales: Array | None = None, v_mean: Array | None = None,
    lse_shift: Array | None = None,
    o_descale: Array | None = None, rng_state: Array | None = None, block_mask: BlockMask | None = None,
) -> Attention:
    """Compiles the kernel of a spec, or loads it from the cache, and loads it onto a device.

    Args:
        spec: The problem.
        q: If q, k and v are given, the config for calls of their sizes is chosen, too, and measured if tuning says
            so. Their contents do not matter.
        k: See q.
        v: See q.
        tensors: The arrays that mask and score read, by name, if q, k and v are given.
        layout: "BSHD" or "BHSD": the layout of q, k and v.
        device: Ordinal of the GPU. None: that of q, otherwise the current one. Calls on other GPUs compile at their
            first use there.
        config: The config for calls of every size: a dict of fields, or their text. Nothing is tuned then.
        tuning: "off", "recorded", "first_run" or "exhaustive". None: as JIT_ATTENTION_TUNING says.
        cu_seqlens_q: As in `attention`; this one and the following ones belong to q, k and v.
        cu_seqlens_k: As in `attention`.
        seqused_q: As in `attention`.
        seqused_k: As in `attention`.
        page_table: As in `attention`.
        cache_leftpad: As in `attention`.
        sinks: As in `attention`.
        q_descale: As in `attention`.
        k_descale: As in `attention`.
        v_descale: As in `attention`.
        k_block_scales: As in `attention`.
        v_block_scales: As in `attention`.
        v_mean: As in `attention`.
        lse_shift: As in `attention`.
        o_descale: As in `attention`.
        rng_state: As in `attention`.
        block_mask: A table of blocks that calls will pass; the spec's mask becomes the mask over this table.

    Returns:
        A callable for arrays that match the spec.

    Raises:
        InvalidSpecError: The library does not serve the spec on this device.
        InvalidArgumentError: An array or another argument is wrong.
        UnsupportedDeviceError: The device is too old.
        NoValidConfigError: No config fits, or the given one does not.
        CompileFailedError: The compiler rejected the program.
        NvrtcUnavailableError: libnvrtc was not found.
        OfflineError: The kernel is in no cache, and JIT_ATTENTION_OFFLINE forbids compiling.

    Thread safety:
        Threads may call at the same time; the interpreter lock is released.

    Examples:
        >>> call = ja.prepare(ja.AttentionSpec(head_dim=64))
        >>> call.kernel().spec
        'bf16 d64'
    """

@overload
def attention_backward(
    do: Array, q: ArrayT, k: Array, v: Array, o: Array, lse: Array, *, mask: Mask | None = None,
    score: Score | None = None, softmax_scale: float | None = None, dq: Array | None = None, dk: Array | None = None,
    dv: Array | None = None, dtype: OperandDType | DTypeObject | None = None, layout: Layout = "BSHD",
    tensors: Mapping[str, Array] | None = None, stream: Stream | None = None, deterministic: bool = False,
    dropout_p: float = 0.0, rng_state: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    page_table: None = None, cache_leftpad: None = None, dlse: Array | None = None,
    mean_score: Array | None = None, d_mean_score: Array | None = None, sinks: Array | None = None,
    d_sinks: Literal[False] | None = None, d_tensors: None = None, block_mask: BlockMask | None = None,
    tuning: TuningMode | None = None,
    q_positions: Array | None = None, k_positions: Array | None = None, global_seqlens: Array | None = None,
    output: OutputFunctor | None = None,
) -> tuple[ArrayT, ArrayT, ArrayT]: ...
@overload
def attention_backward(
    do: Array, q: ArrayT, k: Array, v: Array, o: Array, lse: Array, *, mask: Mask | None = None,
    score: Score | None = None, softmax_scale: float | None = None, dq: Array | None = None, dk: Array | None = None,
    dv: Array | None = None, dtype: OperandDType | DTypeObject | None = None, layout: Layout = "BSHD",
    tensors: Mapping[str, Array] | None = None, stream: Stream | None = None, deterministic: bool = False,
    dropout_p: float = 0.0, rng_state: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    page_table: None = None, cache_leftpad: None = None, dlse: Array | None = None,
    mean_score: Array | None = None, d_mean_score: Array | None = None, sinks: Array | None = None,
    d_sinks: Literal[False] | None = None, d_tensors: Sequence[str] | Mapping[str, Array | None],
    block_mask: BlockMask | None = None, tuning: TuningMode | None = None,
    q_positions: Array | None = None, k_positions: Array | None = None, global_seqlens: Array | None = None,
    output: OutputFunctor | None = None,
) -> tuple[ArrayT, ArrayT, ArrayT, dict[str, ArrayT]]: ...
@overload
def attention_backward(
    do: Array, q: ArrayT, k: Array, v: Array, o: Array, lse: Array, *, mask: Mask | None = None,
    score: Score | None = None, softmax_scale: float | None = None, dq: Array | None = None, dk: Array | None = None,
    dv: Array | None = None, dtype: OperandDType | DTypeObject | None = None, layout: Layout = "BSHD",
    tensors: Mapping[str, Array] | None = None, stream: Stream | None = None, deterministic: bool = False,
    dropout_p: float = 0.0, rng_state: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    page_table: None = None, cache_leftpad: None = None, dlse: Array | None = None,
    mean_score: Array | None = None, d_mean_score: Array | None = None, sinks: Array,
    d_sinks: Literal[True] | Array, d_tensors: None = None, block_mask: BlockMask | None = None,
    tuning: TuningMode | None = None,
    q_positions: Array | None = None, k_positions: Array | None = None, global_seqlens: Array | None = None,
    output: OutputFunctor | None = None,
) -> tuple[ArrayT, ArrayT, ArrayT, ArrayT]: ...
@overload
def attention_backward(
    do: Array, q: Array, k: Array, v: Array, o: Array, lse: Array, *, mask: Mask | None = None,
    score: Score | None = None, softmax_scale: float | None = None, dq: Array | None = None, dk: Array | None = None,
    dv: Array | None = None, dtype: OperandDType | DTypeObject | None = None, layout: Layout = "BSHD",
    tensors: Mapping[str, Array] | None = None, stream: Stream | None = None, deterministic: bool = False,
    dropout_p: float = 0.0, rng_state: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    page_table: None = None, cache_leftpad: None = None, dlse: Array | None = None,
    mean_score: Array | None = None, d_mean_score: Array | None = None, sinks: Array | None = None,
    d_sinks: bool | Array | None = None, d_tensors: Sequence[str] | Mapping[str, Array | None] | None = None,
    block_mask: BlockMask | None = None, tuning: TuningMode | None = None,
    q_positions: Array | None = None, k_positions: Array | None = None, global_seqlens: Array | None = None,
    output: OutputFunctor | None = None,
) -> tuple[Any, ...]:
    """Computes the gradients of attention: of q, k and v, of sinks, and of the tensors that the score reads.

    Two or more kernels are compiled for the problem at its first use, and chosen for its sizes.

    Args:
        do: The gradient of o, of o's shape, bf16 or fp16. q, k and v have the same type; for o and the gradients see
            dq. Any strides, if the last one is 1.
        q: As in the call of `attention`.
        k: As in the call of `attention`.
        v: As in the call of `attention`.
        o: The result of `attention`.
        lse: The LSE of `attention`, which `return_lse` returns.
        mask: As in the call of `attention`.
        score: As in the call of `attention`. The library differentiates a score of your own text, unless the text
            gives its derivative: declare with ``auto`` every variable that depends on `score`, or on a tensor of
            d_tensors.
        softmax_scale: As in the call of `attention`.
        dq: An array that receives the gradient of q, and is returned. It must not overlap another array. dq, dk, dv
            and o have q's type; on sm_90a all four may be fp32, for gradients that are summed later.
        dk: The same for k.
        dv: The same for v.
        dtype: "bf16" or "fp16": the element type of arrays of 16-bit integers, which cannot state it.
        layout: "BSHD" or "BHSD": the layout of all arrays but lse and varlen ones.
        tensors: As in the call of `attention`.
        stream: A stream's handle, or an object with ``__cuda_stream__``. None: the current stream of q's framework.
        deterministic: Whether equal inputs must give bitwise identical gradients. Otherwise dq may be summed in any
            order, which is faster on some GPUs.
        dropout_p: As in the call of `attention`.
        rng_state: As in the call of `attention`.
        cu_seqlens_q: As in the call of `attention`, read only on the device.
        cu_seqlens_k: As in the call of `attention`, read only on the device.
        seqused_q: As in the call of `attention`, read only on the device.
        seqused_k: As in the call of `attention`, read only on the device.
        page_table: Must be None: paged keys have no gradients.
        cache_leftpad: Must be None: left-padded caches have no gradients.
        dlse: The gradient of LSE, fp32, of lse's shape, if the loss depends on LSE.
        mean_score: With d_mean_score: the "mean_score" of `attention`.
        d_mean_score: The gradient of mean_score, fp32, of lse's shape, if the loss depends on it.
        sinks: As in the call of `attention`.
        d_sinks: True to return the gradient of sinks, too, fp32 (heads_q), or an array that receives it.
        d_tensors: Names of the tensors whose gradients are returned, too, or a dict of names and arrays that receive
            them (None: a new array). The tensors are fp32, bf16 or fp16. These gradients are always deterministic.
        block_mask: As in the call of `attention`. If it has mask bits, the mask is evaluated where possible.
        tuning: "off", "recorded", "first_run" or "exhaustive", for the backward kernels. None: as
            JIT_ATTENTION_TUNING says. Measuring writes to none of the caller's arrays.
        q_positions: As in the call of `attention`.
        k_positions: As in the call of `attention`.
        global_seqlens: As in the call of `attention`.
        output: As in the call of `attention`. Pass the "o_raw" of that call as `o`.

    Returns:
        (dq, dk, dv), of the shapes and types of q, k and v; dk and dv are sums over the query heads of a KV head.
        With d_tensors a dict of names and gradients follows, with d_sinks the gradient of sinks. A query that sees no
        key has dq = 0, and adds nothing to dk and dv. Padding rows are not written.

    Raises:
        InvalidArgumentError: An array or another argument is wrong. Nothing was launched.
        InvalidSpecError: The library does not serve this problem; the message says what would work.
        CompileFailedError: A score's text converts a value that depends on `score` to float, or calls a function
            without a derivative.
        TypeError: An argument has a wrong type or name.
        Error: Compiling, loading or launching failed; `jit_attention.errors` lists the classes.

    Thread safety:
        Any number of threads may call at the same time. The interpreter lock is released.

    Examples:
        >>> q = do = np.ones((1, 16, 2, 64), ml_dtypes.bfloat16)
        >>> o, lse = ja.attention(q, q, q, return_lse=True)
        >>> dq, dk, dv = ja.attention_backward(do, q, q, q, o, lse)
        >>> dv.shape, float(dv[0, 0, 0, 0])
        ((1, 16, 2, 64), 1.0)
    """

def prepare_backward(
    do: Array, q: Array, k: Array, v: Array, o: Array, lse: Array, *, mask: Mask | None = None,
    score: Score | None = None, softmax_scale: float | None = None, dq: Array | None = None, dk: Array | None = None,
    dv: Array | None = None, dtype: OperandDType | DTypeObject | None = None, layout: Layout = "BSHD",
    tensors: Mapping[str, Array] | None = None, stream: Stream | None = None, deterministic: bool = False,
    dropout_p: float = 0.0, rng_state: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    page_table: None = None, cache_leftpad: None = None, dlse: Array | None = None,
    mean_score: Array | None = None, d_mean_score: Array | None = None, sinks: Array | None = None,
    d_sinks: bool | Array | None = None, d_tensors: Sequence[str] | Mapping[str, Array | None] | None = None,
    block_mask: BlockMask | None = None, tuning: TuningMode | None = None,
    q_positions: Array | None = None, k_positions: Array | None = None, global_seqlens: Array | None = None,
    output: OutputFunctor | None = None,
) -> list[Kernel]:
    """Compiles, loads and tunes the kernels that `attention_backward` launches for the same arguments.

    Later calls of these sizes only launch, also while a CUDA graph is captured. The arguments are those of
    `attention_backward`. The contents of q, k, v, o, do and lse do not matter, and no array is written.

    Returns:
        The kernels in the order of their launches.

    Raises:
        InvalidArgumentError: An array or another argument is wrong.
        InvalidSpecError: The library does not serve this problem; the message says what would work.
        Error: Compiling or loading failed; `jit_attention.errors` lists the classes.

    Thread safety:
        Threads may call at the same time; the interpreter lock is released.

    Examples:
        >>> q = np.ones((1, 16, 2, 64), ml_dtypes.bfloat16)
        >>> lse = np.ones((1, 2, 16), np.float32)
        >>> len(ja.prepare_backward(q, q, q, q, q, lse)) >= 1
        True
    """

@overload
def append(
    k: Array, v: Array, k_cache: Array, v_cache: Array | None, *, slot_mapping: Array | None = None,
    seqused_k: Array | None = None, cu_seqlens_q: Array | None = None, page_table: Array | None = None,
    q: None = None, q_out: None = None, cos_sin: Array | None = None, cos: Array | None = None,
    sin: Array | None = None, positions: Array | None = None, rotary_interleaved: bool = False,
    mrope_sections: Sequence[int] | None = None, mrope_interleaved: bool = False, q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None, norm_eps: float = 1e-6, norm_adds_one: bool = False,
    k_scale: Array | None = None, v_scale: Array | None = None, k_block_scales: Array | None = None,
    v_block_scales: Array | None = None, cache_dtype: StoredDType | DTypeObject | None = None,
    dtype: OperandDType | DTypeObject | None = None, stream: Stream | None = None,
) -> None: ...
@overload
def append(
    k: Array, v: Array, k_cache: Array, v_cache: Array | None, *, slot_mapping: Array | None = None,
    seqused_k: Array | None = None, cu_seqlens_q: Array | None = None, page_table: Array | None = None,
    q: ArrayT, q_out: ArrayT | None = None, cos_sin: Array | None = None, cos: Array | None = None,
    sin: Array | None = None, positions: Array | None = None, rotary_interleaved: bool = False,
    mrope_sections: Sequence[int] | None = None, mrope_interleaved: bool = False, q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None, norm_eps: float = 1e-6, norm_adds_one: bool = False,
    k_scale: Array | None = None, v_scale: Array | None = None, k_block_scales: Array | None = None,
    v_block_scales: Array | None = None, cache_dtype: StoredDType | DTypeObject | None = None,
    dtype: OperandDType | DTypeObject | None = None, stream: Stream | None = None,
) -> ArrayT: ...
@overload
def append(
    k: Array, v: Array, k_cache: Array, v_cache: Array | None, *, slot_mapping: Array | None = None,
    seqused_k: Array | None = None, cu_seqlens_q: Array | None = None, page_table: Array | None = None,
    q: ArrayT | None = None, q_out: ArrayT | None = None, cos_sin: Array | None = None, cos: Array | None = None,
    sin: Array | None = None, positions: Array | None = None, rotary_interleaved: bool = False,
    mrope_sections: Sequence[int] | None = None, mrope_interleaved: bool = False, q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None, norm_eps: float = 1e-6, norm_adds_one: bool = False,
    k_scale: Array | None = None, v_scale: Array | None = None, k_block_scales: Array | None = None,
    v_block_scales: Array | None = None, cache_dtype: StoredDType | DTypeObject | None = None,
    dtype: OperandDType | DTypeObject | None = None, stream: Stream | None = None,
) -> ArrayT | None:
    """Stores the keys and values of new tokens in a KV cache, and applies RMS norm and rotary embedding before.

    The tokens of all requests lie one behind another: (tokens, heads, head_dim). Alternatively all arrays of tokens
    are (batch, seqlen, heads, head_dim). slot_mapping says where tokens go, or seqused_k does, with cu_seqlens_q and
    page_table.

    Args:
        k: New keys (tokens, heads_kv, head_dim), bf16 or fp16. Any strides, if the last one is 1.
        v: New values (tokens, heads_kv, head_dim_v), in k's type. Head dims are multiples of 8 from 8 to 1024.
        k_cache: The key cache, which is written: (pages, page_size, heads_kv, head_dim), or one entry per request,
            (batch, capacity, heads_kv, head_dim). k's type, FP8, or bytes of a cache_dtype. Any strides whose last is
            1, so that a cache with heads before tokens, or with K and V in one array, is passed as a view.
        v_cache: The value cache, of k_cache's shape with head_dim_v, which is written. None with latents.
        slot_mapping: int64 (tokens). page · page_size + row in the page, for each token; −1: the token is not stored.
        seqused_k: int32 (batch). Number of keys of each request. The new tokens are its last keys.
        cu_seqlens_q: int32 (batch + 1). The first token of each request, with seqused_k, if tokens lie one behind
            another.
        page_table: int32 (batch, max_pages). The pages of each request, with seqused_k. None: cache entry b belongs
            to request b.
        q: Queries (tokens, heads_q, head_dim), normalized and rotated in place, or into q_out. None: there are none.
        q_out: An array of q's shape that receives the queries.
        cos_sin: fp32, bf16 or fp16 (max_pos, rotary_dim). For each position the cosines of rotary_dim / 2 pairs, then
            their sines. The first rotary_dim elements of a head are rotated. None: no rotation.
        cos: (max_pos, rotary_dim / 2). With sin, instead of cos_sin.
        sin: (max_pos, rotary_dim / 2). With cos, instead of cos_sin.
        positions: int64 (tokens), or (3, tokens) with mrope_sections. The row of cos_sin of each token. None, with
            seqused_k: the token's place in its request.
        rotary_interleaved: Whether pairs are (2j, 2j + 1), as in GPT-J. Otherwise they are (j, j + rotary_dim / 2),
            as in GPT-NeoX.
        mrope_sections: Three numbers of pairs that take their position from the first, second and third row of
            positions; their sum is rotary_dim / 2. None: positions has one row.
        mrope_interleaved: Whether the three kinds of pairs alternate, as in Qwen3-VL. Otherwise one section follows
            another, as in Qwen2-VL.
        q_norm_weight: (head_dim). Weights of an RMS norm of every query head. None: no norm.
        k_norm_weight: (head_dim). Weights of an RMS norm of every key head. None: no norm.
        norm_eps: Added to the mean of squares.
        norm_adds_one: Whether the factors are 1 + weight, as in Gemma.
        k_scale: fp32, with 8- or 4-bit caches. Keys are divided by it, rounded to nearest even and saturated. (1) and
            (heads_kv) are read; None: 1. (pages, page_size, heads_kv) receives one scale per stored row: its largest
            magnitude divided by the largest number (448, 57344, 127). With "int4" that scale is (max − min) / 15,
            with the row's zero point in its lowest four bits.
        v_scale: The same for values.
        k_block_scales: With "nvfp4" and "mxfp4": bytes (pages, page_size, heads_kv, head_dim / 16) of e4m3, or
            (…, head_dim / 32) of e8m0, written: the scale of each block of columns.
        v_block_scales: The same for values.
        cache_dtype: "fp8_e4m3", "fp8_e5m2", "int8", "int4", "nvfp4" or "mxfp4": the element type of caches that are
            bytes (uint8). Or "latent_656", "latent_584" or "latent_528": k_cache is (pages, page_size, 1, bytes) and
            v_cache None; k is the last 64 columns of a row, v the 512, 448 or 448 before.
        dtype: "bf16" or "fp16": the element type of arrays of 16-bit integers, which cannot state it.
        stream: A stream's handle, or an object with ``__cuda_stream__``. None: the current stream of k's framework.

    A token whose slot, page or request does not exist is not stored. A token whose position is no row of cos_sin is
    ignored, and so is its query. Nothing outside of the caches' rows is ever written.

    Returns:
        q_out, or q if q_out is None; None without q.

    Raises:
        InvalidArgumentError: An array or another argument is wrong. Nothing was launched.
        InvalidSpecError: The library does not serve these types or sizes; the message says what would work.
        TypeError: An argument has a wrong type or name.
        Error: Compiling, loading or launching failed; `jit_attention.errors` lists the classes.

    Thread safety:
        Any number of threads may call at the same time, if they write to different rows.

    Examples:
        >>> k = v = np.ones((3, 2, 64), ml_dtypes.bfloat16)           # three new tokens
        >>> k_cache = np.zeros((4, 16, 2, 64), ml_dtypes.bfloat16)    # four pages of 16 rows
        >>> v_cache = np.zeros_like(k_cache)
        >>> ja.append(k, v, k_cache, v_cache, slot_mapping=np.array([16, 17, 18]))  # rows 0, 1 and 2 of page 1
        >>> float(k_cache[1, 2, 0, 0]), float(k_cache[1, 3, 0, 0])
        (1.0, 0.0)
    """

def key_mass(
    q: ArrayT, k: Array, lse: Array, *, mask: Mask | None = None, score: Score | None = None,
    softmax_scale: float | None = None, heads: Literal["kv", "q"] = "kv", tensors: Mapping[str, Array] | None = None,
    cu_seqlens_q: Array | None = None, cu_seqlens_k: Array | None = None, page_table: Array | None = None,
    seqused_k: Array | None = None, out: Array | None = None, dtype: OperandDType | DTypeObject | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """Sums the probabilities of each key over the queries that see it: a score for evicting keys from a cache.

    mass[key] = Σ exp(score − LSE), with the scores of attention. For the mass of the last queries alone, pass their
    rows of q and lse: causal masks and windows are aligned to the ends of sequences.

    Args:
        q: Queries, as `attention` has them, bf16 or fp16, with head_dim up to 256.
        k: Keys, dense, varlen or in pages.
        lse: The LSE that `attention` returned for all keys, fp32 (batch, heads_q, seqlen_q) or (heads_q, total_q).
        mask: The mask of the call that returned lse.
        score: The score of that call.
        softmax_scale: The scale of the same call. None: 1/sqrt(head_dim).
        heads: "kv": the sum over the query heads of a KV head. "q": one mass for each query head.
        tensors: The arrays that mask and score read, by name.
        cu_seqlens_q: int32 (batch + 1), with varlen q, as in `attention`.
        cu_seqlens_k: int32 (batch + 1), with varlen k, as in `attention`.
        page_table: int32 (batch, max_pages), with k in pages, as in `attention`.
        seqused_k: int32 (batch), beside page_table: the keys of each request. None: all that fit in its pages.
        out: fp32, an array that receives the result. None: a new array. Keys outside of the ranges of cu_seqlens_k
            are not written.
        dtype: What 16-bit integers stand for: "bf16" or "fp16".
        stream: As in `attention`.

    Returns:
        fp32 (batch, heads, seqlen_kv), or (heads, total_k) for varlen keys. With pages seqlen_kv is max_pages ·
        page_size, rows behind the keys of a request are 0, and pages that requests share have a mass in each. Equal
        inputs give bitwise identical results.

    Raises:
        InvalidArgumentError: An array or another argument is wrong. Nothing was launched.
        InvalidSpecError: The library does not serve this problem; the message says what would work.
        Error: Compiling, loading or launching failed.

    Examples:
        >>> q = k = v = np.ones((1, 16, 2, 64), ml_dtypes.bfloat16)
        >>> _, lse = ja.attention(q, k, v, return_lse=True)
        >>> ja.key_mass(q, k, lse).shape  # each key has 1 / 16 of each of 16 queries
        (1, 2, 16)
    """

def top_k(
    scores: ArrayT, k: int, *, starts: Array | None = None, ends: Array | None = None, init_blocks: int = 0,
    local_blocks: int = 0, page_table: Array | None = None, page_size: int = 0, out: Array | None = None,
    out_counts: Array | None = None, dtype: OperandDType | DTypeObject | None = None, stream: Stream | None = None,
) -> tuple[ArrayT, ArrayT]:
    """Chooses the k largest scores of each row, exactly: the keys, or blocks of keys, that a query attends to.

    A row sees its columns [start, end). The smaller column wins ties; −0 equals 0; NaN ranks below every number, and
    −inf is never chosen. The host does not wait for the device.

    Args:
        scores: (rows, columns) or (rows, heads, columns): fp32, bf16 or fp16, any strides whose last is 1.
        k: Columns of a list: 1 to 2,048.
        starts: int32 (rows). The first column that a row sees. None: 0.
        ends: int32 (rows). One past the last column. None: all columns. Clamped to the number of columns.
        init_blocks: So many of the first visible columns are chosen whatever their scores.
        local_blocks: The same of the last visible ones. Together at most k.
        page_table: int32 (entries, pages), with page_size. Consecutive groups of rows / entries rows share an entry.
            Indices are then slots: table[entry, column / page_size] · page_size + column % page_size, or −1 without
            such a page.
        page_size: Columns of a page of page_table.
        out: int32 (rows, k) or (rows, heads, k), an array that receives the indices. None: a new one.
        out_counts: int32 (rows) or (rows, heads), an array that receives the counts. None: a new one.
        dtype: What 16-bit integers stand for: "bf16" or "fp16".
        stream: As in `attention`.

    Returns:
        (indices, counts). Indices are in the order of columns, −1 behind the count.

    Raises:
        InvalidArgumentError: An array or another argument is wrong. Nothing was launched.
        InvalidSpecError: The library does not serve this k, or these blocks; the message says what would work.
        Error: Compiling, loading or launching failed.

    Examples:
        >>> scores = np.array([[3, 1, 3, 2, 3]], np.float32)
        >>> indices, counts = ja.top_k(scores, 2)
        >>> indices.tolist(), counts.tolist()
        ([[0, 2]], [2])
    """

def transpose_lists(
    indices: ArrayT, counts: Array | None = None, *, limit: int, stream: Stream | None = None
) -> tuple[ArrayT, ArrayT]:
    """Transposes lists: for each key, or block of keys, the lists that name it, in their order.

    Results are the same in every run. Nothing waits for the device.

    Args:
        indices: int32 (rows, heads, entries), any strides but the last, which is 1: the list of each row, in any order.
        counts: int32 (rows, heads). How many of the entries count. None: all.
        limit: Number of keys, or blocks. Entries below 0 or ≥ limit are skipped.
        stream: As in `attention`.

    Returns:
        (starts, places): int32 (heads, limit + 1) and (heads, rows · entries). places[head, starts[head, k] :
        starts[head, k + 1]] has, in ascending order, row · entries + i for each list whose i-th entry is k.
        Duplicates occur twice. Elements after the last place of a head are undefined.

    Raises:
        InvalidArgumentError: An array or another argument is wrong. Nothing was launched.
        Error: Compiling, loading or launching failed.

    Examples:
        >>> starts, places = ja.transpose_lists(np.array([[[2, 0]], [[-1, 2]]], np.int32), limit=3)
        >>> starts.tolist(), places[0, :3].tolist()
        ([[0, 1, 1, 3]], [1, 0, 3])
    """

def score_blocks(
    q: ArrayT, k: Array, *, block_size: int = 128, reduce: Literal["max", "mean", "probability"] = "max",
    mask: Mask | None = None, score: Score | None = None, softmax_scale: float | None = None,
    tensors: Mapping[str, Array] | None = None, cu_seqlens_q: Array | None = None, cu_seqlens_k: Array | None = None,
    blocks: int | None = None, lse: Array | None = None, key_span: int = 1, out: Array | None = None,
    dtype: OperandDType | DTypeObject | None = None, stream: Stream | None = None,
) -> ArrayT:
    """Scores blocks of keys: the largest or the mean score of a query with the keys of a block, or their probabilities, summed
    over the heads that share keys. For sm_90a.

    Scores are those of attention, after scale, score functor and mask. The maximum or mean is over the keys that the
    query sees, −inf if it sees none, which `top_k` does not choose; NaN propagates. Probabilities are
    exp(score − lse), and 0 where a query does not see a key: give `top_k` ends.

    Args:
        q: Queries, as `attention` has them, bf16 or fp16, with head_dim up to 256 and rows aligned to 16 bytes.
        k: Keys, dense or varlen.
        block_size: Keys of a block: 8, 16, 32, 64 or 128; of probabilities strides, also 1, 2 and 4.
        reduce: "max", "mean" or "probability".
        mask: As in `attention`.
        score: As in `attention`.
        softmax_scale: As in `attention`. None: 1/sqrt(head_dim).
        tensors: The arrays that mask and score read, by name.
        cu_seqlens_q: int32 (batch + 1), with varlen q, as in `attention`.
        cu_seqlens_k: int32 (batch + 1), with varlen k, as in `attention`.
        blocks: Blocks of a row, with varlen k; those behind a sequence have −inf, or probability 0. None: those of out, or of
            dense k.
        lse: With "probability": fp32 (batch, heads_q, seqlen_q), or (heads_q, total_q) for varlen q, of attention to k.
        key_span: With "probability": key i stands for strides i to i + key_span − 1, and counts once for each that lies in a
            block. 1, or 2 where compressed keys overlap, as NSA's do: each of 32 tokens, one every 16.
        out: fp32, an array that receives the result, any strides whose last is 1. None: a new array. Rows outside of the
            ranges of cu_seqlens_q are not written.
        dtype: What 16-bit integers stand for: "bf16" or "fp16".
        stream: As in `attention`.

    Returns:
        fp32 (batch, seqlen_q, heads_q, blocks), or (total_q, heads_q, blocks) for varlen q; of probabilities heads_kv.

    Raises:
        InvalidArgumentError: An array or another argument is wrong. Nothing was launched.
        InvalidSpecError: The library does not serve this problem; the message says what would work.
        UnsupportedDeviceError: The GPU is not of sm_90a.
        Error: Compiling, loading or launching failed.

    Examples:
        >>> q = k = np.ones((1, 16, 2, 64), ml_dtypes.bfloat16)
        >>> scores = ja.score_blocks(q, k, block_size=8, mask=ja.mask.causal())
        >>> scores[0, 7, 0].tolist()  # the eighth query sees the first block alone
        [8.0, -inf]
    """

def score_keys(
    q: Array, k: Array, weights: ArrayT, *, k_scale: Array | None = None, starts: Array | None = None,
    ends: Array | None = None, page_table: Array | None = None, out: Array | None = None,
    block_out: Array | None = None, dtype: InputDType | DTypeObject | None = None, stream: Stream | None = None,
) -> ArrayT:
    """Scores keys by an indexer, as DeepSeek-V3.2 does; `top_k` chooses from the scores. For sm_90a.

    score[token, key] = k_scale[key] · Σ over heads of weights[token, head] · relu(q[token, head] · k[key]), with sums in
    fp32. Multiply the weights of a token by the scale of its q.

    Args:
        q: (tokens, heads, head_dim): FP8 e4m3, bf16 or fp16; 8, 16, 32, 64 or 128 heads, head_dim 64 or 128.
        k: (keys, head_dim) of all requests, or (pages, page_size, head_dim) with page_table, in q's type. Any strides
            of multiples of 16 bytes: the keys of a page that ends with its scales are a view.
        weights: fp32 (tokens, heads).
        k_scale: fp32 (keys) or (pages, page_size), any strides. None: 1.
        starts: int32 (tokens). The first key that a token sees. None: 0.
        ends: int32 (tokens). The key behind the last one. None: all.
        page_table: int32 (entries, pages per entry). Consecutive groups of tokens / entries tokens share an entry.
            Keys of a page that does not exist have score −inf. For a second indexer (DeepSeek-V4.1), each token's
            list of blocks of 8 keys serves as a table of pages of 8, and only these keys are scored.
        out: fp32 (tokens, keys), an array that receives the scores; with page_table, of as many keys as are wanted. None:
            a new one. Keys that a token does not see are not written: give `top_k` the same starts and ends.
        block_out: fp32 (tokens, (keys + 7) / 8), an array that receives the largest score of each block of 8 keys;
            blocks without visible keys are not written. None: not computed.
        dtype: "fp8_e4m3", "bf16" or "fp16": the element type of arrays of integers, which cannot state it.
        stream: As in `attention`; the default is the current stream of weights' framework.

    Returns:
        fp32 (tokens, keys). Equal inputs give bitwise identical results.

    Raises:
        InvalidArgumentError: An array or another argument is wrong. Nothing was launched.
        InvalidSpecError: The library does not serve these sizes; the message says what would work.
        UnsupportedDeviceError: The GPU is not of sm_90a.
        Error: Compiling, loading or launching failed.

    Examples:
        >>> q, k = np.ones((1, 8, 64), ml_dtypes.bfloat16), np.ones((3, 64), ml_dtypes.bfloat16)
        >>> ja.score_keys(q, k, np.full((1, 8), 0.5, np.float32)).tolist()
        [[256.0, 256.0, 256.0]]
    """

def merge(
    outs: Sequence[ArrayT] | ArrayT, lses: Sequence[Array] | Array, *, out: Array | None = None,
    out_lse: Array | None = None, out_dtype: OutputDType | DTypeObject | None = None,
    dtype: OperandDType | DTypeObject | None = None, stream: Stream | None = None,
) -> tuple[ArrayT, ArrayT]:
    """Merges partial attention results over different keys into the result over all of these keys.

    With M = max LSE and w = exp(LSE − M) of each part, o = Σ w o / Σ w and LSE = M + log Σ w, in fp32 and in the
    given order.

    Args:
        outs: Partial outputs: a list of arrays (tokens, heads, head_dim_v) or (batch, seqlen, heads, head_dim_v), or
            one array with the parts along an additional first dimension. bf16, fp16 or fp32; any strides whose last
            is 1.
        lses: Their LSE, fp32, natural logarithm: (heads, tokens) or (batch, heads, seqlen), any strides, listed or
            stacked as outs. −inf and +inf both mean that the part has no keys for the row; its output is not read.
        out: An array that receives the output; it may be one of outs, if the types are equal.
        out_lse: An array that receives LSE; it may be one of lses.
        out_dtype: The output's element type: "bf16", "fp16" or "fp32". None: that of out, or of outs.
        dtype: "bf16" or "fp16": the element type of arrays of 16-bit integers, which cannot state it.
        stream: A stream's handle, or an object with ``__cuda_stream__``. None: the current stream of the framework of
            outs.

    Returns:
        (o, LSE). A row without keys in any part has o = 0 and LSE = −inf.

    Raises:
        InvalidArgumentError: An array or another argument is wrong. Nothing was launched.
        InvalidSpecError: The library does not serve these types or sizes; the message says what would work.
        TypeError: An argument has a wrong type or name.
        Error: Compiling, loading or launching failed; `jit_attention.errors` lists the classes.

    Thread safety:
        Any number of threads may call at the same time, if they write to different arrays.

    Examples:
        >>> q = np.ones((1, 4, 2, 64), ml_dtypes.bfloat16)
        >>> k = np.ones((1, 32, 2, 64), ml_dtypes.bfloat16)
        >>> first = ja.attention(q, k[:, :16], k[:, :16], return_lse=True)
        >>> second = ja.attention(q, k[:, 16:], k[:, 16:], return_lse=True)
        >>> o, lse = ja.merge([first[0], second[0]], [first[1], second[1]])
        >>> o.shape, lse.shape
        ((1, 4, 2, 64), (1, 2, 4))
    """

class ExchangeBuffer:
    """Device memory, filled with 0, for `exchange_merge` between devices of one process. Separate processes use
    memory that their framework shares, such as torch's symmetric memory.
    """

    def __init__(self, nbytes: int, *, device: int = 0, peers: Iterable[int] = ()) -> None:
        """Allocates.

        Args:
            nbytes: Size in bytes.
            device: Ordinal of the device.
            peers: Ordinals of the devices whose kernels access it. Afterwards they may access all memory of `device`.
        """
    @property
    def address(self) -> int:
        """Address in the address space of the process."""
    @property
    def nbytes(self) -> int:
        """Size in bytes."""
    def clear(self) -> None:
        """Fills the buffer with 0, which clears a fault. Call it on all ranks, while no call of any rank runs.

        Raises:
            DriverError: The device failed.

        Examples:
            >>> ja.ExchangeBuffer(4096).clear()
        """

def exchange_merge(
    o: ArrayT, lse: Array, *, peers: Iterable[int], nbytes: int, rank: int,
    share: Literal["all", "heads", "tokens"] = "all", out: Array | None = None, out_lse: Array | None = None,
    out_dtype: OutputDType | DTypeObject | None = None, timeout: float = 30.0,
    dtype: OperandDType | DTypeObject | None = None, stream: Stream | None = None,
) -> tuple[ArrayT, ArrayT]:
    """Exchanges partial attention results with other devices, each of which has attended to its share of the keys, and
    merges them as `merge` does, in the order of ranks. One kernel does both; graphs may capture it.

    All ranks make the same calls, with equal shapes and types, each on one stream.

    Args:
        o: The partial output of this rank: (tokens, heads, head_dim_v). bf16, fp16 or fp32; any strides whose last is 1.
        lse: Its LSE, fp32, natural logarithm: (heads, tokens), any strides. −inf and +inf both mean that the rank has no
            keys for the row; its output is not read. Sinks count once: they belong to the LSE of one rank alone.
        peers: The addresses of all ranks' buffers, this rank's included, in this device's address space:
            `ExchangeBuffer.address`, or `buffer_ptrs` of torch's symmetric memory. Filled with 0 on all ranks before
            the first call.
        nbytes: Size of each buffer, the same on all ranks: `exchange_merge_bytes` or more.
        rank: The number of this rank among peers.
        share: The rows that each rank receives: "all"; or "heads" or "tokens": with n ranks and m heads (tokens),
            those from m · rank // n up to m · (rank + 1) // n.
        out: An array that receives the output.
        out_lse: An array that receives LSE.
        out_dtype: The output's element type: "bf16", "fp16" or "fp32". None: that of out, or of o.
        timeout: Seconds that rows wait for a rank. Then they become NaN, as do all rows of later calls, and
            `exchange_fault` returns the reason.
        dtype: "bf16" or "fp16": the element type of arrays of 16-bit integers, which cannot state it.
        stream: A stream's handle, or an object with ``__cuda_stream__``. None: the current stream of the framework of o.

    Returns:
        (o, LSE) of the rows that the rank receives. A row without keys on any rank has o = 0 and LSE = −inf.

    Raises:
        InvalidArgumentError: An array or another argument is wrong. Nothing was launched.
        InvalidSpecError: The library does not serve these types or sizes; the message says what would work.
        TypeError: An argument has a wrong type or name.
        Error: Compiling, loading or launching failed; `jit_attention.errors` lists the classes.

    Thread safety:
        Any number of threads may call at the same time, for different ranks.

    Examples:
        One rank alone, whose result is its own:

        >>> buffer = ja.ExchangeBuffer(
        ...     ja.exchange_merge_bytes(ranks=1, tokens=4, heads=2, head_dim_v=64, dtype="fp32"))
        >>> o, lse = np.ones((4, 2, 64), np.float32), np.zeros((2, 4), np.float32)
        >>> merged, _ = ja.exchange_merge(o, lse, peers=[buffer.address], nbytes=buffer.nbytes, rank=0)
        >>> merged.shape, ja.exchange_fault(buffer.address)
        ((4, 2, 64), None)
    """

def exchange_merge_bytes(
    *, ranks: int, tokens: int, heads: int, head_dim_v: int, dtype: OutputDType | DTypeObject,
    out_dtype: OutputDType | DTypeObject | None = None, share: Literal["all", "heads", "tokens"] = "all",
) -> int:
    """The size of each rank's buffer for `exchange_merge`.

    Args:
        ranks: Number of ranks, 1 to 16.
        tokens: The most tokens of a call.
        heads: Heads of o.
        head_dim_v: Elements of a row of o.
        dtype: Element type of o.
        out_dtype: That of the output. None: the same.
        share: As in `exchange_merge`.

    Returns:
        Bytes.

    Raises:
        InvalidArgumentError: A size is negative, or there are more than 2^31 rows.
        InvalidSpecError: The library does not serve these types or sizes.

    Thread safety:
        Any number of threads may call at the same time.

    Examples:
        >>> ja.exchange_merge_bytes(ranks=2, tokens=1, heads=64, head_dim_v=128, dtype="bf16", share="heads")
        33600
    """

def exchange_fault(address: int, *, stream: Stream | None = None) -> str | None:
    """Returns the fault of the first call of `exchange_merge` that failed over a buffer: the rank that it waited for,
    and the state of that rank. Waits for the stream.

    Args:
        address: That of the rank's own buffer.
        stream: A stream's handle, or an object with ``__cuda_stream__``. None: the default stream of the device.

    Returns:
        A sentence, or None where no call has failed.

    Raises:
        InvalidArgumentError: The address is that of no device.
        DriverError: A kernel on the stream has failed.

    Thread safety:
        Any number of threads may call at the same time.

    Examples:
        >>> buffer = ja.ExchangeBuffer(4096)
        >>> ja.exchange_fault(buffer.address) is None
        True
    """

def tune(
    spec: AttentionSpec, *, batch: int, heads_q: int, seqlen_q: int, seqlen_kv: int,
    tensors: Mapping[str, Array] | None = None, device: int = 0, exhaustive: bool = False, backward: bool = False,
    deterministic: bool = False,
) -> TuningReport:
    """Measures kernel configs of a spec on a GPU and records the fastest one, for this and later processes.

    Args:
        spec: The problem.
        batch: Batch size of the calls to come. Sizes that round up to the same powers of two share a record.
        heads_q: Query heads of the calls to come.
        seqlen_q: Queries of the calls to come.
        seqlen_kv: Keys of the calls to come.
        tensors: The arrays that mask and score read, by name; their contents decide which tiles are computed.
        device: Ordinal of the GPU.
        exhaustive: Whether every legal config is measured, however long it takes.
        backward: Whether the kernels of `attention_backward` are tuned, instead of those of `attention`.
        deterministic: With backward: whether the calls to come ask for deterministic gradients.

    Returns:
        A dict with the chosen configs and their times in microseconds (`jit_attention.typing.TuningReport`).

    Raises:
        InvalidArgumentError: An argument is wrong, or the device is emulated and has no time to measure.
        Error: Compiling, loading or launching failed; `jit_attention.errors` lists the classes.

    Thread safety:
        Threads may call at the same time, but work on the GPU disturbs the measurement.

    Examples:
        >>> spec = ja.AttentionSpec(head_dim=64)
        >>> ja.tune(spec, batch=1, heads_q=8, seqlen_q=1024, seqlen_kv=1024)["median_us"]  # doctest: +GPU
        31.5
    """

class TileMap:
    """The tiles of scores that a mask keeps. Notebooks show it as a picture. Made by `tile_map`."""

    @property
    def classes(self) -> list[list[Literal["full", "partial", "empty"]]]:
        """One list per tile of queries, with the class of each tile of keys."""
    @property
    def counts(self) -> dict[str, int]:
        """Number of tiles that are "full", "partial" and "empty"."""
    @property
    def computed_share(self) -> float:
        """The fraction of tiles that are not empty, from 0 to 1."""
    @property
    def notes(self) -> list[str]:
        """One sentence for each part of the mask that has to be evaluated for every score, with the reason."""

def tile_map(
    mask: Mask | None = None, *, score: Score | None = None, seqlen_q: int, seqlen_kv: int, batch: int = 1,
    heads_q: int = 1, entry: int = 0, head: int = 0, tile_q: int = 128, tile_kv: int = 128,
    tensors: Mapping[str, Array] | None = None,
) -> TileMap:
    """Classifies the tiles of scores as kernels do: full, partial, or empty and therefore skipped.

    Args:
        mask: The mask. None: every query sees every key.
        score: A score; a tile that its text maps to −INFINITY everywhere is empty.
        seqlen_q: Number of queries.
        seqlen_kv: Number of keys.
        batch: Batch size, which a text may read.
        heads_q: Number of query heads, which a text may read.
        entry: The batch entry whose tiles are classified.
        head: The query head whose tiles are classified.
        tile_q: Queries of a tile.
        tile_kv: Keys of a tile.
        tensors: The arrays that mask and score read, by name: dense, in CPU memory.

    Returns:
        The classes. Tiles of a text that the library cannot analyze, or that has a `classify` body, are partial.

    Raises:
        InvalidArgumentError: An argument is wrong.

    Thread safety:
        Threads may call at the same time; the interpreter lock is released.

    Examples:
        >>> tiles = ja.tile_map(ja.mask.causal(), seqlen_q=512, seqlen_kv=512)
        >>> tiles.counts
        {'full': 6, 'partial': 4, 'empty': 6}
    """

class Device:
    """A GPU of this process, or an emulated device. `devices` lists them.

    Examples:
        >>> ja.devices()[0].arch
        'sm_90a'
    """

    @property
    def ordinal(self) -> int:
        """The CUDA ordinal."""
    @property
    def name(self) -> str:
        """The product name."""
    @property
    def arch(self) -> str:
        """The most capable architecture that it runs, such as "sm_90a"."""
    @property
    def sm_count(self) -> int:
        """Number of streaming multiprocessors."""
    @property
    def smem_per_block_optin(self) -> int:
        """The largest shared memory of a thread block, in bytes."""
    @property
    def l2_bytes(self) -> int:
        """Size of the L2 cache in bytes."""
    @property
    def memory_bytes(self) -> int:
        """Size of the memory in bytes."""
    @property
    def driver_version(self) -> int:
        """The CUDA version of the driver: 1000 · major + 10 · minor."""
    @property
    def uuid(self) -> str:
        """The UUID in hexadecimal digits."""
    @property
    def emulated(self) -> bool:
        """Whether kernels run on the CPU. Their times then mean nothing."""

def devices() -> list[Device]:
    """Lists the devices that this process computes on, by ordinal.

    Returns:
        The GPUs that CUDA_VISIBLE_DEVICES shows, or the emulated devices.

    Raises:
        DriverUnavailableError: There is neither a GPU nor an emulated device.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> ja.devices()[0].emulated
        True
    """

def use_device(selection: str) -> None:
    """Chooses the devices of this process. Call it before the first use of a device.

    Args:
        selection: "cuda": the GPUs, the default. "emulated:sm_90a" and the like: an emulated device of an
            architecture; "emulated:sm_90a,sm_80" are two.

    Raises:
        InvalidArgumentError: The selection cannot be read, or a device was used before with another selection.

    Thread safety:
        Threads may call at the same time, but only one selection can win.

    Examples:
        >>> ja.use_device("emulated:sm_90a")
    """

class LaunchTrace:
    """The record of one launch on an emulated device. `trace` collects them."""

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
    @property
    def findings(self) -> list[str]:
        """The errors that the emulator found, such as data races: one sentence each, with the place."""
    @property
    def warp_instructions(self) -> int:
        """Number of instructions that warps executed."""
    @property
    def seconds(self) -> float:
        """Wall time of the emulation."""
    @property
    def counts(self) -> dict[str, Any]:
        """Instruction counts: in total, by instruction class, and for each line of the source."""
    @property
    def listing(self) -> str:
        """The kernel's PTX, with the number of executions before each line."""

class trace:
    """A context manager that records the launches of this thread on emulated devices, including failed ones.

    Launches on a GPU are not recorded. A trace belongs to the thread that entered it.

    Examples:
        >>> q = np.ones((1, 16, 2, 64), ml_dtypes.bfloat16)
        >>> with ja.trace() as recorded:
        ...     o = ja.attention(q, q, q)
        >>> len(recorded.launches), recorded.launches[0].findings
        (1, [])
    """

    def __init__(self) -> None: ...
    def __enter__(self) -> trace: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    @property
    def launches(self) -> list[LaunchTrace]:
        """The launches in their order."""

def write_pack(
    path: str, specs: Iterable[AttentionSpec], targets: Iterable[str], *, heads_q: int = 32, max_batch: int = 64,
    max_seqlen: int = 131072, training: bool = False, serving: bool = False, rotary_dim: int = 0,
    rotary_interleaved: bool = False, mrope_sections: Sequence[int] | None = None, mrope_interleaved: bool = False,
    norm: bool = False, norm_adds_one: bool = False,
) -> list[PackedKernel]:
    """Compiles every kernel that calls of some specs need, and writes them to one file, a pack. Needs no GPU.

    Processes that set JIT_ATTENTION_PACK to the absolute path load these kernels instead of compiling them.

    Args:
        path: The file.
        specs: The problems.
        targets: The architectures, such as "sm_90a", or "emulated:sm_90a" for an emulated device.
        heads_q: The largest number of query heads of the calls to come.
        max_batch: The largest batch of the calls to come.
        max_seqlen: The largest number of keys of the calls to come.
        training: Whether the kernels of `attention_backward` are packed, too.
        serving: Whether the kernels of `append` and `merge` are packed, too.
        rotary_dim: With serving: the number of elements of a head that `append` rotates. 0: all of them.
        rotary_interleaved: With serving: as in `append`.
        mrope_sections: With serving: as in `append`.
        mrope_interleaved: With serving: as in `append`.
        norm: With serving: whether `append` normalizes heads of q and k, with weights of the specs' type.
        norm_adds_one: With norm: as in `append`.

    Returns:
        One dict per kernel (`jit_attention.typing.PackedKernel`).

    Raises:
        InvalidSpecError: The library serves a spec on none of the targets.
        InvalidArgumentError: Another argument is wrong.
        IoError: The file cannot be written.
        Error: Compiling failed; `jit_attention.errors` lists the classes.

    Thread safety:
        Threads may call at the same time, if they write to different files; the interpreter lock is released.

    Examples:
        >>> spec = ja.AttentionSpec(head_dim=64)
        >>> file = os.path.join(folder, "64.pack")
        >>> kernels = ja.write_pack(file, [spec], ["sm_90a"], heads_q=2, max_batch=1, max_seqlen=64)
        >>> kernels[0]["spec"], kernels[0]["target"]
        ('bf16 d64', 'sm_90a')
    """

# What the modules of this package call.

most_tensors: int

class NativeMask:
    @property
    def text(self) -> str: ...
    @property
    def tensors(self) -> dict[str, str]: ...

class NativeScore:
    @property
    def text(self) -> str: ...
    @property
    def tensors(self) -> dict[str, str]: ...

class NativeOutput:
    @property
    def text(self) -> str: ...
    @property
    def tensors(self) -> dict[str, str]: ...

def parse_output(text: str, texts: Iterable[FunctorText]) -> NativeOutput: ...
def parse_mask(text: str, texts: Iterable[FunctorText]) -> NativeMask: ...
def parse_score(text: str, texts: Iterable[FunctorText]) -> NativeScore: ...
def functor_usages() -> tuple[str, str, str]: ...
def spec_fields() -> dict[str, str]: ...
def validate_spec(spec: AttentionSpec) -> None: ...
def refusals(spec: object, arch: str | None) -> list[tuple[str, str, str, str]]: ...
def quantize_qkv(
    q: Any, k: Any, v: Any, *, q_out: Any, k_out: Any, v_out: Any, q_descale: Any, k_descale: Any, v_descale: Any,
    out_dtype: Any, scales: str, value_scales: str, rotation_seed: int | None, center_keys: bool, center_values: bool,
    return_lse_shift: bool, cu_seqlens_q: Any, cu_seqlens_k: Any, seqused_q: Any, seqused_k: Any, cos_sin: Any,
    q_positions: Any, k_positions: Any, rotary_interleaved: bool, q_norm_weight: Any, k_norm_weight: Any,
    norm_eps: float, norm_adds_one: bool, keep_rows: bool | None, dtype: Any, stream: Any,
) -> tuple[Any, ...]: ...
def place(
    mask: Mask | None, seqlen: int, ranks: int, granule: int, mode: str, stripe: int,
    chunks: Sequence[Sequence[tuple[int, int]]], documents: Sequence[int], classes: bytes | None, partial_weight: float,
    tolerance: float,
) -> tuple[Any, ...]: ...
def key_exchange_bytes(
    sizes: tuple[Any, ...], seqlen: int, granule: int, runs: Sequence[Sequence[tuple[int, int]]],
    needs: Sequence[Sequence[tuple[int, int]]],
) -> int: ...
class KeyExchange:
    def __init__(
        self, sizes: tuple[Any, ...], seqlen: int, granule: int, runs: Sequence[Sequence[tuple[int, int]]],
        needs: Sequence[Sequence[tuple[int, int]]], rank: int, peers: Sequence[int], timeout: float, fault: int,
    ) -> None: ...
    def begin(self, k: tuple[int, int], v: tuple[int, int], stream: int) -> tuple[int, int, int, int]: ...
    def set_timeout(self, seconds: float) -> None: ...
    def send(self) -> None: ...
    def end(self, stream: int) -> None: ...
    def fault(self, stream: int) -> str | None: ...
    def reset(self, stream: int) -> None: ...

def make_block_mask(like: Array, **options: Any) -> tuple[Any, ...]: ...
def device_of(like: Array, name: str) -> Device: ...
def device_array(device: int, shape: tuple[int, ...], dtype: str) -> Any: ...
def device_array_beside(address: int, shape: tuple[int, ...], dtype: str) -> Any: ...
class EmulatedModule:
    kernels: list[EmulatedKernel]
    ptx: str
    arch: str

class EmulatedKernel:
    name: str
    parameters: list[tuple[str, int, int]]
    parameter_bytes: int
    def launch(
        self, memory: EmulatedMemory, parameters: bytes, grid: tuple[int, int, int], block: tuple[int, int, int],
        cluster: tuple[int, int, int], dynamic_shared: int, seed: int, step_limit: int, silicon: bool,
        allow: list[str], /
    ) -> EmulatedResult: ...

class EmulatedResult:
    findings: list[tuple[str, str, str, tuple[int, int, int], int, int, int, str, int, str]]
    warp_instructions: int
    seconds: float
    counts: dict[str, Any]
    listing: str

class EmulatedMemory:
    def __init__(self, capacity: int, /) -> None: ...
    def allocate(self, bytes: int, /) -> int: ...
    def write(self, to: int, host_address: int, bytes: int, /) -> bool: ...
    def read(self, host_address: int, address: int, bytes: int, /) -> bool: ...

def emulated_module(ptx: bytes, arch: str | None, /) -> EmulatedModule: ...
def emulated_tensor_map(
    address: int, element: int, dimensions: list[int], strides: list[int], box: list[int], swizzle: int, /
) -> bytes: ...
def finding_kinds() -> list[str]: ...
def cache_directory() -> tuple[str, str]: ...
def cache_entries() -> list[tuple[Any, ...]]: ...
def cache_verify() -> list[tuple[Any, ...]]: ...
def cache_prune(max_bytes: int) -> int: ...
def cache_clear() -> int: ...
def cache_export(file: str) -> int: ...
def cache_import(file: str) -> tuple[int, list[str]]: ...
def _after_fork() -> None: ...
def _at_exit() -> None: ...
def _key_union(
    indices: ArrayT, counts: Array | None = None, *, queries: int = 8, limit: int, stream: Stream | None = None,
) -> tuple[ArrayT, ArrayT, ArrayT]: ...
def _choose_keys(
    q: Array, k: Array, weights: ArrayT, count: int, *, k_scale: Array | None = None, starts: Array | None = None,
    ends: Array | None = None, page_table: Array | None = None, columns: int = ..., score_bytes: int = ...,
    dtype: str | None = None, stream: Stream | None = None,
) -> tuple[ArrayT, ArrayT]: ...
def _list_mass(
    q: ArrayT, k: Array, lse: Array, indices: Array, counts: Array | None = None, *, softmax_scale: float | None = None,
    dtype: str | None = None, stream: Stream | None = None,
) -> ArrayT: ...
def _index_loss(
    q: Array, k: Array, weights: Array, indices: Array, targets: Array, counts: Array | None = None, *,
    d_loss: Array | None = None, part_bytes: int = ..., dtype: str | None = None, stream: Stream | None = None,
) -> Any: ...
def _list_gradients(
    do: Array, q: ArrayT, k: Array, v: Array | None, o: Array, lse: Array, spec: AttentionSpec, *,
    tensors: Mapping[str, Array], cu_seqlens_q: Array, cu_seqlens_k: Array, seqused_q: Array | None = None,
    seqused_k: Array | None = None, dlse: Array | None = None, sinks: Array | None = None, d_sinks: bool = False,
    part_bytes: int = ..., stream: Stream | None = None,
) -> tuple[ArrayT, ArrayT, ArrayT | None, ArrayT | None]: ...
def _append_to_slots(
    k: Any, v: Any, k_cache: Any, v_cache: Any, slot_mapping: Any, cache_dtype: Any, k_scale: Any, v_scale: Any,
    k_block_scales: Any = None, v_block_scales: Any = None
) -> None: ...
def _attend_to_pages(
    q: Any, k: Any, v: Any, out: Any, rows: int, mask: Mask | None, score: Score | None, softmax_scale: float | None,
    tensors: Any, sinks: Any, split_keys: int, cu_seqlens_q: Any, page_table: Any, seqused_k: Any, kv_dtype: Any,
    k_descale: Any, v_descale: Any, head_dim_v: int | None, k_block_scales: Any = None, v_block_scales: Any = None
) -> Any: ...
def run_tool(words: Sequence[bytes]) -> int: ...
def register_tvm_ffi(library: str) -> None: ...
def xla_handlers() -> dict[tuple[str, str], Any]: ...
