"""The life of a child: open what the first frame describes, serve, end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any, NoReturn

from pegboard_contracts.backend import Backend
from pegboard_contracts.errors import ApiError, error_to_wire, server_error

from pegboard_kernel.child.parent import end_with_parent
from pegboard_kernel.child.pipe import CommandPipe, open_source
from pegboard_kernel.child.supervisor import supervised
from pegboard_kernel.engines.frames import Lost, Opening

BACKENDS = "pegboard.backends"
LOST = 70

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str], commands: int, reports: int) -> NoReturn:
    """Run one child until it is closed, fails or loses its server.

    `arguments` are the kind of child and the server's process id. The process ends without
    exit handlers: a library's threads or destructors must not keep it.
    """
    kind, parent = arguments[0], int(arguments[1])
    if kind == "operation":
        parent = supervised(parent, (commands, reports))
    end_with_parent(parent)
    logging.basicConfig(format=f"%(levelname)s {kind} child %(process)d: %(message)s")
    pipe = CommandPipe(open_source(commands), reports)
    status = 0
    try:
        _serve(kind, pipe)
    except (EOFError, ConnectionError):
        # The server is gone; there is nobody to tell.
        status = 1
    except ApiError as error:
        status = _report(pipe, error)
    except BaseException as error:
        logger.exception("the %s child fails", kind)
        # What the system says names no path: a full disk, a folder that nobody may write.
        why = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
        fault = server_error(f"The {kind} process failed{why}; see the server's log.")
        status = _report(pipe, fault)
    os._exit(status)


def _report(pipe: CommandPipe, error: ApiError) -> int:
    try:
        pipe.send(Lost(error_to_wire(error)))
    except OSError:
        return 1
    return LOST


def _serve(kind: str, pipe: CommandPipe) -> None:
    if kind == "operation":
        from pegboard_kernel.child.operation import serve_operation  # noqa: PLC0415 - only here

        serve_operation(pipe)
        return
    serve: Callable[[CommandPipe, Backend, Opening], None]
    # Imported while the server still prepares the opening.
    if kind == "engine":
        from pegboard_kernel.child.engine_loop import serve_engine as serve  # noqa: PLC0415
    else:
        from pegboard_kernel.child.preparer_loop import serve_preparer as serve  # noqa: PLC0415
    opening = pipe.receive_first()
    if not isinstance(opening, Opening):
        raise TypeError("the first frame is no opening")
    serve(pipe, load_backend(opening.description.backend, opening.section), opening)


def load_backend(name: str, section: dict[str, Any]) -> Backend:
    """Make the backend of an entry point's name anew, with the server's own settings."""
    (entry_point,) = entry_points(group=BACKENDS, name=name)
    backend: Backend = entry_point.load()()
    backend.name = name
    backend.configure(type(backend).Settings.model_validate(section))
    return backend
