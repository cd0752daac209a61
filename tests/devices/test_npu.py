"""The NPU's engine: weights that are refused, fixed lengths, one request at a time.

A fake pipeline stands behind the seam: no evidence about hardware.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pegboard_backends._openvino import library, stateful_engine
from pegboard_backends._openvino.devices import parse_device
from pegboard_backends._openvino.npu_guard import npu_problem, without_npu
from pegboard_backends._openvino.stateful_engine import StatefulEngine
from pegboard_backends._openvino.stateful_opening import static_lengths
from pegboard_contracts.engine import EngineInfo, Submission, TokenEvent
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Beams, Constraint, Sampling

pytestmark = pytest.mark.simulated

END = 2


class FakePipeline:
    """Generate the prompt's ids once more, then the end, as long as nobody stops it."""

    opened = 0
    fault: Exception | None = None
    endless = False

    def __init__(self) -> None:
        type(self).opened += 1

    def get_generation_config(self) -> Any:
        return SimpleNamespace(stop_token_ids={END}, eos_token_id=-1)

    def get_tokenizer(self) -> Any:
        return SimpleNamespace(get_eos_token_id=lambda: END)

    def generate(self, prompt: list[int], config: Any, streamer: Any) -> None:
        if self.fault is not None:
            raise self.fault
        answer = [*prompt, END]
        index = 0
        while index < config.limit:
            token = answer[index % len(answer)] if self.endless else answer[index]
            if streamer.write(token) == "cancel" or (token == END and not self.endless):
                return
            index += 1
            time.sleep(0.001 if self.endless else 0)


