"""Run every `check_*` of a program and print a line of JSON for each; needs no package."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import sys
import traceback
from pathlib import Path


def main(program: str) -> None:
    spec = importlib.util.spec_from_file_location(Path(program).stem, program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, check in vars(module).items():
        if not name.startswith("check_"):
            continue
        error = None
        try:
            result = check()
            if inspect.iscoroutine(result):
                asyncio.run(result)
        except Exception:  # noqa: BLE001 - every kind of failure is reported
            error = traceback.format_exc()
        print(json.dumps({"check": name, "error": error}), flush=True)  # noqa: T201 - its result


main(sys.argv[1])
