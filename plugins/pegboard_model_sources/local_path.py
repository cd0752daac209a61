"""The `local_path` source: files and folders of this machine, scripts included."""

from __future__ import annotations

import os.path
from pathlib import Path

from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.sources import ModelSource, model_id_from

_SUFFIXES = (".gguf", ".json")


class LocalPath(ModelSource):
    """Resolve plain paths and `scripted:FILE`; `~` is the home folder."""

    summary = "model files and folders of this machine"
    schemes = ("", "scripted")

    def resolve(self, address: str) -> Path:
        """Return the absolute path of an existing file or folder.

        Raises `ApiError` 400 for what cannot be a path and 404 where nothing is.
        """
        if not address.strip() or "\0" in address:
            raise invalid_request("The model's path is empty or holds a NUL.", param="source_model")
        try:
            path = Path(address).expanduser().resolve()
            exists = path.exists()
        except (OSError, RuntimeError, ValueError):
            message = f"'{address[:200]}' cannot be a path on this machine."
            raise invalid_request(message, param="source_model") from None
        if not exists:
            message = (
                f"There is no file or folder '{address[:200]}'. "
                "A relative path counts from where the server was started."
            )
            raise ApiError(404, message, param="source_model", code="model_source_not_found")
        return path

    def default_id(self, address: str) -> str:
        """Derive the id from the folder's name or the file's stem, a link's own name included."""
        path = Path(address.replace("\0", ""))
        try:
            path = Path(os.path.normpath(path.expanduser().absolute()))
            is_file = path.is_file()
        except (OSError, RuntimeError, ValueError):
            is_file = False
        if is_file or path.suffix.lower() in _SUFFIXES:
            return model_id_from(path.stem)
        return model_id_from(path.name)


plugin = LocalPath
