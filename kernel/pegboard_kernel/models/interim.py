"""Stand-ins until the file and the preparation of models are built; to be removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from pegboard_contracts.converters import Report
from pegboard_contracts.errors import ApiError
from pegboard_contracts.lifecycle import ConversionOptions
from pegboard_contracts.models import ModelEntry

from pegboard_kernel.board import Board
from pegboard_kernel.models.catalogue import Catalogue, read_catalogue


class CatalogueFile:
    def __init__(self, path: Path, *, default_device: str) -> None:
        self._path = path
        self._device = default_device

    def read(self) -> Catalogue:
        return read_catalogue(self._path, default_device=self._device)

    def add(self, entry: ModelEntry) -> None:
        self._write(entry.id, msgspec.to_builtins(entry))

    def change(
        self,
        model_id: str,
        fields: Mapping[str, Any],
        *,
        add: ModelEntry | None = None,
        expected: Mapping[str, Any] | None = None,
    ) -> ModelEntry:
        known = {entry.id: entry for entry in self.read().entries}
        entry = known.get(model_id) or add
        assert entry is not None
        for name, value in (expected or {}).items():
            if getattr(entry, name) != value:
                raise ApiError(409, "The catalogue was changed.", code="catalogue_changed")
        entry = msgspec.structs.replace(entry, **fields)
        self._write(model_id, msgspec.to_builtins(entry))
        return entry

    def remove(self, model_id: str) -> None:
        self._write(model_id, None)

    def _write(self, model_id: str, raw: Any) -> None:
        document = self.read().document
        if document is None:
            raise ApiError(409, "The catalogue cannot be saved.", code="catalogue_not_saved")
        models = [one for one in document["models"] if one.get("id") != model_id]
        document["models"] = [*models, *([raw] if raw else [])]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(document))
        except OSError:
            raise ApiError(
                409, "The catalogue cannot be saved.", code="catalogue_not_saved"
            ) from None


class Preparation:
    needs_converter = True

    def __init__(
        self,
        entry: ModelEntry,
        board: Board,
        settings: Any,
        options: ConversionOptions,
        operation_id: str,
        on_report: Callable[[Report], None],
    ) -> None:
        self.operation_id = operation_id

    async def check(self) -> None:
        raise ApiError(501, "Not yet.", code="converter_not_installed")

    async def run(self) -> Any:
        raise NotImplementedError


def delete_files(data_dir: Path, model_id: str) -> int:
    return 0
