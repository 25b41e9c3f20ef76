"""Arrays of NumPy, brought to where a library computes, and back."""

import numpy

from .interface import NotOffered


class Placing:
    """Without a GPU arrays stay where they are: an emulated device reads the memory of the process."""

    gpu = False

    def place(self, array):
        """The array there, with the same strides."""
        return array

    def fetch(self, array, only=None):
        """An array as NumPy's in double precision; only: its leading entries that are wanted, None: all."""
        array = numpy.asarray(array)
        with numpy.errstate(invalid="ignore"):  # which a NaN of other types is
            return (array if only is None else array[list(only)]).astype(numpy.float64)

    def replay(self, call, arrays, changed):
        """The result of call() as a CUDA graph, once the arrays hold what `changed` does."""
        raise NotOffered("no CUDA graph on an emulated device")

    def on_streams(self, calls):
        raise NotOffered("no streams of one's own on an emulated device")


class OnGpu(Placing):
    """On a GPU they are tensors of PyTorch."""

    gpu = True

    def __init__(self, device="cuda"):
        import torch

        self.torch, self.device = torch, device

    def place(self, array):
        torch, name = self.torch, array.dtype.name
        kind = getattr(torch, name) if name.startswith(("bfloat", "float8")) else None
        strides = [stride // array.itemsize for stride in array.strides]
        extent = 1 + sum((size - 1) * stride for size, stride in zip(array.shape, strides))
        if array.size * 4 < extent:  # mostly gaps
            dtype = kind or getattr(torch, name)
            tensor = torch.empty(extent, dtype=dtype, device=self.device).as_strided(array.shape, strides)
            tensor.copy_(self.place(numpy.ascontiguousarray(array)))
            return tensor
        if kind is not None:  # neither library has types of the other
            array = array.view(f"i{array.itemsize}")
        flat = numpy.lib.stride_tricks.as_strided(array, (max(extent, 0),), (array.itemsize,))
        tensor = torch.from_numpy(flat.copy())
        return (tensor if kind is None else tensor.view(kind)).to(self.device).as_strided(array.shape, strides)

    def fetch(self, array, only=None):
        part = array if only is None else array[list(only)]
        return part.detach().double().cpu().numpy()

    def replay(self, call, arrays, changed):
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call()  # compiles
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call()
        for name, array in arrays.items():
            array.copy_(changed[name])
        graph.replay()
        torch.cuda.synchronize()
        return result

    def on_streams(self, calls):
        torch = self.torch
        streams = [torch.cuda.Stream() for _ in calls]
        torch.cuda.synchronize()
        results = []
        for stream, call in zip(streams, calls):
            with torch.cuda.stream(stream):
                results.append(call())
        torch.cuda.synchronize()
        return results
