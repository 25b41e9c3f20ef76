"""Kernels of any compiler, run as PTX on the CPU: a sanitizer without a GPU.

`load` takes PTX, such as Triton's ``compiled.asm["ptx"]``, a CUTLASS DSL dump or NVRTC's. A call of a kernel runs a
grid over NumPy arrays and returns a `Report`: races, missing fences, reads of unwritten memory, wrong accesses and
barriers, deadlocks, each with its line.

Each call has memory of its own, where the variables of the module have their first values. In the examples, ``ptx`` is
the text of the example of `load`.
"""

from __future__ import annotations

import ctypes
import operator
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import _core
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy as np

    NumpyArray = np.ndarray[Any, np.dtype[Any]]
    Plain = NumpyArray | np.generic | int | float | bytes | None

__all__ = ["Finding", "Kernel", "Module", "Output", "Parameter", "Report", "TensorMap", "finding_kinds", "load"]

#: Warp instructions of one cluster, by default: some minutes.
STEP_LIMIT = 2**30

#: The numbers of CUtensorMapDataType and CUtensorMapSwizzle.
_ELEMENTS = {"uint8": 0, "int8": 0, "bool": 0, "uint16": 1, "int16": 1, "uint32": 2, "int32": 3, "uint64": 4,
             "int64": 5, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9}  # fmt: skip
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_POINTER_BYTES = 8
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
_VARIABLES = 2**30  #: bytes of memory for those of a module, at most
_GAP = 1024  #: bytes that an allocation may take beside its own


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, with its place. As a string it is a sentence.

    Attributes:
        kind: One of `finding_kinds`, such as ``"data race"``.
        message: What happened, without the place.
        kernel: The kernel.
        block: Index of the block.
        warp: Index of the warp in its block.
        lane: The thread of the warp; -1 for all of them.
        ptx_line: Line of the PTX.
        file: Source file, where the PTX has line information; else empty.
        line: Line of the source file.
    """

    kind: str
    message: str
    kernel: str
    block: tuple[int, int, int]
    warp: int
    lane: int
    ptx_line: int
    file: str
    line: int
    _sentence: str

    def __str__(self) -> str:
        return self._sentence


class Report:
    """The outcome of one launch. As a string it is its findings, one a line."""

    def __init__(self, result: _core.EmulatedResult) -> None:
        self._result = result
        self._findings = tuple(Finding(*fields) for fields in result.findings)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings: at most 64, one for each kind and instruction. Empty if nothing is wrong."""
        return self._findings

    @property
    def warp_instructions(self) -> int:
        """Number of instructions, each counted once for a warp."""
        return self._result.warp_instructions

    @property
    def seconds(self) -> float:
        """Time that the run took on the CPU, which says nothing about a GPU."""
        return self._result.seconds

    @property
    def counts(self) -> dict[str, Any]:
        """Instructions, bytes, tensor-core FLOPs and bank conflicts, in total and by source line."""
        return self._result.counts

    @property
    def listing(self) -> str:
        """The PTX with the counts of each line in front of it."""
        return self._result.listing

    def __str__(self) -> str:
        return "\n".join(map(str, self._findings)) or "no findings"

    def __repr__(self) -> str:
        return f"<jit_attention.emulator.Report: {len(self._findings)} findings>"


@dataclass(frozen=True)
class Output:
    """An array that a kernel is to fill: to read its memory before it is written is a finding.

    Attributes:
        array: A C-contiguous array.

    Examples:
        >>> x = np.zeros(32, np.int32)
        >>> report = ja.emulator.load(ptx).kernels[0](1, 32, ja.emulator.Output(x))
        >>> report.findings[0].kind
        'uninitialized read'
    """

    array: NumpyArray


