"""The folder that compiled kernels and tuning results are kept in, shared by all processes of a user."""

from __future__ import annotations

import datetime
import json
import os
from dataclasses import dataclass

from . import _core


@dataclass(frozen=True)
class Entry:
    """One compiled kernel.

    Attributes:
        key: 32 hexadecimal digits; `Kernel.key` of the kernel.
        bytes: size of the file.
        last_used: up to ten minutes behind.
        kernel: what is known of the kernel, such as its spec and config; empty unless it is whole.
        layer: the folder that holds it: the user's cache, or a prebuilt one.
        path: of the file.
        damaged: not what its name says, or not to be trusted.
        unreadable: why the file could not be read; empty when it was.
    """

    key: str
    bytes: int
    last_used: datetime.datetime
    kernel: dict
    layer: str
    path: str
    damaged: bool
    unreadable: str


def directory() -> str:
    """The cache folder in use; empty when everything stays in memory, `reason` says why."""
    return _core.cache_directory()[0]


def reason() -> str:
    """Why `directory` is what it is."""
    return _core.cache_directory()[1]


def entries() -> list[Entry]:
    """All kernels of all layers. Reads every file; one that goes meanwhile is left out."""
    return [_entry(*fields) for fields in _core.cache_entries()]


def verify() -> list[Entry]:
    """The damaged ones among `entries`. They are compiled anew when they are needed."""
    return [_entry(*fields) for fields in _core.cache_verify()]


def prune(max_bytes: int) -> int:
    """Remove what is damaged, then the least recently used until at most ``max_bytes`` remain. Returns how many went.

    Raises InvalidArgumentError for a negative size, IoError when there is no cache folder, or an entry cannot be
    removed, as on a read-only file system.
    """
    return _core.cache_prune(max_bytes)


def clear() -> int:
    """Remove all kernels and tuning results. Returns how many kernels went. Raises IoError as `prune`."""
    return _core.cache_clear()


def export_to(file: str | os.PathLike) -> int:
    """Write all whole kernels to one file. Returns how many. Raises IoError."""
    return _core.cache_export(os.fspath(file))


def import_from(file: str | os.PathLike) -> tuple[int, list[str]]:
    """Add the kernels of such a file, each checked.

    Returns how many were added, and a sentence for each part of the file that is damaged. Raises IoError when it
    cannot be read or there is no cache folder.
    """
    return _core.cache_import(os.fspath(file))


def _entry(key, size, last_used, metadata, layer, path, damaged, unreadable):
    used = datetime.datetime.fromtimestamp(last_used, datetime.timezone.utc)
    whole = not damaged and not unreadable
    return Entry(key, size, used, json.loads(metadata) if whole else {}, layer, path, damaged, unreadable)
