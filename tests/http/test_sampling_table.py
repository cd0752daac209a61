"""Every sampling field that GenAI has is reached by a request or refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

SCRIPT: dict[str, Any] = {
    "context_tokens": 64,
    "default": {"pieces": ["one ", "two ", "three"], "logprobs": [[-1.0, []]] * 3},
}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "say"}]},
    "/v1/completions": {"prompt": "say"},
}
BEAMS: dict[str, Any] = {"num_beams": 4}

Seen = dict[str, Any]

# What a request says, and what the engine is then asked for.
REACHED: dict[str, tuple[dict[str, Any], Seen]] = {
    "do_sample": ({"temperature": 0}, {"temperature": 0.0}),
    "temperature": ({"temperature": 0.5}, {"temperature": 0.5}),
    "top_p": ({"top_p": 0.5}, {"top_p": 0.5}),
    "top_k": ({"top_k": 7}, {"top_k": 7}),
    "min_p": ({"min_p": 0.25}, {"min_p": 0.25}),
    "repetition_penalty": ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
    "presence_penalty": ({"presence_penalty": 1.5}, {"presence_penalty": 1.5}),
    "frequency_penalty": ({"frequency_penalty": -1.5}, {"frequency_penalty": -1.5}),
    "rng_seed": ({"seed": 11}, {"seed": 11}),
    "ignore_eos": ({"ignore_eos": True}, {"ignore_eos": True}),
    "stop_token_ids": ({"stop_token_ids": [5, 6]}, {"stop_token_ids": [5, 6]}),
    "min_new_tokens": ({"min_tokens": 3}, {"min_tokens": 3}),
    "max_new_tokens": ({"max_tokens": 2}, {"max_output_tokens": 2}),
    "num_beams": (BEAMS, {"beams": {"count": 4}}),
    "num_return_sequences": ({**BEAMS, "n": 2}, {"beams": {"rank": 1}}),
    "num_beam_groups": (
        {**BEAMS, "num_beam_groups": 2, "diversity_penalty": 0.5},
        {"beams": {"groups": 2}},
    ),
    "diversity_penalty": (
        {**BEAMS, "num_beam_groups": 2, "diversity_penalty": 0.5},
        {"beams": {"diversity_penalty": 0.5}},
    ),
    "length_penalty": ({**BEAMS, "length_penalty": -2}, {"beams": {"length_penalty": -2.0}}),
    "stop_criteria": ({**BEAMS, "early_stopping": "never"}, {"beams": {"ends": "never"}}),
    "no_repeat_ngram_size": (
        {**BEAMS, "no_repeat_ngram_size": 2},
        {"beams": {"no_repeat_ngram_size": 2}},
    ),
}
# What a request asks for is seen in its answer.
ANSWERED: dict[str, tuple[dict[str, Any], str]] = {
    "stop_strings": ({"stop": "two"}, "one "),
    "include_stop_str_in_output": ({"stop": "two", "include_stop_str_in_output": True}, "one two"),
}
FORMS: dict[str, dict[str, Any]] = {
    "structured_output_config": {"response_format": {"type": "json_object"}}
}
REFUSED: dict[str, object] = {
    "adapters": ["a"],
    "assistant_confidence_threshold": 0.5,
    "branching_factor": 2,
    "max_length": 9,
    "max_ngram_size": 3,
    "num_assistant_tokens": 3,
    "pruning_ratio": 10,
    "relevance_weight": 0.5,
    "tree_depth": 3,
}
# The engine's own names of what is asked for by another one.
OTHER_NAMES: dict[str, tuple[object, str]] = {
    "do_sample": (False, "temperature"),
    "eos_token_id": (2, "stop_token_ids"),
    "max_new_tokens": (5, "max_tokens"),
    "min_new_tokens": (5, "min_tokens"),
    "num_return_sequences": (2, "n"),
    "rng_seed": (5, "seed"),
    "stop_criteria": ("NEVER", "early_stopping"),
    "stop_strings": (["x"], "stop"),
    "structured_output_config": ({"regex": "a"}, "response_format"),
    "apply_chat_template": (False, ""),
    "parsers": (["x"], ""),
    "return_omni_outputs": (True, ""),
}
# `echo` and `logprobs` have other names in chat, or no meaning; they have tests of their own.
OTHERWISE = {"echo", "logprobs"}
# Settled by the model and the server: its ends, its template, the readers of its answers.
NOT_THE_REQUESTS = {"apply_chat_template", "eos_token_id", "parsers", "return_omni_outputs"}


@pytest.fixture
def url(scripted_server: Callable[..., str]) -> str:
    return scripted_server(SCRIPT)


def ask(url: str, route: str, **fields: object) -> httpx.Response:
    body = {"model": "scripted", **ROUTES[route], **fields}
    return httpx.post(url + route, json=body, timeout=30)


def seen(url: str) -> dict[str, Any]:
    last: dict[str, Any] = httpx.get(f"{url}/debug/scripted/scripted").json()["requests"][-1]
    return last


def holds(whole: Seen, part: Seen) -> bool:
    for name, value in part.items():
        found: Any = whole[name]
        if name == "beams":
            found = {key: found[key] for key in value}
        if found != value:
            return False
    return True


def test_no_field_of_the_generation_config_is_forgotten() -> None:
    genai = pytest.importorskip("openvino_genai")
    config = genai.GenerationConfig()
    fields = {
        name
        for name in dir(config)
        if not name.startswith("_") and not callable(getattr(config, name))
    }
    told = {*REACHED, *ANSWERED, *FORMS, *REFUSED, *OTHERWISE, *NOT_THE_REQUESTS}
    assert fields == told


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", REACHED)
def test_a_field_reaches_the_engine(url: str, route: str, name: str) -> None:
    fields, expected = REACHED[name]
    response = ask(url, route, **fields)
    assert response.status_code == 200, response.text
    assert holds(seen(url)["sampling"], expected)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", ANSWERED)
def test_a_field_shapes_the_answer(url: str, route: str, name: str) -> None:
    fields, expected = ANSWERED[name]
    for stream in (False, True):
        response = ask(url, route, stream=stream, **fields)
        assert response.status_code == 200, response.text
        if stream:
            continue
        (choice,) = response.json()["choices"]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert (text, choice["finish_reason"]) == (expected, "stop")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", FORMS)
def test_a_form_reaches_the_engine(url: str, route: str, name: str) -> None:
    ask(url, route, **FORMS[name])
    assert seen(url)["constraint"] is not None


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", REFUSED)
def test_a_field_is_refused_by_its_name(url: str, route: str, name: str) -> None:
    response = ask(url, route, **{name: REFUSED[name]})
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (501, "not_supported_error")
    assert error["param"] == name
    assert name in error["message"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", OTHER_NAMES)
def test_the_engines_own_names_are_not_ignored(url: str, route: str, name: str) -> None:
    value, here = OTHER_NAMES[name]
    response = ask(url, route, **{name: value})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (501, name)
    assert f"'{here}'" in error["message"] or not here
    assert ask(url, route, **{name: None}).status_code == 200


def test_fields_of_the_other_route_are_not_ignored(url: str) -> None:
    for route, fields in (
        ("/v1/chat/completions", {"echo": True}),
        ("/v1/chat/completions", {"suffix": "x"}),
        ("/v1/completions", {"max_completion_tokens": 2}),
    ):
        (name,) = fields
        response = ask(url, route, **fields)
        assert (response.status_code, response.json()["error"]["param"]) == (501, name)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"temperature": 0.5, **BEAMS}, 400, "temperature"),
        ({"repetition_penalty": 1.1, **BEAMS}, 400, "repetition_penalty"),
        ({"presence_penalty": 1, **BEAMS}, 400, "presence_penalty"),
        ({"response_format": {"type": "json_object"}, **BEAMS}, 400, "num_beams"),
        ({"length_penalty": 2}, 400, "length_penalty"),
        ({"early_stopping": True}, 400, "early_stopping"),
        ({"no_repeat_ngram_size": 2}, 400, "no_repeat_ngram_size"),
        ({"diversity_penalty": 1, **BEAMS}, 400, "diversity_penalty"),
        ({"num_beam_groups": 2, **BEAMS}, 400, "diversity_penalty"),
        ({"num_beam_groups": 3, "diversity_penalty": 1, **BEAMS}, 400, "num_beam_groups"),
        ({"n": 5, **BEAMS}, 400, "n"),
        ({"num_beams": 17}, 422, "num_beams"),
        ({"num_beams": True}, 422, "num_beams"),
        ({"early_stopping": "late", **BEAMS}, 422, None),
        ({"min_tokens": 3, "max_tokens": 2}, 400, "min_tokens"),
        ({"min_tokens": 65}, 400, "min_tokens"),
        ({"min_tokens": -1}, 422, "min_tokens"),
        ({"stop_token_ids": [-1]}, 422, "stop_token_ids.0"),
        ({"stop_token_ids": [2**64]}, 422, "stop_token_ids.0"),
        ({"stop_token_ids": "5"}, 422, "stop_token_ids"),
        ({"include_stop_str_in_output": "yes"}, 422, "include_stop_str_in_output"),
        ({"ignore_eos": 1}, 422, "ignore_eos"),
    ],
)
def test_what_contradicts_itself_is_the_clients_mistake(
    url: str, route: str, fields: dict[str, Any], status: int, param: str | None
) -> None:
    response = ask(url, route, **fields)
    error = response.json()["error"]
    assert response.status_code == status, response.text
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param


@pytest.mark.parametrize("route", ROUTES)
def test_beams_have_no_penalties_and_the_answers_their_ranks(url: str, route: str) -> None:
    assert ask(url, route, **BEAMS, n=4).status_code == 200
    ranks = [
        request["sampling"]["beams"]["rank"]
        for request in httpx.get(f"{url}/debug/scripted/scripted").json()["requests"][-4:]
    ]
    assert sorted(ranks) == [0, 1, 2, 3]
    assert seen(url)["sampling"]["temperature"] == 0
