"""Addresses of models at the hub: `OWNER/REPO[@REVISION][#FILE]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec
from pegboard_contracts.errors import ApiError, invalid_request

DEFAULT_REVISION = "main"
COMMIT = re.compile(r"[0-9a-f]{40}")

_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_ADDRESS = re.compile(
    rf"(?P<repository>{_NAME}/{_NAME})"
    r"(?:@(?P<revision>[A-Za-z0-9][A-Za-z0-9._/-]{0,199}))?"
    r"(?:#(?P<file>[^#]{1,500}))?"
)
_LONGEST_NAME = 500
# In bytes, with room for what is appended while a file is on its way.
_LONGEST_PART = 200
_MOST_FILES = 5000
_DEVICE_NAMES = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")


class HubAddress(msgspec.Struct, frozen=True):
    """Name a repository, a revision of it and, where it holds several models, one file."""

    repository: str
    revision: str = DEFAULT_REVISION
    file: str | None = None

    def __str__(self) -> str:
        """Return the shortest address that parses to this one, without a scheme."""
        revision = "" if self.revision == DEFAULT_REVISION else f"@{self.revision}"
        return f"{self.repository}{revision}{f'#{self.file}' if self.file else ''}"


def parse_address(text: str) -> HubAddress:
    """Parse an address, with or without the scheme `hf:`.

    Raises `ApiError` 400 `hf_model_id_invalid`; the text is not repeated.
    """
    match = _ADDRESS.fullmatch(text.strip().removeprefix("hf:"))
    if match is None or not _sound(match["repository"], match["revision"], match["file"]):
        message = (
            "A model at the hub is addressed as OWNER/REPO, OWNER/REPO@REVISION or, to choose one "
            "GGUF file, OWNER/REPO#FILE.gguf. Check how the model's page spells its name."
        )
        raise invalid_request(message, param="source_model", code="hf_model_id_invalid")
    return HubAddress(match["repository"], match["revision"] or DEFAULT_REVISION, match["file"])


def is_repository(name: str) -> bool:
    """Tell whether a name that the hub gave is that of a repository, and nothing but that."""
    match = _ADDRESS.fullmatch(name)
    return match is not None and match["repository"] == name and _sound(name, None, None)


def _sound(repository: str, revision: str | None, file: str | None) -> bool:
    # The first two are rules of the hub; all of them become names of files here.
    if "--" in repository or ".." in repository or repository.endswith(".git"):
        return False
    if revision is not None and not is_file_name(revision):
        return False
    return file is None or is_file_name(file)


def is_file_name(name: str) -> bool:
    """Tell whether a name that the hub or a user gave is one on every system, and stays inside."""
    path = PurePosixPath(name)
    return (
        0 < len(name) <= _LONGEST_NAME
        and str(path) == name
        and not _leads_out(name)
        and not any(char in '\\:*?"<>|' or ord(char) < 32 or ord(char) == 127 for char in name)
        and all(
            part[-1] not in ". "
            and len(part.encode(errors="replace")) <= _LONGEST_PART
            and not _DEVICE_NAMES.fullmatch(part)
            for part in path.parts
        )
    )


def _leads_out(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return not name.strip("./") or not parts[0] or ".." in parts


def check_inside(name: str) -> None:
    """Raise `ApiError` 502 for a name in a repository that leads out of the cache's folder."""
    if _leads_out(name):
        raise _unusable("holds a file whose name leads out of its folder")


def check_files(names: Sequence[str]) -> None:
    """Check the names of the files that are to be fetched together.

    Raises `ApiError` 502 `hub_answer_unusable` when they cannot lie side by side on every
    system: names that are none, twice the same, a file that is the folder of another.
    """
    if len(names) > _MOST_FILES:
        raise _unusable(f"holds {len(names):,} files for one model")
    if not all(is_file_name(name) for name in names):
        raise _unusable("holds a file whose name is not allowed on every system")
    folded = {name.casefold() for name in names}
    folders = {str(parent) for name in folded for parent in PurePosixPath(name).parents}
    if len(folded) != len(names) or folded & folders:
        raise _unusable("holds two files that cannot lie side by side")


def _unusable(what: str) -> ApiError:
    message = f"The repository {what}; it is not used. Tell its publisher, or choose another."
    return ApiError(502, message, param="source_model", code="hub_answer_unusable")
