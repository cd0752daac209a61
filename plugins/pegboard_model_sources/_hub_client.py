"""Questions to the hub: a model's files, an account, a search. Blocking, each with a limit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from pegboard_contracts.errors import ApiError

from pegboard_model_sources._hub_access import check_answer, hub_unreachable
from pegboard_model_sources._hub_address import (
    COMMIT,
    DEFAULT_REVISION,
    HubAddress,
    check_inside,
)
from pegboard_model_sources._hub_answers import Account, FoundModel, Repository, plain
from pegboard_model_sources._hub_environment import endpoint, is_offline
from pegboard_model_sources._hub_waiting import within

T = TypeVar("T")

_LARGEST_ANSWER = 32 * 1024 * 1024
"""Bytes; a repository of a hundred thousand files is described in fewer."""


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

        None of them leads out of a folder. Raises `AccessDeniedError` and `ApiError` 502.
        """
        path = f"/api/models/{address.repository}"
        if address.revision != DEFAULT_REVISION:
            path += f"/revision/{quote(address.revision, safe='')}"
        found = self._ask(path, Repository, address, {"blobs": "true"})
        if not COMMIT.fullmatch(found.sha):
            raise hub_unreachable("its answer names no commit")
        if COMMIT.fullmatch(address.revision) and found.sha != address.revision:
            raise hub_unreachable("its answer is about another commit than the one asked for")
        for file in found.siblings:
            check_inside(file.rfilename)
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
        return plain(self._ask("/api/whoami-v2", Account, None, {}).name, 100)

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
        def get(session: Any) -> bytes:  # noqa: ANN401 - httpx in one major version, httpx2 in the other
            return self._body(session, endpoint() + path, parameters, address)

        body = self._question(get)
        try:
            return msgspec.json.decode(body, type=form)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise hub_unreachable("what answers there does not speak the hub's API") from None

    def _body(
        self,
        session: Any,  # noqa: ANN401 - see `_ask`
        url: str,
        parameters: Mapping[str, str],
        address: HubAddress | None,
    ) -> bytes:
        """Read an answer, at most so much and so long. Raises `TimeoutError` and `ApiError`."""
        end = time.monotonic() + self._timeout
        headers, timeout = self._headers(), self._timeout
        body = bytearray()
        with session.stream(
            "GET", url, params=dict(parameters), headers=headers, timeout=timeout
        ) as answer:
            check_answer(answer, address, token_sent=self.has_token)
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > _LARGEST_ANSWER:
                    raise hub_unreachable("its answer is larger than any of the hub's")
                if time.monotonic() > end:
                    # Whoever asked is gone: the thread need not listen on.
                    raise TimeoutError
        return bytes(body)

    def _headers(self) -> dict[str, str]:
        # Not the library's own: those look for a token by themselves and tell more about us.
        named = {"user-agent": "pegboard"}
        return named if self._token is None else named | {"authorization": f"Bearer {self._token}"}

    def bounded(self, work: Callable[[], T]) -> T:
        """Run questions that together may take as long as one. Raises `ApiError` 502."""
        _session()  # loading the library is no fault of the hub's
        try:
            return within(self._timeout, work)
        except TimeoutError:
            raise self._too_slow() from None

    def _question(self, ask: Callable[[Any], T]) -> T:
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
            raise hub_unreachable(f"the connection failed ({type(error).__name__})") from None

    def _too_slow(self) -> ApiError:
        return hub_unreachable(f"no answer within {self._timeout:g} seconds")


def _session() -> Any:  # noqa: ANN401 - httpx in one major version, httpx2 in the other
    from huggingface_hub import get_session  # noqa: PLC0415 - heavy

    for name in ("httpx", "httpx2", "httpcore", "httpcore2"):
        # They log addresses and heads, and the hub's storage is addressed by signatures.
        logging.getLogger(name).setLevel(logging.WARNING)
    return get_session()
