"""A package of somebody else plugs in: built, installed, listed, served and held to the laws."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from tests.install.conftest import Sandbox, Serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = ROOT / "tests" / "external_plugin"
LINES_OF_THE_SAMPLE = 60
WEATHER: dict[str, Any] = {
    "model": "demo",
    "messages": [{"role": "user", "content": "How is the weather?"}],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": {}}}],
}


@pytest.fixture(scope="module")
def programs(sandbox: Sandbox) -> Path:
    """Build both wheels, install them into a fresh environment, return its programs."""
    wheels = sandbox.folder / "wheels"
    for project in (ROOT, SAMPLE):
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
        subprocess.run(build, cwd=project, check=True, stdin=subprocess.DEVNULL)
    sandbox.own()
    sandbox.run(["python3", "-m", "venv", "env"], sandbox.folder)
    programs = sandbox.folder / "env" / "bin"
    built = sorted(wheels.glob("*.whl"))
    assert len(built) == 2
    sandbox.run(
        [programs / "python", "-m", "pip", "install", "--quiet", *built, "pytest", "hypothesis"],
        sandbox.folder,
    )
    for name in ("answers.json", "check_at_sign.py"):
        shutil.copy(SAMPLE / name, sandbox.folder / name)
    return programs


def test_the_sample_is_small() -> None:
    modules = (SAMPLE / "pegboard_plugin_sample").glob("*.py")
    lines = [line for module in modules for line in module.read_text("utf-8").splitlines()]
    assert 20 < len(lines) < LINES_OF_THE_SAMPLE


def test_it_is_listed(sandbox: Sandbox, programs: Path) -> None:
    printed = sandbox.run([programs / "pegboard", "plugins", "list", "--json"], sandbox.folder)
    records = {record["name"]: record for record in json.loads(printed)["plugins"]}
    for name, kind in (("greeting", "routes"), ("at_sign", "tool_formats")):
        assert records[name]["kind"] == kind
        assert records[name]["state"] == "active"
        assert records[name]["distribution"] == "pegboard-plugin-sample"
        assert records[name]["version"] == "0.1.0"
    assert records["hermes"]["distribution"] == "pegboard"


def test_a_backend_without_its_libraries_says_what_to_install(
    sandbox: Sandbox, programs: Path
) -> None:
    printed = sandbox.run([programs / "pegboard", "plugins", "list", "--json"], sandbox.folder)
    records = {record["name"]: record for record in json.loads(printed)["plugins"]}
    assert records["openvino_cpu"]["state"] == "missing"
    assert "pegboard[openvino]" in records["openvino_cpu"]["remedy"]


def test_it_is_served(sandbox: Sandbox, programs: Path, serve: Serve, free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}"
    command = [str(programs / "pegboard"), "serve", "--port", str(free_port)]
    server = serve([*command, "--model", "demo=scripted:answers.json"], sandbox.folder, url)
    with httpx.Client(base_url=url, timeout=60) as client:
        assert client.get("/sample/greeting").json() == {"greeting": "Hello from outside"}
        answer = client.post("/v1/chat/completions", json=WEATHER)
        assert answer.status_code == 200, answer.text
        (choice,) = answer.json()["choices"]
        assert choice["finish_reason"] == "tool_calls"
        (call,) = choice["message"]["tool_calls"]
        assert call["function"]["name"] == "weather"
        assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
        streamed = client.post("/v1/chat/completions", json=WEATHER | {"stream": True}).text
    assert json.loads(_streamed_arguments(streamed)) == {"city": "Oslo"}
    assert server.stop() == 0


def _streamed_arguments(stream: str) -> str:
    payloads: list[dict[str, Any]] = [
        json.loads(line.removeprefix("data: "))
        for line in stream.splitlines()
        if line.startswith("data: {")
    ]
    return "".join(
        call["function"].get("arguments", "")
        for payload in payloads
        for choice in payload["choices"]
        for call in choice["delta"].get("tool_calls") or ()
    )


def test_its_format_keeps_the_laws(sandbox: Sandbox, programs: Path) -> None:
    printed = sandbox.run([programs / "python", "-m", "pytest", "check_at_sign.py"], sandbox.folder)
    assert " passed" in printed
    assert "failed" not in printed
