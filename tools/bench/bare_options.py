"""What the bare engine is started with: exactly what the server's engine was.

The program of this module opens the engine once, through the backend, on the folder that
the server has converted, and prints what the engine says about itself.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tools.bench.processes import ROOT, child_command

KV_CACHE_GB = 2
"""The same for both sides: the server's own choice depends on the memory that is free."""

_SCHEDULER = {
    "kv_cache_gb": "cache_size",
    "max_batched_tokens": "max_num_batched_tokens",
    "prefix_caching": "enable_prefix_caching",
}


def bare_options(data_dir: Path) -> dict[str, Any]:
    """Return folder, device, scheduler settings and properties for the bare engine.

    Takes the newest model that a server has converted into `data_dir`.
    """
    found = sorted(data_dir.rglob("openvino_model.xml"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise RuntimeError("the server has converted no model; see the log, or use --no-bare")
    done = subprocess.run(  # noqa: S603 - our own module
        child_command("bare_options", str(found[-1].parent)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    options: dict[str, Any] = msgspec.json.decode(done.stdout.splitlines()[-1])
    return options


def _describe(folder: Path) -> dict[str, Any]:
    from pegboard_backends.openvino_cpu import plugin  # noqa: PLC0415 - the program's alone
    from pegboard_contracts.backend import EngineOrder  # noqa: PLC0415 - the same

    backend = plugin()
    backend.name = "openvino_cpu"
    backend.configure(plugin.Settings())
    order = EngineOrder(
        model="bench", source=folder, device="CPU", cache_dir=folder, kv_cache_gb=KV_CACHE_GB
    )
    engine = backend.open_engine(backend.describe_engine(order).options)
    told = engine.describe().properties
    engine.close()
    return {
        "folder": str(folder),
        "device": "CPU",
        "scheduler": {name: told[key] for key, name in _SCHEDULER.items()},
        # OpenVINO's own properties are written in capitals.
        "properties": {key: value for key, value in told.items() if key.isupper()},
    }


if __name__ == "__main__":
    print(msgspec.json.encode(_describe(Path(sys.argv[1]))).decode())
