"""The operation child: one piece of work of a source or a converter, told as it goes."""

from __future__ import annotations

import errno
import os
import threading
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from pegboard_contracts.converters import ConversionOrder, Converter, Report, Reporter
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import Phase
from pegboard_contracts.plugin import Plugin
from pegboard_contracts.sources import ModelSource

from pegboard_kernel.child.pipe import CommandPipe
from pegboard_kernel.engines.frames import Assignment, Done, Working

SOURCES = "pegboard.model_sources"
CONVERTERS = "pegboard.converters"

P = TypeVar("P", bound=Plugin)


def serve_operation(pipe: CommandPipe) -> None:
    """Do what the first frame says, and tell the end of it.

    Raises the `ApiError` of the plugin, and 507 `insufficient_disk` for a full disk.
    """
    assignment = pipe.receive_first()
    if not isinstance(assignment, Assignment):
        raise TypeError("the first frame is no assignment")
    os.environ.update(assignment.environment)
    lock = threading.Lock()

    def tell(report: Report) -> None:
        with lock:
            pipe.send(Working(report))

    threading.Thread(target=_end_with_server, args=(pipe,), daemon=True).start()
    work = _fetch if assignment.work == "fetch" else _convert
    try:
        path = work(assignment, tell)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full() from None
        raise
    with lock:
        pipe.send(Done(str(path)))


def _end_with_server(pipe: CommandPipe) -> None:
    """End the process when the server is gone; on Linux the system has done it before."""
    try:
        while True:
            pipe.receive(None)
    except (EOFError, OSError):
        os._exit(1)


def disk_full() -> ApiError:
    """Make the 507 of a disk without room."""
    message = "The disk is full. Free some space and try again; what was there before is as it was."
    return ApiError(507, message, code="insufficient_disk")


def _fetch(assignment: Assignment, tell: Reporter) -> Path:
    source = _load(SOURCES, assignment, ModelSource)
    tell(Report(phase=Phase.DOWNLOADING))
    return source.fetch(assignment.address, tell)


def _convert(assignment: Assignment, tell: Reporter) -> Path:
    converter = _load(CONVERTERS, assignment, Converter)
    paths = {name: Path(assignment.order[name]) for name in ("source", "target")}
    fields: dict[str, Any] = {**assignment.order, **paths}
    order = ConversionOrder(**fields)
    converter.convert(order, tell)
    return order.target


def _load(group: str, assignment: Assignment, kind: type[P]) -> P:
    """Make a plugin of an entry point's name anew, with the server's own settings."""
    (entry_point,) = entry_points(group=group, name=assignment.plugin)
    plugin = entry_point.load()()
    if not isinstance(plugin, kind):
        raise TypeError(f"'{assignment.plugin}' is no {kind.__name__}")
    plugin.name = assignment.plugin
    plugin.configure(type(plugin).Settings.model_validate(assignment.section))
    return plugin
