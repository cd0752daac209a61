"""Checks of what clients ask for: chat, streams, tools, responses, embeddings, a lifecycle."""

from __future__ import annotations

import base64
import itertools
import json
import struct

from tools.contract.api import Json, Server, SkipError, WarnError, expect, keys_of
from tools.contract.core import entry_of, load_model

_CHAT = "/v1/chat/completions"
_RESPONSES = "/v1/responses"
_WORDS = "Answer with one short sentence about the sea."
_MOST_EVENTS = 10_000
_TOOL: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def chat(server: Server) -> str:
    """Check a plain answer."""
    answer = server.post(_CHAT, **_asked(server, seed=7, stop=["\n\n\n"]))
    expect(answer.get("object") == "chat.completion", "the answer is no chat.completion")
    choice = answer["choices"][0]
    expect(choice["message"]["role"] == "assistant", "the answer is not the assistant's")
    expect(choice["finish_reason"] in {"stop", "length"}, "the finish_reason is unknown")
    usage = answer["usage"]
    whole = usage["prompt_tokens"] + usage["completion_tokens"]
    expect(usage["total_tokens"] == whole > 0, "the usage does not add up")
    return f"{usage['completion_tokens']} tokens"


def chat_stream(server: Server) -> str:
    """Check a stream to its end, with exactly one usage."""
    body = _asked(server, stream_options={"include_usage": True})
    with server.stream(_CHAT, **body) as events:
        data = [text for _, text in itertools.islice(events, _MOST_EVENTS)]
    expect(data[-1:] == ["[DONE]"], "the stream does not end with [DONE]")
    chunks = [json.loads(text) for text in data[:-1]]
    expect(not [c for c in chunks if "error" in c], "the stream tells of an error")
    expect(
        all(c["object"] == "chat.completion.chunk" for c in chunks), "a chunk has another object"
    )
    reasons = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]]
    expect(reasons[-1:] != [None] and bool(reasons), "the stream has no finish_reason")
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    expect(len(usages) == 1, f"the stream has {len(usages)} usages, not one")
    return f"{len(chunks)} chunks"


def recovery(server: Server) -> str:
    """Leave a stream after its first event; the next request must be answered."""
    with server.stream(_CHAT, **_asked(server, max_tokens=512)) as events:
        expect(next(iter(events), None) is not None, "the stream has no event")
    server.post(_CHAT, **_asked(server))
    return "the next request is answered"


def tools(server: Server) -> str:
    """Check that tools and JSON objects are taken, and warn when neither shows."""
    words = "What is the weather in Berlin? Use the tool."
    body = _asked(server, words, tools=[_TOOL], tool_choice="auto", max_tokens=128)
    message = server.post(_CHAT, **body)["choices"][0]["message"]
    called = bool(message.get("tool_calls"))
    for call in message.get("tool_calls") or ():
        arguments = json.loads(call["function"]["arguments"])
        expect(isinstance(arguments, dict), "the arguments of a call are no object")
    words = "Give a JSON object with the key ok."
    body = _asked(server, words, response_format={"type": "json_object"}, max_tokens=128)
    answer = server.ask("POST", _CHAT, body)
    expect(answer.status in {200, 400, 501}, f"a JSON object: {answer.status}")
    said = answer.json()["choices"][0]["message"]["content"] if answer.status == 200 else ""
    if called and _is_object(said):
        return "a call and a JSON object"
    missing = [n for n, there in (("call", called), ("object", _is_object(said))) if not there]
    raise WarnError(f"accepted, but the model gave no {' and no '.join(missing)}")


def metrics(server: Server) -> str:
    """Check that answers are counted."""
    model = str(entry_of(server, server.model)["id"])
    before = server.get("/v1/system/status")["metrics"]["per_model"]
    server.post(_CHAT, **_asked(server))
    after = server.get("/v1/system/status")["metrics"]["per_model"]
    expect(model in after, "the model has no metrics")
    counted = after[model]["requests"] - before.get(model, {"requests": 0})["requests"]
    expect(counted > 0, "an answer is not counted")
    return f"{after[model]['requests']} requests"


