"""The measurements: one side after the other, with the same fresh prompts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from msgspec.structs import replace

from tools.bench.processes import Measured, busy_cpu
from tools.bench.work import Outcome, Work, fresh_prompts, small_schemas

CONSTRAINED_STREAMS = 8

Side = Literal["bare", "server"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Say how much is measured."""

    rounds: int
    tokens: int
    concurrencies: tuple[int, ...]
    first_pairs: int
    starts: int
    seed: int


FULL = Plan(rounds=7, tokens=128, concurrencies=(1, 8, 32), first_pairs=50, starts=5, seed=0)
QUICK = Plan(rounds=2, tokens=32, concurrencies=(1, 8), first_pairs=10, starts=2, seed=0)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Carry one side's work on one case: seconds of CPU beside the outcome.

    `parent_cpu` is the server's own process, `load_cpu` the load generator's, `foreign_cpu`
    what the rest of the machine used meanwhile.
    """

    side: Side
    kind: str
    concurrency: int
    outcome: Outcome
    cpu: float
    parent_cpu: float
    load_cpu: float
    foreign_cpu: float


class Constrained(msgspec.Struct, frozen=True, kw_only=True):
    """Carry a round of answers under schemas: their first use, the next, and free answers.

    `bound_cpu` and `free_cpu` are CPU seconds of the server and its children.
    """

    first_use: Outcome
    bound: Outcome
    free: Outcome
    bound_cpu: float
    free_cpu: float


class Bench:
    """Ask the server through the load generator, and the bare engine when there is one."""

    def __init__(self, plan: Plan, server: Measured, load: Measured, bare: Measured | None) -> None:
        """Take running processes."""
        self._plan = plan
        self._server = server
        self._load = load
        self._bare = bare
        self._chance = random.Random(plan.seed)  # noqa: S311 - words for prompts

    def warm_up(self) -> None:
        """Let both sides compile, allocate and open what the first request needs."""
        for kind in ("short", "long"):
            work = self._work(kind, min(self._plan.concurrencies[-1], 8))
            self._load.ask(work)
            if self._bare is not None:
                self._bare.ask(work)

    def _work(self, kind: str, concurrency: int, tokens: int | None = None) -> Work:
        # A single stream is asked three times over, because one answer is short.
        prompts = fresh_prompts(kind, max(concurrency, 3), self._chance)
        return Work(prompts=prompts, concurrency=concurrency, tokens=tokens or self._plan.tokens)

    def run(self, progress: Callable[[str], None]) -> Iterator[Sample]:
        """Measure every case in every round; the side that begins takes turns."""
        for number in range(self._plan.rounds):
            for kind in ("short", "long"):
                for concurrency in self._plan.concurrencies:
                    progress(f"round {number + 1}: {kind} prompts, {concurrency} at a time")
                    work = self._work(kind, concurrency)
                    for side in self._sides(number):
                        yield self._measure(side, kind, work)

    def _sides(self, number: int) -> list[Side]:
        sides: list[Side] = ["server"] if self._bare is None else ["bare", "server"]
        return sides if number % 2 == 0 else sides[::-1]

    def _measure(self, side: Side, kind: str, work: Work) -> Sample:
        measured, asked = self._server, self._load
        if side == "bare" and self._bare is not None:
            measured = asked = self._bare
        before = (measured.all_cpu(), measured.own_cpu(), self._load.own_cpu(), busy_cpu())
        outcome = asked.ask(work)
        after = (measured.all_cpu(), measured.own_cpu(), self._load.own_cpu(), busy_cpu())
        cpu, parent_cpu, load_cpu, busy = (b - a for a, b in zip(before, after, strict=True))
        return Sample(
            side=side,
            kind=kind,
            concurrency=work.concurrency,
            outcome=outcome,
            cpu=cpu,
            parent_cpu=parent_cpu,
            load_cpu=load_cpu,
            foreign_cpu=max(0.0, busy - cpu - load_cpu),
        )

    def first_tokens(self) -> list[tuple[float, float]]:
        """Measure pairs (bare, server) of seconds to the first text of one short answer."""
        pairs: list[tuple[float, float]] = []
        for number in range(self._plan.first_pairs if self._bare is not None else 0):
            prompts = fresh_prompts("short", 1, self._chance)
            work = Work(prompts=prompts, concurrency=1, tokens=4)
            seconds = {side: self._first(side, work) for side in self._sides(number)}
            pairs.append((seconds["bare"], seconds["server"]))
        return pairs

    def _first(self, side: Side, work: Work) -> float:
        asked = self._bare if side == "bare" and self._bare is not None else self._load
        return asked.ask(work).first[0]

    def constrained(self, progress: Callable[[str], None]) -> Iterator[Constrained]:
        """Measure eight streams under eight different schemas against eight free ones."""
        for number in range(self._plan.rounds):
            progress(f"round {number + 1}: under schemas, {CONSTRAINED_STREAMS} at a time")
            schemas = small_schemas(number)
            first_use, again, free = (
                self._work("short", CONSTRAINED_STREAMS, tokens) for tokens in (1, None, None)
            )
            started = self._load.ask(replace(first_use, schemas=schemas))
            before = self._server.all_cpu()
            bound = self._load.ask(replace(again, schemas=schemas))
            between = self._server.all_cpu()
            yield Constrained(
                first_use=started,
                bound=bound,
                free=self._load.ask(free),
                bound_cpu=between - before,
                free_cpu=self._server.all_cpu() - between,
            )
