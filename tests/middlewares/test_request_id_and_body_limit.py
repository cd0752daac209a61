"""The id of every answer, and the largest body that is taken."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from pegboard_contracts.errors import ApiError
from pegboard_middlewares import body_limit, request_id
from starlette.types import ASGIApp, Receive, Scope, Send

Wrap = Callable[..., ASGIApp]
Ask = Callable[..., Any]

MEBIBYTE = b"x" * 1024 * 1024


@pytest.mark.parametrize("given", ["abc", "A-1._z", "x" * 128])
def test_a_safe_id_is_kept_and_known_to_the_log(wrap: Wrap, ask: Ask, given: str) -> None:
    answer = ask(wrap(request_id.plugin), headers=[("x-request-id", given)])
    assert answer.headers["x-request-id"] == given == answer.body["request_id"]


@pytest.mark.parametrize(
    "given",
    [[], [""], ["a b"], ["a\n"], ["x" * 129], ["é"], ["a/b"], ["a", "b"]],
)
def test_any_other_id_is_replaced(wrap: Wrap, ask: Ask, given: list[str]) -> None:
    answer = ask(wrap(request_id.plugin), headers=[("x-request-id", value) for value in given])
    made = answer.headers["x-request-id"]
    assert re.fullmatch(r"req-[0-9a-f]{24}", made)
    assert answer.body["request_id"] == made
    again = ask(wrap(request_id.plugin))
    assert again.headers["x-request-id"] != made


def test_a_websocket_handshake_carries_its_id(wrap: Wrap, ask: Ask) -> None:
    accepted = ask(
        wrap(request_id.plugin), kind="websocket", headers=[("x-request-id", "ws-1")]
    ).messages[0]
    assert (accepted["type"], accepted["headers"]) == (
        "websocket.accept",
        [(b"x-request-id", b"ws-1")],
    )


@pytest.mark.parametrize("length", ["1048577", "9" * 5000, str(2**64)])
def test_a_declared_length_above_the_limit_is_refused_before_the_route(
    wrap: Wrap, ask: Ask, length: str
) -> None:
    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError((scope, receive, send))

    app = wrap(body_limit.plugin, app=never, max_request_body_mb=1)
    answer = ask(app, method="POST", headers=[("content-length", length)])
    assert (answer.status, answer.code) == (413, "request_too_large")
    assert answer.body["error"]["type"] == "invalid_request_error"
    assert answer.headers["connection"] == "close"
    assert answer.messages[-1]["more_body"] is False


@pytest.mark.parametrize("lengths", [["-1"], ["1.5"], ["x"], [""], ["1", "2"], ["٣"]])
def test_a_length_that_is_no_number_is_400(wrap: Wrap, ask: Ask, lengths: list[str]) -> None:
    app = wrap(body_limit.plugin)
    answer = ask(app, method="POST", headers=[("content-length", n) for n in lengths])
    assert answer.status == 400


@pytest.mark.parametrize("length", ["1048576", "0001048576", "0"])
def test_a_body_of_exactly_the_limit_passes(wrap: Wrap, ask: Ask, length: str) -> None:
    app = wrap(body_limit.plugin, max_request_body_mb=1)
    answer = ask(app, method="POST", headers=[("content-length", length)], body=[MEBIBYTE])
    assert answer.body["size"] == len(MEBIBYTE)


def test_chunks_are_counted(wrap: Wrap, ask: Ask) -> None:
    app = wrap(body_limit.plugin, max_request_body_mb=1)
    assert ask(app, method="POST", body=[b"", MEBIBYTE, b""]).body["size"] == len(MEBIBYTE)
    with pytest.raises(ApiError) as caught:
        ask(app, method="POST", body=[MEBIBYTE, b"y", b"never read"])
    assert (caught.value.status, caught.value.code) == (413, "request_too_large")


def test_the_limit_is_forty_mebibytes_unless_set() -> None:
    assert body_limit.Settings().max_request_body_mb == 40
