"""Downloading a model's files into the cache: resumed after a cut, checked when whole.

`huggingface_hub` gives the session, with its proxies and certificates, and the layout of the
cache. The bytes are fetched here, because neither of its major versions goes on where an
earlier process was cut, nor compares what arrived with the hash that the hub states.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

from pegboard_contracts.converters import Report, Reporter
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import Phase

from pegboard_model_sources._hub_access import check_answer, hub_unreachable, seconds_to_wait
from pegboard_model_sources._hub_address import HubAddress
from pegboard_model_sources._hub_answers import RepositoryFile
from pegboard_model_sources._hub_cache import RepositoryCache
from pegboard_model_sources._hub_client import HubClient

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each further try; a try that brought bytes begins anew."""

_LONGEST_PAUSE = 60.0
_PIECE = 1024 * 1024
_LOOK_EVERY = 64 * _PIECE
_RESERVE = 1024 * _PIECE
_SECONDS_BETWEEN_REPORTS = 0.25


class Progress:
    """Count the bytes of a download and report them, not too often. One thread."""

    def __init__(self, total: int | None, report: Reporter) -> None:
        """Start at nothing; `total` is `None` when a size is unknown."""
        self._total = total
        self._done = 0
        self._report = report
        self._last = 0.0

    def add(self, count: int) -> None:
        """Count bytes; negative ones were lost again."""
        self._done += count
        self.live("downloading from the hub")

    def live(self, message: str, *, at_once: bool = False) -> None:
        """Give a sign of life."""
        now = time.monotonic()
        if not at_once and now - self._last < _SECONDS_BETWEEN_REPORTS:
            return
        self._last = now
        percent = None
        if self._total:
            percent = round(min(100.0, 100.0 * self._done / self._total), 1)
        done = self._done if self._total is None else min(self._done, self._total)
        self._report(
            Report(
                phase=Phase.DOWNLOADING,
                message=message,
                percent=percent,
                completed=done,
                total=self._total,
            )
        )


class _CutError(Exception):
    """Say that a connection brought no more; `pause` is what the hub asked for, in seconds."""

    def __init__(self, reason: str, pause: float = 0.0, refusal: ApiError | None = None) -> None:
        super().__init__(reason)
        self.pause = pause
        self.refusal = refusal


