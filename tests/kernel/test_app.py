"""The application: one envelope for everything, lifespans in order, two servers in one process."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import httpx
import pytest
from pegboard_contracts.server import PluginDirectory, PluginState, ServerInfo
from pegboard_kernel.app import Application
from pegboard_kernel.faults import StartupError
from starlette.types import Message

from tests.kernel.plugin_site import Build, Site

ROUTES = """
from pegboard_contracts.errors import ApiError
from pegboard_contracts.http import ClientGoneError

class P(Plugin):
    @hookimpl
    def pegboard_provide_routers(self, services):
        from fastapi import APIRouter
        router = APIRouter()

        @router.get("/v1/number/{number}")
        async def number(number: int):
            return {"number": number}

        @router.post("/v1/chat/completions")
        async def completions():
            return {}

        @router.get("/v1/chat/number")
        async def typed(number: int):
            return {}

        @router.get("/v1/responses/{number}")
        async def response(number: int):
            return {}

        @router.get("/fault")
        async def fault():
            raise ApiError(503, "Too much.", code="server_overloaded", retry_after=2)

        @router.get("/bug")
        async def bug():
            raise RuntimeError("a secret detail")

        @router.get("/gone")
        async def gone():
            raise ClientGoneError
        return [router]
plugin = P
"""

MIDDLEWARE = """
from pegboard_contracts.errors import ApiError

class P(Plugin):
    after = {after}
    @hookimpl
    def pegboard_provide_middlewares(self, services):
        def middleware(app):
            async def run(scope, receive, send):
                {before}
                async def marked(message):
                    if message["type"] == "http.response.start":
                        message["headers"] = [*message["headers"], (b"x-seen-by", b"{name}")]
                    await send(message)
                await app(scope, receive, marked)
            return run
        return [middleware]
plugin = P
"""


def fetch(app: Application, method: str, path: str) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with (
            app.running(),
            httpx.AsyncClient(transport=transport, base_url="http://test") as client,
        ):
            return await client.request(method, path)

    return asyncio.run(go())


def error_of(response: httpx.Response) -> dict[str, str | None]:
    body: dict[str, dict[str, str | None]] = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]


@pytest.fixture
def routes(site: Site, build: Build) -> Build:
    site.add("routes", ROUTES)
    return build


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/chat/completions", "Did you mean /v1/chat/completions?"),
        ("/v1/chat/completions/", "Did you mean /v1/chat/completions?"),
        ("/v1/v1/chat/completions", "Did you mean /v1/chat/completions?"),
        ("/v1/chat/completion", "Did you mean /v1/chat/completions?"),
        ("/elsewhere", "GET /openapi.json"),
    ],
)
def test_unknown_urls_are_answered_with_a_hint(routes: Build, path: str, hint: str) -> None:
    response = fetch(routes(), "POST", path)
    assert response.status_code == 404
    error = error_of(response)
    assert hint in str(error["message"])
    assert (error["type"], error["code"]) == ("invalid_request_error", "unknown_url")


def test_wrong_methods_name_the_right_one(routes: Build) -> None:
    response = fetch(routes(), "GET", "/v1/chat/completions")
    assert response.status_code == 405
    assert "use POST" in str(error_of(response)["message"])
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("compat", "path", "status"),
    [
        ((), "/v1/chat/number?number=many", 422),
        ((), "/v1/responses/many", 400),
        ((), "/v1/number/many", 422),
        (("openai",), "/v1/chat/number?number=many", 400),
        (("openai",), "/v1/number/many", 422),
        (("inferbridge",), "/v1/responses/many", 422),
    ],
)
def test_schema_errors_by_route_family(
    routes: Build, compat: tuple[str, ...], path: str, status: int
) -> None:
    statuses = {"openai": {"openai": 400}, "inferbridge": {"responses": 422}}
    changes = {"schema_error_status": statuses[compat[0]]} if compat else {}
    response = fetch(routes(**changes), "GET", path)
    assert response.status_code == status
    error = error_of(response)
    assert error["param"] == "number"
    assert "many" not in response.text


def test_api_errors_and_bugs(routes: Build, caplog: pytest.LogCaptureFixture) -> None:
    response = fetch(routes(), "GET", "/fault")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "2"
    assert error_of(response)["type"] == "service_unavailable"
    with caplog.at_level(logging.ERROR):
        response = fetch(routes(), "GET", "/bug")
    assert response.status_code == 500
    assert error_of(response)["type"] == "server_error"
    assert "secret" not in response.text
    assert "a secret detail" in caplog.text


def test_a_client_that_left_is_sent_nothing(routes: Build) -> None:
    app = routes()
    sent: list[Message] = []

    async def go() -> None:
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/gone"}
        scope |= {"headers": [], "query_string": b""}

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        async with app.running():
            await app(scope, receive, send)

    asyncio.run(go())
    assert sent == []


@pytest.mark.parametrize(
    ("before", "status"),
    [
        ("pass", 404),
        ("raise ApiError(403, 'Not you.')", 403),
        ("raise RuntimeError('a secret detail')", 500),
    ],
)
def test_what_a_middleware_raises_passes_the_outer_ones(
    site: Site, build: Build, before: str, status: int
) -> None:
    site.add(
        "outer", MIDDLEWARE.format(after="()", before="pass", name="outer"), kind="middlewares"
    )
    inner = MIDDLEWARE.format(after="('outer',)", before=before, name="inner")
    site.add("inner", inner, kind="middlewares")
    response = fetch(build(), "GET", "/anything")
    assert response.status_code == status
    seen = response.headers.get_list("x-seen-by")
    assert seen == (["inner", "outer"] if status == 404 else ["outer"])
    error_of(response)


LIFESPAN = """
from contextlib import asynccontextmanager

