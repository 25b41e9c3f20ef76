"""The cache of compiled kernels and tuning results: a folder that all processes of a user share.

Every function may be called by several threads and processes at the same time.
"""

from __future__ import annotations

import datetime
import json
import os
from dataclasses import dataclass
from typing import Any

from . import _core
from ._keywords import Nothing, hides_unknown, refuse_unknown

__all__ = [
    "Entry",
    "clear",
    "directory",
    "entries",
    "export_to",
    "import_from",
    "prune",
    "reason",
    "verify",
]


@dataclass(frozen=True)
class Entry:
    """One compiled kernel in the cache.

    Attributes:
        key: 32 hexadecimal digits; `Kernel.key` of the kernel.
        bytes: Size of the file.
        last_used: Time of the last use, up to ten minutes behind.
        kernel: The kernel's report, such as its spec and config; empty if the entry is damaged or unreadable.
        layer: The folder that holds it: the user's cache, or a prebuilt one.
        path: Path of the file.
        damaged: Whether the file does not match its name or checksum, or has unsafe permissions.
        unreadable: Why the file could not be read; empty if it could.
    """

    key: str
    bytes: int
    last_used: datetime.datetime
    kernel: dict[str, Any]
    layer: str
    path: str
    damaged: bool
    unreadable: str


def directory() -> str:
    """The cache folder of this process; empty if there is none. `reason` says why.

    Returns:
        The path.

    Examples:
        >>> os.path.isdir(ja.cache.directory())
        True
    """
    return _core.cache_directory()[0]


def reason() -> str:
    """Why `directory` is what it is.

    Returns:
        A sentence, or a part of one.

    Examples:
        >>> ja.cache.reason()
        'JIT_ATTENTION_CACHE_DIR'
    """
    return _core.cache_directory()[1]


def entries() -> list[Entry]:
    """Lists the kernels of all cache layers. Every file is read; one that another process removes is left out.

    Returns:
        The entries.

    Examples:
        >>> kernel = ja.compile(ja.AttentionSpec(head_dim=64), "sm_80")
        >>> kernel.key in [entry.key for entry in ja.cache.entries()]
        True
    """
    return [_entry(*fields) for fields in _core.cache_entries()]


def verify() -> list[Entry]:
    """Lists the damaged entries. Their kernels are compiled again when they are needed.

    Returns:
        The entries of `entries` that are damaged.

    Examples:
        >>> ja.cache.verify()
        []
    """
    return [_entry(*fields) for fields in _core.cache_verify()]


@hides_unknown
def prune(max_bytes: int, **unknown: Nothing) -> int:
    """Removes damaged kernels, and then the least recently used ones, until the cache is small enough.

    Args:
        max_bytes: Largest size of the remaining kernels, in bytes.

    Returns:
        Number of kernels that were removed.

    Raises:
        InvalidArgumentError: max_bytes is negative.
        IoError: There is no cache folder, or a file cannot be removed.

    Examples:
        >>> kernel = ja.compile(ja.AttentionSpec(head_dim=64), "sm_80")
        >>> ja.cache.prune(2**40), ja.cache.prune(0)
        (0, 1)
    """
    if unknown:
        refuse_unknown(prune, unknown)
    return _core.cache_prune(max_bytes)


def clear() -> int:
    """Removes all kernels and tuning results.

    Returns:
        Number of kernels that were removed.

    Raises:
        IoError: There is no cache folder, or a file cannot be removed.

    Examples:
        >>> kernel = ja.compile(ja.AttentionSpec(head_dim=64), "sm_80")
        >>> ja.cache.clear()
        1
    """
    return _core.cache_clear()


@hides_unknown
def export_to(file: str | os.PathLike[str], **unknown: Nothing) -> int:
    """Writes all intact kernels to one file, for `import_from` on another machine.

    Args:
        file: The file.

    Returns:
        Number of kernels in the file.

    Raises:
        IoError: The file cannot be written.

    Examples:
        >>> kernel = ja.compile(ja.AttentionSpec(head_dim=64), "sm_80")
        >>> ja.cache.export_to(os.path.join(folder, "kernels")) >= 1
        True
    """
    if unknown:
        refuse_unknown(export_to, unknown)
    return _core.cache_export(os.fspath(file))


@hides_unknown
def import_from(file: str | os.PathLike[str], **unknown: Nothing) -> tuple[int, list[str]]:
    """Adds the kernels of a file that `export_to` wrote to the cache. Each one is checked.

    Args:
        file: The file.

    Returns:
        Number of kernels that were added, and one sentence for each damaged part of the file.

    Raises:
        IoError: The file cannot be read, or there is no cache folder.

    Examples:
        >>> kernel = ja.compile(ja.AttentionSpec(head_dim=64), "sm_80")
        >>> exported = ja.cache.export_to(os.path.join(folder, "kernels"))
        >>> added, damaged = ja.cache.import_from(os.path.join(folder, "kernels"))
        >>> damaged
        []
    """
    if unknown:
        refuse_unknown(import_from, unknown)
    return _core.cache_import(os.fspath(file))


def _entry(
    key: str, size: int, last_used: float, metadata: str, layer: str, path: str, damaged: bool, unreadable: str
) -> Entry:
    used = datetime.datetime.fromtimestamp(last_used, datetime.timezone.utc)
    whole = not damaged and not unreadable
    return Entry(key, size, used, json.loads(metadata) if whole else {}, layer, path, damaged, unreadable)
