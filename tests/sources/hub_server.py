"""A model hub on this machine: the calls that tools of the hub make, and the faults it can have.

Large files are served by a second port after a redirect, like those of the real hub: another
origin, which must never see a token.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_" + "Secret0123456789"
STRANGER = "hf_" + "Stranger987654321"
SIGNATURE = "Signed4711ForOneAccount"

_MODEL = re.compile(r"/api/models/([^/]+/[^/]+?)(?:/(revision|tree)/([^/?]+))?")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass
class HubModel:
    """One repository; `large` are the files that redirect."""

    files: dict[str, bytes]
    large: set[str] = field(default_factory=set[str])
    gated: bool = False
    tags: list[str] = field(default_factory=list[str])
    downloads: int = 0
    pipeline_tag: str = "text-generation"
    card: dict[str, Any] = field(default_factory=dict[str, Any])
    stated_sizes: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def commit(self) -> str:
        text = "".join(f"{n}{hashlib.sha1(b).hexdigest()}" for n, b in sorted(self.files.items()))  # noqa: S324 - git's hash
        return hashlib.sha1(text.encode()).hexdigest()  # noqa: S324 - git's hash

    def described(self, name: str) -> dict[str, Any]:
        content = self.files[name]
        size = self.stated_sizes.get(name, len(content))
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324 - git's hash
        facts: dict[str, Any] = {"size": size, "blobId": blob}
        if name in self.large:
            facts["lfs"] = {
                "sha256": hashlib.sha256(content).hexdigest(),
                "size": size,
                "pointerSize": 134,
            }
        return facts

    def etag(self, name: str) -> str:
        facts = self.described(name)
        return str(facts["lfs"]["sha256"] if "lfs" in facts else facts["blobId"])


@dataclass
class Seen:
    """One request as it arrived; `port` tells the hub from its storage."""

    method: str
    path: str
    headers: dict[str, str]
    port: int
    at: float = field(default_factory=time.monotonic)


class HubServer:
    """Serve models, and whatever fault a test wants next."""

    def __init__(self) -> None:
        self.models: dict[str, HubModel] = {}
        self.accounts = {TOKEN: "somebody", STRANGER: "stranger"}
        self.approved = {TOKEN}
        self.seen: list[Seen] = []
        # Faults. Each request for a file takes the first of its `cuts` (bytes, then the line
        # drops) and of `statuses`; the others hold until they are taken back.
        self.cuts: dict[str, list[int]] = {}
        self.statuses: list[int] = []
        self.retry_after = "0"
        # Answers a request in place of everything below, when it returns true.
        self.takeover: Callable[[BaseHTTPRequestHandler], bool] | None = None
        self.api_status: int | None = None
        self.api_body: bytes | None = None
        self.silence = 0.0
        self.api_silent = True
        self.speak = threading.Event()
        self.ranges = True
        self.changed: dict[str, bytes] = {}
        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), self._handler()) for _ in range(2)]
        for server in self._servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self._servers[0].server_address[1])

    @property
    def storage_port(self) -> int:
        return int(self._servers[1].server_address[1])

    def file_requests(self, name: str) -> list[Seen]:
        return [
            s for s in self.seen if s.method == "GET" and urlsplit(s.path).path.endswith(f"/{name}")
        ]

    def stored_requests(self, name: str) -> list[Seen]:
        """Return the requests for a file's bytes, which do not come to the hub itself."""
        return [s for s in self.file_requests(name) if s.port != self.port]

    def close(self) -> None:
        self.speak.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(_Handler):
            server_of = hub

        return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: HubServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's own
        pass

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        hub = self.server_of
        port = int(self.connection.getsockname()[1])
        headers = {name.lower(): value for name, value in self.headers.items()}
        hub.seen.append(Seen(self.command, self.path, headers, port))
        path = urlsplit(self.path).path
        if hub.takeover is not None and hub.takeover(self):
            return
        if path.startswith("/api/"):
            self._api(path)
        elif match := _FILE.fullmatch(path):
            self._file(match[1], match[2], unquote(match[3]), port)
        else:
            self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})

    def _token(self) -> str | None:
        return self.headers.get("authorization", "").removeprefix("Bearer ") or None

    def _api(self, path: str) -> None:
        hub = self.server_of
        if hub.silence and hub.api_silent:
            hub.speak.wait(hub.silence)
        if hub.api_status is not None or hub.api_body is not None:
            self._answer(hub.api_status or 200, hub.api_body or b"<html>no hub</html>")
            return
        token = self._token()
        if token is not None and token not in hub.accounts:
            said = {"X-Error-Message": "Invalid credentials in Authorization header"}
            self._answer(401, b'{"error":"Invalid credentials"}', said)
        elif path == "/api/whoami-v2":
            name = hub.accounts.get(token or "")
            self._json({"name": name, "type": "user"} if name else {"error": "none"}, name is None)
        elif path == "/api/models":
            self._search()
        elif match := _MODEL.fullmatch(path):
            self._model(match[1], match[2], match[3])
        else:
            self._answer(404, b"{}")

    def _search(self) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        hits = [
            {
                "id": name,
                "downloads": model.downloads,
                "likes": 1,
                "pipeline_tag": model.pipeline_tag,
                "tags": model.tags,
            }
            for name, model in self.server_of.models.items()
            if asked["search"] in name and asked["pipeline_tag"] == model.pipeline_tag
        ]
        hits.sort(key=lambda hit: -int(str(hit["downloads"])))
        self._json(hits[: int(asked["limit"])])

    def _model(self, name: str, kind: str | None, revision: str | None) -> None:
        model = self.server_of.models.get(name)
        if model is None:
            status = 401 if self._token() is None else 404
            self._answer(status, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif revision not in {None, "main", model.commit}:
            self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif kind == "tree":
            described = {n: model.described(n) for n in model.files}
            rows = [
                {"type": "file", "path": n, "size": facts["size"], "oid": facts["blobId"]}
                | (
                    {"lfs": facts["lfs"] | {"oid": facts["lfs"]["sha256"]}}
                    if "lfs" in facts
                    else {}
                )
                for n, facts in described.items()
            ]
            self._json(rows)
        else:
            siblings = [{"rfilename": n} | model.described(n) for n in model.files]
            self._json(
                {
                    "id": name,
                    "sha": model.commit,
                    "siblings": siblings,
                    "gated": "manual" if model.gated else False,
                    "private": False,
                    "tags": model.tags,
                    "cardData": model.card,
                    "downloads": 0,
                    "likes": 0,
                }
            )

    def _file(self, name: str, revision: str, file: str, port: int) -> None:
        hub = self.server_of
        model = hub.models[name]
        if file not in model.files:
            self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        if port == hub.port and model.gated and self._token() not in hub.approved:
            status = 401 if self._token() is None else 403
            self._answer(status, b"", {"X-Error-Code": "GatedRepo"})
            return
        content = hub.changed.get(file, model.files[file])
        head = {
            "ETag": f'"{model.etag(file)}"',
            "X-Repo-Commit": revision,
            "Accept-Ranges": "bytes",
        }
        if port == hub.port and file in model.large:
            linked = {
                "Location": f"http://127.0.0.1:{hub.storage_port}{self.path}?Signature={SIGNATURE}",
                "X-Linked-Size": str(len(content)),
                "X-Linked-ETag": f'"{model.etag(file)}"',
            }
            self._answer(302, b"", head | linked)
            return
        if self.command == "GET" and hub.statuses:
            self._answer(hub.statuses.pop(0), b"", {"Retry-After": hub.retry_after})
            return
        self._content(file, content, head)

    def _content(self, file: str, content: bytes, head: dict[str, str]) -> None:
        hub = self.server_of
        status, first = 200, 0
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        if wanted and hub.ranges:
            status, first = 206, int(wanted[1])
            if first >= len(content):
                self._answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
                return
            head = head | {"Content-Range": f"bytes {first}-{len(content) - 1}/{len(content)}"}
        body = content[first:]
        cuts = hub.cuts.get(file)
        if self.command == "GET" and cuts:
            self.send_response(status)
            for field_name, value in (head | {"Content-Length": str(len(body))}).items():
                self.send_header(field_name, value)
            self.end_headers()
            self.wfile.write(body[: cuts.pop(0)])
            self.wfile.flush()
            if hub.silence:
                hub.speak.wait(hub.silence)
            self.close_connection = True
            self.connection.shutdown(2)
            return
        self._answer(status, body, head)

    def _json(self, value: object, refused: bool = False) -> None:
        self._answer(401 if refused else 200, json.dumps(value).encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(OSError):  # the other side went away
                self.wfile.write(body)


@contextmanager
def running_hub() -> Generator[HubServer]:
    """Run a hub for a test."""
    server = HubServer()
    try:
        yield server
    finally:
        server.close()


def raw_answer(handler: BaseHTTPRequestHandler, head: str, body: bytes = b"") -> bool:
    """Send an answer as it is, right or wrong; true, as a takeover is."""
    lines = head.strip().replace("\n", "\r\n")
    handler.close_connection = True
    with suppress(OSError):  # the other side went away
        handler.wfile.write(f"HTTP/1.1 {lines}\r\nConnection: close\r\n\r\n".encode() + body)
        handler.wfile.flush()
    return True


def safetensors(size: int, seed: int = 0) -> bytes:
    """Make a file of the form with one tensor of `size` bytes that no other seed gives."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    block = hashlib.sha256(str(seed).encode()).digest()
    return len(header).to_bytes(8, "little") + header + (block * (size // 32 + 1))[:size]


def wait_until(condition: Any, seconds: float = 20.0) -> None:
    """Wait for a condition; fails when it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come"
        time.sleep(0.01)


MIB = 1024 * 1024
WEIGHTS = safetensors(3 * MIB)
LLAMA = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b'{"version": "1.0"}',
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"the same weights again",
    "onnx/model.onnx": b"and again",
    "README.md": b"# A model",
    "LICENSE": b"Do what you like.",
}