class P(Plugin):
    after = {after}
    required = {required}

    @hookimpl
    def pegboard_provide_routers(self, services):
        from fastapi import APIRouter
        router = APIRouter()

        @router.get("/{name}")
        async def route():
            return "{name}"
        return [router]

    @hookimpl
    def pegboard_provide_lifespan(self, services):
        @asynccontextmanager
        async def run():
            print("+{name}")
            {enter}
            yield
            print("-{name}")
        return run()
plugin = P
"""


def lifespan(
    name: str, after: tuple[str, ...] = (), enter: str = "pass", *, required: bool = False
) -> str:
    return LIFESPAN.format(name=name, after=after, enter=enter, required=required)


def test_lifespans_in_order_and_back(
    site: Site, build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    site.add("first", lifespan("first", after=("second",)))
    site.add("second", lifespan("second"))
    app = build()
    assert fetch(app, "GET", "/first").status_code == 200
    assert capsys.readouterr().out.split() == ["+second", "+first", "-first", "-second"]


def test_an_optional_plugin_that_cannot_begin_is_taken_out(site: Site, build: Build) -> None:
    site.add("good", lifespan("good"))
    site.add("bad", lifespan("bad", enter="raise OSError('no disk')"))
    site.add("user", "class P(Plugin):\n    requires = ('bad',)\nplugin = P\n")
    app = build()
    assert fetch(app, "GET", "/bad").status_code == 404
    states = {one.name: one.state for one in app.services.get(PluginDirectory).plugins()}
    assert states["bad"] is PluginState.FAILED
    assert states["user"] is PluginState.BLOCKED
    assert fetch(build(disabled=("bad",)), "GET", "/good").status_code == 200


def test_a_required_plugin_that_cannot_begin_stops_the_start(
    site: Site, build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    site.add("good", lifespan("good"))
    site.add("bad", lifespan("bad", enter="raise OSError('no disk')", required=True))
    with pytest.raises(StartupError, match="no disk"):
        fetch(build(), "GET", "/good")
    assert "-good" in capsys.readouterr().out


def test_two_servers_in_one_process(site: Site, build: Build) -> None:
    site.add("good", lifespan("good"))
    site.add("other", lifespan("other"))
    one, two = build(port=1001), build(port=1002, disabled=("other",))
    assert one.services.get(ServerInfo).port == 1001
    assert two.services.get(ServerInfo).port == 1002
    assert one.wiring.plugins["good"] is not two.wiring.plugins["good"]
    assert [fetch(app, "GET", "/other").status_code for app in (one, two)] == [200, 404]


def test_services_are_frozen_and_have_one_provider(site: Site, build: Build) -> None:
    site.add(
        "second",
        """
        from pegboard_contracts.server import ServerInfo
        class P(Plugin):
            @hookimpl
            def pegboard_provide_services(self, services):
                services.add(ServerInfo, None)
        plugin = P
        """,
    )
    app = build()
    record = app.records.get("second")
    assert record is not None
    assert record.state is PluginState.FAILED
    with pytest.raises(LookupError, match="frozen"):
        app.services.add(int, 7)


def test_sections_reach_the_children_unmasked(site: Site, build: Build) -> None:
    site.add(
        "keeper",
        """
        class P(Plugin):
            class Settings(PluginSettings):
                key: SecretStr = Field(SecretStr(""), description="Key.")
                names: tuple[str, ...] = Field((), description="Names.")
        plugin = P
        """,
    )
    app = build(plugins={"keeper": {"key": "k-1", "names": ["a"]}})
    section = app.wiring.board.sections["keeper"]
    assert json.loads(json.dumps(section)) == {"key": "k-1", "names": ["a"]}


def test_unknown_sections_and_keys_are_named(site: Site, build: Build) -> None:
    site.add("keeper", "class P(Plugin):\n    pass\nplugin = P\n")
    with pytest.raises(StartupError, match=r"plugins\.keepr: .* Did you mean 'keeper'"):
        build(plugins={"keepr": {}})
    with pytest.raises(StartupError, match=r"plugins\.keeper\.strct: Extra inputs"):
        build(plugins={"keeper": {"strct": 1}})
