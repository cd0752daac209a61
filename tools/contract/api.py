"""A server as a stranger sees it: a URL, perhaps a key, and what comes back."""

from __future__ import annotations

import http.client
import json
import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

Status = Literal["pass", "warn", "skip", "fail"]
Json = dict[str, Any]

ERROR_KEYS = {"message", "type", "param", "code"}


class FaultError(Exception):
    """Say what the server does against the contract; never with an input or an output."""


class SkipError(Exception):
    """Say why a check cannot be made here."""


class WarnError(Exception):
    """Say what the contract leaves open and the server does not offer."""


@dataclass(frozen=True)
class Answer:
    """Hold a response that has been read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Json:
        """Return the body as an object."""
        try:
            found = json.loads(self.body)
        except ValueError:
            raise FaultError(f"the body of a {self.status} is no JSON") from None
        expect(isinstance(found, dict), "the body is no JSON object")
        return dict(found)


@dataclass(frozen=True)
class Options:
    """Hold what the caller wants checked."""

    model: str | None
    embedding_model: str | None
    device: str | None
    expect: Literal["real", "mock"] | None
    lifecycle: bool
    load_timeout: float


@dataclass
class Server:
    """Ask one server. Times are in seconds."""

    base_url: str
    key: str | None
    timeout: float
    options: Options
    model: str = ""
    notes: dict[str, float] = field(default_factory=dict[str, float])

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """Send a request; `bytes` go as they are. A header that is None is left out."""
        connection = self._connection()
        try:
            self._send(connection, method, path, body, headers or {})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        except (OSError, http.client.HTTPException) as error:
            raise FaultError(f"{method} {path} is not answered ({type(error).__name__})") from None
        finally:
            connection.close()

    def get(self, path: str) -> Json:
        """Return the object of a GET that must succeed."""
        return self._ok(self.ask("GET", path), f"GET {path}")

    def post(self, path: str, **body: object) -> Json:
        """Return the object of a POST that must succeed."""
        return self._ok(self.ask("POST", path, body), f"POST {path}")

    def refused(self, method: str, path: str, statuses: set[int], body: object = None) -> Json:
        """Return the error of a request that must fail with one of these statuses."""
        answer = self.ask(method, path, body)
        wanted = " or ".join(map(str, sorted(statuses)))
        expect(answer.status in statuses, f"{method} {path}: {answer.status}, not {wanted}")
        error = answer.json().get("error")
        expect(isinstance(error, dict), f"{method} {path}: no 'error' in the body of a refusal")
        found: Json = dict(error or {})
        expect(set(found) == ERROR_KEYS, f"{method} {path}: the error has other keys than four")
        expect(bool(found["message"]), f"{method} {path}: the error has no message")
        return found

    @contextmanager
    def stream(self, path: str, **body: object) -> Generator[Iterator[tuple[str | None, str]]]:
        """Yield the events of a stream as names and data; leaving closes the connection."""
        connection = self._connection()
        try:
            self._send(connection, "POST", path, body | {"stream": True}, {})
            response = connection.getresponse()
            expect(response.status == 200, f"POST {path}: {response.status} for a stream")
            kind = response.getheader("content-type") or ""
            expect(kind.startswith("text/event-stream"), f"POST {path}: no event stream")
            yield _events(response)
        except (OSError, http.client.HTTPException) as error:
            raise FaultError(f"the stream of {path} breaks ({type(error).__name__})") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.base_url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        return kind(parts.netloc, timeout=self.timeout)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: object,
        headers: Mapping[str, str | None],
    ) -> None:
        sent: dict[str, str | None] = {"accept": "*/*"}
        if self.key is not None:
            sent["authorization"] = f"Bearer {self.key}"
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if raw is not None:
            sent["content-type"] = "application/json"
        whole = {name: value for name, value in (sent | dict(headers)).items() if value is not None}
        prefix = urlsplit(self.base_url).path.rstrip("/")
        connection.request(method, prefix + path, raw, whole)

    def _ok(self, answer: Answer, what: str) -> Json:
        expect(answer.status == 200, f"{what}: {answer.status}, not 200")
        return answer.json()


@dataclass(frozen=True)
class Check:
    """Name a check and the profiles that make it."""

    name: str
    profiles: frozenset[str]
    run: Callable[[Server], str]


def expect(holds: bool, fault: str) -> None:
    """Raise `FaultError` unless something holds."""
    if not holds:
        raise FaultError(fault)


def keys_of(found: Mapping[str, Any], wanted: set[str], where: str) -> None:
    """Raise `FaultError` naming the keys that are not there."""
    missing = sorted(wanted - found.keys())
    expect(not missing, f"{where} has no {', '.join(missing)}")


def unknown_id() -> str:
    """Make an id that no model has."""
    return f"nobody-{secrets.token_hex(6)}"


def wait_until(condition: Callable[[], bool], seconds: float, fault: str) -> None:
    """Ask again and again; raise `FaultError` when it does not become true in time."""
    end = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < end, f"{fault} within {seconds:g} s")
        time.sleep(0.2)


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str | None, str]]:
    name: str | None = None
    for raw in response:
        line = raw.decode("utf-8").rstrip("\r\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, line.removeprefix("data: ")
            name = None
