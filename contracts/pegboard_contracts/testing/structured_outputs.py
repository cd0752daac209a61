"""The laws of structured outputs, as a test class to subclass.

class TestMine(StructuredOutputLaws):
    plugin = MyOutput
    good = {"name": (value, "a text it allows")}
    bad = {"name": value}
"""

from __future__ import annotations

import json
import random
import time
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard_contracts.errors import ApiError
from pegboard_contracts.grammar.combining import alternatives
from pegboard_contracts.grammar.examples import GrammarReader
from pegboard_contracts.grammar.remainder import remainder
from pegboard_contracts.structured_outputs import StructuredOutput
from pegboard_contracts.testing.engines import SUBCLASSED

_SECONDS = 2.0
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class StructuredOutputLaws:
    """Subclass it and set `plugin`, `good` and `bad`."""

    plugin: ClassVar[type[StructuredOutput]]

    good: ClassVar[dict[str, tuple[Any, str]]]
    """Inputs that compile, each with a text that must be allowed."""

    bad: ClassVar[dict[str, Any]]
    """Inputs that are refused."""

    def test_good_inputs_compile_alike_each_time_and_leave_them_alone(self) -> None:
        """Compiling is pure, so that it may be cached by its input."""
        for value, _ in self.good.values():
            before = json.dumps(value)
            first, second = (self.plugin().compile(value) for _ in range(2))
            assert first == second
            assert first.constraint.value
            assert json.dumps(value) == before

    def test_what_is_given_is_allowed_and_keeps_the_promise(self) -> None:
        """A text that the input allows passes the grammar, where ours is used, and the check."""
        for value, text in self.good.values():
            output = self.plugin()
            compiled = output.compile(value)
            assert output.problems(value, text) == []
            if compiled.constraint.kind == "ebnf":
                assert remainder(compiled.constraint.value, text) is not None

    def test_drawn_texts_have_no_problems(self) -> None:
        """What the grammar allows is valid unless a keyword is named as not enforced."""
        chance = random.Random(0)  # noqa: S311 - drawing samples
        for value, _ in self.good.values():
            output = self.plugin()
            compiled = output.compile(value)
            if compiled.unenforced or compiled.constraint.kind != "ebnf":
                continue
            reader = GrammarReader(alternatives([compiled.constraint.value]))
            for _ in range(20):
                assert output.problems(value, reader.draw(chance)) == []

    def test_bad_inputs_are_400_and_never_quoted(self) -> None:
        """A refusal says what is wrong, and holds nothing of what was sent."""
        for value in self.bad.values():
            with pytest.raises(ApiError) as refused:
                self.plugin().compile(value)
            assert refused.value.status == 400
            assert refused.value.code
            if isinstance(value, str) and len(value) > 8:
                assert value not in refused.value.message

    @settings(max_examples=60, suppress_health_check=SUBCLASSED, deadline=None)
    @given(value=_JSON)
    def test_any_input_compiles_or_is_refused_in_time(self, value: Any) -> None:  # noqa: ANN401 - JSON
        """Nothing that JSON can hold raises anything else, or takes long."""
        begun, status = time.process_time(), 400
        try:
            self.plugin().compile(value)
        except ApiError as error:
            status = error.status
        assert status == 400
        assert time.process_time() - begun < _SECONDS

    @settings(max_examples=60, suppress_health_check=SUBCLASSED, deadline=None)
    @given(text=st.text(max_size=40))
    def test_checking_any_text_names_problems_without_quoting_it(self, text: str) -> None:
        """The check of a finished answer never raises."""
        for value, _ in self.good.values():
            for problem in self.plugin().problems(value, text):
                assert problem
                assert len(text) < 8 or text not in problem
