"""The application: routers, middlewares and lifespans of the active plugins, as one ASGI app."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from pegboard_contracts.server import ServerInfo
from starlette.routing import BaseRoute

from pegboard_kernel.error_handlers import ErrorEnvelope, install_error_handlers
from pegboard_kernel.faults import StartupError
from pegboard_kernel.hook_calls import Contribution
from pegboard_kernel.settings import Settings
from pegboard_kernel.startup import Wiring, wire

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from pegboard_kernel.hook_calls import Middleware

logger = logging.getLogger(__name__)

_PARAMETER = re.compile(r"\{[^}:]*")


def create_app(
    settings: Settings, *, entry_points: Iterable[EntryPoint] | None = None
) -> Application:
    """Build a server from its settings; twice in one process gives two servers.

    `entry_points` replaces the installed plugins. Raises `StartupError`, with one line for
    each fault, for bad settings and for a required plugin that is not active, and
    `SpecError` for a model that cannot be understood.
    """
    application = build_app(settings, entry_points=entry_points)
    application.refuse_if_lacking()
    application.wiring.register_models()
    return application


def build_app(
    settings: Settings, *, entry_points: Iterable[EntryPoint] | None = None
) -> Application:
    """Build a server for a look at its plugins: required ones may lack, no model is registered."""
    if settings.mock:
        script = Path(__file__).with_name("mock_model.json")
        models = (*settings.models, f"mock=scripted:{script}")
        settings = settings.model_copy(update={"models": models})
    return Application(wire(settings, entry_points))


class Application:
    """Serve one wiring as ASGI.

    `running` (or the ASGI lifespan, which is the same) must be entered before requests.
    """

    def __init__(self, wiring: Wiring) -> None:
        """Take step 10: routers, middlewares, error handlers."""
        self.wiring = wiring
        self.services = wiring.services
        self.records = wiring.records
        self._routes: dict[str, list[BaseRoute]] = {}
        self._middlewares = wiring.hooks.middlewares(wiring.services)
        routers = wiring.hooks.routers(wiring.services)
        self._lifespans = wiring.hooks.lifespans(wiring.services)
        info = wiring.services.get(ServerInfo)
        self.fastapi = FastAPI(
            title="Pegboard",
            version=info.version,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            lifespan=lambda _: self.running(),
        )
        paths = self._include(list(wiring.still_active(routers)))
        install_error_handlers(self.fastapi, info, paths)
        self._stack = self._wrap()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection; the lifespan goes past the middlewares."""
        app = self.fastapi if scope["type"] == "lifespan" else self._stack
        await app(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Take steps 11 and 12, keep the server running inside, and end it in reverse.

        Models are loaded, or have failed, when the body is entered; their processes are
        gone when it is left. Raises `StartupError` when a required plugin cannot begin.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.wiring.lifecycle.close)
            for one in self._lifespans:
                await self._enter(stack, one)
            self._forget_inactive()
            self.refuse_if_lacking()
            await self.wiring.lifecycle.start()
            logger.info("%s", self.records.summary())
            if not self.wiring.directory.models():
                logger.warning("no model is registered; add one: pegboard serve --model SPEC")
            yield

    def begin_to_stop(self) -> None:
        """End the streams that have no end of their own; running answers go on."""
        self.wiring.events.close()

    def refuse_if_lacking(self) -> None:
        """Raise `StartupError` with a line for each required plugin that is not active."""
        refusals = self.records.refusals()
        if refusals:
            raise StartupError(*refusals)

    async def _enter(
        self, stack: AsyncExitStack, one: Contribution[AbstractAsyncContextManager[None]]
    ) -> None:
        if not self.records.is_active(one.plugin):
            return
        try:
            await one.value.__aenter__()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an optional plugin's fault is its own
            self.wiring.fail(one.plugin, error)
        else:
            stack.push_async_callback(_leave, one)

    def _include(self, routers: list[Contribution[APIRouter]]) -> list[str]:
        owners: dict[tuple[str, str], str] = {}
        clashes: list[str] = []
        paths: list[str] = []
        for one in routers:
            routes = self.fastapi.router.routes
            before = len(routes)
            self.fastapi.include_router(one.value)
            mine = routes[before:]
            self._routes.setdefault(one.plugin, []).extend(mine)
            for method, path in _methods_and_paths(mine):
                paths.append(path)
                owner = owners.setdefault((method, _PARAMETER.sub("{", path)), one.plugin)
                if owner != one.plugin:
                    clashes.append(
                        f"{method} {path} is served by two plugins, '{owner}' and '{one.plugin}'; "
                        "disable one of them"
                    )
        if clashes:
            raise StartupError(*clashes)
        return sorted(set(paths))

    def _wrap(self) -> ASGIApp:
        stack: ASGIApp = ErrorEnvelope(self.fastapi)
        for one in reversed(list(self.wiring.still_active(self._middlewares))):
            stack = ErrorEnvelope(_apply(self.wiring, one, stack))
        return stack

    def _forget_inactive(self) -> None:
        plugins = {*self._routes, *(one.plugin for one in self._middlewares)}
        gone = [name for name in plugins if not self.records.is_active(name)]
        if not gone:
            return
        forgotten = [route for name in gone for route in self._routes.get(name, ())]
        routes = self.fastapi.router.routes
        routes[:] = [route for route in routes if route not in forgotten]
        self._stack = self._wrap()


async def _leave(one: Contribution[AbstractAsyncContextManager[None]]) -> None:
    try:
        await one.value.__aexit__(None, None, None)
    except Exception:
        logger.exception("plugin %s did not end well", one.plugin)


def _apply(wiring: Wiring, one: Contribution[Middleware], app: ASGIApp) -> ASGIApp:
    try:
        return one.value(app)
    except Exception as error:  # noqa: BLE001 - a middleware that cannot be built is its plugin's
        wiring.fail(one.plugin, error)
        return app


def _methods_and_paths(routes: list[BaseRoute]) -> Iterable[tuple[str, str]]:
    for context in iter_route_contexts(routes):
        for method in sorted(context.methods or {"WEBSOCKET"}):
            yield method, context.path or "/"
