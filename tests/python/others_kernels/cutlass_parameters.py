"""Parameters of kernels that CUTLASS's Python DSL compiles: structs of tensors, tensor maps, divisors.

Modes are in the order of the kernels: rows, heads, batch. Sequences behind each other have no batch.
"""

import jit_attention as ja
import numpy

SHARED_BYTES = 232448
i32, i64, u8 = numpy.int32, numpy.int64, numpy.uint8


def divisor(number):
    """A divisor with the multiplier and shifts of CUTLASS's FastDivmod, and once more behind."""
    bits = max(number - 1, 0).bit_length()
    multiplier = (2**32 * (2**bits - number)) // number + 1
    return (i32(number), numpy.uint32(multiplier), u8(min(bits, 1)), u8(max(bits - 1, 0))), i32(number)


def sizes(array):
    """The parameters of an array (batch, rows, heads, head_dim), whose head_dim is compiled in."""
    return tuple(map(i32, (*array.shape[-3:-1], *array.shape[:-3])))


def strided(array):
    """The same, with the pointer in front and the strides behind."""
    strides = [stride // array.itemsize for stride in array.strides]
    return (array, *sizes(array), *map(i64, (*strides[-3:-1], *strides[:-3])))


def by_rows(array):
    """The parameters of an array (batch, heads, rows)."""
    strides = [stride // array.itemsize for stride in array.strides]
    return (array, *map(i32, array.shape[::-1]), *map(i64, strides[:-1][::-1]))


def tile_locks(array):
    """The parameters of semaphores (batch, heads, tiles, stages)."""
    strides = [stride // array.itemsize for stride in array.strides]
    batch, heads, tiles, stages = array.shape
    return (array, *map(i32, (tiles, stages, heads, batch)), *map(i64, (strides[2], strides[1], strides[0])))


def tensor_map(array, rows, columns=64):
    """Boxes of rows by columns of a head; they are swizzled over their width."""
    order = (0, 2, 1, 3) if array.ndim == 4 else (1, 0, 2)
    box = (1,) * (array.ndim - 2) + (rows, columns)
    return ja.emulator.TensorMap(array.transpose(order), box=box, swizzle=columns * array.itemsize)
