"""The engine protocol: one model on one device, inside its own child process.

An engine is driven by one thread: the kernel's loop in the engine child takes commands,
calls `step` while there is work, and sends what came out as one batch. The preparer child
opens only the `PromptTokenizer` of the same description.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from pegboard_contracts.encoding import EncoderInfo
from pegboard_contracts.generation import Constraint, Sampling

FinishCause = Literal["stop", "length", "cancelled", "failed"]


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Describe an open engine.

    `sampling` holds the model's own defaults. `max_sequences` is how many requests are
    worth running at once; the kernel admits no more. `device` is where it really runs.
    `grammar` tells whether submissions may carry a constraint, `beam_search` whether they
    may carry beams, which no constraint binds. `prompt_logprobs_problem`
    says why prompts get no log probabilities; it is `None` for an engine that gives them.
    `encoder` is set for models that generate nothing.
    """

    context_tokens: int
    sampling: Sampling = Sampling()
    max_sequences: int = 16
    device: str = ""
    architecture_context_tokens: int | None = None
    grammar: bool = False
    beam_search: bool = False
    top_logprobs: int | None = 0
    prompt_logprobs_problem: str | None = "This model's engine gives none."
    properties: dict[str, Any] = {}
    encoder: EncoderInfo | None = None


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """Ask an engine for one answer.

    `request_id` is unique in the engine's life. `prompt_ids` ends with the
    `continued_tokens` tokens that a continuation carries over from the same answer;
    `continued_text` is their text. `last_text` is the text of the last user or tool
    message, for engines that are no models. `kept_tokens` are special tokens whose text
    must survive detokenization. `logprobs` asks for the chosen token's log probability.
    `sampling` has no `None` left except `seed`, which means a random one.
    `prompt_logprobs` asks for those of the prompt's tokens too; only then
    `max_output_tokens` may be 0.
    """

    request_id: int
    prompt_ids: list[int]
    prompt_text: str
    max_output_tokens: int
    sampling: Sampling
    constraint: Constraint | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    kept_tokens: tuple[str, ...] = ()
    last_text: str = ""
    continued_tokens: int = 0
    continued_text: str = ""
    prompt_logprobs: bool = False


class TokenEvent(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Carry what one step gave one request.

    `text` is whole characters only; it may be empty while a character is incomplete.
    `token_ids` are the tokens of this event. A request's last event has `finish`, and
    with it `cached_tokens`; `error` is set when `finish` is `failed`. `logprobs` runs
    parallel to `token_ids`: `[logprob, text, [[text, logprob], ...]]`. `prompt_logprobs`
    has the same form, one for each token of the prompt, of which the first has no meaning;
    it comes once, with or before the first token.
    """

    request_id: int
    text: str = ""
    token_ids: list[int] = []
    finish: FinishCause | None = None
    cached_tokens: int = 0
    error: str | None = None
    logprobs: list[tuple[float, str, list[tuple[str, float]]]] | None = None
    prompt_logprobs: list[tuple[float, str, list[tuple[str, float]]]] | None = None


class Engine(Protocol):
    """Run one model. Every method is called from the engine child's only thread."""

    def describe(self) -> EngineInfo:
        """Describe the open engine; called once, after opening."""
        ...

    def submit(self, submission: Submission) -> None:
        """Take a request; never blocks for long.

        Raises `ApiError` when this request cannot be run; others are not disturbed.
        """
        ...

    def cancel(self, request_id: int) -> None:
        """Stop a request; its last event, `cancelled`, follows within two steps. Idempotent."""
        ...

    def due(self) -> float | None:
        """Return the seconds until `step` has something to do: 0 now, `None` when idle."""
        ...

    def step(self) -> list[TokenEvent]:
        """Advance every running request once and return what came out.

        A failure that concerns single requests ends those as `failed`; raising means that
        the engine is lost and the process is restarted.
        """
        ...

    def inspect(self) -> dict[str, Any]:
        """Return plain data for humans and tests: running requests, cache use, counters."""
        ...

    def close(self) -> None:
        """Free everything; the process ends after it."""
        ...


class FillMarks(msgspec.Struct, frozen=True, kw_only=True):
    """Name the special tokens with which a model fills the middle of a text.

    A prompt is each of `parts` with its text behind it: `prefix` and `suffix` the client's,
    `middle` nothing, because the answer follows. One of `ends` in the answer ends it.
    """

    parts: tuple[tuple[Literal["prefix", "suffix", "middle"], int], ...]
    ends: tuple[str, ...] = ()


class TemplateSource(msgspec.Struct, frozen=True, kw_only=True):
    """Carry a model's chat template and the token texts that templates refer to.

    `prompt_start` are the tokens that stand in front of every raw text, such as the one that
    begins a text; a chat template writes its own. `fill_marks` is set for models that can
    fill a middle.
    """

    template: str | None = None
    bos_token: str = ""
    eos_token: str = ""
    tool_template: str | None = None
    prompt_suffix: str = ""
    prompt_start: tuple[int, ...] = ()
    fill_marks: FillMarks | None = None


class ConstraintCost(msgspec.Struct, frozen=True):
    """Tell what a constraint costs the engine, in seconds of processor time.

    `compile_seconds` is paid once, `step_seconds` in every step of every running request.
    """

    compile_seconds: float = 0.0
    step_seconds: float = 0.0


class PromptTokenizer(Protocol):
    """Tokenize prompts in the preparer child. Called from its only thread."""

    def source(self) -> TemplateSource:
        """Return the model's template; called once."""
        ...

    def special_texts(self) -> frozenset[str]:
        """Return the texts that `encode` would read as special tokens."""
        ...

    def encode(self, text: str, literal_mark: str | None = None) -> list[int]:
        """Turn a rendered prompt into token ids, without adding any.

        Where `literal_mark` (one character that stands nowhere else) occurs, it is
        dropped and the special token text that it splits is encoded as ordinary text.
        """
        ...

    def decode(self, token_ids: list[int]) -> str:
        """Turn token ids into text, special tokens included."""
        ...

    def check(self, constraint: Constraint, step_limit: float) -> ConstraintCost:
        """Compile a constraint as the engine would and try it for some steps.

        Trying ends early when steps are slower than `step_limit` seconds. A compile may
        take for ever: the caller limits it by ending the process. Raises `ApiError` 400
        with the compiler's reason.
        """
        ...
