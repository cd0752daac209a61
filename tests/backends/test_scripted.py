from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pegboard_backends._scripted.engine import ScriptedEngine
from pegboard_backends._scripted.numbers import embedding_vector, rerank_order, rerank_scores
from pegboard_backends._scripted.script import Rule, Script, parse_script
from pegboard_backends._scripted.tokenizer import ScriptedTokenizer
from pegboard_backends.scripted import plugin
from pegboard_contracts.backend import Backend, EngineDescription, EngineOrder
from pegboard_contracts.engine import Engine, PromptTokenizer, Submission, TokenEvent
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Constraint, Sampling
from pegboard_contracts.testing.engines import EngineLaws, TokenizerLaws, run_until_idle


class Clock:
    """Count seconds as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def backend() -> Backend:
    made = plugin()
    made.name = "scripted"
    made.configure(plugin.Settings())
    return made


def describe(
    path: Path, *, device: str = "CPU", context_tokens: int | None = None
) -> EngineDescription:
    order = EngineOrder(
        model="m",
        source=path,
        device=device,
        cache_dir=path.parent,
        context_tokens=context_tokens,
    )
    return backend().describe_engine(order)


def engine_of(script: dict[str, Any], clock: Clock | None = None) -> ScriptedEngine:
    parsed = parse_script(json.dumps(script))
    return ScriptedEngine(
        parsed, device="CPU", context_tokens=parsed.context_tokens, clock=clock or Clock()
    )


def ask(text: str, request_id: int = 1, *, tokens: int = 1000) -> Submission:
    return Submission(
        request_id=request_id,
        prompt_ids=[1, 2, 3],
        prompt_text=text,
        max_output_tokens=tokens,
        sampling=Sampling(),
        last_text=text,
    )


def continue_with(token_ids: list[int], text: str, request_id: int = 1) -> Submission:
    return replace(
        ask("x", request_id),
        prompt_ids=[1, 2, *token_ids],
        continued_tokens=len(token_ids),
        continued_text=text,
    )


def answer(engine: ScriptedEngine, submission: Submission) -> list[TokenEvent]:
    engine.submit(submission)
    return run_until_idle(engine)


def texts(events: list[TokenEvent]) -> list[str]:
    return [event.text for event in events]


class TestLaws(EngineLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
        path = tmp_path_factory.mktemp("script") / "laws.json"
        path.write_text(json.dumps({"rules": [{"match": "two", "pieces": ["x "], "repeat": 5000}]}))
        engine = backend().open_engine(describe(path).options)
        yield engine
        engine.close()

    def prompt_ids(self, text: str) -> list[int]:
        return ScriptedTokenizer(parse_script("{}")).encode(text)


class TestTokenizerLaws(TokenizerLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def tokenizer(cls) -> PromptTokenizer:
        return ScriptedTokenizer(parse_script("{}"))


@given(st.text(max_size=200))
def test_the_echo_adds_up_to_the_text_one_word_a_piece(text: str) -> None:
    events = answer(engine_of({}), ask(text))
    assert "".join(texts(events)) == text
    assert sum(len(event.token_ids) for event in events) == (len(text.split()) or bool(text))


def test_the_first_rule_that_matches_answers() -> None:
    script = {
        "rules": [
            {"match": r"\bone\b", "pieces": ["first"]},
            {"match": "one|two", "pieces": ["second"], "finish": "length"},
        ],
        "default": {"pieces": ["neither"]},
    }
    engine = engine_of(script)
    assert texts(answer(engine, ask("take one"))) == ["first"]
    second = answer(engine, ask("two"))
    assert (texts(second), second[-1].finish) == (["second"], "length")
    assert texts(answer(engine, ask("three"))) == ["neither"]


def test_a_character_cut_by_pieces_comes_out_whole() -> None:
    pieces = ["a", {"bytes": "f09f"}, {"bytes": "9880"}, {"bytes": "ff"}, {"bytes": "f09f"}]
    events = answer(engine_of({"default": {"pieces": pieces}}), ask("x"))
    assert texts(events) == ["a", "", "\N{GRINNING FACE}", "\ufffd", "\ufffd"]
    assert [len(event.token_ids) for event in events] == [1, 1, 1, 1, 1]


@pytest.mark.parametrize(("limit", "finish"), [(2, "length"), (3, "stop"), (9, "stop")])
def test_max_output_tokens_applies(limit: int, finish: str) -> None:
    engine = engine_of({"default": {"pieces": ["a", "b", "c"]}})
    events = answer(engine, ask("x", tokens=limit))
    assert len(events) == min(limit, 3)
    assert events[-1].finish == finish


def test_the_context_ends_an_answer() -> None:
    engine = engine_of({"context_tokens": 8, "default": {"pieces": ["a"], "repeat": 100}})
    events = answer(engine, ask("x"))
    assert (len(events), events[-1].finish) == (5, "length")
    with pytest.raises(ApiError, match="context") as refused:
        engine.submit(replace(ask("x"), prompt_ids=[1] * 8))
    assert refused.value.code == "context_length_exceeded"


def test_raise_after_fails_its_request_alone() -> None:
    engine = engine_of({"rules": [{"match": "boom", "pieces": ["a", "b", "c"], "raise_after": 2}]})
    engine.submit(ask("boom", 1))
    engine.submit(ask("one two three four", 2))
    events = run_until_idle(engine)
    failed = [event for event in events if event.request_id == 1]
    assert texts(failed) == ["a", "b", ""]
    assert failed[-1].finish == "failed"
    assert failed[-1].error
    assert [event for event in events if event.request_id == 2][-1].finish == "stop"


def test_hang_after_is_silent_and_ignores_cancel_while_others_go_on() -> None:
    engine = engine_of({"rules": [{"match": "hang", "hang_after": 1}]})
    engine.submit(ask("hang please", 1))
    assert texts(engine.step()) == ["hang "]
    assert engine.step() == []
    engine.cancel(1)
    assert engine.step() == []
    assert engine.due() is None
    assert texts(answer(engine, ask("still here", 2))) == ["still ", "here"]
    assert engine.inspect()["requests"][0]["status"] == "running"


def test_exit_after_ends_the_process_without_cleaning_up() -> None:
    code = """
