"""A hundred schemas on the real small model: what ends by itself is valid."""

from __future__ import annotations

import itertools
import json

import jsonschema
import pytest
from pegboard_contracts.engine import Engine, PromptTokenizer, Submission
from pegboard_contracts.generation import Constraint, Sampling
from pegboard_contracts.testing.engines import by_request, run_until_idle
from pegboard_structured_outputs.json_schema import JsonSchema

from tests.structured_outputs.schemas import ENFORCED, UNENFORCED, Schema

TOKENS = 512
TEMPERATURE_ONE = Sampling(
    temperature=1.0,
    top_p=1.0,
    top_k=0,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
)

request_ids = itertools.count(4_000_000)


def compiled(schema: Schema) -> Constraint:
    output = JsonSchema().compile(schema)
    assert output.unenforced == ()
    return output.constraint


def test_there_are_a_hundred_schemas() -> None:
    assert len({json.dumps(schema) for schema in ENFORCED.values()}) >= 100
    for schema in ENFORCED.values():
        jsonschema.Draft202012Validator.check_schema(schema)
        compiled(schema)


@pytest.mark.parametrize("case", UNENFORCED.values(), ids=UNENFORCED)
def test_what_is_not_supported_is_named(case: tuple[Schema, str]) -> None:
    schema, keyword = case
    assert [path.rpartition(".")[2] for path in JsonSchema().compile(schema).unenforced] == [
        keyword
    ]


@pytest.mark.real_model
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_answers_are_valid_and_end(real_engine: Engine, tokenizer: PromptTokenizer) -> None:
    asked: dict[int, str] = {}
    for name, schema in ENFORCED.items():
        text = (
            f"<|im_start|>user\nWrite JSON about a {name}, as this schema wants it: "
            f"{json.dumps(schema)}<|im_end|>\n<|im_start|>assistant\n"
        )
        submission = Submission(
            request_id=next(request_ids),
            prompt_ids=tokenizer.encode(text),
            prompt_text=text,
            max_output_tokens=TOKENS,
            sampling=TEMPERATURE_ONE,
            constraint=compiled(schema),
        )
        asked[submission.request_id] = name
        real_engine.submit(submission)
    answers = by_request(run_until_idle(real_engine, time_limit=1800))
    problems: dict[str, str] = {}
    ended = 0
    for key, events in answers.items():
        text = "".join(event.text for event in events)
        if events[-1].finish != "stop":
            print("  ", asked[key], events[-1].finish, text[-60:])  # noqa: T201 - for people
            continue
        ended += 1
        found = JsonSchema().problems(ENFORCED[asked[key]], text)
        if found:
            problems[asked[key]] = f"{found} {text}"
    print(f"{ended} of {len(asked)} ended, {len(problems)} problems")  # noqa: T201 - for people
    assert problems == {}
    assert ended >= 0.9 * len(asked)
