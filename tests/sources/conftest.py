from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pegboard_contracts.converters import Report
from pegboard_contracts.errors import ApiError
from pegboard_contracts.hub import ModelHub
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pegboard_model_sources import _hub_download
from pegboard_model_sources.hub import Hub

from tests.sources.hub_server import LLAMA, HubModel, HubServer, running_hub

MakeHub = Callable[..., tuple[Hub, ModelHub]]

_VARIABLES = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HF_TOKEN_PATH",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
)


@pytest.fixture
def hub_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the hub's tools a home of their own, without a login."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def server(hub_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    del hub_home
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def make_hub(tmp_path: Path, hub_home: Path) -> MakeHub:
    """Return a function that makes the plugin and its service; no keyring unless asked for."""
    del hub_home

    def make(**settings: Any) -> tuple[Hub, ModelHub]:
        hub = Hub()
        hub.name = "hub"
        hub.configure(Hub.Settings(**({"keyring": False, "timeout": 5.0} | settings)))
        services = Services()
        info = ServerInfo(version="0", host="127.0.0.1", port=1, data_dir=tmp_path / "data")
        services.add(ServerInfo, info)
        hub.pegboard_provide_services(services)
        return hub, services.get(ModelHub)

    return make


@pytest.fixture
def source(make_hub: MakeHub) -> Hub:
    return make_hub()[0]


@pytest.fixture
def reports() -> list[Report]:
    return []


@pytest.fixture
def llama(server: HubServer) -> HubModel:
    model = HubModel(dict(LLAMA), large={"model.safetensors"}, card={"license": "mit"})
    server.models["owner/llama"] = model
    return model


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hub_download, "PAUSES", (0.01, 0.01, 0.01))


def refused(source: Hub, address: str, *, fetch: bool = True) -> ApiError:
    def ask() -> object:
        return source.fetch(address, lambda _: None) if fetch else source.preflight(address)

    with pytest.raises(ApiError) as caught:
        ask()
    return caught.value


def blob_files(home: Path) -> list[Path]:
    return [path for path in (home / "hub").rglob("blobs/*") if path.is_file()]
