"""The responses that are being made now, by owner and id, and the limits of jobs."""

from __future__ import annotations

import asyncio

from pegboard_contracts.errors import ApiError

from pegboard_routes._responses.live_response import LiveResponse


class LiveResponses:
    """Find what runs. Runs on the event loop; admission and registration are one step."""

    def __init__(self, max_jobs: int, max_job_bytes: int) -> None:
        """Admit so many background jobs, of so many approximate bytes altogether."""
        self._max_jobs = max_jobs
        self._max_job_bytes = max_job_bytes
        self._live: dict[tuple[str, str], LiveResponse] = {}
        self._jobs: dict[tuple[str, str], int] = {}

    def find(self, owner: str, response_id: str) -> LiveResponse | None:
        """Return what runs under an id, or nothing."""
        return self._live.get((owner, response_id))

    def add(self, live: LiveResponse) -> None:
        """Register a foreground response."""
        self._live[live.owner, live.id] = live

    def admit(self, live: LiveResponse, size: int) -> None:
        """Register a job of `size` bytes; raises `ApiError` 429 when there are too many."""
        if len(self._jobs) >= self._max_jobs:
            raise _too_many(f"{self._max_jobs} background responses are active already")
        if sum(self._jobs.values()) + size > self._max_job_bytes:
            raise _too_many("the active background responses fill the store's bytes")
        self._jobs[live.owner, live.id] = size
        self.add(live)

    def remove(self, live: LiveResponse) -> None:
        """Forget what has ended; a job's place is free again."""
        self._live.pop((live.owner, live.id), None)
        self._jobs.pop((live.owner, live.id), None)

    async def fail_all(self, error: ApiError) -> None:
        """End everything that still runs, because the server stops."""
        running = list(self._live.values())
        await asyncio.gather(*(live.fail(error) for live in running))


def _too_many(reason: str) -> ApiError:
    message = f"No further background response is taken: {reason}. Retry when one has finished."
    return ApiError(429, message, code="rate_limit_exceeded", retry_after=1)
