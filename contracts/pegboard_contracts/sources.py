"""Model sources: plugins that turn a model's address into files on this machine."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from pegboard_contracts.plugin import Plugin, hookimpl


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
        """Derive the id of a model that is registered by its address alone."""

    @hookimpl
    def pegboard_provide_model_source(self) -> ModelSource:
        """Provide this source."""
        return self
