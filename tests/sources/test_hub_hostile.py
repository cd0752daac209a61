"""A hub that lies: whatever it answers is a refusal in bounded time, and no file elsewhere."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pegboard_contracts.errors import ApiError
from pegboard_model_sources import _hub_download
from pegboard_model_sources._hub_cache import RepositoryCache
from pegboard_model_sources.hub import Hub

from tests.sources.conftest import MakeHub, refused
from tests.sources.hub_server import LLAMA, TOKEN, HubModel, HubServer, raw_answer

UNUSABLE = {"hub_unreachable", "hub_answer_unusable"}


def described(server: HubServer, **changes: Any) -> None:
    """Let the hub describe `owner/llama` in words of the test."""
    names = ("config.json", "tokenizer.json", "model.safetensors")
    answer = {"sha": "a" * 40, "siblings": [{"rfilename": name, "size": 2} for name in names]}
    server.api_body = json.dumps(answer | changes).encode()


def files_below(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


def both(source: Hub) -> list[ApiError]:
    return [refused(source, "owner/llama", fetch=fetch) for fetch in (False, True)]


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "/",
        "/etc/passwd.json",
        "../evil.json",
        "a/../../evil.json",
        "..\\evil.json",
        "\\\\host\\share\\evil.json",
        "C:\\evil.json",
        "C:evil.json",
        "./evil.json",
        "a//evil.json",
        "con.json",
        "evil /x.json",
        "evil./x.json",
        "evil?.json",
        "evil\n.json",
        "evil\x00.json",
        "x" * 240 + ".json",
        "ü" * 120 + ".json",
        "a/" * 250 + "evil.json",
    ],
)
def test_c88_no_name_of_a_file_leads_elsewhere(
    server: HubServer, source: Hub, hub_home: Path, name: str
) -> None:
    server.models["owner/llama"] = HubModel(dict(LLAMA) | {name: b"{}"})
    for error in both(source):
        assert (error.status, error.code) == (502, "hub_answer_unusable")
        assert "evil" not in error.message
    assert not [n for n in files_below(hub_home.parent) if "evil" in n or "passwd" in n]


@pytest.mark.parametrize("name", ["pictures/what?.png", "runs/Jan01_12:00/events", "aux.md"])
def test_odd_names_that_are_not_fetched_hinder_nobody(
    server: HubServer, source: Hub, name: str
) -> None:
    server.models["owner/llama"] = HubModel(dict(LLAMA) | {name: b"{}"})
    assert source.fetch("owner/llama", lambda _: None).is_dir()


@pytest.mark.parametrize(
    "names", [["config.json/x.json"], ["Config.json"], ["a.json", "a.json/b/c.json"]]
)
def test_names_that_cannot_lie_side_by_side_are_refused(
    server: HubServer, source: Hub, names: list[str]
) -> None:
    server.models["owner/llama"] = HubModel(dict(LLAMA) | dict.fromkeys(names, b"{}"))
    assert {error.code for error in both(source)} == {"hub_answer_unusable"}


def test_the_same_name_twice_is_refused(server: HubServer, source: Hub) -> None:
    twice = [{"rfilename": "config.json", "size": size} for size in (2, 3)]
    described(server, siblings=[*twice, {"rfilename": "model.safetensors", "size": 2}])
    assert {error.code for error in both(source)} == {"hub_answer_unusable"}


@pytest.mark.parametrize(
    "changes",
    [
        {"sha": None},
        {"sha": "../../evil"},
        {"sha": "A" * 40},
        {"siblings": None},
        {"siblings": {}},
        {"siblings": [None]},
        {"siblings": [{"rfilename": 7}]},
        {"siblings": [{"rfilename": "config.json", "size": -1}]},
        {"siblings": [{"rfilename": "config.json", "size": 1 << 80}]},
        {"siblings": [{"rfilename": "config.json", "size": 1e300}]},
        {"siblings": [{"rfilename": "config.json", "size": True}]},
        {"siblings": [{"rfilename": "config.json", "blobId": "../../evil"}]},
        {"siblings": [{"rfilename": "config.json", "lfs": {"sha256": "../evil", "size": 2}}]},
        {"siblings": [{"rfilename": "config.json", "lfs": {"sha256": "f" * 64, "size": -2}}]},
        {"cardData": ["mit"]},
        {"tags": "mit"},
    ],
)
def test_an_answer_of_another_form_is_a_502(
    server: HubServer, source: Hub, changes: dict[str, Any]
) -> None:
    described(server, **changes)
    assert {(e.status, e.code) for e in both(source)} == {(502, "hub_unreachable")}


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{}", b"\xff\xfe", b'"', b"[" * 200_000, b"1" * 200_000, b'{"sha":'],
)
def test_an_answer_that_is_no_object_is_a_502(server: HubServer, source: Hub, body: bytes) -> None:
    server.takeover = lambda handler: raw_answer(handler, "200 OK", body)
    assert {(e.status, e.code) for e in both(source)} == {(502, "hub_unreachable")}


def test_another_commit_than_the_one_asked_for_is_a_502(server: HubServer, source: Hub) -> None:
    described(server)
    error = refused(source, f"owner/llama@{'c' * 40}")
    assert (error.status, error.code) == (502, "hub_unreachable")
    assert "another commit" in error.message


def test_facts_of_a_stranger_can_be_shown(server: HubServer, source: Hub) -> None:
    described(
        server,
        siblings=[{"rfilename": f"{n}.json", "size": 1 << 50} for n in range(4000)]
        + [{"rfilename": name, "size": 1} for name in ("config.json", "model.safetensors")],
        cardData={"license": "mit\u202e\x1b[31m\n" + "x" * 5000},
    )
    error = refused(source, "owner/llama", fetch=False)
    assert (error.status, error.code) == (507, "insufficient_disk")
    described(server, cardData={"license": "mit\u202e\x1b[31m\n" + "x" * 5000})
    facts = source.preflight("owner/llama")
    assert facts.license is not None
    assert facts.license.isprintable()
    assert len(facts.license) <= 200
    assert msgspec.json.encode(facts)


def test_a_repository_of_countless_files_is_refused(
    server: HubServer, make_hub: MakeHub, hub_home: Path
) -> None:
    source, _ = make_hub(timeout=60.0)
    more = [{"rfilename": f"{number}.json", "size": 1} for number in range(100_000)]
    described(server, siblings=[*more, {"rfilename": "model.safetensors", "size": 1}])
    assert {error.code for error in both(source)} == {"hf_no_model_files"}
    described(
        server,
        siblings=[*more, *({"rfilename": n} for n in ("config.json", "model.safetensors"))],
    )
    assert {error.code for error in both(source)} == {"hub_answer_unusable"}
    assert not files_below(hub_home)


def endless(handler: BaseHTTPRequestHandler, piece: bytes, pause: float = 0.0) -> bool:
    """Send pieces until the other side goes away."""
    handler.close_connection = True
    try:
        while True:
            handler.wfile.write(piece)
            handler.wfile.flush()
            time.sleep(pause)
    except OSError:
        return True


def most_memory() -> int:
    """Return the most that this process has used, in KiB."""
    resource = pytest.importorskip("resource")
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def test_an_endless_answer_takes_little_memory(server: HubServer, make_hub: MakeHub) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> bool:
        raw_answer(handler, "200 OK\nContent-Length: 10000000000")
        return endless(handler, b" " * 65536)

    server.takeover = answer
    source, _ = make_hub(timeout=60.0)
    before = most_memory()
    errors = both(source)
    assert {(e.status, e.code) for e in errors} == {(502, "hub_unreachable")}
    assert all("larger" in error.message for error in errors)
    assert most_memory() - before < 300_000


def test_a_packed_answer_takes_little_memory(server: HubServer, make_hub: MakeHub) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b" " * (1 << 20)) for _ in range(400)) + packer.flush()
    head = f"200 OK\nContent-Encoding: gzip\nContent-Length: {len(bomb)}"
    server.takeover = lambda handler: raw_answer(handler, head, bomb)
    source, _ = make_hub(timeout=60.0)
    before = most_memory()
    assert {(e.status, e.code) for e in both(source)} == {(502, "hub_unreachable")}
    assert most_memory() - before < 300_000


def test_an_answer_in_drops_is_given_up_and_nobody_listens_on(
    server: HubServer, make_hub: MakeHub
) -> None:
    ended: list[float] = []

    def answer(handler: BaseHTTPRequestHandler) -> bool:
        raw_answer(handler, "200 OK\nContent-Length: 1000000")
        endless(handler, b" ", 0.05)
        ended.append(time.monotonic())
        return True

    server.takeover = answer
    source, _ = make_hub(timeout=0.5)
    begun = time.monotonic()
    error = refused(source, "owner/llama", fetch=False)
    assert (error.status, error.code) == (502, "hub_unreachable")
    assert time.monotonic() - begun < 10
    while not ended:
        assert time.monotonic() - begun < 20, "the connection stays open"
        time.sleep(0.01)


def redirect(server: HubServer, place: Callable[[str], str]) -> None:
    server.takeover = lambda handler: raw_answer(
        handler, f"302 Found\nLocation: {place(handler.path)}\nContent-Length: 0"
    )


@pytest.mark.parametrize(
    "place", ["{path}", "file:///etc/passwd", "ftp://127.0.0.1/", "http://", "http://[", "", "\x7f"]
)
@pytest.mark.usefixtures("quick")
def test_redirects_that_lead_nowhere_end(
    server: HubServer,
    llama: HubModel,
    source: Hub,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    del llama
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    redirect(server, lambda path: place.format(path=path))
    for error in both(source):
        assert (error.status, error.code) == (502, "hub_unreachable")
        assert TOKEN not in error.message
    whole = server.takeover
    assert whole is not None
    server.takeover = lambda handler: "/resolve/" in handler.path and whole(handler)
    error = refused(source, "owner/llama")
    assert (error.status, error.code) in {(502, "hub_unreachable"), (502, "download_corrupt")}


@pytest.mark.usefixtures("llama")
def test_another_host_never_sees_the_token(
    server: HubServer, source: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)

    def answer(handler: BaseHTTPRequestHandler) -> bool:
        if handler.connection.getsockname()[1] != server.port:
            return False
        place = f"http://localhost:{server.storage_port}{handler.path}"
        return raw_answer(handler, f"307 Temporary Redirect\nLocation: {place}\nContent-Length: 0")

    server.takeover = answer
    assert source.fetch("owner/llama", lambda _: None).is_dir()
    stored = [seen for seen in server.seen if seen.port == server.storage_port]
    assert {seen.path.split("/")[1] for seen in stored} >= {"api", "owner"}
    assert all("authorization" not in seen.headers for seen in stored)


@pytest.mark.parametrize(
    "head",
    [
        "200 OK\nContent-Length: 10000000000",
        "200 OK\nContent-Length: -1",
        "200 OK\nContent-Length: 7\nContent-Length: 8",
        "200 OK\nTransfer-Encoding: chunked",
        "200 OK\nContent-Encoding: gzip",
        "206 Partial Content\nContent-Range: bytes 0-",
        "206 Partial Content\nContent-Range: bytes 99-100/101\nContent-Length: 2",
        "204 No Content",
        "304 Not Modified",
        "416 Range Not Satisfiable",
        "418 I am a teapot",
        "451 Unavailable",
        "600 What",
        "429 Too Many\nRetry-After: \u00b2",
        "503 Busy\nRetry-After: Fri, 99 Xxx 0000 99:99:99 GMT",
        "503 Busy\nRetry-After: -1",
    ],
)
@pytest.mark.usefixtures("quick", "llama")
def test_a_file_that_comes_wrong_is_refused(
    server: HubServer, make_hub: MakeHub, hub_home: Path, head: str
) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> bool:
        if "/resolve/" not in handler.path:
            return False
        raw_answer(handler, head, b"x" * 4096)
        if "10000000000" in head:
            endless(handler, b"x" * 65536)
        return True

    server.takeover = answer
    source, _ = make_hub(timeout=2.0)
    error = refused(source, "owner/llama")
    assert error.status in {409, 502}
    assert error.code is not None
    with pytest.raises(ApiError) as caught:
        source.resolve("owner/llama")
    assert caught.value.code == "model_not_downloaded"
    whole = sum(path.stat().st_size for path in hub_home.rglob("*") if path.is_file())
    assert whole < 100_000
    server.takeover = None
    assert source.fetch("owner/llama", lambda _: None).is_dir()


def test_a_file_without_a_size_does_not_fill_the_disk(
    server: HubServer, make_hub: MakeHub, hub_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described(server, siblings=[{"rfilename": "x.Q8_0.gguf"}])

    def answer(handler: BaseHTTPRequestHandler) -> bool:
        if "/resolve/" not in handler.path:
            return False
        raw_answer(handler, "200 OK")
        return endless(handler, b"x" * 65536)

    server.takeover = answer
    # A disk with room for some of it; a real one would have to be filled.
    monkeypatch.setattr(_hub_download, "_LOOK_EVERY", 1 << 20)
    free = iter([1 << 40, 1 << 40, 1 << 20])

    def free_bytes(_: RepositoryCache) -> int:
        return next(free)

    monkeypatch.setattr(RepositoryCache, "free_bytes", free_bytes)
    error = refused(make_hub()[0], "owner/llama")
    assert (error.status, error.code) == (507, "insufficient_disk")
    assert sum(p.stat().st_size for p in hub_home.rglob("*") if p.is_file()) < 5 << 20


def test_a_damaged_link_removes_nothing_outside_the_cache(
    server: HubServer, llama: HubModel, source: Hub, tmp_path: Path
) -> None:
    folder = source.fetch("owner/llama", lambda _: None)
    mine = tmp_path / "mine.json"
    mine.write_text("what I wrote myself")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(mine)
    assert source.fetch("owner/llama", lambda _: None) == folder
    assert (folder / "config.json").read_bytes() == llama.files["config.json"]
    assert mine.read_text() == "what I wrote myself"
    del server


def test_a_revision_that_is_the_folder_of_another_is_told(
    server: HubServer, llama: HubModel, source: Hub
) -> None:
    source.fetch("owner/llama", lambda _: None)
    names = [{"rfilename": name} | llama.described(name) for name in llama.files]
    answer = {"sha": llama.commit, "siblings": names}
    server.api_body = json.dumps(answer).encode()
    error = refused(source, "owner/llama@main/more")
    assert (error.status, error.code) == (409, "hub_revision_conflict")
    assert llama.commit in error.message
    assert source.fetch(f"owner/llama@{llama.commit}", lambda _: None).is_dir()
