"""Functions of apache-tvm-ffi that the shared library registers, on arrays in a device's memory."""

import ctypes
import os
import pathlib
import subprocess
import threading

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import exact_attention, random_qkv

tvm_ffi = pytest.importorskip("tvm_ffi", reason="needs apache-tvm-ffi")
from tvm_ffi.libinfo import find_include_path, find_libtvm_ffi  # noqa: E402

LIBRARY = pathlib.Path(ja.__file__).parents[2] / "libjit_attention.so.1"
if not LIBRARY.exists():
    pytest.skip("needs libjit_attention.so.1 of the build", allow_module_level=True)
CUDA = 2  # DLPack's number


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("native", ctypes.c_int32),
                *((name, ctypes.c_char_p) for name in ("field", "message", "stage", "log", "source"))]  # fmt: skip


class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class Tensor(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
                ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]  # fmt: skip


@pytest.fixture(scope="module")
def library():
    loaded = ctypes.CDLL(str(LIBRARY))
    for name in ("jit_tvm_ffi_register", "jit_context_create", "jit_buffer_create", "jit_buffer_upload",
                 "jit_buffer_download"):  # fmt: skip
        getattr(loaded, name).restype = ctypes.c_int
    error = ctypes.POINTER(Error)()
    assert loaded.jit_tvm_ffi_register(str(find_libtvm_ffi()).encode(), ctypes.byref(error)) == 0, error[0].message
    return loaded


class Memory:
    """Arrays on the device."""

    def __init__(self, library):
        self.shared, self.context = library, ctypes.c_void_p()
        assert library.jit_context_create(None, ctypes.byref(self.context), None) == 0

    def array(self, array):
        return Array(self, array)


class Array:
    """A copy of an array of NumPy in the device's memory, for DLPack."""

    def __init__(self, memory, array):
        self.shared, self.dtype = memory.shared, array.dtype
        buffer = ctypes.POINTER(Buffer)()
        assert self.shared.jit_buffer_create(memory.context, ctypes.c_size_t(array.nbytes), ctypes.byref(buffer),
                                              None) == 0  # fmt: skip
        self.buffer, self.bytes = buffer, numpy.ascontiguousarray(array)
        self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.shared.jit_buffer_upload(buffer, self.bytes.ctypes.data_as(ctypes.c_void_p),
                                       ctypes.c_size_t(array.nbytes), ctypes.c_size_t(0), None)  # fmt: skip
        code = 4 if array.dtype == ml_dtypes.bfloat16 else {"f": 2, "i": 0}[array.dtype.kind]
        self.tensor = Tensor(buffer[0].data, (ctypes.c_int32 * 2)(CUDA, 0), array.ndim, code, 8 * array.dtype.itemsize,
                             1, self.shape, None, 0, None, None)  # fmt: skip

    def __dlpack_device__(self):
        return CUDA, 0

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.tensor), b"dltensor", None)

    def fetch(self):
        to = numpy.empty_like(self.bytes)
        assert self.shared.jit_buffer_download(self.buffer, to.ctypes.data_as(ctypes.c_void_p),
                                                ctypes.c_size_t(to.nbytes), ctypes.c_size_t(0), None, None) == 0  # fmt: skip
        return to


@pytest.fixture(scope="module")
def memory(library):
    return Memory(library)


def function(name):
    return tvm_ffi.get_global_func(f"jit_attention.{name}")


def call(name, spec, **values):
    """With arrays as tvm-ffi's tensors."""
    given = [tvm_ffi.from_dlpack(value) if isinstance(value, Array) else value for value in values.values()]
    function(name)(spec, " ".join(name.replace("__", ".") for name in values), *given)


def empty(memory, shape, dtype=numpy.float16):
    return memory.array(numpy.full(shape, numpy.nan, dtype))


def test_attention_and_its_gradients(rng, memory):
    arrays = random_qkv(rng, seqlen_q=40, seqlen_kv=50, heads_q=4, heads_kv=2)
    q, k, v = map(memory.array, arrays)
    o, lse = empty(memory, arrays[0].shape), empty(memory, (1, 4, 40), numpy.float32)
    spec = "--dtype fp16 --head-dim 64 --gqa-ratio 2 --mask causal"
    call("attention", spec, q=q, k=k, v=v, o=o, lse=lse)
    exact_attention(*arrays, keep=lambda b, h, i, j: j <= i + 10).check(o.fetch(), lse.fetch())
    do = memory.array(rng.standard_normal(arrays[0].shape).astype(numpy.float16))
    given = dict(do=do, q=q, k=k, v=v, o=o, lse=lse)
    gradients = {f"d{name}": empty(memory, array.shape) for name, array in zip("qkv", arrays)}
    call("attention_backward", spec, **given, **gradients, deterministic=True)
    expected = ja.attention_backward(*(x.fetch() for x in given.values()), mask=ja.mask.causal(), deterministic=True)
    for (name, made), wanted in zip(gradients.items(), expected):
        assert numpy.array_equal(made.fetch(), wanted), name


