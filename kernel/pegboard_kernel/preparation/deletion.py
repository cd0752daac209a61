"""Deleting the files of a model: its own, and nobody else's."""

from __future__ import annotations

from pathlib import Path

from pegboard_contracts.errors import ApiError

from pegboard_kernel.models.catalogue import check_id
from pegboard_kernel.preparation.places import Places, discard


def delete_files(data_dir: Path, model_id: str) -> int:
    """Delete a model's own folders in the data folder and return the freed bytes; blocking.

    These are its converted files and the caches of its engines. Files elsewhere (a user's
    folder, the hub's cache) stay. A cut at any moment leaves no half model. Raises `ApiError`
    409 `model_busy` while another server works on them, `model_files_linked` for a link,
    500 `deletion_failed`.
    """
    check_id(model_id)
    places = Places(data_dir, model_id)
    try:
        with places.locked():
            places.refuse_links()
            return discard(places.target) + discard(places.engines)
    except OSError as error:
        message = (
            f"The files of '{model_id}' cannot be deleted: {error.strerror or 'the system refuses'}"
            ". Check who owns the data folder and delete again; what is left is no model any more."
        )
        raise ApiError(500, message, param="model", code="deletion_failed") from None
