"""What a route asks the kernel to generate, and the service that does it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from pegboard_contracts.conversation import Conversation, ToolChoice
from pegboard_contracts.principal import Principal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pegboard_contracts.events import GenerationEvent


class Beams(msgspec.Struct, frozen=True, kw_only=True):
    """Search for the likeliest answer instead of drawing one.

    `count` beams are followed, in `groups` that `diversity_penalty` drives apart. A
    `length_penalty` above 0 favours long answers. The search ends when `count` answers are
    complete (`early`), when no better one is likely (`heuristic`), or when none is possible
    (`never`). `rank` 0 is the best answer, 1 the next, below `count`.
    """

    count: int
    groups: int = 1
    diversity_penalty: float = 0.0
    length_penalty: float = 1.0
    ends: Literal["early", "heuristic", "never"] = "heuristic"
    no_repeat_ngram_size: int | None = None
    rank: int = 0


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Say how tokens are drawn; `None` is the model's own default.

    `temperature` 0 is greedy, and so is everything with `beams`. `top_k` 0 is off. Penalties
    of presence and frequency lie in [-2, 2]. `seed` `None` draws one. No token that ends an
    answer is drawn before `min_tokens`; one of `stop_token_ids` ends it beside the model's
    own, which `ignore_eos` switches off.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    ignore_eos: bool = False
    min_tokens: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    beams: Beams | None = None


PLAIN_SAMPLING = Sampling(
    temperature=1.0,
    top_p=1.0,
    top_k=0,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
)
"""Every token as likely as the model says."""


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """Carry what the engine's grammar must enforce on the answer.

    `value` is the text of the schema, expression, grammar or structural tag. `first_use`
    of a constraint may cost a compile, which the preparer pays before the engine sees it.
    """

    kind: Literal["json_schema", "regex", "ebnf", "structural_tag"]
    value: str


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Name the structured-output plugin that an answer must satisfy, and its input.

    `param` is the request's field, which refusals name. What no grammar can promise is
    refused when `strict`, else checked on the finished answer (`Finished.unmet`).
    """

    kind: str
    value: Any = None
    strict: bool = True
    name: str | None = None
    param: str = "response_format"


class ReasoningOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Say how much a model may think.

    `effort` reaches the chat template as `reasoning_effort`. `budget_tokens` is a hard
    limit: at it the block is closed and the answer begins; 0 closes at once.
    """

    effort: str | None = None
    budget_tokens: int | None = None


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Carry one answer's request; a route asks n times for n answers.

    Exactly one of `conversation`, `prompt_text` and `prompt_ids` is set. `model` is what
    the client sent: an id, an alias or `auto`. `top_logprobs` is `None` when no logprobs
    are wanted. `max_output_tokens` `None` means what the context leaves; 0 is for requests
    that want nothing but `prompt_logprobs`. Behind a raw prompt the answer fills the middle
    before `prompt_suffix`, when that is set. `add_special_tokens` puts in front of a text
    what the model's tokenizer begins every text with; token ids are left as they are. The
    stop string that ends an answer stays in it with `include_stop`.
    """

    model: str
    conversation: Conversation | None = None
    prompt_text: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    prompt_suffix: str | None = None
    add_special_tokens: bool = True
    sampling: Sampling = Sampling()
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    top_logprobs: int | None = None
    prompt_logprobs: bool = False
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    output_format: OutputFormat | None = None
    reasoning: ReasoningOptions = ReasoningOptions()
    principal: Principal = Principal()


class FinishReason(StrEnum):
    """Say why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Count tokens of one answer; `cached_tokens` only what was certainly cached."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0


class Generator(Protocol):
    """Turn requests into answers: the service every generating route uses.

    Runs on the server's event loop.
    """

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationEvent, None]:
        """Generate one answer.

        The first event is `Accepted`, the last `Finished`. Closing the generator, or
        cancelling the task that reads it, stops the engine's work.

        Raises `ApiError` before `Accepted` for everything knowable before generation
        (unknown model, prompt too long, unsupported field, full queue), and after it for
        faults of the engine.
        """
        ...

    async def count(self, request: GenerationRequest) -> int:
        """Count the prompt tokens that `generate` would use, without generating."""
        ...


class PreparedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """Show a prompt as the engine would get it.

    `model` is the canonical id; the model takes at most `context_tokens` tokens in all.
    """

    model: str
    text: str
    token_ids: list[int]
    context_tokens: int


class PromptPreparer(Protocol):
    """Show what `Generator` makes of a request before generation: a service.

    Runs on the server's event loop.
    """

    async def prepare(self, request: GenerationRequest) -> PreparedPrompt:
        """Render and tokenize the prompt of a request; a tokenized one is turned into text.

        A prompt that leaves no room for an answer is shown too. Raises `ApiError` as
        `Generator.generate` does for what cannot be rendered.
        """
        ...
