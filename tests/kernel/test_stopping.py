"""How a server ends: running answers get their time, and no more."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.kernel.plugin_site import Site

SLOW = """
import asyncio
from pegboard_contracts.sse import EventStream, sse_data

class P(Plugin):
    @hookimpl
    def pegboard_provide_routers(self, services):
        from fastapi import APIRouter
        router = APIRouter()

        @router.get("/slow/{pieces}")
        async def slow(pieces: int):
            async def events():
                for number in range(pieces):
                    yield sse_data(b"%d" % number)
                    await asyncio.sleep(0.05)
            def told(error):
                return [sse_data(error.code.encode())]
            return Streaming(events(), on_error=told, keepalive_interval=9.0)
        return [router]

from starlette.responses import Response

class Streaming(Response):
    def __init__(self, *parts, **options):
        self.stream = EventStream(*parts, **options)
        self.background = None
    async def __call__(self, scope, receive, send):
        await self.stream(scope, receive, send)
plugin = P
"""


@pytest.mark.parametrize(("pieces", "drain", "whole"), [(20, "10", True), (2000, "1", False)])
def test_answers_end_within_the_drain_timeout(
    site: Site, tmp_path: Path, pieces: int, drain: str, whole: bool
) -> None:
    site.add("slow", SLOW)
    paths = os.pathsep.join((str(site.path), os.environ.get("PYTHONPATH", "")))
    command = [sys.executable, "-m", "pegboard_kernel.cli", "serve", "--port=0"]
    command += [f"--drain-timeout={drain}", f"--data-dir={tmp_path}"]
    with subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            port = int(process.stdout.readline().strip().rpartition(":")[2])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", f"/slow/{pieces}")
            response = connection.getresponse()
            assert response.readline() == b"data: 0\n"
            process.terminate()
            received: list[bytes] = []
            reading = threading.Thread(target=_read_all, args=(response, received))
            reading.start()
            _, log = process.communicate(timeout=15)
            reading.join(timeout=5)
            response.close()
            connection.close()
        finally:
            process.kill()
    last_words = [b"data: 19\n"] if whole else [b"data: server_stopping\n"]
    assert received[-2:] == [*last_words, b"data: [DONE]\n"]
    assert process.returncode == 0
    assert "Traceback" not in log
    assert ("was cut off" in log) is not whole


def _read_all(response: http.client.HTTPResponse, received: list[bytes]) -> None:
    try:
        received += [line for line in response if line.strip()]
    except (OSError, http.client.HTTPException) as error:
        received.append(repr(error).encode())
