"""Which operations run, on the disk: so that the next server knows what a cut left."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any, Literal

import msgspec
from filelock import FileLock
from pegboard_contracts.models import ModelEntry

from pegboard_kernel.durable import write_durably
from pegboard_kernel.models.catalogue import check_id
from pegboard_kernel.preparation.places import LOCKS, OPERATIONS

logger = logging.getLogger(__name__)

_LOCK_SECONDS = 10.0

Step = Literal["fetching", "converting", "finalizing", "replacing"]


class Note(msgspec.Struct, kw_only=True):
    """Hold what one operation is doing.

    From step `replacing` on it is complete: `result` is the name in the data folder of what
    the catalogue points to, `fields` what is written there and `entry` the entry that is
    added where there is none. `child` and `child_started` are the process that works and
    when it began, in seconds since 1970.
    """

    operation_id: str
    model: str
    step: Step = "fetching"
    schema_version: int = 1
    started_at: float = msgspec.field(default_factory=time.time)
    child: int = 0
    child_started: float = 0.0
    fields: dict[str, Any] = {}
    entry: ModelEntry | None = None


class Journal:
    """Keep the notes of one data folder, a file each. Blocking; raises `OSError`."""

    def __init__(self, data_dir: Path) -> None:
        """Keep where; nothing is read."""
        self.folder = data_dir / OPERATIONS
        # No id begins with a dot, so that it is no model's lock.
        self._lock_file = data_dir / LOCKS / ".operations.lock"

    def write(self, note: Note) -> None:
        """Write a note durably."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._writing():
            write_durably(self._path(note), msgspec.json.encode(note))

    def sweep(self) -> None:
        """Remove what cut writes left: nobody writes while it is done."""
        if not self.folder.is_dir():
            return
        with self._writing():
            for path in self.folder.glob(".*.new"):
                path.unlink(missing_ok=True)

    def _writing(self) -> FileLock:
        self._lock_file.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self._lock_file, timeout=_LOCK_SECONDS)

    def remove(self, note: Note) -> None:
        """Remove a note; one that is not there is removed already."""
        self._path(note).unlink(missing_ok=True)

    def notes(self) -> list[Note]:
        """Read every note; one that is not understood is logged and left."""
        notes: list[Note] = []
        for path in sorted(self.folder.glob("[!.]*.json")):
            try:
                note = msgspec.json.decode(path.read_bytes(), type=Note)
                # It becomes a folder's name.
                check_id(note.model)
            except (OSError, ValueError) as error:
                logger.warning("the note '%s' of an operation is not read: %s", path.name, error)
                continue
            if note.schema_version == 1 and path == self._path(note):
                notes.append(note)
        return notes

    def _path(self, note: Note) -> Path:
        return self.folder / f"{note.operation_id}.json"
