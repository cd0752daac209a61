"""The validator against a server that keeps the contract, and against one that breaks it."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conftest import ScriptedServer, StartServer

Json = dict[str, Any]
Spoil = Callable[[str, int, dict[str, str], bytes], tuple[int, dict[str, str], bytes]]

TOOL = Path(__file__).resolve().parents[2] / "tools" / "validate_api_contract.py"
SCRIPT: Json = {
    "tool_format": "hermes",
    "rules": [
        {
            "match": "weather",
            "pieces": [
                '<tool_call>{"name": "get_weather", ',
                '"arguments": {"city": "Berlin"}}</tool_call>',
            ],
        },
        {"match": "JSON object", "pieces": ['{"ok": ', "true}"]},
    ],
    "default": {"echo": True},
}


def validate(url: str, *arguments: str) -> tuple[int, dict[str, Json]]:
    """Run the tool as people do and return its exit code and rows by name."""
    # -I: nothing but the standard library and the tool's own folder can be imported.
    command = [sys.executable, "-I", str(TOOL), "--base-url", url, "--json", "--startup", "5"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, {row["name"]: row for row in json.loads(done.stdout)["checks"]}


def statuses(rows: dict[str, Json], status: str) -> set[str]:
    return {name for name, row in rows.items() if row["status"] == status}


@pytest.mark.parametrize("profile", ["core", "openwebui", "n8n", "full"])
def test_a_server_that_keeps_the_contract_passes(
    scripted_server: ScriptedServer, profile: str
) -> None:
    code, rows = validate(scripted_server(SCRIPT), "--profile", profile, "--expect-mock")
    assert code == 0, rows
    assert statuses(rows, "skip") == {"keys", "embeddings", "unload and load again"}
    assert not statuses(rows, "warn")
    assert ("chat" in rows) is (profile in {"openwebui", "full"})
    assert ("responses" in rows) is (profile in {"n8n", "full"})


def test_every_check_can_be_made(start_server: StartServer, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.json"
    vectors.write_text(json.dumps({"embedding": {"dimensions": 8}}))
    flags = ("--api-key", "sesame", "--model", f"vectors=scripted:{vectors}")
    url = start_server(*flags, script=SCRIPT).url
    optional = ("--embedding-model", "vectors", "--exercise-lifecycle", "--device", "CPU")
    code, rows = validate(url + "/v1", "--profile", "full", "--api-key", "sesame", *optional)
    assert code == 0, rows
    assert statuses(rows, "pass") == set(rows)
    # Without the key everything but the probes fails, and nothing is told.
    code, rows = validate(url)
    assert code == 1
    assert "models" in statuses(rows, "fail")


def test_what_is_found_is_told_without_texts_and_keys(scripted_server: ScriptedServer) -> None:
    command = [sys.executable, str(TOOL), "--base-url", scripted_server(SCRIPT)]
    done = subprocess.run(
        [*command, "--profile", "full", "--api-key", "sesame"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, "a server without keys takes any key, which --api-key finds"
    assert "fail  keys" in done.stdout
    assert "pass  chat " in done.stdout
    for word in ("sesame", "the sea", "Berlin"):
        assert word not in done.stdout + done.stderr


def test_no_server_and_bad_usage_are_2() -> None:
    for arguments in (
        ("--base-url", "http://127.0.0.1:9", "--startup", "0.1"),
        ("--base-url", "nonsense"),
        ("--profile", "everything"),
    ):
        command = [sys.executable, str(TOOL), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr
        assert not done.stdout


def of(path: str, change: Callable[[Json], object]) -> Spoil:
    """Change the JSON of one path's answers that succeed."""

    def spoil(
        asked: str, status: int, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        is_json = headers["content-type"].startswith("application/json")
        if urlsplit(asked).path == path and status == 200 and is_json:
            found = json.loads(body)
            change(found)
            body = json.dumps(found).encode()
        return status, headers, body

    return spoil


def text_of(path: str, old: str, new: str) -> Spoil:
    """Replace a text in one path's answers."""

    def spoil(
        asked: str, status: int, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if urlsplit(asked).path == path:
            body = body.replace(old.encode(), new.encode())
        return status, headers, body

    return spoil


def status_of(path: str, old: int, new: int) -> Spoil:
    """Answer one path with another status."""

    def spoil(
        asked: str, status: int, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        return (new if urlsplit(asked).path == path and status == old else status), headers, body

    return spoil


def without_ids(
    asked: str, status: int, headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    del asked
    return status, {n: v for n, v in headers.items() if n != "x-request-id"}, body


@contextlib.contextmanager
def spoiled(url: str, spoil: Spoil) -> Generator[str]:
    """Serve what `url` serves, with one fault."""
    target = urlsplit(url).netloc

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's own
            pass

        def _forward(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            sent = self.rfile.read(length) or None
            connection = http.client.HTTPConnection(target, timeout=60)
            headers = {n: v for n, v in self.headers.items() if n.lower() != "host"}
            connection.request(self.command, self.path, sent, headers)
            response = connection.getresponse()
            kept = {
                name.lower(): value
                for name, value in response.getheaders()
                if name.lower() not in {"transfer-encoding", "content-length", "connection"}
            }
            status, kept, body = spoil(self.path, response.status, kept, response.read())
            connection.close()
            self.send_response(status)
            for name, value in kept.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            with contextlib.suppress(OSError):  # the tool may have left
                self.end_headers()
                self.wfile.write(body)

        do_GET = do_POST = do_DELETE = _forward  # noqa: N815 - the base's names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign] # a client that left
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


STATUS = "/v1/models/status"
CHAT = "/v1/chat/completions"
FAULTS: list[tuple[str, Spoil]] = [
    ("health and probes", of("/health/live", lambda found: found.update(status="well"))),
    ("errors and request ids", without_ids),
    ("errors and request ids", text_of(CHAT, '"param"', '"parameter"')),
    ("errors and request ids", status_of(CHAT, 404, 200)),
    ("devices", of("/v1/devices", lambda found: found.pop("suggestions"))),
    ("models", of("/v1/models", lambda found: found["data"][0].pop("status"))),
    ("status", of(STATUS, lambda found: found.update(schema_version=2))),
    ("status", text_of(STATUS, '"percent":null', '"percent":101')),
    ("status", text_of(STATUS, '"can_cancel":false', '"can_cancel":"no"')),
    ("load", status_of("/v1/models/load", 404, 400)),
    ("load", text_of("/v1/models/cancel", "no_active_operation", "oh_no")),
    ("contexts", of("/v1/models/contexts", lambda found: found["data"].pop())),
    ("contexts", status_of("/v1/models/context", 409, 200)),
    (
        "account at the hub",
        of("/v1/huggingface/status", lambda found: found.update(token="hf_" + "a" * 20)),
    ),
    ("chat", of(CHAT, lambda found: found["usage"].update(total_tokens=1))),
    ("chat stream", text_of(CHAT, "data: [DONE]\n\n", "")),
    ("request metrics", text_of("/v1/system/status", '"per_model":{', '"per_model":{"x":')),
    ("responses", text_of("/v1/responses", '"object":"response"', '"object":"reply"')),
    ("responses stream", text_of("/v1/responses", '"sequence_number":3', '"sequence_number":9')),
]


@pytest.mark.parametrize(("check", "spoil"), FAULTS)
def test_each_fault_is_found(scripted_server: ScriptedServer, check: str, spoil: Spoil) -> None:
    with spoiled(scripted_server(SCRIPT), spoil) as url:
        code, rows = validate(url, "--profile", "full")
    assert code == 1
    assert check in statuses(rows, "fail"), rows
