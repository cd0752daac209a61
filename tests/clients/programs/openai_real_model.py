"""The official SDK against a real model: one plain question through each of the two APIs."""

from __future__ import annotations

import os
from typing import Any

from openai import OpenAI

client: Any = OpenAI(
    base_url=os.environ["SERVER_URL"] + "/v1",
    api_key="dummy",
    max_retries=0,
    _strict_response_validation=True,
)
MODEL = "smollm2"
QUESTION = "What is the capital of France? Answer in one word."


def check_a_response() -> None:
    made = client.responses.create(model=MODEL, input=QUESTION, temperature=0, max_output_tokens=40)
    assert "Paris" in made.output_text
    with client.responses.stream(
        model=MODEL,
        input=[
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": made.output_text},
            {"role": "user", "content": "Say hello."},
        ],
        temperature=0,
        max_output_tokens=40,
    ) as stream:
        text = "".join(
            event.delta for event in stream if event.type == "response.output_text.delta"
        )
    assert text


def check_a_chat() -> None:
    made = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": QUESTION}],
        temperature=0,
        max_tokens=40,
    )
    assert "Paris" in (made.choices[0].message.content or "")
