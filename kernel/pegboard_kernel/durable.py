"""Files that survive a cut: written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a cut at any moment leaves the old file or the new one.

    The caller is the only writer of `path` at the time. The permissions of an old file stay.
    Raises `OSError`; the old file is as it was then.
    """
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    try:
        with beside.open("xb") as file:
            with contextlib.suppress(OSError):
                beside.chmod(path.stat().st_mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder survive a loss of power. Raises `OSError`.

    Windows does it by itself, and has no call for it.
    """
    if sys.platform != "win32":
        _sync(folder)


def sync_tree(folder: Path) -> None:
    """Let every file and name below a folder survive a loss of power. Raises `OSError`."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if not path.is_symlink():
                _sync(path)
        sync_folder(Path(place))


def _sync(path: Path) -> None:
    # Windows flushes only what is open for writing.
    flags = os.O_RDWR if sys.platform == "win32" else os.O_RDONLY
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
