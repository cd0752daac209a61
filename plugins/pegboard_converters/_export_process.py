"""The export's process: started, listened to, and never left behind."""

from __future__ import annotations

import logging
import os
import queue
import re
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec
import psutil
from pegboard_contracts.converters import Report, Reporter
from pegboard_contracts.models import Phase

from pegboard_converters._export_faults import fault_of, without_private

logger = logging.getLogger(__name__)

_SCRIPT = Path(__file__).with_name("_export.py")
_SECONDS_BETWEEN_LOOKS = 5.0
_LAST_LINES = 40
_LOADING = re.compile(r"Loading (?:weights|checkpoint shards):.*?(\d+)/(\d+)")
_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACEHUB_API_TOKEN", "HF_HUB_TOKEN")
_STEPS: dict[str, tuple[Phase, str]] = {
    "libraries": (Phase.CONVERTING, "starting the converter"),
    "loading": (Phase.CONVERTING, "loading weights"),
    "tracing": (Phase.CONVERTING, "tracing the model"),
    "compressing": (Phase.CONVERTING, "compressing weights"),
    "tokenizer": (Phase.FINALIZING, "converting the tokenizer"),
    "saving": (Phase.FINALIZING, "saving"),
}


class _Line(msgspec.Struct, frozen=True):
    """Carry a line of the export's stdout."""

    step: str | None = None
    percent: float | None = None
    completed: int | None = None
    total: int | None = None
    done: dict[str, Any] | None = None
    failed: str | None = None
    detail: str = ""


def run_export(python: str, order: Mapping[str, Any], report: Reporter) -> dict[str, Any]:
    """Run the export of `order` with another interpreter and return what it says it made.

    Its process is in the group of this one, and is gone when this returns or raises.
    Raises `ApiError` with what its failure means.
    """
    work = Path(order["work"])
    work.mkdir(parents=True)
    command = [python, str(_SCRIPT), msgspec.json.encode(order).decode()]
    process = subprocess.Popen(  # noqa: S603 - our script, the operator's interpreter
        command,
        env=_environment(work, remote_code=bool(order["trust_remote_code"])),
        cwd=work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    listener = _Listener(process)
    try:
        for line in listener.lines():
            if line.step in _STEPS:
                report(_report_of(line))
            if line.failed is not None:
                if line.failed == "unknown":
                    listener.log()
                raise fault_of(line.failed, line.detail)
            if line.done is not None:
                return line.done
        listener.log()
        raise fault_of("killed" if process.wait() == -9 else "unknown")
    finally:
        listener.close()


def _environment(work: Path, *, remote_code: bool) -> dict[str, str]:
    """Return an environment without secrets; offline, unless code may come from elsewhere."""
    kept = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    kept.pop("PYTHONPATH", None)
    offline = {} if remote_code else {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    own = {
        # It says so to the libraries' telemetry, which then sends and writes nothing.
        "CI": "true",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_MODULES_CACHE": str(work / "modules"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONUTF8": "1",
        "TMPDIR": str(work),
        "TEMP": str(work),
        "TMP": str(work),
        "TOKENIZERS_PARALLELISM": "false",
    }
    return kept | offline | own


def _report_of(line: _Line) -> Report:
    phase, message = _STEPS[str(line.step)]
    return Report(
        phase=phase,
        message=message,
        percent=line.percent,
        completed=line.completed,
        total=line.total,
    )


class _Listener:
    """Read both outputs of a process, and look whether it works when it says nothing."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._heard: queue.SimpleQueue[_Line | None] = queue.SimpleQueue()
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._threads = [
            threading.Thread(target=read, args=(stream,), daemon=True)
            for read, stream in (
                (self._read_lines, process.stdout),
                (self._read_words, process.stderr),
            )
        ]
        for thread in self._threads:
            thread.start()

    def lines(self) -> Iterator[_Line]:
        """Yield what is told, and the last again while the process works in silence."""
        last, worked = _Line(), 0.0
        while True:
            try:
                line = self._heard.get(timeout=_SECONDS_BETWEEN_LOOKS)
            except queue.Empty:
                if (now := self._seconds_worked()) > worked:
                    worked = now
                    yield last
                continue
            if line is None:
                return
            last = line
            yield line

    def log(self) -> None:
        """Write the last words of the process to the log."""
        for line in self._last:
            logger.warning("converter: %s", without_private(line))

    def close(self) -> None:
        """End the process and what reads from it."""
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _seconds_worked(self) -> float:
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def _read_lines(self, stream: IO[bytes]) -> None:
        for raw in stream:
            try:
                self._heard.put(msgspec.json.decode(raw, type=_Line))
            except msgspec.DecodeError:
                self._last.append(raw.decode("utf-8", "replace").strip())
        self._heard.put(None)

    def _read_words(self, stream: IO[bytes]) -> None:
        """Remember the last lines; bars of progress end in a carriage return."""
        rest = b""
        while chunk := os.read(stream.fileno(), 1 << 16):
            *whole, rest = re.split(rb"[\r\n]", rest + chunk)
            for raw in whole:
                text = raw.decode("utf-8", "replace").strip()
                if found := _LOADING.search(text):
                    done, total = int(found[1]), int(found[2])
                    if done <= total:
                        self._heard.put(_Line(step="loading", completed=done, total=total))
                elif text:
                    self._last.append(text)
