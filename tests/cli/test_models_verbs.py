"""The verbs of `pegboard models` against a server with scripted models."""

from __future__ import annotations

import json
import re

import httpx
import pytest

from tests.cli.conftest import MakeShell, Shell, relaying

PHASES = [["downloading", 400], ["converting", 400]]
SLOW = [["downloading", 200], ["converting", 300_000]]


@pytest.fixture(scope="module")
def shell(make_shell: MakeShell) -> Shell:
    return make_shell()


def test_a_life_from_pull_to_remove(shell: Shell) -> None:
    source = shell.script("first", load_delay_ms=50, convert_phases=PHASES)
    done = shell.run("models", "pull", source)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "first: ready_to_load")
    assert "`pegboard models load first`" in done.stdout
    stages = re.findall(r"^first: ([a-z]+)", done.stderr, re.MULTILINE)
    assert list(dict.fromkeys(stages)) == ["waiting", "downloading", "converting", "finishing"]
    assert "%" in done.stderr
    assert "scripted" not in done.stderr  # stages are named, the server's words are not shown

    again = shell.run("models", "pull", source, "--id", "first", "--load")
    assert (again.returncode, again.stdout) == (0, "first: loaded\n")
    assert "converting" not in again.stderr
    shown = shell.read("show", "first")
    assert (shown["status"], shown["device"], shown["backend"]) == ("loaded", "CPU", "scripted")
    assert re.search(r"^context: +4096$", shell.models("show", "first"), re.MULTILINE)

    assert shell.models("context", "first", "2048") == "first: context 2048 tokens now\n"
    assert shell.read("context", "first")["configured_context_tokens"] == 2048
    assert "expected one" in shell.refused("models", "context", "first", "1024", "--expect", "4096")
    header, row = shell.models("context").splitlines()
    assert header.split()[:2] == ["ID", "CONTEXT"]
    assert row.split()[:2] == ["first", "2048"]

    told = shell.refused("models", "convert", "first")
    assert told.endswith("`pegboard models unload first` frees it.")
    assert shell.models("unload", "first") == "first: ready_to_load\n"
    assert shell.read("unload", "first")["status"] == "ready_to_load"
    assert shell.models("load", "first", "--context-tokens", "512") == "first: loaded\n"
    assert shell.state("first")["context_tokens"] == 512
    shell.models("unload", "first")
    assert shell.models("convert", "first", "--load") == "first: loaded\n"
    shell.models("unload", "first")

    freed = shell.models("remove", "first", "--files-only")
    assert freed.startswith("The files of 'first' are deleted; its entry stays.")
    assert "are free again" in freed
    assert shell.models("remove", "first") == "'first' is removed.\n"
    assert "does not exist" in shell.refused("models", "show", "first")
    assert "does not exist" in shell.refused("models", "remove", "first")


def test_register_keeps_what_is_said_and_fetches_nothing(shell: Shell) -> None:
    source = shell.script("kept")
    words = ("--device", "AUTO:CPU", "--context", "1024", "--description", "For tests.")
    told = shell.read("register", "kept", source, "--name", "Kept", *words)
    assert (told["id"], told["name"], told["description"]) == ("kept", "Kept", "For tests.")
    assert (told["recommended_device"], told["max_context_len"]) == ("AUTO:CPU", 1024)
    assert told["trust_remote_code"] is False
    assert "was registered like this already" in shell.models(
        "register", "kept", source, "--name", "Kept", *words
    )
    clash = shell.refused("models", "register", "kept", source, "--name", "Another")
    assert "differs in" in clash
    assert "pegboard models remove kept" in clash


def test_the_list_has_columns_and_data(shell: Shell) -> None:
    shell.models("register", "listed", shell.script("listed"))
    header, *rows = shell.models("list").splitlines()
    assert header.split() == ["ID", "STATE", "DEVICE", "CONTEXT", "FORMAT", "SIZE", "SOURCE"]
    row = next(row for row in rows if row.startswith("listed "))
    assert row.split()[-1] == "scripted:listed.json"
    assert row.index("ready_to_load") == header.index("STATE")
    found = shell.read("list", "--available")
    assert set(found) == {"models", "available"}
    one = next(model for model in found["models"] if model["id"] == "listed")
    assert one.keys() >= {"id", "status", "device", "context_tokens", "weight_format", "progress"}
    suggested = next(one for one in found["available"] if one["id"] == "smollm2-135m")
    assert suggested["license"] == "apache-2.0"
    table = shell.models("list", "--available")
    assert re.search(r"^smollm2-135m +98.0 MB +apache-2.0 +CPU", table, re.MULTILINE)


