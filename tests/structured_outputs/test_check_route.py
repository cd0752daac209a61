"""`POST /v1/structured_outputs/check`, over HTTP with a scripted model."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.conftest import ScriptedServer

SCRIPT: dict[str, Any] = {"rules": [], "default": {"echo": True}}
AGES = {
    "type": "object",
    "properties": {
        "age": {"type": "integer", "minimum": 3, "maximum": 12},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    },
    "required": ["age"],
}


@pytest.fixture(scope="module")
def check(scripted_server: ScriptedServer) -> Any:
    url = scripted_server(SCRIPT)

    def post(**body: Any) -> tuple[int, dict[str, Any]]:
        response = httpx.post(f"{url}/v1/structured_outputs/check", json=body, timeout=30)
        return response.status_code, response.json()

    return post


def test_a_schema_tells_what_is_enforced_and_shows_an_answer(check: Any) -> None:
    status, told = check(kind="json_schema", value=AGES, model="scripted")
    assert status == 200
    assert told["constraint"]["kind"] == "ebnf"
    assert "root ::=" in told["constraint"]["value"]
    assert told["unenforced"] == ["properties.tags.uniqueItems"]
    assert told["strict"] is False
    assert set(told["enforced"]) == {
        "items",
        "maximum",
        "minimum",
        "properties",
        "required",
        "type",
    }
    assert 3 <= json.loads(told["example"])["age"] <= 12
    assert told["model"] == "scripted"
    assert told["compile_ms"] >= 0


def test_without_a_model_nothing_is_timed(check: Any) -> None:
    status, told = check(response_format={"type": "json_object"})
    assert (status, told["model"], told["compile_ms"]) == (200, None, None)
    assert json.loads(told["example"]) == {}
    assert told["strict"] is True


@pytest.mark.parametrize(
    ("kind", "value", "example"),
    [("choice", ["yes", "no"], "yes"), ("regex", "ab{2}c?", "abb")],
)
def test_every_kind_can_be_checked(check: Any, kind: str, value: object, example: str) -> None:
    status, told = check(kind=kind, value=value)
    assert (status, told["example"]) == (200, example)


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"kind": "nothing", "value": 1}, 501, "not_supported", "value"),
        ({"kind": "json_schema", "value": {"type": "x"}}, 400, "invalid_schema", "value"),
        ({"kind": "json_schema", "value": {"$ref": "#/a"}}, 400, "invalid_schema", "value"),
        ({"kind": "regex", "value": "("}, 400, "invalid_regex", "value"),
        ({"kind": "regex", "value": "a", "model": "nobody"}, 404, "model_not_found", "model"),
        ({}, 422, "invalid_value", "kind"),
        ({"kind": "regex", "value": "a", "other": 1}, 422, None, "other"),
    ],
)
def test_what_cannot_be_checked_is_refused(
    check: Any,
    body: dict[str, Any],
    status: int,
    code: str | None,
    param: str,
) -> None:
    refused, told = check(**body)
    assert (refused, told["error"]["param"]) == (status, param)
    assert code in (None, told["error"]["code"])
