"""Grammars on the real engine: obeyed side by side, checked before, survived when broken."""

from __future__ import annotations

import itertools
import json
import re
import time

import pytest
from msgspec.structs import replace
from pegboard_contracts.engine import Engine, PromptTokenizer, Submission, TokenEvent
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Constraint, Sampling
from pegboard_contracts.grammar import GrammarBuilder, SchemaTranslator
from pegboard_contracts.testing.engines import GREEDY, by_request, run_until_idle

pytestmark = pytest.mark.real_model

STEP_LIMIT = 0.1
DRAWN = replace(GREEDY, temperature=1.0)

request_ids = itertools.count(2_000_000)


def from_schema(schema: object) -> Constraint:
    builder = GrammarBuilder()
    expression = SchemaTranslator(builder, schema).expression()
    return Constraint(kind="ebnf", value=builder.text(expression))


CITY = from_schema(
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "people": {"type": "integer", "minimum": 1, "maximum": 99},
            "tags": {"type": "array", "items": {"enum": ["warm", "cold"]}, "maxItems": 3},
        },
        "required": ["city", "people", "tags"],
    }
)
BROKEN = Constraint(kind="ebnf", value="root ::= missing")


class Asking:
    """Submit questions to the real engine."""

    def __init__(self, engine: Engine, tokenizer: PromptTokenizer) -> None:
        self.engine = engine
        self._tokenizer = tokenizer

    def __call__(
        self,
        question: str,
        constraint: Constraint | None = None,
        *,
        tokens: int = 60,
        sampling: Sampling = GREEDY,
    ) -> int:
        turns = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        submission = Submission(
            request_id=next(request_ids),
            prompt_ids=self._tokenizer.encode(turns),
            prompt_text=turns,
            max_output_tokens=tokens,
            sampling=sampling,
            constraint=constraint,
        )
        self.engine.submit(submission)
        return submission.request_id


@pytest.fixture
def ask(real_engine: Engine, tokenizer: PromptTokenizer) -> Asking:
    return Asking(real_engine, tokenizer)


def text_of(events: list[TokenEvent]) -> str:
    return "".join(event.text for event in events)


def test_different_constraints_side_by_side(ask: Asking) -> None:
    asked = {
        ask("Tell me about Oslo.", CITY, sampling=DRAWN): CITY,
        ask("Yes or no?", Constraint(kind="regex", value="(yes|no)")): None,
        ask("Pick a number.", Constraint(kind="ebnf", value='root ::= "#" [1-9] [0-9]?')): None,
        ask("Say hello."): None,
    }
    answers = by_request(run_until_idle(ask.engine))
    city, regex, ebnf, free = (answers[request_id] for request_id in asked)
    if city[-1].finish == "stop":
        assert 1 <= json.loads(text_of(city))["people"] <= 99
    assert text_of(regex) in ("yes", "no")
    assert re.fullmatch(r"#[1-9]\d?", text_of(ebnf))
    assert not text_of(free).startswith(("{", "#"))


def test_the_culprit_of_a_failed_step_is_found_and_the_others_go_on(ask: Asking) -> None:
    free = ask("Why is the sky blue?", tokens=40)
    expected = text_of(run_until_idle(ask.engine))
    recoveries = ask.engine.inspect()["recoveries"]

    free = ask("Why is the sky blue?", tokens=40)
    bound = ask("Tell me about Oslo.", CITY, tokens=200, sampling=DRAWN)
    events = [event for _ in range(9) for event in ask.engine.step()]
    # Three begin in one step, and two of them are broken.
    fresh = ask("Say hello.", tokens=5)
    culprits = {ask("Hi!", BROKEN), ask("Hi again!", BROKEN)}
    fresh_bound = ask("Yes or no?", Constraint(kind="ebnf", value='root ::= "yes" | "no"'))
    answers = by_request(events + run_until_idle(ask.engine))

    assert {key for key, value in answers.items() if value[-1].finish == "failed"} == culprits
    assert text_of(answers[free])[:20] == expected[:20]
    assert sum(len(event.token_ids) for event in answers[free]) == 40
    assert answers[bound][-1].finish == "stop"
    assert set(json.loads(text_of(answers[bound]))) == {"city", "people", "tags"}
    assert sum(len(event.token_ids) for event in answers[fresh]) == 5
    assert text_of(answers[fresh_bound]) in ("yes", "no")
    assert ask.engine.inspect()["recoveries"] > recoveries


def test_a_suspect_may_be_cancelled_and_new_requests_wait_for_the_trials(ask: Asking) -> None:
    culprits = [ask("Hi!", BROKEN), ask("Hi!", BROKEN)]
    waiting = ask("Say hello.", tokens=5)
    events = ask.engine.step()
    late = ask("Say goodbye.", tokens=5)
    ask.engine.cancel(waiting)
    answers = by_request(events + run_until_idle(ask.engine))
    assert [answers[culprit][-1].finish for culprit in culprits] == ["failed", "failed"]
    assert answers[waiting][-1].finish == "cancelled"
    assert answers[late][-1].finish in ("stop", "length")


def test_ignore_eos_and_a_grammar_exclude_each_other(ask: Asking) -> None:
    with pytest.raises(ApiError) as refused:
        ask("Hi!", CITY, sampling=replace(GREEDY, ignore_eos=True))
    assert refused.value.status == 400


def test_good_constraints_are_checked_quickly_the_second_time(tokenizer: PromptTokenizer) -> None:
    tokenizer.check(CITY, STEP_LIMIT)
    begun = time.process_time()
    cost = tokenizer.check(CITY, STEP_LIMIT)
    assert 0 < cost.step_seconds < STEP_LIMIT
    assert time.process_time() - begun < 2.0


@pytest.mark.parametrize(
    "constraint",
    [
        BROKEN,
        Constraint(kind="ebnf", value='root ::= "a'),
        Constraint(kind="ebnf", value="root ::= [a-"),
        Constraint(kind="regex", value="(["),
        Constraint(kind="regex", value="(?=a)b"),
        Constraint(kind="json_schema", value='{"type": "nothing"}'),
        Constraint(kind="json_schema", value="{"),
        Constraint(kind="structural_tag", value='{"type": "structural_tag", "format": {}}'),
    ],
    ids=str,
)
def test_bad_constraints_are_refused_with_the_reason(
    tokenizer: PromptTokenizer, constraint: Constraint
) -> None:
    with pytest.raises(ApiError) as refused:
        tokenizer.check(constraint, STEP_LIMIT)
    assert refused.value.status == 400
    assert refused.value.code == "invalid_grammar"
    reason = refused.value.message.removeprefix("The grammar does not compile: ")
    assert len(reason) > len("Correct it.")
    assert ".cc" not in reason
    assert tokenizer.check(CITY, STEP_LIMIT).compile_seconds > 0


def test_what_would_slow_every_step_is_seen(tokenizer: PromptTokenizer) -> None:
    slow = Constraint(kind="ebnf", value=r'root ::= "\"" [^"]{150,} "\""')
    assert tokenizer.check(slow, 0.02).step_seconds > 0.02
