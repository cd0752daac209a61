"""The catalogue file: changed entry by entry, by several processes, without a loss."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
from filelock import FileLock, Timeout
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import ModelEntry

from pegboard_kernel.durable import sync_folder, write_durably
from pegboard_kernel.models.catalogue import Catalogue, parse_catalogue, read_catalogue

logger = logging.getLogger(__name__)

LOCK_SECONDS = 10.0
"""How long a change waits for the changes of others."""


class CatalogueFile:
    """Read and change one catalogue file. Any thread, any number of processes; blocking.

    A change reads the file anew under a lock beside it and replaces it as a whole: keys and
    entries that are not understood stay, and nothing that others wrote is lost. A link is
    followed, and what it leads to is replaced. A file that is no catalogue is moved aside,
    once per file and under a new name each time, and the next begins with what was last seen
    in it; one of a newer version is never touched.
    """

    def __init__(
        self, path: Path, *, default_device: str, lock_seconds: float = LOCK_SECONDS
    ) -> None:
        """Keep where it is; nothing is read. `default_device` is that of `read_catalogue`."""
        self._path = path
        self._device = default_device
        self._lock_seconds = lock_seconds
        self._last_seen: bytes | None = None

    def read(self) -> Catalogue:
        """Read the file; a corrupt one is moved aside and told in the faults. Raises nothing."""
        catalogue = read_catalogue(self._path, default_device=self._device)
        if not catalogue.corrupt:
            return self._seen(catalogue)
        try:
            with self._locked() as path:
                return self._read_or_move(path)
        except ApiError as error:
            catalogue.faults.append(error.message)
            return catalogue

    def add(self, entry: ModelEntry) -> None:
        """Add an entry durably.

        Raises `ApiError` 409 `catalogue_changed` when one of its names is in the file already,
        `catalogue_not_saved` when the file cannot be changed.
        """
        with self._changing() as document:
            models: list[Any] = document["models"]
            if any(_has_id(raw, entry.id) for raw in models):
                raise _changed(f"another '{entry.id}' is in it by now")
            models.append(msgspec.to_builtins(entry))
            self._accepted(document, entry.id)

    def change(
        self,
        model_id: str,
        fields: Mapping[str, Any],
        *,
        add: ModelEntry | None = None,
        expected: Mapping[str, Any] | None = None,
    ) -> ModelEntry:
        """Set fields of an entry durably and return the entry as it is in the file.

        `add` is the entry that is written first where there is none of the id. `expected` are
        fields of the entry as the caller knows them. Raises `ApiError` 409
        `catalogue_changed` when they are others or the entry is gone, `catalogue_not_saved`.
        """
        with self._changing() as document:
            models: list[Any] = document["models"]
            if not any(_has_id(raw, model_id) for raw in models):
                if add is None:
                    raise _changed(f"'{model_id}' is no longer in it")
                models.append(msgspec.to_builtins(add))
            before, index = self._accepted(document, model_id)
            for name, value in (expected or {}).items():
                if getattr(before, name) != value:
                    raise _changed(f"'{name}' of '{model_id}' has another value by now")
            models[index].update(msgspec.to_builtins(dict(fields)))
            return self._accepted(document, model_id)[0]

    def remove(self, model_id: str) -> None:
        """Remove an entry durably; one that is not there is removed already.

        Raises `ApiError` 409 `catalogue_not_saved`.
        """
        with self._changing() as document:
            models: list[Any] = document["models"]
            models[:] = [raw for raw in models if not _has_id(raw, model_id)]

    def _accepted(self, document: dict[str, Any], model_id: str) -> tuple[ModelEntry, int]:
        """Return an entry as a reader of the document gets it, and its place."""
        catalogue = parse_catalogue(document, default_device=self._device)
        for entry in catalogue.entries:
            if entry.id == model_id:
                return entry, catalogue.places[model_id]
        raise _changed(f"its entry of '{model_id}' is not understood")

    @contextlib.contextmanager
    def _changing(self) -> Generator[dict[str, Any]]:
        """Hold the lock, give the document, and write it when the body changed it."""
        with self._locked() as path:
            catalogue = self._read_or_move(path)
            if catalogue.document is None:
                raise _not_saved(" ".join(catalogue.faults))
            before = msgspec.json.encode(catalogue.document)
            yield catalogue.document
            after = msgspec.json.encode(catalogue.document)
            if after == before:
                return
            try:
                _write(path, after)
            except OSError as error:
                raise _not_saved(f"{error.strerror or type(error).__name__}.") from None
            self._last_seen = after

    @contextlib.contextmanager
    def _locked(self) -> Generator[Path]:
        try:
            path = Path(os.path.realpath(self._path))
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path.with_name(f"{path.name}.lock"))
            lock.acquire(timeout=self._lock_seconds)
        except Timeout:
            raise _not_saved(
                f"another process has held its lock for {self._lock_seconds:g} seconds."
            ) from None
        except (OSError, NotImplementedError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise _not_saved(f"{reason or type(error).__name__}.") from None
        try:
            yield path
        finally:
            lock.release()

    def _read_or_move(self, path: Path) -> Catalogue:
        catalogue = read_catalogue(path, default_device=self._device)
        if not catalogue.corrupt:
            return self._seen(catalogue)
        try:
            aside = _move_aside(path)
            if self._last_seen is not None:
                _write(path, self._last_seen)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            catalogue.faults.append(f"It cannot be replaced either: {reason}.")
            return catalogue
        begins = "" if self._last_seen is None else " with what was last seen in it"
        fault = (
            f"{catalogue.faults[0]} It was moved to '{aside.name}', and a new one begins{begins}."
        )
        logger.error("%s", fault)
        return read_catalogue(path, default_device=self._device).with_fault(fault)

    def _seen(self, catalogue: Catalogue) -> Catalogue:
        if catalogue.document is not None:
            self._last_seen = msgspec.json.encode(catalogue.document)
        return catalogue


def _write(path: Path, document: bytes) -> None:
    write_durably(path, msgspec.json.format(document, indent=2) + b"\n")


def _move_aside(path: Path) -> Path:
    """Give a file another name that no file has, and return it."""
    stem = f"{path.name}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    number = 1
    while True:
        aside = path.with_name(stem if number == 1 else f"{stem}-{number}")
        try:
            # A link fails where a rename would overwrite.
            os.link(path, aside)
        except FileExistsError:
            number += 1
            continue
        except OSError:
            # A file system without links; the lock keeps others from the same name.
            if aside.exists():
                number += 1
                continue
            path.rename(aside)
        else:
            path.unlink()
        sync_folder(path.parent)
        return aside


def _has_id(raw: object, model_id: str) -> bool:
    return isinstance(raw, dict) and cast("dict[str, Any]", raw).get("id") == model_id


def _changed(what: str) -> ApiError:
    message = (
        f"The catalogue file was changed by somebody else: {what}. Nothing was written; look at "
        "the file, and restart the server to read it again."
    )
    return ApiError(409, message, code="catalogue_changed")


def _not_saved(why: str) -> ApiError:
    message = f"The catalogue cannot be saved, and all is as before: {why}"
    return ApiError(409, message, code="catalogue_not_saved")
