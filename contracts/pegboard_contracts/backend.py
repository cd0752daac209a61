"""Backends: plugins that know devices and open engines on them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec

from pegboard_contracts.encoding import Encoder, ModelKind
from pegboard_contracts.engine import Engine, PromptTokenizer
from pegboard_contracts.plugin import Plugin, hookimpl


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a device as its runtime does; `problem` says why it cannot be used."""

    name: str
    full_name: str = ""
    usable: bool = True
    problem: str | None = None
    properties: dict[str, Any] = {}


class DeviceReport(msgspec.Struct, frozen=True, kw_only=True):
    """Tell about this machine's devices.

    `suggestions` are device expressions worth trying here, `examples` those that are
    understood at all.
    """

    devices: list[Device]
    suggestions: list[str]
    examples: list[str]


class DeviceDirectory(Protocol):
    """Know the devices of all active backends: a service. Runs on the server's event loop."""

    async def report(self, *, refresh: bool = False) -> DeviceReport:
        """Tell what is there; `refresh` looks again instead of telling what is remembered."""
        ...


class EngineOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a backend how an engine is to be described.

    `source` is the local file or folder of the model, `device` the device expression,
    `cache_dir` a folder of the data directory that belongs to this model alone.
    `context_tokens` is the configured budget or nothing, `options` the catalogue entry's
    further settings.
    """

    model: str
    source: Path
    device: str
    cache_dir: Path
    context_tokens: int | None = None
    kv_cache_gb: float | None = None
    options: dict[str, Any] = {}


class EngineDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Describe an engine as plain data: what its children are started with.

    A model that does not generate has one child, which opens its encoder.
    """

    backend: str
    options: dict[str, Any]
    kind: ModelKind = "generate"


class Backend(Plugin):
    """Be a plugin of kind `backends`.

    `describe_engine`, `serves` and `devices` run in the server, the `open_` methods in
    the children, where the instance is made anew from its entry point and configured
    with the same settings. Example plugins: `scripted`, `openvino_cpu`.
    """

    model_backends: ClassVar[tuple[str, ...]] = ()
    """The words of the catalogue's `backend` that this plugin serves."""

    source_scheme: ClassVar[str | None] = None
    """A scheme of model sources (`scripted:`) that means this backend."""

    device_examples: ClassVar[tuple[str, ...]] = ()
    """Device expressions that this plugin understands, for people."""

    def serves(self, model_backend: str, device: str) -> bool:
        """Tell whether this plugin runs `model_backend` models on the device expression."""
        del device
        return model_backend in self.model_backends

    def kind_of(self, source: Path) -> ModelKind:
        """Tell what a model of this backend can be asked for; cheap, and never raises."""
        del source
        return "generate"

    def devices(self, *, refresh: bool = False) -> Sequence[Device]:
        """List the devices this plugin can use or explain.

        May take a second and is then remembered; `refresh` looks again. Any thread.
        """
        del refresh
        return ()

    def device_suggestions(self) -> Sequence[str]:
        """Return device expressions worth trying on this machine; as costly as `devices`."""
        return ()

    @abstractmethod
    def describe_engine(self, order: EngineOrder) -> EngineDescription:
        """Describe the engine for an order without opening it.

        Raises `ApiError` 400 when the source or the device cannot be served: a truncated
        file, a missing tokenizer, a device that is not there.
        """

    @abstractmethod
    def open_engine(self, options: dict[str, Any]) -> Engine:
        """Open the engine, in the engine child. Raises `ApiError` with what to do."""

    @abstractmethod
    def open_tokenizer(self, options: dict[str, Any]) -> PromptTokenizer:
        """Open the tokenizer, in the preparer child, perhaps while `open_engine` is at work."""

    def open_encoder(self, options: dict[str, Any]) -> Encoder:
        """Open the encoder of a model that does not generate, in the engine child."""
        del options
        raise NotImplementedError(f"{type(self).__name__} describes engines that generate")

    @hookimpl
    def pegboard_provide_backend(self) -> Backend:
        """Provide this backend."""
        return self
