"""The catalogue file, `--model` specs, and the states of a model's record."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import OutputFormat
from pegboard_contracts.models import ModelEntry, ModelState
from pegboard_kernel.models.catalogue import read_catalogue
from pegboard_kernel.models.directory import Directory
from pegboard_kernel.models.lifecycle import Lifecycle
from pegboard_kernel.models.record import TRANSITIONS, ModelRecord
from pegboard_kernel.models.specs import SpecError, entry_of_spec
from pegboard_kernel.settings import Settings

from tests.kernel.runtime import MODEL, board, models, request, serving, until


def catalogue(folder: Path, *models: object, **changes: object) -> Path:
    path = folder / "models.json"
    path.write_text(json.dumps({"schema_version": 1, "models": models} | changes))
    return path


def scripted(folder: Path, name: str, **script: Any) -> str:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(script))
    return f"scripted:{path}"


def server(folder: Path, **settings: Any) -> tuple[Directory, Lifecycle]:
    made = Settings.model_validate({"data_dir": folder} | settings)
    one, lifecycle = models(made, board())
    lifecycle.register_specs()
    return one, lifecycle


def test_a_bad_entry_costs_only_itself(tmp_path: Path) -> None:
    good = {"id": "good", "source_model": "scripted:x.json", "name": None, "extra": 1}
    path = catalogue(
        tmp_path,
        good,
        {"id": "no-source"},
        {"id": "../up", "source_model": "x"},
        {"id": "GOOD", "source_model": "x"},
        {"id": "nul", "source_model": "x"},
        {"id": "other", "source_model": "x", "aliases": ["a/b"]},
        {"id": "third", "source_model": "x", "aliases": ["a/b"]},
        {"id": "long", "source_model": "x", "max_context_len": 0},
        "text",
    )
    read = read_catalogue(path, default_device="CPU.7")
    assert [entry.id for entry in read.entries] == ["good", "other"]
    assert read.entries[0].recommended_device == "CPU.7"
    assert [fault.split()[1] for fault in read.faults] == ["1", "2", "3", "4", "6", "7", "8"]
    assert read.document is not None
    assert read.document["models"][0]["extra"] == 1
    assert len(read.document["models"]) == 9


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"models": []}', '{"schema_version": 1}', "\udcff", "[" * 9999]
)
def test_a_corrupt_catalogue_is_reported_and_not_to_be_overwritten(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "models.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    read = read_catalogue(path, default_device="CPU")
    assert (read.entries, read.document, len(read.faults)) == ([], None, 1)
    assert str(tmp_path) not in read.faults[0]


def test_no_catalogue_is_an_empty_one(tmp_path: Path) -> None:
    read = read_catalogue(tmp_path / "models.json", default_device="CPU")
    assert (read.entries, read.faults) == ([], [])
    assert read.document == {"schema_version": 1, "models": []}


def test_specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "Smol Model.Q4.gguf"
    file.touch()
    (tmp_path / "ir").mkdir()
    (tmp_path / "a=b").mkdir()
    known = [ModelEntry(id="known", source_model="scripted:known.json", aliases=("org/known",))]

    def entry(spec: str) -> ModelEntry:
        return entry_of_spec(spec, board(), known, default_device="CPU")

    assert entry("known") is entry("org/known") is entry("scripted:known.json") is known[0]
    assert entry(str(file)).id == "Smol-Model.Q4"
    assert entry("./ir").id == "ir"
    assert entry("ir").source_model == str(tmp_path / "ir")
    assert entry("a=b").id == "a-b"
    assert entry(f"mine={file}").id == "mine"
    assert entry(f"mine={file}").backend == "openvino-genai"
    assert entry("two=known").source_model == "scripted:known.json"
    assert entry("scripted:other.json").backend == "scripted"
    assert entry("gone.gguf").source_model == "gone.gguf"
    for spec in (
        "nobody",
        "hf:owner/repo",
        "package:x/y",
        "known=./ir",
        "aux=./ir",
        "auto=./ir",
        "",
    ):
        with pytest.raises(SpecError):
            entry(spec)


def test_an_unknown_spec_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"--model hf:owner/repo: .*'hf:'"):
        server(tmp_path, models=("hf:owner/repo",))


def test_records_move_along_legal_transitions_only() -> None:
    assert set(TRANSITIONS) == set(ModelState)
    record = ModelRecord(ModelEntry(id="m", source_model="x"))
    walk = (ModelState.LOADING, ModelState.ERROR, ModelState.LOADING, ModelState.LOADED)
    revisions = [record.view().revision]
    for state in walk:
        record.move(state)
        revisions.append(record.view().revision)
    assert all(earlier < later for earlier, later in pairwise(revisions))
    with pytest.raises(RuntimeError):
        record.move(ModelState.QUEUED)
    assert record.state is ModelState.LOADED


def test_a_failed_load_is_an_error_and_leaves_the_rest(tmp_path: Path) -> None:
    bad = scripted(tmp_path, "bad", load_error="The disk is full.")
    good = scripted(tmp_path, "good")

    async def scenario() -> None:
        one, lifecycle = server(tmp_path, models=(bad, "gone.gguf", good))
        try:
            await lifecycle.start()
            views = {view.entry.id: view for view in one.models()}
            assert views["bad"].state is ModelState.ERROR
            assert views["bad"].error == "The disk is full."
            assert views["gone"].state is ModelState.ERROR
            assert views["good"].state is ModelState.LOADED
            assert views["good"].context_tokens == 4096
            with pytest.raises(ApiError, match="disk"):
                await one.load("bad")
        finally:
            await lifecycle.close()

    asyncio.run(scenario())


def test_the_catalogue_starts_what_it_marks_and_aliases_name_it(tmp_path: Path) -> None:
    first, second = scripted(tmp_path, "first"), scripted(tmp_path, "second")
    common = {"backend": "scripted"}
    catalogue(
        tmp_path,
        {"id": "first", "source_model": first, "autostart": True, "aliases": ["gpt-4o"]} | common,
        {"id": "second", "source_model": second} | common,
    )

    async def scenario() -> None:
        one, lifecycle = server(tmp_path)
        try:
            await lifecycle.start()
            assert [view.state for view in one.models()] == [
                ModelState.LOADED,
                ModelState.READY_TO_LOAD,
            ]
            assert one.find("gpt-4o") == one.find("first")
            assert one.find("auto") is None
            assert one.record("auto").entry.id == "first"
        finally:
            await lifecycle.close()

    asyncio.run(scenario())


def test_requests_to_what_is_not_loaded(tmp_path: Path) -> None:
    source = scripted(tmp_path, "slow", load_delay_ms=700)
    catalogue(tmp_path, {"id": "slow", "source_model": source, "backend": "scripted"})

    async def scenario() -> None:
        one, lifecycle = server(tmp_path)
        record = one.record("slow")
        codes: list[str | None] = []

        async def note() -> None:
            with pytest.raises(ApiError) as caught:
                await one.serving(record)
            codes.append(caught.value.code)

        try:
            with pytest.raises(ApiError) as caught:
                one.record("auto")
            assert (caught.value.status, caught.value.code) == (503, "no_model_loaded")
            await note()
            loading = asyncio.create_task(one.load("slow"))
            await asyncio.sleep(0)
            await note()
            with pytest.raises(ApiError) as caught:
                await one.load("slow")
            assert (caught.value.status, caught.value.code) == (409, "model_loading")
            assert (await loading).state is ModelState.LOADED
            assert codes == ["model_not_loaded", "model_loading"]
        finally:
            await lifecycle.close()

    asyncio.run(scenario())


def test_autoload_loads_once_and_only_for_what_can_be_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {}, autoload=True) as runtime:
            await runtime.directory.unload(MODEL)
            revision = runtime.directory.models()[0].revision
            with pytest.raises(ApiError):
                await runtime.ask("hello", output_format=OutputFormat(kind="nothing"))
            assert runtime.directory.models()[0].revision == revision
            heard = await asyncio.gather(*(runtime.ask(f"hello {n}") for n in range(5)))
            assert [one.text for one in heard] == [f"hello {n}" for n in range(5)]
            assert runtime.directory.models()[0].revision == revision + 2

    asyncio.run(scenario())


def test_as_many_models_as_may(tmp_path: Path) -> None:
    first, second = scripted(tmp_path, "first"), scripted(tmp_path, "second")

    async def scenario() -> None:
        one, lifecycle = server(tmp_path, models=(first, second), max_loaded_models=1)
        try:
            await lifecycle.start()
            with pytest.raises(ApiError) as caught:
                await one.load("second")
            assert caught.value.code == "too_many_models"
            await one.unload("first")
            assert (await one.load("second")).state is ModelState.LOADED
        finally:
            await lifecycle.close()

    asyncio.run(scenario())


def test_a_model_of_another_kind_generates_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {"embedding": {"dimensions": 8}}) as runtime:
            with pytest.raises(ApiError) as caught:
                await anext(runtime.generator.generate(request("hello")))
            assert (caught.value.status, caught.value.code) == (400, "model_kind_mismatch")

    asyncio.run(scenario())


def test_a_closed_directory_leaves_no_load_behind(tmp_path: Path) -> None:
    source = scripted(tmp_path, "slow", load_delay_ms=60000)

    async def scenario() -> None:
        one, lifecycle = server(tmp_path, models=(source,))
        starting = asyncio.create_task(lifecycle.start())
        await until(lambda: one.models()[0].state is ModelState.LOADING)
        await asyncio.wait_for(lifecycle.close(), 10)
        await asyncio.wait_for(starting, 10)
        assert one.models()[0].state is ModelState.READY_TO_LOAD

    asyncio.run(scenario())