class FileDownload:
    """Bring one file of a commit into the cache."""

    def __init__(
        self,
        client: HubClient,
        cache: RepositoryCache,
        address: HubAddress,
        commit: str,
        file: RepositoryFile,
    ) -> None:
        """Take what is to be fetched; nothing is asked yet."""
        self._client = client
        self._cache = cache
        self._address = address
        self._commit = commit
        self._file = file
        # The names that other tools give the same content, so that they find it.
        stated = (file.lfs.sha256 if file.lfs else None) or file.blob_id
        self._blob = cache.blobs / (stated or hashlib.sha256(self._label.encode()).hexdigest())
        self._partial = self._blob.with_name(f"{self._blob.name}.pegboard.incomplete")

    @property
    def _label(self) -> str:
        return f"{self._commit}/{self._file.rfilename}"

    def missing_bytes(self) -> int:
        """Return how much is still to come, for the check of the disk."""
        size = self._file.bytes or 0
        if self._cache.has(self._commit, self._file.rfilename, self._file.bytes):
            return 0
        if _size(self._blob) == size:
            return 0
        return max(0, size - _size(self._partial))

    def run(self, progress: Progress) -> None:
        """Fetch what is missing, check it, and let the snapshot hold it.

        Another process that fetches the same file is waited for. Raises `AccessDeniedError`
        and `ApiError`: 502 `hub_unreachable`, 502 `download_corrupt` after which nothing of
        the file is left. Raises `OSError` when the cache cannot be written.
        """
        from filelock import FileLock, Timeout  # noqa: PLC0415 - only who downloads

        self._blob.parent.mkdir(parents=True, exist_ok=True)
        self._cache.locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._cache.locks / f"{self._blob.name}.lock")
        while True:
            try:
                lock.acquire(timeout=1.0)
                break
            except Timeout:
                progress.live("waiting for another download of the same file", at_once=True)
        try:
            self._run(progress)
        except ApiError as error:
            if error.code == "download_corrupt":
                self._partial.unlink(missing_ok=True)
            raise
        finally:
            lock.release()

    def _run(self, progress: Progress) -> None:
        name = self._file.rfilename
        placed = self._cache.snapshot(self._commit) / name
        for found in (placed, self._blob):
            if found.is_file():
                if self._is_sound(found, progress):
                    if found == self._blob:
                        self._cache.place(self._commit, name, found)
                    progress.add(_size(found))
                    return
                # A byte was flipped on the disk, or another tool wrote something else.
                self._cache.discard(found)
        self._fetch(progress)
        if not self._is_sound(self._partial, progress):
            raise _corrupt(name)
        self._partial.replace(self._blob)
        self._cache.place(self._commit, name, self._blob)

    def _fetch(self, progress: Progress) -> None:
        """Fill the partial file, however many connections that takes."""
        progress.add(_size(self._partial))
        tries = 0
        while True:
            before = _size(self._partial)
            try:
                self._connect(progress)
            except _CutError as cut:
                tries = tries + 1 if _size(self._partial) <= before else 1
                if tries > len(PAUSES):
                    raise cut.refusal or hub_unreachable(str(cut)) from None
                self._pause(max(PAUSES[tries - 1], min(cut.pause, _LONGEST_PAUSE)), progress)
            else:
                return

    @staticmethod
    def _pause(seconds: float, progress: Progress) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            progress.live("the connection was cut; trying again", at_once=True)
            time.sleep(min(left, 1.0))

    def _connect(self, progress: Progress) -> None:
        size = self._file.bytes
        first = _size(self._partial)
        if size is not None and first > size:
            self._partial.unlink()
            progress.add(-first)
            first = 0
        elif size is not None and first == size and self._partial.exists():
            return
        url = self._client.file_url(self._address, self._commit, self._file.rfilename)
        with closing(_pieces(self._client, url, first)) as pieces:
            first = self._begin(next(pieces), first, progress)
            looked = first
            with self._partial.open("ab") as out:
                out.truncate(first)
                for piece in pieces:
                    out.write(piece)
                    first += len(piece)
                    progress.add(len(piece))
                    if size is not None and first > size:
                        raise _corrupt(self._file.rfilename)
                    if size is None and first - looked >= _LOOK_EVERY:
                        looked = first
                        self._leave_room()
                os.fsync(out.fileno())
        if size is not None and first < size:
            raise _CutError("the file ended early", refusal=_corrupt(self._file.rfilename))

    def _leave_room(self) -> None:
        """Stop a file of unknown length before it fills the disk. Raises `OSError`."""
        if self._cache.free_bytes() < _RESERVE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _begin(self, answer: Any, first: int, progress: Progress) -> int:  # noqa: ANN401 - see `_hub_client`
        """Read the answer's head and return from which byte on it brings the file."""
        status: int = answer.status_code
        if status == 416:
            # There is nothing after what we have, so what we have is not the file.
            raise _corrupt(self._file.rfilename)
        if status in {408, 429} or status >= 500:
            refusal: ApiError | None = None
            try:
                check_answer(answer, self._address, token_sent=self._client.has_token)
            except ApiError as error:
                refusal = error
            raise _CutError(f"it answered with status {status}", seconds_to_wait(answer), refusal)
        check_answer(answer, self._address, token_sent=self._client.has_token)
        stated = str(answer.headers.get("content-range", ""))
        if first and (status != 206 or not stated.startswith(f"bytes {first}-")):
            # The whole file comes, from its beginning on.
            progress.add(-first)
            first = 0
        return first

    def _is_sound(self, path: Path, progress: Progress) -> bool:
        """Compare size and hash with what the hub stated; also a sign of life."""
        size = self._file.bytes
        if size is not None and _size(path) != size:
            return False
        lfs = self._file.lfs
        if lfs is not None and lfs.sha256:
            return _digest(path, hashlib.sha256(), progress) == lfs.sha256.lower()
        if self._file.blob_id and self._file.lfs is None:
            begun = hashlib.sha1(f"blob {_size(path)}\0".encode(), usedforsecurity=False)
            return _digest(path, begun, progress) == self._file.blob_id.lower()
        return True


def _pieces(client: HubClient, url: str, first: int) -> Generator[Any]:
    """Yield the answer, then its body in pieces; the end of a connection is `_CutError`."""
    try:
        with client.opened(url, first) as answer:
            yield answer
            yield from answer.iter_bytes()  # of any size: a cut loses none
    except Exception as error:  # noqa: BLE001 - two HTTP libraries with errors of their own
        raise _CutError(f"the connection was cut ({type(error).__name__})") from None


def _digest(path: Path, begun: Any, progress: Progress) -> str:  # noqa: ANN401 - hashlib's own type is private
    with path.open("rb") as content:
        while piece := content.read(_PIECE):
            begun.update(piece)
            progress.live("checking what arrived")
    return str(begun.hexdigest())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _corrupt(name: str) -> ApiError:
    message = (
        f"The file '{name[:200]}' did not arrive as the hub describes it, in size or in content. "
        "It was removed; fetch the model again. If that repeats, a proxy or a mirror changes it."
    )
    return ApiError(502, message, code="download_corrupt")
