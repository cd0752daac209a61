"""What the bare engine is started with: exactly what the server's engine was."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def bare_options(model: str, data_dir: Path) -> dict[str, Any]:
    """Return folder, device, scheduler settings and properties for the bare engine."""
    raise NotImplementedError(model, data_dir)