def test_tensors_of_scores_numbers_and_none(rng, memory):
    arrays = random_qkv(rng, heads_q=2)
    q, k, v = map(memory.array, arrays)
    slopes = numpy.array([0.5, 0.25], numpy.float32)
    o = empty(memory, arrays[0].shape)
    call("attention", "--dtype fp16 --head-dim 64 --score alibi", q=q, k=k, v=v, o=o, lse=None, num_splits=1,
         tensors__alibi_slopes=memory.array(slopes))  # fmt: skip
    exact = exact_attention(*arrays, score=lambda s, b, h, i, j: s - slopes[h] * abs(i - j))
    exact.check(o.fetch())


def test_a_cache_in_pages_and_a_merge(rng, memory):
    lengths, page = [20, 7], 16
    new = [rng.standard_normal((sum(lengths), 2, 64)).astype(numpy.float16) for _ in "qkv"]
    q, k, v = map(memory.array, new)
    pages = [empty(memory, (4, page, 2, 64)) for _ in "kv"]
    table = memory.array(numpy.array([[2, 0], [3, 1]], numpy.int32))
    starts, used = (memory.array(numpy.array(x, numpy.int32)) for x in ([0, 20, 27], lengths))
    place = dict(cu_seqlens_q=starts, page_table=table, seqused_k=used)
    call("append", "--dtype fp16 --head-dim 64", k=k, v=v, k_cache=pages[0], v_cache=pages[1], **place)
    spec = "--dtype fp16 --head-dim 64 --sequences-q varlen --sequences-kv paged --page-size 16 --mask causal"
    o, lse = empty(memory, new[0].shape), empty(memory, (2, 27), numpy.float32)
    call("attention", spec, q=q, k=pages[0], v=pages[1], o=o, lse=lse, **place)
    for begin, end in ((0, 20), (20, 27)):
        own = [x[None, begin:end] for x in new]
        exact_attention(*own, keep=lambda b, h, i, j: j <= i).check(o.fetch()[None, begin:end])
    merged = empty(memory, new[0].shape)
    parts = [tvm_ffi.from_dlpack(x) for x in (o, lse, o, lse, merged)]
    function("merge")("--dtype fp16 --out-dtype fp16 --head-dim-v 64", "parts.o parts.lse parts.o parts.lse o", *parts)
    numpy.testing.assert_allclose(merged.fetch().astype("f4"), o.fetch().astype("f4"), rtol=2e-3, atol=1e-4)