@dataclass(frozen=True)
class TensorMap:
    """A tensor map (CUtensorMap) over an array, for a kernel's TMA copies. Sizes are in the order of the array's axes.

    Attributes:
        array: An array of up to five dimensions, the last of which is contiguous.
        box: Size of the box that one copy moves.
        swizzle: 0, 32, 64 or 128 bytes.

    Examples:
        >>> a = np.zeros((256, 128), ml_dtypes.bfloat16)
        >>> ja.emulator.TensorMap(a, box=(64, 64), swizzle=128).box
        (64, 64)
    """

    array: NumpyArray
    box: Sequence[int]
    swizzle: int = 0


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel.

    Attributes:
        name: Its name.
        offset: Its place in the parameter block, in bytes.
        bytes: Its size.
    """

    name: str
    offset: int
    bytes: int


class Kernel:
    """A kernel of a module. A call runs it."""

    def __init__(self, native: _core.EmulatedKernel) -> None:
        self._native = native
        self._parameters = tuple(Parameter(*fields) for fields in native.parameters)

    @property
    def name(self) -> str:
        """The name of its ``.entry``."""
        return self._native.name

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its parameters."""
        return self._parameters

    def __call__(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *args: Plain | Output | TensorMap | tuple[Any, ...],
        cluster: int | Sequence[int] = 1,
        dynamic_shared: int = 0,
        seed: int = 0,
        level: Literal["strict", "silicon"] = "strict",
        allow: Iterable[str] = (),
        step_limit: int = STEP_LIMIT,
    ) -> Report:
        """Runs the kernel over a grid. Ctrl-C ends it.

        Args:
            grid: Blocks: a number, or up to three for x, y and z.
            block: Threads of a block, in the same way.
            args: One for each parameter: a NumPy array, which is a pointer to its elements, read and written in place;
                an `Output`; a `TensorMap`; None for a null pointer; a NumPy scalar such as ``np.int32(5)``; a Python
                number, which gets the size of the parameter; bytes; or a tuple of these, a struct.
            cluster: Blocks of a cluster; default: as the kernel says.
            dynamic_shared: Bytes of shared memory beside what the kernel declares.
            seed: Seed of the order in which warps run and copies complete.
            level: "strict": findings are violations of PTX's rules. "silicon": only those that matter on hardware.
            allow: Kinds of findings that are left out.
            step_limit: Warp instructions after which a cluster is given up.

        Returns:
            The report. After a deadlock or a wrong access, arrays hold what was written until then.

        Raises:
            InvalidArgumentError: An argument does not fit its parameter, or the launch is not a legal one.
            TypeError: An argument is of a type that no parameter can be.

        Examples:
            >>> x = np.arange(32, dtype=np.int32)
            >>> print(ja.emulator.load(ptx)["twice"](1, 32, x), x[:4])
            no findings [0 2 4 6]
        """
        if level not in ("strict", "silicon"):
            raise _wrong("level", f"level: is {level!r}; it must be 'strict' or 'silicon'")
        if len(args) != len(self._parameters):
            raise _wrong("args", f"{self.name} takes {len(self._parameters)} parameters, {len(args)} were given")
        names = [f"args[{i}] ({parameter.name})" for i, parameter in enumerate(self._parameters)]
        arrays = _Arrays()
        for name, argument in zip(names, args):
            arrays.add(name, argument)
        memory = _core.EmulatedMemory(arrays.capacity())
        arrays.place(memory)
        block_of_parameters = bytearray(self._native.parameter_bytes)
        for name, argument, parameter in zip(names, args, self._parameters):
            value, _ = _packed(name, argument, parameter.bytes, arrays.address)
            if len(value) != parameter.bytes:
                raise _wrong("args", f"{name}: has {len(value)} bytes, the parameter has {parameter.bytes}")
            block_of_parameters[parameter.offset : parameter.offset + parameter.bytes] = value
        result = self._native.launch(
            memory, bytes(block_of_parameters), _sizes("grid", grid), _sizes("block", block),
            _sizes("cluster", cluster), _whole("dynamic_shared", dynamic_shared), _whole("seed", seed),
            _whole("step_limit", step_limit), level == "silicon", _kinds(allow))  # fmt: skip
        arrays.fetch(memory)
        return Report(result)

    def __repr__(self) -> str:
        return f"<jit_attention.emulator.Kernel {self.name}>"


