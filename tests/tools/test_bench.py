from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tools.bench.figures import (
    Figure,
    case_figures,
    constrained_figures,
    figure,
    first_figures,
    start_figures,
)
from tools.bench.rounds import Constrained, Sample, Side
from tools.bench.work import LENGTHS, Outcome, fresh_prompts, small_schemas

ROOT = Path(__file__).resolve().parents[2]


def sample(side: Side, *, seconds: float, cpu: float) -> Sample:
    outcome = Outcome(seconds=seconds, first=[0.1], prompt_tokens=50, output_tokens=100)
    return Sample(
        side=side,
        kind="short",
        concurrency=8,
        outcome=outcome,
        cpu=cpu,
        parent_cpu=0.01,
        load_cpu=0.02,
        foreign_cpu=0.0,
    )


def named(figures: list[Figure], words: str) -> Figure:
    return next(shown for shown in figures if words in shown.name)


def test_ratios_are_taken_within_a_round() -> None:
    slow_round = [sample("bare", seconds=10.0, cpu=10.0), sample("server", seconds=11.0, cpu=10.2)]
    fast_round = [sample("server", seconds=1.1, cpu=1.02), sample("bare", seconds=1.0, cpu=1.0)]
    figures = case_figures(slow_round + fast_round)
    throughput = named(figures, "throughput")
    assert throughput.median == pytest.approx(1 / 1.1)
    assert throughput.good is False
    assert named(figures, "CPU, server / bare").median == pytest.approx(1.02)
    assert named(figures, "CPU, server / bare").good is True
    assert named(figures, "own process").median == pytest.approx(100.0)


def test_schemas_are_held_to_their_bar_and_each_round_has_its_own() -> None:
    def outcome(seconds: float) -> Outcome:
        return Outcome(seconds=seconds, first=[0.1], prompt_tokens=50, output_tokens=100)

    def measured(seconds: float) -> list[Figure]:
        one = Constrained(
            first_use=outcome(1.0),
            bound=outcome(seconds),
            free=outcome(1.0),
            bound_cpu=seconds,
            free_cpu=1.0,
        )
        return constrained_figures([one])

    assert named(measured(1.1), "throughput").good is True
    assert named(measured(1.3), "throughput").good is False
    assert named(measured(1.3), "CPU a token").median == pytest.approx(1 / 1.3)
    schemas = [json.dumps(schema) for number in range(2) for schema in small_schemas(number)]
    assert len(set(schemas)) == 16


def test_a_figure_is_a_median_with_its_middle_half() -> None:
    shown = figure("x", "ms", [1, 2, 3, 4, 100], at_most=3)
    assert (shown.median, shown.low, shown.high, shown.good) == (3, 2, 4, True)
    assert "ok" in shown.line()
    assert figure("x", "ms", [7]).good is None


def test_first_text_and_start_are_held_to_their_bars() -> None:
    assert named(first_figures([(0.1, 0.105)] * 3), "added").good is True
    assert named(first_figures([(0.1, 0.12)] * 3), "added").good is False
    assert named(start_figures([2.0], [4.0]), "server").good is True
    assert named(start_figures([2.0], [4.2]), "server").good is False


def test_prompts_are_fresh_and_repeatable() -> None:
    first, second = (random.Random(1) for _ in range(2))  # noqa: S311 - words for prompts
    prompts = fresh_prompts("long", 4, first)
    assert prompts == fresh_prompts("long", 4, second)
    assert len({prompt[:60] for prompt in prompts}) == 4
    assert all(len(prompt.split()) == LENGTHS["long"] + 3 for prompt in prompts)


@pytest.mark.slow
def test_the_bench_measures_a_scripted_server(tmp_path: Path) -> None:
    script = tmp_path / "long.json"
    script.write_text(json.dumps({"default": {"pieces": ["word "], "repeat": 1000}}))
    report = tmp_path / "report.json"
    command = [
        *(sys.executable, "tools/bench", "--quick", "--no-bare", "--json", str(report)),
        *("--model", f"long=scripted:{script}", "--data-dir", str(tmp_path / "data")),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    samples = msgspec.convert(json.loads(report.read_bytes())["samples"], list[Sample])
    assert samples
    for measured in samples:
        assert measured.outcome.output_tokens == 32 * max(3, measured.concurrency)
        assert measured.cpu >= measured.parent_cpu > 0
    assert "8 at a time: server's own process" in done.stdout
