"""What there is: models, their contexts, models to begin with, and what the hub finds."""

from __future__ import annotations

import argparse
import os
import urllib.parse
from pathlib import Path
from typing import Any, cast

import msgspec
from pegboard_contracts.models import ModelEntry

from pegboard_kernel.cli.output import complain, print_facts, print_json, print_table, size, text
from pegboard_kernel.cli.progress_view import stage_of
from pegboard_kernel.cli.server_client import ServerClient, ServerError
from pegboard_kernel.models.catalogue import read_catalogue
from pegboard_kernel.models.suggestions import suggested_models
from pegboard_kernel.settings import Settings

Row = dict[str, Any]

_NOT_SERVED = "not served"
_SHOWN = {
    "status": "state",
    "error": "error",
    "switch_error": "last change failed",
    "kind": "kind",
    "backend": "backend",
    "device": "device",
    "recommended_device": "recommended device",
    "context_tokens": "context",
    "max_output_tokens": "output limit",
    "weight_format": "format",
    "source_model": "source",
    "aliases": "aliases",
    "pinned": "pinned",
    "tool_format": "tool format",
    "reasoning_format": "reasoning format",
    "trust_remote_code": "trusts remote code",
    "requests": "answers given",
    "description": "description",
}


def list_models(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    """Print every model; without a server the catalogue alone."""
    rows = _models(client, settings, local=namespace.url is None)
    told: dict[str, Any] = {"models": rows}
    if namespace.available:
        told["available"] = _available(client, settings)
    if namespace.json:
        print_json(told)
        return 0
    if rows:
        header = ("ID", "STATE", "DEVICE", "CONTEXT", "FORMAT", "SIZE", "SOURCE")
        print_table(header, [_cells(row) for row in rows])
    else:
        print(
            "No models yet. `pegboard models list --available` shows good ones to begin with, "
            "`pegboard models pull SPEC` gets one."
        )
    if namespace.available:
        print()
        _print_available(told["available"])
    return 0


def _models(client: ServerClient, settings: Settings, *, local: bool) -> list[Row]:
    catalogued = _catalogued(settings) if local else []
    rows = {entry.id: _row(entry, settings) for entry in catalogued}
    for row in _served(client):
        rows[row["id"]] = rows.get(row["id"], {}) | row
    return list(rows.values())


def _served(client: ServerClient) -> list[Row]:
    """Return what the server shows; a server that is not there shows nothing."""
    try:
        listed = cast("list[Row]", client.get("/v1/models")["data"])
    except ServerError as error:
        if error.status in (401, 403):
            raise
        return []
    shown: dict[str, Row] = {}
    sizes: dict[str, Row] = {}
    # Routes that a profile may leave out.
    try:
        models = cast("list[Row]", client.get("/v1/models/status")["models"]["available"])
        shown = {row["id"]: row for row in models}
        for one in cast("list[Row]", client.get("/v1/models/contexts")["data"]):
            if (weights := one["memory_guidance"]["weights_bytes"]) is not None:
                sizes[one["model"]] = {"size_bytes": weights}
    except (ServerError, KeyError):
        pass
    return [row | shown.get(row["id"], {}) | sizes.get(row["id"], {}) for row in listed]


def _catalogued(settings: Settings) -> list[ModelEntry]:
    file = settings.catalog or settings.data_dir / "models.json"
    catalogue = read_catalogue(file, default_device=settings.default_device)
    for fault in catalogue.faults:
        complain(fault)
    return catalogue.entries


def _row(entry: ModelEntry, settings: Settings) -> Row:
    return {
        "id": entry.id,
        "status": _NOT_SERVED,
        "name": entry.name or entry.id,
        "description": entry.description,
        "aliases": list(entry.aliases),
        "backend": entry.backend,
        "device": None,
        "recommended_device": entry.recommended_device,
        "context_tokens": entry.max_context_len,
        "max_output_tokens": entry.max_output_tokens,
        "weight_format": entry.weight_format,
        "source_model": entry.source_model,
        "size_bytes": _bytes_of(entry, settings),
    }


def _bytes_of(entry: ModelEntry, settings: Settings) -> int | None:
    """Add up the files of a model that are named in the catalogue."""
    place = entry.path or (entry.source_model if os.sep in entry.source_model else None)
    if place is None:
        return None
    path = settings.data_dir / Path(place).expanduser()
    try:
        files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
        return sum(one.stat().st_size for one in files) or None
    except OSError:
        return None


def _cells(row: Row) -> tuple[str, ...]:
    state = str(row["status"])
    if "progress" in row:
        stage, percent = stage_of(row)
        state = state if not stage or percent is None else f"{stage} {percent:.0f}%"
    names = ("device", "context_tokens", "weight_format")
    further = tuple(text(row.get(name)) for name in names)
    return (row["id"], state, *further, size(row.get("size_bytes")), text(row["source_model"]))


def _available(client: ServerClient, settings: Settings) -> list[Row]:
    try:
        return cast("list[Row]", client.get("/v1/models/suggested")["data"])
    except ServerError:
        suggested = suggested_models(_catalogued(settings))
        return cast("list[Row]", msgspec.to_builtins(suggested))


def _print_available(rows: list[Row]) -> None:
    print("Models to begin with; `pegboard models pull ID` gets one:")
    print_table(
        ("ID", "SIZE", "LICENCE", "DEVICE", "HERE AS", ""),
        [
            (
                row["id"],
                size(row["size_bytes"]),
                row["license"],
                row["recommended_device"],
                text(row["registered_as"]),
                row["description"],
            )
            for row in rows
        ],
    )


def show_model(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    """Print everything about one model; without a server what the catalogue says."""
    for row in _models(client, settings, local=namespace.url is None):
        if namespace.model == row["id"] or namespace.model in row["aliases"]:
            break
    else:
        message = f"The model '{namespace.model}' does not exist."
        raise ServerError(message, 404, "model_not_found")
    if namespace.json:
        print_json(row)
        return 0
    facts: dict[str, object] = {"id": row["id"]}
    if row.get("name") != row["id"]:
        facts["name"] = row.get("name")
    facts |= {words: _fact(row.get(name)) for name, words in _SHOWN.items()}
    facts["size"] = size(row["size_bytes"]) if row.get("size_bytes") else None
    if progress := row.get("progress"):
        stage, percent = stage_of(row)
        facts["doing"] = stage if percent is None else f"{stage} {percent:.0f}%"
        facts["operation"] = progress["operation_id"] if stage else None
    print_facts(facts)
    return 0


def _fact(value: object) -> object:
    return None if value in ([], False) else value


def contexts(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    """Print the contexts of all models or of one, or change one."""
    del settings
    if namespace.model is None:
        return _list_contexts(client, namespace)
    path = f"/v1/models/context?model={urllib.parse.quote(namespace.model, safe='')}"
    budget = client.get(path, timeout=30)
    if namespace.tokens is not None:
        return _change_context(client, budget, namespace)
    if namespace.json:
        print_json(budget)
        return 0
    memory = budget["memory_guidance"]
    print_facts(
        {
            "model": budget["model"],
            "context": text(budget["configured_context_tokens"]),
            "of it for prompts": budget["prompt_budget_tokens"],
            "of it for answers": budget["output_budget_tokens"],
            "recommended": budget["recommended_context_tokens"],
            "model's own limit": budget["model_architecture_limit_tokens"],
            "may be": f"{budget['minimum_context_tokens']} to {budget['maximum_context_tokens']}",
            "presets": list(budget["presets"]),
            "trial": "yes, beyond the recommended one" if budget["trial"] else None,
            "a change counts": "now" if budget["applies"] == "now" else "from the next load on",
            "cannot be changed": budget["reason"],
            "cache of a full context": _estimated(memory["kv_cache_bytes"]),
            "weights": size(memory["weights_bytes"]) if memory["weights_bytes"] else None,
        }
    )
    return 0


def _estimated(count: object) -> str | None:
    return f"about {size(count)} (estimated, not verified)" if count else None


def _list_contexts(client: ServerClient, namespace: argparse.Namespace) -> int:
    told = client.get("/v1/models/contexts", timeout=30)
    if namespace.json:
        print_json({"contexts": told["data"]})
        return 0
    names = (
        "model",
        "configured_context_tokens",
        "recommended_context_tokens",
        "model_architecture_limit_tokens",
        "configurable",
        "applies",
    )
    header = ("ID", "CONTEXT", "RECOMMENDED", "LIMIT", "CHANGEABLE", "APPLIES")
    print_table(header, [tuple(text(one[name]) for name in names) for one in told["data"]])
    return 0


def _change_context(client: ServerClient, budget: Row, namespace: argparse.Namespace) -> int:
    configured = budget["configured_context_tokens"]
    expected = configured if namespace.expect is None else namespace.expect
    if expected is None:
        message = (
            f"the context of '{budget['model']}' is not known before it is loaded; "
            f"`pegboard models load {budget['model']} --context-tokens {namespace.tokens}` sets it"
        )
        raise ServerError(message, 409)
    body = {
        "model": budget["model"],
        "context_tokens": namespace.tokens,
        "expected_context_tokens": expected,
    }
    changed = client.post("/v1/models/context", body)
    if namespace.json:
        print_json(changed)
    else:
        when = "now" if changed["status"] == "applied" else "from the next load on"
        print(f"{changed['model']}: context {changed['configured_context_tokens']} tokens {when}")
    return 0


def search(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    """Print repositories of the hub that a search finds."""
    del settings
    asked = {"query": namespace.query, "limit": namespace.limit, "task": namespace.task}
    hits = client.get_list(f"/v1/models/search-hf?{urllib.parse.urlencode(asked)}")
    if namespace.json:
        print_json({"hits": hits})
        return 0
    if not hits:
        print(f"The hub finds nothing of the task {namespace.task}; --task names another.")
        return 0
    rows = [
        (f"hf:{hit['id']}", str(hit["downloads"]), str(hit["likes"]), text(hit["pipeline_tag"]))
        for hit in hits
    ]
    print_table(("ADDRESS", "DOWNLOADS", "LIKES", "TASK"), rows)
    return 0
