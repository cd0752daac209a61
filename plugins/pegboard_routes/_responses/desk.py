"""Serve responses: begin them, keep what came of them, find, cancel and delete them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

import msgspec
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.events import Finished, GenerationEvent
from pegboard_contracts.generation import FinishReason, GenerationRequest, Generator, Usage
from pegboard_contracts.models import ModelDirectory, ModelState
from pegboard_contracts.principal import Principal
from pegboard_contracts.stores import StoredResponse

from pegboard_routes._answering import start_answers
from pegboard_routes._responses.compaction import Compaction, CompactionOrder, compact
from pegboard_routes._responses.intake import Intake, Order
from pegboard_routes._responses.live_response import Keep, LiveResponse, is_prompt_fault
from pegboard_routes._responses.reasoning_memory import ReasoningMemory
from pegboard_routes._responses.registry import LiveResponses
from pegboard_routes._responses.request import InputBody, ResponsesRequest
from pegboard_routes._responses.response_object import (
    OutputItem,
    OutputMessage,
    OutputReasoning,
    ResponseError,
    ResponseObject,
)
from pegboard_routes._responses.settings import Settings
from pegboard_routes._responses.shelf import Shelf, Transcripts

Events = AsyncGenerator[GenerationEvent, None]
_encode = msgspec.json.encode


class Desk:
    """Serve responses for the routes. Runs on the event loop."""

    def __init__(
        self,
        generator: Generator,
        directory: ModelDirectory,
        shelf: Shelf,
        transcripts: Transcripts,
        settings: Settings,
    ) -> None:
        """Keep the parts."""
        self.live = LiveResponses(settings.background_max_jobs, shelf.max_bytes)
        self.intake = Intake(shelf, transcripts, self.live, settings)
        self.generator = generator
        self.shelf = shelf
        self._directory = directory
        self._transcripts = transcripts
        self._memory = ReasoningMemory(settings.reasoning_echo_max_bytes)
        self._caching: dict[tuple[str, str], bool] = {}
        self._settings = settings

    async def begin(
        self, body: ResponsesRequest, principal: Principal, *, streamed: bool
    ) -> LiveResponse:
        """Begin a foreground response.

        Raises what is knowable before the first token; after that it runs until it ends,
        is stopped, or the server stops.
        """
        return await self.begin_order(await self.intake.order(body, principal), streamed=streamed)

    async def begin_order(self, order: Order, *, streamed: bool) -> LiveResponse:
        """Begin what has been taken in; raises as `begin` does."""
        order = await self._remembering(order)
        request, compaction = await self._compacted(order)
        ladder, events = order.ladder, _nothing()
        if order.shown.compacts and compaction is not None:
            ladder.name_model(compaction.model)
            events = _compacted_only(compaction)
        else:
            answers, accepted = await start_answers(self.generator, [request])
            events = answers[0]
            ladder.accept(accepted[0])
        ladder.start()
        if compaction is not None:
            _tell(order, compaction)
        live = LiveResponse(ladder, order.owner, self._keeper(order), streamed=streamed)
        self.live.add(live)
        live.start(events)
        return live

    async def warm_up(self, order: Order) -> LiveResponse:
        """Take in what a later response goes on with, without generating anything."""
        await self.generator.count(order.request)
        view = self._directory.find(order.body.model)
        if view is not None:
            order.ladder.name_model(view.entry.id)
        order.ladder.start()
        live = LiveResponse(order.ladder, order.owner, self._keeper(order), streamed=True)
        self.live.add(live)
        live.start(_nothing())
        await live.stop("completed")
        return live

    async def whole(self, body: ResponsesRequest, principal: Principal) -> ResponseObject:
        """Answer with the whole response; raises its fault instead of a failed object."""
        live = await self.begin(body, principal, streamed=False)
        try:
            final = await live.end()
        except asyncio.CancelledError:
            await live.stop("incomplete")
            raise
        if live.error is not None:
            raise live.error
        return final

    async def begin_job(self, body: ResponsesRequest, principal: Principal) -> ResponseObject:
        """Begin a background response and return it queued.

        Raises `ApiError` as a foreground response does before generation, 429 when there
        are too many jobs; a prompt that cannot be rendered ends the job instead.
        """
        self._refuse_background(body)
        order = await self._remembering(await self.intake.order(body, principal))
        live = LiveResponse(order.ladder, order.owner, self._keeper(order), background=True)
        size = self._stored(order, live.snapshot, b"").approximate_bytes()
        self.live.admit(live, size)
        events = _nothing()
        try:
            events = await self._job_events(order, live)
            queued = live.snapshot
            pending = self._stored(order, queued, b"", pending=True)
            await self.shelf.put_pending(pending, order.shown.history)
        except BaseException:
            self.live.remove(live)
            await events.aclose()
            raise
        live.start(events)
        return queued

    async def count(self, body: InputBody, principal: Principal) -> int:
        """Count the tokens of an input, rendered as a response to it would."""
        request = await self.intake.counted(body, principal)
        session = await self._session(body.model, principal, body)
        if session is not None:
            request = self._memory.filled(request, session)
        return await self.generator.count(request)

    async def get(self, owner: str, response_id: str) -> bytes:
        """Return a response as JSON, running ones without output."""
        self.shelf.require()
        running = self.live.find(owner, response_id)
        if running is not None and (running.background or running.snapshot.store):
            return _encode(running.snapshot)
        return (await self.shelf.get(owner, response_id)).body

    async def input_items(self, owner: str, response_id: str) -> bytes:
        """Return a response's own input as a JSON array."""
        self.shelf.require()
        running = self.live.find(owner, response_id)
        if running is not None and not running.background:
            await running.end()
        return (await self.shelf.get(owner, response_id)).input_items

    async def cancel(self, owner: str, response_id: str) -> bytes:
        """End a running response as cancelled; a finished one is returned unchanged."""
        self.shelf.require()
        running = self.live.find(owner, response_id)
        if running is not None:
            return _encode(await running.stop("cancelled"))
        return (await self.shelf.get(owner, response_id)).body

    async def delete(self, owner: str, response_id: str) -> None:
        """Remove a finished response; raises 400 while it runs, 404."""
        self.shelf.require()
        running = self.live.find(owner, response_id)
        if running is not None and not running.settled:
            message = "This response has not finished; cancel it first."
            raise invalid_request(message, param="response_id", code="response_not_finished")
        if running is not None:
            await running.end()
        await self.shelf.delete(owner, response_id)

    async def recover(self) -> None:
        """Fail the jobs that an earlier process left unfinished."""
        for job in await self.shelf.left_pending():
            fields: dict[str, Any] = msgspec.json.decode(job.body)
            message = "The server stopped before this response was finished. Send it again."
            fields |= {"status": "failed", "error": {"code": "server_error", "message": message}}
            failed = msgspec.structs.replace(
                job, body=_encode(fields), status="failed", pending=False
            )
            await self.shelf.put(failed, await self._history_of(job))

    async def close(self) -> None:
        """Fail what still runs: the server stops."""
        await self.live.fail_all(
            ApiError(503, "The server was stopped before the answer was finished. Send it again.")
        )

    async def _history_of(self, job: StoredResponse) -> tuple[Any, ...]:
        turns = await self.shelf.require().history(job.owner, job.id)
        return (turns or ())[:-1]

    def _refuse_background(self, body: ResponsesRequest) -> None:
        if body.stream:
            message = "A background response cannot be streamed; poll GET /v1/responses/{id}."
            raise invalid_request(message, param="stream")
        self.shelf.require("background")
        if not self._settings.background_max_jobs or not self.shelf.max_bytes:
            message = (
                "Background responses are disabled here; start the server with "
                "--responses-background-max-jobs and --responses-store-max-bytes above 0."
            )
            raise invalid_request(message, param="background", code="background_disabled")

    async def _job_events(self, order: Order, live: LiveResponse) -> Events:
        """Make the events of a job; what a foreground request is refused for is raised here."""
        threshold = _threshold(order)
        try:
            answers, accepted = await start_answers(self.generator, [order.request])
        except ApiError as error:
            if not is_prompt_fault(error):
                raise
            if threshold is None:
                live.refuse(error)
                return _nothing()
            return self._compacting(order)
        if threshold is None or accepted[0].prompt_tokens < threshold:
            order.ladder.accept(accepted[0])
            return answers[0]
        await answers[0].aclose()
        return self._compacting(order)

    async def _compacting(self, order: Order) -> Events:
        request, compaction = await self._compacted(order)
        if compaction is not None:
            _tell(order, compaction)
        work = self.generator.generate(request)
        if order.shown.compacts and compaction is not None:
            order.ladder.name_model(compaction.model)
            work = _compacted_only(compaction)
        async with aclosing(work) as events:
            async for event in events:
                yield event

    async def _compacted(self, order: Order) -> tuple[GenerationRequest, Compaction | None]:
        """Compact the history when the body asks for it and its size is reached."""
        threshold = _threshold(order)
        if threshold is None:
            return order.request, None
        before = await self.generator.count(order.request)
        context = self.context_tokens(order.body.model)
        if before < threshold and (context is None or before < context):
            return order.request, None
        wanted = CompactionOrder(items=order.shown.all, before=before, context_tokens=context)
        compaction = await compact(
            self.generator,
            wanted,
            lambda items: self.intake.show(order.body, order.tools, order.principal, items),
        )
        shown = self.intake.show(order.body, order.tools, order.principal, compaction.items)
        request = msgspec.structs.replace(order.request, conversation=shown.conversation)
        return request, compaction

    def context_tokens(self, model: str) -> int | None:
        """Return the context of a model, as far as it is known."""
        view = self._directory.find(model)
        if view is None and model == "auto":
            loaded = [one for one in self._directory.models() if one.context_tokens]
            view = loaded[0] if loaded else None
        return view.context_tokens if view else None

    async def _remembering(self, order: Order) -> Order:
        """Give replayed turns their reasoning back."""
        session = await self._session(order.body.model, order.principal, order.body)
        if session is None:
            return order
        request = self._memory.filled(order.request, session)
        return msgspec.structs.replace(order, request=request, session=session)

    async def _session(
        self, model: str, principal: Principal, body: InputBody
    ) -> tuple[str, ...] | None:
        """Name whose reasoning is remembered together; `None` remembers none."""
        view = self._directory.find(model)
        if view is None or view.state is not ModelState.LOADED or not self._memory.enabled:
            return None
        loaded = (view.entry.id, str(view.revision))
        if loaded not in self._caching:
            try:
                told = await self._directory.inspect(model)
            except ApiError:
                return None
            self._caching[loaded] = told.get("prefix_caching") is not False
        if not self._caching[loaded]:
            return None
        return (*loaded, principal.owner, body.prompt_cache_key or body.user or "")

    def _keeper(self, order: Order) -> Keep:
        async def keep(live: LiveResponse, final: ResponseObject, events: bytes) -> ResponseObject:
            try:
                return await self._keep(order, live, final, events)
            finally:
                self.live.remove(live)

        return keep

    async def _keep(
        self, order: Order, live: LiveResponse, final: ResponseObject, events: bytes
    ) -> ResponseObject:
        if order.session is not None and live.by_itself:
            answer = plain_answer(final.output)
            if answer is not None:
                self._memory.remember(order.request, order.session, *answer)
        unseen = not live.streamed and not live.background and not live.by_itself
        if unseen or not (order.body.stored or live.background):
            return final
        kept = await self.shelf.put(self._stored(order, final, events), order.shown.history)
        if not kept and live.background:
            final = _too_large(final)
            await self.shelf.put(self._stored(order, final, b""), order.shown.history)
        conversation = order.body.conversation
        if conversation is not None and live.by_itself and order.body.stored:
            items = (*order.input_items, *final.output)
            await self._transcripts.append(order.owner, conversation, tuple(map(_encode, items)))
        return final

    def _stored(
        self, order: Order, response: ResponseObject, events: bytes, *, pending: bool = False
    ) -> StoredResponse:
        stored = order.body.stored
        return StoredResponse(
            id=response.id,
            owner=order.owner,
            body=_encode(response),
            input_items=order.input_json,
            output_items=_encode(response.output),
            events=events,
            previous=order.body.previous_response_id,
            status=response.status,
            created_at=response.created_at,
            pending=pending,
            chainable=stored,
            ttl_seconds=None if stored else self._settings.background_ephemeral_ttl_secs,
        )


