"""Registering, deleting and removing models, durably."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pegboard_contracts.errors import ApiError
from pegboard_contracts.lifecycle import Registration
from pegboard_contracts.models import ModelState

from tests.lifecycle.house import House, house, refused, write_script


def new(home: House, **fields: Any) -> Registration:
    source = write_script(home.folder, "new", {})
    known: dict[str, Any] = {"id": "new", "source_model": source, "backend": "scripted"}
    return Registration(**known | fields)


def test_a_registered_model_is_there_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            view, added = await home.lifecycle.register(new(home, max_context_len=1024))
            assert added
            assert (view.state, view.revision) == (ModelState.READY_TO_LOAD, 1)
            assert (await home.loaded("new")).context_tokens == 1024
            again, added = await home.lifecycle.register(new(home, max_context_len=1024))
            assert not added
            assert again.state is ModelState.LOADED
            with refused(409, "model_exists") as caught:
                await home.lifecycle.register(new(home, max_context_len=512, name="Other"))
            assert "max_context_len, name" in caught.value.message
        async with house(tmp_path) as home:
            assert home.view("new").entry.max_context_len == 1024

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "model", ["../x", "CON", "con.txt", "x.", "a" * 129, "", "auto", "a/b", "-a", "a b", "\u00e9"]
)
def test_edge_68_ids_that_name_no_folder(tmp_path: Path, model: str) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            with refused(400, "invalid_model_id"):
                await home.lifecycle.register(new(home, id=model))
            assert [view.entry.id for view in home.directory.models()] == ["one"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"backend": "nobody"}, "unknown_backend"),
        ({"source_model": "nowhere:x"}, "unknown_source"),
        ({"recommended_device": " "}, "invalid_device"),
    ],
)
def test_what_could_never_be_loaded_is_not_registered(
    tmp_path: Path, fields: dict[str, str], code: str
) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            with refused(400, code):
                await home.lifecycle.register(new(home, **fields))

    asyncio.run(scenario())


def test_names_are_taken_in_any_case_and_by_aliases(tmp_path: Path) -> None:
    async def scenario() -> None:
        entries = {"one": {"aliases": ["other"]}}
        async with house(tmp_path, entries=entries) as home:
            for name in ("ONE", "other"):
                with refused(409, "model_exists"):
                    await home.lifecycle.register(new(home, id=name))

    asyncio.run(scenario())


def test_edge_69_a_registration_that_cannot_be_saved_is_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            path = tmp_path / "models.json"
            text = path.read_text()
            path.unlink()
            path.mkdir()
            with pytest.raises(ApiError) as caught:
                await home.lifecycle.register(new(home))
            assert caught.value.status == 409
            assert home.directory.find("new") is None
            path.rmdir()
            path.write_text(text)
            assert (await home.lifecycle.register(new(home)))[1]

    asyncio.run(scenario())


def test_of_two_registrations_one_adds(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            wanted = new(home)
            ends = await asyncio.gather(*(home.lifecycle.register(wanted) for _ in range(5)))
            assert [added for _, added in ends].count(True) == 1
            document = json.loads((tmp_path / "models.json").read_text())
            assert [entry["id"] for entry in document["models"]] == ["one", "new"]

    asyncio.run(scenario())


def test_edge_67_what_is_loaded_is_not_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            await home.loaded()
            with refused(409, "model_loaded"):
                await home.lifecycle.delete_files("one")
            with refused(409, "model_loaded"):
                await home.lifecycle.remove("one")
            assert home.view().can_delete is False
            await home.unloaded()
            view, freed = await home.lifecycle.delete_files("one")
            assert (view.state, freed) == (ModelState.READY_TO_LOAD, 0)
            await home.lifecycle.remove("one")
            assert home.directory.find("one") is None
            with refused(404, "model_not_found"):
                await home.lifecycle.remove("one")
            document = json.loads((tmp_path / "models.json").read_text())
            assert document["models"] == []
            assert home.told()[-1].type == "removed"

    asyncio.run(scenario())


def test_files_of_a_model_are_deleted_and_its_entry_stays(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "here"
    folder.mkdir(parents=True)
    (folder / "script.json").write_text("{}")

    async def scenario() -> None:
        entry = {
            "source_model": str(tmp_path / "nothing"),
            "backend": "scripted",
            "path": "models/here/script.json",
        }
        async with house(tmp_path, entries={"here": entry}) as home:
            view = home.view("here")
            assert (view.state, view.can_delete) == (ModelState.READY_TO_LOAD, True)
            view, freed = await home.lifecycle.delete_files("here")
            assert (view.state, freed) == (ModelState.NOT_DOWNLOADED, 2)
            assert view.entry.path is None
            assert not folder.exists()
            with refused(409, "model_not_downloaded"):
                await home.load("here")
            assert home.catalogued("here")["path"] is None

    asyncio.run(scenario())


def test_files_that_come_later_are_found_by_a_load(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "later.json"
        entry = {"source_model": str(path), "backend": "scripted"}
        async with house(tmp_path, entries={"later": entry}) as home:
            view = home.view("later")
            assert view.state is ModelState.NOT_DOWNLOADED
            assert not view.can_load
            assert str(tmp_path) not in str(view.error)
            with refused(409, "model_not_downloaded"):
                await home.load("later")
            path.write_bytes(msgspec.json.encode({}))
            assert (await home.loaded("later")).is_downloaded

    asyncio.run(scenario())
