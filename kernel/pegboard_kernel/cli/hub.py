"""`pegboard hub`: the account at the model hub that a running server uses."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pegboard_kernel.cli.models import run_verb
from pegboard_kernel.cli.output import complain, plain, print_facts, print_json, size
from pegboard_kernel.cli.parser import Parser
from pegboard_kernel.cli.server_client import ServerClient
from pegboard_kernel.cli.setting_flags import add_client_flags
from pegboard_kernel.settings import Settings

_EXAMPLES = """\
examples:
  pegboard hub login
  pegboard hub login < token.txt
  pegboard hub login --env MY_TOKEN
  pegboard hub status
  pegboard hub check OWNER/REPO
  pegboard hub logout

A running server keeps the token, in the keyring or a file that only its user can read, and never
shows it. The token is asked for without an echo, or read from standard input or a variable of
the environment; it is never an argument, which other users could see.
exit codes: 0 success, 1 refused or no server, 2 bad usage or bad settings, 130 interrupted
"""


def configure(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the verbs."""
    del arguments
    parser.epilog = _EXAMPLES
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    parsers: dict[str, Parser] = {}
    for name, run, words in (
        ("status", _status, "show the account as it was last seen"),
        ("login", _login, "verify a read token with the hub and keep it"),
        ("logout", _logout, "remove the stored token"),
        ("test", _test, "verify the configured token again"),
        ("check", _check, "tell whether a model can be downloaded, its size and licence"),
    ):
        verb = parsers[name] = verbs.add_parser(name, help=words, epilog=_EXAMPLES)
        flags = add_client_flags(verb)
        verb.add_argument("--url", help="address of a running server, instead of host and port")
        verb.set_defaults(run=partial(run_verb, run, flags))
    parsers["login"].add_argument(
        "--env", metavar="NAME", help="variable of the environment that holds the token"
    )
    parsers["check"].add_argument(
        "model", metavar="MODEL", help="OWNER/REPO, or the id of a registered model"
    )


def _status(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    del settings
    return _tell(client.get("/v1/huggingface/status"), namespace)


def _login(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    del settings
    token = _token(namespace.env)
    if token is None:
        return 2
    if not client.is_private:
        complain(f"the way to {client.url} is not encrypted: who listens to it reads the token")
    return _tell(client.post("/v1/huggingface/token", {"token": token}), namespace)


def _token(variable: str | None) -> str | None:
    """Read the token; tells what is wrong and returns nothing when there is none."""
    if variable is not None:
        token, where = os.environ.get(variable, ""), f"the variable {variable}"
    elif sys.stdin.isatty():
        token, where = getpass.getpass("Read token of the hub (not shown): "), "the prompt"
    else:
        token, where = sys.stdin.readline(), "standard input"
    token = token.strip()
    if not token:
        complain(f"there is no token in {where}")
    return token or None


def _logout(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    del settings
    return _tell(client.delete("/v1/huggingface/token"), namespace)


def _test(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    del settings
    return _tell(client.post("/v1/huggingface/test", {}), namespace)


def _tell(account: dict[str, Any], namespace: argparse.Namespace) -> int:
    """Print an account, by the fields that are known to be safe."""
    if namespace.json:
        print_json(account)
        return 0
    if "message" in account:
        print(plain(account["message"]))
    checked = account["last_checked"]
    print_facts(
        {
            "status": account["status"].replace("_", " "),
            "account": account["username"],
            "token": account["token_masked"],
            "kept in": account["persistence"],
            "checked": _moment(checked) if checked else None,
        }
    )
    return 0


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().isoformat(" ", "seconds")


def _check(client: ServerClient, settings: Settings, namespace: argparse.Namespace) -> int:
    del settings
    field = "source_model" if "/" in namespace.model else "model_id"
    report = client.post("/v1/huggingface/preflight", {field: namespace.model})
    if namespace.json:
        print_json(report)
        return 0
    print(plain(report["message"]))
    print_facts(
        {
            "size": size(report["size_bytes"]) if report["size_bytes"] else None,
            "licence": report["license"],
            "access": report["access_type"],
            "revision": report["revision"],
        }
    )
    return 0