import atexit, json, sys, time
from pegboard_backends._scripted.engine import open_scripted
from pegboard_backends._scripted.script import Rule, Script, parse_script
from pegboard_contracts.engine import Submission
from pegboard_contracts.generation import Sampling
atexit.register(print, "cleaned up")
script = parse_script(json.dumps({"default": {"exit_after": 1}}))
engine = open_scripted(script, device="CPU", context_tokens=None)
engine.submit(Submission(request_id=1, prompt_ids=[1], prompt_text="", max_output_tokens=9,
                         sampling=Sampling(), last_text="a b"))
print([event.text for event in engine.step()], flush=True)
engine.step()
print("still alive")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "['a ']\n"
    assert done.returncode != 0


def test_delays_are_due_and_not_slept() -> None:
    clock = Clock()
    script = {"default": {"pieces": ["a", "b"], "first_delay_ms": 3000, "delay_ms": 100}}
    engine = engine_of(script, clock)
    engine.submit(ask("x"))
    assert engine.step() == []
    assert engine.due() == pytest.approx(3.0)
    clock.now += 3.0
    assert engine.due() == 0.0
    assert texts(engine.step()) == ["a"]
    assert engine.step() == []
    assert engine.due() == pytest.approx(0.1)
    clock.now += 0.1
    assert engine.step()[0].finish == "stop"


def test_a_continuation_does_not_wait_for_a_first_piece_again() -> None:
    engine = engine_of({"default": {"pieces": ["a", "b"], "first_delay_ms": 3000}})
    engine.submit(continue_with([], "a"))
    assert engine.due() == pytest.approx(3.0)
    engine.cancel(1)
    engine.step()
    engine.submit(continue_with(ScriptedTokenizer(parse_script("{}")).encode("a"), "a", 2))
    assert engine.due() == 0.0


def test_a_delayed_request_can_be_cancelled() -> None:
    engine = engine_of({"default": {"pieces": ["a"], "first_delay_ms": 60_000}})
    engine.submit(ask("x"))
    engine.cancel(1)
    assert engine.due() == 0.0
    assert [event.finish for event in engine.step()] == ["cancelled"]


def test_log_probabilities_are_the_scripted_ones() -> None:
    chances: list[Any] = [[-0.5, [["a", -0.5], ["b", -1.5]]], [-2.0, []]]
    engine = engine_of({"default": {"pieces": ["a", "c"], "logprobs": chances}})
    events = answer(engine, replace(ask("x"), logprobs=True, top_logprobs=1))
    assert [event.logprobs for event in events] == [
        [(-0.5, "a", [("a", -0.5)])],
        [(-2.0, "c", [])],
    ]
    assert all(event.logprobs is None for event in answer(engine, ask("x", 2)))


