from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import keyring.backend
import keyring.backends.fail
import msgspec
import pytest
from pegboard_contracts.errors import ApiError
from pegboard_contracts.hub import ModelHub
from pegboard_model_sources.hub import Hub

from tests.sources.conftest import MakeHub
from tests.sources.hub_server import SIGNATURE, STRANGER, TOKEN, HubModel, HubServer

UNKNOWN = "hf_" + "NobodyKnowsThis1"


class MemoryKeyring(keyring.backend.KeyringBackend):
    """Be a keyring of a desktop; `mood` is what it does instead of answering."""

    priority = 1.0  # pyright: ignore[reportAssignmentType] - their recipe

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # theirs
        self.entries: dict[tuple[str, str], str] = {}
        self.mood = ""
        self.awake = threading.Event()

    def _answer(self) -> None:
        if self.mood == "hangs":
            self.awake.wait(60)
        if self.mood == "raises":
            raise RuntimeError(f"locked: {self.entries}")

    def get_password(self, service: str, username: str) -> str | None:
        self._answer()
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._answer()
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._answer()
        del self.entries[service, username]


@pytest.fixture
def desktop() -> Iterator[MemoryKeyring]:
    before = keyring.get_keyring()
    ring = MemoryKeyring()
    keyring.set_keyring(ring)
    yield ring
    ring.awake.set()
    keyring.set_keyring(before)


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def refused(coroutine: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        run(coroutine)
    return caught.value


def everything_below(folder: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


@pytest.mark.usefixtures("server")
def test_a_token_is_verified_then_kept_in_a_file_of_its_own(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    hub, service = make_hub()
    assert service.status().status == "not_configured"
    status = run(service.set_token(TOKEN))
    assert (status.status, status.username, status.source) == ("connected", "somebody", "file")
    assert (status.persistence, status.removable) == ("file", True)
    assert status.last_checked is not None
    assert abs(status.last_checked - time.time()) < 60
    file = tmp_path / "data" / "huggingface" / "token"
    assert file.read_text() == TOKEN
    if os.name != "nt":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert hub.child_environment() == {"HF_TOKEN": TOKEN}
    _, later = make_hub()
    assert later.status() == status
    assert run(later.remove_token()) == (later.status(), True)
    assert later.status().status == "not_configured"
    assert TOKEN not in everything_below(tmp_path / "data")
    assert run(later.remove_token())[1] is False


@pytest.mark.parametrize(
    "token",
    ["", "hf_short", "hf_" + "x" * 501, "sk-0123456789012", f"{TOKEN}\n", f" {TOKEN}", "hf_ü" * 9],
)
def test_what_is_no_token_is_sent_nowhere(server: HubServer, make_hub: MakeHub, token: str) -> None:
    error = refused(make_hub()[1].set_token(token))
    assert (error.status, error.code, error.param) == (400, "hf_token_invalid", "token")
    assert not token or token not in error.message
    assert server.seen == []


def test_a_token_that_the_hub_refuses_is_not_kept(
    server: HubServer, make_hub: MakeHub, tmp_path: Path
) -> None:
    _, service = make_hub()
    run(service.set_token(TOKEN))
    error = refused(service.set_token(UNKNOWN))
    assert (error.status, error.code) == (400, "hf_token_invalid")
    assert service.status().username == "somebody"
    server.api_status = 429
    assert refused(service.set_token(STRANGER)).code == "hf_rate_limited"
    server.api_status = 503
    assert refused(service.set_token(STRANGER)).code == "hub_unreachable"
    assert (tmp_path / "data" / "huggingface" / "token").read_text() == TOKEN


def test_a_revoked_token_is_told_and_stays(server: HubServer, make_hub: MakeHub) -> None:
    _, service = make_hub()
    run(service.set_token(TOKEN))
    name = server.accounts.pop(TOKEN)
    assert run(service.test()).status == "invalid_token"
    server.accounts[TOKEN] = name
    assert run(service.test()).status == "connected"
    server.api_status = 429
    assert run(service.test()).status == "rate_limited"
    server.api_status = 500
    assert refused(service.test()).code == "hub_unreachable"
    status = service.status()
    assert (status.status, status.username, status.configured) == (
        "network_error",
        "somebody",
        True,
    )


def test_an_environments_token_is_used_and_never_removed(
    server: HubServer, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, service = make_hub()
    monkeypatch.setenv("HUGGING_FACE_HUB_TOKEN", STRANGER)
    status = service.status()
    assert (status.status, status.source, status.removable) == ("unverified", "environment", False)
    assert run(service.test()).username == "stranger"
    assert run(service.remove_token())[1] is False
    assert service.status().configured
    assert hub.child_environment() == {"HF_TOKEN": STRANGER}
    # A stored one comes first.
    run(service.set_token(TOKEN))
    assert service.status().username == "somebody"
    assert hub.child_environment() == {"HF_TOKEN": TOKEN}
    assert server.seen[-1].headers["authorization"] == f"Bearer {TOKEN}"
    status, removed = run(service.remove_token())
    assert removed
    assert (status.source, status.username) == ("environment", "stranger")


def test_the_login_of_the_hubs_own_tools_counts_as_environment(
    make_hub: MakeHub, hub_home: Path
) -> None:
    hub_home.mkdir()
    (hub_home / "token").write_text(f"{STRANGER}\n")
    hub, service = make_hub()
    assert service.status().source == "environment"
    assert hub.child_environment() == {"HF_TOKEN": STRANGER}


@pytest.mark.usefixtures("server")
def test_a_keyring_is_preferred(make_hub: MakeHub, tmp_path: Path, desktop: MemoryKeyring) -> None:
    hub, service = make_hub(keyring=True)
    status = run(service.set_token(TOKEN))
    assert (status.source, status.persistence) == ("secure_store", "keyring")
    assert [service for service, _ in desktop.entries] == ["pegboard"]
    assert TOKEN not in everything_below(tmp_path / "data")
    later, _ = make_hub(keyring=True)
    assert later.child_environment() == {"HF_TOKEN": TOKEN}
    run(service.set_token(STRANGER))
    assert list(desktop.entries.values()) == [STRANGER]
    assert run(service.remove_token())[1] is True
    assert desktop.entries == {}
    assert hub.child_environment() == {}


@pytest.mark.parametrize("mood", ["hangs", "raises"])
@pytest.mark.usefixtures("server")
def test_a_keyring_that_does_not_answer_costs_bounded_time(
    make_hub: MakeHub, tmp_path: Path, desktop: MemoryKeyring, mood: str
) -> None:
    desktop.mood = mood
    _, service = make_hub(keyring=True, timeout=1.0)
    begun = time.monotonic()
    status = run(service.set_token(TOKEN))
    assert time.monotonic() - begun < 20
    assert status.persistence == "file"
    assert TOKEN in everything_below(tmp_path / "data")


@pytest.mark.parametrize("mood", ["hangs", "raises"])
def test_a_keyring_that_locked_itself_hinders_no_public_model(
    server: HubServer, make_hub: MakeHub, desktop: MemoryKeyring, mood: str
) -> None:
    _, before = make_hub(keyring=True)
    run(before.set_token(TOKEN))
    desktop.mood = mood
    server.models["owner/open"] = HubModel({"config.json": b"{}", "model.safetensors": b"1"})
    hub, service = make_hub(keyring=True, timeout=0.5)
    assert run(service.preflight("owner/open")).granted
    assert hub.child_environment() == {}
    for call in (service.test(), service.remove_token()):
        error = refused(call)
        assert (error.status, error.code) == (500, "hf_secure_storage_error")
        assert TOKEN not in error.message
    assert service.status().configured
    desktop.mood = ""
    desktop.awake.set()
    assert run(service.remove_token())[1] is True


@pytest.mark.usefixtures("server", "desktop")
def test_a_machine_without_a_keyring_uses_the_file(make_hub: MakeHub) -> None:
    keyring.set_keyring(keyring.backends.fail.Keyring())  # type: ignore[no-untyped-call]  # theirs
    _, service = make_hub(keyring=True)
    assert run(service.set_token(TOKEN)).persistence == "file"


def test_a_broken_record_is_no_account(make_hub: MakeHub, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "huggingface"
    folder.mkdir(parents=True)
    (folder / "account.json").write_text('{"persistence": "moon"}')
    assert make_hub()[1].status().configured is False


def test_edge_91_a_token_appears_nowhere(
    server: HubServer,
    make_hub: MakeHub,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    model = HubModel({"config.json": b"{}", "model.safetensors": b"1"}, large={"config.json"})
    server.models["owner/open"] = model
    server.models["owner/gated"] = HubModel(dict(model.files), gated=True)
    hub, service = make_hub()
    told: list[object] = [run(service.set_token(STRANGER)), run(service.test()), service.status()]
    for name in ("owner/open", "owner/gated", "owner/none"):
        told.append(run(service.preflight(name)))
        try:
            told.append(hub.fetch(name, told.append))
        except ApiError as error:
            told += [error.body(), str(error)]
    server.accounts.clear()
    told += [run(service.test()), run(service.preflight("owner/open"))]
    told += [str(refused(service.set_token(UNKNOWN))), run(service.remove_token())]
    out, err = capfd.readouterr()
    text = repr(told) + caplog.text + out + err
    assert "owner/gated" in text
    for secret in (STRANGER, UNKNOWN, STRANGER[3:], UNKNOWN[3:], SIGNATURE):
        assert secret not in text


@pytest.mark.parametrize(
    ("name", "token", "code", "action", "kind"),
    [
        ("owner/open", None, "hf_access_granted", "none", "public"),
        ("hf:owner/open@main", None, "hf_access_granted", "none", "public"),
        ("owner/gated", None, "hf_token_missing", "configure_token", "gated"),
        ("owner/gated", STRANGER, "hf_approval_required", "open_model_agreement", "gated"),
        ("owner/gated", TOKEN, "hf_access_granted", "none", "gated"),
        ("owner/gated", UNKNOWN, "hf_token_invalid", "replace_token", "unknown"),
        ("owner/none", TOKEN, "hf_model_not_found", "review_model_id", "unknown"),
        ("owner/empty", TOKEN, "hf_no_model_files", "review_model_id", "unknown"),
    ],
)
def test_access_is_reported(  # noqa: PLR0917 - a table
    server: HubServer,
    make_hub: MakeHub,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    token: str | None,
    code: str,
    action: str,
    kind: str,
) -> None:
    files = {"config.json": b"{}", "model.safetensors": b"12345", "LICENSE": b"mine"}
    server.models["owner/open"] = HubModel(files, tags=["license:mit"])
    server.models["owner/gated"] = HubModel(files, gated=True)
    server.models["owner/empty"] = HubModel({"README.md": b"nothing yet"})
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    report = run(make_hub()[1].preflight(name))
    assert (report.code, report.action, report.access_type) == (code, action, kind)
    assert report.granted == (code == "hf_access_granted")
    page = name.removeprefix("hf:").removesuffix("@main")
    assert report.model_url == f"{server.url}/{page}"
    assert report.source_model == page
    if page == "owner/open":
        assert (report.license, report.size_bytes) == ("mit", 11)
        assert report.license_url.startswith(f"{server.url}/{page}/blob/")


def test_a_rate_limit_is_reported(server: HubServer, make_hub: MakeHub) -> None:
    server.api_status = 429
    report = run(make_hub()[1].preflight("owner/open"))
    assert (report.code, report.recoverable, report.action) == (
        "hf_rate_limited",
        True,
        "check_again",
    )


@pytest.mark.parametrize(
    "name", ["bad", "", "/", "a/b/c", "../etc", "a/..", "hf:", "a--b/c", "x" * 999]
)
def test_edge_90_an_address_of_another_form_is_a_400(
    server: HubServer, make_hub: MakeHub, name: str
) -> None:
    error = refused(make_hub()[1].preflight(name))
    assert (error.status, error.code, error.param) == (400, "hf_model_id_invalid", "source_model")
    assert server.seen == []


def test_a_search_finds_the_most_downloaded_first(server: HubServer, make_hub: MakeHub) -> None:
    tags = [f"tag-{number}" + "x" * 300 for number in range(60)]
    for number, (name, task) in enumerate(
        [
            ("a/tiny-one", "text-generation"),
            ("b/tiny.two", "text-generation"),
            ("c/tiny-embed", "sentence-similarity"),
            ("d/tiny-feature", "feature-extraction"),
            ("e/tiny-eyes", "image-text-to-text"),
        ]
    ):
        more = ["safetensors", *tags]
        server.models[name] = HubModel({}, downloads=number, pipeline_tag=task, tags=more)
    _, service = make_hub()
    hits = run(service.search("tiny", task="text-generation"))
    assert [hit.id for hit in hits] == ["b/tiny.two", "a/tiny-one"]
    assert [hit.suggested_local_id for hit in hits] == ["tiny.two", "tiny-one"]
    assert {hit.backend for hit in hits} == {"openvino-genai"}
    assert len(hits[0].tags) == 50
    assert max(len(tag) for tag in hits[0].tags) == 200
    assert len(run(service.search("tiny", limit=1, task="text-generation"))) == 1
    found = run(service.search("tiny", task="embeddings"))
    assert [(hit.id, hit.backend) for hit in found] == [
        ("d/tiny-feature", "openvino-embeddings"),
        ("c/tiny-embed", "openvino-embeddings"),
    ]
    assert run(service.search("tiny", task="image-text-to-text"))[0].backend == "openvino-vlm"
    assert run(service.search("nothing like it", task="text-generation")) == []


def test_a_search_finds_only_what_can_be_served(server: HubServer, make_hub: MakeHub) -> None:
    useful = {"safetensors": "a/x-1", "gguf": "a/x-2", "OpenVINO": "a/x-3", "pytorch": "a/x-4"}
    for tag, name in useful.items():
        server.models[name] = HubModel({}, tags=[tag], downloads=1)
    for number, tags in enumerate(
        [["mlx", "safetensors"], ["peft", "safetensors"], ["lora", "safetensors"], ["onnx"], []]
    ):
        server.models[f"b/x-{number}"] = HubModel({}, tags=tags, downloads=9)
    server.models["c/x"] = HubModel({}, tags=["gguf"], pipeline_tag="sentence-similarity")
    _, service = make_hub()
    hits = run(service.search("x", task="text-generation"))
    assert {hit.id for hit in hits} == set(useful.values())
    assert run(service.search("x", task="embeddings")) == []
    for task in ("text-to-image", "", "text-generation\n"):
        error = refused(service.search("x", task=task))
        assert (error.status, error.param) == (400, "task")
        assert "rerank" in error.message


def test_a_search_shows_no_strangers_words_as_they_are(
    server: HubServer, make_hub: MakeHub
) -> None:
    fine: dict[str, Any] = {"pipeline_tag": "text-generation", "tags": ["safetensors"]}
    names = ["../../etc", "a/b/c", "a", "a/b@main", "a/b#x", "hf:a/b", "a/<b>", "a/b\n", "", "a/--"]
    hits: list[dict[str, Any]] = [{"id": name} | fine for name in names]
    hits.append({"id": "other/task", "pipeline_tag": "text-to-image", "tags": ["safetensors"]})
    hits.append(
        {
            "id": "owner/good",
            "downloads": 1 << 70,
            "likes": -5,
            "pipeline_tag": "text-generation",
            "tags": ["safetensors", "\x1b[31mred\u202e", "\n", "y" * 9999],
        }
    )
    server.api_body = json.dumps(hits * 3).encode()
    found = run(make_hub()[1].search("x", limit=50, task="text-generation"))
    assert [hit.id for hit in found] == ["owner/good"]
    assert (found[0].downloads, found[0].likes) == (1 << 53, 0)
    assert all(tag.isprintable() and 0 < len(tag) <= 200 for tag in found[0].tags)
    assert msgspec.json.encode(found)


def test_an_account_with_a_strange_name_can_be_shown(server: HubServer, make_hub: MakeHub) -> None:
    server.accounts[TOKEN] = "some\x1b[31m\u202ebody\n" + "x" * 100_000
    status = run(make_hub()[1].set_token(TOKEN))
    assert status.username.isprintable()
    assert len(status.username) == 100


@pytest.mark.parametrize("status", [404, 410])
def test_a_mirror_without_accounts_is_told_so(
    server: HubServer, make_hub: MakeHub, status: int
) -> None:
    _, service = make_hub()
    run(service.set_token(TOKEN))
    server.api_status = status
    for call in (service.set_token(STRANGER), service.test()):
        error = refused(call)
        assert (error.status, error.code) == (502, "hub_unreachable")
        assert "accounts" in error.message
    assert service.status().status == "network_error"


def test_a_search_tells_of_a_token_that_is_not_accepted(
    server: HubServer, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", UNKNOWN)
    error = refused(make_hub()[1].search("x", task="text-generation"))
    assert (error.status, error.code) == (409, "hf_token_invalid")
    server.api_status = 429
    error = refused(make_hub()[1].search("x", task="text-generation"))
    assert (error.status, error.code) == (409, "hf_rate_limited")


def test_a_mirrors_password_is_not_shown(
    server: HubServer, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.models["owner/open"] = HubModel({"config.json": b"{}", "model.safetensors": b"1"})
    secret = server.url.replace("http://", "http://me:s3cret@")
    monkeypatch.setenv("HF_ENDPOINT", secret)
    _, service = make_hub()
    for name in ("owner/open", "owner/none"):
        report = run(service.preflight(name))
        assert report.model_url == f"{server.url}/{name}"
        assert "s3cret" not in repr(report)


@pytest.mark.parametrize(
    "body", [b"{}", b"<html>", b"[1]", b'[{"id": 1}]', b"\xff", b"[" * 100_000]
)
def test_a_search_whose_answer_is_none_is_a_502(
    server: HubServer, make_hub: MakeHub, body: bytes
) -> None:
    server.api_body = body
    error = refused(make_hub()[1].search("x", task="text-generation"))
    assert (error.status, error.code) == (502, "hub_unreachable")


@pytest.mark.parametrize("trouble", ["closed port", "silence", "offline"])
def test_without_a_network_everything_answers_within_bounds(
    server: HubServer, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    if trouble == "closed port":
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    elif trouble == "offline":
        monkeypatch.setenv("HF_HUB_OFFLINE", "yes")
    else:
        server.silence = 60.0
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    _, service = make_hub(timeout=0.5)
    begun = time.monotonic()
    for call in calls(service):
        error = refused(call)
        assert (error.status, error.code) == (502, "hub_unreachable")
    assert time.monotonic() - begun < 20
    assert service.status().configured


def test_many_questions_to_a_silent_hub_end_within_bounds(
    server: HubServer, make_hub: MakeHub
) -> None:
    server.silence = 60.0
    _, service = make_hub(timeout=0.5)

    async def ask_often() -> list[Any]:
        asked = (service.preflight("owner/open") for _ in range(100))
        return await asyncio.gather(*asked, return_exceptions=True)

    begun = time.monotonic()
    errors = run(ask_often())
    assert {(error.status, error.code) for error in errors} == {(502, "hub_unreachable")}
    assert any("too many questions" in error.message for error in errors)
    assert time.monotonic() - begun < 20


def test_who_goes_away_frees_a_place_when_the_hub_answers(
    server: HubServer, make_hub: MakeHub
) -> None:
    server.silence = 60.0
    server.models["owner/open"] = HubModel({"config.json": b"{}", "model.safetensors": b"1"})
    _, service = make_hub(timeout=30.0)

    async def go_away() -> Any:
        for _ in range(3):
            asked = [asyncio.create_task(service.preflight("owner/open")) for _ in range(8)]
            await asyncio.wait(asked, timeout=0.2)
            for task in asked:
                task.cancel()
            await asyncio.wait(asked)
        server.silence = 0.0
        server.speak.set()
        return await service.preflight("owner/open")

    assert run(go_away()).granted


def calls(service: ModelHub) -> list[Any]:
    return [
        service.preflight("owner/open"),
        service.search("x", task="text-generation"),
        service.set_token(STRANGER),
        service.test(),
    ]


def test_the_plugins_settings_are_bounded() -> None:
    for wrong in ({"timeout": 0}, {"timeout": 1e9}, {"keyring": "perhaps"}, {"token": TOKEN}):
        with pytest.raises(ValueError, match="validation error"):
            Hub.Settings.model_validate(wrong)
    assert msgspec.to_builtins(Hub.Settings().model_dump()) == {"timeout": 10.0, "keyring": True}
