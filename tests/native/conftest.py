"""Servers with a catalogue of scripted models, reached over the native routes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import RunningServer, start
from tests.sources.hub_server import HubServer, running_hub

Json = dict[str, Any]
NOWHERE = {"HF_ENDPOINT": "http://127.0.0.1:9"}
"""No hub: nothing listens on that port."""


@dataclass
class Wire:
    """Hold one server with its models, and ask its native routes."""

    server: RunningServer
    client: httpx.Client
    folder: Path

    def get(self, path: str, **query: Any) -> Json:
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    def post(self, path: str, **body: Any) -> Json:
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        found: Json = answer.json()
        return found

    def refused(self, path: str, status: int, code: str, **body: Any) -> Json:
        return refusal(self.client.post(path, json=body), status, code)

    def model(self, model: str) -> Json:
        """Return a model's entry of the status, whatever its id is."""
        models = self.get("/v1/models/status")["models"]["available"]
        return next(entry for entry in models if entry["id"] == model)

    def wait(self, model: str, *states: str) -> Json:
        end = time.monotonic() + 120
        while (shown := self.model(model))["status"] not in states:
            assert time.monotonic() < end, f"{model} does not become {states}: {shown}"
        return shown

    def unload(self, model: str) -> None:
        if self.model(model)["status"] == "loaded":
            self.post("/v1/models/unload", model=model)

    def script(self, model: str, **script: Any) -> None:
        """Write a model's script anew, which counts from its next load on."""
        (self.folder / f"{model}.json").write_text(json.dumps(script))

    def catalogued(self, model: str) -> Json | None:
        """Return a model's entry in the catalogue file."""
        models = json.loads((self.folder / "models.json").read_text())["models"]
        return next((entry for entry in models if entry["id"] == model), None)

    @contextmanager
    def events(
        self, after: str | None = None, last: str | None = None
    ) -> Generator[Iterator[Json]]:
        """Follow the event stream; each event has its `event`, its `id` and its `data`."""
        query = {} if after is None else {"after": after}
        headers = {} if last is None else {"last-event-id": last}
        path = "/v1/system/events"
        with self.client.stream("GET", path, params=query, headers=headers, timeout=60) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield frames(answer.iter_lines())


def frames(lines: Iterator[str]) -> Iterator[Json]:
    """Read server-sent events; comments are left out."""
    fields: Json = {}
    for line in lines:
        if not line and fields:
            yield fields
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = json.loads(value) if name == "data" else value


def refusal(answer: httpx.Response, status: int, code: str) -> Json:
    """Expect an error in the envelope that names no folder of this machine."""
    assert answer.status_code == status, answer.text
    error: Json = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code, error
    for folder in (str(Path.home()), "/tmp", str(Path.cwd())):  # noqa: S108 - it must not appear
        assert folder not in answer.text
    return error


MakeWire = Callable[..., Wire]


@pytest.fixture(scope="module")
def make_wire(tmp_path_factory: pytest.TempPathFactory) -> Generator[MakeWire]:
    """Start servers that live as long as their module.

    `make_wire(models, *arguments, entries=None, env=None)`: `models` maps ids to scripts,
    `entries` adds fields to the catalogue's entries, and entries of other models.
    """
    with ExitStack() as stack:

        def make(
            models: Mapping[str, Json],
            *arguments: str,
            entries: Mapping[str, Json] | None = None,
            env: Mapping[str, str] | None = None,
            headers: Mapping[str, str] | None = None,
        ) -> Wire:
            folder = tmp_path_factory.mktemp("wire")
            fields = {model: dict(more) for model, more in (entries or {}).items()}
            for model, script in models.items():
                file = folder / f"{model}.json"
                file.write_text(json.dumps(script))
                known = {"backend": "scripted", "source_model": f"scripted:{file}"}
                fields[model] = known | fields.get(model, {})
            catalogue = folder / "models.json"
            listed = [{"id": model} | entry for model, entry in fields.items()]
            catalogue.write_text(json.dumps({"schema_version": 1, "models": listed}))
            home = {"HF_HOME": str(folder / "home"), "PEGBOARD_PLUGINS__HUB__KEYRING": "false"}
            flags = ("--catalog", str(catalogue), *arguments)
            server = start(folder, *flags, env=NOWHERE | home | dict(env or {}))
            stack.callback(server.stop)
            client = httpx.Client(base_url=server.url, timeout=60, headers=headers)
            stack.callback(client.close)
            return Wire(server, client, folder)

        yield make


@pytest.fixture
def hub() -> Generator[HubServer]:
    with running_hub() as server:
        yield server
