"""Functions that the extension calls for frameworks whose array types lack a table of C functions.

An adapter reads arrays (`export`), returns the framework's current stream (`stream`), and creates output arrays
(`empty`), which `finish` converts to the caller's results.
"""

from __future__ import annotations

import importlib
import sys

#: DLPack's device types of CPU memory: pageable, and pinned for CUDA.
_CPU_KINDS = (1, 3)

#: ml_dtypes' types in NumPy and CuPy: the type that carries their bits, and their own.
_BITS = {
    "bfloat16": ("uint16", "bf16"),
    "float8_e4m3fn": ("uint8", "fp8_e4m3"),
    "float8_e5m2": ("uint8", "fp8_e5m2"),
}

_NUMPY_NAMES = {
    "fp16": "float16",
    "fp32": "float32",
    "bf16": "bfloat16",
    "int8": "int8",
    "int32": "int32",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}

#: The types that NumPy gets from ml_dtypes.
_FROM_ML_DTYPES = ("bf16", "fp8_e4m3", "fp8_e5m2")


def adapter_of(array_type):
    """The adapter for arrays of this type; None when they are no arrays."""
    if not hasattr(array_type, "__dlpack__") and not hasattr(array_type, "__cuda_array_interface__"):
        return None
    for base in array_type.__mro__:  # subclasses are read like their bases
        package = str(base.__module__).partition(".")[0]
        if package in _ADAPTERS:
            return _ADAPTERS[package]()
    return _Adapter()


def is_on_host(array):
    """Whether NumPy can read it: a list or tuple, or an array in CPU memory."""
    if isinstance(array, (list, tuple)):
        return True
    device = getattr(array, "__dlpack_device__", None)
    return device is not None and device()[0] in _CPU_KINDS


def are_numpys(*arrays):
    """Whether these are NumPy arrays; does not import NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and all(isinstance(array, numpy.ndarray) for array in arrays)


def copy_on_host(array):
    """`array` itself if NumPy can read it, else its framework's copy in CPU memory."""
    if is_on_host(array):
        return array
    for method in ("cpu", "get"):  # of PyTorch, of CuPy
        if hasattr(array, method):
            return getattr(array, method)()
    return importlib.import_module("numpy").asarray(array)


class _Adapter:
    """Arrays with DLPack or the CUDA array interface. Results have DLPack, or are NumPy's in CPU memory."""

    #: Without a stream that orders later work, results must be complete when they are returned.
    needs_complete_results = True

    #: Whether results may be written to arrays that the caller gives.
    writable = True

    #: None when arrays need no conversion; else a method that takes an array and returns an object with one of the
    #: protocols, and the name of its element type if the object cannot express it.
    export = None

    def stream(self, device):
        """Number of the framework's current stream; 0 is the default stream."""
        return 0

    def empty(self, like, shape, dtype):
        from . import _core

        if not hasattr(like, "__dlpack_device__"):
            return _core.device_array_beside(like.__cuda_array_interface__["data"][0], shape, dtype)
        kind, device = like.__dlpack_device__()
        return _host_empty(like, shape, dtype) if kind in _CPU_KINDS else _core.device_array(device, shape, dtype)

    def place(self, like, array):
        """A NumPy array copied to the device of `like`; None when unsupported."""
        kind = like.__dlpack_device__()[0] if hasattr(like, "__dlpack_device__") else None
        return array if kind in _CPU_KINDS else None

    def finish(self, array):
        return array


def _dtype(name, like=None):
    """NumPy's type for results; the caller's type if `like` carries 16-bit values as bits."""
    import numpy

    if name in ("bf16", "fp16") and like is not None and like.kind in "iu" and like.itemsize == 2:
        return like
    if name in _FROM_ML_DTYPES:
        return numpy.dtype(getattr(importlib.import_module("ml_dtypes"), _NUMPY_NAMES[name]))
    return numpy.dtype(_NUMPY_NAMES[name])


def _host_empty(like, shape, dtype):
    import numpy

    return numpy.empty(shape, _dtype(dtype, like.dtype if isinstance(like, numpy.ndarray) else None))


class _NumPy(_Adapter):
    def export(self, array):
        import numpy

        if isinstance(array, numpy.ma.MaskedArray):
            raise TypeError("masked arrays would lose their mask: give filled(), and a mask of jit_attention")
        if not array.dtype.isnative:
            raise TypeError(
                "its bytes are in another order than this machine's: give astype(dtype.newbyteorder('='))"
            )
        if array.dtype.name in _BITS:
            bits, name = _BITS[array.dtype.name]
            return array.view(numpy.ndarray).view(bits), name
        return array, None

    def empty(self, like, shape, dtype):
        return _host_empty(like, shape, dtype)


class _CuPy(_Adapter):
    needs_complete_results = False

    def export(self, array):
        if array.dtype.name in _BITS:
            bits, name = _BITS[array.dtype.name]
            return array.view(bits), name
        return array, None

    def stream(self, device):
        import cupy

        with cupy.cuda.Device(device):
            return cupy.cuda.get_current_stream().ptr

    def empty(self, like, shape, dtype):
        import cupy

        with like.device:
            return cupy.empty(shape, _dtype(dtype, like.dtype))

    def place(self, like, array):
        import cupy

        with like.device:
            return cupy.asarray(array)


class _Jax(_Adapter):
    """JAX arrays are immutable: results are generic arrays that JAX then imports."""

    writable = False

    def export(self, array):
        import jax

        if isinstance(array, jax.core.Tracer):
            raise TypeError(
                "an array that is being traced has no elements: call jit_attention.jax.attention inside of jit and grad"
            )
        return array, None

    def place(self, like, array):
        import jax

        return jax.device_put(array, next(iter(like.devices())))

    def finish(self, array):
        import jax

        if type(array).__module__.partition(".")[0] == "numpy":
            return jax.numpy.asarray(array)
        return jax.dlpack.from_dlpack(array)


class _Torch(_Adapter):
    """PyTorch before its tensors had a table of C functions."""

    needs_complete_results = False

    def stream(self, device):
        import torch

        return torch.cuda.current_stream(device).cuda_stream

    def empty(self, like, shape, dtype):
        import torch

        return torch.empty(shape, dtype=getattr(torch, _NUMPY_NAMES[dtype]), device=like.device)

    def place(self, like, array):
        import torch

        return torch.tensor(array, device=like.device)


_ADAPTERS = {"numpy": _NumPy, "cupy": _CuPy, "jax": _Jax, "jaxlib": _Jax, "torch": _Torch}
