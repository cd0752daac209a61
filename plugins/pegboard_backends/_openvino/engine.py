"""GenAI's continuous batching behind the engine protocol: the same for every device.

Laws that GenAI breaks unless they are kept here: ids are never reused; a handle is read
only when it can be read (reading an empty one hangs the process) and kept until its end
(dropping it ends the request); every config names the tokens that end an answer; a
cancelled request is known as such only by us.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import msgspec
from pegboard_contracts.engine import EngineInfo, FinishCause, Submission, TokenEvent
from pegboard_contracts.errors import ApiError, invalid_request, not_supported

from pegboard_backends._openvino import library
from pegboard_backends._openvino.detokenizer import DetokenizerFactory
from pegboard_backends._openvino.prefix_mirror import BLOCK, PrefixMirror, blocks_of
from pegboard_backends._openvino.running import Running, Trials
from pegboard_backends._openvino.sampling_config import generation_config, known_ends
from pegboard_backends._openvino.token_table import build_token_table

logger = logging.getLogger(__name__)

_Logprobs = list[tuple[float, str, list[tuple[str, float]]]]

_NO_ROOM = "The KV cache is too small for this request; raise --kv-cache-gb."
_NOT_CACHED = (
    "The computed start of prompts is kept for later requests, and OpenVINO GenAI gives no "
    "numbers for what it does not compute again. The option 'prefix_caching': false of the "
    "model's catalogue entry changes that."
)
_STEP_FAILED = "The engine failed in a step of this request; the server's log has the cause."


class BatchingEngine:
    """Run requests together, one token each a step."""

    def __init__(
        self,
        pipeline: Any,  # noqa: ANN401 - GenAI's
        info: EngineInfo,
        *,
        end_tokens: Iterable[int],
        prefix_caching: bool,
    ) -> None:
        """Take an open pipeline and run one token through it.

        That warms it up and measures its cache. `info.context_tokens` becomes smaller when
        the cache cannot hold as much. `end_tokens` are added to those GenAI knows.
        """
        self._pipeline: Any = pipeline
        tokenizer = pipeline.get_tokenizer()
        self._ends = known_ends(pipeline.get_config(), tokenizer, end_tokens)
        table = build_token_table(tokenizer, also_special=self._ends)
        self._detokenizers = DetokenizerFactory(table)
        self._vocabulary = table.size
        self._not_finished = library.genai().GenerationFinishReason.NONE
        self._is_running = library.genai().GenerationStatus.RUNNING
        self._running: dict[int, Running] = {}
        self._trials = Trials()
        self._ended: list[TokenEvent] = []
        self._next_id = 0
        self._steps = 0
        self._recoveries = 0
        self._info = info
        blocks = self._count_blocks()
        self._mirror = PrefixMirror(blocks) if prefix_caching else None
        self._info = msgspec.structs.replace(
            info,
            context_tokens=min(info.context_tokens, max(1, blocks - 1) * BLOCK),
            prompt_logprobs_problem=_NOT_CACHED if prefix_caching else None,
            properties=info.properties | {"kv_cache_blocks": blocks, "kv_block_tokens": BLOCK},
        )

    def describe(self) -> EngineInfo:
        """Describe the open engine."""
        return self._info

    def submit(self, submission: Submission) -> None:
        """Take a request. Raises `ApiError` for one that cannot be run."""
        self._check(submission)
        room = self._info.context_tokens - len(submission.prompt_ids)
        limit = min(submission.max_output_tokens, room)
        answered = submission.prompt_ids[len(submission.prompt_ids) - submission.continued_tokens :]
        detokenizer = self._detokenizers.make(submission.kept_tokens, answered)
        running = Running(submission, detokenizer, limit)
        if self._mirror is not None:
            blocks = running.blocks + sum(other.blocks for other in self._running.values())
            running.cached_tokens = self._mirror.cached_tokens(submission.prompt_ids, blocks)
        if self._trials.open:
            self._trials.wait(running)
            return
        self._start(running)
        self._running[submission.request_id] = running

    def cancel(self, request_id: int) -> None:
        """Stop a request; the pipeline drops it in its next step."""
        if (waiting := self._trials.withdrawn(request_id)) is not None:
            self._end(waiting, "cancelled")
        running = self._running.pop(request_id, None)
        if running is None:
            return
        running.handle.cancel()
        if self._mirror is not None:
            self._mirror.take(running.blocks)
        self._end(running, "cancelled")

    def due(self) -> float | None:
        """Return 0 while there is anything to do, else `None`."""
        busy = (
            self._ended
            or self._running
            or self._trials.open
            or self._pipeline.has_non_finished_requests()
        )
        return 0 if busy else None

    def step(self) -> list[TokenEvent]:
        """Advance every request once. Raises what GenAI raises when it cannot be revived."""
        self._steps += 1
        if (suspect := self._trials.next(self._running)) is not None:
            self._restart(suspect)
        if self._pipeline.has_non_finished_requests():
            try:
                self._pipeline.step()
            except Exception:
                logger.exception("a step failed")
                self._revive()
        events, self._ended = self._ended, []
        for running in list(self._running.values()):
            if running.handle.can_read():
                events.append(self._read(running))
            elif running.handle.get_status() != self._is_running:
                events.append(self._give_up(running))
        return events

    def inspect(self) -> dict[str, Any]:
        """Return counters and GenAI's own metrics."""
        metrics = self._pipeline.get_metrics()
        return {
            "running": sorted(self._running),
            "steps": self._steps,
            "recoveries": self._recoveries,
            "engine_requests": metrics.requests,
            "engine_scheduled_requests": metrics.scheduled_requests,
            "cache_usage_percent": metrics.cache_usage,
            "max_cache_usage_percent": metrics.max_cache_usage,
            "cache_bytes": metrics.cache_size_in_bytes,
            "prefix_caching": self._mirror is not None,
        }

    def close(self) -> None:
        """Cancel everything and let the pipeline go."""
        for running in self._running.values():
            running.handle.cancel()
        self._running.clear()
        del self._pipeline

    def _check(self, submission: Submission) -> None:
        if submission.constraint is not None and submission.sampling.ignore_eos:
            # Behind the end of its grammar an answer would go on without one.
            message = "'ignore_eos' and a grammar exclude each other; leave one out."
            raise invalid_request(message, param="ignore_eos")
        if submission.constraint is not None and submission.sampling.beams is not None:
            message = "Beams keep to no grammar; leave one of them out."
            raise invalid_request(message, param="num_beams")
        if submission.top_logprobs:
            message = "This engine gives the chosen token's log probability and no alternatives."
            raise not_supported("top_logprobs", message)
        ids, context = submission.prompt_ids, self._info.context_tokens
        if not ids:
            raise invalid_request("The prompt is empty.", code="empty_prompt")
        if len(ids) >= context:
            message = f"The prompt has {len(ids)} tokens; the context of {context} must also hold "
            raise invalid_request(message + "the answer.", code="context_length_exceeded")
        if min(ids) < 0 or max(ids) >= self._vocabulary:
            message = f"Token ids of this model go from 0 to {self._vocabulary - 1}."
            raise invalid_request(message, param="prompt", code="invalid_token_id")
        if submission.max_output_tokens < (0 if submission.prompt_logprobs else 1):
            raise invalid_request("At least one token must be generated.", param="max_tokens")

    def _start(self, running: Running) -> None:
        """Give a request to the pipeline, going on after what it has generated."""
        submission = running.submission
        limit = running.limit - len(running.generated)
        try:
            constraint = running.open_constraint()
            if echo := running.echoes > 0:
                running.prompt_logprobs.clear()
            config = generation_config(submission, constraint, self._ends, limit, echo=echo)
            prompt = library.id_tensor(submission.prompt_ids + running.generated)
            running.handle = self._pipeline.add_request(self._next_id, prompt, config)
        except (RuntimeError, TypeError, ValueError) as error:
            logger.exception("GenAI refuses a request")
            message = "The engine refuses these sampling parameters."
            raise invalid_request(message, code="invalid_sampling") from error
        finally:
            self._next_id += 1

    def _read(self, running: Running) -> TokenEvent:
        outputs = running.handle.read()
        if not outputs:  # the cache is exhausted
            return self._give_up(running)
        output = running.chosen(outputs)
        token_ids, chances = output.generated_ids, output.generated_log_probs
        echoed: _Logprobs | None = None
        if (echoes := running.echoes) > 0:
            running.prompt_logprobs += chances[:echoes]
            token_ids, chances = token_ids[echoes:], chances[echoes:]
            if running.echoes == 0:
                echoed = self._logprobs(running.submission.prompt_ids, running.prompt_logprobs)
        if not running.generated and self._mirror is not None:
            self._mirror.remember(running.submission.prompt_ids)
        running.generated += token_ids
        request_id, text = running.submission.request_id, running.detokenizer.feed(token_ids)
        running.text.append(text)
        logprobs = self._logprobs(token_ids, chances) if running.submission.logprobs else None
        reason = output.finish_reason
        if reason == self._not_finished:
            return TokenEvent(
                request_id, text, token_ids, logprobs=logprobs, prompt_logprobs=echoed
            )
        del self._running[request_id]
        if self._mirror is not None and running.submission.sampling.beams is not None:
            self._mirror.take(running.blocks)
        elif self._mirror is not None:
            # The last token was never fed, so its keys and values do not exist.
            self._mirror.remember(running.submission.prompt_ids + running.generated[:-1])
        finish: FinishCause = "length" if reason.name == "LENGTH" else "stop"
        cached = running.cached_tokens
        return TokenEvent(
            request_id,
            text,
            token_ids,
            finish,
            cached,
            logprobs=logprobs,
            prompt_logprobs=echoed,
        )

    def _logprobs(self, token_ids: list[int], chances: list[float]) -> _Logprobs:
        text_of = self._detokenizers.token_text
        pairs = zip(token_ids, chances, strict=True)
        return [(float(chance), text_of(token_id), []) for token_id, chance in pairs]

    def _give_up(self, running: Running) -> TokenEvent:
        """End a request that the pipeline ended without a word: the cache is exhausted."""
        del self._running[running.submission.request_id]
        if self._mirror is not None:
            self._mirror.take(running.blocks)
        request_id, cached = running.submission.request_id, running.cached_tokens
        if running.generated:
            return TokenEvent(request_id, finish="length", cached_tokens=cached)
        return TokenEvent(request_id, finish="failed", error=_NO_ROOM)

    def _end(self, running: Running, cause: FinishCause, error: str | None = None) -> None:
        self._ended.append(
            TokenEvent(
                running.submission.request_id,
                finish=cause,
                cached_tokens=running.cached_tokens,
                error=error,
            )
        )

    def _revive(self) -> None:
        """Make the pipeline usable after a failed step.

        It is so only after all handles are cancelled and one more step. Those that have
        tokens already are innocent and go on at once; the others, when they are several,
        are tried one after the other.
        """
        self._recoveries += 1
        everyone = list(self._running.values())
        for running in everyone:
            running.handle.cancel()
        if self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        self._running.clear()
        if self._mirror is not None:
            self._mirror.take(sum(running.blocks for running in everyone))
        suspects = self._trials.suspects(everyone)
        for running in everyone:
            if running not in suspects:
                self._restart(running)
            elif len(suspects) == 1:
                self._end(running, "failed", _STEP_FAILED)
            else:
                self._trials.wait(running)

    def _restart(self, running: Running) -> None:
        try:
            self._start(running)
        except ApiError as error:
            self._end(running, "failed", error.message)
        else:
            self._running[running.submission.request_id] = running

    def _count_blocks(self) -> int:
        """Run one token; it takes one block of the cache, and usage is told in percent."""
        config = library.genai().GenerationConfig(max_new_tokens=2, ignore_eos=True)
        handle = self._pipeline.add_request(self._next_id, library.id_tensor([0]), config)
        self._next_id += 1
        self._pipeline.step()
        usage = self._pipeline.get_metrics().cache_usage
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        del handle
        return round(100 / usage) if usage else blocks_of(self._info.context_tokens)