def test_a_load_that_fails_is_told(shell: Shell) -> None:
    shell.models("register", "broken", shell.script("broken", load_error="no such engine"))
    done = shell.run("models", "load", "broken")
    assert (done.returncode, done.stdout) == (1, "broken: error\n")
    assert "no such engine" in done.stderr.splitlines()[-1]
    done = shell.run("models", "load", "broken", "--json")
    assert json.loads(done.stdout)["status"] == "error"
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("word", "phases"), [("downloading", [["downloading", 300_000]]), ("converting", SLOW)]
)
def test_an_interrupt_cancels_exactly_what_is_shown(
    shell: Shell, word: str, phases: list[list[object]]
) -> None:
    source = shell.script(f"stopped-{word}", convert_phases=phases)
    code, rest = shell.interrupt(f": {word}", "models", "pull", source)
    model = f"stopped-{word}"
    assert code == 130
    assert rest.splitlines()[-1] == f"pegboard: interrupted: The convert of '{model}' is cancelled."
    shown = shell.state(model)
    assert (shown["status"], shown["progress"]["phase"]) == ("cancelled", "cancelled")
    assert shell.run("models", "remove", model).returncode == 0


def test_an_interrupt_of_a_load_cancels_it(shell: Shell) -> None:
    shell.models("register", "heavy", shell.script("heavy", load_delay_ms=300_000))
    code, rest = shell.interrupt(": loading", "models", "load", "heavy")
    assert code == 130
    assert "The load of 'heavy' is cancelled." in rest
    assert shell.state("heavy")["progress"]["phase"] == "cancelled"


