"""A source and a converter that do what a file says, also in the processes that use them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pegboard_contracts.converters import ConversionOrder, Converter, Report, Reporter
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import Phase
from pegboard_contracts.sources import ModelSource, SourceFacts

SECRET = "hf_abcdefghijklmnop"  # noqa: S105 - of nobody
DAEMON = """
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
"""


def acts_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "acts.json").read_text())
    return found


def play(act: Mapping[str, Any], phase: Phase, folder: Path, report: Reporter) -> None:
    """Do what an act says, one thing after the other."""
    report(Report(phase=phase, message="begins"))
    (folder / f"{phase.value}.pid").write_text(str(os.getpid()))
    if "print" in act:
        sys.stdout.write(act["print"])
        sys.stdout.flush()
        os.write(1, b"\x00\x00\x00\x05hello")
    if "family" in act:
        start_family(folder)
    for _ in range(act.get("reports", 0)):
        time.sleep(0.05)
        report(Report(phase=phase))
    if "hang" in act:
        time.sleep(600)
    if "refuse" in act:
        raise ApiError(409, act["refuse"], code="refused_on_stage")
    if "full" in act:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))
    if "fault" in act:
        raise RuntimeError(f"{SECRET} in {folder}")
    if "exit" in act:
        os._exit(act["exit"])


def start_family(folder: Path) -> None:
    """Start a child, one in a session of its own, and an orphan that left its group."""
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    plain = subprocess.Popen(sleep)
    apart = subprocess.Popen(sleep, start_new_session=True)
    daemon = folder / "daemon.pid"
    subprocess.run([sys.executable, "-c", DAEMON, str(daemon)], check=True)
    while not daemon.exists() or not daemon.read_text():
        time.sleep(0.01)
    pids = [plain.pid, apart.pid, int(daemon.read_text())]
    (folder / "family.part").write_text(json.dumps(pids))
    (folder / "family.part").rename(folder / "family.json")


class StageSource(ModelSource):
    """Fetch a folder of this machine: `stage:FOLDER`."""

    summary = "plays a source"
    schemes = ("stage",)
    remote = True

    def resolve(self, address: str) -> Path:
        if not Path(address, "fetched").exists():
            raise ApiError(404, "It is not fetched.", code="model_not_downloaded")
        return Path(address)

    def default_id(self, address: str) -> str:
        return Path(address).name

    def preflight(self, address: str) -> SourceFacts:
        acts = acts_of(Path(address))
        if "deny" in acts:
            raise ApiError(409, acts["deny"], code="access_denied")
        return SourceFacts(servable=acts.get("servable"), size_bytes=acts.get("bytes"))

    def fetch(self, address: str, report: Reporter) -> Path:
        folder = Path(address)
        seen = {"secret": os.environ.get("STAGE_SECRET"), "argv": sys.argv}
        (folder / "fetch.json").write_text(json.dumps(seen))
        play(acts_of(folder).get("fetch", {}), Phase.DOWNLOADING, folder, report)
        (folder / "fetched").touch()
        return folder

    def child_environment(self) -> Mapping[str, str]:
        return {"STAGE_SECRET": SECRET}


class StageConverter(Converter):
    """Write the script that the acts have for a result."""

    summary = "plays a converter"
    model_backends = ("scripted",)
    default_weight_format = "int8"

    def check(self, order: ConversionOrder) -> None:
        if order.weight_format == "int3":
            raise ApiError(400, "There is no int3.", param="weight_format")

    def convert(self, order: ConversionOrder, report: Reporter) -> None:
        folder = order.source
        seen = {name: str(getattr(order, name)) for name in order.__struct_fields__}
        seen["secret"] = str(os.environ.get("STAGE_SECRET"))
        (folder / "convert.json").write_text(json.dumps(seen))
        (order.target / "notes").mkdir()
        (order.target / "notes" / "weights.bin").write_bytes(b"w" * 1000)
        acts = acts_of(folder)
        play(acts.get("convert", {}), Phase.CONVERTING, folder, report)
        if (result := acts.get("result", {})) is not None:
            (order.target / "script.json").write_text(json.dumps(result))
