"""Constraints are compiled and timed by the preparer before the shared engine sees them."""

from __future__ import annotations

from pegboard_contracts.engine import ConstraintCost
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.generation import Constraint

from pegboard_kernel.engines.preparer_client import CallLimit, PreparerClient
from pegboard_kernel.engines.remembered import Remembered

_REMEMBERED = 512
_STEPS_TRIED = 64
_OPENING_SECONDS = 60.0
_SIMPLEST = Constraint(kind="ebnf", value='root ::= "a"')


class ConstraintChecks:
    """Check constraints for one engine; each verdict is remembered, refusals too."""

    def __init__(
        self, preparer: PreparerClient, *, compile_limit: float, step_limit: float
    ) -> None:
        """Check with `preparer`; the limits are in seconds of processor time."""
        self._preparer = preparer
        self._compile_limit = compile_limit
        self._step_limit = step_limit
        self._verdicts: Remembered[ConstraintCost] = Remembered(_REMEMBERED)
        self._warm_process = 0

    async def check(self, constraint: Constraint) -> ConstraintCost:
        """Return what a constraint costs.

        Raises `ApiError` 400: `invalid_grammar` with the compiler's reason, or
        `constraint_too_slow` for one that would hold up everybody.
        """
        key = f"{constraint.kind}\n{constraint.value}"
        return await self._verdicts.get(key, lambda: self._checked(constraint))

    async def _checked(self, constraint: Constraint) -> ConstraintCost:
        preparer = self._preparer
        if self._warm_process != preparer.pid:
            # Opening the checker is nobody's fault.
            limit = CallLimit(_OPENING_SECONDS, self._too_slow_to_compile())
            await preparer.check(_SIMPLEST, self._step_limit, limit)
            self._warm_process = preparer.pid
        seconds = self._compile_limit + _STEPS_TRIED * self._step_limit
        limit = CallLimit(seconds, self._too_slow_to_compile())
        cost = await preparer.check(constraint, self._step_limit, limit)
        if cost.compile_seconds > self._compile_limit:
            raise self._too_slow_to_compile()
        if cost.step_seconds > self._step_limit:
            milliseconds = self._step_limit * 1000
            raise _too_slow(
                f"It takes more than {milliseconds:g} ms for a single token, and every other "
                "answer would wait as long. Long counted repetitions are the usual cause"
            )
        return cost

    def _too_slow_to_compile(self) -> ApiError:
        return _too_slow(
            f"It takes more than {self._compile_limit:g} s to compile. Large counts, as in "
            "'{1,200}' or 'maxLength', and many alternatives are the usual cause"
        )


def _too_slow(reason: str) -> ApiError:
    message = f"The grammar of this answer is too slow. {reason}; simplify it."
    return invalid_request(message, code="constraint_too_slow")
