from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pegboard_contracts.converters import Report
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import Phase
from pegboard_contracts.sources import ModelSource
from pegboard_contracts.testing.sources import SourceLaws
from pegboard_model_sources.hub import Hub

from tests.sources.conftest import MakeHub, blob_files, refused
from tests.sources.hub_server import (
    LLAMA,
    MIB,
    STRANGER,
    TOKEN,
    WEIGHTS,
    HubModel,
    HubServer,
    running_hub,
    safetensors,
    wait_until,
)


def their_download(repository: str, **options: Any) -> str:
    """Download as `huggingface_hub` does, which other tools use."""
    import huggingface_hub  # noqa: PLC0415 - heavy

    download: Any = getattr(huggingface_hub, "snapshot_download")  # noqa: B009 - half typed
    return str(download(repository, **options))


class TestLaws(SourceLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def source(cls, tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
        with pytest.MonkeyPatch.context() as patch, running_hub() as server:
            home = tmp_path_factory.mktemp("home")
            patch.setenv("HF_HOME", str(home))
            patch.setenv("HF_ENDPOINT", server.url)
            server.models["owner/llama"] = HubModel(dict(LLAMA))
            hub = Hub()
            hub.configure(Hub.Settings())
            hub.fetch("owner/llama", lambda _: None)
        cls.home = home
        return hub

    home: Path

    @pytest.fixture(autouse=True)
    def at_home(self, source: ModelSource, monkeypatch: pytest.MonkeyPatch) -> None:
        del source
        monkeypatch.setenv("HF_HOME", str(self.home))

    @pytest.fixture
    def good_address(self) -> str:
        return "owner/llama"

    @pytest.fixture
    def missing_address(self) -> str:
        return "owner/not-here"


def test_a_model_is_fetched_once_and_without_its_copies(
    server: HubServer, llama: HubModel, source: Hub, reports: list[Report]
) -> None:
    folder = source.fetch("owner/llama", reports.append)
    assert sorted(path.name for path in folder.iterdir()) == [
        "LICENSE",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert source.resolve("owner/llama") == folder
    assert source.resolve(f"owner/llama@{llama.commit}") == folder
    asked = len(server.file_requests("model.safetensors"))
    assert source.fetch("owner/llama", reports.append) == folder
    assert len(server.file_requests("model.safetensors")) == asked
    done = [report.completed for report in reports if report.completed is not None]
    assert {report.phase for report in reports} == {Phase.DOWNLOADING}
    assert reports[-1].percent == 100.0
    assert reports[-1].completed == reports[-1].total == done[-1]
    assert not any(str(source.resolve("owner/llama")) in report.message for report in reports)


def test_other_tools_find_what_was_fetched(llama: HubModel, source: Hub, server: HubServer) -> None:
    folder = source.fetch("owner/llama", lambda _: None)
    asked = len(server.file_requests("model.safetensors"))
    theirs = their_download(
        "owner/llama",
        cache_dir=str(folder.parents[2]),
        endpoint=server.url,
        allow_patterns=["*.json", "*.safetensors"],
        token=False,
    )
    assert Path(theirs) == folder
    assert len(server.file_requests("model.safetensors")) == asked
    del llama


def test_what_other_tools_fetched_is_found(
    server: HubServer, llama: HubModel, source: Hub, hub_home: Path
) -> None:
    their_download(
        "owner/llama",
        cache_dir=str(hub_home / "hub"),
        endpoint=server.url,
        ignore_patterns=["*.bin", "*.onnx", "*.md"],
        token=False,
    )
    folder = source.resolve("owner/llama")
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    for trees in (hub_home / "hub").rglob("trees/*.json"):
        trees.unlink()  # an older tool keeps no list of files
    assert source.resolve("owner/llama") == folder
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ApiError, match="not all of it"):
        source.resolve("owner/llama")
    del llama


@pytest.mark.parametrize("missing", ["config.json", "model-00002-of-00002.safetensors"])
def test_an_interrupted_snapshot_of_another_tool_is_no_model(
    source: Hub, hub_home: Path, missing: str
) -> None:
    folder = hub_home / "hub" / "models--owner--two" / "snapshots" / ("a" * 40)
    folder.mkdir(parents=True)
    (folder.parents[1] / "refs").mkdir()
    (folder.parents[1] / "refs" / "main").write_text("a" * 40)
    files = {
        "config.json": b"{}",
        "tokenizer.json": b"{}",
        "model-00001-of-00002.safetensors": safetensors(10),
        "model-00002-of-00002.safetensors": safetensors(10),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    assert source.resolve("owner/two") == folder
    (folder / "model-00001-of-00002.safetensors").write_bytes(safetensors(10)[:-1])
    with pytest.raises(ApiError):
        source.resolve("owner/two")
    (folder / "model-00001-of-00002.safetensors").write_bytes(safetensors(10))
    (folder / missing).unlink()
    with pytest.raises(ApiError) as caught:
        source.resolve("owner/two")
    assert (caught.value.status, caught.value.code) == (404, "model_not_downloaded")


def test_a_download_goes_on_where_the_line_was_cut(
    server: HubServer, llama: HubModel, source: Hub, reports: list[Report]
) -> None:
    del llama
    server.cuts = {"model.safetensors": [MIB + 1, 100]}
    folder = source.fetch("owner/llama", reports.append)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    stored = server.stored_requests("model.safetensors")
    assert [s.headers.get("range") for s in stored] == [
        None,
        f"bytes={MIB + 1}-",
        f"bytes={MIB + 101}-",
    ]
    assert any("cut" in report.message for report in reports)
    assert max(report.completed or 0 for report in reports) == reports[-1].total


FETCH = """
from pegboard_model_sources.hub import Hub
hub = Hub()
hub.configure(Hub.Settings())
hub.fetch("owner/llama", lambda report: None)
"""


def test_c85_a_killed_download_is_no_model_and_goes_on(
    server: HubServer, llama: HubModel, source: Hub, hub_home: Path
) -> None:
    del llama
    server.cuts, server.silence = {"model.safetensors": [2 * MIB]}, 60.0
    server.api_silent = False
    child = subprocess.Popen([sys.executable, "-c", FETCH])
    try:
        wait_until(lambda: any(p.stat().st_size >= MIB for p in blob_files(hub_home)))
    finally:
        child.kill()
        child.wait()
    here = max(path.stat().st_size for path in blob_files(hub_home))
    with pytest.raises(ApiError) as caught:
        source.resolve("owner/llama")
    assert caught.value.code == "model_not_downloaded"
    server.silence = 0.0
    server.seen.clear()
    folder = source.fetch("owner/llama", lambda _: None)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    asked = server.file_requests("model.safetensors")
    assert {seen.headers.get("range") for seen in asked} == {f"bytes={here}-"}


def test_c85_a_flipped_byte_is_fetched_again(
    server: HubServer, llama: HubModel, source: Hub
) -> None:
    del llama
    folder = source.fetch("owner/llama", lambda _: None)
    file = (folder / "model.safetensors").resolve()
    with file.open("r+b") as content:
        content.seek(MIB)
        content.write(b"\0flipped")
    server.seen.clear()
    source.fetch("owner/llama", lambda _: None)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert server.file_requests("model.safetensors")
    assert not server.file_requests("tokenizer.json")


def test_a_corrupt_file_is_removed_and_told(
    server: HubServer, llama: HubModel, source: Hub, hub_home: Path
) -> None:
    del llama
    server.changed = {"model.safetensors": WEIGHTS[:-1] + b"?"}
    error = refused(source, "owner/llama")
    assert (error.status, error.code) == (502, "download_corrupt")
    assert "model.safetensors" in error.message
    assert all(path.stat().st_size < MIB for path in blob_files(hub_home))
    with pytest.raises(ApiError):
        source.resolve("owner/llama")
    server.changed = {"LICENSE": b"Do what I like..."}
    assert refused(source, "owner/llama").code == "download_corrupt"
    server.changed = {}
    source.fetch("owner/llama", lambda _: None)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("difference", [-5, 5])
@pytest.mark.usefixtures("quick")
def test_a_wrong_size_is_removed_and_told(  # noqa: PLR0917 - fixtures
    server: HubServer,
    llama: HubModel,
    source: Hub,
    hub_home: Path,
    difference: int,
    ranges: bool,
) -> None:
    server.ranges = ranges
    llama.stated_sizes = {"model.safetensors": len(WEIGHTS) + difference}
    error = refused(source, "owner/llama")
    assert (error.status, error.code) == (502, "download_corrupt")
    assert all(path.stat().st_size < MIB for path in blob_files(hub_home))


def test_a_server_without_ranges_begins_again(
    server: HubServer, llama: HubModel, source: Hub, reports: list[Report]
) -> None:
    del llama
    server.ranges, server.cuts = False, {"model.safetensors": [MIB]}
    folder = source.fetch("owner/llama", reports.append)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert reports[-1].completed == reports[-1].total


def test_a_slow_server_is_given_up_within_bounds(
    server: HubServer, llama: HubModel, make_hub: MakeHub, quick: None
) -> None:
    del llama, quick
    server.silence = 60.0
    slow, _ = make_hub(timeout=0.3)
    error = refused(slow, "owner/llama", fetch=False)
    assert (error.status, error.code) == (502, "hub_unreachable")
    assert "0.3 seconds" in error.message
    server.api_silent = False
    server.cuts = {"model.safetensors": [10] * 3 + [0] * 9}
    error = refused(slow, "owner/llama")
    assert (error.status, error.code) == (502, "hub_unreachable")
    server.silence, server.cuts = 0.0, {}
    assert slow.fetch("owner/llama", lambda _: None).is_dir()


@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "hub_unreachable"), (503, "hub_unreachable"), (429, "hf_rate_limited")],
)
@pytest.mark.usefixtures("quick")
def test_a_busy_server_is_asked_again(
    server: HubServer, llama: HubModel, source: Hub, status: int, code: str
) -> None:
    del llama
    server.statuses = [status] * 9
    assert refused(source, "owner/llama").code == code
    server.statuses = [status] * 2
    assert source.fetch("owner/llama", lambda _: None).is_dir()


