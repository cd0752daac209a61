"""The `scripted` backend: an engine that emits what a JSON file tells it.

For tests, demos and client development; no OpenVINO, no evidence about hardware.
Source: the fixed interface "The scripted backend".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pegboard_contracts.backend import Backend, EngineDescription, EngineOrder, ModelFacts
from pegboard_contracts.encoding import Encoder, ModelKind
from pegboard_contracts.errors import ApiError
from pegboard_contracts.plugin import hookimpl

from pegboard_backends._openvino.devices import parse_device

if TYPE_CHECKING:
    from fastapi import APIRouter
    from pegboard_contracts.engine import Engine, PromptTokenizer
    from pegboard_contracts.services import Services


class ScriptedBackend(Backend):
    """Serve `scripted` models on any device expression, which is only repeated."""

    summary = "answers from a JSON file, for tests and demos"
    model_backends = ("scripted",)
    source_scheme = "scripted"

    def check_device(self, device: str) -> None:
        """Refuse what is no device expression, as a real backend does."""
        parse_device(device)

    def describe_engine(self, order: EngineOrder) -> EngineDescription:
        """Read the script, so that both children see the same one.

        Raises `ApiError` 400 naming the key at fault.
        """
        from pegboard_backends._scripted.script import (  # noqa: PLC0415 - cheap import
            parse_script,
            read_script,
        )

        text = read_script(order.source)
        options = {
            "script": text,
            "device": order.device,
            "context_tokens": order.context_tokens,
        }
        return EngineDescription(backend=self.name, options=options, kind=parse_script(text).kind)

    def kind_of(self, source: Path) -> ModelKind:
        """Read the script; one that cannot be used counts as one that generates."""
        from pegboard_backends._scripted.script import (  # noqa: PLC0415 - cheap import
            parse_script,
            read_script,
        )

        try:
            return parse_script(read_script(source)).kind
        except ApiError:
            return "generate"

    def can_serve(self, source: Path) -> bool:
        """Serve every script that can be used."""
        return self.facts(source).default_context_tokens is not None

    def facts(self, source: Path) -> ModelFacts:
        """Read the script's `context_tokens`; a scripted model takes no memory."""
        from pegboard_backends._scripted.script import (  # noqa: PLC0415 - cheap import
            parse_script,
            read_script,
        )

        try:
            tokens = parse_script(read_script(source)).context_tokens
        except ApiError:
            return ModelFacts()
        return ModelFacts(architecture_limit_tokens=tokens, default_context_tokens=tokens)

    def open_engine(self, options: dict[str, Any]) -> Engine:
        """Open the engine; raises `ApiError` when the script says `load_error`."""
        from pegboard_backends._scripted.engine import open_scripted  # noqa: PLC0415 - the child's
        from pegboard_backends._scripted.script import parse_script  # noqa: PLC0415 - the same

        return open_scripted(
            parse_script(options["script"]),
            device=options["device"],
            context_tokens=options["context_tokens"],
        )

    def open_encoder(self, options: dict[str, Any]) -> Encoder:
        """Open an embedding or rerank model; raises `ApiError` when the script says so."""
        from pegboard_backends._scripted.encoder import (  # noqa: PLC0415 - the child's
            open_scripted_encoder,
        )
        from pegboard_backends._scripted.script import parse_script  # noqa: PLC0415 - the same

        return open_scripted_encoder(
            parse_script(options["script"]),
            device=options["device"],
            context_tokens=options["context_tokens"],
        )

    def open_tokenizer(self, options: dict[str, Any]) -> PromptTokenizer:
        """Open the tokenizer that counts words."""
        from pegboard_backends._scripted.script import parse_script  # noqa: PLC0415 - the child's
        from pegboard_backends._scripted.tokenizer import (  # noqa: PLC0415 - the same
            ScriptedTokenizer,
        )

        return ScriptedTokenizer(parse_script(options["script"]))

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> Sequence[APIRouter]:
        """Provide `GET /debug/scripted/{model}`."""
        from pegboard_backends._scripted.debug_route import debug_router  # noqa: PLC0415 - fastapi

        return [debug_router(services, self.model_backends)]


plugin = ScriptedBackend
