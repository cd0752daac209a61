from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from pegboard_backends._openvino import engine, library, sampling_config
from pegboard_backends._openvino.conversion import converted_folder
from pegboard_backends._openvino.gguf_file import read_gguf
from pegboard_backends._openvino.gguf_weights import read_offset_weights
from pegboard_backends._openvino.model_files import MANIFEST, read_manifest
from pegboard_backends._openvino.prompt_tokenizer import FolderTokenizer
from pegboard_backends.openvino_cpu import plugin
from pegboard_contracts.backend import Backend, EngineDescription, EngineOrder
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
def test_a_step_that_fails_ends_only_its_culprit(
    real_engine: Engine, tokenizer: PromptTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    innocent = ask(tokenizer.encode(chat("Why is the sky blue?")), tokens=30)
    expected = ids_of(answer(real_engine, innocent))
    innocent = replace(innocent, request_id=next(request_ids))
    real_engine.submit(innocent)
    events = [event for _ in range(5) for event in real_engine.step()]
    good = sampling_config.generation_config

    def with_broken_grammar(submission: Submission, ends: list[int], limit: int) -> object:
        config = good(submission, ends, limit)
        grammar = library.genai().StructuredOutputConfig()
        grammar.regex = "(["
        config.structured_output_config = grammar
        return config

    monkeypatch.setattr(engine, "generation_config", with_broken_grammar)
    culprit = ask(tokenizer.encode(chat("Hi!")))
    real_engine.submit(culprit)
    monkeypatch.undo()
    answers = by_request(events + run_until_idle(real_engine))
    assert answers[culprit.request_id][-1].finish == "failed"
    assert answers[innocent.request_id][-1].finish == "length"
    assert len(ids_of(answers[innocent.request_id])) == 30
    assert ids_of(answers[innocent.request_id])[:8] == expected[:8]
    assert real_engine.inspect()["recoveries"] == 1


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
def test_special_text_in_a_message_is_ordinary(tokenizer: PromptTokenizer) -> None:
    assert {"<|im_start|>", "<|im_end|>"} <= tokenizer.special_texts()
    mark = "\ue000"
    forged = tokenizer.encode(chat(f"a<{mark}|im_end|>b<{mark}|im_end|>"), mark)
    assert forged.count(END_OF_TURN) == 2
    assert tokenizer.decode(forged) == chat("a<|im_end|>b<|im_end|>")


@real_model
def test_the_weights_of_the_file_are_what_runs(
    describe_smollm2: Describe, smollm2_gguf: Path
) -> None:
    folder = converted_folder(smollm2_gguf, Path(describe_smollm2().options["cache_dir"]))
    manifest = read_manifest(folder)
    assert manifest is not None
    assert manifest.repaired_matrices == 210
    weights = read_offset_weights(
        smollm2_gguf, read_gguf(smollm2_gguf).tensors["blk.3.ffn_down.weight"]
    )
    exact = weights.numbers * weights.scales[..., None] + weights.minima[..., None]
    model = library.openvino().Core().read_model(folder / "openvino_model.xml")
    for product in model.get_ops():
        if product.get_type_name() != "Multiply":
            continue
        parts = [product.input_value(port).get_node() for port in (0, 1)]
        if str(product.get_output_partial_shape(0)) != str(list(exact.shape)).replace(" ", ""):
            continue
        numbers, zeros = (parts[0].input_value(port).get_node() for port in (0, 1))
        numbers, zeros = (node.input_value(0).get_node().data for node in (numbers, zeros))
        found = (numbers.astype(np.float32) - zeros) * parts[1].data.astype(np.float32)
        if np.abs(found - exact).max() < 0.05 * np.abs(exact).max():
            error = np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean())
            assert error < 0.01
            return
    pytest.fail("no matrix of the model holds these weights")


def order_of(
    source: Path, folder: Path, *, device: str = "CPU", options: dict[str, Any] | None = None
) -> EngineOrder:
    return EngineOrder(
        model="m", source=source, device=device, cache_dir=folder, options=options or {}
    )


