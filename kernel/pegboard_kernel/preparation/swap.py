"""Putting new files in the place of old ones: one or the other, whenever it is cut."""

from __future__ import annotations

from pathlib import Path

from pegboard_kernel.durable import sync_folder, sync_tree
from pegboard_kernel.preparation.places import Places, delete, discard


def publish(places: Places) -> None:
    """Put the staged files in place; the old ones become the backup. Raises `OSError`.

    Called again after a cut it goes on where it was cut.
    """
    if _is_there(places.staging):
        sync_tree(places.staging)
        if _is_there(places.target):
            if _is_there(places.backup):
                discard(places.target)
            else:
                places.target.rename(places.backup)
        places.staging.rename(places.target)
    elif not _is_there(places.target) and _is_there(places.backup):
        places.backup.rename(places.target)
    if places.models.is_dir():
        sync_folder(places.models)


def withdraw(places: Places, *, published: bool) -> None:
    """Put the old files back and remove the new ones, as far as they came. Raises `OSError`.

    `published` says that `publish` ended well.
    """
    if published or _is_there(places.backup):
        discard(places.target)
    if _is_there(places.backup):
        places.backup.rename(places.target)
        sync_folder(places.models)
    if _is_there(places.staging):
        delete(places.staging)


def forget_old(places: Places) -> None:
    """Remove the old files for good. Raises `OSError`."""
    if _is_there(places.backup):
        delete(places.backup)


def _is_there(path: Path) -> bool:
    return path.is_symlink() or path.exists()
