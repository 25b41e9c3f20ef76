"""Attention as functions of apache-tvm-ffi."""

from __future__ import annotations

from ._core import register_tvm_ffi


def register() -> None:
    """Registers `jit_attention.attention`, `jit_attention.attention_backward`, `jit_attention.append` and
    `jit_attention.merge` as global functions of apache-tvm-ffi.

    Each is called as ``function(spec, names, *values)``. `spec` is the problem as the command-line tool reads it, `names`
    says which argument each value is, and values are tensors, numbers and None. Outputs are among the values, and the
    functions return None. A call runs on tvm-ffi's current stream, and does not hold the interpreter lock.
    ``jit/tvm_ffi.h`` lists the names.

    Raises:
        ImportError: apache-tvm-ffi is not installed.
        InvalidArgumentError: Its library lacks a function that this needs.

    Thread safety:
        Call it once, before the functions are used. The functions may be called from any thread.

    Examples:
        >>> jit_attention.tvm_ffi.register()  # doctest: +SKIP
        >>> attention = tvm_ffi.get_global_func("jit_attention.attention")  # doctest: +SKIP
        >>> attention("--head-dim 64 --mask causal", "q k v o", q, k, v, o)  # doctest: +SKIP
    """
    from tvm_ffi.libinfo import find_libtvm_ffi

    register_tvm_ffi(str(find_libtvm_ffi()))
