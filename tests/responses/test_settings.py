"""The flags of the stores and of background mode: names, defaults, environment, bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PEGBOARD = Path(sys.executable).with_name("pegboard")
SETTINGS = [
    ("responses.store_max_entries", "--responses-store-max-entries", 1024, "LLAMA_ARG_"),
    ("responses.store_max_bytes", "--responses-store-max-bytes", 268435456, "MLXCEL_"),
    ("responses.store_ttl_secs", "--responses-store-ttl-secs", 3600, "LLAMA_ARG_"),
    ("responses.background_max_jobs", "--responses-background-max-jobs", 64, "MLXCEL_"),
    (
        "responses.background_ephemeral_ttl_secs",
        "--responses-background-ephemeral-ttl-secs",
        600,
        "MLXCEL_",
    ),
    ("conversations.store_max_entries", "--conversation-store-max-entries", 256, "LLAMA_ARG_"),
    ("conversations.store_max_bytes", "--conversation-store-max-bytes", 67108864, "MLXCEL_"),
    ("conversations.store_ttl_secs", "--conversation-store-ttl-secs", 3600, "LLAMA_ARG_"),
    ("responses.reasoning_echo_max_bytes", "--reasoning-echo-max-bytes", 16777216, "MLXCEL_"),
]


def variable(flag: str, prefix: str) -> str:
    return prefix + flag.removeprefix("--").replace("-", "_").upper()


def shown(*arguments: str, **environment: str) -> dict[str, tuple[Any, str]]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PEGBOARD_", "OV_LLM_", "LLAMA_", "MLXCEL_"))
    }
    ran = subprocess.run(
        [str(PEGBOARD), "config", "show", "--json", *arguments],
        capture_output=True,
        check=True,
        env={**clean, **environment},
    )
    listed = json.loads(ran.stdout)["settings"]
    return {one["name"].removeprefix("plugins."): (one["value"], one["source"]) for one in listed}


def test_defaults_are_those_of_the_document() -> None:
    values = shown()
    for name, _, default, _ in SETTINGS:
        assert values[name] == (default, "default")


def test_environment_names_of_the_document_are_taken_and_flags_win() -> None:
    environment = {variable(flag, prefix): "7" for _, flag, _, prefix in SETTINGS}
    values = shown(**environment)
    for name, flag, _, prefix in SETTINGS:
        assert values[name] == (7, f"env {variable(flag, prefix)}")
    flags = [part for _, flag, _, _ in SETTINGS for part in (flag, "9")]
    values = shown(*flags, **environment)
    for name, _, _, _ in SETTINGS:
        assert values[name][0] == 9


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--responses-background-ephemeral-ttl-secs", "0"),
        ("--responses-store-max-entries", "-1"),
        ("--conversation-store-ttl-secs", "soon"),
    ],
)
def test_values_out_of_bounds_end_the_start(flag: str, value: str, tmp_path: Path) -> None:
    command = [str(PEGBOARD), "serve", "--port", "0", "--data-dir", str(tmp_path), flag, value]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 2
    assert flag.strip("-").replace("-", "_").removeprefix("responses_") in (
        ran.stderr.replace("-", "_")
    )
