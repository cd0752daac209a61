"""Where the files of one model are, finished, unfinished and on their way out, and its lock."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Generator
from pathlib import Path

from filelock import FileLock, Timeout
from pegboard_contracts.errors import ApiError

from pegboard_kernel.durable import sync_folder

logger = logging.getLogger(__name__)

MODELS = "models"
ENGINES = "engines"
OPERATIONS = "operations"
LOCKS = "locks"

LEFTOVER = re.compile(r"\.(?P<model>.+)\.(?P<kind>staging|backup|deleted)-(?:[a-z]+-)?[0-9a-f]{32}")
"""Names that no id can have: unfinished files, old ones, and those being deleted."""


class Places:
    """Name the paths of one model in the data folder, for one operation. Touches nothing."""

    def __init__(self, data_dir: Path, model: str, operation_id: str = "") -> None:
        """`model` is a valid id, which is the name of its folder."""
        self.model = model
        self.data_dir = data_dir
        self.models = data_dir / MODELS
        self.target = self.models / model
        self.staging = self.models / f".{model}.staging-{operation_id}"
        self.backup = self.models / f".{model}.backup-{operation_id}"
        self.engines = data_dir / ENGINES / model

    def relative(self, path: Path) -> str:
        """Return a path as the catalogue writes it: from the data folder, with slashes."""
        return path.relative_to(self.data_dir).as_posix()

    def refuse_links(self) -> None:
        """Raise 409 `model_files_linked` when the model's folder is a link: it is the user's."""
        if self.target.is_symlink() or _is_junction(self.target):
            message = (
                f"The folder of '{self.model}' is a link to files that are not this server's. "
                "Remove the link, or register the model by the path of its files."
            )
            raise ApiError(409, message, param="model", code="model_files_linked")

    def lock(self) -> FileLock:
        """Take the model's lock, which all servers of the data folder share.

        It ends with the process that has it. Raises 409 `model_busy` when another has it, and
        `OSError`.
        """
        folder = self.data_dir / LOCKS
        folder.mkdir(parents=True, exist_ok=True)
        # Ids are unique ignoring case; the lock is taken in one thread and left in another.
        lock = FileLock(folder / f"{self.model.lower()}.lock", thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            message = (
                f"Another server that uses the same data folder is preparing or deleting "
                f"'{self.model}'. Wait until it is done."
            )
            raise ApiError(409, message, param="model", code="model_busy") from None
        return lock

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Hold the lock for a short while; raises as `lock`."""
        lock = self.lock()
        try:
            yield
        finally:
            lock.release()


def _is_junction(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return getattr(found, "st_reparse_tag", 0) == getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", -1)


def discard(path: Path) -> int:
    """Delete a file or folder of ours, whole or not at all, and return its bytes.

    It is renamed first, so that a cut leaves nothing half under its name; links in it are
    removed, never followed. Nothing there is nothing to do. Raises `OSError`.
    """
    if not path.exists() and not path.is_symlink():
        return 0
    leftover = LEFTOVER.fullmatch(path.name)
    name = leftover["model"] if leftover else path.name
    aside = path.with_name(f".{name}.deleted-{uuid.uuid4().hex}")
    path.rename(aside)
    sync_folder(path.parent)
    return delete(aside)


def delete(path: Path) -> int:
    """Delete a file or folder as it is and return its bytes. Raises `OSError`."""
    if path.is_symlink() or not path.is_dir():
        size = path.lstat().st_size
        path.unlink()
        return size
    size = size_of(path)
    shutil.rmtree(path, onerror=_try_writable)
    return size


def _try_writable(function: Callable[[str], object], path: str, _: object) -> None:
    """Try again what a read-only mark prevents."""
    for place in (Path(path).parent, Path(path)):
        with contextlib.suppress(OSError):
            place.chmod(place.lstat().st_mode | stat.S_IRWXU)
    function(path)


def size_of(path: Path) -> int:
    """Return the bytes of a file or of all files in a folder; links count as nothing."""
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                found = Path(folder, name).lstat()
                total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total
