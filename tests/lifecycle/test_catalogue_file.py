"""The catalogue file: nothing that anybody wrote in it is ever lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard_contracts.models import ModelEntry
from pegboard_kernel.models.catalogue_file import CatalogueFile

from tests.lifecycle.house import refused

Json = dict[str, Any]
START: Json = {
    "schema_version": 1,
    "note": "of the operator",
    "big": 123456789012345678901234567890,
    "models": [
        {"id": "one", "source_model": "scripted:one.json", "colour": {"of": ["paint", None]}},
        {"id": "../bad", "source_model": "x", "kept": True},
        "no object",
        {"id": "two", "source_model": "scripted:two.json"},
    ],
}


def written(folder: Path, document: object = START) -> CatalogueFile:
    (folder / "models.json").write_text(json.dumps(document))
    return opened(folder)


def opened(folder: Path, **options: Any) -> CatalogueFile:
    return CatalogueFile(folder / "models.json", default_device="CPU", **options)


def document(folder: Path) -> Json:
    found: Json = json.loads((folder / "models.json").read_text())
    return found


def entry(model: str, **fields: Any) -> ModelEntry:
    return ModelEntry(id=model, source_model="scripted:x.json", **fields)


def ids(folder: Path) -> list[str]:
    return [raw["id"] for raw in document(folder)["models"] if isinstance(raw, dict)]


def test_what_is_not_understood_stays(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert [one.id for one in file.read().entries] == ["one", "two"]
    assert len(file.read().faults) == 2
    file.add(entry("three"))
    assert file.change("one", {"max_context_len": 512}).max_context_len == 512
    file.remove("two")
    now = document(tmp_path)
    assert (now["note"], now["big"]) == (START["note"], START["big"])
    assert now["models"][0] == START["models"][0] | {"max_context_len": 512}
    assert now["models"][1:3] == START["models"][1:3]
    assert ids(tmp_path) == ["one", "../bad", "three"]


def test_a_new_file_is_made_with_its_folder(tmp_path: Path) -> None:
    file = CatalogueFile(tmp_path / "deep" / "models.json", default_device="CPU")
    file.add(entry("one"))
    assert [one.id for one in file.read().entries] == ["one"]
    assert (tmp_path / "deep" / "models.json").stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_permissions_of_the_file_stay(tmp_path: Path) -> None:
    file = written(tmp_path)
    (tmp_path / "models.json").chmod(0o600)
    file.add(entry("three"))
    assert (tmp_path / "models.json").stat().st_mode & 0o777 == 0o600


def test_what_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    file = written(tmp_path)
    before = (tmp_path / "models.json").stat()
    file.remove("nobody")
    file.change("one", {})
    assert (tmp_path / "models.json").stat() == before


def test_a_change_that_rests_on_an_old_value_is_refused(tmp_path: Path) -> None:
    first, second = written(tmp_path), opened(tmp_path)
    first.change("one", {"max_context_len": 512}, expected={"max_context_len": None})
    before = (tmp_path / "models.json").read_bytes()
    with refused(409, "catalogue_changed") as caught:
        second.change("one", {"max_context_len": 256}, expected={"max_context_len": None})
    assert "max_context_len" in caught.value.message
    first.remove("two")
    with refused(409, "catalogue_changed"):
        second.change("two", {"name": "Two"})
    with refused(409, "catalogue_changed"):
        second.add(entry("one"))
    with refused(409, "catalogue_changed"):
        second.add(entry("ONE"))
    with refused(409, "catalogue_changed"):
        second.change("one", {"max_context_len": -1})
    first.change("two", {"name": "Two"}, add=entry("two"))
    assert before != (tmp_path / "models.json").read_bytes()
    assert [(one.id, one.max_context_len) for one in second.read().entries] == [
        ("one", 512),
        ("two", None),
    ]


def test_of_two_entries_of_an_id_the_one_that_counts_is_changed(tmp_path: Path) -> None:
    bad, good = {"id": "one", "aliases": 7}, {"id": "one", "source_model": "scripted:x.json"}
    file = written(tmp_path, {"schema_version": 1, "models": [bad, good]})
    assert file.change("one", {"name": "One"}).name == "One"
    assert document(tmp_path)["models"] == [bad, good | {"name": "One"}]


@pytest.mark.parametrize("text", ["{", "[]", '{"schema_version": 1}', '{"models": []}', "\x00"])
def test_edge_70_a_corrupt_file_is_moved_aside_each_time(tmp_path: Path, text: str) -> None:
    for number in (1, 2, 3):
        file = opened(tmp_path)
        (tmp_path / "models.json").write_text(text + " " * number)
        read = file.read()
        assert read.entries == []
        assert len(read.faults) == 1
        kept = sorted(tmp_path.glob("models.json.corrupt-*"))
        assert len(kept) == number
        assert any(path.name in read.faults[0] for path in kept)
        assert str(tmp_path) not in read.faults[0]
        assert file.read().faults == []
        file.add(entry(f"new{number}"))
        assert ids(tmp_path) == [f"new{number}"]
    assert sorted(path.read_text() for path in kept) == sorted(text + " " * n for n in (1, 2, 3))


def test_edge_70_a_file_that_becomes_corrupt_costs_a_running_server_nothing(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.read()
    (tmp_path / "models.json").write_text("half")
    file.add(entry("three"))
    (kept,) = tmp_path.glob("models.json.corrupt-*")
    assert kept.read_text() == "half"
    assert ids(tmp_path) == ["one", "../bad", "two", "three"]
    assert document(tmp_path)["note"] == START["note"]
    (tmp_path / "models.json").write_text("half again")
    read = file.read()
    assert [one.id for one in read.entries] == ["one", "two", "three"]
    assert "begins with what was last seen" in read.faults[0]
    assert ids(tmp_path) == ["one", "../bad", "two", "three"]
    (tmp_path / "models.json").write_text("half once more")
    file.remove("unknown")
    assert ids(tmp_path) == ["one", "../bad", "two", "three"], "also when nothing changes"


def test_edge_89_a_file_of_a_newer_version_is_never_touched(tmp_path: Path) -> None:
    file = written(tmp_path, {"schema_version": 2, "models": {"of": "another form"}})
    before = (tmp_path / "models.json").read_bytes()
    assert "newer version" in file.read().faults[0]
    with refused(409, "catalogue_not_saved"):
        file.add(entry("one"))
    with refused(409, "catalogue_not_saved"):
        file.remove("one")
    assert (tmp_path / "models.json").read_bytes() == before
    assert [path.name for path in tmp_path.glob("models.json*corrupt*")] == []


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    written(tmp_path / "elsewhere")
    (tmp_path / "models.json").symlink_to("elsewhere/models.json")
    opened(tmp_path).add(entry("three"))
    assert (tmp_path / "models.json").is_symlink()
    assert ids(tmp_path / "elsewhere") == ["one", "../bad", "two", "three"]


def test_edge_69_what_cannot_be_written_leaves_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("")
    with refused(409, "catalogue_not_saved"):
        CatalogueFile(folder / "models.json", default_device="CPU").add(entry("one"))
    (tmp_path / "models.json").mkdir()
    with refused(409, "catalogue_not_saved"):
        opened(tmp_path).add(entry("one"))


FULL = """
import resource, sys
from pegboard_contracts.errors import ApiError
from tests.lifecycle.test_catalogue_file import entry, opened, Path
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
try:
    opened(Path(sys.argv[1])).add(entry("three"))
