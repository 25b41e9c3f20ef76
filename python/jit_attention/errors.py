"""Everything that this package raises: one class per kind of failure, all with the same fields."""


class Error(RuntimeError):
    """Base of all errors of this package.

    Attributes:
        code: what kind of failure this is, such as ``"invalid_argument"``.
        stage: step of the pipeline: ``"validate"``, ``"compile"``, ``"load"``, ``"launch"``, ``"tune"``, …
        field: the offending field or argument, such as ``"head_dim"`` or ``"k"``; may be empty.
        message: one sentence: field, value, rule and what would work.
        native_code: CUresult or nvrtcResult, 0 when none.
        log: the compiler's log, without its warnings about templates, when compiling failed.
        source: the generated program, when compiling failed.
    """

    code = ""

    def __init__(self, message, stage="", field="", native_code=0, log="", source=""):
        super().__init__(message, stage, field, native_code, log, source)  # what pickle gives back to __init__
        self.message = message
        self.stage = stage
        self.field = field
        self.native_code = native_code
        self.log = log
        self.source = source

    def __str__(self):
        return f"{self.message}\n{self.log}" if self.log else self.message


class InvalidSpecError(Error, ValueError):
    """A spec, mask or score contradicts itself or asks for something unsupported."""

    code = "invalid_spec"


class InvalidArgumentError(Error, ValueError):
    """An array or another argument is wrong. Raised before anything is launched."""

    code = "invalid_argument"


class UnsupportedDeviceError(Error):
    """This device cannot run what was asked."""

    code = "unsupported_device"


class NoValidConfigError(Error):
    """No kernel config fits the spec on this device, or the given one does not."""

    code = "no_valid_config"


class CompileFailedError(Error):
    """NVRTC or its assembler rejected the program; ``log`` has all errors, and points into user text."""

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
    """The driver refused the launch; on an emulated device also what it found wrong in the kernel's run."""

    code = "launch_failed"


class DriverError(Error):
    """Another call of the driver failed."""

    code = "driver_error"


class OfflineError(Error):
    """A kernel is in no cache, and JIT_ATTENTION_OFFLINE forbids compiling."""

    code = "offline"


class NotPreparedError(Error):
    """The call would have to compile or tune during stream capture: call it, or `prepare`, before."""

    code = "not_prepared"


class IoError(Error, OSError):
    """A file that was named could not be read or written."""

    code = "io_error"


_CLASS_OF_CODE = {kind.code: kind for kind in Error.__subclasses__()}


def error_of_code(code, stage, field, message, native_code, log, source):
    """The exception for an error of the C++ library."""
    return _CLASS_OF_CODE[code](message, stage, field.removeprefix("spec."), native_code, log, source)
