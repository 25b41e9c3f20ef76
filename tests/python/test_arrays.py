"""Arrays of every framework go in and come out, and what cannot be served is refused by the argument's name."""

import ctypes
import gc
import threading
import weakref

import jit_attention as ja
import numpy
import pytest
from exact_attention import DTYPES, random_qkv


@pytest.fixture
def on_cpu(emulated):
    if not emulated:
        pytest.skip("this process computes on a GPU; JIT_ATTENTION_DEVICE=emulated:sm_90a takes CPU arrays")


@pytest.fixture
def on_gpu(emulated):
    if emulated:
        pytest.skip("needs a GPU")


class Capsules:
    """An array that speaks DLPack and nothing else, in one of its dialects."""

    def __init__(self, array, versioned):
        self._array = array
        self._versioned = versioned

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        if self._versioned:
            return self._array.__dlpack__(**arguments)
        if "max_version" in arguments:
            raise TypeError("this producer is older than DLPack 1")
        return self._array.__dlpack__(stream=arguments["stream"])


class CudaInterface:
    """An array that speaks the CUDA array interface and nothing else."""

    def __init__(self, array, **changes):
        self._array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | changes

    __cuda_array_interface__ = None


def test_numpy(rng, on_cpu):
    q, k, v = random_qkv(rng)
    o, lse = ja.attention(q, k, v, return_lse=True)
    assert type(o) is numpy.ndarray and o.dtype == numpy.float16
    assert type(lse) is numpy.ndarray and lse.dtype == numpy.float32


def test_numpy_bfloat16_and_its_bits(rng, on_cpu):
    arrays = random_qkv(rng, dtype="bf16")
    o = ja.attention(*arrays)
    assert o.dtype == DTYPES["bf16"]
    bits = [array.view(numpy.uint16) for array in arrays]
    assert numpy.array_equal(ja.attention(*bits, dtype="bf16"), o.view(numpy.uint16))
    with pytest.raises(ja.InvalidArgumentError, match='q: holds 16-bit integers.*dtype="bf16"'):
        ja.attention(*bits)
    with pytest.raises(ja.InvalidArgumentError, match="dtype: is fp16, but q holds bf16"):
        ja.attention(*arrays, dtype="fp16")


def test_read_only_inputs_are_fine_and_outputs_are_not(rng, on_cpu):
    q, k, v = random_qkv(rng)
    expected = ja.attention(q, k, v)
    for array in (q, k, v):
        array.flags.writeable = False
    assert numpy.array_equal(ja.attention(q, k, v), expected)
    out = numpy.empty_like(q)
    out.flags.writeable = False
    with pytest.raises((ja.InvalidArgumentError, BufferError), match="(?i)read-?only"):
        ja.attention(q, k, v, out=out)


def test_reversed_arrays(rng, on_cpu, fetch):
    q, k, v = random_qkv(rng, batch=3, seqlen_kv=20)
    o = ja.attention(q[::-1], k[::-1, ::-1], v[::-1, ::-1])
    assert numpy.array_equal(
        o, ja.attention(*(numpy.ascontiguousarray(x) for x in (q[::-1], k[::-1, ::-1], v[::-1, ::-1])))
    )


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack_without_more(rng, on_cpu, versioned):
    q, k, v = random_qkv(rng)
    out = numpy.empty_like(q)
    wrapped = [Capsules(array, versioned) for array in (q, k, v)]
    given = Capsules(out, versioned)
    assert ja.attention(*wrapped, out=given) is given
    assert numpy.array_equal(out, ja.attention(q, k, v))


def test_dlpack_memory_is_given_back(rng, on_cpu):
    q, k, v = random_qkv(rng)
    watched = [weakref.ref(array) for array in (q, k, v)]
    ja.attention(*(Capsules(array, True) for array in (q, k, v)))
    with pytest.raises(ja.InvalidArgumentError):
        ja.attention(q, Capsules(k, True), Capsules(v[:, :5], False))
    del q, k, v
    gc.collect()
    assert [watch() for watch in watched] == [None, None, None]


def test_torch_on_the_cpu(rng, on_cpu, fetch):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    arrays = random_qkv(rng)
    expected = ja.attention(*arrays)
    o = ja.attention(*(torch.from_numpy(array) for array in arrays))
    assert isinstance(o, torch.Tensor) and numpy.array_equal(o.numpy(), expected)


