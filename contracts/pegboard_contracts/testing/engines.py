"""The laws of engines and their tokenizers, as test classes to subclass.

class TestMyEngine(EngineLaws):
@pytest.fixture(scope="class")
def engine(self): ...        # yields an open engine
def prompt_ids(self, text): ...
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pegboard_contracts.engine import (
    Engine,
    PromptTokenizer,
    Submission,
    TemplateSource,
    TokenEvent,
)
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import PLAIN_SAMPLING

SUBCLASSED = [HealthCheck.differing_executors]
"""What hypothesis says about a law that several classes inherit; replaying works anyway."""

_request_ids = itertools.count(1)

GREEDY = msgspec.structs.replace(PLAIN_SAMPLING, temperature=0.0, seed=1)
"""Sampling as an engine receives it, with nothing left to chance."""


def run_until_idle(engine: Engine, *, time_limit: float = 120.0) -> list[TokenEvent]:
    """Step an engine until nothing is due and return all its events.

    Raises `AssertionError` when it is still busy after `time_limit` seconds.
    """
    deadline = time.monotonic() + time_limit
    events: list[TokenEvent] = []
    while (rest := engine.due()) is not None:
        assert time.monotonic() < deadline, f"the engine is busy after {time_limit} seconds"
        time.sleep(rest)
        events += engine.step()
    return events


def by_request(events: Iterable[TokenEvent]) -> dict[int, list[TokenEvent]]:
    """Sort events by request, each in the order it came."""
    sorted_events: dict[int, list[TokenEvent]] = {}
    for event in events:
        sorted_events.setdefault(event.request_id, []).append(event)
    return sorted_events


def assert_well_formed(events: list[TokenEvent], submission: Submission) -> None:
    """Check the events of one request that has ended."""
    causes = [event.finish for event in events if event.finish is not None]
    assert len(causes) == 1, f"a request ends once, this one {len(causes)} times"
    last = events[-1]
    assert last.finish is not None, "nothing follows the event with `finish`"
    assert (last.error is not None) == (last.finish == "failed"), "`error` goes with `failed`"
    tokens = sum(len(event.token_ids) for event in events)
    assert tokens <= submission.max_output_tokens, "no more tokens than were asked for"
    if last.finish == "length":
        assert tokens == submission.max_output_tokens, "`length` means that the limit was used"
    assert 0 <= last.cached_tokens <= len(submission.prompt_ids)
    for event in events:
        event.text.encode()  # whole characters: no half of a surrogate pair
        if submission.logprobs and event.token_ids:
            assert event.logprobs is not None, "log probabilities were asked for"
            assert len(event.logprobs) == len(event.token_ids)


class EngineLaws:
    """Hold what every engine must do; an example answer must last for four tokens or more."""

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        """Yield an open engine; override."""
        raise NotImplementedError

    def prompt_ids(self, text: str) -> list[int]:
        """Turn a prompt into the engine's token ids; override."""
        raise NotImplementedError

    def submission(self, text: str, *, tokens: int = 8, logprobs: bool = False) -> Submission:
        """Make a submission with an id of its own."""
        return Submission(
            request_id=next(_request_ids),
            prompt_ids=self.prompt_ids(text),
            prompt_text=text,
            max_output_tokens=tokens,
            sampling=GREEDY,
            last_text=text,
            logprobs=logprobs,
        )

    def test_describe_is_stable_and_sane(self, engine: Engine) -> None:
        """Two descriptions are equal and name a usable engine."""
        info = engine.describe()
        assert info == engine.describe()
        assert info.context_tokens > 0
        assert info.max_sequences > 0
        msgspec.json.encode(info)

    def test_an_idle_engine_has_nothing_due(self, engine: Engine) -> None:
        """Idle means `None` and a step without events, never a busy loop."""
        assert engine.due() is None
        assert engine.step() == []

    def test_a_request_ends_once_with_its_tokens(self, engine: Engine) -> None:
        """All events of a request carry its id, its last one the cause of the end."""
        submission = self.submission("one two three four five six")
        engine.submit(submission)
        events = run_until_idle(engine)
        assert {event.request_id for event in events} == {submission.request_id}
        assert_well_formed(events, submission)
        assert events[-1].finish in {"stop", "length"}
        assert "".join(event.text for event in events)
        assert engine.step() == []

    def test_max_output_tokens_ends_an_answer(self, engine: Engine) -> None:
        """A limit below the answer's length is reached exactly."""
        submission = self.submission("one two three four five six", tokens=3)
        engine.submit(submission)
        events = run_until_idle(engine)
        assert_well_formed(events, submission)
        assert events[-1].finish == "length"

    def test_the_same_greedy_request_gives_the_same_tokens(self, engine: Engine) -> None:
        """An engine keeps nothing of one request that changes the next."""
        answers: list[list[int]] = []
        for _ in range(2):
            engine.submit(self.submission("one two three four five six"))
            events = run_until_idle(engine)
            answers.append([token for event in events for token in event.token_ids])
        assert answers[0] == answers[1]

    def test_log_probabilities_run_parallel_to_tokens(self, engine: Engine) -> None:
        """Each token has one entry, and no log probability is positive."""
        if engine.describe().top_logprobs is None:
            pytest.skip("this engine gives no log probabilities")
        submission = self.submission("one two three four five six", logprobs=True)
        engine.submit(submission)
        events = run_until_idle(engine)
        assert_well_formed(events, submission)
        entries = [entry for event in events for entry in event.logprobs or ()]
        assert entries
        assert all(chosen <= 0.0 for chosen, _, _ in entries)

    def test_cancel_ends_within_two_steps_and_is_idempotent(self, engine: Engine) -> None:
        """A cancelled request ends as such; the second cancel and late ones do nothing."""
        submission = self.submission("one two three four five six", tokens=1000)
        engine.submit(submission)
        events = engine.step()
        engine.cancel(submission.request_id)
        engine.cancel(submission.request_id)
        events += engine.step() + engine.step()
        assert_well_formed(events, submission)
        assert events[-1].finish == "cancelled"
        engine.cancel(submission.request_id)
        assert run_until_idle(engine) == []

    def test_cancel_of_an_unknown_request_is_ignored(self, engine: Engine) -> None:
        """A cancel may come after the end, or for what was never there."""
        engine.cancel(next(_request_ids))
        assert run_until_idle(engine) == []

    def test_a_prompt_beyond_the_context_is_refused_alone(self, engine: Engine) -> None:
        """The refusal is an `ApiError` 400, and a running request goes on."""
        running = self.submission("one two three four five six")
        engine.submit(running)
        first = self.prompt_ids("one two")[:1]
        too_long = msgspec.structs.replace(
            self.submission("one"), prompt_ids=first * (engine.describe().context_tokens + 1)
        )
        with pytest.raises(ApiError) as refused:
            engine.submit(too_long)
        assert refused.value.status == 400
        assert_well_formed(run_until_idle(engine), running)

    @settings(max_examples=20, deadline=None, suppress_health_check=SUBCLASSED)
    @given(
        st.lists(
            st.tuples(st.sampled_from(["submit", "step", "cancel"]), st.integers(0, 7)), max_size=24
        )
    )
    def test_requests_are_independent(
        self, engine: Engine, commands: list[tuple[str, int]]
    ) -> None:
        """Whatever the order of commands, each request ends once and with its own events."""
        submissions: list[Submission] = []
        cancelled: set[int] = set()
        events: list[TokenEvent] = []
        for command, number in commands:
            if command == "submit" and len(submissions) < 8:
                submissions.append(self.submission(f"{number} two three four", tokens=number + 1))
                engine.submit(submissions[-1])
            elif command == "cancel" and number < len(submissions):
                cancelled.add(submissions[number].request_id)
                engine.cancel(submissions[number].request_id)
            elif command == "step":
                events += engine.step()
        events += run_until_idle(engine)
        answers = by_request(events)
        assert set(answers) == {submission.request_id for submission in submissions}
        for submission in submissions:
            answer = answers[submission.request_id]
            assert_well_formed(answer, submission)
            assert answer[-1].finish != "failed"
            if submission.request_id not in cancelled:
                assert answer[-1].finish != "cancelled"

    def test_inspect_is_plain_data(self, engine: Engine) -> None:
        """What an engine tells about itself can be sent as JSON."""
        msgspec.json.encode(engine.inspect())