def test_work_that_nobody_waits_for_is_cancelled_by_its_id(shell: Shell) -> None:
    source = shell.script("apart", convert_phases=SLOW)
    operation = shell.models("pull", source, "--no-wait").strip()
    assert re.fullmatch(r"convert-[0-9a-f]{32}", operation)
    told = shell.read("pull", source, "--no-wait")
    assert (told["model_id"], told["operation_id"]) == ("apart", operation)
    stale = shell.refused("models", "cancel", "apart", "convert-0123")
    assert "another operation of 'apart' runs by now" in stale
    assert shell.state("apart")["can_cancel"]
    assert shell.read("cancel", "apart", operation)["already_cancelled"] is False
    assert shell.state("apart")["status"] == "cancelled"
    assert "nothing runs for 'apart'" in shell.refused("models", "cancel", "apart")


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("pull", "nothing"), 1, "`pegboard models list --available` shows ids"),
        (("pull", "hf:owner/repo", "--weight-format", "int3"), 2, "invalid choice: 'int3'"),
        (("pull", "hf:owner/repo", "--ratio", "1.5"), 2, "a share is between 0 and 1"),
        (("pull", "hf:owner/repo", "--id", "../up"), 1, "no model id"),
        (("pull", "ftp:owner/repo", "--id", "x"), 1, "The source of the model is not understood"),
        (("pull", "hf:owner/repo"), 1, "The model hub cannot be used"),
        (("pull", "package:absent_module/a.gguf"), 1, "absent_module"),
        (("register", "x", "hf:owner/repo", "--backend", "y"), 1, "no backend of that name"),
        (("load", "absent"), 1, "`pegboard models list` shows the ids"),
        (("load", "absent", "--context-tokens", "0"), 2, "at least 1"),
        (("context", "absent"), 1, "does not exist"),
        (("cancel", "absent"), 1, "does not exist"),
        (("convert", "absent"), 1, "does not exist"),
        (("search", "words"), 1, "The model hub cannot be used"),
        (("search", "words", "--limit", "900"), 1, "limit"),
        (("fetch", "x"), 2, "invalid choice: 'fetch'"),
        (("pull",), 2, "SPEC"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(
    shell: Shell, arguments: tuple[str, ...], status: int, told: str
) -> None:
    assert told in shell.refused("models", *arguments, status=status)


def test_what_is_refused_leaves_no_entry(shell: Shell) -> None:
    shell.refused("models", "pull", "hf:owner/nowhere")
    assert "does not exist" in shell.refused("models", "show", "nowhere")


@pytest.mark.parametrize(
    "arguments",
    [
        ("pull", "hf:owner/repo"),
        ("convert", "x"),
        ("register", "x", "hf:owner/repo"),
        ("load", "x"),
        ("unload", "x"),
        ("remove", "x"),
        ("cancel", "x"),
        ("context",),
        ("search", "x"),
    ],
)
def test_without_a_server_the_next_step_is_named(alone: Shell, arguments: tuple[str, ...]) -> None:
    told = alone.refused("models", *arguments)
    assert "no server answers at http://127.0.0.1:1: " in told
    assert "`pegboard serve` starts one" in told


def test_without_a_server_the_catalogue_is_shown(alone: Shell) -> None:
    assert alone.models("list").startswith("No models yet.")
    entry = {"id": "kept", "source_model": "hf:owner/repo", "path": "models/kept"}
    folder = alone.folder / "data"
    (folder / "models" / "kept").mkdir(parents=True)
    (folder / "models" / "kept" / "openvino_model.bin").write_bytes(b"0" * 2_500_000)
    document = {"schema_version": 1, "models": [entry, {"id": "bad"}]}
    (folder / "models.json").write_text(json.dumps(document))
    done = alone.run("models", "list")
    assert re.search(r"^kept +not served .* 2.5 MB +hf:owner/repo$", done.stdout, re.MULTILINE)
    assert done.stderr.startswith("pegboard: Entry 1 of the catalogue is not used")
    assert "source: " in alone.run("models", "show", "kept").stdout
    assert json.loads(alone.run("models", "list", "--available", "--json").stdout)["available"]
    gone = alone.run("models", "show", "absent")
    assert gone.returncode == 1
    assert "does not exist" in gone.stderr


def test_a_server_that_wants_a_key_is_told_apart(make_shell: MakeShell) -> None:
    shell = make_shell(env={"PEGBOARD_API_KEYS": "sk-right"})
    for verb in (("list",), ("load", "x")):
        assert "--api-key" in shell.refused("models", *verb)
    assert shell.models("list", PEGBOARD_API_KEYS="sk-right").startswith("No models yet.")


def test_what_is_no_address_is_bad_usage(alone: Shell) -> None:
    told = alone.refused("models", "list", "--url", "http://127.0.0.1:many", status=2)
    assert "is no address of a server" in told


@pytest.mark.parametrize("colours", [True, False])
def test_a_terminal_shows_a_bar(shell: Shell, colours: bool) -> None:
    name = f"bar-{colours}".lower()
    source = shell.script(name, convert_phases=PHASES)
    variables = {} if colours else {"NO_COLOR": "1"}
    code, shown = shell.on_terminal("models", "pull", source, **variables)
    assert code == 0
    assert f"{name}: ready_to_load" in shown
    for stage in ("downloading", "converting"):
        assert f"{name}: {stage}" in shown
    assert "\u2501" in shown
    assert bool(re.search(r"\x1b\[[0-9;]*[39]\d[0-9;]*m", shown)) is colours


def test_a_dumb_terminal_gets_lines(shell: Shell) -> None:
    source = shell.script("dumb", convert_phases=PHASES)
    code, shown = shell.on_terminal("models", "pull", source, TERM="dumb")
    assert code == 0
    assert "\x1b" not in shown
    assert "dumb: converting" in shown


def test_a_table_in_a_terminal_holds_nothing_that_moves_it(shell: Shell) -> None:
    body = {
        "model_id": "loud",
        "source_model": shell.script("loud"),
        "backend": "scripted",
        "description": "a\u202eb\u2028red\nnext",
    }
    answer = httpx.post(f"{shell.url}/v1/models/register", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    body |= {"model_id": "louder", "description": "a\x1b[31mred"}
    answer = httpx.post(f"{shell.url}/v1/models/register", json=body, timeout=60)
    assert answer.json()["error"]["param"] == "description"
    code, shown = shell.on_terminal("models", "show", "loud")
    assert code == 0
    assert "description:        ab red next" in shown.replace("\r", "")
    code, shown = shell.on_terminal("models", "list")
    lines = shown.replace("\r", "").splitlines()
    assert code == 0
    assert "\x1b" not in shown
    assert lines[0].startswith("ID ")
    assert any(line.startswith("loud ") for line in lines)


def test_progress_comes_from_the_event_stream(shell: Shell) -> None:
    source = shell.script("streamed", convert_phases=[["downloading", 5000], ["converting", 3000]])
    with relaying(shell.url) as relay:
        done = shell.run("models", "pull", source, "--url", relay.url)
    assert done.returncode == 0
    assert done.stderr.count("%") > 10
    assert sum(path.startswith("/v1/system/events") for path in relay.paths) == 1
    # One for what is registered, one to begin with, one a state, and few that waited in vain.
    assert relay.paths.count("/v1/models/status") < 9


def test_a_cut_event_stream_is_made_up_for(shell: Shell) -> None:
    source = shell.script("cut", convert_phases=[["downloading", 2000], ["converting", 2000]])
    with relaying(shell.url, cut="/v1/system/events") as relay:
        done = shell.run("models", "pull", source, "--url", relay.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cut: ready_to_load")
    assert "cut: converting" in done.stderr
    assert relay.paths.count("/v1/models/status") > 4


def test_without_the_event_routes_the_status_is_asked(make_shell: MakeShell) -> None:
    shell = make_shell("--disable", "system")
    done = shell.run("models", "pull", shell.script("asked", convert_phases=PHASES), "--load")
    assert (done.returncode, done.stdout) == (0, "asked: loaded\n")


def test_a_server_that_ends_in_the_middle_is_told(make_shell: MakeShell) -> None:
    shell = make_shell()
    source = shell.script("lost", convert_phases=SLOW)
    with shell.begin("models", "pull", source) as process:
        assert process.stderr
        assert any("converting" in line for line in process.stderr)
        assert shell.server
        shell.server.process.kill()
        rest = process.stderr.read()
        assert process.wait(120) == 1
    assert "no server answers" in rest
    assert "Traceback" not in rest


def test_help_teaches(alone: Shell) -> None:
    for verb in ("list", "show", "search", "context", "pull", "convert", "register", "load"):
        shown = alone.models(verb, "--help")
        assert f"  pegboard models {verb}" in shown
        assert "exit codes:" in shown


def test_completion_knows_the_verbs(alone: Shell) -> None:
    done = alone.run("completion", "bash")
    assert done.returncode == 0
    for word in ("pull", "--weight-format", "--no-wait", "logout"):
        assert word in done.stdout