def responses(server: Server) -> str:
    """Check a response."""
    shown = server.post(_RESPONSES, model=server.model, input=_WORDS, max_output_tokens=48)
    expect(shown.get("object") == "response", "the answer is no response")
    expect(shown["status"] in {"completed", "incomplete"}, "the response is not at an end")
    keys_of(shown, {"id", "created_at", "model", "output", "usage", "error"}, "the response")
    usage = shown["usage"]
    whole = usage["input_tokens"] + usage["output_tokens"]
    expect(usage["total_tokens"] == whole > 0, "the usage does not add up")
    hosted = {"model": server.model, "input": "x", "tools": [{"type": "computer_use"}]}
    server.refused("POST", _RESPONSES, {400, 422}, hosted)
    return str(shown["status"])


def responses_stream(server: Server) -> str:
    """Check the ladder of events."""
    body = {"model": server.model, "input": _WORDS, "max_output_tokens": 48}
    with server.stream(_RESPONSES, **body) as events:
        seen = list(itertools.islice(events, _MOST_EVENTS))
    expect(bool(seen) and seen[-1][1] == "[DONE]", "the stream does not end with [DONE]")
    data = [json.loads(text) for _, text in seen[:-1]]
    names = [event["type"] for event in data]
    expect(names == [name for name, _ in seen[:-1]], "an event's name is not its type")
    expect(names[0] == "response.created", "the first event is not response.created")
    expect("response.output_text.delta" in names, "the stream has no text")
    ended = names[-1] in {"response.completed", "response.incomplete"}
    expect(ended, "the last event is neither response.completed nor response.incomplete")
    numbers = [event["sequence_number"] for event in data]
    follow = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    expect(follow, "the sequence numbers have gaps")
    return f"{len(data)} events"


def embeddings(server: Server) -> str:
    """Check two vectors, in numbers and in base64, and the wrong kinds of model."""
    model = server.options.embedding_model
    if model is None:
        raise SkipError("no --embedding-model")
    load_model(server, model)
    words = ["the sea", "a mountain"]
    answer = server.post("/v1/embeddings", model=model, input=words)
    vectors = [row["embedding"] for row in sorted(answer["data"], key=lambda row: row["index"])]
    expect(len(vectors) == 2 and all(vectors), "two texts do not give two vectors")
    packed = server.post("/v1/embeddings", model=model, input=words, encoding_format="base64")
    raw = base64.b64decode(packed["data"][0]["embedding"])
    found = struct.unpack(f"<{len(raw) // 4}f", raw)
    near = len(found) == len(vectors[0]) and all(
        abs(a - b) < 1e-5 for a, b in zip(found, vectors[0], strict=True)
    )
    expect(near, "base64 holds other numbers")
    server.refused("POST", "/v1/embeddings", {400, 422}, {"model": model, "input": ""})
    server.refused("POST", "/v1/embeddings", {400}, {"model": server.model, "input": "x"})
    server.refused("POST", _CHAT, {400}, _asked(server) | {"model": model})
    return f"{len(vectors[0])} numbers"


def lifecycle(server: Server) -> str:
    """Unload the model, see that it does not answer, and load it again."""
    if not server.options.lifecycle:
        raise SkipError("no --exercise-lifecycle")
    device = entry_of(server, server.model)["device"]
    server.post("/v1/models/unload", model=server.model)
    server.refused("POST", _CHAT, {409, 503}, _asked(server))
    load_model(server, server.model, str(device) if device else None)
    server.post(_CHAT, **_asked(server))
    return "unloaded and loaded again"


def _asked(server: Server, words: str = _WORDS, **fields: object) -> Json:
    messages = [{"role": "user", "content": words}]
    return {
        "model": server.model,
        "messages": messages,
        "temperature": 0,
        "max_tokens": 48,
    } | fields


def _is_object(text: str | None) -> bool:
    try:
        return isinstance(json.loads(text or ""), dict)
    except ValueError:
        return False
