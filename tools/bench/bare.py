"""The bare engine in a process of its own: what a user of GenAI alone would write.

Started with the engine's settings as a JSON argument; reads a `Work` a line, answers an
`Outcome` a line. Prompts go through the tokenizer's own chat template, and each answer is
turned into text once.
"""

from __future__ import annotations

import collections
import sys
import time
from typing import Any

import msgspec
import openvino_genai as genai

from tools.bench.work import SYSTEM, Outcome, Work


class BareEngine:
    """Drive a continuous batching pipeline with a plain loop."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Load the model of `folder` with the scheduler settings and properties given."""
        scheduler = genai.SchedulerConfig()
        for name, value in options["scheduler"].items():
            setattr(scheduler, name, value)
        self._pipe: Any = genai.ContinuousBatchingPipeline(
            options["folder"], scheduler, options["device"], options["properties"]
        )
        self._tokenizer: Any = self._pipe.get_tokenizer()
        self._next_id = 0

    def _add(self, prompt: str, tokens: int) -> tuple[Any, int]:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]
        text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        ids = self._tokenizer.encode(text, add_special_tokens=False).input_ids
        config: Any = self._pipe.get_config()
        config.max_new_tokens = tokens
        config.ignore_eos = True
        config.do_sample = False
        self._next_id += 1
        return self._pipe.add_request(self._next_id, ids, config), int(ids.shape[1])

    def run(self, work: Work) -> Outcome:
        """Answer all prompts, `concurrency` at a time."""
        waiting = collections.deque(work.prompts)
        running: list[_Answer] = []
        first: list[float] = []
        prompt_tokens = output_tokens = 0
        began = time.perf_counter()
        while waiting or running:
            while waiting and len(running) < work.concurrency:
                asked = time.perf_counter()
                handle, length = self._add(waiting.popleft(), work.tokens)
                prompt_tokens += length
                running.append(_Answer(handle, asked))
            self._pipe.step()
            for answer in list(running):
                if answer.read(work.tokens):
                    self._tokenizer.decode(answer.token_ids)
                    first.append(answer.first)
                    output_tokens += len(answer.token_ids)
                    running.remove(answer)
        return Outcome(
            seconds=time.perf_counter() - began,
            first=first,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )


class _Answer:
    def __init__(self, handle: Any, asked: float) -> None:  # noqa: ANN401 - GenAI has no types
        self.handle = handle
        self.asked = asked
        self.first = 0.0
        self.token_ids: list[int] = []

    def read(self, tokens: int) -> bool:
        if self.handle.can_read():
            if not self.token_ids:
                self.first = time.perf_counter() - self.asked
            for output in self.handle.read().values():
                self.token_ids += output.generated_ids
        return len(self.token_ids) >= tokens


def main() -> None:
    """Load, say so, and answer until the input ends."""
    engine = BareEngine(msgspec.json.decode(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin.buffer:
        outcome = engine.run(msgspec.json.decode(line, type=Work))
        print(msgspec.json.encode(outcome).decode(), flush=True)


if __name__ == "__main__":
    main()