def test_redirects_are_followed_and_carry_no_token(
    server: HubServer, llama: HubModel, source: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    del llama
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    source.fetch("owner/llama", lambda _: None)
    stored = [seen for seen in server.seen if seen.port == server.storage_port]
    asked = [seen for seen in server.seen if seen.port == server.port]
    assert stored
    assert not any(TOKEN in str(seen) for seen in stored)
    assert all(seen.headers["authorization"] == f"Bearer {TOKEN}" for seen in asked)


def test_two_fetches_at_once_fetch_once(server: HubServer, llama: HubModel, source: Hub) -> None:
    del llama
    places: list[Path] = []
    threads = [
        threading.Thread(target=lambda: places.append(source.fetch("owner/llama", lambda _: None)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(places) == 2
    assert places[0] == places[1]
    assert len(server.stored_requests("model.safetensors")) == 1


@pytest.mark.parametrize(
    ("name", "token", "code"),
    [
        ("gated", None, "hf_token_missing"),
        ("gated", STRANGER, "hf_approval_required"),
        ("gated", "hf_" + "Unknown0000000", "hf_token_invalid"),
        ("missing", None, "hf_model_not_found"),
        ("missing", TOKEN, "hf_model_not_found"),
        ("llama@nothing", TOKEN, "hf_model_not_found"),
    ],
)
def test_c87_refusals_are_told_apart(  # noqa: PLR0917 - fixtures
    server: HubServer,
    llama: HubModel,
    source: Hub,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    token: str | None,
    code: str,
) -> None:
    server.models["owner/gated"] = HubModel(dict(llama.files), gated=True)
    if token:
        monkeypatch.setenv("HUGGING_FACE_HUB_TOKEN", token)
    for fetch in (False, True):
        error = refused(source, f"owner/{name}", fetch=fetch)
        assert (error.status, error.code) == (409, code)
        assert token is None or token not in error.message


def test_a_gated_model_is_fetched_with_its_token(
    server: HubServer, source: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.models["owner/gated"] = HubModel(dict(LLAMA), gated=True, card={"license": "llama3"})
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    facts = source.preflight("owner/gated")
    assert (facts.gated, facts.license, facts.servable) == (True, "llama3", False)
    assert source.fetch("owner/gated", lambda _: None).is_dir()


def test_what_is_here_stays_usable_when_the_hub_refuses_it_later(
    server: HubServer, llama: HubModel, source: Hub
) -> None:
    folder = source.fetch("owner/llama", lambda _: None)
    llama.gated = True
    assert source.fetch("owner/llama", lambda _: None) == folder
    del server.models["owner/llama"]
    assert source.preflight("owner/llama").revision == llama.commit


def test_c87_a_page_that_is_no_hub_is_told(server: HubServer, source: Hub) -> None:
    server.api_body = b"<html>Please log in to this network</html>"
    error = refused(source, "owner/llama")
    assert (error.status, error.code) == (502, "hub_unreachable")
    assert "API" in error.message


def test_facts_are_known_before_the_download(
    server: HubServer, llama: HubModel, source: Hub
) -> None:
    facts = source.preflight("owner/llama")
    wanted = ("config.json", "tokenizer.json", "model.safetensors", "LICENSE")
    assert facts.size_bytes == sum(len(LLAMA[name]) for name in wanted)
    assert (facts.revision, facts.license, facts.gated) == (llama.commit, "mit", False)
    assert not server.file_requests("model.safetensors")


def test_a_full_disk_is_told_before_the_first_byte(
    server: HubServer, llama: HubModel, source: Hub
) -> None:
    huge = 1 << 50
    llama.stated_sizes = {"model.safetensors": huge}
    for fetch in (False, True):
        error = refused(source, "owner/llama", fetch=fetch)
        assert (error.status, error.code) == (507, "insufficient_disk")
        assert len([word for word in error.message.split() if word[0].isdigit()]) == 2
    assert not server.file_requests("model.safetensors")


def test_no_network_is_told_within_bounds(
    source: Hub, hub_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del hub_home
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for fetch in (False, True):
        error = refused(source, "owner/llama", fetch=fetch)
        assert (error.status, error.code) == (502, "hub_unreachable")
    monkeypatch.setenv("HF_ENDPOINT", "no address at all")
    assert refused(source, "owner/llama").code == "hub_unreachable"


def test_offline_what_is_here_is_used_and_nobody_asked(
    server: HubServer, llama: HubModel, source: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = source.fetch("owner/llama", lambda _: None)
    server.seen.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert source.resolve("owner/llama") == folder
    assert source.fetch("owner/llama", lambda _: None) == folder
    assert source.preflight("owner/llama").revision == llama.commit
    error = refused(source, "owner/other")
    assert error.code == "hub_unreachable"
    assert "HF_HUB_OFFLINE" in error.message
    assert server.seen == []


def test_c88_a_file_name_cannot_leave_the_cache(
    server: HubServer, source: Hub, hub_home: Path
) -> None:
    for name in (
        "../evil.json",
        "/etc/evil.json",
        "a/../../evil.json",
        "C:\\evil.json",
        "con.json",
    ):
        server.models["owner/evil"] = HubModel(dict(LLAMA) | {name: b"{}"})
        error = refused(source, "owner/evil")
        assert (error.status, error.code) == (502, "hub_answer_unusable")
    assert not list(hub_home.parent.rglob("evil*"))


def test_one_gguf_is_fetched_and_it_is_the_model(server: HubServer, source: Hub) -> None:
    files = {f"tiny.{q}.gguf": b"GGUF" + q.encode() for q in ("Q2_K", "Q4_K_M", "Q8_0")}
    server.models["owner/tiny-GGUF"] = HubModel(files, large=set(files))
    assert source.preflight("owner/tiny-GGUF").servable
    assert source.fetch("owner/tiny-GGUF", lambda _: None).name == "tiny.Q4_K_M.gguf"
    chosen = source.fetch("owner/tiny-GGUF#tiny.Q8_0.gguf", lambda _: None)
    assert chosen.name == "tiny.Q8_0.gguf"
    assert source.resolve("owner/tiny-GGUF#tiny.Q8_0.gguf") == chosen
    assert not server.file_requests("tiny.Q2_K.gguf")
    with pytest.raises(ApiError) as caught:
        source.resolve("owner/tiny-GGUF#tiny.Q2_K.gguf")
    assert caught.value.code == "model_not_downloaded"
    assert "Q8_0" in refused(source, "owner/tiny-GGUF#none.gguf").message


def test_a_new_commit_is_fetched_beside_the_old_one(
    server: HubServer, llama: HubModel, source: Hub
) -> None:
    first, before = llama.commit, source.fetch("owner/llama", lambda _: None)
    llama.files["config.json"] = b'{"model_type": "llama", "new": true}'
    server.changed = {"config.json": b"{}"}
    assert refused(source, "owner/llama").code == "download_corrupt"
    assert source.resolve("owner/llama") == before
    server.changed = {}
    after = source.fetch("owner/llama", lambda _: None)
    assert after != before
    assert source.resolve("owner/llama") == after
    assert source.resolve(f"owner/llama@{first}") == before
    assert len(server.stored_requests("model.safetensors")) == 1


def test_systems_without_links_get_the_files(
    server: HubServer, llama: HubModel, source: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    del llama
    monkeypatch.setattr(Path, "symlink_to", refuse)
    folder = source.fetch("owner/llama", lambda _: None)
    assert not (folder / "model.safetensors").is_symlink()
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    (folder / "config.json").unlink()
    assert source.fetch("owner/llama", lambda _: None) == folder
    assert (folder / "config.json").stat().st_nlink == 1
    shutil.rmtree(folder.parents[1])
    asked = len(server.stored_requests("model.safetensors"))
    for _ in range(2):
        assert source.fetch("owner/llama", lambda _: None) == folder
        assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    # Once, and not two copies of it on the disk.
    assert len(server.stored_requests("model.safetensors")) == asked + 1
    assert not list((folder.parents[1] / "blobs").iterdir())


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"])
def test_the_cache_is_where_the_environment_says(
    llama: HubModel, source: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    del llama
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    assert source.fetch("owner/llama", lambda _: None).is_relative_to(tmp_path / "elsewhere")


def test_a_cache_that_cannot_be_written_is_told(
    llama: HubModel, source: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del llama
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "file" / "cache"))
    error = refused(source, "owner/llama")
    assert error.code == "hub_cache_failed"
    assert str(tmp_path) not in error.message


def test_importing_the_plugin_is_cheap() -> None:
    program = (
        "import sys, pegboard_model_sources.hub\n"
        "heavy = {'huggingface_hub', 'keyring', 'httpx', 'httpx2', 'filelock'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_blob_has_the_name_that_other_tools_give_it(
    llama: HubModel, source: Hub, hub_home: Path
) -> None:
    del llama
    source.fetch("owner/llama", lambda _: None)
    assert hashlib.sha256(WEIGHTS).hexdigest() in {path.name for path in blob_files(hub_home)}
