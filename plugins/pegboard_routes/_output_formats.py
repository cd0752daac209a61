"""How an answer must look: OpenAI's `response_format` and the fields that vLLM's clients send."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pegboard_contracts.errors import invalid_request
from pegboard_contracts.generation import OutputFormat
from pegboard_contracts.http import JsonObject, RequestModel
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

_GUIDED = {
    "guided_json": "json_schema",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
_STRUCTURED = {
    "json_": "json_schema",
    "regex": "regex",
    "choice": "choice",
    "grammar": "grammar",
}


def _as_schema(value: object) -> object:
    """Read a schema that was sent as its JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("a schema given as text must be JSON") from None


Schema = Annotated[
    JsonObject | bool,
    BeforeValidator(_as_schema, json_schema_input_type=str | dict[str, Any] | bool),
]
Choices = Annotated[list[str], Field(min_length=1)]


class JsonSchemaFormat(RequestModel):
    """Carry the schema that an answer must satisfy; without `strict` it may be checked after."""

    name: str | None = None
    schema_: JsonObject = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(RequestModel):
    """Say how the answer must look; formats of plugins hold their input under their type."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(min_length=1)
    json_schema: JsonSchemaFormat | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("the type 'json_schema' needs 'json_schema' with a 'schema'")
        return self


class StructuredOutputs(RequestModel):
    """Say how the answer must look, in one of these ways; further keys are ignored."""

    json_: Schema | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None
    json_object: bool | None = None

    @model_validator(mode="after")
    def _one_way(self) -> StructuredOutputs:
        given = [name for name in _STRUCTURED if getattr(self, name) is not None]
        if len(given) + bool(self.json_object) != 1:
            raise ValueError("give exactly one of json, regex, choice, grammar and json_object")
        return self


class OutputFormatFields(RequestModel):
    """Be the base of bodies whose answers can be given a form."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None

    def output_format(self) -> OutputFormat | None:
        """Return the one form that the answer must have; raises `ApiError` 400 for several."""
        found = [of_response_format(self.response_format), _of_structured(self.structured_outputs)]
        found += [
            OutputFormat(kind=kind, value=value, strict=False, param=name)
            for name, kind in _GUIDED.items()
            if (value := getattr(self, name)) is not None
        ]
        wanted = [one for one in found if one is not None]
        if len(wanted) > 1:
            names = " and ".join(f"'{one.param}'" for one in wanted[:2])
            message = f"An answer has one form; leave out all but one of {names}."
            raise invalid_request(message, param=wanted[1].param)
        return wanted[0] if wanted else None


def of_response_format(wanted: ResponseFormat | None) -> OutputFormat | None:
    """Return the structured output that a `response_format` names; none for text."""
    if wanted is None or wanted.type == "text":
        return None
    if wanted.json_schema is None or wanted.type != "json_schema":
        return OutputFormat(kind=wanted.type, value=(wanted.model_extra or {}).get(wanted.type))
    schema = wanted.json_schema
    return OutputFormat(
        kind="json_schema",
        value=schema.schema_,
        strict=schema.strict is True,
        name=schema.name,
    )


def _of_structured(wanted: StructuredOutputs | None) -> OutputFormat | None:
    if wanted is None:
        return None
    for name, kind in _STRUCTURED.items():
        value = getattr(wanted, name)
        if value is not None:
            return OutputFormat(kind=kind, value=value, strict=False, param="structured_outputs")
    return OutputFormat(kind="json_object", param="structured_outputs")
