"""Converters: plugins that turn a downloaded model into files that a backend opens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec

from pegboard_contracts.models import Phase
from pegboard_contracts.plugin import Plugin, hookimpl


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Report progress of preparing a model, from the process that does it.

    `percent` is of the phase and `None` where nothing was measured. `message` holds no
    path and no secret. Every report is a sign of life, also one that says nothing new.
    """

    phase: Phase
    message: str = ""
    percent: float | None = None
    completed: int | None = None
    total: int | None = None


Reporter = Callable[[Report], None]
"""Takes reports, on any thread, and never blocks for long."""


class ConversionOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for one conversion.

    `source` is the local file or folder of the model, `target` an empty folder. `options`
    that are `None` mean the converter's default for this model. `trust_remote_code` is true
    only when the operator said so literally.
    """

    model: str
    source: Path
    target: Path
    backend: str
    weight_format: str | None = None
    group_size: int | None = None
    ratio: float | None = None
    sym: bool | None = None
    trust_remote_code: bool = False


class Converter(Plugin):
    """Be a plugin of kind `converters`.

    `check` runs in the server on a worker thread, `convert` in a child process of its own that
    is killed with its whole tree on cancel. Example plugin: `optimum_intel`.
    """

    model_backends: ClassVar[tuple[str, ...]] = ()
    """The words of the catalogue's `backend` whose models this plugin makes."""

    default_weight_format: ClassVar[str | None] = None
    """What an order gets whose `weight_format` nobody chose, and what the catalogue then says."""

    @abstractmethod
    def check(self, order: ConversionOrder) -> None:
        """Refuse what cannot be done, before anything is downloaded; `source` need not exist.

        Raises `ApiError` 400 for an option, 501 `converter_not_installed` with the command
        that installs what is missing. Quick: imports nothing heavy.
        """

    @abstractmethod
    def convert(self, order: ConversionOrder, report: Reporter) -> None:
        """Fill `order.target`, blocking; complete when it returns.

        Raises `ApiError` with a sanitized reason. Starts no process that outlives this one.
        """

    @hookimpl
    def pegboard_provide_converter(self) -> Converter:
        """Provide this converter."""
        return self