def test_repetitions_are_not_copied() -> None:
    engine = engine_of({"default": {"pieces": ["x "], "repeat": 2_000_000_000}})
    engine.submit(ask("x"))
    assert texts(engine.step()) == ["x "]


def test_the_log_keeps_the_last_hundred_as_received() -> None:
    engine = engine_of({})
    for number in range(101):
        answer(engine, ask(f"prompt {number}", number))
    engine.submit(replace(ask("last one", 200), constraint=Constraint(kind="regex", value="a+")))
    engine.cancel(200)
    engine.step()
    log = engine.inspect()["requests"]
    assert len(log) == 100
    assert log[0]["prompt"] == "prompt 2"
    assert log[0]["status"] == "finished"
    assert log[0]["pieces"] == 2
    assert log[-1]["constraint"] == {"kind": "regex", "value": "a+"}
    assert log[-1]["status"] == "cancelled"
    assert log[-1]["input"] is None
    assert set(log[-1]["sampling"]) >= {"temperature", "top_p", "seed"}


PIECES = st.lists(
    st.one_of(st.text("ab<>", max_size=3), st.sampled_from([{"bytes": "f09f"}, {"bytes": "9880"}])),
    min_size=1,
    max_size=6,
)


@given(pieces=PIECES, repeat=st.integers(1, 3), data=st.data())
def test_a_continuation_goes_on_where_the_answer_stopped(
    pieces: list[Any], repeat: int, data: st.DataObject
) -> None:
    script = {"default": {"pieces": pieces, "repeat": repeat}}
    whole = answer(engine_of(script), ask("x"))
    cut = data.draw(st.integers(0, len(whole)))
    past = [token for event in whole[:cut] for token in event.token_ids]
    rest = answer(engine_of(script), continue_with(past, "".join(texts(whole[:cut]))))
    assert [token for event in rest for token in event.token_ids] == [
        token for event in whole[cut:] for token in event.token_ids
    ]
    assert texts(rest) == (texts(whole[cut:]) or [""])


@pytest.mark.parametrize(
    ("appended", "rest"),
    [
        ("</think>", "answer"),  # occurs further on: the thought in between is skipped
        ("ore </thi", "nk>answer"),  # also inside pieces
        ("nowhere", "more </think>answer"),
    ],
)
def test_appended_text_is_skipped_where_it_occurs(appended: str, rest: str) -> None:
    engine = engine_of({"default": {"pieces": ["<think>", "more ", "</think>", "answer"]}})
    engine.submit(ask("x"))
    first = engine.step()
    engine.cancel(1)
    engine.step()
    ids = first[0].token_ids + ScriptedTokenizer(parse_script("{}")).encode(appended)
    events = answer(engine, continue_with(ids, "<think>" + appended, 2))
    assert "".join(texts(events)) == rest


def test_a_continuation_is_found_by_text_when_its_ids_are_new() -> None:
    engine = engine_of({"default": {"pieces": ["one ", "two ", "three"]}})
    ids = ScriptedTokenizer(parse_script("{}")).encode("one tw")
    events = answer(engine, continue_with(ids, "one tw"))
    assert "".join(texts(events)) == "o three"


def test_formats_and_kind_are_told(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"tool_format": "hermes", "context_tokens": 50}')
    info = backend().open_engine(describe(path, device="GPU", context_tokens=20).options).describe()
    assert info.properties == {"kind": "generate", "tool_format": "hermes"}
    assert (info.context_tokens, info.architecture_context_tokens) == (20, 50)
    assert info.device == "GPU"


def test_the_template_and_its_suffix_come_from_the_script() -> None:
    source = ScriptedTokenizer(
        parse_script('{"chat_template": "T", "prompt_suffix": "<think>\\n"}')
    ).source()
    assert (source.template, source.prompt_suffix) == ("T", "<think>\n")


