"""Compile and try a grammar where it can harm nobody: with a model that knows nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pegboard_contracts.engine import ConstraintCost
from pegboard_contracts.generation import Constraint

from pegboard_backends._openvino import library
from pegboard_backends._openvino.checker_model import checker_folder
from pegboard_backends._openvino.constraint_config import bad_constraint, structured_output_config
from pegboard_backends._openvino.token_table import TokenTable

_STEPS = 48
_SLOW_STEPS = 4
"""So many slow steps of one grammar are no accident."""

_CACHE_BLOCKS = 8


class GrammarChecker:
    """Run grammars through the same compiler and sampler as the engine's."""

    def __init__(self, tokenizer: Any, table: TokenTable, cache_dir: Path) -> None:  # noqa: ANN401 - GenAI's
        """Open the checker model with the served model's tokenizer (half a second)."""
        genai = library.genai()
        scheduler = genai.SchedulerConfig()
        scheduler.num_kv_blocks = _CACHE_BLOCKS
        folder = checker_folder(table, cache_dir)
        self._pipeline: Any = genai.ContinuousBatchingPipeline(
            str(folder), tokenizer, scheduler, "CPU"
        )
        self._next_id = 0
        self._try(None, 1.0)  # the first steps of a pipeline are slow

    def check(self, constraint: Constraint, step_limit: float) -> ConstraintCost:
        """See `PromptTokenizer.check`. A structural tag costs what its dearest part does."""
        costs = [self._try(part, step_limit) for part in _parts(constraint)]
        return ConstraintCost(
            sum(cost.compile_seconds for cost in costs),
            max(cost.step_seconds for cost in costs),
        )

    def _try(self, constraint: Constraint | None, step_limit: float) -> ConstraintCost:
        import numpy as np  # noqa: PLC0415 - comes with OpenVINO

        config = library.genai().GenerationConfig(
            max_new_tokens=_STEPS, do_sample=True, temperature=1.0, rng_seed=1
        )
        self._next_id += 1
        handle: Any = None
        steps: list[float] = []
        try:
            if constraint is not None:
                config.structured_output_config = structured_output_config(constraint)
            first = library.openvino().Tensor(np.zeros((1, 1), np.int64))
            handle = self._pipeline.add_request(self._next_id, first, config)
            while self._pipeline.has_non_finished_requests():
                begun = time.process_time()
                self._pipeline.step()
                steps.append(time.process_time() - begun)
                if handle.can_read():
                    handle.read()
                if _typical(steps[1:]) > step_limit:
                    break
        except (RuntimeError, ValueError) as error:
            raise bad_constraint(error) from error
        finally:
            if handle is not None:
                handle.cancel()
            if self._pipeline.has_non_finished_requests():
                self._pipeline.step()
        return ConstraintCost(steps[0] if steps else 0.0, _typical(steps[1:]))


def _typical(steps: list[float]) -> float:
    """Return what the slowest steps but a few took; nothing for a handful."""
    slowest = sorted(steps, reverse=True)
    return slowest[_SLOW_STEPS - 1] if len(slowest) >= _SLOW_STEPS else 0.0


def _parts(constraint: Constraint) -> Iterator[Constraint]:
    """Yield the constraint, and the grammars inside its tags, which only a trigger would run."""
    yield constraint
    if constraint.kind == "structural_tag":
        for tag in json.loads(constraint.value)["format"].get("tags", ()):
            if tag["content"]["type"] == "grammar":
                yield Constraint(kind="ebnf", value=tag["content"]["grammar"])
