"""What the next server makes of a cut, in each place where it can happen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import ModelEntry
from pegboard_kernel.app import create_app
from pegboard_kernel.models.catalogue_file import CatalogueFile
from pegboard_kernel.preparation.deletion import delete_files
from pegboard_kernel.preparation.journal import Journal, Note, Step
from pegboard_kernel.preparation.places import Places, discard
from pegboard_kernel.preparation.recovery import recover
from pegboard_kernel.preparation.swap import publish, withdraw
from pegboard_kernel.settings import Settings

OPERATION = "convert-" + "0" * 32
FIELDS = {"path": "models/one", "weight_format": "int4"}


def entry(folder: Path) -> ModelEntry:
    (folder / "one.json").write_text("{}")
    source = f"scripted:{folder / 'one.json'}"
    return ModelEntry(id="one", source_model=source, backend="scripted", weight_format="int8")


def catalogue(folder: Path) -> CatalogueFile:
    return CatalogueFile(folder / "models.json", default_device="CPU")


def fill(path: Path, text: str) -> None:
    path.mkdir(parents=True)
    (path / "script.json").write_text(text)


def begun(folder: Path, step: Step, **fields: Any) -> Places:
    """Write down an operation as a server that was cut left it."""
    catalogue(folder).add(entry(folder))
    note = Note(operation_id=OPERATION, model="one", step=step, **fields)
    Journal(folder).write(note)
    return Places(folder, "one", OPERATION)


def content(places: Places) -> str | None:
    path = places.target / "script.json"
    return path.read_text() if path.exists() else None


def check_clean(folder: Path) -> None:
    assert [path.name for path in (folder / "operations").iterdir()] == []
    assert {path.name for path in (folder / "models").iterdir()} <= {"one"}
    assert recover(folder, catalogue(folder)) == []


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("step", ["fetching", "converting", "finalizing"])
def test_work_that_was_not_complete_is_undone(tmp_path: Path, step: Step, old: bool) -> None:
    places = begun(tmp_path, step)
    places.models.mkdir()
    if old:
        fill(places.target, "old")
    if step != "fetching":
        fill(places.staging, "half")
    (told,) = recover(tmp_path, catalogue(tmp_path))
    assert (told.model, told.complete) == ("one", False)
    assert "The server ended" in told.message
    assert content(places) == ("old" if old else None)
    assert catalogue(tmp_path).read().entries[0].weight_format == "int8"
    check_clean(tmp_path)


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("cut", ["before", "between", "after", "forgotten"])
def test_edge_65_files_that_were_complete_are_put_in_place(
    tmp_path: Path, cut: str, old: bool
) -> None:
    places = begun(tmp_path, "replacing", fields=FIELDS)
    fill(places.staging, "new")
    if old:
        fill(places.target, "old")
    if cut == "between" and old:
        places.target.rename(places.backup)
    if cut in ("after", "forgotten"):
        publish(places)
    if cut == "forgotten" and old:
        discard(places.backup)
    (told,) = recover(tmp_path, catalogue(tmp_path))
    assert told.complete
    assert content(places) == "new"
    saved = catalogue(tmp_path).read().entries[0]
    assert (saved.path, saved.weight_format) == ("models/one", "int4")
    check_clean(tmp_path)


def test_a_model_of_the_command_line_is_written_down_with_its_files(tmp_path: Path) -> None:
    known = ModelEntry(id="one", source_model="scripted:x.json", backend="scripted")
    note = Note(operation_id=OPERATION, model="one", step="replacing", fields=FIELDS, entry=known)
    Journal(tmp_path).write(note)
    fill(Places(tmp_path, "one", OPERATION).staging, "new")
    recover(tmp_path, catalogue(tmp_path))
    (saved,) = catalogue(tmp_path).read().entries
    assert (saved.id, saved.path) == ("one", "models/one")
    check_clean(tmp_path)


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_return_that_was_cut_goes_back_all_the_way(tmp_path: Path, done: int) -> None:
    """The catalogue was not saved, and the server ended while the old files were put back."""
    places = begun(tmp_path, "finalizing")
    fill(places.target, "old")
    fill(places.staging, "new")
    publish(places)
    if done > 0:
        discard(places.target)
    if done > 1:
        withdraw(places, published=False)
    recover(tmp_path, catalogue(tmp_path))
    assert content(places) == "old"
    check_clean(tmp_path)


def test_what_cannot_be_put_right_waits_for_the_next_start(tmp_path: Path) -> None:
    places = begun(tmp_path, "replacing", fields=FIELDS)
    fill(places.staging, "new")
    text = (tmp_path / "models.json").read_text()
    (tmp_path / "models.json").write_text('{"schema_version": 2}')
    (told,) = recover(tmp_path, catalogue(tmp_path))
    assert not told.complete
    assert "cannot be saved" in told.message
    (tmp_path / "models.json").write_text(text)
    (told,) = recover(tmp_path, catalogue(tmp_path))
    assert told.complete
    assert content(places) == "new"
    check_clean(tmp_path)


def test_what_another_server_does_is_left_alone(tmp_path: Path) -> None:
    places = begun(tmp_path, "converting")
    fill(places.staging, "half")
    fill(places.models / f".two.deleted-{'1' * 32}", "gone")
    with places.locked():
        assert recover(tmp_path, catalogue(tmp_path)) == []
        assert places.staging.exists()
    assert len(recover(tmp_path, catalogue(tmp_path))) == 1
    check_clean(tmp_path)


def test_leftovers_that_nobody_knows_are_removed_and_a_lost_backup_is_not(tmp_path: Path) -> None:
    places = Places(tmp_path, "one", OPERATION)
    fill(places.backup, "old")
    fill(places.models / f".one.staging-{OPERATION}", "half")
    fill(places.models / f".one.deleted-{'1' * 32}", "half")
    fill(places.models / ".of the user", "kept")
    (tmp_path / "operations").mkdir()
    (tmp_path / "operations" / f".{OPERATION}.json.new").write_text("{")
    fill(tmp_path / "engines" / f".one.deleted-{'2' * 32}", "half")
    assert recover(tmp_path, catalogue(tmp_path)) == []
    assert content(places) == "old"
    assert {path.name for path in places.models.iterdir()} == {"one", ".of the user"}
    assert list((tmp_path / "engines").iterdir()) == []
    assert list((tmp_path / "operations").iterdir()) == []


def test_a_process_that_is_left_is_ended_and_a_strangers_is_not(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    mine, other = subprocess.Popen(sleep), subprocess.Popen(sleep)
    try:
        started = psutil.Process(mine.pid).create_time()
        begun(tmp_path, "converting", child=mine.pid, child_started=started)
        stranger = Note(
            operation_id="convert-" + "1" * 32,
            model="two",
            child=other.pid,
            child_started=started - 3600,
        )
        Journal(tmp_path).write(stranger)
        assert len(recover(tmp_path, catalogue(tmp_path))) == 2
        assert not psutil.pid_exists(mine.pid)
        assert other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


def test_a_note_that_is_not_understood_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "operations"
    folder.mkdir()
    notes = {
        "half.json": "{",
        "newer.json": json.dumps({"operation_id": "newer", "model": "x", "schema_version": 2}),
        "away.json": json.dumps({"operation_id": "../models", "model": "x"}),
        "up.json": json.dumps({"operation_id": "up", "model": "../../x"}),
    }
    for name, text in notes.items():
        (folder / name).write_text(text)
    assert recover(tmp_path, catalogue(tmp_path)) == []
    assert {path.name: path.read_text() for path in folder.iterdir()} == notes


def test_nothing_is_made_where_nothing_was(tmp_path: Path) -> None:
    assert recover(tmp_path / "nowhere", catalogue(tmp_path / "nowhere")) == []
    assert list(tmp_path.iterdir()) == []


def test_a_server_shows_what_was_recovered(tmp_path: Path) -> None:
    places = begun(tmp_path, "converting")
    fill(places.staging, "half")
    app = create_app(Settings.model_validate({"data_dir": tmp_path}))
    (view,) = app.wiring.directory.models()
    assert "The server ended during the conversion" in (view.error or "")
    assert view.can_load, "the files of before are there"
    told = [one for one in app.wiring.events.recent().events if one.type == "notice"]
    assert [one.model for one in told] == ["one"]
    check_clean(tmp_path)


def test_a_deletion_names_a_model(tmp_path: Path) -> None:
    for model in ("..", "", ".one", "CON", "a/b", "x."):
        with pytest.raises((ValueError, ApiError)):
            delete_files(tmp_path, model)
    assert delete_files(tmp_path, "one") == 0
