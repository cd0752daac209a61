"""Loading and unloading over HTTP and from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import httpx
import pytest

from tests.conftest import ScriptedServer

SCRIPT: dict[str, Any] = {"load_delay_ms": 300, "default": {"echo": True}}
CLI = [sys.executable, "-m", "pegboard_kernel.cli"]


def status(url: str) -> str:
    found = [model["status"] for model in httpx.get(f"{url}/v1/models").json()["data"]]
    return str(found[0])


def wait_for(url: str, wanted: str) -> None:
    end = time.monotonic() + 30
    while status(url) != wanted:
        assert time.monotonic() < end, f"the model does not become {wanted}"


def model_id(url: str) -> str:
    return str(httpx.get(f"{url}/v1/models").json()["data"][0]["id"])


def test_unload_and_load_again(scripted_server: ScriptedServer) -> None:
    url = scripted_server(SCRIPT)
    model = model_id(url)
    body = {"model": model}
    unloaded = httpx.post(f"{url}/v1/models/unload", json=body).json()
    assert (unloaded["status"], unloaded["model"]["status"]) == ("unloaded", "ready_to_load")
    chat = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    refused = httpx.post(f"{url}/v1/chat/completions", json=chat)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "model_not_loaded")
    assert "/v1/models/load" in refused.json()["error"]["message"]
    told = httpx.post(f"{url}/v1/models/load", json=body)
    assert (told.json()["status"], told.json()["model_id"]) == ("loading", model)
    assert told.json()["operation_id"].startswith("load-")
    again = httpx.post(f"{url}/v1/models/load", json=body)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "model_loading")
    wait_for(url, "loaded")
    assert httpx.post(f"{url}/v1/models/load", json=body).json()["status"] == "loaded"
    assert httpx.post(f"{url}/v1/chat/completions", json=chat).status_code == 200


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"model": "nobody"}, 404),
        ({}, 422),
        ({"model": 3}, 422),
        ({"model": "x", "gadget": "GPU"}, 422),
        ([], 422),
    ],
)
def test_what_cannot_be_loaded_is_refused(
    scripted_server: ScriptedServer, body: object, expected: int
) -> None:
    url = scripted_server(SCRIPT)
    for verb in ("load", "unload"):
        answer = httpx.post(f"{url}/v1/models/{verb}", json=body)
        assert answer.status_code == expected
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_the_command_line_waits_for_the_end(scripted_server: ScriptedServer) -> None:
    url = scripted_server(SCRIPT)
    port = url.rsplit(":", 1)[1]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*CLI, "models", *arguments, "--port", port]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run("unload", model_id(url)).stdout == f"{model_id(url)}: ready_to_load\n"
    loaded = run("load", model_id(url), "--json")
    assert json.loads(loaded.stdout)["status"] == "loaded"
    unknown = run("load", "nobody")
    assert unknown.returncode == 1
    assert "does not exist" in unknown.stderr
