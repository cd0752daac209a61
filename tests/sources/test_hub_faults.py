"""Faults on the way of a download: cuts, refusals of one file, busy hubs, full disks, rivals."""

from __future__ import annotations

import itertools
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from pegboard_contracts.converters import Report
from pegboard_contracts.errors import ApiError
from pegboard_model_sources.hub import Hub

from tests.sources.conftest import blob_files, refused
from tests.sources.hub_server import (
    LLAMA,
    MIB,
    WEIGHTS,
    HubModel,
    HubServer,
    raw_answer,
    wait_until,
)

FETCHED = ("LICENSE", "config.json", "model.safetensors", "tokenizer.json")
FETCH = """
import sys
from pegboard_contracts.errors import ApiError
from pegboard_model_sources.hub import Hub
hub = Hub()
hub.configure(Hub.Settings(keyring=False, timeout=60.0))
try:
    print(hub.fetch("owner/llama", lambda report: print(report.message, flush=True)))
except ApiError as error:
    print(error.status, error.code, error.message)
"""


def not_here(source: Hub) -> bool:
    with pytest.raises(ApiError) as caught:
        source.resolve("owner/llama")
    return caught.value.code == "model_not_downloaded"


@pytest.mark.parametrize("name", FETCHED)
@pytest.mark.usefixtures("quick", "llama")
def test_each_file_goes_on_after_a_cut(server: HubServer, source: Hub, name: str) -> None:
    half = len(LLAMA[name]) // 2
    server.cuts = {name: [half]}
    folder = source.fetch("owner/llama", lambda _: None)
    assert {file: (folder / file).read_bytes() for file in FETCHED} == {
        file: LLAMA[file] for file in FETCHED
    }
    asked = [seen.headers.get("range") for seen in server.file_requests(name)]
    assert asked[-1] == f"bytes={half}-"


@pytest.mark.parametrize("name", FETCHED)
@pytest.mark.parametrize("head", ["403 Forbidden\nX-Error-Code: GatedRepo", "404 Gone", "500 No"])
@pytest.mark.usefixtures("quick", "llama")
def test_a_model_of_which_one_file_is_refused_is_not_here(
    server: HubServer, source: Hub, name: str, head: str
) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> bool:
        return handler.path.endswith(f"/{name}") and raw_answer(handler, head)

    server.takeover = answer
    error = refused(source, "owner/llama")
    assert error.status == (502 if head.startswith("5") else 409)
    assert not_here(source)
    server.takeover = None
    assert source.fetch("owner/llama", lambda _: None).is_dir()


@pytest.mark.parametrize("as_date", [False, True])
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.usefixtures("quick", "llama")
def test_a_busy_hub_is_left_alone_as_long_as_it_asks(
    server: HubServer, source: Hub, status: int, as_date: bool
) -> None:
    server.statuses, server.retry_after = [status], "2"
    if as_date:
        server.retry_after = format_datetime(datetime.now(UTC) + timedelta(seconds=4), usegmt=True)
    source.fetch("owner/llama", lambda _: None)
    asked = [seen for seen in server.seen if "/resolve/" in seen.path]
    pauses = [after.at - before.at for before, after in itertools.pairwise(asked)]
    assert max(pauses) >= (1.5 if as_date else 2.0)


@pytest.mark.usefixtures("llama")
def test_two_processes_fetch_once_and_the_second_takes_over(
    server: HubServer, source: Hub, hub_home: Path
) -> None:
    server.cuts, server.silence = {"model.safetensors": [2 * MIB]}, 60.0
    server.api_silent = False
    command = [sys.executable, "-c", FETCH]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    second = None
    try:
        wait_until(lambda: any(p.stat().st_size >= MIB for p in blob_files(hub_home)))
        here = max(path.stat().st_size for path in blob_files(hub_home))
        second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        lines = iter(second.stdout.readline, "")
        assert any("waiting for another download" in line for line in lines)
        server.silence = 0.0
        first.kill()
        rest = list(lines)
        assert second.wait(60) == 0, rest
    finally:
        first.kill()
        first.wait()
        if second is not None:
            second.kill()
            second.communicate()
    assert (source.resolve("owner/llama") / "model.safetensors").read_bytes() == WEIGHTS
    asked = server.stored_requests("model.safetensors")
    assert len(asked) == 2
    assert int(asked[1].headers["range"].strip("bytes=-")) >= here


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files")
@pytest.mark.usefixtures("llama")
def test_a_disk_that_gets_full_is_told_and_what_came_is_kept(
    server: HubServer, source: Hub, hub_home: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED + FETCH], check=True, capture_output=True, text=True
    )
    last = done.stdout.splitlines()[-1]
    assert last.startswith("507 insufficient_disk "), done.stdout
    assert str(hub_home) not in done.stdout + done.stderr
    assert not_here(source)
    kept = max(path.stat().st_size for path in blob_files(hub_home))
    assert kept > 0
    source.fetch("owner/llama", lambda _: None)
    asked = server.stored_requests("model.safetensors")
    assert asked[-1].headers["range"] == f"bytes={kept}-"


@pytest.mark.usefixtures("server")
def test_a_whole_model_in_a_cache_that_cannot_be_written_is_used(
    llama: HubModel, source: Hub
) -> None:
    folder = source.fetch("owner/llama", lambda _: None)
    lists = folder.parents[1] / "pegboard"
    for file in lists.iterdir():
        file.unlink()
    lists.rmdir()
    lists.write_text("no folder: nothing can be written into it")
    assert source.fetch("owner/llama", lambda _: None) == folder
    llama.files["config.json"] = b'{"model_type": "llama", "new": true}'
    assert refused(source, "owner/llama").code == "hub_cache_failed"


@pytest.mark.usefixtures("server")
def test_a_user_without_a_home_has_a_cache(tmp_path: Path) -> None:
    program = (
        "from pegboard_model_sources._hub_environment import environment_token, hub_home\n"
        "assert environment_token() is None\n"
        "print(hub_home().is_absolute())"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import os\nos.environ['HF_HOME'] = '~nobody-here/x'\n{program}"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "True"


@pytest.mark.usefixtures("llama")
def test_progress_never_goes_past_its_end(
    server: HubServer, source: Hub, reports: list[Report]
) -> None:
    server.cuts, server.ranges = {"model.safetensors": [MIB, 2 * MIB]}, False
    source.fetch("owner/llama", reports.append)
    for report in reports:
        assert report.percent is None or 0 <= report.percent <= 100
        assert report.total is None or 0 <= (report.completed or 0) <= report.total
