"""Preparing models in real processes: new files or the old ones, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock
from pegboard_contracts.errors import ApiError
from pegboard_contracts.lifecycle import ConversionOptions
from pegboard_contracts.models import ModelState, ModelView, Phase
from pegboard_kernel.models.catalogue_file import CatalogueFile
from pegboard_kernel.preparation.recovery import recover

from tests.kernel.runtime import until
from tests.lifecycle.house import House, children, house, refused
from tests.lifecycle.stage import of_scripts, of_stage, staged
from tests.lifecycle.stage_plugins import SECRET

__all__ = ["staged"]

LATER = ConversionOptions(load_after=False)
PHASES = [["downloading", 150], ["converting", 150], ["finalizing", 150]]
OLD = '{"rules": [], "old": true}'


@asynccontextmanager
async def scripts(folder: Path, script: Any = None, **options: Any) -> AsyncGenerator[House]:
    """Open a house with one scripted model that is converted by its script."""
    known = {"convert_phases": PHASES} if script is None else script
    async with house(folder, {"one": known}, plugins=of_scripts(), **options) as home:
        yield home


@asynccontextmanager
async def on_stage(
    folder: Path, entry: dict[str, Any] | None = None, **options: Any
) -> AsyncGenerator[House]:
    """Open a house with one model that the stage plays."""
    fields = {"source_model": f"stage:{folder / 'stage'}", "backend": "scripted"}
    entries = {"one": fields | (entry or {})}
    plugins = options.pop("plugins", None) or of_stage()
    async with house(folder, {}, plugins=plugins, entries=entries, **options) as home:
        yield home


def act(folder: Path, **acts: Any) -> None:
    (folder / "stage" / "acts.json").write_text(json.dumps(acts))


async def converted(home: House, **options: Any) -> ModelView:
    await home.lifecycle.convert("one", ConversionOptions(load_after=False, **options))
    return await home.lifecycle.settled("one")


async def reached(home: House, phase: Phase) -> str:
    """Wait until the model's operation is in a phase, and return its id."""
    await until(lambda: getattr(home.view().progress, "phase", None) == phase)
    return home.operation()


def old_files(folder: Path) -> Path:
    """Put files in place that a conversion made before."""
    target = folder / "models" / "one"
    target.mkdir(parents=True)
    (target / "script.json").write_text("{}")
    (target / "old.bin").write_text("old")
    return target


def check_clean(folder: Path) -> None:
    """Expect no file and no process of work that is over."""
    assert not children()
    left = [
        path.name
        for name in ("models", "operations", "engines")
        if (folder / name).is_dir()
        for path in (folder / name).iterdir()
        if path.name != "one"
    ]
    assert left == []
    with FileLock(folder / "locks" / "one.lock", timeout=0):
        pass


