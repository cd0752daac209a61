"""Model sources: plugins that turn a model's address into files on this machine."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import msgspec

from pegboard_contracts.converters import Reporter
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


class SourceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Tell what a source knows of a model before its files are here; `None` is unknown.

    `servable` says that the files are a model as it is opened (OpenVINO IR, GGUF), which
    needs no conversion.
    """

    size_bytes: int | None = None
    license: str | None = None
    gated: bool = False
    revision: str | None = None
    servable: bool | None = None


class ModelSource(Plugin):
    """Be a plugin of kind `model_sources`. Example plugins: `local_path`, `python_package`, `hub`.

    A `remote` source fetches first: `preflight` on a worker thread of the server, `fetch` in a
    child process of its own. For every other source `resolve` says all.
    """

    remote: ClassVar[bool] = False
    """Whether models must be fetched before `resolve` finds them."""

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

    def preflight(self, address: str) -> SourceFacts:
        """Ask whether the model can be fetched, blocking, bounded in time.

        Raises `ApiError` 409 when access is denied or there is no such model (a hub says the
        same of both, decision 45), 502 `hub_unreachable` without a network, 507
        `insufficient_disk` when the disk has no room for it.
        """
        del address
        return SourceFacts()

    def fetch(self, address: str, report: Reporter) -> Path:
        """Fetch all files of the model, blocking, and return the folder or file they are in.

        What was fetched before is not fetched again, also after a cut. The result is complete,
        and `resolve` gives the same from then on. Raises `ApiError`.
        """
        del report
        return self.resolve(address)

    def child_environment(self) -> Mapping[str, str]:
        """Return environment variables that `fetch` needs in its process: secrets, mostly."""
        return {}

    @hookimpl
    def pegboard_provide_model_source(self) -> ModelSource:
        """Provide this source."""
        return self
