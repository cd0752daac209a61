"""The body of a completion, and the generation requests that it means."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pegboard_contracts.errors import invalid_request
from pegboard_contracts.generation import GenerationRequest
from pegboard_contracts.principal import Principal
from pydantic import ConfigDict, Field, model_validator

from pegboard_routes._output_formats import OutputFormatFields
from pegboard_routes._sampling_fields import (
    UNSUPPORTED_SAMPLING,
    SamplingFields,
    refuse_unsupported,
    repeated,
)

_MOST_ANSWERS = 64

TokenId = Annotated[int, Field(ge=0, lt=2**63)]
TokenIds = Annotated[list[TokenId], Field(min_length=1)]
Prompts = (
    str
    | Annotated[list[str], Field(min_length=1)]
    | TokenIds
    | Annotated[list[TokenIds], Field(min_length=1)]
)


class CompletionRequest(SamplingFields, OutputFormatFields):
    """Describe a completion of raw text; unknown fields are ignored.

    `prompt` is a text, texts, token ids, or lists of token ids. Special tokens that stand
    in a text are read as such: a raw prompt is written by its client alone. A text begins
    with what the model's tokenizer begins every text with, unless `add_special_tokens` is
    false.
    """

    model_config = ConfigDict(extra="allow")

    refused: ClassVar[dict[str, tuple[Any, ...]]] = {
        **UNSUPPORTED_SAMPLING,
        "max_completion_tokens": (),
    }
    """Known fields that cannot be honoured, with the values that ask for nothing."""

    prompt: Prompts
    max_tokens: int | None = Field(default=None, ge=0, lt=2**63)
    add_special_tokens: bool | None = None
    best_of: int | None = Field(default=None, ge=1, le=16)
    echo: bool | None = None
    logprobs: int | None = Field(default=None, ge=0, le=20)
    suffix: str | None = None

    @model_validator(mode="after")
    def _some_tokens(self) -> CompletionRequest:
        if self.max_tokens == 0 and not self.scores_prompts:
            raise ValueError("'max_tokens' may be 0 only with 'echo' and 'logprobs'")
        return self

    @property
    def scores_prompts(self) -> bool:
        """Tell whether log probabilities of the prompts are wanted."""
        return bool(self.echo) and self.logprobs is not None

    @property
    def prompts(self) -> list[str | list[int]]:
        """Return the prompts one by one."""
        prompt: Any = self.prompt
        if isinstance(prompt, str) or isinstance(prompt[0], int):
            return [prompt]
        return list(prompt)

    @property
    def answers_each(self) -> int:
        """Count the answers that are generated for each prompt."""
        return self.best_of or self.n or 1


def prompt_request(model: str, prompt: str | list[int], principal: Principal) -> GenerationRequest:
    """Ask for a raw prompt, a text or token ids."""
    if isinstance(prompt, str):
        return GenerationRequest(model=model, prompt_text=prompt, principal=principal)
    return GenerationRequest(model=model, prompt_ids=tuple(prompt), principal=principal)


def completion_requests(body: CompletionRequest, principal: Principal) -> list[GenerationRequest]:
    """Make one request per answer, those of one prompt side by side.

    Raises `ApiError` 501 for fields that cannot be honoured and 400 for what contradicts
    itself.
    """
    _refuse(body)
    requests: list[GenerationRequest] = []
    for prompt in body.prompts:
        raw = prompt_request(body.model, prompt, principal)
        request = GenerationRequest(
            model=body.model,
            prompt_text=raw.prompt_text,
            prompt_ids=raw.prompt_ids,
            sampling=body.sampling(),
            prompt_suffix=body.suffix or None,
            add_special_tokens=body.add_special_tokens is not False,
            max_output_tokens=body.max_tokens,
            stop=tuple(body.stop or ()),
            include_stop=bool(body.include_stop_str_in_output),
            top_logprobs=_logprobs(body),
            prompt_logprobs=body.scores_prompts,
            output_format=body.output_format(),
            principal=principal,
        )
        requests += repeated(request, body.answers_each)
    return requests


def _logprobs(body: CompletionRequest) -> int | None:
    if body.logprobs is None and body.answers_each > (body.n or 1):
        return 0  # the best ones are found by them
    return body.logprobs


def _refuse(body: CompletionRequest) -> None:
    refuse_unsupported(body.model_extra, CompletionRequest.refused)
    if body.suffix and body.scores_prompts:
        message = (
            "A prompt with 'suffix' is written with special tokens, of which no log probabilities "
            "are echoed; leave 'suffix', 'echo' or 'logprobs' out."
        )
        raise invalid_request(message, param="suffix")
    if body.best_of is not None and body.sampling().beams is not None:
        message = "A beam search finds the best answers by itself; leave 'best_of' out."
        raise invalid_request(message, param="best_of")
    if body.best_of is not None and body.best_of < (body.n or 1):
        raise invalid_request("'best_of' must not be less than 'n'.", param="best_of")
    if body.stream and body.answers_each > (body.n or 1):
        message = "A stream cannot choose the best of several answers; leave 'best_of' out."
        raise invalid_request(message, param="best_of")
    answers = len(body.prompts) * body.answers_each
    if answers > _MOST_ANSWERS:
        message = (
            f"{answers} answers are asked for at once, and {_MOST_ANSWERS} may be; send fewer "
            "prompts in one request."
        )
        raise invalid_request(message, param="prompt", code="too_many_answers")
