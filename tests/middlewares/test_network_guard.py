"""Who is let in, who is not, and that nothing is read from those who are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pegboard_contracts.principal import owner_of_key
from pegboard_contracts.server import ServerInfo
from pegboard_middlewares.network_guard import NetworkGuardMiddleware, Settings, plugin
from starlette.types import ASGIApp

Wrap = Callable[..., ASGIApp]
Ask = Callable[..., Any]

LOCAL = ("host", "localhost:8000")
REMOTE = ("10.0.0.9", 5)


def bearer(key: str | bytes) -> tuple[str, bytes]:
    return ("authorization", b"Bearer " + (key if isinstance(key, bytes) else key.encode()))


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/", "/nope", "/v1/models/convert"])
@pytest.mark.parametrize("client", [REMOTE, ("0.0.0.0", 1), ("testclient", 1), None])  # noqa: S104
def test_without_keys_only_this_machine_is_answered_and_nothing_is_read(
    wrap: Wrap, ask: Ask, path: str, client: tuple[str, int] | None
) -> None:
    answer = ask(wrap(plugin), client=client, path=path, method="POST", body=[b"x"])
    assert (answer.status, answer.code) == (403, "network_access_denied")
    assert answer.body["error"]["type"] == "permission_error"
    assert answer.received == 0


@pytest.mark.parametrize("client", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_every_spelling_of_loopback_is_loopback(wrap: Wrap, ask: Ask, client: str) -> None:
    answer = ask(wrap(plugin), client=(client, 1))
    assert answer.body["owner"] == "anonymous"
    assert answer.body["loopback"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:8000", 200),
        ("app.localhost:1", 200),
        ("127.0.0.1:9000", 200),
        ("[::1]:8000", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("evil.example#localhost", 403),
        ("localhost@evil.example", 403),
        ("evil.example:80@localhost", 403),
        ("10.0.0.5", 403),
        ("localhost:port", 403),
        ("", 403),
        ("[::1", 403),
    ],
)
def test_the_host_header_is_one_of_ours(wrap: Wrap, ask: Ask, host: str, status: int) -> None:
    assert ask(wrap(plugin), headers=[("host", host)]).status == status


def test_hosts_by_bind_and_by_setting(wrap: Wrap, ask: Ask) -> None:
    wild = wrap(plugin, host="0.0.0.0", keys=["k"])  # noqa: S104 - the wildcard is the point
    assert ask(wild, headers=[("host", "10.0.0.5:8000"), bearer("k")]).status == 200
    assert ask(wild, headers=[("host", "box.lan"), bearer("k")]).status == 403
    named = wrap(plugin, host="10.0.0.5", keys=["k"], allowed_hosts=("Box.lan",))
    assert ask(named, headers=[("host", "box.LAN:8000"), bearer("k")]).status == 200
    assert ask(named, headers=[("host", "10.0.0.5"), bearer("k")]).status == 200
    assert ask(named, headers=[("host", "10.0.0.6"), bearer("k")]).status == 403
    assert ask(named, headers=[bearer("k")]).status == 403
    assert ask(named, headers=[LOCAL, ("host", "evil.example"), bearer("k")]).status == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 200),
        ([("origin", "http://localhost:8000")], 200),
        ([("origin", "http://localhost:8001")], 403),
        ([("origin", "http://127.0.0.1:8000")], 403),
        ([("origin", "http://evil.example")], 403),
        ([("origin", "null")], 403),
        ([("origin", "file://")], 403),
        ([("origin", "")], 200),
        ([("origin", "http://localhost:8000"), ("origin", "http://evil.example")], 403),
        ([("sec-fetch-site", "cross-site")], 403),
        ([("sec-fetch-site", "same-origin"), ("origin", "http://localhost:8000")], 200),
        ([("sec-fetch-site", "none")], 200),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_pages_of_other_origins_are_refused_on_every_route(
    wrap: Wrap, ask: Ask, headers: list[tuple[str, str]], status: int, method: str
) -> None:
    answer = ask(wrap(plugin), method=method, headers=[LOCAL, *headers], body=[b"{}"])
    assert answer.status == status
    if status == 403:
        assert answer.received == 0
        assert "access-control-allow-origin" not in answer.headers


def test_configured_origins_are_answered_and_named(wrap: Wrap, ask: Ask) -> None:
    app = wrap(plugin, keys=["k"], cors_origins=("https://ui.example",))
    origin = ("origin", "https://ui.example")
    answer = ask(app, headers=[LOCAL, origin, ("sec-fetch-site", "cross-site"), bearer("k")])
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "https://ui.example"
    assert "X-Request-ID" in answer.headers["access-control-expose-headers"]
    assert answer.headers["vary"] == "Origin"
    refused = ask(app, headers=[LOCAL, origin])
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (
        401,
        "https://ui.example",
    )
    other = ask(app, headers=[LOCAL, ("origin", "https://ui.example:444"), bearer("k")])
    assert other.status == 403


def test_a_preflight_needs_a_configured_origin_and_no_key(wrap: Wrap, ask: Ask) -> None:
    app = wrap(plugin, keys=["k"], cors_origins=("https://ui.example",))
    asked = [
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ]
    origin = ("origin", "https://ui.example")
    answer = ask(app, method="OPTIONS", headers=[LOCAL, origin, *asked])
    assert answer.status == 204
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
    assert "POST" in answer.headers["access-control-allow-methods"]
    evil = ask(app, method="OPTIONS", headers=[LOCAL, ("origin", "https://evil"), *asked])
    assert evil.status == 403
    assert ask(app, method="OPTIONS", headers=[LOCAL]).status == 401
    assert ask(app, method="OPTIONS", headers=[LOCAL, origin]).status == 401


def test_a_wildcard_origin_is_served_with_its_own_name(wrap: Wrap, ask: Ask) -> None:
    answer = ask(wrap(plugin, cors_origins=("*",)), headers=[LOCAL, ("origin", "https://a.b")])
    assert answer.headers["access-control-allow-origin"] == "https://a.b"
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    "header",
    [
        bearer("key-a"),
        ("authorization", b"bearer key-a"),
        ("x-api-key", b"key-a"),
        ("api-key", b"key-a"),
    ],
)
def test_c95_a_key_is_accepted_in_its_headers(
    wrap: Wrap, ask: Ask, header: tuple[str, bytes]
) -> None:
    answer = ask(wrap(plugin, keys=["key-a", "key-b"]), headers=[LOCAL, header], client=REMOTE)
    assert answer.body["owner"] == owner_of_key("key-a")
    assert not answer.body["loopback"]


@pytest.mark.parametrize(
    "header",
    [
        ("x-nothing", b""),
        bearer("key"),
        bearer("key-a "[:-2]),
        bearer("é"),
        bearer(b"\xff\xfe"),
        ("authorization", b"key-a"),
        ("authorization", b"Basic key-a"),
        ("authorization", b"Bearer "),
        ("x-api-key", b""),
    ],
)
def test_c95_without_a_valid_key_the_answer_is_401(
    wrap: Wrap, ask: Ask, header: tuple[str, bytes]
) -> None:
    answer = ask(wrap(plugin, keys=["key-a"]), headers=[LOCAL, header], body=[b"x"])
    assert (answer.status, answer.code) == (401, "invalid_api_key")
    assert answer.body["error"]["type"] == "authentication_error"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.received == 0


def test_owners_of_keys_are_told_apart_and_survive_a_restart(wrap: Wrap, ask: Ask) -> None:
    def owner(key: str) -> str:
        app = wrap(plugin, keys=["key-a", "schlüssel"])
        return str(ask(app, headers=[LOCAL, bearer(key)]).body["owner"])

    assert owner("key-a") == owner("key-a") != owner("schlüssel")
    assert "key-a" not in owner("key-a")


def test_without_configured_keys_a_dummy_key_is_no_fault(wrap: Wrap, ask: Ask) -> None:
    assert ask(wrap(plugin), headers=[LOCAL, bearer("dummy")]).body["owner"] == "anonymous"


def test_health_is_open_to_this_machine_alone(wrap: Wrap, ask: Ask) -> None:
    app = wrap(plugin, keys=["k"])
    for path in ("/health", "/health/live", "/health/ready"):
        assert ask(app, path=path).status == 200
        assert ask(app, path=path, client=REMOTE).status == 401
        assert ask(app, path=path, client=REMOTE, headers=[LOCAL, bearer("k")]).status == 200
    assert ask(app, path="/healthy").status == 401
    assert ask(app, path="/openapi.json").status == 401


def test_repeated_failures_are_throttled_and_a_good_key_ends_it(
    endpoint: ASGIApp, ask: Ask
) -> None:
    now = [0.0]
    info = ServerInfo(version="1", host="", port=1, data_dir=Path(), api_keys=("k",))
    app = NetworkGuardMiddleware(endpoint, info, Settings(), clock=lambda: now[0])

    def knock(key: str, client: tuple[str, int] = REMOTE) -> Any:
        return ask(app, headers=[LOCAL, bearer(key)], client=client)

    for _ in range(10):
        assert knock("wrong").status == 401
    eleventh = knock("wrong")
    assert (eleventh.status, eleventh.code) == (429, "too_many_failed_keys")
    assert eleventh.headers["retry-after"] == "300"
    assert eleventh.body["error"]["type"] == "rate_limit_error"
    assert knock("wrong", client=("10.0.0.10", 1)).status == 401
    now[0] = 300.0
    assert knock("wrong").status == 401
    for _ in range(10):
        knock("wrong")
    assert knock("wrong").status == 429
    assert knock("k").status == 200
    assert knock("wrong").status == 401


@pytest.mark.parametrize(
    ("peer", "forwarded", "loopback"),
    [
        ("127.0.0.1", ["10.1.1.1"], False),
        ("127.0.0.1", ["127.0.0.1, 10.1.1.1"], False),
        ("127.0.0.1", ["10.1.1.1", "127.0.0.1"], False),
        ("127.0.0.1", ["garbage"], False),
        ("127.0.0.1", ["10.1.1.1, 192.168.0.7"], False),
        ("127.0.0.1", [], True),
        ("10.9.9.9", ["127.0.0.1"], False),
    ],
)
def test_forwarded_addresses_count_from_configured_proxies_only(
    wrap: Wrap, ask: Ask, peer: str, forwarded: list[str], *, loopback: bool
) -> None:
    headers = [LOCAL, bearer("k"), *[("x-forwarded-for", value) for value in forwarded]]
    app = wrap(plugin, keys=["k"], trusted_proxies=("127.0.0.1", "192.168.0.0/24"))
    assert ask(app, headers=headers, client=(peer, 1)).body["loopback"] is loopback
    keyless = wrap(plugin, trusted_proxies=("127.0.0.1", "192.168.0.0/24"))
    assert ask(keyless, headers=headers, client=(peer, 1)).status == (200 if loopback else 403)


def test_a_spoofed_forwarded_address_is_ignored(wrap: Wrap, ask: Ask) -> None:
    spoofed = [LOCAL, ("x-forwarded-for", "127.0.0.1")]
    assert ask(wrap(plugin), headers=spoofed, client=REMOTE).status == 403
    assert ask(wrap(plugin), headers=[LOCAL, ("x-forwarded-for", "9.9.9.9")]).status == 200


def test_websockets_are_guarded_too(wrap: Wrap, ask: Ask) -> None:
    app = wrap(plugin, keys=["k"])
    assert ask(app, kind="websocket", headers=[LOCAL, bearer("k")]).messages[0]["type"] == (
        "websocket.accept"
    )
    closed = ask(app, kind="websocket")
    assert closed.messages == [{"type": "websocket.close", "code": 1008}]
    told = ask(app, kind="websocket", extensions={"websocket.http.response": {}})
    assert told.messages[0]["type"] == "websocket.http.response.start"
    assert (told.status, told.code) == (401, "invalid_api_key")
    evil = [LOCAL, bearer("k"), ("origin", "http://evil.example")]
    refused = ask(app, kind="websocket", headers=evil, extensions={"websocket.http.response": {}})
    assert refused.status == 403


def test_settings_refuse_what_is_no_network_or_origin() -> None:
    for fields in (
        {"trusted_proxies": ["300.1.1.1"]},
        {"cors_origins": ["ui.example"]},
        {"cors_origins": ["null"]},
        {"failed_key_limit": 0},
    ):
        with pytest.raises(ValueError, match="validation error"):
            Settings.model_validate(fields)
