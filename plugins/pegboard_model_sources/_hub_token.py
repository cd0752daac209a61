"""The stored token of the hub: in the operating system's keyring, else in a file of mode 0600."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal
from uuid import uuid4

import msgspec
from pegboard_contracts.errors import ApiError
from pegboard_contracts.hub import AccountState

from pegboard_model_sources._hub_cache import write_durably
from pegboard_model_sources._hub_environment import TOKEN
from pegboard_model_sources._hub_waiting import within

logger = logging.getLogger(__name__)

SERVICE = "pegboard"

_SECONDS_OF_REST = 30.0


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Remember where the token is and what the hub last said of it; never the token.

    `entry` is the name of the keyring's entry.
    """

    persistence: Literal["keyring", "file"]
    entry: str = ""
    username: str | None = None
    status: AccountState = "unverified"
    last_checked: float | None = None


class TokenKeeper:
    """Keep one token for a data folder. Thread-safe; what may hang is bounded by `seconds`."""

    def __init__(self, folder: Path, *, keyring: bool, seconds: float) -> None:
        """Read what is remembered; the keyring is not asked yet."""
        self._folder = folder
        self._keyring = keyring
        self._seconds = seconds
        self._lock = threading.Lock()
        self._token: str | None = None
        self._asleep_until = 0.0
        self._record = self._read_record()

    @property
    def record(self) -> TokenRecord | None:
        """Return what is known of the stored token, `None` without one."""
        return self._record

    def token(self) -> str | None:
        """Return the stored token. Raises `ApiError` 500 `hf_secure_storage_error`."""
        with self._lock:
            if self._token is None and self._record is not None:
                self._token = self._read(self._record)
            return self._token

    def keep(self, token: str, username: str, checked: float) -> None:
        """Store a verified token instead of the one before.

        Raises `ApiError` 500 `hf_secure_storage_error` when neither place takes it.
        """
        with self._lock:
            before = self._record
            record = TokenRecord(
                persistence="keyring",
                entry=f"huggingface-{uuid4().hex[:8]}",
                username=username,
                status="connected",
                last_checked=checked,
            )
            if not (self._keyring and self._kept_in_keyring(record.entry, token)):
                record = msgspec.structs.replace(record, persistence="file", entry="")
                self._keep_in_file(token)
            self._write_record(record)
            self._token = token
            if before is not None and before.persistence == "keyring":
                # A stale entry harms nobody and the new one stands: not worth an error.
                with suppress(Exception):
                    within(self._seconds, lambda: _delete_entry(before.entry))
            if before is not None and before.persistence == "file" != record.persistence:
                self._file.unlink(missing_ok=True)

    def note(self, status: AccountState, username: str | None, checked: float) -> None:
        """Remember what the hub said of the stored token."""
        with self._lock:
            if self._record is not None:
                self._write_record(
                    msgspec.structs.replace(
                        self._record,
                        status=status,
                        username=username or self._record.username,
                        last_checked=checked,
                    )
                )

    def remove(self) -> bool:
        """Remove the stored token; tells whether there was one.

        Raises `ApiError` 500 `hf_secure_storage_error` and keeps it when that fails.
        """
        with self._lock:
            record = self._record
            if record is None:
                return False
            try:
                if record.persistence == "keyring":
                    within(self._seconds, lambda: _delete_entry(record.entry))
                else:
                    self._file.unlink(missing_ok=True)
                self._record_file.unlink(missing_ok=True)
            except Exception as error:  # noqa: BLE001 - keyrings raise what they like
                raise _storage_error("gave the token not free", error) from None
            self._record = self._token = None
            return True

    @property
    def _file(self) -> Path:
        return self._folder / "token"

    @property
    def _record_file(self) -> Path:
        return self._folder / "account.json"

    def _read_record(self) -> TokenRecord | None:
        try:
            return msgspec.json.decode(self._record_file.read_bytes(), type=TokenRecord)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError):
            logger.warning("The record of the model hub's account cannot be read; it is ignored.")
            return None

    def _write_record(self, record: TokenRecord) -> None:
        try:
            write_durably(self._record_file, msgspec.json.encode(record))
        except OSError as error:
            raise _storage_error("cannot be written", error) from None
        self._record = record

    def _read(self, record: TokenRecord) -> str | None:
        if time.monotonic() < self._asleep_until:
            # One question after the other would wait for it.
            raise _storage_error("did not answer some seconds ago", TimeoutError())
        try:
            if record.persistence == "keyring":
                found = within(self._seconds, lambda: _read_entry(record.entry))
            else:
                found = self._file.read_text(encoding="utf-8").strip()
        except Exception as error:  # noqa: BLE001 - keyrings raise what they like
            self._asleep_until = time.monotonic() + _SECONDS_OF_REST
            raise _storage_error("does not give the token out", error) from None
        return found if found is not None and TOKEN.fullmatch(found) else None

    def _kept_in_keyring(self, entry: str, token: str) -> bool:
        try:
            return within(self._seconds, lambda: _store_entry(entry, token))
        except Exception as error:  # noqa: BLE001 - keyrings raise what they like
            logger.info("No keyring here (%s): the token goes into a file.", type(error).__name__)
            return False

    def _keep_in_file(self, token: str) -> None:
        scratch = self._folder / f".{uuid4().hex}.incomplete"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Nobody else may read it at any moment, so the mode comes with the creation.
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                out.write(token)
                out.flush()
                os.fsync(out.fileno())
            scratch.replace(self._file)
        except OSError as error:
            raise _storage_error("cannot be written", error) from None
        finally:
            scratch.unlink(missing_ok=True)


def _store_entry(entry: str, token: str) -> bool:
    """Store and read back; false where no real keyring is."""
    import keyring  # noqa: PLC0415 - heavy, and may look for a desktop
    from keyring.backends import fail, null  # noqa: PLC0415 - the same

    if isinstance(keyring.get_keyring(), (fail.Keyring, null.Keyring)):
        return False
    keyring.set_password(SERVICE, entry, token)
    return keyring.get_password(SERVICE, entry) == token


def _read_entry(entry: str) -> str | None:
    import keyring  # noqa: PLC0415 - heavy, and may look for a desktop

    return keyring.get_password(SERVICE, entry)


def _delete_entry(entry: str) -> None:
    import keyring  # noqa: PLC0415 - heavy, and may look for a desktop

    if keyring.get_password(SERVICE, entry) is not None:
        keyring.delete_password(SERVICE, entry)


def _storage_error(what: str, error: Exception) -> ApiError:
    message = (
        f"The place where the hub's token is kept {what} ({type(error).__name__}). Unlock the "
        "operating system's keyring, or set plugins.hub.keyring to false to use a file."
    )
    return ApiError(500, message, code="hf_secure_storage_error")
