"""Good models to begin with: the starting catalogue, which is data and needs no network."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

import msgspec
from pegboard_contracts.lifecycle import SuggestedModel
from pegboard_contracts.models import ModelEntry


class _Suggestions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema_version: int
    models: list[SuggestedModel]


def suggested_models(entries: Iterable[ModelEntry] = ()) -> list[SuggestedModel]:
    """Return the models of the starting catalogue, small ones of each kind first.

    Those whose source one of `entries` has already tell its id in `registered_as`. Reads a
    file of the package.
    """
    raw = files("pegboard_kernel.models").joinpath("suggestions.json").read_bytes()
    known = {entry.source_model: entry.id for entry in entries}
    return [
        msgspec.structs.replace(model, registered_as=known.get(model.source_model))
        for model in msgspec.json.decode(raw, type=_Suggestions).models
    ]