def test_torch_without_the_table_of_functions(run_python):
    pytest.importorskip("torch", reason="needs PyTorch")
    run_python("""
import torch
expected_table = "__dlpack_c_exchange_api__"
if hasattr(torch.Tensor, expected_table):
    delattr(torch.Tensor, expected_table)  # as in PyTorch before it had one
import jit_attention as ja
device = "cpu" if ja.devices()[0].emulated else "cuda"
for dtype in (torch.bfloat16, torch.float16):
    q, k, v = (torch.randn(1, 40, 2, 64, device=device).to(dtype) for _ in range(3))
    o, lse = ja.attention(q, k, v, return_lse=True)
    assert (o.dtype, lse.dtype, o.device, lse.shape) == (dtype, torch.float32, q.device, (1, 2, 40))
    wide = [x.double().transpose(1, 2) for x in (q, k, v)]
    exact = (wide[0] @ wide[1].transpose(-1, -2) / 8).softmax(-1) @ wide[2]
    assert (o - exact.transpose(1, 2)).abs().max() < 0.02
    out = torch.empty_like(q)
    assert ja.attention(q, k, v, out=out) is out and torch.equal(out, o)
""")


def test_jax(rng, fetch, place):
    jax = pytest.importorskip("jax", reason="needs JAX")
    if (jax.default_backend() == "cpu") != ja.devices()[0].emulated:
        pytest.skip("JAX and this library compute in different places")
    arrays = random_qkv(rng)
    given = [jax.numpy.asarray(array) for array in arrays]
    o, lse = ja.attention(*given, return_lse=True)
    assert isinstance(o, jax.Array) and o.dtype == "float16" and lse.dtype == "float32"
    expected, expected_lse = ja.attention(*map(place, arrays), return_lse=True)
    assert numpy.array_equal(fetch(o), fetch(expected)) and numpy.array_equal(fetch(lse), fetch(expected_lse))
    assert ja.attention(*(array.astype("bfloat16") for array in given)).dtype == "bfloat16"


def test_cupy(rng, on_gpu, fetch, place):
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    arrays = random_qkv(rng)
    expected = fetch(ja.attention(*map(place, arrays)))
    given = [cupy.asarray(array) for array in arrays]
    assert numpy.array_equal(fetch(ja.attention(*given)), expected)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        fresh = [cupy.asarray(array) for array in arrays]
        o = ja.attention(*fresh)
    stream.synchronize()
    assert isinstance(o, cupy.ndarray) and numpy.array_equal(fetch(o), expected)


def test_the_cuda_array_interface(rng, on_gpu, fetch, place):
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    arrays = [cupy.asarray(array) for array in random_qkv(rng)]
    expected = fetch(ja.attention(*arrays))
    stream = cupy.cuda.Stream(non_blocking=True)
    for changes in ({}, {"stream": 1}, {"stream": stream.ptr}):
        out = cupy.empty_like(arrays[0])
        ja.attention(*(CudaInterface(array, **changes) for array in arrays), out=CudaInterface(out))
        assert numpy.array_equal(fetch(out), expected)
    o = ja.attention(*(CudaInterface(array) for array in arrays))
    assert numpy.array_equal(fetch(cupy.from_dlpack(o)), expected)


def test_streams_of_the_caller(rng, on_gpu, fetch, place):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    stream = torch.cuda.Stream()
    for _ in range(5):
        base = torch.randn(4, 1024, 8, 128, device="cuda", dtype=torch.bfloat16)
        expected = ja.attention(base + 1, base, base)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            shifted = base + 1  # late: a launch on another stream would not see it
            o = ja.attention(shifted, base, base)
            del shifted  # its memory may be used again, after the launch
            torch.full((4, 1024, 8, 128), float("nan"), device="cuda", dtype=torch.bfloat16)
        stream.synchronize()
        assert torch.equal(o, expected)
    for handle in (stream.cuda_stream, stream):
        if handle is stream and not hasattr(stream, "__cuda_stream__"):
            continue
        o = ja.attention(base, base, base, stream=handle)
        stream.synchronize()
        assert torch.equal(o, ja.attention(base, base, base))


