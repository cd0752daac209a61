"""Models from the files of transformers to an answer and away again, with the real converter."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.cli.conftest import Shell
from tests.conftest import start
from tests.kernel.runtime import until
from tests.native.conftest import NOWHERE, Wire

pytestmark = [pytest.mark.convert, pytest.mark.timeout(1200)]

Json = dict[str, Any]
MakeModel = Callable[[str], Path]

PHASES = ["queued", "converting", "finalizing", "ready"]
ENDS = {"ready_to_load", "error", "cancelled"}
LLAMA = {"backend": "openvino-genai", "max_context_len": 256, "max_output_tokens": 32}
MINILM = {"backend": "openvino-embeddings", "max_output_tokens": 0}


@contextmanager
def serving(folder: Path, converter: Path) -> Generator[Wire]:
    """Run a server of a folder, which a later one may go on with, and the converter's python."""
    own = {
        "PEGBOARD_PLUGINS__OPTIMUM_INTEL__PYTHON": str(converter),
        "PEGBOARD_PLUGINS__HUB__KEYRING": "false",
        "HF_HOME": str(folder / "home"),
    }
    with ExitStack() as stack:
        server = start(folder, "--catalog", str(folder / "models.json"), env=NOWHERE | own)
        stack.callback(server.stop)
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=600))
        yield Wire(server, client, folder)


@pytest.fixture(scope="module")
def wire(converter: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Wire]:
    with serving(tmp_path_factory.mktemp("conversions"), converter) as served:
        yield served


def register(wire: Wire, model: str, source: Path, **fields: Any) -> None:
    wire.post(
        "/v1/models/register",
        model_id=model,
        name=model,
        source_model=str(source),
        recommended_device="CPU",
        **fields,
    )


def until_told(events: Iterator[Json], what: Callable[[Json], bool]) -> list[Json]:
    """Read events up to the first one of which something is true."""
    told: list[Json] = []
    # A frame without data says when to connect again.
    for data in (event["data"] for event in events if "data" in event):
        told.append(data)
        if what(data):
            break
    return told


def is_over(event: Json) -> bool:
    return event["type"] == "state" and event["data"]["state"] in ENDS


def tells(words: str, event: Json) -> bool:
    return words in event["message"]


def convert(wire: Wire, model: str, weight_format: str) -> None:
    """Convert a model and look at what the event stream tells of it."""
    with wire.events() as events:
        asked = {"model": model, "weight_format": weight_format, "load_after": False}
        begun = wire.post("/v1/models/convert", **asked)
        assert begun["status"] == "queued_convert"
        told = until_told(events, is_over)
    assert told[-1]["data"]["state"] == "ready_to_load", told[-1]["message"]
    steps = [event["data"]["progress"] for event in told if event["model"] == model]
    assert {step["operation_id"] for step in steps} == {begun["operation_id"]}
    phases = [step["phase"] for step in steps]
    assert list(dict.fromkeys(phases)) == PHASES
    assert phases == sorted(phases, key=PHASES.index)
    revisions = [event["data"]["revision"] for event in told]
    assert all(earlier < later for earlier, later in pairwise(revisions))
    percents = [step["percent"] for step in steps if step["percent"] is not None]
    assert percents == sorted(percents)
    assert percents[-1] == 100
    for event in told:
        assert str(wire.folder) not in json.dumps(event)
    assert wire.model(model)["weight_format"] == weight_format


def load(wire: Wire, model: str) -> Json:
    wire.post("/v1/models/load", model=model)
    return wire.wait(model, "loaded")


def made(wire: Wire, model: str) -> Json:
    """Read how the files of a model were made."""
    path = wire.folder / "data" / "models" / model / "pegboard-conversion.json"
    record: Json = json.loads(path.read_bytes())
    return record


def answer(wire: Wire, model: str) -> Json:
    asked: Json = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}
    said = wire.client.post("/v1/chat/completions", json=asked | {"model": model, "temperature": 0})
    assert said.status_code == 200, said.text
    found: Json = said.json()
    assert 1 <= found["usage"]["completion_tokens"] <= 8
    (choice,) = found["choices"]
    shown: Json = choice
    return shown


def embed(wire: Wire, model: str, *texts: str) -> list[list[float]]:
    said = wire.client.post("/v1/embeddings", json={"model": model, "input": texts})
    assert said.status_code == 200, said.text
    return [one["embedding"] for one in said.json()["data"]]


def closeness(vectors: list[list[float]]) -> tuple[float, float]:
    """Return how near the second and the third vector are to the first."""
    first, second, third = vectors
    assert len(first) == 384
    assert sum(number * number for number in first) == pytest.approx(1, abs=1e-3)
    return sum(map(float.__mul__, first, second)), sum(map(float.__mul__, first, third))


def remove(wire: Wire, model: str) -> None:
    """Unload a model, delete its files, then its entry."""
    wire.post("/v1/models/unload", model=model)
    assert wire.wait(model, "ready_to_load")["is_downloaded"]
    assert wire.post("/v1/models/delete", model=model)["freed_bytes"] > 0
    assert wire.model(model)["status"] == "not_downloaded"
    assert wire.client.delete(f"/v1/models/{model}").status_code == 200
    assert wire.catalogued(model) is None
    assert not list((wire.folder / "data" / "models").iterdir())


