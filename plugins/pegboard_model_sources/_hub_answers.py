"""What the hub answers, as far as it is used; everything in it is a stranger's."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any

import msgspec

Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
"""Bytes of one file; so bounded that those of a whole repository fit into JSON's integers."""

_LARGEST_COUNT = 1 << 53
# With the signs that turn the direction of writing or join letters without being seen.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")


def plain(text: str, limit: int = 200) -> str:
    """Return the hub's words in one printable line of at most `limit` characters."""
    return _UNPRINTABLE.sub(" ", text[: 4 * limit]).strip()[:limit]


class LargeFile(msgspec.Struct, frozen=True):
    """Describe a file that is kept outside git: its SHA-256 and its size in bytes."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] | None = None
    size: Size | None = None


class RepositoryFile(msgspec.Struct, frozen=True):
    """Describe a file of a repository; `blob_id` is git's own hash of a small one."""

    rfilename: str
    size: Size | None = None
    blob_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")] | None = msgspec.field(
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
    gated: bool | str | None = False
    card: dict[str, Any] | None = msgspec.field(default=None, name="cardData")
    tags: tuple[str, ...] = ()

    @property
    def license(self) -> str | None:
        """Return the licence's short name."""
        stated = (self.card or {}).get("license")
        if isinstance(stated, str):
            return plain(stated) or None
        found = (tag for tag in self.tags if tag.startswith("license:"))
        return plain(next(found, "").removeprefix("license:")) or None

    def only(self, names: Collection[str]) -> list[RepositoryFile]:
        """Return the files of these names."""
        wanted = frozenset(names)
        return [file for file in self.siblings if file.rfilename in wanted]

    def size_of(self, names: Collection[str]) -> int | None:
        """Return how many bytes these files have together, `None` when one does not say."""
        sizes = [file.bytes for file in self.only(names)]
        return None if None in sizes else sum(size or 0 for size in sizes)


class FoundModel(msgspec.Struct, frozen=True):
    """Describe one hit of a search."""

    id: str
    downloads: int = 0
    likes: int = 0
    pipeline_tag: str | None = None
    tags: tuple[str, ...] = ()


class Account(msgspec.Struct, frozen=True):
    """Name an account."""

    name: str


def count(number: int) -> int:
    """Return a number of the hub's within what clients in any language can read."""
    return max(0, min(number, _LARGEST_COUNT))
