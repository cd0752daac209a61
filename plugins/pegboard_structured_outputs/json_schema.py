"""JSON that is valid for a schema.

Input: a JSON schema, `{"type": "object", "properties": {"n": {"type": "integer"}}}`.
Output: compact JSON with at most one blank after a colon or comma, `{"n": 3}`.
Source: https://json-schema.org/draft/2020-12, with what earlier drafts wrote differently.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from pegboard_contracts.generation import Constraint
from pegboard_contracts.grammar import GrammarBuilder, SchemaTranslator
from pegboard_contracts.grammar.keywords import keywords_of
from pegboard_contracts.structured_outputs import CompiledOutput, StructuredOutput

_MAX_PROBLEMS = 8


class JsonSchema(StructuredOutput):
    """Translate schemas into grammars; check finished texts with the jsonschema library."""

    summary: ClassVar[str] = "JSON that a schema allows"

    def compile(self, value: Any) -> CompiledOutput:  # noqa: ANN401 - client data
        """Translate the schema; what the grammar leaves open is named."""
        builder = GrammarBuilder()
        translator = SchemaTranslator(builder, value)
        grammar = builder.text(translator.expression())
        open_keywords = {path.rpartition(".")[2] for path in translator.unenforced}
        return CompiledOutput(
            constraint=Constraint(kind="ebnf", value=grammar),
            unenforced=tuple(translator.unenforced),
            enforced=tuple(sorted(keywords_of(value) - open_keywords)),
        )

    def problems(self, value: Any, text: str) -> list[str]:  # noqa: ANN401 - client data
        """Validate a finished text; every problem names its place, none the content."""
        from jsonschema import Draft202012Validator  # noqa: PLC0415 - costs a tenth of a second

        try:
            instance = json.loads(text)
        except ValueError:
            return ["the answer is not complete JSON"]
        validator: Any = Draft202012Validator(value)
        faults = sorted(validator.iter_errors(instance), key=str)
        return [
            f"{'.'.join(str(step) for step in fault.absolute_path) or 'the answer'} "
            f"breaks '{fault.validator}'"
            for fault in faults[:_MAX_PROBLEMS]
        ]


plugin = JsonSchema