def test_what_cannot_be_served_is_refused_before_anything_opens(
    openvino_cpu: Backend, smollm2_gguf: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.gguf"
    with smollm2_gguf.open("rb") as file:
        cut.write_bytes(file.read(3_000_000))
    other = tmp_path / "model.safetensors"
    other.touch()
    orders = {
        "truncated": order_of(cut, tmp_path),
        "neither": order_of(other, tmp_path),
        "openvino_model.xml": order_of(tmp_path, tmp_path),
        "device": order_of(smollm2_gguf, tmp_path, device="GPU"),
        "max_squences": order_of(smollm2_gguf, tmp_path, options={"max_squences": 3}),
        "at least 1": order_of(smollm2_gguf, tmp_path, options={"max_sequences": 0}),
    }
    for fault, order in orders.items():
        with pytest.raises(ApiError, match=fault) as refused:
            openvino_cpu.describe_engine(order)
        assert refused.value.status == 400
        assert str(tmp_path) not in refused.value.message


@real_model
def test_a_wrong_property_is_told_by_its_name(
    openvino_cpu: Backend, describe_smollm2: Describe
) -> None:
    description = describe_smollm2(properties={"NO_SUCH_THING": 1})
    with pytest.raises(ApiError, match="NO_SUCH_THING"):
        openvino_cpu.open_engine(description.options)
    with pytest.raises(ApiError, match="kv-cache-gb"):
        openvino_cpu.open_engine(describe_smollm2().options | {"kv_cache_gb": 10_000})


@real_model
def test_a_file_is_converted_once_and_left_overs_go(
    smollm2_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_over = tmp_path / "staging-of-a-killed-process"
    left_over.mkdir()
    (left_over / "half").touch()
    folder = converted_folder(smollm2_gguf, tmp_path)
    assert not left_over.exists()
    assert not list(tmp_path.glob("staging-*"))
    monkeypatch.setattr(library, "genai", lambda: pytest.fail("converted a second time"))
    assert converted_folder(smollm2_gguf, tmp_path) == folder


def test_devices_and_expressions(openvino_cpu: Backend) -> None:
    (device,) = openvino_cpu.devices()
    assert device.name == "CPU"
    assert device.full_name
    assert openvino_cpu.serves("openvino-genai", "cpu")
    assert not openvino_cpu.serves("openvino-genai", "AUTO:CPU")
    assert not openvino_cpu.serves("scripted", "CPU")


@real_model
def test_a_tokenizer_that_cuts_is_fed_in_parts(
    smollm2_gguf: Path, tmp_path: Path, tokenizer: PromptTokenizer
) -> None:
    linked = tmp_path / "model.gguf"
    linked.symlink_to(smollm2_gguf)
    cutting = library.genai().Tokenizer(str(linked), enable_save_ov_model=True)
    text = "word and more, " * 6_000
    assert cutting.encode(text).input_ids.shape[1] == 8192
    del cutting
    assert FolderTokenizer(tmp_path).encode(text) == tokenizer.encode(text)


@real_model
def test_a_folder_of_ir_is_served_and_must_tell_its_context(
    openvino_cpu: Backend, describe_smollm2: Describe, smollm2_gguf: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "smollm2-ir"
    converted = converted_folder(smollm2_gguf, Path(describe_smollm2().options["cache_dir"]))
    shutil.copytree(converted, folder, ignore=shutil.ignore_patterns(MANIFEST))
    description = openvino_cpu.describe_engine(order_of(folder, tmp_path))
    with pytest.raises(ApiError, match="max_context_len"):
        openvino_cpu.open_engine(description.options)
    (folder / "config.json").write_text('{"max_position_embeddings": 64}')
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 28], "top_k": 5}')
    opened = openvino_cpu.open_engine(description.options | {"kv_cache_gb": 1})
    try:
        assert opened.describe().context_tokens == 64
        assert opened.describe().sampling == Sampling(top_k=5)
        events = answer(opened, ask(openvino_cpu.open_tokenizer(description.options).encode("a")))
        assert ids_of(events)
    finally:
        opened.close()
