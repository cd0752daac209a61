"""Servers for the tests of the Responses API."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from tests.responses.api import SCRIPT, Api, Serve, StartServer


@pytest.fixture
def api(scripted_server: Callable[..., str]) -> Iterator[Api]:
    api = Api(scripted_server(SCRIPT))
    with api.http:
        yield api


@pytest.fixture
def serve(start_server: StartServer) -> Generator[Serve]:
    """Start a server of the test's own with further flags."""
    made: list[Api] = []

    def begin(*flags: str, script: dict[str, Any] | None = None) -> Api:
        made.append(Api(start_server(*flags, script=script or SCRIPT).url))
        return made[-1]

    yield begin
    for api in made:
        api.http.close()
