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
from pegboard_contracts.grammar.merging import is_list, is_object
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
        try:
            instance = json.loads(text)
        except ValueError:
            return ["the answer is not complete JSON"]
        validator = _validator(value)
        faults = sorted(validator.iter_errors(instance), key=str)
        return [
            f"{'.'.join(str(step) for step in fault.absolute_path) or 'the answer'} "
            f"breaks '{fault.validator}'"
            for fault in faults[:_MAX_PROBLEMS]
        ]


def _validator(value: Any) -> Any:  # noqa: ANN401 - the library's classes have no common type
    """Make the validator of the draft that a schema names, or whose keywords it uses."""
    import jsonschema  # noqa: PLC0415 - costs a tenth of a second
    from jsonschema.validators import validator_for  # noqa: PLC0415 - the same

    choose: Any = validator_for
    default: Any = jsonschema.Draft202012Validator
    if _somewhere(value, "exclusiveMinimum", bool) or _somewhere(value, "exclusiveMaximum", bool):
        default = jsonschema.Draft4Validator
    elif _somewhere(value, "items", list):
        default = jsonschema.Draft201909Validator
    return choose(value, default)(value)


def _somewhere(value: Any, keyword: str, kind: type) -> bool:  # noqa: ANN401 - client data
    if is_object(value):
        inside = isinstance(value.get(keyword), kind)
        return inside or any(_somewhere(part, keyword, kind) for part in value.values())
    return is_list(value) and any(_somewhere(part, keyword, kind) for part in value)


plugin = JsonSchema
