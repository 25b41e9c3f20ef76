"""Handlers of XLA's foreign function interface in Python: its C structures by ctypes, as far as they are needed
(xla/ffi/api/c_api.h of OpenXLA, version 0), so that nothing is built against JAX."""

import ctypes
import math
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p

import jax
import ml_dtypes
import numpy

#: XLA's element types that calls have: NumPy's, and the name where NumPy has none.
_TYPES = {4: (numpy.int32, None), 5: (numpy.int64, None), 6: (numpy.uint8, None), 10: (numpy.float16, None),
          11: (numpy.float32, None), 16: (ml_dtypes.bfloat16, "bf16")}
_METADATA, _STRING, _EXECUTE = 1, 4, 3
_INVALID_ARGUMENT, _INTERNAL = 3, 13


def _structure(name, **fields):
    """With the two fields that all of them begin with."""
    return type(name, (ctypes.Structure,), {"_fields_": [("size", c_size_t), ("extension", c_void_p), *fields.items()]})


class _Span(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t)]

    def text(self):
        return ctypes.string_at(self.data, self.length).decode()


_Version = _structure("Version", major=c_int, minor=c_int)
_List = _structure("List", count=c_int64, types=POINTER(c_int), items=POINTER(c_void_p))
_Attributes = _structure("Attributes", count=c_int64, types=POINTER(c_int), names=POINTER(POINTER(_Span)),
                         items=POINTER(c_void_p))
_Buffer = _structure("Buffer", dtype=c_int, data=c_void_p, rank=c_int64, sizes=POINTER(c_int64))
_ErrorArguments = _structure("ErrorArguments", message=c_char_p, code=c_int)
_StreamArguments = _structure("StreamArguments", context=c_void_p, stream=c_void_p)
_Api = _structure("Api", version=_Version, internal=c_void_p, create_error=c_void_p, get_message=c_void_p,
                  destroy_error=c_void_p, register=c_void_p, get_stream=c_void_p)
_Frame = _structure("Frame", api=POINTER(_Api), context=c_void_p, stage=c_int, operands=_List, results=_List,
                    attributes=_Attributes)


class _Metadata(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("version", _Version), ("traits", c_uint32)]


class _Extension(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("type", c_int), ("next", c_void_p), ("metadata", POINTER(_Metadata))]


_Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))
_Function = ctypes.CFUNCTYPE(c_void_p, c_void_p)


class DeviceArray:
    """An array that XLA lends to a handler on a GPU."""

    def __init__(self, address, shape, dtype, name):
        self.name = name  # of its element type, where the protocol has none
        self.__cuda_array_interface__ = dict(shape=shape, typestr=numpy.dtype(dtype).str if name is None else "<u2",
                                             data=(address, False), strides=None, version=3)

    #: For whoever asks the type: each instance has its own.
    __cuda_array_interface__ = None


def handler(run, has_stream):
    """What `jax.ffi.register_ffi_target` takes: calls ``run(operands, results, attributes, stream)`` with arrays,
    strings by name, and the stream's number or None. Arrays are NumPy's where there are no streams."""

    def answer(frame):
        frame = frame.contents
        try:
            if frame.extension and ctypes.cast(frame.extension, POINTER(_Extension)).contents.type == _METADATA:
                _tell_version(frame)
            elif frame.stage == _EXECUTE:
                stream = _stream(frame) if has_stream else None
                run(_arrays(frame.operands, has_stream), _arrays(frame.results, has_stream), _strings(frame.attributes),
                    stream)
            return None
        except BaseException as error:  # nothing may pass through XLA's code
            return _error(frame, error)

    function = _Handler(answer)
    _kept.append(function)
    return jax.ffi.pycapsule(function)


_kept = []  # handlers live as long as the process: XLA has no way to give one up


def _tell_version(frame):
    metadata = ctypes.cast(frame.extension, POINTER(_Extension)).contents.metadata.contents
    metadata.version.major, metadata.version.minor = frame.api.contents.version.major, frame.api.contents.version.minor
    metadata.traits = 0


def _arrays(given, on_device):
    return [_array(ctypes.cast(given.items[i], POINTER(_Buffer)).contents, on_device) for i in range(given.count)]


def _array(buffer, on_device):
    if buffer.dtype not in _TYPES:
        raise TypeError(f"an array is of XLA's element type {buffer.dtype}; it must be one of bf16, fp16, fp32, int32, "
                        "int64 and uint8")
    dtype, name = _TYPES[buffer.dtype]
    shape = tuple(buffer.sizes[i] for i in range(buffer.rank))
    if on_device:
        return DeviceArray(buffer.data or 0, shape, dtype, name)
    size = math.prod(shape) * numpy.dtype(dtype).itemsize
    memory = (ctypes.c_char * size).from_address(buffer.data) if size else bytearray()
    return numpy.frombuffer(memory, dtype).reshape(shape)


def _strings(given):
    spans = [(given.names[i].contents, ctypes.cast(given.items[i], POINTER(_Span)).contents)
             for i in range(given.count) if given.types[i] == _STRING]
    return {name.text(): value.text() for name, value in spans}


def _stream(frame):
    arguments = _StreamArguments(ctypes.sizeof(_StreamArguments), None, frame.context, None)
    failed = _Function(frame.api.contents.get_stream)(ctypes.addressof(arguments))
    if failed:
        raise RuntimeError("XLA gave no stream")
    return arguments.stream or 0


def _error(frame, error):
    code = _INVALID_ARGUMENT if isinstance(error, (TypeError, ValueError)) else _INTERNAL
    message = f"{type(error).__name__}: {error}".encode()
    arguments = _ErrorArguments(ctypes.sizeof(_ErrorArguments), None, message, code)
    return _Function(frame.api.contents.create_error)(ctypes.addressof(arguments))