@pytest.mark.parametrize("weight_format", ["int8", "int4"])
def test_a_language_model_lives_over_http(
    wire: Wire, make_model: MakeModel, weight_format: str
) -> None:
    register(wire, "llama", make_model("llama"), **LLAMA)
    convert(wire, "llama", weight_format)
    # 96 channels are divided by 32 only, of the sizes that are tried.
    assert made(wire, "llama")["group_size"] == (32 if weight_format == "int4" else None)
    assert load(wire, "llama")["context_tokens"] == 256
    first = answer(wire, "llama")
    change = {"model": "llama", "context_tokens": 512, "expected_context_tokens": 256}
    assert wire.post("/v1/models/context", **change)["applies"] == "now"
    assert wire.model("llama")["context_tokens"] == 512
    assert answer(wire, "llama") == first
    remove(wire, "llama")


@pytest.mark.parametrize("weight_format", ["int8", "int4"])
def test_an_embedding_model_lives_over_http(
    wire: Wire, make_model: MakeModel, weight_format: str
) -> None:
    register(wire, "minilm", make_model("minilm"), **MINILM)
    convert(wire, "minilm", weight_format)
    load(wire, "minilm")
    texts = ["A cat sleeps.", "A kitten is asleep.", "Taxes are due in May."]
    near, far = closeness(embed(wire, "minilm", *texts))
    assert near > far + 0.2
    change: Json = {"model": "minilm", "context_tokens": 128, "expected_context_tokens": 256}
    wire.refused("/v1/models/context", 400, "context_not_configurable", **change)
    remove(wire, "minilm")


@pytest.fixture
def shell(wire: Wire, tmp_path: Path) -> Shell:
    environment = {name: value for name, value in os.environ.items() if name[:9] != "PEGBOARD_"}
    address = {"PEGBOARD_PORT": wire.server.url.rpartition(":")[2]}
    return Shell(tmp_path, environment | address, wire.server, seconds=600)


def test_a_language_model_lives_over_the_command_line(
    shell: Shell, wire: Wire, make_model: MakeModel
) -> None:
    options = ("--device", "CPU", "--weight-format", "int4", "--context", "256")
    ran = shell.run("models", "pull", str(make_model("llama")), "--id", "small", *options)
    assert ran.returncode == 0, ran.stderr
    for line in ("small: waiting\n", "small: converting 100%\n", "small: finishing\n"):
        assert line in ran.stderr
    shell.models("load", "small")
    shell.models("context", "small", "512")
    assert shell.state("small")["context_tokens"] == 512
    url = ("--url", wire.server.url)
    said = shell.run("chat", *url, "--model", "small", "--max-tokens", "8", stdin="hi\n")
    assert said.returncode == 0, said.stderr
    shell.models("unload", "small")
    shell.models("remove", "small")
    assert wire.catalogued("small") is None


def test_an_embedding_model_lives_over_the_command_line(
    shell: Shell, wire: Wire, make_model: MakeModel
) -> None:
    source = str(make_model("minilm"))
    options = ("--backend", "openvino-embeddings", "--device", "CPU")
    shell.models("register", "mini", source, *options)
    shell.models("convert", "mini", "--weight-format", "int8", "--load")
    assert shell.state("mini")["status"] == "loaded"
    (vector,) = embed(wire, "mini", "A cat sleeps.")
    assert len(vector) == 384
    shell.models("unload", "mini")
    shell.models("remove", "mini")
    assert wire.catalogued("mini") is None


def family(pid: int) -> list[psutil.Process]:
    server = psutil.Process(pid)
    return [server, *server.children(recursive=True)]


def has_children(pid: int) -> bool:
    return len(family(pid)) > 1


def ended(processes: list[psutil.Process]) -> bool:
    return not [one for one in processes if one.is_running() and one.status() != "zombie"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_server_leaves_the_old_model_or_none(
    converter: Path, make_model: MakeModel, tmp_path: Path
) -> None:
    """SIGKILL in three moments of a conversion; then the model is converted after all."""
    models = tmp_path / "data" / "models"
    with serving(tmp_path, converter) as wire:
        register(wire, "llama", make_model("llama"), **LLAMA)
    for moment in ("starting the converter", "tracing the model", "checking the new files"):
        with serving(tmp_path, converter) as wire:
            with wire.events() as events:
                wire.post("/v1/models/convert", model="llama", load_after=False)
                told = until_told(events, partial(tells, moment))
            assert moment in told[-1]["message"]
            # The first moment is told right before there is a process.
            asyncio.run(until(partial(has_children, wire.server.pid), 60))
            processes = family(wire.server.pid)
            assert wire.server.stop(signal.SIGKILL) == -signal.SIGKILL
            asyncio.run(until(partial(ended, processes), 60))
        with serving(tmp_path, converter) as wire:
            shown = wire.model("llama")
            assert shown["status"] in {"not_downloaded", "error"}
            assert not shown["is_downloaded"]
            assert not list(models.iterdir())
            assert "ended during the conversion of 'llama'" in wire.server.log()
    with serving(tmp_path, converter) as wire:
        convert(wire, "llama", "int8")
        load(wire, "llama")
        first = answer(wire, "llama")
        wire.post("/v1/models/unload", model="llama")
        wire.wait("llama", "ready_to_load")
        with wire.events() as events:
            asked = {"model": "llama", "weight_format": "int4", "load_after": False}
            wire.post("/v1/models/convert", **asked)
            until_told(events, partial(tells, "compressing weights"))
        wire.server.stop(signal.SIGKILL)
    with serving(tmp_path, converter) as wire:
        assert wire.model("llama")["weight_format"] == "int8"
        load(wire, "llama")
        assert answer(wire, "llama") == first
        assert [path.name for path in models.iterdir()] == ["llama"]
