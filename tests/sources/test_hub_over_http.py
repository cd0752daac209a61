"""The hub as a client of the server meets it: the account, access, search, and no network."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import RunningServer, StartServer
from tests.sources.hub_server import STRANGER, TOKEN, HubModel, HubServer, running_hub, wait_until

KEYRING = '''
import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend

FILE = Path(os.environ["FILE_KEYRING"])


class FileKeyring(KeyringBackend):
    """Be a keyring that a test can look into."""

    priority = 1

    def _entries(self):
        return json.loads(FILE.read_text()) if FILE.exists() else {}

    def get_password(self, service, username):
        return self._entries().get(service + "/" + username)

    def set_password(self, service, username, password):
        FILE.write_text(json.dumps(self._entries() | {service + "/" + username: password}))

    def delete_password(self, service, username):
        kept = self._entries()
        del kept[service + "/" + username]
        FILE.write_text(json.dumps(kept))
'''


@pytest.fixture
def hub() -> Generator[HubServer]:
    with running_hub() as server:
        server.models["owner/open"] = HubModel({"config.json": b"{}", "model.safetensors": b"1"})
        server.models["owner/gated"] = HubModel(
            {"config.json": b"{}", "model.safetensors": b"1"}, gated=True
        )
        yield server


@pytest.fixture
def env(hub: HubServer, tmp_path: Path) -> dict[str, str]:
    return {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_TOKEN": "",
        "HUGGING_FACE_HUB_TOKEN": "",
        "PEGBOARD_PLUGINS__HUB__KEYRING": "false",
    }


def ask(server: RunningServer, method: str, path: str, **more: Any) -> httpx.Response:
    return httpx.request(method, server.url + path, timeout=120, **more)


def test_a_token_lives_in_the_keyring_that_keyring_is_configured_for(
    start_server: StartServer, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file_keyring.py").write_text(KEYRING)
    configured = tmp_path / "config" / "python_keyring"
    configured.mkdir(parents=True)
    (configured / "keyringrc.cfg").write_text(
        f"[backend]\ndefault-keyring=file_keyring.FileKeyring\nkeyring-path={tmp_path}\n"
    )
    ring = tmp_path / "ring.json"
    env |= {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "FILE_KEYRING": str(ring),
        "PEGBOARD_PLUGINS__HUB__KEYRING": "true",
        "PEGBOARD_DATA_DIR": str(tmp_path / "data"),
    }
    data = ("--data-dir", str(tmp_path / "data"))
    server = start_server(*data, "--log-level", "debug", env=env)
    shown = ask(server, "POST", "/v1/huggingface/token", json={"token": TOKEN})
    assert shown.status_code == 200, shown.text
    assert (shown.json()["source"], shown.json()["persistence"]) == ("secure_store", "keyring")
    assert list(json.loads(ring.read_text()).values()) == [TOKEN]
    stored = [path.read_text() for path in (tmp_path / "data").rglob("*.json")]
    assert stored
    server.stop()
    again = start_server(*data, "--log-level", "debug", env=env)
    body = {"source_model": "hf:owner/gated"}
    granted = ask(again, "POST", "/v1/huggingface/preflight", json=body)
    assert granted.json()["code"] == "hf_access_granted", granted.text
    removed = ask(again, "DELETE", "/v1/huggingface/token")
    assert removed.json()["removed"] is True
    assert json.loads(ring.read_text()) == {}
    again.stop()
    told = [shown.text, granted.text, removed.text, *stored, server.log(), again.log()]
    told += [*server.lines, *again.lines]
    assert not [text for text in told if TOKEN in text or TOKEN[3:] in text]


def test_without_a_network_each_route_is_a_502_within_bounds(
    hub: HubServer, start_server: StartServer, env: dict[str, str]
) -> None:
    env |= {"PEGBOARD_PLUGINS__HUB__TIMEOUT": "1", "HF_TOKEN": STRANGER}
    server = start_server(env=env)
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/v1/huggingface/token", {"json": {"token": TOKEN}}),
        ("POST", "/v1/huggingface/test", {}),
        ("POST", "/v1/huggingface/preflight", {"json": {"source_model": "owner/open"}}),
        ("GET", "/v1/models/search-hf", {"params": {"query": "x"}}),
        ("GET", "/v1/models/search-hf", {"params": {"query": "x", "task": "embeddings"}}),
    ]

    def hang_up(handler: BaseHTTPRequestHandler) -> bool:
        handler.close_connection = True
        return True

    for trouble in ("silence", "a page of the network", "a line that is cut"):
        hub.silence = 120.0 if trouble == "silence" else 0.0
        hub.api_body = b"<html>Log in first</html>" if trouble.startswith("a page") else None
        hub.takeover = hang_up if trouble == "a line that is cut" else None
        for method, path, more in calls:
            begun = time.monotonic()
            answer = ask(server, method, path, **more)
            assert answer.status_code == 502, (trouble, path, answer.text)
            assert answer.json()["error"]["code"] == "hub_unreachable"
            assert time.monotonic() - begun < 10
            assert not [token for token in (TOKEN, STRANGER) if token in answer.text]
    status = ask(server, "GET", "/v1/huggingface/status").json()
    assert (status["configured"], status["source"]) == (True, "environment")
    assert STRANGER not in server.log()


def test_a_silent_hub_holds_up_nobody_else(
    hub: HubServer, start_server: StartServer, env: dict[str, str]
) -> None:
    hub.silence = 120.0
    env["PEGBOARD_PLUGINS__HUB__TIMEOUT"] = "100"
    server = start_server(env=env)
    body = {"source_model": "owner/open"}
    with ThreadPoolExecutor(40) as pool:
        waiting = [
            pool.submit(ask, server, "POST", "/v1/huggingface/preflight", json=body)
            for _ in range(40)
        ]
        try:
            wait_until(lambda: len(hub.seen) >= 8, 60.0)
            # This one looks at the devices on a worker thread of the server.
            devices = ask(server, "GET", "/v1/devices", params={"refresh": "true"})
            assert devices.status_code == 200
            assert not [call for call in waiting if call.done()]
            assert len(hub.seen) == 8
        finally:
            hub.speak.set()
        answers = [call.result() for call in waiting]
    assert {answer.status_code for answer in answers} == {200}


def test_a_search_over_http_is_bounded_and_clean(
    hub: HubServer, start_server: StartServer, env: dict[str, str]
) -> None:
    for number in range(60):
        hub.models[f"owner/good-{number}"] = HubModel({}, downloads=number, tags=["safetensors"])
    server = start_server(env=env)
    found = ask(server, "GET", "/v1/models/search-hf", params={"query": "good", "limit": 50})
    assert found.status_code == 200
    assert [hit["id"] for hit in found.json()][:2] == ["owner/good-59", "owner/good-58"]
    assert len(found.json()) == 50
    for query in ("", " ", "x" * 201):
        refused = ask(server, "GET", "/v1/models/search-hf", params={"query": query})
        assert refused.status_code in {400, 422}
    odd = ask(server, "GET", "/v1/models/search-hf", params={"query": "good", "task": "to-video"})
    assert (odd.status_code, odd.json()["error"]["param"]) == (400, "task")
    assert "embeddings" in odd.json()["error"]["message"]
