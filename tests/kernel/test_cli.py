"""The command line as a user meets it: every call is a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.plugin_site import Site

Run = Callable[..., subprocess.CompletedProcess[str]]
CLI = [sys.executable, "-m", "pegboard_kernel.cli"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PEGBOARD_", "OV_LLM_"))}
    return {**kept, "PEGBOARD_DATA_DIR": str(tmp_path / "data folder")}


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    def run(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CLI, *arguments],
            env=environment | variables,
            cwd=tmp_path,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@contextmanager
def serving(
    environment: dict[str, str], *arguments: str
) -> Generator[tuple[subprocess.Popen[str], str]]:
    command = [*CLI, "serve", "--port", "0", *arguments]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, process.communicate()[1]
            yield process, found.group().rstrip('"}')
        finally:
            process.kill()


def get(url: str) -> tuple[int, dict[str, Any]]:
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - our own server
        return response.status, json.load(response)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom pegboard_kernel.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'fastapi', 'pydantic', 'openvino', 'uvicorn', 'stevedore', 'pluggy'}\n"
        "print(sorted(heavy & sys.modules.keys()), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    for word in ("serve", "chat", "plugins", "examples:", "exit codes:"):
        assert word in done.stdout


def test_help_is_fast() -> None:
    """Count processor time: on a busy machine the clock on the wall tells of its neighbours."""

    def once() -> float:
        before = os.times()
        subprocess.run([*CLI, "--help"], stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        user = after.children_user - before.children_user
        return user + after.children_system - before.children_system

    assert min(once() for _ in range(7)) < 0.150


@pytest.mark.parametrize("command", ["serve", "chat", "models list", "plugins list", "config show"])
def test_every_command_takes_the_common_flags(run: Run, command: str) -> None:
    done = run(*command.split(), "--help")
    assert done.returncode == 0
    for flag in ("--data-dir", "--catalog", "--config", "--json"):
        assert flag in done.stdout
    assert "exit codes" in done.stdout
    assert "examples:" in done.stdout


def test_plugins_list_and_show(run: Run) -> None:
    listed = json.loads(run("plugins", "list", "--json").stdout)["plugins"]
    names = {one["name"]: one for one in listed}
    assert names["scripted"]["state"] == "active"
    assert names["hermes"]["kind"] == "tool_formats"
    assert "hermes" in run("plugins", "list").stdout
    minimal = run("plugins", "list", "--profile", "minimal", "--json").stdout
    states = {one["name"]: one["state"] for one in json.loads(minimal)["plugins"]}
    assert states["hermes"] == "disabled"
    shown = run("plugins", "show", "scripted")
    assert "backends" in shown.stdout
    assert (
        json.loads(run("plugins", "show", "scripted", "--json").stdout)["plugin"]["name"]
        == "scripted"
    )
    unknown = run("plugins", "show", "scirpted")
    assert unknown.returncode == 2
    assert "Did you mean 'scripted'?" in unknown.stderr


def test_config_show_tells_sources_and_masks_secrets(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pegboard.toml").write_text("max_queue = 7\n", encoding="utf-8")
    arguments = (
        "config",
        "show",
        "--port",
        "9",
        "--api-key",
        "sk-very-secret",
        "--compat",
        "openai",
    )
    done = run(*arguments, "--json", OV_LLM_HOST="127.0.0.2")
    rows = {row["name"]: row for row in json.loads(done.stdout)["settings"]}
    assert rows["port"] == {"name": "port", "value": 9, "source": "flag --port"}
    assert rows["host"]["source"] == "env OV_LLM_HOST"
    assert rows["max_queue"] == {"name": "max_queue", "value": 7, "source": "file pegboard.toml"}
    assert rows["schema_error_status.openai"]["source"] == "compat openai"
    assert rows["autoload"] == {"name": "autoload", "value": False, "source": "default"}
    assert rows["api_keys"]["value"] == ["**********"]
    table = run(*arguments).stdout
    assert "sk-very-secret" not in done.stdout + table
    assert re.search(r"port +9 +flag --port", table)


def test_config_compat_lists_the_presets(run: Run) -> None:
    presets = json.loads(run("config", "compat", "--json").stdout)["presets"]
    assert {one["name"] for one in presets} >= {"openai", "inferbridge"}
    assert "schema_error_status.openai = 400" in run("config", "compat").stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--port", "many"), "port (flag --port): "),
        (("--port", "70000"), "port (flag --port): "),
        (("--prot", "1"), "pegboard serve: unrecognized arguments: --prot"),
        (("--model",), "pegboard serve: argument --model: expected one argument"),
        (("--data-dir", __file__), "data_dir (flag --data-dir): this is a file"),
        (("--profile", "maximal"), "profile: there is no 'maximal'"),
        (("--disable", "hermse"), "Did you mean 'hermes'?"),
        (("--compat", "opnai"), "there is no preset 'opnai'"),
        (("--config", "absent.toml"), "absent.toml cannot be read"),
        (("--host", "256.1.1.1", "--port", "0"), "cannot listen on"),
        (("--require", "absent", "--port", "0"), "install it, or take it out of the settings\n"),
    ],
)
def test_bad_settings_exit_2_with_a_line(run: Run, arguments: tuple[str, ...], told: str) -> None:
    done = run("serve", *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("command", [("serve",), ("config", "show"), ("plugins", "list")])
def test_a_section_of_no_plugin_is_named_by_every_command(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "odd.toml").write_text("[plugins.hermse]\na = 1\n", encoding="utf-8")
    done = run(*command, "--config", "odd.toml")
    assert done.returncode == 2
    assert (
        done.stderr
        == "pegboard: plugins.hermse: no plugin is named 'hermse'. Did you mean 'hermes'?\n"
    )


def test_completion(run: Run) -> None:
    done = run("completion", "bash")
    assert done.returncode == 0
    assert "--max-queue" in done.stdout
    assert run("completion", "csh").returncode == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_one_line_and_stops_on_a_signal(
    environment: dict[str, str], number: int
) -> None:
    with serving(environment) as (process, url):
        assert get(f"{url}/health/live")[0] == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert out == ""
    assert err.count("plugins active") == 1
    assert "Traceback" not in err


def test_serve_as_json(environment: dict[str, str]) -> None:
    with serving(environment, "--json") as (_, url):
        assert get(f"{url}/v1/plugins")[1]["data"]


def test_a_port_in_use_is_told(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("serve", "--port", str(port))
    assert done.returncode == 1
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith(f"pegboard: port {port} of 127.0.0.1 is in use")
    )


def test_a_broken_plugin_is_shown_and_the_rest_serves(
    environment: dict[str, str], site: Site
) -> None:
    site.add("broken", "raise SystemExit('no driver')\n", kind="backends")
    paths = os.pathsep.join((str(site.path), environment.get("PYTHONPATH", "")))
    with serving(environment | {"PYTHONPATH": paths}, "--mock") as (process, url):
        records = {one["name"]: one for one in get(f"{url}/v1/plugins")[1]["data"]}
        assert get(f"{url}/v1/models/mock")[1]["status"] == "loaded"
        process.terminate()
        _, err = process.communicate(timeout=20)
    assert records["broken"]["state"] == "failed"
    assert records["broken"]["reason"] == "SystemExit: no driver"
    assert "1 failed (broken: SystemExit: no driver)" in err
    shown = subprocess.run(
        [*CLI, "plugins", "show", "broken"],
        env=environment | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "no driver" in shown.stdout
    assert "Traceback" in shown.stdout


def test_a_broken_required_plugin_stops_the_start(run: Run, site: Site) -> None:
    site.add("broken", "raise SystemExit('no driver')\n", kind="backends")
    paths = os.pathsep.join((str(site.path), os.environ.get("PYTHONPATH", "")))
    done = run("serve", "--require", "broken", "--port", "0", PYTHONPATH=paths)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("pegboard: required plugin 'broken' is failed: SystemExit: no driver; ")


def test_no_key_reaches_the_log(environment: dict[str, str]) -> None:
    with serving(environment | {"OV_LLM_API_KEY": "sk-very-secret"}, "--log-level", "debug") as (
        process,
        _,
    ):
        process.terminate()
        _, err = process.communicate(timeout=20)
    assert "sk-very-secret" not in err