except ApiError as error:
    print(error.status, error.code)
"""


def test_edge_69_a_disk_that_takes_no_more_leaves_the_file(tmp_path: Path) -> None:
    written(tmp_path)
    done = script(FULL, tmp_path)
    assert done.communicate()[0] == "409 catalogue_not_saved\n"
    assert document(tmp_path) == START
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models.json", "models.json.lock"]


def script(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


HOLD = """
import sys, time
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_that_is_held_is_told_and_ends_with_its_holder(tmp_path: Path) -> None:
    written(tmp_path)
    holder = script(HOLD, tmp_path / "models.json.lock")
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with refused(409, "catalogue_not_saved") as caught:
            opened(tmp_path, lock_seconds=0.1).add(entry("three"))
        assert "lock" in caught.value.message
        assert opened(tmp_path, lock_seconds=0.1).read().entries, "reading needs no lock"
    finally:
        holder.kill()
        holder.communicate()
    opened(tmp_path, lock_seconds=5).add(entry("three"))
    assert "three" in ids(tmp_path)


WORK = """
import random, sys
from tests.lifecycle.test_catalogue_file import entry, opened, Path
folder, name = Path(sys.argv[1]), sys.argv[2]
file = opened(folder)
print("begun", flush=True)
for number in range(int(sys.argv[3])):
    file.add(entry(f"{name}{number}"))
    file.change("one", {}, expected={})
    file.change(f"{name}{number}", {"name": name})
    if number % 2:
        file.remove(f"{name}{number}")
"""


def test_processes_lose_nothing_of_each_other(tmp_path: Path) -> None:
    written(tmp_path)
    workers = [script(WORK, tmp_path, name, 20) for name in ("a", "b", "c")]
    for worker in workers:
        worker.communicate()
        assert worker.returncode == 0
    left = {f"{name}{number}" for name in "abc" for number in range(0, 20, 2)}
    assert set(ids(tmp_path)) == {"one", "../bad", "two"} | left
    assert document(tmp_path)["models"][:4] == START["models"]


def test_a_kill_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    written(tmp_path)
    chance = random.Random(7)  # noqa: S311 - for moments, not for secrets
    for turn in range(4):
        worker = script(WORK, tmp_path, f"k{turn}n", 100_000)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "begun\n"
        time.sleep(chance.uniform(0.0, 0.15))
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        assert document(tmp_path)["models"][:3] == START["models"][:3]
        opened(tmp_path, lock_seconds=5).add(entry(f"after{turn}"))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"models.json", "models.json.lock"}
    assert FileLock(tmp_path / "models.json.lock").acquire(timeout=1)


VERBS = st.sampled_from(["add", "change", "remove"])
STEPS = st.lists(
    st.tuples(st.booleans(), VERBS, st.sampled_from("abcd"), st.integers(1, 9)), max_size=25
)


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_law_of_any_order_of_changes(steps: list[tuple[bool, str, str, int]]) -> None:
    """Two writers of one file, in any order: the file is what the sum of their changes says."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = written(folder), opened(folder)
        wanted: dict[str, int | None] = {}
        for second, verb, model, value in steps:
            file = files[second]
            if verb == "add" and model in wanted:
                with refused(409, "catalogue_changed"):
                    file.add(entry(model, max_context_len=value))
            elif verb == "add":
                file.add(entry(model, max_context_len=value))
                wanted[model] = value
            elif verb == "remove":
                file.remove(model)
                wanted.pop(model, None)
            elif model in wanted:
                expected = {"max_context_len": wanted[model]}
                file.change(model, {"max_context_len": value}, expected=expected)
                wanted[model] = value
            else:
                with refused(409, "catalogue_changed"):
                    file.change(model, {"max_context_len": value})
        now = document(folder)
        assert now["models"][:4] == START["models"]
        assert {key: now[key] for key in ("note", "big")} == {
            key: START[key] for key in ("note", "big")
        }
        listed = {raw["id"]: raw["max_context_len"] for raw in now["models"][4:]}
        assert listed == wanted