def test_a_tokenizer_decodes_the_pieces_of_its_script() -> None:
    script = {"default": {"pieces": ["a", {"bytes": "f09f"}, {"bytes": "9880"}]}}
    ids = [token for event in answer(engine_of(script), ask("x")) for token in event.token_ids]
    assert ScriptedTokenizer(parse_script(json.dumps(script))).decode(ids) == "a\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("script", "key"),
    [
        ('{"rules": [{"match": "("}]}', "rules[0].match"),
        ('{"rules": [{"match": "a{99999999999999}"}]}', "rules[0].match"),
        ('{"rules": [{"match": "a", "pieces": [3]}]}', "rules[0].pieces[0]"),
        ('{"rules": [{"match": "a", "pieces": [{"bytes": "0g"}]}]}', "rules[0].pieces[0].bytes"),
        ('{"rules": [{"match": "a", "finish": "secret"}]}', "rules[0].finish"),
        ('{"rules": [{"pieces": []}]}', "match"),
        ('{"default": {"repeat": -1}}', "default.repeat"),
        ('{"default": {"echo": true, "pieces": ["a"]}}', "default.echo"),
        ('{"default": {"pieces": ["a"], "logprobs": []}}', "default.logprobs"),
        ('{"embedding": {"dimensions": 0}}', "embedding.dimensions"),
        ('{"embedding": {"dimensions": 3}, "rules": [{"match": "a"}]}', "embedding"),
        ('{"rerank": {}, "embedding": {"dimensions": 3}}', "rerank"),
        ('{"rerank": {}, "rules": [{"match": "a"}]}', "rerank"),
        ('{"convert_phases": [["sleeping", 3]]}', "convert_phases[0][0]"),
        ('{"typo": 1}', "typo"),
        ("[]", "object"),
        ("{", "JSON"),
        ('{"prompt_suffix": "\\ud800"}', "JSON"),
    ],
)
def test_a_bad_script_names_the_key(tmp_path: Path, script: str, key: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(script)
    with pytest.raises(ApiError) as refused:
        describe(path)
    assert refused.value.status == 400
    assert key in refused.value.message
    assert "secret" not in refused.value.message
    assert str(tmp_path) not in refused.value.message


@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
def test_any_file_is_a_script_or_a_400(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content)
    try:
        describe(path)
    except ApiError as error:
        assert error.status == 400  # noqa: PT017 - a script is as good an answer


def test_a_folder_is_no_script(tmp_path: Path) -> None:
    with pytest.raises(ApiError) as refused:
        describe(tmp_path)
    assert refused.value.status == 400


def test_load_error_is_told_with_its_words(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"load_error": "the disk is on fire"}')
    with pytest.raises(ApiError, match="the disk is on fire"):
        backend().open_engine(describe(path).options)


def test_the_file_is_read_again_at_every_load(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    for text in ("one", "two"):
        path.write_text(json.dumps({"default": {"pieces": [text]}}))
        engine = backend().open_engine(describe(path).options)
        engine.submit(ask("x"))
        assert texts(run_until_idle(engine)) == [text]


@pytest.mark.parametrize("script", [{"embedding": {"dimensions": 4}}, {"rerank": {}}])
def test_models_of_other_kinds_generate_nothing(script: dict[str, Any]) -> None:
    engine = engine_of(script)
    assert engine.describe().properties["kind"] in script
    with pytest.raises(ApiError) as refused:
        engine.submit(ask("x"))
    assert refused.value.code == "model_kind_mismatch"


@given(st.text(max_size=40), st.integers(1, 40))
def test_vectors_are_unit_and_deterministic(text: str, dimensions: int) -> None:
    vector = embedding_vector(text, dimensions)
    assert len(vector) == dimensions
    assert sum(value * value for value in vector) == pytest.approx(1.0)
    assert vector == embedding_vector(text, dimensions)


def test_vectors_of_different_texts_differ() -> None:
    assert embedding_vector("a", 8) != embedding_vector("b", 8)


def test_rerank_scores_count_words_and_ties_keep_their_order() -> None:
    scores = rerank_scores("red green blue", ["blue sky", "a red blue flag", "nothing", "green"])
    assert scores == pytest.approx([1 / 3, 2 / 3, 0, 1 / 3])
    assert rerank_order(scores) == [1, 0, 3, 2]
    assert rerank_scores("", ["a"]) == [0.0]


def test_importing_the_plugin_is_cheap() -> None:
    code = (
        "import sys, pegboard_backends.scripted as m; m.plugin();"
        "print([n for n in ('fastapi', 'starlette', 'openvino') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_documents_name_every_key_and_their_example_works() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/script-a-model.md").read_text()
    script = parse_script(page.split("```json\n")[1].split("```")[0])
    assert len(script.rules) == 5
    keys = {*Script.__struct_fields__, *Rule.__struct_fields__}
    assert {key for key in keys if f"`{key}`" not in page} == set()