class Module:
    """The kernels of a PTX text. ``module["name"]`` is one of them."""

    def __init__(self, native: _core.EmulatedModule) -> None:
        self._native = native
        self._kernels = tuple(map(Kernel, native.kernels))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels, in the order of the text."""
        return self._kernels

    @property
    def ptx(self) -> str:
        """The text."""
        return self._native.ptx

    @property
    def arch(self) -> str:
        """The architecture that is emulated."""
        return self._native.arch

    def __getitem__(self, name: str) -> Kernel:
        for kernel in self._kernels:
            if kernel.name == name:
                return kernel
        names = ", ".join(kernel.name for kernel in self._kernels) or "none"
        raise _wrong("name", f"there is no kernel {name}; the module has {names}")

    def __repr__(self) -> str:
        return f"<jit_attention.emulator.Module for {self.arch}: {', '.join(kernel.name for kernel in self._kernels)}>"


def load(ptx: str | bytes | os.PathLike[str], arch: str | None = None) -> Module:
    """Loads PTX.

    Args:
        ptx: The text, or the path of a file.
        arch: The architecture to run on, such as ``"sm_90a"``; default: the text's ``.target``.

    Returns:
        The module.

    Raises:
        InvalidArgumentError: The text is malformed, has an instruction that the emulator does not know, or is for
            another architecture. The message begins with the line.

    Examples:
        >>> module = ja.emulator.load('''
        ... .version 8.7
        ... .target sm_90a
        ... .address_size 64
        ... .visible .entry twice(.param .u64 x) {
        ...   .reg .b32 %r<3>;
        ...   .reg .b64 %rd<3>;
        ...   ld.param.u64 %rd1, [x];
        ...   mov.u32 %r1, %tid.x;
        ...   mad.wide.u32 %rd2, %r1, 4, %rd1;
        ...   ld.global.u32 %r2, [%rd2];
        ...   shl.b32 %r2, %r2, 1;
        ...   st.global.u32 [%rd2], %r2;
        ...   ret;
        ... }''')
        >>> module.kernels
        (<jit_attention.emulator.Kernel twice>,)
    """
    if isinstance(ptx, os.PathLike):
        ptx = pathlib.Path(ptx).read_bytes()
    if isinstance(ptx, str):
        ptx = ptx.encode(errors="surrogateescape")
    if not isinstance(ptx, bytes):
        raise TypeError(f"ptx: is a {type(ptx).__name__}; it must be a str, bytes, or a path")
    return Module(_core.emulated_module(ptx, arch))


def finding_kinds() -> list[str]:
    """Lists the kinds of findings.

    Returns:
        Their names, which ``allow`` of a call takes.

    Examples:
        >>> ja.emulator.finding_kinds()[0]
        'data race'
    """
    return _core.finding_kinds()


def _wrong(field: str, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, "emulate", field)


class _Arrays:
    """The arrays of a call on the device. Those that share host memory share the device's."""

    def __init__(self) -> None:
        self._given: list[tuple[str, Any, bool]] = []  # name, array, whether its values are there
        self._ranges: list[list[int]] = []  # begin and end on the host, address on the device; ascending

    def add(self, name: str, argument: Any) -> None:
        """Takes the arrays that an argument has."""
        import numpy as np

        if isinstance(argument, tuple):
            for member in argument:
                self.add(name, member)
            return
        array = argument.array if isinstance(argument, (Output, TensorMap)) else argument
        if not isinstance(array, np.ndarray):
            if array is not argument:
                raise TypeError(f"{name}: the array is a {type(array).__name__}; it must be NumPy's")
            return
        if array.dtype.hasobject:
            raise _wrong("args", f"{name}: is an array of Python objects; a kernel reads numbers")
        if isinstance(argument, Output) and not (array.flags.c_contiguous and array.flags.writeable):
            raise _wrong("args", f"{name}: is an Output of an array that is not contiguous and writeable")
        if array.size:
            self._given.append((name, array, not isinstance(argument, Output)))

    def capacity(self) -> int:
        """Merges what overlaps. Returns the bytes that memory needs."""
        for begin, end in sorted(_extent(array) for _, array, _ in self._given):
            if self._ranges and begin < self._ranges[-1][1]:
                self._ranges[-1][1] = max(end, self._ranges[-1][1])
            else:
                self._ranges.append([begin, end, 0])
        return _VARIABLES + sum(end - begin + _GAP for begin, end, _ in self._ranges)

    def place(self, memory: _core.EmulatedMemory) -> None:
        """Allocates, and copies the values."""
        for place in self._ranges:
            place[2] = memory.allocate(place[1] - place[0])
        for _, array, has_values in self._given:
            begin, end = _extent(array)
            if has_values:
                memory.write(self._address_of(begin), begin, end - begin)

    def address(self, array: Any) -> int:
        """The address of an array's first element on the device; 0 for an empty array."""
        return self._address_of(array.__array_interface__["data"][0]) if array.size else 0

    def fetch(self, memory: _core.EmulatedMemory) -> None:
        """Copies back what may be written."""
        import numpy as np

        for name, array, _ in self._given:
            begin, end = _extent(array)
            if array.flags.writeable:
                memory.read(begin, self._address_of(begin), end - begin)
                continue
            after = np.empty(end - begin, np.uint8)
            memory.read(after.__array_interface__["data"][0], self._address_of(begin), end - begin)
            if ctypes.string_at(begin, end - begin) != after.tobytes():
                raise _wrong("args", f"{name}: is a read-only array, and the kernel wrote to it")

    def _address_of(self, host: int) -> int:
        return next(address + host - begin for begin, end, address in self._ranges if begin <= host < end)


def _extent(array: Any) -> tuple[int, int]:
    """Where the bytes of an array begin and end; those between its rows are among them."""
    begin = end = array.__array_interface__["data"][0]
    for size, stride in zip(array.shape, array.strides):
        begin += min(0, (size - 1) * stride)
        end += max(0, (size - 1) * stride)
    return begin, end + array.itemsize