class Words:
    """Write a token as its number."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def make(self, *_: object) -> Words:
        return self

    def feed(self, tokens: list[int]) -> str:
        return "".join(f"{token} " for token in tokens if token != END)


def limited(*given: object) -> SimpleNamespace:
    return SimpleNamespace(limit=given[-1])


@pytest.fixture
def open_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., StatefulEngine]]:
    genai = SimpleNamespace(
        StreamingStatus=SimpleNamespace(RUNNING="running", CANCEL="cancel"), StreamerBase=object
    )
    monkeypatch.setattr(library, "genai", lambda: genai)
    monkeypatch.setattr(library, "id_tensor", list[int])
    monkeypatch.setattr(stateful_engine, "build_token_table", Words)
    monkeypatch.setattr(stateful_engine, "DetokenizerFactory", Words)
    monkeypatch.setattr(
        stateful_engine,
        "generation_config",
        limited,
    )
    engines: list[StatefulEngine] = []

    def make(pipeline: type[FakePipeline], context: int = 1152) -> StatefulEngine:
        info = EngineInfo(context_tokens=context, max_sequences=1)
        engines.append(
            StatefulEngine(pipeline, info, end_tokens=(), max_prompt_tokens=context - 128)
        )
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def pipeline(**values: object) -> type[FakePipeline]:
    return type("Pipeline", (FakePipeline,), {"opened": 0, **values})


def ask(number: int, ids: list[int], **fields: Any) -> Submission:
    values: dict[str, Any] = {"max_output_tokens": 50, "sampling": Sampling(), "prompt_text": ""}
    return Submission(request_id=number, prompt_ids=ids, **{**values, **fields})


def answer(engine: StatefulEngine, seconds: float = 20.0) -> list[TokenEvent]:
    events: list[TokenEvent] = []
    end = time.monotonic() + seconds
    while engine.due() is not None:
        assert time.monotonic() < end, "no end in time"
        events += engine.step()
    return events


def test_one_answer_after_the_other(open_engine: Callable[..., StatefulEngine]) -> None:
    kind = pipeline()
    engine = open_engine(kind)
    for number in (1, 2):
        engine.submit(ask(number, [5, 6, number + 6]))
        events = answer(engine)
        assert "".join(event.text for event in events) == f"5 6 {number + 6} "
        assert (events[-1].finish, events[-1].request_id) == ("stop", number)
    assert kind.opened == 1


def test_the_limit_ends_an_answer(open_engine: Callable[..., StatefulEngine]) -> None:
    engine = open_engine(pipeline())
    engine.submit(ask(1, [5, 6, 7], max_output_tokens=2))
    events = answer(engine)
    assert (events[-1].finish, [event.token_ids for event in events[:-1]]) == ("length", [[5], [6]])


def test_c112_prompts_that_do_not_fit_are_refused_with_both_numbers(
    open_engine: Callable[..., StatefulEngine],
) -> None:
    engine = open_engine(pipeline(), context=1152)
    for length, fits in ((1023, True), (1024, True), (1025, False)):
        if fits:
            engine.submit(ask(length, [5] * length, max_output_tokens=1))
            assert answer(engine)[-1].finish == "length"
            continue
        with pytest.raises(ApiError) as caught:
            engine.submit(ask(length, [5] * length))
        assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
        assert "1025" in caught.value.message
        assert "1024" in caught.value.message


def test_c112_what_the_device_cannot_do_is_named(
    open_engine: Callable[..., StatefulEngine],
) -> None:
    engine = open_engine(pipeline())
    schema = Constraint(kind="json_schema", value="{}")
    for fields, param in (
        ({"constraint": schema}, "response_format"),
        ({"logprobs": True}, "logprobs"),
        ({"sampling": Sampling(beams=Beams(count=2))}, "num_beams"),
    ):
        with pytest.raises(ApiError) as caught:
            engine.submit(ask(1, [5], **fields))
        assert (caught.value.status, caught.value.param) == (501, param)
    assert engine.due() is None


def test_an_interrupted_answer_has_the_pipeline_opened_again(
    open_engine: Callable[..., StatefulEngine],
) -> None:
    kind = pipeline(endless=True)
    engine = open_engine(kind)
    engine.submit(ask(1, [5, 6], max_output_tokens=10**6))
    with pytest.raises(ApiError, match="one request"):
        engine.submit(ask(2, [5]))
    while not engine.step():
        pass
    engine.cancel(1)
    assert answer(engine)[-1].finish == "cancelled"
    assert kind.opened == 1
    engine.submit(ask(3, [5, 6], max_output_tokens=2))
    assert answer(engine)[-1].finish == "length"
    assert (kind.opened, engine.inspect()["rebuilds"]) == (2, 1)


def test_a_request_that_fails_harms_no_other(open_engine: Callable[..., StatefulEngine]) -> None:
    kind = pipeline(fault=RuntimeError("secret path"))
    engine = open_engine(kind)
    engine.submit(ask(1, [5]))
    (last,) = answer(engine)
    assert last.finish == "failed"
    assert last.error is not None
    assert "secret" not in last.error
    kind.fault = None
    engine.submit(ask(2, [5]))
    assert answer(engine)[-1].finish == "stop"


@pytest.mark.parametrize(
    ("context", "response", "expected"),
    [
        (4096, None, (3072, 1024)),
        (1024, None, (768, 256)),
        (128, None, (64, 64)),
        (1024, 100, (924, 100)),
    ],
)
def test_lengths_add_up_to_the_context(
    context: int, response: int | None, expected: tuple[int, int]
) -> None:
    assert static_lengths(context, response) == expected


@pytest.mark.parametrize("response", [0, 1024, 2000])
def test_lengths_that_leave_nothing_are_refused(response: int) -> None:
    with pytest.raises(ApiError, match="leaves no room"):
        static_lengths(1024, response)


PROFILES: list[tuple[dict[str, str], str | None]] = [
    ({"mode": "int4_sym", "ratio": "1.0", "group_size": "128"}, None),
    ({"mode": "int4_sym", "ratio": "1.0", "group_size": "-1"}, None),
    ({"mode": "int4_sym", "ratio": "0.8", "group_size": "128"}, "share"),
    ({"mode": "int4_sym", "ratio": "1.0", "group_size": "64"}, "groups of 64"),
    ({"mode": "int4_asym", "ratio": "1.0", "group_size": "128"}, "int4_asym"),
    ({"mode": "int8_asym", "ratio": "1.0", "group_size": "-1"}, "int8_asym"),
    ({}, "records"),
]


def described(folder: Path, profile: dict[str, str], element_type: str = "i4") -> Path:
    fields = "".join(f'<{key} value="{value}" />' for key, value in profile.items())
    nncf = f"<nncf><weight_compression>{fields}</weight_compression></nncf>" if profile else ""
    weights = f'<data element_type="{element_type}" shape="64, 64" />'
    (folder / "openvino_model.xml").write_text(f"<net>{weights}{nncf}</net>")
    return folder


@pytest.mark.parametrize(("profile", "problem"), PROFILES)
def test_edge_75_weights_that_can_end_the_process_are_refused(
    tmp_path: Path, profile: dict[str, str], problem: str | None
) -> None:
    found = npu_problem(described(tmp_path, profile))
    assert found is None if problem is None else found is not None and problem in found
    assert npu_problem(described(tmp_path, profile, "f16")) is None


def test_edge_75_lists_of_devices_lose_the_npu_for_such_weights(tmp_path: Path) -> None:
    bad = described(tmp_path, {})
    assert without_npu(parse_device("AUTO:NPU,GPU,CPU"), bad).text == "AUTO:GPU,CPU"
    assert without_npu(parse_device("AUTO"), bad).text == "AUTO"
    with pytest.raises(ApiError) as caught:
        without_npu(parse_device("AUTO:NPU"), bad)
    assert caught.value.code == "npu_weights_refused"
    good = described(tmp_path, PROFILES[0][0])
    assert without_npu(parse_device("AUTO:NPU,CPU"), good).text == "AUTO:NPU,CPU"