def test_a_conversion_ends_with_files_an_entry_and_a_loaded_model(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scripts(tmp_path) as home:
            await home.lifecycle.convert("one", ConversionOptions(weight_format="int8"))
            view = await home.lifecycle.settled("one")
            assert view.state is ModelState.LOADED, view.error
            entry = home.catalogued()
            assert (entry["path"], entry["weight_format"]) == ("models/one", "int8")
            result = json.loads((tmp_path / "models" / "one" / "script.json").read_text())
            assert result == {"convert_phases": PHASES}
            states = [event.data["state"] for event in home.told("state")]
            assert states == [
                "queued",
                "downloading",
                "converting",
                "finalizing",
                "ready_to_load",
                "loading",
                "loaded",
            ]
            await home.unloaded()
            check_clean(tmp_path)
            again = await converted(home, weight_format="int4", group_size=64)
            assert again.state is ModelState.READY_TO_LOAD
            assert home.catalogued()["group_size"] == 64
            await converted(home, weight_format="int8")
            assert home.catalogued()["group_size"] is None, "it belonged to the other format"
            check_clean(tmp_path)

    asyncio.run(scenario())


@pytest.mark.parametrize("phase", [Phase.DOWNLOADING, Phase.CONVERTING, Phase.FINALIZING])
def test_edge_63_a_cancel_leaves_the_old_files_and_nothing_else(
    tmp_path: Path, phase: Phase
) -> None:
    target = old_files(tmp_path)

    async def scenario() -> None:
        slow = {"convert_phases": [[one, 60_000 if one == phase else 1] for one, _ in PHASES]}
        entries = {"one": {"path": "models/one", "weight_format": "int8"}}
        async with scripts(tmp_path, slow, entries=entries) as home:
            await home.lifecycle.convert("one", ConversionOptions(weight_format="int4"))
            operation = await reached(home, phase)
            outcome = await home.lifecycle.cancel("one", operation)
            assert outcome.view.state is ModelState.CANCELLED
            assert sorted(path.name for path in target.iterdir()) == ["old.bin", "script.json"]
            assert home.catalogued()["weight_format"] == "int8"
            check_clean(tmp_path)
            assert (await home.loaded()).state is ModelState.LOADED

    asyncio.run(scenario())


def test_a_server_that_stops_leaves_the_old_files_and_nothing_else(tmp_path: Path) -> None:
    target = old_files(tmp_path)

    async def scenario() -> None:
        async with scripts(tmp_path, {"convert_phases": [["converting", 60_000]]}) as home:
            await home.lifecycle.convert("one")
            await reached(home, Phase.CONVERTING)
        assert home.state() is ModelState.CANCELLED
        assert (target / "old.bin").exists()
        check_clean(tmp_path)

    asyncio.run(scenario())


def test_a_catalogue_that_cannot_be_saved_brings_the_old_files_back(tmp_path: Path) -> None:
    target = old_files(tmp_path)

    async def scenario() -> None:
        async with scripts(tmp_path) as home:
            await home.lifecycle.convert("one", LATER)
            await reached(home, Phase.FINALIZING)
            text = (tmp_path / "models.json").read_text()
            (tmp_path / "models.json").write_text('{"schema_version": 2}')
            view = await home.lifecycle.settled("one")
            assert view.state is ModelState.ERROR
            assert "cannot be saved" in (view.error or "")
            assert (target / "old.bin").exists()
            check_clean(tmp_path)
            (tmp_path / "models.json").write_text(text)
            assert (await converted(home)).state is ModelState.READY_TO_LOAD
            assert not (target / "old.bin").exists()

    asyncio.run(scenario())


def test_what_cannot_be_converted_is_refused_before_anything_begins(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            with refused(501, "converter_not_installed") as caught:
                await home.lifecycle.convert("one")
            assert "pegboard" in caught.value.message
        async with scripts(tmp_path) as home:
            with pytest.raises(ApiError) as caught:
                await converted(home, weight_format="int9")
            assert (caught.value.status, caught.value.param) == (400, "weight_format")
        async with scripts(tmp_path, disk_reserve_gb=1e9) as home:
            with refused(507, "insufficient_disk") as caught:
                await home.lifecycle.convert("one")
            assert "1,000,000,000.0 GB" in caught.value.message
        assert not (tmp_path / "models").exists()

    asyncio.run(scenario())


def test_edge_66_of_two_servers_one_prepares_a_model(tmp_path: Path) -> None:
    async def scenario() -> None:
        slow = {"convert_phases": [["converting", 60_000]]}
        async with scripts(tmp_path, slow) as first, scripts(tmp_path, slow) as second:
            await first.lifecycle.convert("one", LATER)
            await reached(first, Phase.CONVERTING)
            for work in (second.lifecycle.convert, second.lifecycle.delete_files):
                with refused(409, "model_busy") as caught:
                    await work("one")
                assert "Another server" in caught.value.message
            assert (await first.lifecycle.cancel("one", first.operation())).view
            second.write("one", convert_phases=[])
            assert (await converted(second)).state is ModelState.READY_TO_LOAD

    asyncio.run(scenario())


def test_edge_67_a_folder_that_is_a_link_is_neither_replaced_nor_deleted(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "script.json").write_text("{}")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "one").symlink_to(mine)

    async def scenario() -> None:
        async with scripts(tmp_path) as home:
            for work in (
                home.lifecycle.convert,
                home.lifecycle.delete_files,
                home.lifecycle.remove,
            ):
                with refused(409, "model_files_linked"):
                    await work("one")
            assert (mine / "script.json").exists()
            (tmp_path / "models" / "one").unlink()
            folder = tmp_path / "models" / "one"
            folder.mkdir()
            (folder / "away").symlink_to(mine)
            (folder / "big.bin").write_bytes(b"x" * 5000)
            cache = tmp_path / "engines" / "one"
            cache.mkdir(parents=True)
            (cache / "blob").write_bytes(b"y" * 300)
            _, freed = await home.lifecycle.delete_files("one")
            assert freed == 5300
            assert (mine / "script.json").exists()
            assert not folder.exists()
            assert not cache.exists()
            assert (await home.lifecycle.delete_files("one"))[1] == 0, "missing is no fault"
            check_clean(tmp_path)

    asyncio.run(scenario())


def test_edge_103_everything_follows_the_data_folder(tmp_path: Path) -> None:
    async def scenario() -> None:
        for name in ("here", "there"):
            folder = tmp_path / name
            folder.mkdir()
            async with scripts(folder) as home:
                await converted(home)
                assert (folder / "models" / "one" / "script.json").exists()
                assert (await home.lifecycle.delete_files("one"))[1] > 0
                assert not (folder / "models" / "one").exists()

    asyncio.run(scenario())


@pytest.mark.usefixtures("staged")
def test_a_model_is_fetched_and_converted_with_secrets_where_they_belong(tmp_path: Path) -> None:
    act(tmp_path, fetch={"print": "noise"}, convert={"print": "more noise"}, servable=False)

    async def scenario() -> None:
        async with on_stage(tmp_path) as home:
            assert home.state() is ModelState.NOT_DOWNLOADED
            await home.lifecycle.convert("one", LATER)
            assert home.operation().startswith("convert-")
            view = await home.lifecycle.settled("one")
            assert view.state is ModelState.READY_TO_LOAD, view.error
            check_clean(tmp_path)
            assert (await home.loaded()).state is ModelState.LOADED
            fetch = json.loads((tmp_path / "stage" / "fetch.json").read_text())
            assert fetch["secret"] == SECRET
            assert SECRET not in " ".join(fetch["argv"])
            told = json.loads((tmp_path / "stage" / "convert.json").read_text())
            assert told["secret"] == str(None)
            assert "STAGE_SECRET" not in os.environ

    asyncio.run(scenario())


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("servable", [True, None])
def test_files_that_can_be_served_are_used_as_they_are(
    tmp_path: Path, servable: bool | None
) -> None:
    (tmp_path / "stage" / "script.json").write_text("{}")
    act(tmp_path, servable=servable)

    async def scenario() -> None:
        plugins = of_stage(converter=not servable)
        async with on_stage(tmp_path, plugins=plugins) as home:
            await home.lifecycle.convert("one", LATER)
            assert home.operation().startswith("download-" if servable else "convert-")
            view = await home.lifecycle.settled("one")
            assert view.state is ModelState.READY_TO_LOAD, view.error
            assert home.catalogued()["path"] is None
            assert not (tmp_path / "models" / "one").exists()
            assert (await home.loaded()).state is ModelState.LOADED
            await home.unloaded()
            if servable:
                with refused(400, "conversion_not_needed"):
                    await converted(home, weight_format="int4")

    asyncio.run(scenario())


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("result", [{"embedding": {"dimensions": 8}}, {"rerank": {}}])
def test_models_that_write_nothing_are_tried_too(tmp_path: Path, result: dict[str, Any]) -> None:
    act(tmp_path, result=result)

    async def scenario() -> None:
        async with on_stage(tmp_path) as home:
            view = await converted(home)
            assert view.state is ModelState.READY_TO_LOAD, view.error
            assert view.kind == next(iter(result))
            act(tmp_path, result=result | {"load_error": "It is broken."})
            assert "It is broken." in ((await converted(home)).error or "")
            assert (tmp_path / "models" / "one" / "script.json").read_text() == json.dumps(result)

    asyncio.run(scenario())


@pytest.mark.usefixtures("staged")
def test_a_source_that_denies_is_heard_before_anything_is_queued(tmp_path: Path) -> None:
    act(tmp_path, deny="Accept its terms first.")

    async def scenario() -> None:
        async with on_stage(tmp_path) as home:
            with refused(409, "access_denied"):
                await home.lifecycle.convert("one")
            assert home.state() is ModelState.NOT_DOWNLOADED
            act(tmp_path, bytes=10**18)
            with refused(507, "insufficient_disk"):
                await home.lifecycle.convert("one")

    asyncio.run(scenario())


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("work", ["fetch", "convert"])
def test_edge_73_silence_ends_the_work_and_slowness_does_not(tmp_path: Path, work: str) -> None:
    async def scenario() -> None:
        async with on_stage(tmp_path, conversion_inactivity_timeout=4) as home:
            act(tmp_path, **{work: {"reports": 110}})
            assert (await converted(home)).state is ModelState.READY_TO_LOAD
            act(tmp_path, **{work: {"hang": True}})
            view = await converted(home)
            assert view.state is ModelState.ERROR
            assert "no sign of life for 4 seconds" in (view.error or "")
            assert ("is kept" in (view.error or "")) is (work == "fetch")
            assert (tmp_path / "models" / "one" / "script.json").exists(), "the old files"
            check_clean(tmp_path)

    asyncio.run(scenario())


@pytest.mark.usefixtures("staged")
def test_work_that_never_ends_is_ended(tmp_path: Path) -> None:
    act(tmp_path, convert={"reports": 10_000})

    async def scenario() -> None:
        async with on_stage(tmp_path, conversion_timeout=2.5) as home:
            view = await converted(home)
            assert view.state is ModelState.ERROR
            assert "longer than 2.5 seconds" in (view.error or "")
            check_clean(tmp_path)

    asyncio.run(scenario())


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("work", ["fetch", "convert"])
def test_edge_63_a_cancel_ends_the_whole_family(tmp_path: Path, work: str) -> None:
    act(tmp_path, **{work: {"family": True, "hang": True}})
    told = tmp_path / "stage" / "family.json"

    async def scenario() -> None:
        async with on_stage(tmp_path) as home:
            await home.lifecycle.convert("one", LATER)
            await until(told.exists)
            family = [psutil.Process(pid) for pid in json.loads(told.read_text())]
            await home.lifecycle.cancel("one", home.operation())
            assert [process for process in family if process.is_running()] == []
            assert home.state() is ModelState.CANCELLED
            check_clean(tmp_path)

    asyncio.run(scenario())


@pytest.mark.usefixtures("staged")
def test_work_that_ends_leaves_none_of_its_family(tmp_path: Path) -> None:
    act(tmp_path, convert={"family": True})

    async def scenario() -> None:
        async with on_stage(tmp_path) as home:
            assert (await converted(home)).state is ModelState.READY_TO_LOAD
            for pid in json.loads((tmp_path / "stage" / "family.json").read_text()):
                assert not psutil.pid_exists(pid)

    asyncio.run(scenario())


@pytest.mark.usefixtures("staged")
def test_a_supervisor_that_is_killed_leaves_no_group_behind(tmp_path: Path) -> None:
    act(tmp_path, convert={"family": True, "hang": True})
    told = tmp_path / "stage" / "family.json"

    async def scenario() -> None:
        async with on_stage(tmp_path) as home:
            await home.lifecycle.convert("one", LATER)
            await until(told.exists)
            plain, *apart = [psutil.Process(pid) for pid in json.loads(told.read_text())]
            worker = psutil.Process(int((tmp_path / "stage" / "converting.pid").read_text()))
            supervisor = worker.parent()
            assert supervisor is not None
            supervisor.kill()
            view = await home.lifecycle.settled("one")
            assert "ended from outside" in (view.error or "")
            await until(lambda: not plain.is_running() and not worker.is_running())
            for process in apart:
                process.kill()
            check_clean(tmp_path)

    asyncio.run(scenario())


SERVER = """
import asyncio, sys
from tests.lifecycle.test_preparation import LATER, Path, on_stage
async def main():
    async with on_stage(Path(sys.argv[1])) as home:
        await home.lifecycle.convert("one", LATER)
        await home.lifecycle.settled("one")
asyncio.run(main())
"""


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("work", ["fetch", "convert"])
def test_edge_65_a_server_that_is_killed_takes_the_whole_family_along(
    tmp_path: Path, work: str
) -> None:
    target = old_files(tmp_path)
    act(tmp_path, **{work: {"family": True, "hang": True}})
    told = tmp_path / "stage" / "family.json"
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path)])
    asyncio.run(until(told.exists, 60))
    family = [psutil.Process(pid) for pid in json.loads(told.read_text())]
    family += psutil.Process(server.pid).children(recursive=True)
    server.kill()
    assert server.wait(10) == -signal.SIGKILL
    assert psutil.wait_procs(family, timeout=20)[1] == []
    file = CatalogueFile(tmp_path / "models.json", default_device="CPU")
    (recovered,) = recover(tmp_path, file)
    assert ("download" in recovered.message) is (work == "fetch")
    assert (target / "old.bin").exists()
    check_clean(tmp_path)


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"convert": {"refuse": "It is too wide."}}, "It is too wide."),
    ({"convert": {"full": True}}, "disk is full"),
    ({"fetch": {"full": True}}, "disk is full"),
    ({"convert": {"fault": True}}, "see the server's log"),
    ({"convert": {"exit": 0}}, "ended from outside"),
    ({"fetch": {"exit": 9}}, "ended from outside"),
    ({"result": None}, "no complete model"),
    ({"result": {"rules": 7}}, "no complete model"),
    ({"result": {"load_error": "It is broken."}}, "It is broken."),
    ({"result": {"default": {"pieces": ["a"], "raise_after": 0}}}, "cannot be used"),
    ({"result": {"default": {"exit_after": 0, "pieces": ["a"]}}}, "cannot be used"),
]


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize(("acts", "said"), FAULTS)
def test_edges_74_and_99_a_failure_says_why_and_leaves_the_old_files(
    tmp_path: Path, acts: dict[str, Any], said: str
) -> None:
    target = old_files(tmp_path)
    act(tmp_path, **acts)

    async def scenario() -> None:
        async with on_stage(tmp_path, {"path": "models/one"}) as home:
            view = await converted(home)
            assert view.state is ModelState.ERROR
            assert said in (view.error or ""), view.error
            assert str(tmp_path) not in (view.error or "")
            assert SECRET not in str(home.told())
            assert (target / "old.bin").exists()
            assert view.is_downloaded
            check_clean(tmp_path)
            assert (await home.loaded()).state is ModelState.LOADED

    asyncio.run(scenario())


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize(
    ("policy", "asked", "trusted"),
    [(False, None, "False"), (True, None, "True"), (True, False, "False"), (False, True, "True")],
)
def test_code_of_a_repository_runs_only_when_somebody_said_so(
    tmp_path: Path, policy: bool, asked: bool | None, trusted: str
) -> None:
    async def scenario() -> None:
        async with on_stage(tmp_path, {"trust_remote_code": policy}) as home:
            await converted(home, trust_remote_code=asked)
            told = json.loads((tmp_path / "stage" / "convert.json").read_text())
            assert told["trust_remote_code"] == trusted

    asyncio.run(scenario())


@pytest.mark.usefixtures("staged")
def test_the_catalogue_says_what_a_converter_chose(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with on_stage(tmp_path) as home:
            view = await converted(home)
            assert view.state is ModelState.READY_TO_LOAD, view.error
            assert view.entry.weight_format == home.catalogued()["weight_format"] == "int8"
            told = json.loads((tmp_path / "stage" / "convert.json").read_text())
            assert told["weight_format"] == "int8"
            assert (await converted(home, weight_format="fp16")).entry.weight_format == "fp16"
            await converted(home)
            assert home.catalogued()["weight_format"] == "fp16", "what was chosen stays"

    asyncio.run(scenario())
