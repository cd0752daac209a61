"""The conversion of scripted models: phases that last as long as the script says.

For tests, demos and client development. The result is a copy of the script. Source: the
fixed interface "The scripted backend", `convert_phases`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from pegboard_contracts.converters import ConversionOrder, Converter, Report, Reporter
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import Phase

from pegboard_converters._options import check_options

_PHASES = {phase.value: phase for phase in (Phase.DOWNLOADING, Phase.CONVERTING, Phase.FINALIZING)}
_LONGEST_MS = 86_400_000
_SECONDS_BETWEEN_REPORTS = 0.015
_RESULT = "script.json"


class _Script(msgspec.Struct):
    convert_phases: list[tuple[str, int]] = []


class ScriptedPhases(Converter):
    """Convert `scripted` models: play the phases of the script, then copy it."""

    summary = "plays the conversion that a script describes, for tests and demos"
    model_backends = ("scripted",)

    def check(self, order: ConversionOrder) -> None:
        """Refuse wrong options, and a script that is here and wrong."""
        check_options(order)
        if order.source.is_file():
            _read(order.source)

    def convert(self, order: ConversionOrder, report: Reporter) -> None:
        """Read the script, play its phases and write it to `script.json`."""
        script, phases = _read(order.source)
        for phase, milliseconds in phases:
            _play(phase, milliseconds / 1000, report)
        (order.target / _RESULT).write_bytes(script)


def _read(path: Path) -> tuple[bytes, Sequence[tuple[Phase, int]]]:
    try:
        text = path.read_bytes()
        read = msgspec.json.decode(text.removeprefix(b"\xef\xbb\xbf"), type=_Script)
    except OSError as error:
        raise _bad(f"it cannot be read ({error.strerror})") from None
    except (msgspec.DecodeError, RecursionError):
        raise _bad("'convert_phases' is no list of [phase, milliseconds] in valid JSON") from None
    phases: list[tuple[Phase, int]] = []
    for name, milliseconds in read.convert_phases:
        if name not in _PHASES:
            known = ", ".join(_PHASES)
            raise _bad(f"'convert_phases' has the phase '{name[:40]}'; known are {known}")
        if not 0 <= milliseconds <= _LONGEST_MS:
            raise _bad(
                f"'convert_phases' has a phase of {milliseconds} ms, less than 0 or too long"
            )
        phases.append((_PHASES[name], milliseconds))
    return text, phases


def _bad(what: str) -> ApiError:
    message = f"The scripted model's file cannot be used: {what}. Correct it and convert again."
    return ApiError(400, message, param="source_model", code="invalid_script")


def _play(phase: Phase, seconds: float, report: Reporter) -> None:
    message, started = f"{phase.value} as scripted", time.monotonic()
    while (passed := time.monotonic() - started) < seconds:
        percent = round(100 * passed / seconds, 1)
        report(Report(phase=phase, message=message, percent=percent))
        time.sleep(min(_SECONDS_BETWEEN_REPORTS, seconds - passed))
    report(Report(phase=phase, message=message, percent=100.0))


plugin = ScriptedPhases
