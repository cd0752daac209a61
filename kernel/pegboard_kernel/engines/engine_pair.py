"""The children of one engine, kept alive together, and the leases on them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator
from typing import Any

import msgspec
from pegboard_contracts.backend import EngineDescription
from pegboard_contracts.encoding import Encoded, EncoderInput, ModelKind
from pegboard_contracts.engine import EngineInfo
from pegboard_contracts.errors import ApiError

from pegboard_kernel.engines.admission import Admission
from pegboard_kernel.engines.batching import BatchQueue
from pegboard_kernel.engines.constraint_checks import ConstraintChecks
from pegboard_kernel.engines.engine_client import EngineClient, engine_crashed
from pegboard_kernel.engines.frames import Opening, PreparerInfo
from pegboard_kernel.engines.preparer_client import PreparerClient

logger = logging.getLogger(__name__)

_ATTEMPTS = 6
"""How often an engine is opened that cannot be; then the model counts as lost."""


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bound an engine.

    `hang_timeout` is in seconds without a sign of life, `template_timeout` in seconds of
    processor time for a prompt, `max_queue` counts waiting requests. `back_off` is how many
    seconds pass before an engine is opened again, by how often it was lost since it last
    answered. `compile_limit` and `step_limit` are seconds of processor time that a grammar
    may cost at its first use, and in every step.
    """

    hang_timeout: float = 60.0
    template_timeout: float = 5.0
    max_queue: int = 64
    compile_limit: float = 2.0
    step_limit: float = 0.03
    back_off: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)


