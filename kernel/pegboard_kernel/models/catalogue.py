"""The catalogue file: read entry by entry, so that one bad entry costs only itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import msgspec
from pegboard_contracts.models import ModelEntry
from pegboard_contracts.sources import MODEL_ID

SCHEMA_VERSION = 1
_DEVICE_NAMES = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")


class Catalogue(msgspec.Struct, kw_only=True):
    """Hold what the file says.

    `document` is the file as it was parsed, with the keys and entries that are not
    understood, so that a writer can keep them; it is missing when the file cannot be parsed,
    and such a file is never overwritten. `corrupt` tells such a file from one that cannot be
    read and from one of a newer version. `places` says where in the document's list of models
    an entry is, by id. `faults` say what is wrong, a sentence each, without paths.
    """

    entries: list[ModelEntry] = []
    faults: list[str] = []
    document: dict[str, Any] | None = None
    corrupt: bool = False
    places: dict[str, int] = {}

    def with_fault(self, fault: str) -> Catalogue:
        """Return the same with a fault in front."""
        return msgspec.structs.replace(self, faults=[fault, *self.faults])


def read_catalogue(path: Path, *, default_device: str) -> Catalogue:
    """Read the file; a missing one is an empty catalogue. Raises nothing.

    `default_device` is the device of entries that name none. Source: the fixed interface
    "Catalogue file".
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return Catalogue(document={"schema_version": SCHEMA_VERSION, "models": []})
    except OSError as error:
        return Catalogue(faults=[f"The catalogue cannot be read: {error.strerror}."])
    try:
        document: Any = msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Catalogue(faults=[f"The catalogue is no valid JSON ({error})."], corrupt=True)
    return parse_catalogue(document, default_device=default_device)


def parse_catalogue(document: object, *, default_device: str) -> Catalogue:
    """Read the parsed content of a file as `read_catalogue` does."""
    fields = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    models, version = _as_list(fields.get("models")), fields.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        fault = (
            f"The catalogue has 'schema_version': {version}, which a newer version wrote; it is "
            "left as it is."
        )
        return Catalogue(faults=[fault])
    if type(version) is not int or version != SCHEMA_VERSION or models is None:
        fault = (
            f"The catalogue must be an object with 'schema_version': {SCHEMA_VERSION} and a list "
            "'models'."
        )
        return Catalogue(faults=[fault], corrupt=True)
    catalogue = Catalogue(document=fields)
    names: set[str] = set()
    for index, raw in enumerate(models):
        try:
            entry = _entry(raw, default_device)
            _claim_names(entry, names)
        except ValueError as error:
            catalogue.faults.append(f"Entry {index} of the catalogue is not used: {error}.")
        else:
            catalogue.entries.append(entry)
            catalogue.places[entry.id] = index
    return catalogue


def _as_list(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list) else None


def _entry(raw: object, default_device: str) -> ModelEntry:
    if not isinstance(raw, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - one kind of fault for the caller
    fields = {key: value for key, value in cast("dict[str, Any]", raw).items() if value is not None}
    fields.setdefault("recommended_device", default_device)
    # `ValidationError` is a `ValueError` that names the key.
    entry = msgspec.convert(fields, ModelEntry)
    check_id(entry.id)
    for name, limit in (
        ("max_context_len", entry.max_context_len),
        ("max_output_tokens", entry.max_output_tokens),
    ):
        if limit is not None and limit < 1:
            raise ValueError(f"'{name}' must be at least 1")
    return entry


def check_id(model_id: str) -> None:
    """Raise `ValueError` unless `model_id` can name a model and its folder (decision 27)."""
    if not MODEL_ID.fullmatch(model_id) or _DEVICE_NAMES.fullmatch(model_id):
        raise ValueError(
            f"'{model_id[:80]}' is no model id: letters, digits, '.', '_' and '-', at most 128, "
            "beginning with a letter or digit and not ending with a dot"
        )
    _check_not_auto(model_id)


def _check_not_auto(name: str) -> None:
    if name == "auto":
        raise ValueError("'auto' means any loaded model and names none")


def _claim_names(entry: ModelEntry, names: set[str]) -> None:
    # Ids are folders, and some file systems ignore case; aliases only have to be exact.
    wanted = [entry.id.lower(), *(f"={alias}" for alias in entry.aliases)]
    for name in wanted:
        if name in names:
            raise ValueError(f"the name '{name.lstrip('=')}' belongs to an earlier entry")
    for alias in entry.aliases:
        _check_not_auto(alias)
    names.update(wanted)
