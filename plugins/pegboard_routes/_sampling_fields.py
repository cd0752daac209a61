"""What every generating OpenAI route takes alike: sampling, stops, refused fields, seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from pegboard_contracts.errors import not_supported
from pegboard_contracts.generation import GenerationRequest, Sampling
from pegboard_contracts.http import RequestModel
from pydantic import BeforeValidator, Field

_SMALLEST_TOP_P = 1e-6
_SMALLEST_TEMPERATURE = 1e-5
_SEEDS = 2**63


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


StopString = Annotated[str, Field(min_length=1)]


class StreamOptions(RequestModel):
    """Say what a stream carries beside its deltas."""

    include_usage: bool | None = None


class SamplingFields(RequestModel):
    """Be the base of bodies that ask for generated text."""

    model: str = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(default=None, ge=1, le=16)
    max_tokens: int | None = Field(default=None, ge=1, lt=2**63)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    min_p: float | None = Field(default=None, ge=0, lt=1)
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=10)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    ignore_eos: bool | None = None
    stop: Annotated[
        list[StopString] | None,
        Field(max_length=16),
        BeforeValidator(_as_list, json_schema_input_type=str | list[str] | None),
    ] = None

    @property
    def include_usage(self) -> bool:
        """Tell whether a stream ends with a chunk of usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def _temperature(self) -> float | None:
        # The likeliest token is certain long before engines run out of digits to divide by.
        cold = self.temperature is not None and self.temperature < _SMALLEST_TEMPERATURE
        return 0.0 if cold else self.temperature

    def sampling(self) -> Sampling:
        """Return the sampling that was asked for."""
        return Sampling(
            temperature=self._temperature,
            # 0 keeps the likeliest token alone; engines demand more than 0.
            top_p=None if self.top_p is None else max(self.top_p, _SMALLEST_TOP_P),
            top_k=None if self.top_k is None else max(self.top_k, 0),
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            seed=None if self.seed is None else self.seed % _SEEDS,
            ignore_eos=bool(self.ignore_eos),
        )


UNSUPPORTED_SAMPLING: dict[str, tuple[Any, ...]] = {
    "allowed_token_ids": (),
    "bad_words": ([],),
    "dry_multiplier": (0,),
    "grammar": ("",),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "lora_alpha": (),
    "lora_path": (),
    "min_tokens": (0,),
    "mirostat": (0,),
    "no_repeat_ngram_size": (0,),
    "num_beams": (1,),
    "prompt_logprobs": (0, False),
    "stop_token_ids": ([],),
    "top_n_sigma": (0, -1),
    "typical_p": (1,),
    "use_beam_search": (False,),
    "xtc_probability": (0,),
}
"""Fields of other servers that no route can honour, with the values that ask for nothing."""


def refuse_unsupported(
    extra: Mapping[str, Any] | None, refused: Mapping[str, tuple[Any, ...]]
) -> None:
    """Raise 501 for a field of `refused` whose value is not one that asks for nothing."""
    for name, value in (extra or {}).items():
        idle = refused.get(name)
        if idle is not None and value is not None and value not in idle:
            raise not_supported(name)


def repeated(request: GenerationRequest, count: int) -> list[GenerationRequest]:
    """Ask for `count` answers, alike but for their seeds, which count up from the given one."""
    seed = request.sampling.seed
    if seed is None:
        return [request] * count
    return [
        msgspec.structs.replace(
            request,
            sampling=msgspec.structs.replace(request.sampling, seed=(seed + index) % _SEEDS),
        )
        for index in range(count)
    ]
