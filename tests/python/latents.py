"""8-bit latents as caches of DeepSeek's models hold them, by the byte, and what they stand for."""

import ml_dtypes
import numpy
from request_batches import BF16

E4M3 = numpy.dtype(ml_dtypes.float8_e4m3fn)

#: columns of e4m3, of bf16, and those that share a scale
FORMATS = {"latent_656": (512, 64, 128), "latent_584": (448, 64, 64), "latent_528": (512, 0, 32)}


def head_dim(name):
    return FORMATS[name][0] + FORMATS[name][1]


def power_of_two_scales(largest):
    """Bytes of e8m0: the least powers of two by which no number is above 448."""
    exponents = numpy.ceil(numpy.log2(numpy.maximum(largest, 1e-4) / 448))
    return (numpy.clip(exponents, -126, 127) + 127).astype(numpy.uint8)


def rounded(name, x):
    """(bytes of e4m3, scales as they are stored, bytes of bf16, numbers) of rows (n, head_dim)."""
    columns, _, group = FORMATS[name]
    x = x.astype(numpy.float32)
    parts = x[:, :columns].reshape(len(x), columns // group, group)
    largest = numpy.abs(parts).max(-1)
    if name == "latent_656":
        scales = stored = numpy.maximum(largest / numpy.float32(448), numpy.float32(2.0**-126)).astype(numpy.float32)
    else:
        stored = power_of_two_scales(largest)
        scales = numpy.float32(2) ** (stored.astype(numpy.float32) - 127)
    codes = numpy.clip(parts / scales[..., None], -448, 448).astype(E4M3)
    rotated = x[:, columns:].astype(BF16)
    numbers = (codes.astype(float) * scales[..., None]).reshape(len(x), columns)
    numbers = numpy.concatenate([numbers, rotated.astype(float)], 1)
    return codes.reshape(len(x), columns).view(numpy.uint8), stored, rotated.view(numpy.uint8), numbers


def padded_page(name, page_size):
    """Bytes from page to page."""
    row = int(name.removeprefix("latent_"))
    return -(-page_size * row // 576) * 576 if name == "latent_584" else page_size * row


def pool(rng, name, pages, page_size):
    """Pages of random bytes."""
    return rng.integers(0, 256, (pages, padded_page(name, page_size)), numpy.uint8)


def view_of(memory, name, page_size):
    """The view of a pool, NumPy's or PyTorch's, that calls take."""
    row, stride = int(name.removeprefix("latent_")), padded_page(name, page_size)
    shape, strides = (len(memory), page_size, 1, row), (stride, row, row, 1)
    if isinstance(memory, numpy.ndarray):
        return numpy.lib.stride_tricks.as_strided(memory, shape, strides)
    return memory.as_strided(shape, strides)


def places(name, page_size, row):
    """Where codes, scales and rotated columns of a row of a page begin, in bytes."""
    if name == "latent_584":
        return row * 576, page_size * 576 + row * 8, row * 576 + 448
    begin = row * int(name.removeprefix("latent_"))
    return begin, begin + 512, begin + 528


def put(name, memory, page_size, page, row, codes, scales, rotated):
    for begin, part in zip(places(name, page_size, row), (codes, scales.view(numpy.uint8), rotated)):
        memory[page, begin : begin + len(part)] = part
