"""The service `ModelHub`: the account, access to models, and search, on the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.hub import AccessReport, AccountState, AccountStatus, SearchHit
from pegboard_contracts.sources import model_id_from

from pegboard_model_sources._hub_access import AccessDeniedError, page_of
from pegboard_model_sources._hub_address import HubAddress, is_repository, parse_address
from pegboard_model_sources._hub_answers import FoundModel, Repository, count, plain
from pegboard_model_sources._hub_client import HubClient
from pegboard_model_sources._hub_environment import TOKEN, environment_token
from pegboard_model_sources._hub_files import ModelFiles
from pegboard_model_sources._hub_token import TokenKeeper
from pegboard_model_sources._hub_waiting import Desk

_MASK = "\u2022" * 8
_STATES: dict[str, AccountState] = {
    "hf_token_invalid": "invalid_token",
    "hf_rate_limited": "rate_limited",
    "hub_unreachable": "network_error",
}
_GENERATION = "text-generation"
_BACKENDS = {
    _GENERATION: "openvino-genai",
    "image-text-to-text": "openvino-vlm",
    "sentence-similarity": "openvino-embeddings",
    "feature-extraction": "openvino-embeddings",
    "text-ranking": "openvino-rerank",
}
_TASKS = {task: (task,) for task in _BACKENDS} | {
    "embeddings": ("sentence-similarity", "feature-extraction"),
    "rerank": ("text-ranking",),
}
_PLACES = 8
_MOST_FOUND = 100
_MOST_TAGS = 50

Look = Callable[[HubAddress], tuple[Repository, ModelFiles]]
"""Asks the hub for a model and checks that its files would be given; blocking."""


class HubService:
    """Implement `ModelHub`. What the hub is asked happens on threads of its own."""

    def __init__(self, keeper: TokenKeeper, look: Look, timeout: float) -> None:
        """Take the stored token's keeper and the source's way to look at a model."""
        self._keeper = keeper
        self._look = look
        self._timeout = timeout
        self._desk = Desk(_PLACES, timeout)
        # What is known of an environment's token; that of a stored one is in its record.
        self._seen: tuple[AccountState, str | None, float | None] = ("unverified", None, None)

    def status(self) -> AccountStatus:
        """Show the account as it was last seen; asks nobody."""
        record = self._keeper.record
        if record is not None:
            return AccountStatus(
                configured=True,
                status=record.status,
                username=record.username,
                last_checked=record.last_checked,
                token_masked=_MASK,
                source="secure_store" if record.persistence == "keyring" else "file",
                persistence=record.persistence,
                removable=True,
            )
        if environment_token() is None:
            return AccountStatus(configured=False, status="not_configured")
        status, username, checked = self._seen
        return AccountStatus(
            configured=True,
            status=status,
            username=username,
            last_checked=checked,
            token_masked=_MASK,
            source="environment",
            persistence="environment",
        )

    async def set_token(self, token: str) -> AccountStatus:
        """Verify a read token with the hub, then keep it.

        Raises `ApiError` 400 `hf_token_invalid` for a token that has not the form of one or
        that the hub refuses, 409 `hf_rate_limited`, 502 `hub_unreachable`, 500
        `hf_secure_storage_error`.
        """
        if TOKEN.fullmatch(token) is None:
            message = "A token of the hub is 'hf_' and letters and digits. Copy it as a whole."
            raise invalid_request(message, param="token", code="hf_token_invalid")
        try:
            name = await self._desk.ask(HubClient(token, self._timeout).account)
        except AccessDeniedError as denied:
            if denied.code == "hf_rate_limited":
                raise
            message = "The hub does not accept this token. Make a new one with read access."
            raise invalid_request(message, param="token", code="hf_token_invalid") from None
        await self._desk.ask(lambda: self._keeper.keep(token, name, time.time()))
        return self.status()

    async def test(self) -> AccountStatus:
        """Verify the configured token again; a refusal is a status, not an error.

        Raises `ApiError` 502 `hub_unreachable` and 500 `hf_secure_storage_error`.
        """
        token = await self._desk.ask(self._keeper.token) or environment_token()
        if token is None:
            return self.status()
        try:
            name = await self._desk.ask(HubClient(token, self._timeout).account)
        except ApiError as error:
            state = _STATES.get(error.code or "", "invalid_token")
            await self._note(state, None)
            if error.status == 502:
                raise
        else:
            await self._note("connected", name)
        return self.status()

    async def _note(self, status: AccountState, username: str | None) -> None:
        if self._keeper.record is None:
            self._seen = (status, username, time.time())
        else:
            await self._desk.ask(lambda: self._keeper.note(status, username, time.time()))

    async def remove_token(self) -> tuple[AccountStatus, bool]:
        """Remove the stored token, never one of the environment; tells whether there was one.

        Raises `ApiError` 500 `hf_secure_storage_error`.
        """
        removed = await self._desk.ask(self._keeper.remove)
        return self.status(), removed

    async def preflight(self, source_model: str) -> AccessReport:
        """Check whether a model can be downloaded.

        Raises `ApiError` 400 `hf_model_id_invalid` for an address of another form, 502.
        """
        address = parse_address(source_model)
        try:
            repository, files = await self._desk.ask(lambda: self._look(address))
        except AccessDeniedError as denied:
            return denied.report
        except ApiError as error:
            if error.status != 409:
                raise
            return _unusable(address, error)
        return self._granted(address, repository, files)

    def _granted(
        self, address: HubAddress, repository: Repository, files: ModelFiles
    ) -> AccessReport:
        known = (file.rfilename for file in repository.siblings)
        licence = next((n for n in known if n.upper() in {"LICENSE", "LICENSE.MD"}), None)
        page = page_of(address)
        status = self.status()
        return AccessReport(
            granted=True,
            code="hf_access_granted",
            message=f"The model '{address}' can be downloaded.",
            source_model=str(address),
            token_configured=status.configured,
            model_url=page,
            license_url=f"{page}/blob/{repository.sha}/{licence}" if licence else None,
            license=repository.license,
            size_bytes=repository.size_of(files.names),
            revision=repository.sha,
            access_type="gated" if repository.gated else "public",
            username=status.username,
        )

    async def search(
        self, query: str, *, limit: int = 10, task: str = _GENERATION
    ) -> list[SearchHit]:
        """Search repositories of a form that is served or converted, most downloaded first.

        `task` is one that a backend does, in the hub's word or as `embeddings` or `rerank`.
        Raises `ApiError` 400 for another task, `AccessDeniedError` for a token that is not
        accepted or a hub that is busy, and 502.
        """
        tasks = _TASKS.get(task)
        if tasks is None:
            message = f"No model for this task can be served. Tasks are: {', '.join(_TASKS)}."
            raise invalid_request(message, param="task", code="invalid_value")
        client = HubClient(await self._desk.ask(self.token), self._timeout)
        # Some of what is found is of no use here.
        most = min(4 * limit, _MOST_FOUND)

        async def ask(word: str) -> list[FoundModel]:
            found = await self._desk.ask(lambda: client.search(query, limit=most, task=word))
            return [model for model in found if _is_of_use(model, word)]

        answers = await asyncio.gather(*(ask(word) for word in tasks))
        found = {model.id: model for answer in answers for model in answer}
        best = sorted(found.values(), key=lambda model: -model.downloads)
        return [_hit(model) for model in best[:limit]]

    def token(self) -> str | None:
        """Return the token to ask with: the stored one, else the environment's. May block.

        A keyring that does not answer costs the stored token, not the question.
        """
        try:
            stored = self._keeper.token()
        except ApiError:
            stored = None
        return stored or environment_token()


def _unusable(address: HubAddress, error: ApiError) -> AccessReport:
    """Report a model that could be downloaded, if it had anything to serve."""
    return AccessReport(
        granted=False,
        code=error.code or "hf_no_model_files",
        message=error.message,
        source_model=str(address),
        model_url=page_of(address),
        action="review_model_id",
    )


_USABLE_FORMS = frozenset({"openvino", "safetensors", "pytorch"})
# Weights of other engines, and what only changes the weights of another repository.
_USELESS = frozenset({"mlx", "exl2", "exl3", "peft", "lora", "adapter-transformers"})


def _is_of_use(model: FoundModel, task: str) -> bool:
    tags = {tag.lower() for tag in model.tags}
    forms = _USABLE_FORMS | {"gguf"} if task == _GENERATION else _USABLE_FORMS
    return (
        model.pipeline_tag == task
        and bool(tags & forms)
        and not tags & _USELESS
        and is_repository(model.id)
    )


def _hit(model: FoundModel) -> SearchHit:
    task = model.pipeline_tag or _GENERATION
    tags = (plain(tag) for tag in model.tags[:_MOST_TAGS])
    return SearchHit(
        id=model.id,
        suggested_local_id=model_id_from(model.id.rpartition("/")[2]),
        downloads=count(model.downloads),
        likes=count(model.likes),
        pipeline_tag=task,
        backend=_BACKENDS[task],
        tags=tuple(tag for tag in tags if tag),
    )
