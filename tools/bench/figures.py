"""From samples to figures with their spread, and to what they must be."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

import msgspec

from tools.bench.rounds import Constrained, Sample
from tools.bench.work import Outcome

MAX_CPU_RATIO = 1.05
MAX_PARENT_MICROSECONDS = 150.0
MIN_THROUGHPUT_RATIO = 0.95
MAX_ADDED_FIRST_SECONDS = 0.010
MAX_START_RATIO = 1.3
MAX_START_SECONDS = 1.5
MIN_CONSTRAINED_RATIO = 0.85


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Carry a median with the middle half of its samples, and the bar it is held to.

    `good` is `None` for a figure that has no bar.
    """

    name: str
    unit: str
    median: float
    low: float
    high: float
    samples: int
    bar: str = ""
    good: bool | None = None

    def line(self) -> str:
        """Format for a terminal."""
        verdict = {True: "  ok", False: "  MISSED", None: ""}[self.good]
        spread = f"[{_number(self.low)} .. {_number(self.high)}]"
        value = f"{_number(self.median):>9} {spread:<20} {self.unit:<7}"
        return f"  {self.name:<46} {value} {self.bar:<9}{verdict}"


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def figure(
    name: str,
    unit: str,
    values: Iterable[float],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Figure:
    """Make a figure of values, which must not be none."""
    ordered = sorted(values)
    median = statistics.median(ordered)
    quarters = statistics.quantiles(ordered, n=4, method="inclusive") if ordered[1:] else []
    low, high = (quarters[0], quarters[2]) if quarters else (median, median)
    bar, good = "", None
    if at_most is not None:
        bar, good = f"<= {at_most:g}", median <= at_most
    elif at_least is not None:
        bar, good = f">= {at_least:g}", median >= at_least
    return Figure(
        name=name,
        unit=unit,
        median=median,
        low=low,
        high=high,
        samples=len(ordered),
        bar=bar,
        good=good,
    )


def case_figures(samples: Sequence[Sample]) -> list[Figure]:
    """Make the figures of every case; ratios are of the two sides in the same round."""
    figures: list[Figure] = []
    cases = dict.fromkeys((sample.kind, sample.concurrency) for sample in samples)
    for kind, concurrency in cases:
        here = [s for s in samples if (s.kind, s.concurrency) == (kind, concurrency)]
        figures += _figures_of_case(f"{kind}, {concurrency} at a time", here)
    return figures


def _figures_of_case(case: str, samples: Sequence[Sample]) -> list[Figure]:
    bare = [sample for sample in samples if sample.side == "bare"]
    server = [sample for sample in samples if sample.side == "server"]
    figures = [
        figure(
            f"{case}: server's own process",
            "us/tok",
            (_per_token(s, s.parent_cpu) * 1e6 for s in server),
            at_most=MAX_PARENT_MICROSECONDS,
        ),
        figure(
            f"{case}: load generator",
            "us/tok",
            (_per_token(s, s.load_cpu) * 1e6 for s in server),
        ),
        figure(f"{case}: server", "tok/s", map(_throughput, server)),
    ]
    if not bare:
        return figures

    def ratios(value: Callable[[Sample], float]) -> list[float]:
        return [value(s) / value(b) for s, b in zip(server, bare, strict=True)]

    return [
        *figures,
        figure(f"{case}: bare engine", "tok/s", map(_throughput, bare)),
        figure(
            f"{case}: throughput, server / bare",
            "",
            ratios(_throughput),
            at_least=MIN_THROUGHPUT_RATIO,
        ),
        figure(f"{case}: server, all processes", "ms/tok", (_cpu(s) * 1e3 for s in server)),
        figure(f"{case}: bare engine", "ms/tok", (_cpu(b) * 1e3 for b in bare)),
        figure(f"{case}: CPU, server / bare", "", ratios(_cpu), at_most=MAX_CPU_RATIO),
        figure(
            f"{case}: first text, server / bare",
            "",
            ratios(lambda sample: statistics.median(sample.outcome.first)),
        ),
    ]


def _throughput(sample: Sample) -> float:
    return sample.outcome.output_tokens / sample.outcome.seconds


def _per_token(sample: Sample, seconds: float) -> float:
    return seconds / sample.outcome.output_tokens


def _cpu(sample: Sample) -> float:
    return _per_token(sample, sample.cpu)


def overall_figures(samples: Sequence[Sample]) -> list[Figure]:
    """Make the figures over all cases: how noisy the machine was."""
    return [
        figure(
            "CPU of strangers on this machine",
            "cores",
            (s.foreign_cpu / s.outcome.seconds for s in samples),
        )
    ]


def first_figures(pairs: Sequence[tuple[float, float]]) -> list[Figure]:
    """Make the figures of the first text at one stream, from pairs (bare, server)."""
    if not pairs:
        return []
    return [
        figure("first text, bare engine", "ms", (bare * 1e3 for bare, _ in pairs)),
        figure("first text, server", "ms", (server * 1e3 for _, server in pairs)),
        figure(
            "first text, added by the server",
            "ms",
            ((server - bare) * 1e3 for bare, server in pairs),
            at_most=MAX_ADDED_FIRST_SECONDS * 1e3,
        ),
    ]


def start_figures(bare: Sequence[float], server: Sequence[float]) -> list[Figure]:
    """Make the figures of starting until ready, in seconds."""
    if not bare:
        return [figure("start to ready, server", "s", server)] if server else []
    limit = MAX_START_RATIO * statistics.median(bare) + MAX_START_SECONDS
    return [
        figure("start to ready, bare engine", "s", bare),
        figure("start to ready, server", "s", server, at_most=round(limit, 2)),
    ]


def constrained_figures(rounds: Sequence[Constrained]) -> list[Figure]:
    """Make the figures of answers under schemas; what their first use costs stands apart."""
    if not rounds:
        return []
    return [
        figure("under schemas, 8 at a time", "tok/s", (_speed(one.bound) for one in rounds)),
        figure("the same without schemas", "tok/s", (_speed(one.free) for one in rounds)),
        figure(
            "throughput, with schemas / without",
            "",
            (_speed(one.bound) / _speed(one.free) for one in rounds),
            at_least=MIN_CONSTRAINED_RATIO,
        ),
        figure(
            "CPU a token, without schemas / with",
            "",
            (
                (one.free_cpu / one.free.output_tokens) / (one.bound_cpu / one.bound.output_tokens)
                for one in rounds
            ),
        ),
        figure(
            "first text of 8 schemas used first",
            "ms",
            (statistics.median(one.first_use.first) * 1e3 for one in rounds),
        ),
        figure(
            "first text of the same used again",
            "ms",
            (statistics.median(one.bound.first) * 1e3 for one in rounds),
        ),
        figure(
            "first text without schemas",
            "ms",
            (statistics.median(one.free.first) * 1e3 for one in rounds),
        ),
    ]


def _speed(outcome: Outcome) -> float:
    return outcome.output_tokens / outcome.seconds
