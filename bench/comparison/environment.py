"""The environment of a run: hardware and software."""

import datetime
import os
import pathlib
import platform
import re
import subprocess

from .timing import FLUSH_BYTES


def no_gpu():
    """The reason why nothing can be measured here, one sentence; None: a GPU exists."""
    try:
        import torch
    except ImportError:
        return "measuring needs PyTorch, which is not installed; --list and --from work without it"
    if not torch.cuda.is_available():
        return "measuring needs a GPU, and PyTorch sees none; --list and --from work without one"
    return None


def too_few_gpus(cells):
    """The reason why one of these problems lacks GPUs, one sentence; None: there are enough."""
    import torch

    most, here = max((getattr(cell, "ranks", 1) for cell in cells), default=1), torch.cuda.device_count()
    return f"suite distributed needs {most} GPUs, and PyTorch sees {here}" if most > here else None


def require_gpu(parser):
    """Exits with one sentence and status 2 when nothing can be measured."""
    if reason := no_gpu():
        parser.exit(2, f"{parser.prog}: {reason.split(';')[0]}\n")


def one_line():
    """What this process measures on and with."""
    import jit_attention
    import torch

    return (f"{torch.cuda.get_device_name()}, driver {driver_version()}, {datetime.date.today().isoformat()}; "
            f"jit-attention {jit_attention.__version__}, torch {torch.__version__}.")


def driver_version():
    """The NVIDIA driver's version; "unknown" when unavailable."""
    try:
        text = pathlib.Path("/proc/driver/nvidia/version").read_text()
        return re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text).group(1)
    except (OSError, AttributeError):
        pass
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        output = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        return output.splitlines()[0].strip()
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"


def describe(command, contenders, device="cuda", **options):
    """The "run" record. contenders: [(contender, reason why it is absent, or None)]; device: "cpu" for emulated devices;
    options: the run's settings."""
    import torch

    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        gpu, sm_count = properties.name, properties.multi_processor_count
    else:
        gpu, sm_count = "emulated devices", 0
    return dict(
        kind="run", date=datetime.date.today().isoformat(),
        time=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        gpu=gpu, sm_count=sm_count, driver=driver_version(),
        versions=dict(python=platform.python_version(), torch=torch.__version__, cuda=torch.version.cuda,
                      cudnn=torch.backends.cudnn.version()),
        contenders={one.name: dict(label=one.label, version=None if reason else one.version(), absent=reason)
                    for one, reason in contenders},
        tuning_seconds=os.environ.get("JIT_ATTENTION_TUNING_SECONDS"), flush_bytes=FLUSH_BYTES, command=command,
        **options)
