"""Check a running server against the API contract, from outside.

    .venv/bin/python tools/validate_api_contract.py --base-url http://127.0.0.1:8000
    .venv/bin/python tools/validate_api_contract.py --profile full --embedding-model bge-small

It needs nothing but Python and the server's URL. Profiles: `core` loads a model and checks
what every client relies on; `openwebui` adds chat, streams, tools; `n8n` adds the Responses
API; `full` is all of them. The report holds names, figures and times, no prompt, no answer
and no key. Exit codes: 0 nothing failed, 1 something failed, 2 no server or bad usage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.contract import clients, core
from tools.contract.api import (
    Check,
    FaultError,
    Json,
    Options,
    Server,
    SkipError,
    Status,
    WarnError,
)

CORE, OPENWEBUI, N8N = "core", "openwebui", "n8n"
EVERY = frozenset({CORE, OPENWEBUI, N8N, "full"})
CHATTING = frozenset({OPENWEBUI, "full"})
WORKING = frozenset({N8N, "full"})
CHECKS = (
    Check("health and probes", EVERY, core.health),
    Check("keys", EVERY, core.keys),
    Check("errors and request ids", EVERY, core.errors),
    Check("devices", EVERY, core.devices),
    Check("models", EVERY, core.catalogue),
    Check("status", EVERY, core.status),
    Check("load", EVERY, core.load),
    Check("contexts", EVERY, core.contexts),
    Check("account at the hub", EVERY, core.account),
    Check("chat", CHATTING, clients.chat),
    Check("chat stream", CHATTING, clients.chat_stream),
    Check("a stream that is left", CHATTING, clients.recovery),
    Check("tools and JSON objects", CHATTING, clients.tools),
    Check("request metrics", CHATTING, clients.metrics),
    Check("responses", WORKING, clients.responses),
    Check("responses stream", WORKING, clients.responses_stream),
    Check("embeddings", EVERY, clients.embeddings),
    Check("unload and load again", EVERY, clients.lifecycle),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks of a profile and print the report."""
    parser = _parser()
    given = parser.parse_args(arguments)
    parts = urlsplit(str(given.base_url))
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        parser.error("--base-url is an address like http://127.0.0.1:8000")
    server = Server(
        base_url=given.base_url.rstrip("/").removesuffix("/v1"),
        key=given.api_key,
        timeout=given.timeout,
        options=Options(
            model=given.model,
            embedding_model=given.embedding_model,
            device=given.device,
            expect="real" if given.expect_real else "mock" if given.expect_mock else None,
            lifecycle=given.exercise_lifecycle,
            load_timeout=given.load_timeout,
        ),
    )
    if not _answers(server, given.startup):
        print(
            f"No server answers at {server.base_url} within {given.startup:g} s.", file=sys.stderr
        )
        return 2
    rows = _run(server, given.profile)
    failed = any(row["status"] == "fail" for row in rows)
    if given.json:
        report = {"base_url": server.base_url, "profile": given.profile, "passed": not failed}
        print(json.dumps(report | {"model": server.model, "checks": rows}, indent=2))
    else:
        _print_table(rows)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--base-url", default="http://127.0.0.1:8000", help="with or without /v1 at its end")
    add("--api-key", default=os.environ.get("PEGBOARD_API_KEY"), help="or PEGBOARD_API_KEY")
    add("--profile", default=CORE, choices=(CORE, OPENWEBUI, N8N, "full"))
    add("--model", help="a model that generates; else the first one")
    add("--embedding-model", help="checks embeddings with this model")
    add("--device", help="loads the model on this device")
    add("--timeout", type=float, default=120, help="seconds for one answer")
    add("--startup", type=float, default=60, help="seconds until the server answers")
    add("--load-timeout", type=float, default=900, help="seconds for a load")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--expect-real", action="store_true", help="scripted models are a fault")
    kind.add_argument("--expect-mock", action="store_true", help="real models are a fault")
    add("--exercise-lifecycle", action="store_true", help="unload the model and load it again")
    add("--json", action="store_true", help="the report as JSON")
    return parser


def _answers(server: Server, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while True:
        try:
            server.ask("GET", "/health/live")
        except FaultError:
            if time.monotonic() > end:
                return False
            time.sleep(0.2)
        else:
            return True


def _run(server: Server, profile: str) -> list[Json]:
    rows: list[Json] = []
    for check in CHECKS:
        if profile not in check.profiles:
            continue
        began = time.monotonic()
        status, detail = _made(check, server)
        spent = round((time.monotonic() - began) * 1000)
        rows.append({"name": check.name, "status": status, "milliseconds": spent, "detail": detail})
    return rows


def _made(check: Check, server: Server) -> tuple[Status, str]:
    try:
        server.model = server.model or core.choose_model(server)
        return "pass", check.run(server)
    except SkipError as reason:
        return "skip", str(reason)
    except WarnError as reason:
        return "warn", str(reason)
    except FaultError as fault:
        return "fail", str(fault)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        # The message of such an error may hold an answer's text.
        return "fail", f"an answer has another shape ({type(error).__name__})"


def _print_table(rows: Sequence[Json]) -> None:
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        print(
            f"{row['status']:4}  {row['name']:{width}}  {row['milliseconds']:>7} ms  "
            f"{row['detail']}"
        )
    counted = {
        name: sum(row["status"] == name for row in rows)
        for name in ("pass", "warn", "skip", "fail")
    }
    print(", ".join(f"{count} {name}" for name, count in counted.items() if count))


if __name__ == "__main__":
    sys.exit(main())
