"""Progress on standard error: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from pegboard_kernel.cli.operations import ENDED, Model
from pegboard_kernel.cli.output import plain, size

_PHASES = {
    "queued": "waiting",
    "resolving": "looking it up",
    "downloading": "downloading",
    "converting": "converting",
    "finalizing": "finishing",
    "loading": "loading",
}
_LINE_PERCENT = 10


@contextmanager
def progress_view(*, quiet: bool) -> Generator[Callable[[Model], None]]:
    """Give what shows a model's progress; `quiet` shows it in terminals only.

    Only stages that are known and numbers that can be are shown, never the server's words.
    """
    terminal = sys.stderr.isatty()
    if terminal and os.environ.get("TERM") != "dumb":
        with _bar() as show:
            yield show
    elif quiet and not terminal:
        yield _nothing
    else:
        yield _Lines().show


def stage_of(model: Model) -> tuple[str, float | None]:
    """Return what a model is doing and the percent of it, nothing where that is not known."""
    progress = model["progress"]
    phase = progress["phase"]
    if phase in ENDED:
        return ("unloading" if model["status"] == "unloading" else ""), None
    percent = progress["percent"]
    sound = isinstance(percent, (int, float)) and 0 <= percent <= 100
    return _PHASES.get(phase, "working"), percent if sound else None


def _nothing(model: Model) -> None:
    del model


class _Lines:
    """Print a line for each stage, and for every tenth of one."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None

    def show(self, model: Model) -> None:
        stage, percent = stage_of(model)
        tenth = -1 if percent is None else int(percent) // _LINE_PERCENT
        if not stage or (stage, tenth) == self._last:
            return
        self._last = (stage, tenth)
        share = "" if percent is None else f" {percent:.0f}%{_detail(model)}"
        print(f"{plain(model['id'])}: {stage}{share}", file=sys.stderr, flush=True)


@contextmanager
def _bar() -> Generator[Callable[[Model], None]]:
    from rich.console import Console  # noqa: PLC0415 - costs more than most commands
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[share]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        stages: dict[str, Any] = {}

        def show(model: Model) -> None:
            stage, percent = stage_of(model)
            failed = model["status"] in ("error", "cancelled")
            for name, task in stages.items():
                if name != stage:
                    if not failed:
                        bars.update(task, total=100, completed=100, share="")
                    bars.stop_task(task)
            if not stage:
                return
            if stage not in stages:
                name = f"{plain(model['id'])}: {stage}"
                stages[stage] = bars.add_task(name, total=None, share="")
            if percent is not None:
                share = f"{percent:3.0f}%{_detail(model)}"
                bars.update(stages[stage], total=100, completed=percent, share=share)

        yield show


def _detail(model: Model) -> str:
    """Tell the bytes of a download."""
    progress = model["progress"]
    done, whole = progress["completed"], progress["total"]
    if progress["phase"] != "downloading" or not isinstance(done, int) or not whole:
        return ""
    return f" ({size(done)} of {size(whole)})"
