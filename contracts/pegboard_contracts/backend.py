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


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Tell what a model's files say about it, without opening it; `None` is unknown.

    `architecture_limit_tokens` is the longest context that the model is made for,
    `default_context_tokens` the one it gets when nothing is configured. The key-value cache
    of one token takes 2 x `layers` x `kv_heads` x `head_dim` x `kv_number_bytes` bytes.
    `weights_bytes` and `overhead_bytes` are what an open engine takes beside its cache,
    `cache_bytes` is the cache that a server-wide setting does not size.
    """

    architecture_limit_tokens: int | None = None
    default_context_tokens: int | None = None
    layers: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    kv_number_bytes: float | None = None
    weights_bytes: int | None = None
    overhead_bytes: int = 0
    cache_bytes: int | None = None


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

    opening_can_be_cancelled: ClassVar[bool] = True
    """Whether killing the child in `open_engine` or `open_encoder` does no harm beyond it."""

    def serves(self, model_backend: str, device: str) -> bool:
        """Tell whether this plugin runs `model_backend` models on the device expression."""
        del device
        return model_backend in self.model_backends

    def check_device(self, device: str) -> None:
        """Refuse an expression that is understood on no machine, before a load begins; cheap.

        Raises `ApiError` 400 with examples. Whether the device is there is seen when an engine
        is opened.
        """
        del device

    def kind_of(self, source: Path) -> ModelKind:
        """Tell what a model of this backend can be asked for; cheap, and never raises."""
        del source
        return "generate"

    def recognizes(self, source: Path) -> bool:
        """Tell whether a file or folder is plainly a model of this backend; cheap, never raises.

        Asked of `--model FOLDER`, which names no backend; the first that says so gets it.
        """
        del source
        return False

    def can_serve(self, source: Path) -> bool:
        """Tell whether the file or folder is a complete model as it is; cheap, never raises.

        What cannot be served has to be converted first.
        """
        return source.exists()

    def facts(self, source: Path) -> ModelFacts:
        """Read what the model's files say about it; cheap, and never raises."""
        del source
        return ModelFacts()

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
