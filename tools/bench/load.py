"""The load generator in a process of its own: streaming chat over plain sockets.

Started with the server's URL and a model; reads a `Work` a line, answers an `Outcome` a
line. It parses nothing while a stream runs, so that little of its cost disturbs the server.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import itertools
import re
import sys
import time
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from tools.bench.work import SYSTEM, Outcome, Work

_FIRST_TEXT = re.compile(rb'"content":\s*"[^"]')
_PROMPT_TOKENS = re.compile(rb'"prompt_tokens":\s*(\d+)')
_OUTPUT_TOKENS = re.compile(rb'"completion_tokens":\s*(\d+)')
_DONE = b"data: [DONE]"


class Stream(asyncio.Protocol):
    """Send one request and keep what comes back until the connection ends."""

    def __init__(self, request: bytes) -> None:
        """Prepare; the request leaves when the connection is there."""
        self._request = request
        self._received: list[bytes] = []
        self.first: float | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request in one piece."""
        # uvloop's transports inherit from none of asyncio's classes.
        cast("asyncio.WriteTransport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Keep the bytes; note when the first text is among them."""
        self._received.append(data)
        if self.first is None and _FIRST_TEXT.search(data):
            self.first = time.perf_counter()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the stream, well or not."""
        if exc is not None:
            self.ended.set_exception(exc)
        else:
            self.ended.set_result(None)

    def tokens(self) -> tuple[int, int]:
        """Return the server's count of prompt and output tokens.

        Raises `RuntimeError` when the answer is not a whole stream.
        """
        body = b"".join(self._received)
        prompt, output = _PROMPT_TOKENS.search(body), _OUTPUT_TOKENS.search(body)
        if _DONE not in body or prompt is None or output is None:
            raise RuntimeError(f"the server answered: {body[-1000:].decode(errors='replace')}")
        return int(prompt[1]), int(output[1])


def _same(stream: Stream) -> Stream:
    return stream


class LoadGenerator:
    """Keep a number of streams running until all prompts are answered."""

    def __init__(self, url: str, model: str) -> None:
        """Aim at the chat route of `url`."""
        address = urlsplit(url)
        self._address = address.hostname or "127.0.0.1", address.port or 80
        self._model = model

    def _request(self, prompt: str, tokens: int, schema: dict[str, Any] | None) -> bytes:
        form: dict[str, Any] = {"ignore_eos": True}
        if schema is not None:
            inner = {"name": "bench", "strict": True, "schema": schema}
            form = {"response_format": {"type": "json_schema", "json_schema": inner}}
        body = msgspec.json.encode(
            {
                "model": self._model,
                "messages": [
                    {"role": "system", "content": SYSTEM},
                    {"role": "user", "content": prompt},
                ],
                "stream": True,
                "stream_options": {"include_usage": True},
                "temperature": 0,
                "max_tokens": tokens,
                **form,
            }
        )
        host, port = self._address
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + body

    async def run(self, work: Work) -> Outcome:
        """Answer all prompts, `concurrency` at a time."""
        schemas: list[dict[str, Any] | None] = [*work.schemas] or [None]
        waiting = collections.deque(zip(work.prompts, itertools.cycle(schemas), strict=False))
        first: list[float] = []
        prompt_tokens = output_tokens = 0

        async def worker() -> None:
            nonlocal prompt_tokens, output_tokens
            loop = asyncio.get_running_loop()
            while waiting:
                prompt_text, schema = waiting.popleft()
                request = self._request(prompt_text, work.tokens, schema)
                asked = time.perf_counter()
                stream = Stream(request)
                await loop.create_connection(functools.partial(_same, stream), *self._address)
                await stream.ended
                prompt, output = stream.tokens()
                prompt_tokens += prompt
                output_tokens += output
                first.append((stream.first or time.perf_counter()) - asked)

        began = time.perf_counter()
        async with asyncio.TaskGroup() as workers:
            for _ in range(work.concurrency):
                workers.create_task(worker())
        return Outcome(
            seconds=time.perf_counter() - began,
            first=first,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )


def main() -> None:
    """Answer until the input ends."""
    import uvloop  # noqa: PLC0415 - the base install has it, but not on Windows

    generator = LoadGenerator(sys.argv[1], sys.argv[2])
    print("ready", flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin.buffer:
            outcome = runner.run(generator.run(msgspec.json.decode(line, type=Work)))
            print(msgspec.json.encode(outcome).decode(), flush=True)


if __name__ == "__main__":
    main()