def _threshold(order: Order) -> int | None:
    """Return the size of the input, in tokens, from which on it is compacted."""
    return 1 if order.shown.compacts else order.body.compact_threshold


def _tell(order: Order, compaction: Compaction) -> None:
    order.ladder.compacted(compaction.sealed, compaction.usage, compaction.before, compaction.after)


def plain_answer(output: Sequence[OutputItem]) -> tuple[str, str] | None:
    """Return text and reasoning of an answer that is one message after its reasoning."""
    if [type(item) for item in output] != [OutputReasoning, OutputMessage]:
        return None
    thought, message = cast("tuple[OutputReasoning, OutputMessage]", tuple(output))
    content = thought.content or []
    return message.content[0].text, "".join(part.text for part in content)


def _too_large(final: ResponseObject) -> ResponseObject:
    error = ResponseError("server_error", "The response is larger than the whole store.")
    return msgspec.structs.replace(
        final,
        status="failed",
        error=error,
        output=[],
        completed_at=None,
        incomplete_details=None,
    )


async def _compacted_only(compaction: Compaction) -> Events:
    """End at once: the compaction item, said already, is the whole output."""
    usage = Usage(prompt_tokens=compaction.after)
    yield Finished(reason=FinishReason.STOP, usage=usage)


async def _nothing() -> Events:
    for event in tuple[GenerationEvent, ...]():
        yield event