def _packed(name: str, argument: Any, size: int | None, address: Callable[[Any], int]) -> tuple[bytes, int]:
    """The bytes of an argument, and their alignment. A number of Python's has `size` bytes."""
    import numpy as np

    if isinstance(argument, tuple):
        return _struct([_packed(name, member, None, address) for member in argument])
    if isinstance(argument, Output):
        argument = argument.array
    if isinstance(argument, TensorMap):
        return _encoded(name, argument, address(argument.array)), _MAP_ALIGNMENT
    if argument is None or isinstance(argument, np.ndarray):
        place = 0 if argument is None else address(argument)
        return place.to_bytes(_POINTER_BYTES, "little"), _POINTER_BYTES
    if isinstance(argument, (bytes, bytearray)):
        return bytes(argument), 1
    if isinstance(argument, np.generic):
        return argument.tobytes(), argument.dtype.alignment
    if not isinstance(argument, (int, float)):
        raise TypeError(f"{name}: is a {type(argument).__name__}; it must be a NumPy array or scalar, a number, bytes, "
                        "None, an Output, a TensorMap, or a tuple of these")
    if size is None:
        raise TypeError(f"{name}: {argument!r} in a struct has no size; give a NumPy scalar such as numpy.int32(5)")
    kinds = {2: np.float16, 4: np.float32, 8: np.float64}
    if isinstance(argument, float):
        if size not in kinds:
            raise _wrong("args", f"{name}: is {argument}, and the parameter has {size} bytes")
        return kinds[size](argument).tobytes(), size
    if size > 8 or not -(1 << (8 * size - 1)) <= argument < 1 << 8 * size:
        raise _wrong("args", f"{name}: is {argument}, which a parameter of {size} bytes does not hold")
    return int(argument).to_bytes(size, "little", signed=argument < 0), size


def _struct(members: list[tuple[bytes, int]]) -> tuple[bytes, int]:
    """Members laid out as C++ does."""
    block = bytearray()
    largest = 1
    for value, alignment in members:
        largest = max(largest, alignment)
        block += bytes(-len(block) % alignment) + value
    return bytes(block + bytes(-len(block) % largest)), largest


def _encoded(name: str, tensor_map: TensorMap, address: int) -> bytes:
    array, box = tensor_map.array, tensor_map.box
    element = _ELEMENTS.get(array.dtype.name, 0 if array.itemsize == 1 else None)
    if element is None:
        raise _wrong("args", f"{name}: a tensor map has no elements {array.dtype.name}")
    if len(box) != array.ndim or not 1 <= array.ndim <= 5:
        raise _wrong("args", f"{name}: the box has {len(box)} sizes and the array {array.ndim} dimensions; a tensor map "
                             "has one for each, up to 5")
    if array.ndim and array.strides[-1] != array.itemsize or min(array.strides, default=0) < 0:
        raise _wrong("args", f"{name}: has strides {array.strides}; the last axis must be contiguous, none reversed")
    if tensor_map.swizzle not in _SWIZZLES:
        raise _wrong("args", f"{name}: swizzle is {tensor_map.swizzle}; it must be 0, 32, 64 or 128 bytes")
    sizes = [_whole(f"{name}: box", size) for size in box]
    try:
        return _core.emulated_tensor_map(address, element, list(array.shape[::-1]), list(array.strides[-2::-1]),
                                         [min(size, 2**32 - 1) for size in sizes[::-1]], _SWIZZLES[tensor_map.swizzle])
    except InvalidArgumentError as error:
        raise _wrong("args", f"{name}: {error.message}") from None


def _whole(name: str, value: Any) -> int:
    """A number that is not negative and has 64 bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: is {value!r}; it must be an int") from None
    if not 0 <= number < 2**64:
        raise _wrong(name, f"{name}: is {number}; it must be from 0 to 2**64 - 1")
    return number


def _sizes(name: str, sizes: Any) -> tuple[int, int, int]:
    given = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    numbers = [_whole(name, size) for size in given]
    if not 1 <= len(numbers) <= 3 or max(numbers) >= 2**32:
        raise _wrong(name, f"{name}: is {sizes!r}; it must be one to three numbers below 2**32")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def _kinds(allow: Any) -> list[str]:
    kinds = [allow] if isinstance(allow, str) else list(allow)
    unknown = [kind for kind in kinds if kind not in finding_kinds()]
    if unknown:
        raise _wrong("allow", f"allow: {unknown[0]!r} is no kind of finding; these are: {', '.join(finding_kinds())}")
    return kinds
