"""What an output format becomes, shown without generating."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegboard_contracts.generation import GenerationRequest, OutputFormat
from pegboard_contracts.grammar.examples import GrammarReader
from pegboard_contracts.structured_outputs import CompiledOutput, OutputReport

from pegboard_kernel.generation.guarantees import Guarantees, check_constraint

if TYPE_CHECKING:
    from pegboard_kernel.models.directory import Directory

_LONGEST_EXAMPLE = 4096


class PathInspector:
    """Compile and try output formats: implements `OutputInspector`. Runs on the event loop."""

    def __init__(self, directory: Directory, guarantees: Guarantees) -> None:
        """Use the models of a server, and what its generator has compiled already."""
        self._directory = directory
        self._guarantees = guarantees

    async def inspect(self, wanted: OutputFormat, model: str | None) -> OutputReport:
        """Show what a format becomes; see `OutputInspector.inspect`."""
        self._guarantees.check_early(GenerationRequest(model=model or "", output_format=wanted))
        compiled = await self._guarantees.compiled(wanted)
        report = OutputReport(compiled=compiled, example=_example(compiled))
        if model is None:
            return report
        record = self._directory.record(model)
        self._directory.check_kind(record, "generate")
        loaded = await self._directory.serving(record)
        with loaded.pair.lease():
            cost = await check_constraint(compiled.constraint, loaded.pair, wanted.param)
        return OutputReport(
            compiled=compiled, model=record.entry.id, cost=cost, example=report.example
        )


def _example(compiled: CompiledOutput) -> str | None:
    if compiled.constraint.kind != "ebnf":
        return None
    try:
        text = GrammarReader(compiled.constraint.value).shortest()
    except (ValueError, RecursionError):
        return None
    return text if len(text) <= _LONGEST_EXAMPLE else None
