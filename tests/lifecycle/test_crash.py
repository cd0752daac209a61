"""A server that is killed at any moment: the next one finds old files or new ones, and says so."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from filelock import FileLock

from tests.conftest import RunningServer, start

Json = dict[str, Any]
IDS = ("one", "two")
PHASES = ("downloading", "converting", "finalizing")
LATEST = 1.5
"""Seconds within which a verb that is not aimed at a phase is cut."""


class Home:
    """Be a data folder through the lives of its servers."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.data, self.chance = folder, folder / "data", chance
        self.version = 0
        self.interrupted = 0
        self.aims = itertools.cycle((*PHASES, None, *PHASES, "ready"))
        self.registered: set[str] = set()
        for model in IDS:
            self.write(model)
        models = [self.entry(model) for model in IDS]
        self.data.mkdir()
        document = {"schema_version": 1, "of": "the operator", "models": models}
        (self.data / "models.json").write_text(json.dumps(document))
        self.server: RunningServer = start(folder)

    def entry(self, model: str) -> Json:
        source = f"scripted:{self.folder / f'{model}.json'}"
        known = {"id": model, "backend": "scripted", "source_model": source}
        return known | {"max_context_len": 1024, "mine": {"kept": model}}

    def write(self, model: str) -> None:
        """Write the next version of a script, which a conversion copies whole."""
        self.version += 1
        script = {
            "context_tokens": 8192,
            "convert_phases": [[phase, 1000] for phase in PHASES],
            "rules": [{"match": f"v{self.version}", "pieces": ["x" * 50_000]}],
        }
        (self.folder / "part").write_text(json.dumps(script))
        (self.folder / "part").rename(self.folder / f"{model}.json")

    def ask(self, method: str, path: str, **body: Any) -> httpx.Response:
        return httpx.request(method, self.server.url + path, json=body or None, timeout=60)

    def send(self, method: str, path: str, **body: Any) -> None:
        """Ask, and expect that the server may not live to answer."""

        def asked() -> None:
            with contextlib.suppress(httpx.HTTPError):
                self.ask(method, path, **body)

        threading.Thread(target=asked, daemon=True).start()

    def model(self, model: str) -> Json:
        models: list[Json] = self.ask("GET", "/v1/models/status").json()["models"]["available"]
        return next(shown for shown in models if shown["id"] == model)

    def phase(self, model: str) -> str | None:
        progress: Json = self.model(model)["progress"] or {}
        found: str | None = progress.get("phase")
        return found

    def result(self, model: str) -> bytes | None:
        """Return what the model's own folder holds; a folder that is not whole is a failure."""
        folder = self.data / "models" / model
        if not folder.exists():
            return None
        assert [path.name for path in folder.iterdir()] == ["script.json"]
        return (folder / "script.json").read_bytes()

    def catalogue(self) -> dict[str, Json]:
        document = json.loads((self.data / "models.json").read_text())
        assert document["of"] == "the operator"
        return {entry["id"]: entry for entry in document["models"]}

    def kill(self) -> list[Json]:
        """End the server without a word; return the notes that it left of its work."""
        family = psutil.Process(self.server.pid).children(recursive=True)
        self.server.process.send_signal(signal.SIGKILL)
        self.server.process.wait(30)
        _, alive = psutil.wait_procs(family, timeout=20)
        assert alive == [], "no process outlives the server"
        notes = (self.data / "operations").glob("[!.]*.json")
        return [json.loads(path.read_bytes()) for path in notes]


def convert(home: Home, model: str) -> None:
    home.write(model)
    home.send("POST", "/v1/models/convert", model=model, load_after=False)
    if (phase := next(home.aims)) is None:
        return
    end = time.monotonic() + 60
    while home.phase(model) not in (phase, "ready"):
        assert time.monotonic() < end


def register(home: Home, model: str) -> None:
    name = f"new{home.version}-{len(home.registered)}"
    home.registered.add(name)
    source = home.entry(model)["source_model"]
    body = {"model_id": name, "source_model": source, "backend": "scripted"}
    home.send("POST", "/v1/models/register", **body)


