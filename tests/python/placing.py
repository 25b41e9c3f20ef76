"""Arrays of NumPy as PyTorch's on a GPU, and back."""

import numpy


def to_gpu(array):
    """The array with the same strides."""
    import torch

    kind = getattr(torch, array.dtype.name, None) if array.dtype.name.startswith(("bfloat", "float8")) else None
    if kind is not None:  # neither has types of the other
        array = array.view(f"u{array.itemsize}")
    extent = 1 + sum((size - 1) * stride for size, stride in zip(array.shape, array.strides)) // array.itemsize
    flat = numpy.lib.stride_tricks.as_strided(array, (max(extent, 0),), (array.itemsize,))
    strides = [stride // array.itemsize for stride in array.strides]
    if kind is None:
        tensor = torch.from_numpy(flat.copy())
    else:
        tensor = torch.from_numpy(flat.view(f"i{array.itemsize}").copy()).view(kind)
    return tensor.cuda().as_strided(array.shape, strides)


def to_numpy(array):
    """Any array in double precision."""
    if "torch" in type(array).__module__:
        return array.detach().double().cpu().numpy()
    if "cupy" in type(array).__module__:
        array = array.get()
    return numpy.asarray(array).astype(numpy.float64)