def test_threads_call_at_the_same_time(rng, memory):
    arrays = random_qkv(rng)
    q, k, v = map(memory.array, arrays)
    outs = [empty(memory, arrays[0].shape) for _ in range(8)]
    spec = "--dtype fp16 --head-dim 64"
    threads = [threading.Thread(target=call, args=("attention", spec), kwargs=dict(q=q, k=k, v=v, o=o)) for o in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    exact = exact_attention(*arrays)
    for o in outs:
        exact.check(o.fetch())


@pytest.mark.parametrize("spec, names, kinds, error, sentence", [
    ("--dtype fp16 --head-dim 64", "q k v", "qkv", ValueError, "^o: "),
    ("--dtype fp16 --head-dim 64", "q k v o", "qkv", ValueError, "names: has 4 names, and 3 values were given"),
    ("--dtype fp16 --head-dim 64", "q q v o", "qkvo", ValueError, "q: is given twice"),
    ("--dtype fp16 --head-dim 64", "q k v out", "qkvo", ValueError, "out: is no argument of this function"),
    ("--dtype fp16 --head-dim 64", "q k v o num_splits", "qkvoq", ValueError, "num_splits: .*must be an int"),
    ("--dtype fp16 --head-dim 64", "q k v o lse", "qkvo1", ValueError, "lse: .*must be a tensor or None"),
    ("--dtype fp16 --head-dim 100", "q k v o", "qkvo", ValueError, "head_dim"),
    ("--shade red", "q k v o", "qkvo", ValueError, "shade"),
    ("--dtype fp16 --head-dim 64", "", "", ValueError, "names: has no tensor"),
])  # fmt: skip
def test_what_is_refused(rng, memory, spec, names, kinds, error, sentence):
    arrays = {name: memory.array(x) for name, x in zip("qkv", random_qkv(rng))}
    arrays["o"] = empty(memory, (1, 64, 2, 64))
    given = [1 if kind == "1" else tvm_ffi.from_dlpack(arrays[kind]) for kind in kinds]
    with pytest.raises(error, match=sentence):
        function("attention")(spec, names, *given)


def test_arrays_of_the_host_are_refused(library):
    q = tvm_ffi.from_dlpack(numpy.zeros((1, 8, 1, 64), numpy.float16))
    with pytest.raises(ValueError, match="q: lies in CPU memory"):
        function("attention")("--dtype fp16 --head-dim 64", "q k v o", q, q, q, q)
    with pytest.raises(ValueError, match="spec: is of tvm-ffi's type"):
        function("attention")(q, "q")
    with pytest.raises(ValueError, match="spec: is missing"):
        function("attention")()


class Any(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("length", ctypes.c_uint32), ("pointer", ctypes.c_void_p)]


def test_a_c_string_that_is_null_is_refused(library):
    """As a program in C may pass it; tvm-ffi does not look."""
    ffi, raw_string = ctypes.CDLL(str(find_libtvm_ffi())), 8
    name = b"jit_attention.attention"
    key, handle, error = Buffer(ctypes.cast(name, ctypes.c_void_p), len(name)), ctypes.c_void_p(), ctypes.c_void_p()
    assert ffi.TVMFFIFunctionGetGlobal(ctypes.byref(key), ctypes.byref(handle)) == 0
    spec = b"--dtype fp16 --head-dim 64"
    for first, second in ((None, spec), (spec, None)):
        texts = (Any * 2)(*(Any(raw_string, 0, ctypes.cast(x, ctypes.c_void_p)) for x in (first, second)))
        assert ffi.TVMFFIFunctionCall(handle, texts, 2, ctypes.byref(Any())) != 0
        ffi.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
        assert error.value


def test_other_libraries_are_refused(library):
    error = ctypes.POINTER(Error)()
    for path, sentence in ((b"/nowhere.so", b"cannot be opened"), (b"libm.so.6", b"has no function TVMFFI")):
        assert library.jit_tvm_ffi_register(path, ctypes.byref(error)) == 2
        assert error[0].field == b"library" and sentence in error[0].message


def test_python_registers_its_own(run_python):
    run_python("import jit_attention.tvm_ffi as f, tvm_ffi; f.register()\n"
               "assert tvm_ffi.get_global_func('jit_attention.attention') is not None")  # fmt: skip


LAYOUT = """
#include <tvm/ffi/c_api.h>
#include "tvm/abi.h"
using namespace jit::tvm;
static_assert(sizeof(Value) == sizeof(TVMFFIAny) && offsetof(Value, whole) == offsetof(TVMFFIAny, v_int64) &&
              offsetof(Value, small_length) == offsetof(TVMFFIAny, small_str_len));
static_assert(sizeof(Object) == sizeof(TVMFFIObject) && offsetof(Object, type) == offsetof(TVMFFIObject, type_index));
static_assert(sizeof(Bytes) == sizeof(TVMFFIByteArray) && offsetof(Bytes, size) == offsetof(TVMFFIByteArray, size));
static_assert(none == kTVMFFINone && whole == kTVMFFIInt && truth == kTVMFFIBool && real == kTVMFFIFloat &&
              tensor_pointer == kTVMFFIDLTensorPtr && c_text == kTVMFFIRawStr && small_text == kTVMFFISmallStr &&
              bytes_pointer == kTVMFFIByteArrayPtr && text_object == kTVMFFIStr && tensor_object == kTVMFFITensor);
"""


def test_structs_are_those_of_the_header(tmp_path):
    (tmp_path / "layout.cpp").write_text(LAYOUT)
    source = pathlib.Path(__file__).parents[2]
    include = pathlib.Path(find_include_path())
    subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", f"-I{source}", f"-I{include}",
                    f"-I{include.parent / '3rdparty/dlpack/include'}", "layout.cpp"], cwd=tmp_path, check=True)  # fmt: skip