def change_context(home: Home, model: str) -> None:
    if home.chance.random() < 0.5:
        home.ask("POST", "/v1/models/load", model=model)
    before = home.catalogue()[model]["max_context_len"]
    wanted = {"context_tokens": 3072 - before, "expected_context_tokens": before}
    home.send("POST", "/v1/models/context", model=model, **wanted)


def delete(home: Home, model: str) -> None:
    home.send("POST", "/v1/models/delete", model=model)


VERBS: tuple[Callable[[Home, str], None], ...] = (
    convert,
    register,
    convert,
    change_context,
    convert,
    delete,
)


def cut(home: Home, verb: Callable[[Home, str], None], model: str) -> None:
    """Kill the server in the middle of a verb, start the next one, and look at everything."""
    before, whole = home.catalogue(), {one: home.result(one) for one in IDS}
    verb(home, model)
    time.sleep(home.chance.uniform(0.0, LATEST if verb is not convert else 0.3))
    notes = home.kill()
    home.interrupted += len(notes)
    home.server = start(home.folder)
    after = home.catalogue()
    assert set(before) <= set(after) <= set(before) | home.registered
    for one in IDS:
        assert after[one]["mine"] == {"kept": one}
        assert after[one]["max_context_len"] in (1024, 2048)
        allowed = {whole[one]}
        if one == model and verb is convert:
            allowed.add((home.folder / f"{one}.json").read_bytes())
        if one == model and verb is delete:
            allowed.add(None)
        assert home.result(one) in allowed, "old or new, never half"
    check_nothing_is_left(home)
    check_it_was_told(home, notes)


def check_nothing_is_left(home: Home) -> None:
    for name in ("models", "operations", "engines"):
        if (home.data / name).exists():
            left = {path.name for path in (home.data / name).iterdir()}
            assert left <= {*IDS, *home.registered}
    for lock in [home.data / "models.json.lock", *(home.data / "locks").glob("*")]:
        with FileLock(lock, timeout=5):
            pass
    assert "is not used" not in home.server.log(), "every entry of the catalogue is understood"
    budget = home.ask("GET", "/v1/models/context?model=one").json()
    configured = budget["configured_context_tokens"]
    wanted = {"context_tokens": 3072 - configured, "expected_context_tokens": configured}
    answer = home.ask("POST", "/v1/models/context", model="one", **wanted)
    assert answer.status_code == 200, answer.text


def check_it_was_told(home: Home, notes: list[Json]) -> None:
    events: list[Json] = home.ask("GET", "/v1/system/status").json()["events"]
    for note in notes:
        told = [event for event in events if event["type"] == "notice"]
        (said,) = [event for event in told if event["model"] == note["model"]]
        assert "The server ended" in said["message"]
        assert re.search(f"The server ended .*'{note['model']}'", home.server.log())
        if note["step"] != "replacing":
            assert "The server ended" in home.model(note["model"])["error"]


def lives(folder: Path, cuts: int, seed: int) -> None:
    home = Home(folder, random.Random(seed))  # noqa: S311 - for moments, not for secrets
    try:
        for number in range(cuts):
            cut(home, VERBS[number % len(VERBS)], home.chance.choice(IDS))
        assert home.interrupted > 0, "some were cut in the middle of a conversion"
        for model in IDS:
            home.write(model)
            home.ask("POST", "/v1/models/convert", model=model, load_after=True)
            end = time.monotonic() + 60
            while home.model(model)["status"] != "loaded":
                assert time.monotonic() < end
            assert home.result(model) == (home.folder / f"{model}.json").read_bytes()
        assert home.server.stop() == 0
    finally:
        home.server.stop(signal.SIGKILL)


@pytest.mark.timeout(900)
def test_edge_65_eight_kills_lose_nothing(tmp_path: Path) -> None:
    lives(tmp_path, 8, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_edge_65_fifty_kills_lose_nothing(tmp_path: Path) -> None:
    lives(tmp_path, 50, seed=2)
