"""The preparer child: renders and tokenizes, one call after the other."""

from __future__ import annotations

import json
from datetime import datetime
from importlib.metadata import entry_points
from typing import Any

import msgspec
from pegboard_contracts.backend import Backend
from pegboard_contracts.conversation import Conversation
from pegboard_contracts.engine import ConstraintCost
from pegboard_contracts.generation import Constraint
from pegboard_contracts.structured_outputs import StructuredOutput

from pegboard_kernel import templates
from pegboard_kernel.child.calls import answer_call
from pegboard_kernel.child.pipe import CommandPipe
from pegboard_kernel.engines.frames import Call, Close, Opening, Prepared, PreparerInfo

STRUCTURED_OUTPUTS = "pegboard.structured_outputs"


def serve_preparer(pipe: CommandPipe, backend: Backend, opening: Opening) -> None:
    """Answer calls until closed. `open` is the first, once the engine is open."""
    preparer = Preparer(backend, opening.description.options)
    functions = {
        "open": preparer.open,
        "prepare": preparer.prepare,
        "encode": preparer.encode,
        "check": preparer.check,
        "problems": preparer.problems,
    }
    while True:
        for command in pipe.receive(None):
            if isinstance(command, Close):
                return
            if not isinstance(command, Call):
                raise TypeError("a preparer only answers calls")
            pipe.send(answer_call(command, functions))


class Preparer:
    """Turn conversations, texts and ids into prompts."""

    def __init__(self, backend: Backend, options: dict[str, Any]) -> None:
        """Keep what opens the tokenizer."""
        self._backend = backend
        self._options = options

    def open(self, arguments: dict[str, Any]) -> PreparerInfo:
        """Open the tokenizer and tell about the model's template."""
        del arguments
        self._tokenizer = self._backend.open_tokenizer(self._options)
        self._source = self._tokenizer.source()
        self._special_texts = self._tokenizer.special_texts()
        return PreparerInfo(
            source=self._source, supports_tools=templates.supports_tools(self._source)
        )

    def prepare(self, arguments: dict[str, Any]) -> Prepared:
        """Render and tokenize `conversation`, tokenize `text`, or take `ids` as they are.

        A text gets the tokens that begin every text, unless `bare` or already there. With
        `suffix` the prompt asks for the middle before it. Raises `ApiError` 400 for what the
        template cannot render.
        """
        text: str | None = arguments.get("text")
        ids: list[int] | None = arguments.get("ids")
        if text is None and ids is None:
            return self._render(msgspec.convert(arguments["conversation"], Conversation))
        start: list[int] = []
        if ids is None:
            ids = self._tokenizer.encode(text or "")
            start = [] if arguments.get("bare") else list(self._source.prompt_start)
            if ids[: len(start)] == start:
                start = []
        if (suffix := arguments.get("suffix")) is not None:
            return self._filled(start, ids, suffix)
        return Prepared(text=self._tokenizer.decode(ids) if text is None else text, ids=start + ids)

    def _filled(self, start: list[int], prefix: list[int], suffix: str) -> Prepared:
        marks = self._source.fill_marks
        if marks is None:
            raise TypeError("a prompt with a suffix needs a model that fills the middle")
        texts = {"prefix": prefix, "suffix": self._tokenizer.encode(suffix), "middle": []}
        ids = start + [token for part, mark in marks.parts for token in (mark, *texts[part])]
        return Prepared(text=self._tokenizer.decode(ids), ids=ids)

    def _render(self, conversation: Conversation) -> Prepared:
        text = templates.render_prompt(
            self._source,
            conversation,
            special_texts=self._special_texts,
            now=datetime.now().astimezone(),
        )
        ids = self._tokenizer.encode(text, templates.LITERAL_MARK)
        return Prepared(text=text.replace(templates.LITERAL_MARK, ""), ids=ids)

    def encode(self, arguments: dict[str, Any]) -> list[int]:
        """Tokenize text that goes on where a prompt ended."""
        return self._tokenizer.encode(arguments["text"])

    def check(self, arguments: dict[str, Any]) -> ConstraintCost:
        """Compile and try a constraint; raises `ApiError` 400 with the compiler's reason."""
        constraint = msgspec.convert(arguments["constraint"], Constraint)
        return self._tokenizer.check(constraint, arguments["step_limit"])

    def problems(self, arguments: dict[str, Any]) -> list[str]:
        """Check a finished answer: here, because a client's expression may take for ever."""
        (entry_point,) = entry_points(group=STRUCTURED_OUTPUTS, name=arguments["kind"])
        plugin: StructuredOutput = entry_point.load()()
        return plugin.problems(json.loads(arguments["value"]), arguments["text"])
