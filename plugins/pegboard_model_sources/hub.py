"""The `hub` source: models of the Hugging Face hub, `hf:OWNER/REPO[@REVISION][#FILE.gguf]`."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import cast

from pegboard_contracts.converters import Report, Reporter
from pegboard_contracts.errors import ApiError
from pegboard_contracts.hub import ModelHub
from pegboard_contracts.models import Phase
from pegboard_contracts.plugin import PluginSettings, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pegboard_contracts.sources import ModelSource, SourceFacts, model_id_from
from pydantic import Field

from pegboard_model_sources._hub_address import HubAddress, check_files, parse_address
from pegboard_model_sources._hub_answers import Repository
from pegboard_model_sources._hub_cache import LocalModel, RepositoryCache
from pegboard_model_sources._hub_client import HubClient
from pegboard_model_sources._hub_download import FileDownload, Progress
from pegboard_model_sources._hub_environment import cache_folder, environment_token
from pegboard_model_sources._hub_files import ModelFiles, choose_files
from pegboard_model_sources._hub_service import HubService
from pegboard_model_sources._hub_token import TokenKeeper


class Settings(PluginSettings):
    """Bound what is asked, and choose where the token is kept."""

    timeout: float = Field(
        default=10.0,
        gt=0,
        le=600,
        description="Seconds that one question to the hub may take, and that a download may be "
        "silent before it is tried again.",
    )
    keyring: bool = Field(
        default=True,
        description="Keep the token in the operating system's keyring where there is one; else, "
        "or when false, in a file that only this user can read.",
    )


class Hub(ModelSource):
    """Fetch models of the hub into the cache that its other tools use too."""

    summary = "models of the Hugging Face hub, with the account and the search"
    schemes = ("hf",)
    remote = True
    Settings = Settings

    def __init__(self) -> None:
        """Start without an account: that of the server comes with its services."""
        self._service: HubService | None = None

    @hookimpl
    def pegboard_provide_services(self, services: Services) -> None:
        """Provide the account, the check of access and the search."""
        folder = services.get(ServerInfo).data_dir / "huggingface"
        settings = cast("Settings", self.settings)
        keeper = TokenKeeper(folder, keyring=settings.keyring, seconds=settings.timeout)
        self._service = HubService(keeper, self._look, settings.timeout)
        services.add(ModelHub, self._service)

    def resolve(self, address: str) -> Path:
        """Return the folder or the GGUF file of a model whose files are all here.

        Asks nobody. Raises `ApiError` 400 for an address of another form and 404
        `model_not_downloaded`.
        """
        parsed = parse_address(address)
        found = self._here(parsed)
        if found is None:
            message = (
                f"The model 'hf:{parsed}' is not downloaded, or not all of it. Fetch it: "
                f"pegboard models pull hf:{parsed}"
            )
            raise ApiError(404, message, param="source_model", code="model_not_downloaded")
        return found.path

    def default_id(self, address: str) -> str:
        """Derive the id from the file's stem, else from the repository's name."""
        repository, _, file = address.partition("#")
        if file.lower().endswith(".gguf"):
            return model_id_from(PurePosixPath(file).name[: -len(".gguf")])
        return model_id_from(repository.partition("@")[0].rstrip("/").rpartition("/")[2])

    def preflight(self, address: str) -> SourceFacts:
        """Ask whether the model can be fetched and whether the disk has room for it.

        A model that is here needs no hub that answers or agrees. Raises `ApiError` 409 for what
        the hub refuses, a missing model included (decision 45), 502 and 507 `insufficient_disk`.
        """
        parsed = parse_address(address)
        looked = self._look_or_here(parsed)
        if isinstance(looked, LocalModel):
            return SourceFacts(
                size_bytes=looked.bytes, revision=looked.commit, servable=looked.files.servable
            )
        repository, files = looked
        downloads = self._downloads(self._client(), parsed, repository, files)
        _check_room(self._cache(parsed), downloads)
        return SourceFacts(
            size_bytes=repository.size_of(files.names),
            license=repository.license,
            gated=bool(repository.gated),
            revision=repository.sha,
            servable=files.servable,
        )

    def fetch(self, address: str, report: Reporter) -> Path:
        """Fetch what is missing of the model's files, check all of them, and return the place.

        Raises `ApiError` as `preflight`, 502 `download_corrupt` and 500 `hub_cache_failed`.
        """
        parsed = parse_address(address)
        report(Report(phase=Phase.DOWNLOADING, message="asking the hub for the model's files"))
        looked = self._look_or_here(parsed)
        if isinstance(looked, LocalModel):
            return looked.path
        try:
            return self._fetch(parsed, *looked, report)
        except OSError as error:
            found = self._here(parsed)
            if found is not None and found.commit == looked[0].sha:
                # A cache that only others may write, and nothing was missing in it.
                return found.path
            raise _cache_failed(error) from None

    def _fetch(
        self, address: HubAddress, repository: Repository, files: ModelFiles, report: Reporter
    ) -> Path:
        cache = self._cache(address)
        downloads = self._downloads(self._client(), address, repository, files)
        _check_room(cache, downloads)
        sizes = {file.rfilename: file.bytes for file in repository.siblings}
        cache.expect(repository.sha, sizes)
        progress = Progress(repository.size_of(files.names), report)
        for download in downloads:
            download.run(progress)
        cache.name_revision(address.revision, repository.sha)
        progress.live("downloaded", at_once=True)
        return self.resolve(str(address))

    def child_environment(self) -> Mapping[str, str]:
        """Return the token, for the process that fetches."""
        token = self._token()
        return {} if token is None else {"HF_TOKEN": token}

    def _token(self) -> str | None:
        return environment_token() if self._service is None else self._service.token()

    def _client(self) -> HubClient:
        return HubClient(self._token(), cast("Settings", self.settings).timeout)

    def _cache(self, address: HubAddress) -> RepositoryCache:
        return RepositoryCache(cache_folder(), address.repository)

    def _here(self, address: HubAddress) -> LocalModel | None:
        return self._cache(address).find(address)

    def _look_or_here(self, address: HubAddress) -> tuple[Repository, ModelFiles] | LocalModel:
        """Look at the hub; where that fails, what is here and whole is good enough."""
        try:
            return self._look(address)
        except ApiError:
            found = self._here(address)
            if found is None:
                raise
            return found

    def _look(self, address: HubAddress) -> tuple[Repository, ModelFiles]:
        """Ask for a repository, and for one of its files where it is gated."""
        client = self._client()

        def look() -> tuple[Repository, ModelFiles]:
            repository = client.repository(address)
            files = choose_files((file.rfilename for file in repository.siblings), address.file)
            check_files([file.rfilename for file in repository.only(files.names)])
            if repository.gated:
                client.check_file(address, repository.sha, files.names[0])
            return repository, files

        # Two questions, and the limit of one.
        return client.bounded(look)

    def _downloads(
        self, client: HubClient, address: HubAddress, repository: Repository, files: ModelFiles
    ) -> list[FileDownload]:
        cache = self._cache(address)
        return [
            FileDownload(client, cache, address, repository.sha, file)
            for file in repository.only(files.names)
        ]


def _cache_failed(error: OSError) -> ApiError:
    reason = error.strerror or type(error).__name__
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        message = (
            f"The download stopped: {reason}. What came so far is kept. Make room on the disk of "
            "the hub's cache, then fetch again."
        )
        return ApiError(507, message, param="source_model", code="insufficient_disk")
    message = (
        f"The hub's cache cannot be written: {reason}. Check its folder's owner, or choose "
        "another with HF_HOME."
    )
    return ApiError(500, message, code="hub_cache_failed")


def _check_room(cache: RepositoryCache, downloads: list[FileDownload]) -> None:
    needed = sum(download.missing_bytes() for download in downloads)
    free = cache.free_bytes()
    if needed > free:
        message = (
            f"The model needs {needed:,} more bytes on the disk of the hub's cache, which has "
            f"{free:,} free. Make room, or choose another disk with HF_HOME."
        )
        raise ApiError(507, message, param="source_model", code="insufficient_disk")


plugin = Hub
