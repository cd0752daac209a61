"""The Codex CLI finishes a tool loop: the command it is told to run is really run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFIG = """
model = "scripted"
model_provider = "local"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.local]
name = "local"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "LOCAL_KEY"
supports_websockets = {websockets}
"""
ASK = "please run the echo command"

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


@pytest.mark.parametrize("websockets", ["false", "true"])
def test_a_tool_loop(
    websockets: str,
    tmp_path: Path,
    scripted_server: Callable[..., str],
    script: dict[str, Any],
    environment: Callable[[str], Any],
) -> None:
    codex = environment("codex")
    url = scripted_server(script, "--compat", "codex")
    home = tmp_path / "codex"
    home.mkdir()
    (home / "config.toml").write_text(CONFIG.format(url=url, websockets=websockets))
    program = codex.folder / "node_modules" / ".bin" / "codex"
    done = codex.run(
        [program, "exec", "--json", "--skip-git-repo-check", "-s", "danger-full-access", ASK],
        {"CODEX_HOME": str(home), "LOCAL_KEY": "dummy", "RUST_LOG": "debug"},
        folder=tmp_path,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    # A socket that is refused would quietly be replaced by plain requests.
    assert ('transport="responses_websocket"' in said) == (websockets == "true")
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    finished = [event["item"] for event in events if event["type"] == "item.completed"]
    (command,) = [item for item in finished if item["type"] == "command_execution"]
    assert "pegboard-was-here" in command["aggregated_output"], said
    assert command["exit_code"] == 0
    (message,) = [item for item in finished if item["type"] == "agent_message"]
    assert message["text"] == "The command printed its line."
    assert events[-1]["type"] == "turn.completed"
