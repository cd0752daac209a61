"""What a cut left behind, put right before the models are read."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psutil
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import ModelEntry

from pegboard_kernel.preparation.journal import Journal, Note
from pegboard_kernel.preparation.places import ENGINES, LEFTOVER, MODELS, Places, delete
from pegboard_kernel.preparation.swap import forget_old, publish, withdraw
from pegboard_kernel.preparation.work import end_tree

logger = logging.getLogger(__name__)

_SECOND = 1.0


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """Tell what became of one operation; `complete` when its result is in place."""

    model: str
    message: str
    complete: bool = False


class Catalogued(Protocol):
    """Change an entry of the catalogue file durably."""

    def change(
        self, model_id: str, fields: dict[str, Any], *, add: ModelEntry | None = None
    ) -> ModelEntry:
        """Set fields of an entry; raises `ApiError` 409."""
        ...


def recover(data_dir: Path, catalogue: Catalogued) -> list[Recovered]:
    """Finish or undo what was running when a server ended; blocking, raises nothing.

    An operation whose files were complete gets them put in place and written down; every
    other one is undone, and the files before are as they were. Processes that are left are
    ended. What another living server does is left alone: it has the model's lock.
    """
    journal = Journal(data_dir)
    recovered: list[Recovered] = []
    for note in journal.notes():
        places = Places(data_dir, note.model, note.operation_id)
        try:
            with places.locked():
                recovered.append(_settle(note, places, catalogue))
                journal.remove(note)
        except ApiError as error:
            if error.code != "model_busy":
                recovered.append(_stuck(note, error.message))
        except OSError as error:
            recovered.append(_stuck(note, f"{error.strerror or type(error).__name__}."))
    with contextlib.suppress(OSError):
        journal.sweep()
    for folder in (data_dir / MODELS, data_dir / ENGINES):
        _sweep(data_dir, folder, {note.operation_id for note in journal.notes()})
    for one in recovered:
        logger.warning("%s", one.message)
    return recovered


def _settle(note: Note, places: Places, catalogue: Catalogued) -> Recovered:
    _end_child(note)
    if note.step != "replacing":
        withdraw(places, published=False)
        kept = " What was fetched is kept." if note.step == "fetching" else ""
        work = "download" if note.step == "fetching" else "conversion"
        message = (
            f"The server ended during the {work} of '{note.model}'. The model's files are as they "
            f"were before.{kept} Start it again with POST /v1/models/convert or `pegboard models "
            "convert`."
        )
        return Recovered(model=note.model, message=message)
    publish(places)
    catalogue.change(note.model, note.fields, add=note.entry)
    forget_old(places)
    message = (
        f"The server ended when the conversion of '{note.model}' was complete; its files are in "
        "place now."
    )
    return Recovered(model=note.model, message=message, complete=True)


def _end_child(note: Note) -> None:
    """End the processes of an operation, unless the number belongs to another process by now."""
    with contextlib.suppress(psutil.Error):
        if (
            note.child
            and abs(psutil.Process(note.child).create_time() - note.child_started) < _SECOND
        ):
            end_tree(note.child)


def _stuck(note: Note, reason: str) -> Recovered:
    message = (
        f"What was begun for '{note.model}' before the server ended cannot be put right: {reason} "
        "It is tried again at the next start."
    )
    return Recovered(model=note.model, message=message)


def _sweep(data_dir: Path, folder: Path, running: set[str]) -> None:
    """Remove leftovers that no operation knows."""
    for path, model, kind in _leftovers(folder):
        if any(path.name.endswith(f"-{operation}") for operation in running):
            continue
        places = Places(data_dir, model)
        try:
            with places.locked():
                if kind == "backup" and not os.path.lexists(folder / model):
                    path.rename(folder / model)
                elif os.path.lexists(path):
                    delete(path)
        except (ApiError, OSError) as error:
            logger.warning("the leftover '%s' stays: %s", path.name, error)


def _leftovers(folder: Path) -> Iterator[tuple[Path, str, str]]:
    try:
        paths = list(folder.iterdir())
    except OSError:
        return
    for path in paths:
        if match := LEFTOVER.fullmatch(path.name):
            yield path, match["model"], match["kind"]
