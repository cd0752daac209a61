"""`pegboard models`: what the catalogue holds, and what a running server does with it."""

from __future__ import annotations

import argparse
import sys
import time
import urllib.parse
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from pegboard_contracts.models import ModelEntry

from pegboard_kernel.cli.output import print_json, print_table, progress
from pegboard_kernel.cli.parser import Parser
from pegboard_kernel.cli.server_client import ServerError, client_for
from pegboard_kernel.cli.setting_flags import SettingFlags, add_client_flags
from pegboard_kernel.models.catalogue import read_catalogue
from pegboard_kernel.settings import Settings

_EXAMPLES = """\
examples:
  pegboard models list
  pegboard models list --catalog ./models.json --json
  pegboard models load smollm2
  pegboard models unload smollm2

Without a running server `list` knows no states and shows the catalogue alone; `load` and
`unload` need one.
exit codes: 0 success, 1 the server refused or is not there, 2 bad usage or bad settings
"""


_POLL_SECONDS = 0.2


def configure(parser: Parser, arguments: Sequence[str]) -> None:
    """Add `list`, `load` and `unload`."""
    del arguments
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=Parser)
    every = actions.add_parser("list", help="list the models", epilog=_EXAMPLES)
    flags = add_client_flags(every)
    every.set_defaults(run=partial(_list, flags))
    for verb, busy, help_text in (
        ("load", "loading", "load a model in the running server"),
        ("unload", "unloading", "free a model in the running server"),
    ):
        action = actions.add_parser(verb, help=help_text, epilog=_EXAMPLES)
        action.add_argument("model", metavar="ID", help="id or alias of a registered model")
        action.set_defaults(run=partial(_change, add_client_flags(action), verb, busy))


def _change(flags: SettingFlags, verb: str, busy: str, namespace: argparse.Namespace) -> int:
    client = client_for(flags.settings(namespace))
    try:
        told = client.post(f"/v1/models/{verb}", {"model": namespace.model})
        path = "/v1/models/" + urllib.parse.quote(told["model_id"], safe="")
        shown = client.get(path)
        with progress(f"{busy} {told['model_id']}"):
            while shown["status"] == busy:
                time.sleep(_POLL_SECONDS)
                shown = client.get(path)
    except ServerError as error:
        print(f"pegboard: {error}", file=sys.stderr)
        return 1
    if namespace.json:
        print_json(shown)
    else:
        print(f"{shown['id']}: {shown['status']}")
    if shown["status"] == "error":
        print(f"pegboard: {shown['error']}", file=sys.stderr)
        return 1
    return 0


def _list(flags: SettingFlags, namespace: argparse.Namespace) -> int:
    settings = flags.settings(namespace)
    models = {entry.id: _row(entry) for entry in _catalogued(settings)}
    for row in _served(settings):
        models[row["id"]] = models.get(row["id"], {}) | row
    if namespace.json:
        print_json({"models": list(models.values())})
        return 0
    if not models:
        print("No models yet. `pegboard serve --model SPEC` adds one; see pegboard serve --help.")
        return 0
    columns = ("id", "status", "backend", "device", "context_tokens", "source_model")
    rows = [tuple(_text(row.get(column)) for column in columns) for row in models.values()]
    print_table(("ID", "STATE", "BACKEND", "DEVICE", "CONTEXT", "SOURCE"), rows)
    return 0


def _catalogued(settings: Settings) -> list[ModelEntry]:
    file = settings.catalog or settings.data_dir / "models.json"
    catalogue = read_catalogue(file, default_device=settings.default_device)
    for fault in catalogue.faults:
        print(f"pegboard: {fault}", file=sys.stderr)
    return catalogue.entries


def _served(settings: Settings) -> list[dict[str, Any]]:
    try:
        return cast("list[dict[str, Any]]", client_for(settings).get("/v1/models")["data"])
    except (ServerError, KeyError, ValueError):
        return []


def _row(entry: ModelEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "status": "not served",
        "name": entry.name or entry.id,
        "description": entry.description,
        "aliases": entry.aliases,
        "backend": entry.backend,
        "device": None,
        "recommended_device": entry.recommended_device,
        "context_tokens": entry.max_context_len,
        "max_output_tokens": entry.max_output_tokens,
        "source_model": entry.source_model,
    }


def _text(value: object) -> str:
    return "-" if value is None else str(value)
