"""The cache that all tools of the hub share: blobs, and snapshots that point to them.

A file appears in a snapshot only when it is whole, so what can be missing is files. Which
ones belong to a commit is written down before the first is fetched, in `pegboard/` beside
the snapshots; newer tools keep such a list too, in `trees/`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from pegboard_contracts.errors import ApiError

from pegboard_model_sources._hub_address import COMMIT, HubAddress, is_file_name
from pegboard_model_sources._hub_files import ModelFiles, choose_files
from pegboard_model_sources._hub_guess import looks_whole

Sizes = Mapping[str, int | None]
"""The sizes in bytes of all files of a commit, by name; `None` is unknown."""


class _Listing(msgspec.Struct, frozen=True):
    files: dict[str, int | None]


class _Tree(msgspec.Struct, frozen=True):
    files: dict[str, dict[str, Any]]


class LocalModel(msgspec.Struct, frozen=True):
    """Describe a model whose files are all here. `path` is what a backend opens."""

    path: Path
    commit: str
    files: ModelFiles
    bytes: int


class RepositoryCache:
    """Keep the downloaded files of one repository."""

    def __init__(self, root: Path, repository: str) -> None:
        """Take the cache's folder; nothing is created."""
        self.root = root
        self.folder = root / f"models--{repository.replace('/', '--')}"
        self.blobs = self.folder / "blobs"
        self.locks = root / ".locks" / self.folder.name

    def snapshot(self, commit: str) -> Path:
        """Return the folder of a commit's files."""
        return self.folder / "snapshots" / commit

    def find(self, address: HubAddress) -> LocalModel | None:
        """Return the model of an address when every file of it is here, in its full size."""
        commit = self._commit_of(address.revision)
        if commit is None or not self.snapshot(commit).is_dir():
            return None
        with suppress(ApiError, OSError):
            return self._model(address, commit)
        return None

    def _model(self, address: HubAddress, commit: str) -> LocalModel | None:
        folder = self.snapshot(commit)
        listed = self._listing(commit)
        if listed is None:
            # Another tool fetched it, and did not say what there was to fetch.
            here = [
                str(path.relative_to(folder).as_posix())
                for path in folder.rglob("*")
                if path.is_file()
            ]
            files = choose_files(here, address.file)
            whole = looks_whole(folder, files)
        else:
            files = choose_files(listed, address.file)
            whole = all(self.has(commit, name, listed[name]) for name in files.names)
        if not whole:
            return None
        size = sum((folder / name).stat().st_size for name in files.names)
        return LocalModel(folder / (files.file or ""), commit, files, size)

    def has(self, commit: str, name: str, size: int | None) -> bool:
        """Tell whether a snapshot holds a file, in the size it must have."""
        path = self.snapshot(commit) / name
        return path.is_file() and size in {None, path.stat().st_size}

    def _commit_of(self, revision: str) -> str | None:
        if COMMIT.fullmatch(revision):
            return revision
        try:
            commit = (self.folder / "refs" / revision).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return commit if COMMIT.fullmatch(commit) else None

    def _listing(self, commit: str) -> Sizes | None:
        with suppress(OSError, msgspec.DecodeError):
            raw = self._listing_file(commit).read_bytes()
            return msgspec.json.decode(raw, type=_Listing).files
        with suppress(OSError, msgspec.DecodeError):
            raw = (self.folder / "trees" / f"{commit}.json").read_bytes()
            tree = msgspec.json.decode(raw, type=_Tree).files
            return {
                name: size if isinstance(size := facts.get("size"), int) else None
                for name, facts in tree.items()
                if is_file_name(name)
            }
        return None

    def _listing_file(self, commit: str) -> Path:
        return self.folder / "pegboard" / f"{commit}.json"

    def expect(self, commit: str, sizes: Sizes) -> None:
        """Write down, durably, what a commit holds, before any of it is fetched."""
        write_durably(self._listing_file(commit), msgspec.json.encode(_Listing(dict(sizes))))

    def name_revision(self, revision: str, commit: str) -> None:
        """Let a branch or tag mean `commit` from now on, once its files are here.

        Raises `ApiError` 409 for a name that is the folder of another one here, or lies in it.
        """
        if COMMIT.fullmatch(revision):
            return
        try:
            write_durably(self.folder / "refs" / revision, commit.encode())
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            message = (
                f"The revision '{revision}' is spelled like the folder of another one that was "
                f"fetched before, or the other way round. Name the commit instead: {commit}"
            )
            raise ApiError(
                409, message, param="source_model", code="hub_revision_conflict"
            ) from None

    def place(self, commit: str, name: str, blob: Path) -> None:
        """Let a snapshot's file be a finished blob: a link to it, else the blob itself.

        Without links the room for a second copy may not be there.
        """
        pointer = self.snapshot(commit) / name
        pointer.parent.mkdir(parents=True, exist_ok=True)
        scratch = pointer.with_name(f".{uuid4().hex}.incomplete")
        try:
            try:
                scratch.symlink_to(os.path.relpath(blob, pointer.parent))
            except OSError:
                try:
                    scratch.hardlink_to(blob)
                except OSError:
                    blob.replace(scratch)
            scratch.replace(pointer)
        finally:
            scratch.unlink(missing_ok=True)

    def discard(self, path: Path) -> None:
        """Remove a damaged file, and what it links to where that lies in this cache."""
        target = path.resolve()
        if target.is_relative_to(self.root.resolve()):
            target.unlink(missing_ok=True)
        path.unlink(missing_ok=True)

    def free_bytes(self) -> int:
        """Return the room on the disk of the cache."""
        folder = self.root
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free


def write_durably(file: Path, content: bytes) -> None:
    """Replace a file as a whole; it is on the disk when this returns. Raises `OSError`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    scratch = file.with_name(f".{uuid4().hex}.incomplete")
    try:
        with scratch.open("xb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        scratch.replace(file)
    finally:
        scratch.unlink(missing_ok=True)
