"""A small client of a running server, for the commands that ask one."""

from __future__ import annotations

import http.client
import ipaddress
import json
import urllib.parse
from collections.abc import Generator
from typing import Any, cast

from pegboard_kernel.faults import StartupError
from pegboard_kernel.settings import Settings

_CONNECT_SECONDS = 15.0


class ServerError(Exception):
    """Say in one line why the server gave no answer.

    `status` is 0 when it was not reached; `code` is the error's word in the envelope.
    """

    def __init__(self, message: str, status: int = 0, code: str | None = None) -> None:
        """Keep the three."""
        super().__init__(message)
        self.status = status
        self.code = code


class ServerClient:
    """Talk to the server at a URL, one connection a call. Any thread."""

    def __init__(self, url: str, api_key: str | None) -> None:
        """Keep the address; nothing is sent yet. A path such as `/v1` is dropped.

        `is_private` tells whether nobody on the way can read what is sent. Raises
        `StartupError` for what is no address.
        """
        self.url = url
        try:
            parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
            port = parts.port
        except ValueError:
            raise StartupError(f"--url: '{url[:200]}' is no address of a server") from None
        secure = parts.scheme == "https"
        self._connection = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._address = (parts.hostname or "127.0.0.1", port or (443 if secure else 80))
        self.is_private = secure or _is_loopback(self._address[0])
        self._headers = {"content-type": "application/json", "connection": "close"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"

    def get(self, path: str, *, timeout: float = 15.0) -> dict[str, Any]:
        """Return the JSON object behind a path; raises `ServerError`."""
        return cast("dict[str, Any]", self._json("GET", path, None, timeout))

    def get_list(self, path: str, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return the JSON list behind a path; raises `ServerError`."""
        return cast("list[dict[str, Any]]", self._json("GET", path, None, timeout))

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Post `body` and return the JSON object that answers; raises `ServerError`."""
        return cast("dict[str, Any]", self._json("POST", path, json.dumps(body), None))

    def delete(self, path: str) -> dict[str, Any]:
        """Delete what is behind a path and return the JSON object that answers, as `post`."""
        return cast("dict[str, Any]", self._json("DELETE", path, None, None))

    def is_there(self) -> bool:
        """Tell whether a Pegboard server answers here, with or without our key."""
        try:
            return self.get("/health/live", timeout=1.0).get("status") == "ok"
        except ServerError as error:
            return error.status in (401, 403)

    def stream(self, path: str, body: dict[str, Any]) -> Generator[dict[str, Any]]:
        """Post `body` and yield each event's JSON; raises `ServerError`, also in mid-stream."""
        yield from self._events("POST", path, json.dumps(body), None)

    def follow(self, path: str, *, silence: float) -> Generator[dict[str, Any]]:
        """Yield the JSON of each event behind a path until the server ends it.

        Raises `ServerError` as `stream`, and when nothing comes for `silence` seconds.
        """
        yield from self._events("GET", path, None, silence)

    def _events(
        self, method: str, path: str, body: str | None, timeout: float | None
    ) -> Generator[dict[str, Any]]:
        response = self._send(method, path, body, timeout)
        try:
            for line in response:
                if not line.startswith(b"data: ") or line == b"data: [DONE]\n":
                    continue
                event = json.loads(line.removeprefix(b"data: "))
                if "error" in event:
                    raise ServerError(event["error"]["message"], 500, event["error"].get("code"))
                yield event
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"the server at {self.url} broke off: {error}") from None
        finally:
            response.close()

    def _json(self, method: str, path: str, body: str | None, timeout: float | None) -> object:
        response = self._send(method, path, body, timeout)
        try:
            return json.loads(response.read())
        except ValueError:
            message = f"what answers at {self.url} is no Pegboard server"
            raise ServerError(message, response.status) from None
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"the server at {self.url} broke off: {error}") from None

    def _send(
        self, method: str, path: str, body: str | None, timeout: float | None
    ) -> http.client.HTTPResponse:
        host, port = self._address
        connection = self._connection(host, port, timeout=_CONNECT_SECONDS)
        try:
            connection.connect()
            connection.sock.settimeout(timeout)
            connection.request(method, path, body, self._headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"no server answers at {self.url}: {error}") from None
        if response.status >= 400:
            raise _refusal(response)
        return response


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refusal(response: http.client.HTTPResponse) -> ServerError:
    try:
        error = json.loads(response.read())["error"]
        return ServerError(str(error["message"]), response.status, error.get("code"))
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        message = f"the server answered {response.status} {response.reason}"
        return ServerError(message, response.status)


def client_for(settings: Settings, url: str | None = None) -> ServerClient:
    """Make a client for `url`, or for where a server with these settings listens."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - not bound, mapped
    bracketed = f"[{host}]" if ":" in host else host
    key = settings.api_keys[0].get_secret_value() if settings.api_keys else None
    return ServerClient(url or f"http://{bracketed}:{settings.port}", key)
