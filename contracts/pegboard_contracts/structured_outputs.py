"""Structured outputs: plugins that turn what a client wants into an engine's constraint."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from pegboard_contracts.engine import ConstraintCost
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Constraint, OutputFormat
from pegboard_contracts.plugin import Plugin, hookimpl


class CompiledOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Carry a constraint, and the paths of keywords that it does not enforce.

    `enforced` names the keywords that it enforces wherever they stand.
    """

    constraint: Constraint
    unenforced: tuple[str, ...] = ()
    enforced: tuple[str, ...] = ()


class StructuredOutput(Plugin):
    """Be a plugin of kind `structured_outputs`; its name is `OutputFormat.kind`.

    `compile` is pure and may be cached by its input. Example plugin: `json_schema`.
    """

    @abstractmethod
    def compile(self, value: Any) -> CompiledOutput:  # noqa: ANN401 - client data
        """Turn the client's value into a constraint; takes milliseconds, opens nothing.

        Raises `ApiError` 400 for a value that is malformed or allows no answer.
        """

    def problems(self, value: Any, text: str) -> list[str]:  # noqa: ANN401 - client data
        """Check a finished answer against `value`, one line a problem, without the answer."""
        del value, text
        return []

    @hookimpl
    def pegboard_provide_structured_output(self) -> StructuredOutput:
        """Provide this structured output."""
        return self


def refuse_unenforced(unenforced: Sequence[str], param: str) -> None:
    """Raise the 400 that names what a strict request asks for and no grammar can promise."""
    if not unenforced:
        return
    names = ", ".join(f"'{name}'" for name in unenforced[:8])
    message = (
        f"The schema uses {names}, which cannot be enforced while the model writes. "
        'Leave it out, or send "strict": false to have the finished answer checked instead.'
    )
    raise ApiError(400, message, param=param, code="unsupported_schema")


class OutputReport(msgspec.Struct, frozen=True, kw_only=True):
    """Tell what an output format compiles to.

    `cost` is what the constraint costs a loaded model; `example` is one of the shortest
    texts that it allows, where one can be drawn.
    """

    compiled: CompiledOutput
    model: str | None = None
    cost: ConstraintCost | None = None
    example: str | None = None


class OutputInspector(Protocol):
    """Show what an output format becomes, without generating: a service.

    Runs on the server's event loop.
    """

    async def inspect(self, wanted: OutputFormat, model: str | None) -> OutputReport:
        """Compile a format, and try it on a loaded model when one is named.

        Raises `ApiError` as a request with this format would: 400 for what is malformed or
        too slow, 501 for an unknown kind.
        """
        ...