class EnginePair:
    """Run one engine with its preparer, restart what dies, and close when nobody needs it.

    Requests that run when the engine dies fail; those in the queue wait for the restart;
    new ones get 503 with `Retry-After` (decisions 4 and 44). `on_lost` is called when the
    engine could not be opened again.
    """

    def __init__(
        self,
        description: EngineDescription,
        section: dict[str, Any],
        limits: EngineLimits,
        on_lost: Callable[[ApiError], None],
    ) -> None:
        """Prepare; nothing is started."""
        beat = min(1.0, limits.hang_timeout / 4)
        self._opening = Opening(description, section, beat)
        self._hang_timeout = limits.hang_timeout
        self._back_off = limits.back_off
        self.on_lost = on_lost
        self.admission = Admission(limits.max_queue)
        self.kind: ModelKind = description.kind
        self.batches = BatchQueue(self._encode, max_queue=limits.max_queue)
        self.preparer = PreparerClient(self._opening, time_limit=limits.template_timeout)
        self.checks = ConstraintChecks(
            self.preparer, compile_limit=limits.compile_limit, step_limit=limits.step_limit
        )
        self._engine = self._new_engine()
        self._info: EngineInfo | None = None
        self._template: PreparerInfo | None = None
        self._restart: asyncio.Task[None] | None = None
        self._losses = 0
        self._retry_at = 0.0
        self._leases = 0
        self._retiring = False
        self._free: asyncio.Future[None] | None = None

    def _new_engine(self) -> EngineClient:
        return EngineClient(
            self._opening, hang_timeout=self._hang_timeout, on_gone=self._engine_gone
        )

    @property
    def info(self) -> EngineInfo:
        """Describe the engine, once open."""
        if self._info is None:
            raise RuntimeError("the engine was not opened")
        return self._info

    @property
    def template(self) -> PreparerInfo:
        """Describe the model's template, once open."""
        if self._template is None:
            raise RuntimeError("the preparer was not opened")
        return self._template

    @property
    def pids(self) -> tuple[int, int]:
        """Return the process ids of engine and preparer."""
        return self._engine.pid, self.preparer.pid

    @property
    def leases(self) -> int:
        """Count the generations that keep both children."""
        return self._leases

    @property
    def ready(self) -> bool:
        """Tell whether a new request would be taken."""
        return self._engine.alive and not self._retiring

    async def open(self) -> None:
        """Start both children and wait until the model can answer.

        Raises `ApiError` when it cannot be opened; nothing is left running then, nor when
        the caller is cancelled.
        """
        if self.kind != "generate":
            await self._open_encoder()
            return
        loop = asyncio.get_running_loop()
        beside = loop.create_task(self._open_preparer())
        try:
            self._info = await self._engine.open()
            self._template = await beside
        except BaseException:
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)
            await self.close()
            raise
        self.admission.resume(self._engine, self._info.max_sequences)

    async def _open_preparer(self) -> PreparerInfo:
        await self.preparer.start()
        return await self.preparer.open()

    async def _open_encoder(self) -> None:
        try:
            self._info = await self._engine.open()
        except BaseException:
            await self.close()
            raise
        self.batches.resume()

    async def _encode(self, inputs: list[EncoderInput]) -> list[Encoded]:
        engine = self._engine
        try:
            values = await engine.call("encode", {"inputs": inputs})
        except ApiError as error:
            if error.code == "engine_busy":
                logger.error("the encoder process %s hangs and is killed", engine.pid)  # noqa: TRY400 - the message says it all
                engine.kill()
            if error.status == 503:
                raise engine_crashed() from None
            raise
        self.answered()
        return msgspec.convert(values, list[Encoded])

    @contextlib.contextmanager
    def lease(self) -> Generator[EnginePair]:
        """Keep both children for the length of a generation.

        Raises `ApiError` 503 while the engine is away or being closed.
        """
        if not self.ready:
            loop = asyncio.get_running_loop()
            message = "The model's engine is being restarted. Send the request again in a moment."
            retry_after = max(1.0, self._retry_at - loop.time() + 1.0)
            raise ApiError(503, message, code="engine_restarting", retry_after=retry_after)
        self._leases += 1
        try:
            yield self
        finally:
            self._leases -= 1
            if self._leases == 0 and self._free is not None and not self._free.done():
                self._free.set_result(None)

    def answered(self) -> None:
        """Take note that a request ended well: the engine is sound."""
        self._losses = 0

    async def call(self, name: str, arguments: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - the function's own value
        """Call a function of the engine by name, between two steps."""
        return await self._engine.call(name, arguments)

    async def retire(self) -> None:
        """Take no new request, wait until the last lease is returned, and close.

        Closes at once when the caller is cancelled.
        """
        self._retiring = True
        try:
            if self._leases:
                self._free = asyncio.get_running_loop().create_future()
                await self._free
        finally:
            await self.close()

    async def close(self) -> None:
        """End both children within a few seconds; what still runs or waits fails."""
        self._retiring = True
        self.admission.suspend()
        if self._restart is not None:
            self._restart.cancel()
            await asyncio.gather(self._restart, return_exceptions=True)
        message = "The model was unloaded. Load it and send the request again."
        unloaded = ApiError(503, message, code="model_unloaded", retry_after=5)
        self.admission.fail_all(unloaded)
        await self.batches.close(unloaded)
        await asyncio.gather(self._engine.close(), self.preparer.close())

    def _engine_gone(self, error: ApiError) -> None:
        del error
        self.admission.suspend()
        self.batches.suspend()
        if not self._retiring:
            self._restart = asyncio.get_running_loop().create_task(self._reopen())

    async def _reopen(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ATTEMPTS):
            pause = self._back_off[min(self._losses, len(self._back_off) - 1)]
            self._losses += 1
            self._retry_at = loop.time() + pause
            await asyncio.sleep(pause)
            self._engine = self._new_engine()
            try:
                self._info = await self._engine.open()
            except ApiError as fault:
                logger.warning("the engine cannot be opened again: %s", fault.message)
                continue
            logger.info("the engine was restarted as process %s", self._engine.pid)
            if self.kind == "generate":
                self.admission.resume(self._engine, self._info.max_sequences)
            else:
                self.batches.resume()
            return
        message = "The model's engine was lost and cannot be opened again. Load the model again."
        error = ApiError(503, message, code="engine_lost", retry_after=30)
        self.admission.fail_all(error)
        self.batches.fail_all(error)
        self.on_lost(error)
