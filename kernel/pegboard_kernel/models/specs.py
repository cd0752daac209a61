"""What `--model SPEC` may be, and the catalogue entry it stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import ModelEntry
from pegboard_contracts.sources import MODEL_ID, ModelSource

from pegboard_kernel.board import Board
from pegboard_kernel.models.catalogue import check_id

# Two letters at least: `C:` is a drive.
_SCHEME = re.compile(r"([a-z][a-z0-9_+-]+):(.*)", re.DOTALL)


class SpecError(Exception):
    """Say in one line why a spec cannot be understood, and what can be."""


def split_address(address: str) -> tuple[str, str]:
    """Split a model's address into its scheme, `""` for a plain path, and the rest."""
    match = _SCHEME.fullmatch(address)
    return (match[1], match[2]) if match else ("", address)


def find_source(board: Board, address: str) -> tuple[ModelSource, str]:
    """Return the source that understands `address`, and the address without its scheme.

    Raises `SpecError` when no active plugin has the scheme.
    """
    scheme, rest = split_address(address)
    if (source := board.model_sources.get(scheme)) is not None:
        return source, rest
    if scheme and Path(address).exists() and "" in board.model_sources:
        return board.model_sources[""], address
    known = ", ".join(f"{name}:" for name in sorted(board.model_sources) if name) or "none"
    what = f"addresses that begin with '{scheme}:'" if scheme else "plain paths"
    raise SpecError(f"no active model source understands {what} (understood: {known})")


def entry_of_spec(
    spec: str, board: Board, entries: Iterable[ModelEntry], *, default_device: str
) -> ModelEntry:
    """Return the entry a spec means: one of `entries`, or a new one.

    The id of a new one is the name before `=`, else the stem of its source (decision 37).
    Raises `SpecError` for a spec that cannot be understood; a source that leads nowhere is
    understood, and fails when it is loaded.
    """
    known = list(entries)
    for entry in known:
        if spec in (entry.id, *entry.aliases, entry.source_model):
            return entry
    name, address = _split_name(spec)
    if name:
        return _named(name, address, board, known, default_device)
    entry = _new_entry(None, address, board, default_device)
    for other in known:
        if other.source_model == entry.source_model:
            return other
        if other.id.lower() == entry.id.lower():
            message = f"the id '{entry.id}' belongs to another model; name it: ID={spec}"
            raise SpecError(message)
    return entry


def _split_name(spec: str) -> tuple[str, str]:
    name, equals, address = spec.partition("=")
    if equals and MODEL_ID.fullmatch(name) and not Path(spec).exists():
        return name, address
    return "", spec


def _named(
    name: str, address: str, board: Board, known: list[ModelEntry], default_device: str
) -> ModelEntry:
    try:
        check_id(name)
    except ValueError as error:
        raise SpecError(str(error)) from None
    of_id = next((e for e in known if address in (e.id, *e.aliases)), None)
    if of_id is not None:
        entry = msgspec.structs.replace(of_id, id=name, aliases=())
    else:
        entry = _new_entry(name, address, board, default_device)
    for other in known:
        if name.lower() == other.id.lower() or name in other.aliases:
            if other.id == name and other.source_model == entry.source_model:
                return other
            raise SpecError(f"the id '{name}' belongs to another model already")
    return entry


def _new_entry(name: str | None, address: str, board: Board, default_device: str) -> ModelEntry:
    source, rest = find_source(board, address)
    scheme, _ = split_address(address)
    if not scheme and not _looks_like_path(address):
        raise SpecError(
            f"'{address[:200]}' is no catalogue id, and no file or folder of that name is here"
        )
    word: str | None = None
    try:
        path = source.resolve(rest)
    except ApiError as error:
        if error.status == 400:
            raise SpecError(error.message) from None
    else:
        # Plain paths are kept absolute: the catalogue does not know where a server was started.
        if rest == address:
            address = str(path)
        word = next(
            (b.model_backends[0] for b in board.backends.values() if b.recognizes(path)), None
        )
    for backend in board.backends.values():
        if scheme and backend.source_scheme == scheme:
            word = backend.model_backends[0]
    entry = ModelEntry(
        id=name or source.default_id(rest), source_model=address, recommended_device=default_device
    )
    return entry if word is None else msgspec.structs.replace(entry, backend=word)


def _looks_like_path(address: str) -> bool:
    return (
        any(sign in address for sign in ("/", "\\", "~"))
        or address.lower().endswith(".gguf")
        or Path(address).exists()
    )
