"""The account at the model hub, its search, and what it says about access to a model."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

AccountState = Literal[
    "not_configured", "unverified", "connected", "invalid_token", "network_error", "rate_limited"
]


class AccountStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Show the account without its token. `last_checked` is in seconds since 1970."""

    configured: bool
    status: AccountState
    username: str | None = None
    last_checked: float | None = None
    token_masked: str | None = None
    source: Literal["secure_store", "file", "environment"] | None = None
    persistence: Literal["keyring", "file", "environment"] | None = None
    removable: bool = False


class AccessReport(msgspec.Struct, frozen=True, kw_only=True):
    """Tell whether a model may be downloaded, and what to do when not.

    `code` is one of hf_access_granted, hf_token_missing, hf_token_invalid, hf_network_error,
    hf_rate_limited, hf_secure_storage_error, hf_approval_required, hf_model_not_found,
    hf_access_denied, hf_model_id_invalid.
    """

    granted: bool
    code: str
    message: str
    source_model: str
    recoverable: bool = False
    token_configured: bool = False
    model_url: str | None = None
    license_url: str | None = None
    license: str | None = None
    size_bytes: int | None = None
    revision: str | None = None
    access_type: Literal["public", "gated", "unknown", "local"] = "unknown"
    username: str | None = None
    action: Literal[
        "none",
        "configure_token",
        "replace_token",
        "test_again",
        "check_again",
        "open_model_agreement",
        "review_model_id",
    ] = "none"


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a repository that a search found; nothing says that it runs here."""

    id: str
    suggested_local_id: str
    downloads: int = 0
    likes: int = 0
    pipeline_tag: str | None = None
    backend: str = "openvino-genai"
    tags: tuple[str, ...] = ()


class ModelHub(Protocol):
    """Speak with the hub: a service of the `hub` source. Event loop; bounded in time.

    All raise `ApiError` 502 `hub_unreachable` when there is no network.
    """

    def status(self) -> AccountStatus:
        """Show the account as it was last seen; asks nobody."""
        ...

    async def set_token(self, token: str) -> AccountStatus:
        """Verify a read token with the hub, then keep it.

        Raises 400 for a token that has not the form of one or that the hub refuses.
        """
        ...

    async def test(self) -> AccountStatus:
        """Verify the configured token again."""
        ...

    async def remove_token(self) -> tuple[AccountStatus, bool]:
        """Remove the stored token, never one of the environment; tells whether there was one."""
        ...

    async def preflight(self, source_model: str) -> AccessReport:
        """Check whether a model can be downloaded. Raises 400 for an address of another form."""
        ...

    async def search(self, query: str, *, limit: int = 10, task: str) -> list[SearchHit]:
        """Search repositories of a form that is served or converted, most downloaded first.

        `task` is one that a backend does: the hub's word for it, `embeddings` or `rerank`.
        Raises 400 for another one and 409 for a token that the hub does not accept.
        """
        ...
