"""What sampling fields do to the real model's answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from pegboard_contracts.engine import Engine, PromptTokenizer, Submission
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Beams, Constraint, Sampling
from pegboard_contracts.testing.engines import GREEDY, by_request, run_until_idle

pytestmark = pytest.mark.real_model

END_OF_TURN = 2
_QUESTION = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n"
)

request_ids = itertools.count(2_000_000)


@pytest.fixture
def prompt(tokenizer: PromptTokenizer) -> list[int]:
    return tokenizer.encode(_QUESTION)


@pytest.fixture
def idle(real_engine: Engine) -> Iterator[Engine]:
    yield real_engine
    assert real_engine.due() is None


def order(prompt: list[int], sampling: Sampling, tokens: int = 40, **more: Any) -> Submission:
    return Submission(
        request_id=next(request_ids),
        prompt_ids=prompt,
        prompt_text="",
        max_output_tokens=tokens,
        sampling=sampling,
        **more,
    )


def answers(engine: Engine, *orders: Submission) -> list[list[int]]:
    for one in orders:
        engine.submit(one)
    events = by_request(run_until_idle(engine))
    return [[token for e in events[one.request_id] for token in e.token_ids] for one in orders]


def test_tokens_that_stop(idle: Engine, prompt: list[int]) -> None:
    (plain,) = answers(idle, order(prompt, GREEDY))
    third = plain[2]
    assert third not in plain[:2]
    stopped = replace(GREEDY, stop_token_ids=(third,))
    beyond = replace(stopped, ignore_eos=True)
    for sampling in (stopped, beyond):
        assert answers(idle, order(prompt, sampling)) == [plain[:3]]


def test_c108_every_declared_end_stops_and_ignore_eos_is_honoured(
    idle: Engine, prompt: list[int]
) -> None:
    (plain,) = answers(idle, order(prompt, GREEDY, tokens=100))
    assert plain[-1] == END_OF_TURN
    (endless,) = answers(idle, order(prompt, replace(GREEDY, ignore_eos=True), tokens=100))
    assert (len(endless), END_OF_TURN in endless) == (100, True)


def test_no_end_before_the_least_tokens(idle: Engine, prompt: list[int]) -> None:
    (plain,) = answers(idle, order(prompt, GREEDY, tokens=100))
    least = len(plain) + 7
    (longer,) = answers(idle, order(prompt, replace(GREEDY, min_tokens=least), tokens=100))
    assert len(longer) >= least
    assert END_OF_TURN not in longer[: least - 1]


def test_beams_are_searched_and_ranked(idle: Engine, prompt: list[int]) -> None:
    ranked = [replace(GREEDY, beams=Beams(count=4, rank=rank)) for rank in range(4)]
    found = answers(idle, *(order(prompt, sampling, tokens=12) for sampling in ranked))
    assert len({tuple(one) for one in found}) == 4
    again = answers(idle, order(prompt, ranked[1], tokens=12))
    assert again == [found[1]]


def test_grouped_beams_and_no_repeated_runs(idle: Engine, tokenizer: PromptTokenizer) -> None:
    prompt = tokenizer.encode("one two one two one two one two")
    plain = Beams(count=2)
    unrepeated = replace(plain, no_repeat_ngram_size=2, ends="early", length_penalty=-1.0)
    grouped = Beams(count=4, groups=2, diversity_penalty=5.0, ends="never")
    repeated, single, _ = answers(
        idle,
        *(
            order(prompt, replace(GREEDY, beams=beams, ignore_eos=True), tokens=16)
            for beams in (plain, unrepeated, grouped)
        ),
    )

    def pairs(tokens: list[int]) -> list[tuple[int, int]]:
        return list(itertools.pairwise(tokens))

    assert len(set(pairs(repeated))) < len(pairs(repeated))
    assert len(set(pairs(single))) == len(pairs(single))


def test_beams_with_log_probabilities_beside_drawn_answers(idle: Engine, prompt: list[int]) -> None:
    searched = order(prompt, replace(GREEDY, beams=Beams(count=3)), tokens=8, logprobs=True)
    drawn = order(prompt, replace(GREEDY, temperature=1.0, seed=3), tokens=8)
    for one in (searched, drawn):
        idle.submit(one)
    events = by_request(run_until_idle(idle))
    chances = [c for e in events[searched.request_id] for c in e.logprobs or ()]
    tokens = [t for e in events[searched.request_id] for t in e.token_ids]
    assert len(chances) == len(tokens) > 0
    assert events[drawn.request_id][-1].finish in ("stop", "length")


def test_a_cancelled_search_frees_the_engine(idle: Engine, prompt: list[int]) -> None:
    searched = order(prompt, replace(GREEDY, beams=Beams(count=8), ignore_eos=True), tokens=2000)
    idle.submit(searched)
    idle.step()
    idle.cancel(searched.request_id)
    run_until_idle(idle)
    assert answers(idle, order(prompt, GREEDY, tokens=3))[0]


def test_beams_and_a_grammar_exclude_each_other(idle: Engine, prompt: list[int]) -> None:
    constraint = Constraint(kind="regex", value="[a-z]+")
    with pytest.raises(ApiError) as caught:
        idle.submit(order(prompt, replace(GREEDY, beams=Beams(count=2)), constraint=constraint))
    assert (caught.value.status, caught.value.param) == (400, "num_beams")