@pytest.mark.parametrize("argument", ["q", "k", "v", "out", "alibi_slopes"])
def test_arrays_elsewhere_are_refused(rng, on_gpu, place, argument):
    arrays = dict(zip("qkv", random_qkv(rng)))
    given = {name: place(array) for name, array in arrays.items()} | {"out": place(arrays["q"])}
    tensors = {"alibi_slopes": place(numpy.ones(2, numpy.float32))}
    where = tensors if argument == "alibi_slopes" else given
    where[argument] = where[argument].cpu()
    with pytest.raises(ja.InvalidArgumentError, match="is in CPU memory") as refusal:
        ja.attention(**given, score=ja.score.alibi(), tensors=tensors)
    assert refusal.value.field == argument


def test_gpu_arrays_on_another_gpu_are_refused(rng, on_gpu, place):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    q, k, v = map(place, random_qkv(rng))
    with pytest.raises(ja.InvalidArgumentError, match="k: is in GPU 1, but q is in GPU 0"):
        ja.attention(q, k.to("cuda:1"), v)
    expected = ja.attention(q, k, v)
    assert torch.equal(ja.attention(*(x.to("cuda:1") for x in (q, k, v))).to("cuda:0"), expected)


REFUSALS = [
    ("q", lambda q, k, v: (q.astype(numpy.float32), k, v), "attention takes bf16, fp16 and fp8"),
    ("k", lambda q, k, v: (q, k.astype(numpy.float64), v), "has float64 elements, which are none of"),
    ("v", lambda q, k, v: (q, k, v[0]), r"has 3 dimensions; it must have 4: \(batch, seqlen, heads, head_dim\)"),
    ("k", lambda q, k, v: (q, k[..., ::2], v), "has head_dim = 32; it must be 64|stride 2"),
    ("v", lambda q, k, v: (q, k, v[..., ::2]), "has stride 2 along head_dim; it must be 1"),
    ("k", lambda q, k, v: (q[:, :, :1], k, v), "has 2 heads and q has 1"),
    ("v", lambda q, k, v: (q, k, v[:, :-1]), "has seqlen = 63; it must be 64"),
    ("k", lambda q, k, v: (q, numpy.concatenate([k, k]), v), "has batch = 2; it must be 1"),
    ("q", lambda q, k, v: (numpy.zeros((1, 1, 1, 1, 64), numpy.float16), k, v), "has 5 dimensions"),
    ("q", lambda q, k, v: (q[..., :60], k[..., :60], v), "nearest supported: (56|64)"),
]


@pytest.mark.parametrize("field, change, message", REFUSALS)
def test_wrong_arrays_are_refused(rng, on_cpu, field, change, message):
    with pytest.raises((ja.InvalidArgumentError, ja.InvalidSpecError), match=message) as refusal:
        ja.attention(*change(*random_qkv(rng)))
    assert refusal.value.field == field