class TokenizerLaws:
    """Hold what every prompt tokenizer must do."""

    @pytest.fixture(scope="class")
    @classmethod
    def tokenizer(cls) -> PromptTokenizer:
        """Return an open tokenizer; override."""
        raise NotImplementedError

    def test_source_and_special_texts_are_stable(self, tokenizer: PromptTokenizer) -> None:
        """Both are read once and must not depend on when."""
        assert isinstance(tokenizer.source(), TemplateSource)
        assert tokenizer.source() == tokenizer.source()
        assert tokenizer.special_texts() == tokenizer.special_texts()

    def test_nothing_is_added(self, tokenizer: PromptTokenizer) -> None:
        """An empty text has no tokens: what a model wants in front is in its template."""
        assert tokenizer.encode("") == []

    def test_plain_text_survives(self, tokenizer: PromptTokenizer) -> None:
        """Ordinary words come back, up to blanks at the ends."""
        text = "The quick brown fox counts to ten"
        assert tokenizer.decode(tokenizer.encode(text)).strip() == text

    @settings(max_examples=50, deadline=None, suppress_health_check=SUBCLASSED)
    @given(st.text(max_size=60))
    def test_encoding_is_a_function(self, tokenizer: PromptTokenizer, text: str) -> None:
        """The same text has the same ids, and its ids can be decoded."""
        token_ids = tokenizer.encode(text)
        assert token_ids == tokenizer.encode(text)
        assert all(0 <= token_id < 2**53 for token_id in token_ids)
        tokenizer.decode(token_ids).encode()

    def test_the_literal_mark_makes_special_text_ordinary(self, tokenizer: PromptTokenizer) -> None:
        """A marked special text decodes to itself from other tokens than the special one."""
        mark = "\ue000"
        assert tokenizer.encode(f"{mark}one two", mark) == tokenizer.encode("one two")
        for text in sorted(tokenizer.special_texts())[:20]:
            literal = tokenizer.encode(text[:1] + mark + text[1:], mark)
            assert literal != tokenizer.encode(text)
            assert tokenizer.decode(literal).strip() == text.strip()
