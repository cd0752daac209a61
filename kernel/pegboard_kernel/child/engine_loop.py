"""The engine child: one loop that takes commands, steps, and sends what came out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec
from pegboard_contracts.backend import Backend
from pegboard_contracts.encoding import Encoded, EncoderInput
from pegboard_contracts.engine import Engine, Submission
from pegboard_contracts.errors import ApiError, error_to_wire, server_error

from pegboard_kernel.child.calls import answer_call
from pegboard_kernel.child.pipe import CommandPipe
from pegboard_kernel.engines.frames import (
    Assignment,
    Beat,
    Call,
    Cancel,
    Close,
    Command,
    Events,
    Opening,
    Ready,
    Refused,
    Submit,
)

logger = logging.getLogger(__name__)


def serve_engine(pipe: CommandPipe, backend: Backend, opening: Opening) -> None:
    """Open the engine, or the encoder, and run it until it is closed.

    Raises what the engine raises when it cannot be opened or is lost in a step.
    """
    if opening.description.kind != "generate":
        serve_encoder(pipe, backend, opening)
        return
    engine = backend.open_engine(opening.description.options)
    pipe.send(Ready(engine.describe()))
    EngineLoop(pipe, engine, opening.beat_interval).run()


def serve_encoder(pipe: CommandPipe, backend: Backend, opening: Opening) -> None:
    """Open the encoder and answer its calls until it is closed."""
    encoder = backend.open_encoder(opening.description.options)
    pipe.send(Ready(encoder.describe()))

    def encode(arguments: dict[str, Any]) -> list[Encoded]:
        return encoder.encode(msgspec.convert(arguments["inputs"], list[EncoderInput]))

    functions: dict[str, Callable[[dict[str, Any]], Any]] = {
        "encode": encode,
        "inspect": lambda _: encoder.inspect(),
    }
    while True:
        for command in pipe.receive(None):
            if isinstance(command, Close):
                encoder.close()
                return
            if not isinstance(command, Call):
                raise TypeError("an encoder only answers calls")
            pipe.send(answer_call(command, functions))


class EngineLoop:
    """Drive one engine: never wait while it has work, never spin while it has none."""

    def __init__(self, pipe: CommandPipe, engine: Engine, beat_interval: float) -> None:
        """Take over the pipe and the engine."""
        self._pipe = pipe
        self._engine = engine
        self._beat_interval = beat_interval
        self._functions: dict[str, Callable[[dict[str, Any]], Any]] = {
            "inspect": lambda _: engine.inspect()
        }
        self._closed = False

    def run(self) -> None:
        """Loop until closed. One frame leaves per step, at most."""
        pipe, engine, interval = self._pipe, self._engine, self._beat_interval
        clock = time.monotonic
        sent = clock()
        while not self._closed:
            due = engine.due()
            for command in pipe.receive(None if due is None else min(due, interval)):
                self._obey(command)
            if due is None:
                continue
            events = engine.step() if due <= 0 else None
            if events:
                pipe.send(Events(events))
                sent = clock()
            elif clock() - sent >= interval:
                # A long prefill or a slow script: silence, but no hang.
                pipe.send(Beat())
                sent = clock()
        engine.close()

    def _obey(self, command: Command) -> None:
        match command:
            case Submit(submission):
                self._submit(submission)
            case Cancel(request_id):
                self._engine.cancel(request_id)
            case Call():
                self._pipe.send(answer_call(command, self._functions))
            case Close():
                self._closed = True
            case Opening() | Assignment():
                raise TypeError("a second opening")

    def _submit(self, submission: Submission) -> None:
        try:
            self._engine.submit(submission)
        except ApiError as error:
            self._pipe.send(Refused(submission.request_id, error_to_wire(error)))
        except Exception:
            logger.exception("the engine cannot take a request")
            fault = server_error("The engine could not take this request; see the server's log.")
            self._pipe.send(Refused(submission.request_id, error_to_wire(fault)))