class ForgedTensor(ctypes.Structure):
    """DLManagedTensor of an array in CPU memory."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class Forged:
    """An array of fp16 that claims any shape."""

    def __init__(self, shape, strides=None, lanes=1):
        sizes = ctypes.c_int64 * len(shape)
        self._memory = numpy.zeros(4096, numpy.float16)
        self._tensor = ForgedTensor(
            self._memory.ctypes.data,
            1,
            0,
            len(shape),
            2,
            16,
            lanes,
            sizes(*shape),
            None if strides is None else sizes(*strides),
            0,
            None,
            None,
        )

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **arguments):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._tensor), b"dltensor", None)


@pytest.mark.parametrize(
    "forged, message",
    [
        (Forged((1, 2**31, 2, 64), (0, 0, 64, 1)), "seqlen 2147483648; at most"),
        (Forged((1, -5, 2, 64), (0, 0, 64, 1)), "negative size"),
        (Forged((-1, 5, 2, 64), (0, 0, 64, 1)), "negative size"),
        (Forged((1, 5, -2, 64), (0, 0, 64, 1)), "has -2"),
        (Forged((2, 2**40, 2, 64), (2**62, 2**62, 64, 1)), "at most|reaches further than any memory"),
        (Forged((2**33, 2**33, 2, 64)), "more elements than 64 bits can count"),
        (Forged((1, 5, 2, 2**40), (0, 0, 0, 1)), "head_dim"),
        (Forged((1, 5, 2, 64), lanes=4), "has elements, which are none of"),
        (Forged((64,) * 9, (0,) * 9), "has 9 dimensions"),
        (Forged((), ()), "has 0 dimensions"),
    ],
)
@pytest.mark.parametrize("argument", ["q", "k"])
def test_sizes_that_cannot_be_are_refused(rng, on_cpu, argument, forged, message):
    given = dict(zip("qkv", random_qkv(rng))) | {argument: forged}
    with pytest.raises(ja.InvalidArgumentError, match=message):
        ja.attention(**given)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"q": [1.0]}, "q is a list, which is no array"),
        ({"k": None}, "k is a NoneType, which is no array"),
        ({"mask": "causal"}, "mask must be a jit_attention.Mask or None, not a str"),
        ({"score": 3}, "score must be a jit_attention.Score or None, not a int"),
        ({"softmax_scale": "large"}, "softmax_scale must be a number or None"),
        ({"tensors": [1]}, "tensors must be a dict"),
        ({"tensors": {1: 2}}, "tensors must have names, each a str, not 1"),
    ],
)
def test_wrong_types_are_refused(rng, place, arguments, message):
    given = dict(zip("qkv", map(place, random_qkv(rng)))) | arguments
    with pytest.raises(TypeError, match=message):
        ja.attention(**given)


@pytest.mark.parametrize("stream", ["s", -1, 2**64, 1.5, True])
def test_streams_are_numbers(rng, place, stream):
    with pytest.raises(ja.InvalidArgumentError, match=f"stream: is {stream!r}; it must be an int from 0 on"):
        ja.attention(*map(place, random_qkv(rng)), stream=stream)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_scales_that_mean_nothing_are_refused(rng, place, scale):
    with pytest.raises(ja.InvalidSpecError, match="softmax_scale"):
        ja.attention(*map(place, random_qkv(rng)), softmax_scale=scale)


def test_an_output_that_shares_memory_with_an_input_is_refused(rng, place):
    q, k, v = map(place, random_qkv(rng))
    with pytest.raises(ja.InvalidArgumentError, match="out: shares memory with q"):
        ja.attention(q, k, v, out=q)


def test_missing_and_surplus_tensors_are_refused(rng, place):
    arrays = [place(array) for array in random_qkv(rng)]
    with pytest.raises(ja.InvalidArgumentError, match="alibi_slopes: is read by the mask or score but was not given"):
        ja.attention(*arrays, score=ja.score.alibi())
    with pytest.raises(ja.InvalidArgumentError, match="more: was given, but neither"):
        ja.attention(*arrays, tensors={"more": arrays[0]})
    with pytest.raises(ja.InvalidArgumentError, match="at most 8"):
        ja.attention(*arrays, tensors={f"t{i}": arrays[0] for i in range(9)})


SEGMENTS = ja.mask.text("return segment[q] == segment[k];", name="segments", tensors={"segment": "int32"})


def test_tensors_of_texts_are_dense(rng, place, fetch):
    arrays = [place(array) for array in random_qkv(rng)]
    wide = place(rng.integers(0, 2, (64, 2), dtype=numpy.int32))
    dense = place(numpy.ascontiguousarray(fetch(wide)[:, 0].astype(numpy.int32)))
    assert ja.attention(*arrays, mask=SEGMENTS, tensors={"segment": dense}) is not None
    with pytest.raises(ja.InvalidArgumentError, match="segment: is read by a text and must be dense") as refusal:
        ja.attention(*arrays, mask=SEGMENTS, tensors={"segment": wide[:, 0]})
    assert refusal.value.field == "segment"


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda q: q.astype(">f2"), "q: cannot be read: TypeError: its bytes are in another order"),
        (
            lambda q: q.astype(DTYPES["bf16"]).astype(DTYPES["bf16"].newbyteorder(">")),
            "its bytes are in another order",
        ),
        (lambda q: numpy.ma.masked_array(q, q > 0), "masked arrays would lose their mask"),
        (lambda q: q.astype(object), "q: cannot be read: BufferError"),
    ],
)
def test_arrays_that_would_be_misread_are_refused(rng, on_cpu, change, message):
    q, k, v = random_qkv(rng)
    with pytest.raises(ja.InvalidArgumentError, match=message):
        ja.attention(change(q), k, v)


def test_subclasses_are_read_as_what_they_derive_from(rng, on_cpu):
    class Mine(numpy.ndarray):
        pass

    arrays = random_qkv(rng, dtype="bf16")
    assert numpy.array_equal(ja.attention(*(array.view(Mine) for array in arrays)), ja.attention(*arrays))


def test_arrays_that_cannot_be_written_are_no_outputs(rng, on_cpu):
    jax = pytest.importorskip("jax", reason="needs JAX")
    arrays = [jax.numpy.asarray(array) for array in random_qkv(rng)]
    with pytest.raises(ja.InvalidArgumentError, match="out: is an array that cannot be written"):
        ja.attention(*arrays, out=jax.numpy.zeros_like(arrays[0]))
    with pytest.raises(Exception, match="call jit_attention.jax.attention inside of jit"):
        jax.jit(lambda q, k, v: ja.attention(q, k, v))(*arrays)


def test_an_array_that_lies_elsewhere_is_refused_for_where_it_lies(rng, on_cpu):
    class OnAGpu(Capsules):
        def __dlpack_device__(self):
            return 2, 0

        def __dlpack__(self, **arguments):
            raise BufferError("not without a stream")

    q, k, v = (Capsules(array, True) for array in random_qkv(rng))
    with pytest.raises(ja.InvalidArgumentError, match="v: is in GPU 0, but q is in CPU memory"):
        ja.attention(q, k, OnAGpu(v, True))

    class Broken(Capsules):
        def __dlpack__(self, **arguments):
            raise BufferError("nothing to hand over")

    with pytest.raises(ja.InvalidArgumentError, match="k: cannot be read: BufferError: nothing to hand over"):
        ja.attention(q, Broken(k, True), v)


def test_views_that_negate_are_refused(rng, place):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    q, k, v = (torch.as_tensor(place(array)) for array in random_qkv(rng))
    with pytest.raises(ja.InvalidArgumentError, match="k: is a view that negates its elements; give resolve_neg"):
        ja.attention(q, torch._neg_view(k), v)


def test_bits_come_back_as_bits(rng, place):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    arrays = [torch.as_tensor(place(array)) for array in random_qkv(rng)]
    o, lse = ja.attention(*(array.view(torch.int16) for array in arrays), dtype="fp16", return_lse=True)
    assert o.dtype == torch.int16 and lse.dtype == torch.float32
    assert torch.equal(o.view(torch.float16), ja.attention(*arrays))


def test_what_a_dict_held_is_kept_through_the_call(rng, on_cpu):
    arrays = random_qkv(rng)
    tensors = {"segment": Capsules(numpy.zeros(64, numpy.int32), True)}

    class Clearing(Capsules):
        def __dlpack__(self, **arguments):
            tensors.clear()
            gc.collect()
            return super().__dlpack__(**arguments)

    out = numpy.empty_like(arrays[0])
    ja.attention(*arrays, mask=SEGMENTS, tensors=tensors, out=Clearing(out, True))
    assert numpy.array_equal(out, ja.attention(*arrays))


def test_threads_may_write_to_parts_of_one_array(rng, on_cpu):
    q, k, v = random_qkv(rng, heads_q=4)
    expected = ja.attention(q, k, v)
    for _ in range(5):
        whole = numpy.full_like(q, numpy.nan)
        parts = [slice(head, head + 1) for head in range(4)]
        threads = [
            threading.Thread(
                target=ja.attention,
                args=(q[:, :, part], k[:, :, part], v[:, :, part]),
                kwargs={"out": whole[:, :, part]},
            )
            for part in parts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert numpy.array_equal(whole, expected)


def test_calls_leave_no_memory_behind(run_python):
    run_python(
        """
import numpy, resource, jit_attention as ja
q = numpy.zeros((1, 16, 1, 64), numpy.float16)
def used():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
for _ in range(100):
    ja.attention(q, q, q)
before = used()
for _ in range(400):
    ja.attention(q, q, q)
assert used() - before < 2_000_000, used() - before
""",
        JIT_ATTENTION_DEVICE="emulated:sm_90a",
    )


def test_gradients_are_not_lost_in_silence(rng, place):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    q, k, v = (torch.as_tensor(place(array)) for array in random_qkv(rng))
    expected = ja.attention(q, k, v)
    with pytest.raises(ja.InvalidArgumentError, match="k: requires grad: jit_attention.torch.attention"):
        ja.attention(q, k.requires_grad_(), v)
    with torch.no_grad():
        assert torch.equal(ja.attention(q, k, v), expected)
