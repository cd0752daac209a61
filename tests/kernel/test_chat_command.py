"""`pegboard chat` against scripted models: from a pipe, in a terminal, with a server of its own."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

CLI = [sys.executable, "-m", "pegboard_kernel.cli"]
SCRIPT = {
    "reasoning_format": "think_tags",
    "rules": [
        {"match": "think", "pieces": ["<think>", "hmm", "</think>", "So: ", "yes."]},
        {"match": "boom", "pieces": ["a", "b"], "raise_after": 1},
    ],
    "default": {"echo": True},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat folder")
    (folder / "script.json").write_text(json.dumps(SCRIPT), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def environment(folder: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PEGBOARD_")}
    kept.pop("NO_COLOR", None)
    return {**kept, "PEGBOARD_DATA_DIR": str(folder), "PEGBOARD_API_KEYS": "sk-chat"}


@pytest.fixture(scope="module")
def url(environment: dict[str, str], folder: Path) -> Generator[str]:
    command = [*CLI, "serve", "--port=0", f"--model=echo=scripted:{folder / 'script.json'}"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        found = re.search(r"http://\S+", process.stdout.readline())
        try:
            assert found
            yield found.group()
        finally:
            process.terminate()


def ask(
    environment: dict[str, str], question: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, "chat", *arguments],
        env=environment,
        input=question,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=60,
        check=False,
    )


def test_a_question_from_a_pipe(environment: dict[str, str], url: str) -> None:
    done = ask(environment, "one two  three\n", "--url", url)
    assert (done.returncode, done.stdout) == (0, "one two  three\n")
    assert ask(environment, "think", "--url", url).stdout == "So: yes.\n"


def test_bytes_from_a_pipe_need_not_be_text(environment: dict[str, str], url: str) -> None:
    done = ask(environment, "one\udcff two\n", "--url", url)
    assert (done.returncode, done.stdout) == (0, "one\ufffd two\n")


def test_a_question_answered_as_json(environment: dict[str, str], url: str) -> None:
    answer = json.loads(ask(environment, "one two", "--url", url, "--json").stdout)
    assert answer["content"] == "one two"
    assert answer["model"] == "echo"
    assert answer["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    ("question", "arguments", "told"),
    [
        ("hi", ("--url", "http://127.0.0.1:1"), "no server answers at http://127.0.0.1:1"),
        ("hi", ("--model", "absent"), "'absent' does not exist"),
        ("hi", ("--api-key", "sk-wrong"), "key"),
        ("boom", (), "pegboard chat: "),
        ("", (), "nothing was asked"),
    ],
)
def test_faults_are_told_in_a_line(
    environment: dict[str, str], url: str, question: str, arguments: tuple[str, ...], told: str
) -> None:
    done = ask(environment, question, "--url", url, *arguments)
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_it_starts_a_server_where_none_runs(environment: dict[str, str], folder: Path) -> None:
    source = f"mine=scripted:{folder / 'script.json'}"
    done = ask(environment, "a b", "--port", "1", "--model", source)
    assert (done.returncode, done.stdout) == (0, "a b\n")
    assert "starting one" in done.stderr
    broken = ask(environment, "a b", "--port", "1", "--model", "scripted:absent.json")
    assert broken.returncode == 1
    assert "Traceback" not in broken.stderr


@pytest.mark.parametrize("colours", [True, False])
def test_a_conversation_in_a_terminal(environment: dict[str, str], url: str, colours: bool) -> None:
    terminal, end = pty.openpty()
    variables = environment | ({} if colours else {"NO_COLOR": "1"}) | {"TERM": "dumb"}
    command = [*CLI, "chat", "--url", url]
    with subprocess.Popen(command, env=variables, stdin=end, stdout=end, stderr=end) as process:
        os.close(end)
        try:
            text = _until(terminal, "> ")
            for line, answer in (("think", "So: yes."), ("/reset", ""), ("a  b", "a  b")):
                os.write(terminal, f"{line}\n".encode())
                text += (shown := _until(terminal, "> "))
                assert answer in shown.replace(line, "", 1)
            os.write(terminal, b"/exit\n")
            assert process.wait(timeout=10) == 0
        finally:
            process.kill()
            os.close(terminal)
    assert "Traceback" not in text
    assert ("\x1b[2mhmm\x1b[0m" in text) is colours
    assert ("\x1b[" in text) is colours


def _until(terminal: int, prompt: str) -> str:
    text = ""
    while not text.endswith(prompt):
        text += os.read(terminal, 4096).decode()
    return text
