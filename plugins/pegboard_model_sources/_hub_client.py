"""Questions to the hub: a model's files, an account, a search. Blocking, each with a limit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import msgspec
from pegboard_contracts.errors import ApiError

from pegboard_model_sources._hub_access import check_answer, hub_unreachable
from pegboard_model_sources._hub_address import (
    COMMIT,
    DEFAULT_REVISION,
    HubAddress,
    check_file_name,
)
from pegboard_model_sources._hub_environment import endpoint, is_offline
from pegboard_model_sources._hub_waiting import within

T = TypeVar("T")


class LargeFile(msgspec.Struct, frozen=True):
    """Describe a file that is kept outside git: its SHA-256 and its size in bytes."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] | None = None
    size: int | None = None


class RepositoryFile(msgspec.Struct, frozen=True):
    """Describe a file of a repository; `blob_id` is git's own hash of a small one."""

    rfilename: str
    size: int | None = None
    blob_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40,64}$")] | None = msgspec.field(
        default=None, name="blobId"
    )
    lfs: LargeFile | None = None

    @property
    def bytes(self) -> int | None:
        """Return the size in bytes."""
        return self.lfs.size if self.lfs is not None and self.lfs.size is not None else self.size


class Repository(msgspec.Struct, frozen=True):
    """Describe a repository at one commit, `sha`."""

    sha: str
    siblings: tuple[RepositoryFile, ...] = ()
    gated: bool | str = False
    card: dict[str, Any] | None = msgspec.field(default=None, name="cardData")
    tags: tuple[str, ...] = ()

    @property
    def license(self) -> str | None:
        """Return the licence's short name."""
        stated = (self.card or {}).get("license")
        if isinstance(stated, str):
            return stated[:200]
        found = (tag for tag in self.tags if tag.startswith("license:"))
        return next(found, "").removeprefix("license:")[:200] or None


class FoundModel(msgspec.Struct, frozen=True):
    """Describe one hit of a search."""

    id: str
    downloads: int = 0
    likes: int = 0
    pipeline_tag: str | None = None
    tags: tuple[str, ...] = ()


class _Account(msgspec.Struct, frozen=True):
    name: str


class HubClient:
    """Ask the hub with one token, or none; `timeout` bounds each question as a whole."""

    def __init__(self, token: str | None, timeout: float) -> None:
        """Keep both; nothing is asked yet."""
        self._token = token
        self._timeout = timeout

    @property
    def has_token(self) -> bool:
        """Tell whether questions are asked in the name of an account."""
        return self._token is not None

    def repository(self, address: HubAddress) -> Repository:
        """Return the repository at the address's revision, with the names of all its files.

        Raises `AccessDeniedError` and `ApiError` 502.
        """
        path = f"/api/models/{address.repository}"
        if address.revision != DEFAULT_REVISION:
            path += f"/revision/{quote(address.revision, safe='')}"
        found = self._ask(path, Repository, address, {"blobs": "true"})
        if not COMMIT.fullmatch(found.sha):
            raise hub_unreachable("its answer names no commit")
        for file in found.siblings:
            check_file_name(file.rfilename)
        return found

    def check_file(self, address: HubAddress, commit: str, name: str) -> None:
        """Ask whether a file would be given; a gated model shows its list to everybody.

        Raises `AccessDeniedError` and `ApiError` 502.
        """
        url = self.file_url(address, commit, name)

        def head(session: Any) -> Any:  # noqa: ANN401 - httpx in one major version, httpx2 in the other
            # A redirect to where the bytes are is a yes.
            return session.head(
                url, headers=self._headers(), timeout=self._timeout, follow_redirects=False
            )

        answer = self._question(head)
        check_answer(answer, address, token_sent=self.has_token)

    def account(self) -> str:
        """Return the name of the token's account. Raises `AccessDeniedError` and 502."""
        return self._ask("/api/whoami-v2", _Account, None, {}).name

    def search(self, query: str, *, limit: int, task: str) -> list[FoundModel]:
        """Return what a search finds, most downloaded first. Raises as `account` does."""
        wanted = {
            "search": query,
            "pipeline_tag": task,
            "sort": "downloads",
            "direction": "-1",
            "limit": str(limit),
        }
        return self._ask("/api/models", list[FoundModel], None, wanted)

    @staticmethod
    def file_url(address: HubAddress, commit: str, name: str) -> str:
        """Return where a file is downloaded from."""
        return f"{endpoint()}/{address.repository}/resolve/{commit}/{quote(name)}"

    @contextmanager
    def opened(self, url: str, first_byte: int) -> Generator[Any]:
        """Open a file as a stream, from `first_byte` on; `timeout` is for each silence.

        Redirects are followed; another host never sees the token. What the HTTP library
        raises is raised.
        """
        headers = self._headers() | {"accept-encoding": "identity"}
        if first_byte:
            headers["range"] = f"bytes={first_byte}-"
        with _session().stream("GET", url, headers=headers, timeout=self._timeout) as answer:
            yield answer

    def _ask(
        self,
        path: str,
        form: type[T],
        address: HubAddress | None,
        parameters: Mapping[str, str],
    ) -> T:
        def get(session: Any) -> Any:  # noqa: ANN401 - httpx in one major version, httpx2 in the other
            url = endpoint() + path
            return session.get(
                url, params=dict(parameters), headers=self._headers(), timeout=self._timeout
            )

        answer = self._question(get)
        check_answer(answer, address, token_sent=self.has_token)
        try:
            return msgspec.json.decode(answer.content, type=form)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise hub_unreachable("what answers there does not speak the hub's API") from None

    def _headers(self) -> dict[str, str]:
        # Not the library's own: those look for a token by themselves and tell more about us.
        named = {"user-agent": "pegboard"}
        return named if self._token is None else named | {"authorization": f"Bearer {self._token}"}

    def bounded(self, work: Callable[[], T]) -> T:
        """Run questions that together may take as long as one. Raises `ApiError` 502."""
        try:
            return within(self._timeout, work)
        except TimeoutError:
            raise self._too_slow() from None

    def _question(self, ask: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - see `_ask`
        if is_offline():
            raise hub_unreachable("HF_HUB_OFFLINE forbids to ask it")
        begun = time.monotonic()
        try:
            return self.bounded(lambda: ask(_session()))
        except ApiError:
            raise
        except Exception as error:  # noqa: BLE001 - two HTTP libraries, and no route may answer 500
            if time.monotonic() - begun >= self._timeout * 0.9:
                raise self._too_slow() from None
            raise hub_unreachable(f"no connection ({type(error).__name__})") from None

    def _too_slow(self) -> ApiError:
        return hub_unreachable(f"no answer within {self._timeout:g} seconds")


def _session() -> Any:  # noqa: ANN401 - httpx in one major version, httpx2 in the other
    from huggingface_hub import get_session  # noqa: PLC0415 - heavy

    for name in ("httpx", "httpx2"):
        # They log every address, and those of the hub's storage are signed for an account.
        logging.getLogger(name).setLevel(logging.WARNING)
    return get_session()
