"""What the hub's refusals mean for the user, and the errors that say so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal, NoReturn, Protocol
from urllib.parse import urlsplit, urlunsplit

from pegboard_contracts.errors import ApiError
from pegboard_contracts.hub import AccessReport

from pegboard_model_sources._hub_address import HubAddress
from pegboard_model_sources._hub_environment import endpoint

_LONGEST_WAIT = 3600.0


class Answer(Protocol):
    """Be the part of an HTTP answer that refusals are read from."""

    @property
    def status_code(self) -> int:
        """Return the status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers; their names ignore case."""
        ...


class AccessDeniedError(ApiError):
    """Carry the hub's refusal as a report: 409, whatever the hub's status was (decision 45)."""

    def __init__(self, report: AccessReport) -> None:
        """Make the error that says what the report says."""
        super().__init__(409, report.message, code=report.code, param="source_model")
        self.report = report


def hub_unreachable(reason: str) -> ApiError:
    """Make the 502 of a hub that does not answer as one; `reason` is a clause without secrets."""
    message = (
        f"The model hub cannot be used: {reason}. Models that are downloaded already go on "
        "working. Check the network, the proxy and HF_ENDPOINT, then try again."
    )
    return ApiError(502, message, code="hub_unreachable")


def check_answer(answer: Answer, address: HubAddress | None, *, token_sent: bool) -> None:
    """Return when the hub granted what was asked.

    Raises `AccessDeniedError` for a refusal that the user can do something about, `ApiError`
    502 for anything else.
    """
    if answer.status_code >= 400:
        _refuse(answer, address, token_sent=token_sent)


def _refuse(answer: Answer, address: HubAddress | None, *, token_sent: bool) -> NoReturn:
    status = answer.status_code
    code = answer.headers.get("X-Error-Code", "")
    said = answer.headers.get("X-Error-Message", "")
    if status == 429:
        raise _denied(address, "hf_rate_limited", token_sent=token_sent)
    if status >= 500 or status == 408:
        raise hub_unreachable(f"it answered with status {status}")
    if code == "GatedRepo":
        word = "hf_approval_required" if token_sent else "hf_token_missing"
        raise _denied(address, word, token_sent=token_sent, gated=True)
    if code in {"RepoNotFound", "RevisionNotFound", "EntryNotFound"} or status in {404, 410}:
        if address is None:
            raise hub_unreachable("what answers there has no accounts and no search")
        raise _denied(address, "hf_model_not_found", token_sent=token_sent)
    if status == 401 and (token_sent or "credentials" in said.lower()):
        raise _denied(address, "hf_token_invalid", token_sent=True)
    if status == 401:
        raise _denied(address, "hf_token_missing", token_sent=False)
    raise _denied(address, "hf_access_denied", token_sent=token_sent)


_MESSAGES = {
    "hf_token_missing": (
        "The hub gives {model} only to accounts that may have it. Store a read token of such an "
        "account: POST /v1/huggingface/token, or set HF_TOKEN."
    ),
    "hf_token_invalid": (
        "The hub does not accept the configured token: it is expired, revoked or mistyped. Store "
        "a new one, or remove it if {model} needs none."
    ),
    "hf_approval_required": (
        "The publisher of {model} wants an agreement first. Open the model's page with the "
        "token's account, accept the terms, and try again."
    ),
    "hf_model_not_found": (
        "The hub has no {model}, or shows it only to other accounts. Check the spelling, and the "
        "revision if one was given."
    ),
    "hf_access_denied": (
        "The hub refuses {model} to this account. If the token is a fine-grained one, it must "
        "allow to read the repository."
    ),
    "hf_rate_limited": (
        "The hub answers that too many requests came from here. Wait some minutes; with a token "
        "of an account the limit is higher."
    ),
}
Action = Literal[
    "configure_token", "replace_token", "check_again", "open_model_agreement", "review_model_id"
]
_ACTIONS: dict[str, Action] = {
    "hf_token_missing": "configure_token",
    "hf_token_invalid": "replace_token",
    "hf_approval_required": "open_model_agreement",
    "hf_model_not_found": "review_model_id",
    "hf_access_denied": "open_model_agreement",
    "hf_rate_limited": "check_again",
}


def _denied(
    address: HubAddress | None, code: str, *, token_sent: bool, gated: bool = False
) -> AccessDeniedError:
    model = "this model" if address is None else f"the model '{address}'"
    page = None if address is None else page_of(address)
    report = AccessReport(
        granted=False,
        code=code,
        message=_MESSAGES[code].format(model=model),
        source_model="" if address is None else str(address),
        recoverable=True,
        token_configured=token_sent,
        model_url=page,
        license_url=page if gated else None,
        access_type="gated" if gated else "unknown",
        action=_ACTIONS[code],
    )
    return AccessDeniedError(report)


def page_of(address: HubAddress) -> str:
    """Return the address of the model's page at the hub."""
    place = urlsplit(endpoint())
    # A mirror's address may hold a password.
    shown = place._replace(netloc=place.netloc.rpartition("@")[2])
    return f"{urlunsplit(shown)}/{address.repository}"


def seconds_to_wait(answer: Answer) -> float:
    """Return how long a busy hub asks to be left alone, 0 when nothing is said.

    It says so in seconds or as a date.
    """
    value = answer.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", value):
        return min(float(value), _LONGEST_WAIT)
    try:
        wait = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return max(0.0, min(wait, _LONGEST_WAIT))
