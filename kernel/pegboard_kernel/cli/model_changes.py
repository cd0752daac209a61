"""Changes of models: got, converted, registered, loaded, unloaded, removed, cancelled."""

from __future__ import annotations

import argparse
import os.path
import re
import urllib.parse
from pathlib import Path
from typing import Any

from pegboard_contracts.sources import model_id_from

from pegboard_kernel.cli import operations
from pegboard_kernel.cli.operations import Model
from pegboard_kernel.cli.output import complain, plain, print_json, size
from pegboard_kernel.cli.progress_view import progress_view
from pegboard_kernel.cli.server_client import ServerClient, ServerError
from pegboard_kernel.settings import Settings

INTERRUPTED = 130

_HUB = "hf:"
_SCRIPTED = "scripted:"
_SHOWN_WHOLE = (_HUB, "package:")
_SUFFIXES = (".gguf", ".json")
# Two letters at least: `C:` is a drive.
_SCHEME = re.compile(r"[a-z][a-z0-9_+-]+:")
_CONVERSION = ("weight_format", "group_size", "ratio", "sym")
_DESCRIPTION = (
    "name",
    "backend",
    "weight_format",
    "recommended_device",
    "max_context_len",
    "max_output_tokens",
    "description",
)


def pull(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    """Register a model when it is not, fetch it, and convert it when that is needed."""
    known = _known(client, namespace)
    if known is None:
        body = _registration(client, namespace) | _given(namespace, *_CONVERSION)
        body["load_after"] = namespace.load
        _tell_access(client, body["source_model"], namespace)
        return _begin(client, "/v1/models/download-custom", body, namespace)
    namespace.model = known["id"]
    running = operations.running_operation(known) is not None
    preparing = running and known["progress"]["operation_type"] != "load"
    if _given(namespace, *_CONVERSION) or not known["is_downloaded"] or preparing:
        return convert(client, settings, namespace)
    if namespace.load or running:
        return _begin(client, "/v1/models/load", {"model": known["id"]}, namespace)
    return _report(known, namespace, "ready_to_load", "loaded")


def convert(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    """Fetch and convert a registered model anew."""
    del settings
    body = {"model": namespace.model, "load_after": namespace.load}
    body |= _given(namespace, *_CONVERSION)
    if namespace.trust_remote_code:
        body["trust_remote_code"] = True
    if namespace.load and namespace.recommended_device:
        body["device"] = namespace.recommended_device
    return _begin(client, "/v1/models/convert", body, namespace)


def register(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    """Add an entry to the catalogue of the server."""
    del settings
    namespace.id, namespace.spec = namespace.model, namespace.source
    told = client.post("/v1/models/register", _registration(client, namespace))
    if namespace.json:
        print_json(told["model"])
    else:
        print(plain(told["message"]))
    return 0


def load(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    """Load a model and wait for it."""
    del settings
    body = {"model": namespace.model, "force": namespace.force}
    body |= _given(namespace, "device", "context_tokens", "pinned")
    namespace.load = True
    return _begin(client, "/v1/models/load", body, namespace)


def unload(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    """Unload a model and wait until its engine is gone."""
    del settings
    told = _ask(client, "/v1/models/unload", {"model": namespace.model}, namespace.model)
    if namespace.no_wait:
        return _acknowledged(told, namespace)
    with progress_view(quiet=namespace.json) as show:
        shown = told["model"]
        for shown in operations.follow(client, told["model_id"]):
            show(shown)
    return _report(shown, namespace, "ready_to_load", "not_downloaded")


def remove(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    """Remove a model and its own files, or its files alone."""
    del settings
    if namespace.files_only:
        told = client.post("/v1/models/delete", {"model": namespace.model})
        words = told["message"]
    else:
        told = client.delete("/v1/models/" + urllib.parse.quote(namespace.model, safe=""))
        words = f"'{told['id']}' is removed."
    if namespace.json:
        print_json(told)
        return 0
    freed = told["freed_bytes"]
    print(plain(words) + (f" {size(freed)} are free again." if freed else ""))
    return 0


def cancel(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    """Cancel what runs for a model."""
    del settings
    told = operations.cancel(client, namespace.model, namespace.operation)
    if namespace.json:
        print_json(told)
    else:
        print(plain(told["message"]))
    return 0


def _known(client: ServerClient, namespace: argparse.Namespace) -> Model | None:
    """Return the registered model that a pull means: by its id, an alias, or its source."""
    if namespace.id is not None:
        return None  # the server compares what is registered under it
    spec = namespace.spec
    for model in client.get("/v1/models/status")["models"]["available"]:
        if spec in (model["id"], *model["aliases"]):
            return dict(model)
        # Of a path the status shows the last name alone, which others have too.
        if spec.startswith(_SHOWN_WHOLE) and spec == model["source_model"]:
            return dict(model)
    return None


def _registration(client: ServerClient, namespace: argparse.Namespace) -> dict[str, Any]:
    """Return the entry that is asked for: of a model to begin with, or of a source."""
    for one in _suggested(client) if _is_word(namespace.spec) else ():
        if one["id"] == namespace.spec:
            body = {name: one[name] for name in (*_DESCRIPTION, "source_model") if one.get(name)}
            body["model_id"] = namespace.id or one["id"]
            break
    else:
        source = _source(namespace.spec)
        body = {"model_id": namespace.id or _default_id(source), "source_model": source}
        if source.startswith(_SCRIPTED):
            body["backend"] = "scripted"
    body |= _given(namespace, *_DESCRIPTION)
    body["trust_remote_code"] = namespace.trust_remote_code
    return body


def _suggested(client: ServerClient) -> list[dict[str, Any]]:
    return list(client.get("/v1/models/suggested")["data"])


def _is_word(spec: str) -> bool:
    return not _SCHEME.match(spec) and "/" not in spec and "\\" not in spec


def _source(spec: str) -> str:
    """Make a path absolute: the server runs in another folder. Raises `ServerError`."""
    kind = _SCRIPTED if spec.startswith(_SCRIPTED) else ""
    path = Path(spec.removeprefix(kind)).expanduser()
    if (kind or not _SCHEME.match(spec)) and path.exists():
        return kind + os.path.normpath(path.absolute())
    if not kind and _is_word(spec):
        message = (
            f"'{spec}' is no registered model, none to begin with, and no file or folder; "
            "`pegboard models list --available` shows ids, hf:OWNER/REPO names a repository"
        )
        raise ServerError(message, 404)
    return spec


def _default_id(source: str) -> str:
    """Derive an id as the server does for `--model SPEC`."""
    place = source
    if source.startswith(_HUB):
        repository, _, file = source.partition("#")
        place = file or repository.partition("@")[0]
    name = re.split(r"[\\/:]", place.rstrip("\\/"))[-1]
    for suffix in _SUFFIXES:
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return model_id_from(name)


def _given(namespace: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name in names if (value := getattr(namespace, name)) is not None}


def _tell_access(client: ServerClient, source: str, namespace: argparse.Namespace) -> None:
    """Tell the size and the licence of a repository; what is wrong, the pull itself tells."""
    if namespace.json or not source.startswith(_HUB):
        return
    try:
        report = client.post("/v1/huggingface/preflight", {"source_model": source})
    except ServerError:
        return
    facts = [size(report["size_bytes"])] if report["size_bytes"] else []
    facts += [f"licence {report['license']}"] if report["license"] else []
    if facts:
        print(f"{plain(source)}: {plain(', '.join(facts))}")


def _ask(client: ServerClient, path: str, body: dict[str, Any], model: str) -> dict[str, Any]:
    try:
        return client.post(path, body)
    except KeyboardInterrupt:
        complain(
            f"interrupted before the server answered; `pegboard models show {model}` tells "
            "whether it has begun"
        )
        raise


def _begin(
    client: ServerClient, path: str, body: dict[str, Any], namespace: argparse.Namespace
) -> int:
    """Ask for work, follow it to its end and tell how it ended."""
    told = _ask(client, path, body, body.get("model") or body["model_id"])
    if namespace.no_wait:
        return _acknowledged(told, namespace)
    shown: Model = told["model"]
    try:
        with progress_view(quiet=namespace.json) as show:
            for shown in operations.follow(client, told["model_id"]):
                show(shown)
    except KeyboardInterrupt:
        return _interrupted(client, shown)
    wanted = ("loaded",) if namespace.load else ("ready_to_load", "loaded")
    return _report(shown, namespace, *wanted)


def _acknowledged(told: dict[str, Any], namespace: argparse.Namespace) -> int:
    if namespace.json:
        print_json({name: told[name] for name in ("model_id", "operation_id", "status", "message")})
    else:
        print(told["operation_id"] or plain(told["message"]))
    return 0


def _interrupted(client: ServerClient, shown: Model) -> int:
    """Cancel the operation that was last seen, and tell what became of it."""
    model = shown["id"]
    look = f"`pegboard models show {model}` tells how it is"
    try:
        operation = operations.running_operation(shown)
        if operation is None:
            complain(f"interrupted; {look}")
        else:
            told = operations.cancel(client, model, operation)
            complain(f"interrupted: {told['message']}")
    except ServerError as error:
        complain(f"interrupted, but not cancelled: {error}; {look}")
    except KeyboardInterrupt:
        complain(f"interrupted before the cancel was confirmed; {look}")
    return INTERRUPTED


def _report(shown: Model, namespace: argparse.Namespace, *wanted: str) -> int:
    """Print how a model is now; anything but a wanted state is a failure."""
    model, state = shown["id"], shown["status"]
    fault = shown["switch_error"] if state == "loaded" else shown["error"]
    if namespace.json:
        print_json(shown)
    else:
        print(f"{plain(model)}: {state}")
    if state in wanted and not (state == "loaded" and fault):
        if state == "ready_to_load" and not namespace.json and "loaded" in wanted:
            print(f"`pegboard models load {model}` loads it.")
        return 0
    complain(fault or f"'{model}' is {state}")
    return 1
