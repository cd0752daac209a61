from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from pegboard_backends.openvino_cpu import plugin
from pegboard_contracts.backend import EngineDescription
from pegboard_contracts.engine import Engine, PromptTokenizer, Submission, TokenEvent
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Sampling
from pegboard_contracts.testing.engines import (
    GREEDY,
    EngineLaws,
    TokenizerLaws,
    by_request,
    run_until_idle,
)
from pegboard_contracts.testing.plugins import PluginLaws

Describe = Callable[..., EngineDescription]
OpenEngine = Callable[..., Engine]

END_OF_TURN = 2
DRAWN = replace(GREEDY, temperature=1.0, seed=None)

request_ids = itertools.count(1_000_000)
real_model = pytest.mark.real_model


class TestPlugin(PluginLaws):
    plugin = plugin


@real_model
class TestEngine(EngineLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, real_engine: Engine) -> Engine:
        return real_engine

    @pytest.fixture(autouse=True)
    def _tokenizer(self, tokenizer: PromptTokenizer) -> None:
        self._encode = tokenizer.encode

    def prompt_ids(self, text: str) -> list[int]:
        return self._encode(text)


@real_model
class TestTokenizer(TokenizerLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def tokenizer(cls, tokenizer: PromptTokenizer) -> PromptTokenizer:
        return tokenizer


def chat(question: str) -> str:
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    turns = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n"
    return turns + "<|im_start|>assistant\n"


def ask(
    prompt_ids: list[int],
    *,
    tokens: int = 100,
    sampling: Sampling = GREEDY,
    kept_tokens: tuple[str, ...] = (),
    continued_tokens: int = 0,
) -> Submission:
    return Submission(
        request_id=next(request_ids),
        prompt_ids=prompt_ids,
        prompt_text="",
        max_output_tokens=tokens,
        sampling=sampling,
        kept_tokens=kept_tokens,
        continued_tokens=continued_tokens,
    )


def text_of(events: list[TokenEvent]) -> str:
    return "".join(event.text for event in events)


def ids_of(events: list[TokenEvent]) -> list[int]:
    return [token_id for event in events for token_id in event.token_ids]


def answer(engine: Engine, submission: Submission) -> list[TokenEvent]:
    engine.submit(submission)
    return run_until_idle(engine)


@real_model
def test_an_answer_stops_at_the_end_of_its_turn(
    real_engine: Engine, tokenizer: PromptTokenizer
) -> None:
    submission = ask(tokenizer.encode(chat("Hi!")))
    events = answer(real_engine, submission)
    assert events[-1].finish == "stop"
    assert ids_of(events)[-1] == END_OF_TURN
    assert "<|" not in text_of(events)
    assert len(text_of(events)) > 5
    beyond = replace(GREEDY, ignore_eos=True)
    events = answer(real_engine, ask(submission.prompt_ids, tokens=60, sampling=beyond))
    assert events[-1].finish == "length"
    assert END_OF_TURN in ids_of(events)[:-1]
    kept = ask(submission.prompt_ids, tokens=60, sampling=beyond, kept_tokens=("<|im_end|>",))
    assert "<|im_end|>" in text_of(answer(real_engine, kept))


@real_model
def test_requests_together_answer_as_alone(real_engine: Engine, tokenizer: PromptTokenizer) -> None:
    prompts = [tokenizer.encode(chat(f"Count from {number} to ten.")) for number in range(8)]
    submissions = [ask(prompt, tokens=24) for prompt in prompts]
    for submission in submissions:
        real_engine.submit(submission)
    together = by_request(run_until_idle(real_engine))
    assert len(together) == len(submissions)
    for submission in submissions[:2]:
        alone = ids_of(answer(real_engine, ask(submission.prompt_ids, tokens=24)))
        assert alone[:4] == ids_of(together[submission.request_id])[:4]


@real_model
def test_a_seed_repeats_and_none_does_not(real_engine: Engine, tokenizer: PromptTokenizer) -> None:
    prompt = tokenizer.encode(chat("Tell me a story."))

    def drawn(seed: int | None) -> list[int]:
        sampling = replace(DRAWN, seed=seed)
        return ids_of(answer(real_engine, ask(prompt, tokens=24, sampling=sampling)))

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    assert drawn(-5) == drawn(-5)
    assert drawn(2**64) is not None
    assert drawn(None) != drawn(None)


@real_model
def test_no_event_splits_a_character(real_engine: Engine, tokenizer: PromptTokenizer) -> None:
    prompt = tokenizer.encode(chat("Write only emoji: 🙂🌍👩‍👧 and 日本語"))
    sampling = replace(DRAWN, temperature=1.5, ignore_eos=True)
    submissions = [
        ask(prompt, tokens=80, sampling=replace(sampling, seed=seed)) for seed in range(6)
    ]
    for submission in submissions:
        real_engine.submit(submission)
    several_bytes = 0
    for events in by_request(run_until_idle(real_engine)).values():
        several_bytes += sum(not event.text for event in events)
        shown = text_of(events)
        if "\N{REPLACEMENT CHARACTER}" not in shown:
            whole = tokenizer.decode([i for i in ids_of(events) if i > 16])
            assert whole.startswith(shown)
            assert len(whole) - len(shown) <= 1
    assert several_bytes, "some tokens end inside a character"


@real_model
def test_a_continuation_goes_on_as_if_nothing_was(
    real_engine: Engine, tokenizer: PromptTokenizer
) -> None:
    prompt = tokenizer.encode(chat("Why is the sky blue?"))
    whole = answer(real_engine, ask(prompt, tokens=40))
    first = ids_of(whole)[:15]
    rest = answer(real_engine, ask(prompt + first, tokens=25, continued_tokens=len(first)))
    assert ids_of(rest)[0] == ids_of(whole)[15]
    assert text_of(whole[:15]) + text_of(rest)[:4] == text_of(whole)[: len(text_of(whole[:15])) + 4]


@real_model
def test_cancel_frees_the_engine_within_two_steps(
    real_engine: Engine, tokenizer: PromptTokenizer
) -> None:
    submissions = [ask(tokenizer.encode(chat(f"Story {n}")), tokens=500) for n in range(3)]
    for submission in submissions:
        real_engine.submit(submission)
    for _ in range(4):
        real_engine.step()
    assert real_engine.inspect()["engine_scheduled_requests"] == 3
    real_engine.cancel(submissions[0].request_id)
    real_engine.step()
    real_engine.step()
    assert real_engine.inspect()["engine_scheduled_requests"] == 2
    for submission in submissions[1:]:
        real_engine.cancel(submission.request_id)
    events = real_engine.step() + real_engine.step()
    assert {event.finish for event in events if event.finish} == {"cancelled"}
    assert real_engine.due() is None
    assert real_engine.inspect()["running"] == []


@real_model
def test_cached_tokens_are_never_more_than_the_engine_skips(open_engine: OpenEngine) -> None:
    """One block a step: the steps to the first token tell what was really computed."""
    small = open_engine(max_batched_tokens=32, kv_cache_blocks=60)
    draw = random.Random(3)  # noqa: S311 - the same prompts in every run
    beginnings = [[draw.randrange(20, 40_000) for _ in range(250)] for _ in range(3)]
    counted = 0
    for _ in range(16):
        prompt = [*draw.choice(beginnings)[: draw.randrange(40, 250)], draw.randrange(20, 99)]
        submission = ask(prompt, tokens=draw.choice([1, 5, 40]))
        small.submit(submission)
        steps, events = 0, list[TokenEvent]()
        while not events:
            events, steps = small.step(), steps + 1
        events += run_until_idle(small)
        computed_at_least = (steps - 1) * 32
        assert events[-1].cached_tokens <= len(prompt) - 1 - computed_at_least + 32
        assert computed_at_least <= len(prompt) - events[-1].cached_tokens
        counted += events[-1].cached_tokens
    assert counted > 300


@real_model
def test_a_small_cache_limits_and_is_shared(open_engine: OpenEngine) -> None:
    small = open_engine(kv_cache_blocks=6)
    assert small.describe().properties["kv_cache_blocks"] == 6
    assert small.describe().context_tokens == 5 * 32
    with pytest.raises(ApiError) as refused:
        small.submit(ask([50] * 160))
    assert refused.value.code == "context_length_exceeded"
    sampling = replace(GREEDY, ignore_eos=True)
    submissions = [ask([50 + n] * 60, tokens=40, sampling=sampling) for n in range(3)]
    for submission in submissions:
        small.submit(submission)
    for events in by_request(run_until_idle(small)).values():
        assert events[-1].finish == "length"
        assert len(ids_of(events)) == 40
    full = ask([50] * 60, tokens=10_000, sampling=sampling)
    assert len(ids_of(answer(small, full))) == 5 * 32 - 60


@real_model
@pytest.mark.parametrize("prompt", [[], [-1], [49_152], [1, 2**40]])
def test_ids_that_the_engine_would_take_for_others_are_refused(
    real_engine: Engine, prompt: list[int]
) -> None:
    with pytest.raises(ApiError) as refused:
        real_engine.submit(ask(prompt))
    assert refused.value.status == 400
    assert real_engine.due() is None


@real_model
def test_extreme_sampling_is_served(real_engine: Engine, tokenizer: PromptTokenizer) -> None:
    prompt = tokenizer.encode(chat("Hi!"))
    for sampling in (
        replace(DRAWN, top_p=0.0),
        replace(DRAWN, temperature=2.0, top_k=1_000_000, min_p=0.99),
        replace(GREEDY, repetition_penalty=2.0, presence_penalty=2.0, frequency_penalty=-2.0),
    ):
        assert ids_of(answer(real_engine, ask(prompt, tokens=3, sampling=sampling)))
    with pytest.raises(ApiError) as refused:
        real_engine.submit(ask(prompt, sampling=replace(DRAWN, temperature=-1.0)))
    assert refused.value.status == 400
    assert real_engine.due() is None


@real_model
def test_long_text_is_counted_and_not_cut(tokenizer: PromptTokenizer) -> None:
    assert len(tokenizer.encode("word " * 20_000)) == 20_001


@real_model
@pytest.mark.parametrize(
    "text",
    [
        "   leading", "trailing   ", "a\n\n\n\nb", "\t\r\n", "a\x00b", "ÀÉÎõü", "👩‍👩‍👧‍👦",
        "é e\u0301", "東京都に行く", "العربية", "ไทย", "a" * 10_000, "\ufeffbom", "\u200b",
        "1234567",
    ],
)  # fmt: skip
def test_c117_ids_and_text_are_the_same_there_and_back(
    tokenizer: PromptTokenizer, text: str
) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(tokenizer.decode(ids)) == ids


@real_model
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("length", [1_000, 4_000, 8_000])
def test_c109_a_cached_prompt_has_an_answer(open_engine: OpenEngine, length: int) -> None:
    engine = open_engine()
    draw = random.Random(length)  # noqa: S311 - the same prompt in every run
    prompt = [draw.randrange(20, 40_000) for _ in range(length)]
    first = answer(engine, ask(prompt, tokens=4))
    again = answer(engine, ask(prompt, tokens=4))
    longer = answer(engine, ask([*prompt, *ids_of(first), 50], tokens=4))
    for events in (first, again, longer):
        assert ids_of(events)
    assert ids_of(again)[0] == ids_of(first)[0]
    assert again[-1].cached_tokens > length - 64
    assert longer[-1].cached_tokens >= again[-1].cached_tokens


@real_model
def test_special_text_in_a_message_is_ordinary(tokenizer: PromptTokenizer) -> None:
    assert {"<|im_start|>", "<|im_end|>"} <= tokenizer.special_texts()
    mark = "\ue000"
    forged = tokenizer.encode(chat(f"a<{mark}|im_end|>b<{mark}|im_end|>"), mark)
    assert forged.count(END_OF_TURN) == 2
    assert tokenizer.decode(forged) == chat("a<|im_end|>b<|im_end|>")
