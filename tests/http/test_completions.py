"""Completions and tokens over real servers: raw prompts in every form, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

SCRIPT: dict[str, Any] = {
    "context_tokens": 64,
    "rules": [
        {"match": "count", "pieces": ["1 ", "2 ", "3"]},
        {
            "match": "chance",
            "pieces": ["a", "b"],
            "logprobs": [[-0.5, [["a", -0.5], ["x", -1.5]]], [-1.0, [["b", -1.0]]]],
        },
        {"match": "boom", "pieces": ["a", "b"], "raise_after": 1},
    ],
    "default": {"echo": True},
}


REFUSED: list[tuple[dict[str, Any], int, str | None]] = [
    ({"prompt": "x", "suffix": "y"}, 501, "suffix"),
    ({"prompt": "x", "suffix": "y", "echo": True, "logprobs": 1}, 400, "suffix"),
    ({"prompt": "x", "max_tokens": 0}, 422, None),
    ({"prompt": "x", "max_tokens": 0, "echo": True}, 422, None),
    ({"prompt": "x", "logit_bias": {"1": 1}}, 501, "logit_bias"),
    ({"prompt": "x", "best_of": 1, "n": 2}, 400, "best_of"),
    ({"prompt": "x", "best_of": 2, "stream": True}, 400, "best_of"),
    ({"prompt": ["x"] * 33, "n": 2}, 400, "prompt"),
    ({"prompt": ""}, 400, "prompt"),
    ({"prompt": "w " * 64}, 400, "prompt"),
    ({"prompt": []}, 422, "prompt"),
    ({"prompt": ["a", 1]}, 422, None),
    ({"prompt": [[]]}, 422, None),
    ({"prompt": [-1]}, 422, None),
    ({"prompt": "x", "n": 0}, 422, "n"),
    ({"prompt": "x", "n": 200}, 422, "n"),
    ({"prompt": "x", "logprobs": 21}, 422, "logprobs"),
    ({}, 422, "prompt"),
]


@pytest.fixture
def url(scripted_server: Callable[..., str]) -> str:
    return scripted_server(SCRIPT)


@pytest.fixture
def sdk(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{url}/v1", api_key="dummy", max_retries=0) as client:
        yield client


def post(url: str, path: str, **body: object) -> httpx.Response:
    return httpx.post(url + path, json={"model": "scripted", **body}, timeout=30)


def error(response: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = response.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


def test_a_raw_prompt_is_answered_without_a_template(sdk: OpenAI, url: str) -> None:
    answer = sdk.completions.create(model="scripted", prompt="please count", max_tokens=2)
    assert (answer.object, answer.id[:5], answer.model) == ("text_completion", "cmpl-", "scripted")
    assert [(c.index, c.text, c.finish_reason) for c in answer.choices] == [(0, "1 2 ", "length")]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2, 2)
    seen = httpx.get(f"{url}/debug/scripted/scripted").json()["requests"][-1]
    assert seen["prompt"] == "please count"


def test_every_form_of_a_prompt(sdk: OpenAI, url: str) -> None:
    ids = post(url, "/tokenize", prompt="please count").json()["tokens"]
    assert len(ids) == 2
    prompts: list[tuple[Any, list[str]]] = [
        (["one", "please count"], ["one", "1 2 3"]),
        (ids, ["1 2 3"]),
        ([ids, ids], ["1 2 3", "1 2 3"]),
    ]
    for prompt, expected in prompts:
        answer = sdk.completions.create(model="scripted", prompt=prompt)
        assert [choice.text for choice in answer.choices] == expected
        assert [choice.index for choice in answer.choices] == list(range(len(expected)))
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == (3 if prompt[0] == "one" else 2 * len(expected))


def test_n_answers_of_each_prompt_stand_together(sdk: OpenAI) -> None:
    answer = sdk.completions.create(model="scripted", prompt=["a", "count"], n=2)
    assert [choice.text for choice in answer.choices] == ["a", "a", "1 2 3", "1 2 3"]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 2


def test_echo_puts_the_prompt_in_front(sdk: OpenAI, url: str) -> None:
    answer = sdk.completions.create(model="scripted", prompt="  count: ", echo=True)
    assert answer.choices[0].text == "  count: 1 2 3"
    ids = post(url, "/tokenize", prompt="count").json()["tokens"]
    streamed = sdk.completions.create(model="scripted", prompt=ids, echo=True, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == "count 1 2 3"


def test_log_probabilities_have_the_old_shape(sdk: OpenAI) -> None:
    answer = sdk.completions.create(model="scripted", prompt="chance", logprobs=2)
    found = answer.choices[0].logprobs
    assert found is not None
    assert found.tokens == ["a", "b"]
    assert found.token_logprobs == [-0.5, -1.0]
    assert found.top_logprobs == [{"a": -0.5, "x": -1.5}, {"b": -1.0}]
    assert found.text_offset == [0, 1]
    streamed = sdk.completions.create(model="scripted", prompt="chance", logprobs=0, stream=True)
    parts = [chunk.choices[0].logprobs for chunk in streamed]
    assert [at for part in parts if part is not None for at in part.text_offset or ()] == [0, 1]


def test_a_stream_says_what_the_whole_answer_says(url: str) -> None:
    body = {"prompt": ["count", "b"], "n": 2, "stream_options": {"include_usage": True}}
    whole = post(url, "/v1/completions", **body).json()
    raw = post(url, "/v1/completions", **body, stream=True).text
    frames = [line.removeprefix("data: ") for line in raw.split("\n\n") if line]
    assert frames[-1] == "[DONE]"
    chunks = [json.loads(frame) for frame in frames[:-1]]
    texts, reasons = [""] * 4, [""] * 4
    for chunk in chunks[:-1]:
        assert (chunk["object"], chunk["usage"]) == ("text_completion", None)
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["text"]
        reasons[choice["index"]] += choice["finish_reason"] or ""
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert reasons == [choice["finish_reason"] for choice in whole["choices"]]
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], whole["usage"])


def test_best_of_generates_more_than_it_returns(sdk: OpenAI) -> None:
    answer = sdk.completions.create(model="scripted", prompt="chance", best_of=3, n=1)
    assert [choice.text for choice in answer.choices] == ["ab"]
    assert answer.choices[0].logprobs is None
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6


def test_a_fault_ends_a_stream_with_an_error(sdk: OpenAI) -> None:
    with pytest.raises(openai.APIError, match="engine failed"):
        list(sdk.completions.create(model="scripted", prompt="boom", stream=True))


@pytest.mark.parametrize(("fields", "status", "param"), REFUSED)
def test_what_is_refused_names_its_field(
    url: str, fields: dict[str, object], status: int, param: str | None
) -> None:
    response = post(url, "/v1/completions", **fields)
    assert response.status_code == status, response.text
    if param is not None:
        assert error(response)["param"] == param


def test_c120_several_answers_and_sampling_that_cannot_be_had(url: str) -> None:
    for fields in (
        {"n": 4, "stream": True},
        {"n": 3, "temperature": 0},
        {"seed": 7, "n": 2},
        {"num_beams": 3, "stream": True},
    ):
        assert post(url, "/v1/completions", prompt="x", **fields).status_code == 200
    refused: list[tuple[str, object, int]] = [
        ("frequency_penalty", 3, 422),
        ("n", 0, 422),
        ("n", 200, 422),
        ("num_beams", 0, 422),
        ("no_repeat_ngram_size", 2, 400),
        ("use_beam_search", True, 501),
        ("logit_bias", {"5": 1}, 501),
    ]
    for name, value, status in refused:
        response = post(url, "/v1/completions", prompt="x", **{name: value})
        assert (response.status_code, error(response)["param"]) == (status, name)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": "one two"}),
        ("/detokenize", {"tokens": []}),
        ("/apply-template", {"messages": [{"role": "user", "content": "x"}]}),
    ],
)
def test_tokens_are_shown_under_v1_too(url: str, path: str, body: dict[str, object]) -> None:
    plain, prefixed = post(url, path, **body), post(url, f"/v1{path}", **body)
    assert (plain.status_code, prefixed.status_code) == (200, 200)
    assert plain.json() == prefixed.json()


def test_tokens_and_their_text(url: str) -> None:
    told = post(url, "/tokenize", content="one two", with_pieces=True).json()
    assert (told["model"], told["count"], told["max_model_len"]) == ("scripted", 2, 64)
    assert [token["piece"] for token in told["tokens"]] == ["one ", "two "]
    ids = [token["id"] for token in told["tokens"]]
    back = post(url, "/detokenize", tokens=ids).json()
    assert back == {"model": "scripted", "prompt": "one two ", "content": "one two "}


def test_a_conversation_is_rendered_as_chat_renders_it(url: str) -> None:
    chat = {"messages": [{"role": "user", "content": "hi there"}]}
    assert post(url, "/v1/chat/completions", **chat).status_code == 200
    seen = httpx.get(f"{url}/debug/scripted/scripted").json()["requests"][-1]["prompt"]
    assert post(url, "/apply-template", **chat).json() == {"model": "scripted", "prompt": seen}
    assert post(url, "/tokenize", **chat).json()["count"] == len(seen.split())


@pytest.mark.parametrize("body", [{}, {"prompt": "a", "content": "b"}, {"prompt": 1}])
def test_tokenize_wants_one_text(url: str, body: dict[str, object]) -> None:
    response = post(url, "/tokenize", **body)
    assert response.status_code == 422
    assert error(response)["param"] == "prompt"


def test_tokenize_of_an_unknown_model(url: str) -> None:
    response = httpx.post(f"{url}/tokenize", json={"model": "none", "prompt": "a"})
    assert response.status_code == 404
    assert error(response)["code"] == "model_not_found"


def test_an_echoed_prompt_has_its_log_probabilities(sdk: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "scripted", "prompt": "a chance", "echo": True, "logprobs": 1}
    complete: Any = sdk.completions.create
    choice = complete(**asked).choices[0]
    assert choice.text == "a chanceab"
    found = choice.logprobs
    assert found is not None
    assert found.tokens == ["a", " chance", "a", "b"]
    assert found.token_logprobs == [None, 0.0, -0.5, -1.0]
    assert found.top_logprobs == [None, {" chance": 0.0}, {"a": -0.5}, {"b": -1.0}]
    assert found.text_offset == [0, 1, 8, 9]
    parts: list[Any] = [
        (chunk.choices[0].text, chunk.choices[0].logprobs)
        for chunk in complete(stream=True, **asked)
    ]
    assert "".join(text for text, _ in parts) == choice.text
    told = [said for _, said in parts if said is not None]
    assert [token for said in told for token in said.tokens] == found.tokens
    assert [chance for said in told for chance in said.token_logprobs] == found.token_logprobs
    assert [offset for said in told for offset in said.text_offset] == found.text_offset


def test_a_prompt_can_be_scored_without_an_answer(sdk: OpenAI) -> None:
    prompts = ["one two three", "count"]
    answer = sdk.completions.create(
        model="scripted", prompt=prompts, echo=True, logprobs=0, max_tokens=0
    )
    assert [choice.text for choice in answer.choices] == prompts
    assert [choice.finish_reason for choice in answer.choices] == ["length", "length"]
    first = answer.choices[0].logprobs
    assert first is not None
    assert first.token_logprobs == [None, 0.0, 0.0]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 0)


FILLING: dict[str, Any] = {
    "fill_in_the_middle": True,
    "prompt_start": "<s>",
    "rules": [
        {"match": "stop", "pieces": ["x ", "<|fim_", "pad|>", "never"]},
        {"match": ".", "pieces": ["the ", "middle"]},
    ],
}


def test_a_suffix_is_filled_up_to(
    scripted_server: Callable[..., str],
) -> None:
    url = scripted_server(FILLING)

    def asked(**body: object) -> tuple[str, str]:
        answer = post(url, "/v1/completions", **body).json()["choices"][0]["text"]
        return answer, httpx.get(f"{url}/debug/scripted/scripted").json()["requests"][-1]["prompt"]

    fim = "<s> <|fim_prefix|> a b <|fim_suffix|> c d <|fim_middle|> "
    assert asked(prompt="a b", suffix="c d") == ("the middle", fim)
    assert asked(prompt="a b", suffix="c d", echo=True)[0] == "a bthe middle"
    assert asked(prompt="a stop", suffix="z")[0] == "x "
    ids = post(url, "/tokenize", prompt="a b", add_special_tokens=False).json()["tokens"]
    bare = fim.removeprefix("<s> ")
    assert asked(prompt=ids, suffix="c d") == ("the middle", bare)
    assert asked(prompt="a b", suffix="c d", add_special_tokens=False)[1] == bare
    assert asked(prompt="a b", suffix="")[1] == "a b"


def test_raw_texts_begin_as_the_tokenizer_begins_every_text(
    scripted_server: Callable[..., str],
) -> None:
    url = scripted_server(FILLING)

    def counted(**body: object) -> int:
        answer = post(url, "/v1/completions", **body).json()
        count: int = answer["usage"]["prompt_tokens"]
        return count

    start = post(url, "/tokenize", prompt="<s>", add_special=False).json()["tokens"]
    tokens = post(url, "/tokenize", prompt="a b").json()["tokens"]
    assert tokens[:1] == start
    assert post(url, "/tokenize", content="a b", add_special=False).json()["tokens"] == tokens[1:]
    assert post(url, "/tokenize", prompt="<s> a b").json()["tokens"] == tokens
    chat = post(url, "/tokenize", messages=[{"role": "user", "content": "a"}]).json()
    assert start[0] not in chat["tokens"]
    assert counted(prompt="a b") == 3
    assert counted(prompt="<s> a b") == 3
    assert counted(prompt=tokens) == 3
    assert counted(prompt=tokens[1:]) == 2
    assert counted(prompt="a b", add_special_tokens=False) == 2
