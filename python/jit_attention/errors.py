"""The errors of this package: one class per kind of failure, all with the same fields."""

from __future__ import annotations

__all__ = [
    "CompileFailedError",
    "DriverError",
    "DriverUnavailableError",
    "Error",
    "InvalidArgumentError",
    "InvalidSpecError",
    "IoError",
    "LaunchFailedError",
    "LoadFailedError",
    "NoValidConfigError",
    "NotPreparedError",
    "NvrtcUnavailableError",
    "OfflineError",
    "PeerTimeoutError",
    "RankMismatchError",
    "UnsupportedDeviceError",
]


class Error(RuntimeError):
    """The base of all errors of this package.

    Attributes:
        code: The kind of failure, such as ``"invalid_argument"``. Each class has its own.
        stage: The step that failed: ``"validate"``, ``"compile"``, ``"load"``, ``"launch"``, ``"tune"``, …
        field: The wrong field or argument, such as ``"head_dim"`` or ``"k"``; may be empty.
        message: One sentence: the field, its value, the rule, and what would work.
        native_code: The CUresult or nvrtcResult; 0 if there is none.
        log: The compiler's log, if compiling failed.
        source: The generated program, if compiling failed.

    Examples:
        >>> try:
        ...     ja.AttentionSpec(head_dim=100)
        ... except ja.Error as error:
        ...     print(error.code, error.field)
        invalid_spec head_dim
    """

    code = ""

    def __init__(
        self, message: str, stage: str = "", field: str = "", native_code: int = 0, log: str = "", source: str = ""
    ) -> None:
        super().__init__(message, stage, field, native_code, log, source)  # what pickle gives back to __init__
        self.message = message
        self.stage = stage
        self.field = field
        self.native_code = native_code
        self.log = log
        self.source = source

    def __str__(self) -> str:
        return f"{self.message}\n{self.log}" if self.log else self.message


class InvalidSpecError(Error, ValueError):
    """A spec, mask or score contradicts itself, or the library does not serve it."""

    code = "invalid_spec"


class InvalidArgumentError(Error, ValueError):
    """An array or another argument is wrong. Raised before anything is launched."""

    code = "invalid_argument"


class UnsupportedDeviceError(Error):
    """The device cannot run the kernel."""

    code = "unsupported_device"


class NoValidConfigError(Error):
    """No kernel config fits the spec on this device, or the given config does not."""

    code = "no_valid_config"


class CompileFailedError(Error):
    """NVRTC or its assembler rejected the program. ``log`` has all errors, with lines of the user's text."""

    code = "compile_failed"


class NvrtcUnavailableError(Error):
    """libnvrtc was not found or is too old: ``pip install nvidia-cuda-nvrtc``, or a CUDA toolkit."""

    code = "nvrtc_unavailable"


class DriverUnavailableError(Error):
    """There is no CUDA driver or no GPU here, or this process cannot use them."""

    code = "driver_unavailable"


class LoadFailedError(Error):
    """The driver refused the compiled kernel."""

    code = "load_failed"


class LaunchFailedError(Error):
    """The driver refused the launch, or an emulated device found an error in the kernel's run."""

    code = "launch_failed"


class DriverError(Error):
    """Another call to the driver failed."""

    code = "driver_error"


class OfflineError(Error):
    """A kernel is in no cache and no pack, and JIT_ATTENTION_OFFLINE forbids compiling."""

    code = "offline"


class NotPreparedError(Error):
    """The call would compile or tune during stream capture. Call it once, or `prepare`, before the capture."""

    code = "not_prepared"


class IoError(Error, OSError):
    """A file could not be read or written."""

    code = "io_error"


class RankMismatchError(Error, ValueError):
    """Ranks of a process group call with different shapes, masks, placements or versions. Each of them raises this, before
    anything is computed, with the name of the argument in `field`."""

    code = "rank_mismatch"


class PeerTimeoutError(Error, TimeoutError):
    """A rank has not delivered data that others need: it is dead, stalled, or in another collective. The message
    names it. The process group is unusable; others still work."""

    code = "peer_timeout"


_CLASS_OF_CODE = {kind.code: kind for kind in Error.__subclasses__()}


def error_of_code(
    code: str, stage: str, field: str, message: str, native_code: int, log: str, source: str
) -> Error:
    """The exception for an error of the C++ library."""
    return _CLASS_OF_CODE[code](message, stage, field.removeprefix("spec."), native_code, log, source)
