"""Model sources: plugins that turn a model's address into files on this machine."""

from __future__ import annotations

import re
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from pegboard_contracts.plugin import Plugin, hookimpl

MODEL_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?")
"""What a model's id looks like (decision 27)."""

_DEVICE_NAMES = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")


def model_id_from(name: str) -> str:
    """Turn a file's, folder's or repository's name into an id that `MODEL_ID` matches."""
    model_id = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-")[:128].rstrip(".")
    if model_id == "auto" or _DEVICE_NAMES.fullmatch(model_id):
        return f"model-{model_id}"
    return model_id or "model"


class ModelSource(Plugin):
    """Be a plugin of kind `model_sources`. Example plugins: `local_path`, `python_package`."""

    schemes: ClassVar[tuple[str, ...]] = ()
    """The words before the colon of an address; `""` stands for a plain path."""

    @abstractmethod
    def resolve(self, address: str) -> Path:
        """Return the local file or folder behind `address`, which comes without its scheme.

        Raises `ApiError` 400 for an address that cannot be understood and 404 for one that
        leads nowhere, with what to do; the message names the address as it was given,
        never the folder it led to. Imports nothing of what it looks at.
        """

    @abstractmethod
    def default_id(self, address: str) -> str:
        """Derive the id of a model that is registered by its address alone.

        Any address has one, made by `model_id_from` from the last name in it; nothing is
        raised.
        """

    @hookimpl
    def pegboard_provide_model_source(self) -> ModelSource:
        """Provide this source."""
        return self
