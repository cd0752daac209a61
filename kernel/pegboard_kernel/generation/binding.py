"""When the constraint of an answer binds: at once, or when the model has thought."""

from __future__ import annotations

from typing import Literal

from pegboard_contracts.engine import TokenEvent
from pegboard_contracts.events import TextDelta
from pegboard_contracts.formats import ReasoningFormat
from pegboard_contracts.generation import Constraint


class Binding:
    """Let a model think freely and bind its answer from the first visible token on.

    Where the prompt has opened a reasoning block, everything is free until it closes. Where
    the model may open one itself, its first text decides: when that is no marker, it is
    thrown away and the answer begins again, bound. `due` says that the engine's request has
    to be submitted again, because the constraint binds from here on.
    """

    def __init__(
        self,
        constraint: Constraint | None,
        reasoning: ReasoningFormat | None = None,
        *,
        opened: bool = False,
    ) -> None:
        """Begin an answer to a prompt that ends inside a block, or not."""
        self.due = False
        self._constraint = constraint
        self._held: list[TokenEvent] = []
        self._state: Literal["bound", "inside", "undecided"] = "bound"
        if constraint is not None and reasoning is not None:
            self._state = "inside" if opened else "undecided"
            self._probe = reasoning.reader(opened=opened)

    @property
    def constraint(self) -> Constraint | None:
        """Return what a submission made now must carry."""
        return self._constraint if self._state == "bound" else None

    @property
    def settled(self) -> bool:
        """Tell whether what binds now binds the whole answer, unless it is bound anew."""
        return self._state == "bound" and not self.due

    @property
    def inside(self) -> bool:
        """Tell whether a reasoning block must close before the constraint binds."""
        return self._state == "inside"

    def bind(self, *, due: bool = False) -> None:
        """Bind from here on."""
        self._state = "bound"
        self.due = due

    def rebind(self, constraint: Constraint) -> None:
        """Bind what follows by another constraint."""
        self._constraint = constraint
        self.bind(due=True)

    def released(self, event: TokenEvent) -> list[TokenEvent]:
        """Take the next event and return those that belong to the answer by now."""
        if self._state != "undecided":
            return [event]
        self._held.append(event)
        if event.finish in ("failed", "cancelled"):
            self.bind()
            return self._held
        spoken = False
        for character in event.text:
            for told in self._probe.feed(character):
                spoken = spoken or (isinstance(told, TextDelta) and not told.text.isspace())
            if self._probe.inside and not spoken:
                self._state = "inside"
                return self._held
        if spoken or event.finish is not None:
            self._held = []
            self.bind(due=True)
        return []
