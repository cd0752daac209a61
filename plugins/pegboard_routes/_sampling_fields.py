"""What every generating OpenAI route takes alike: sampling, stops, refused fields, seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from pegboard_contracts.errors import invalid_request, not_supported
from pegboard_contracts.generation import Beams, GenerationRequest, Sampling
from pegboard_contracts.http import RequestModel
from pydantic import BeforeValidator, Field

_SMALLEST_TOP_P = 1e-6
_SMALLEST_TEMPERATURE = 1e-5
_SEEDS = 2**63


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


StopToken = Annotated[int, Field(ge=0, lt=2**63)]
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
    min_tokens: int | None = Field(default=None, ge=0, lt=2**63)
    stop_token_ids: list[StopToken] | None = Field(default=None, max_length=64)
    include_stop_str_in_output: bool | None = None
    num_beams: int | None = Field(default=None, ge=1, le=16)
    num_beam_groups: int | None = Field(default=None, ge=1, le=16)
    diversity_penalty: float | None = Field(default=None, ge=-1e6, le=1e6)
    length_penalty: float | None = Field(default=None, ge=-10, le=10)
    early_stopping: bool | Literal["never"] | None = None
    no_repeat_ngram_size: int | None = Field(default=None, ge=0, le=2**31 - 1)
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
            temperature=0.0 if (self.num_beams or 1) > 1 else self._temperature,
            # 0 keeps the likeliest token alone; engines demand more than 0.
            top_p=None if self.top_p is None else max(self.top_p, _SMALLEST_TOP_P),
            top_k=None if self.top_k is None else max(self.top_k, 0),
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            seed=None if self.seed is None else self.seed % _SEEDS,
            ignore_eos=bool(self.ignore_eos),
            min_tokens=self.min_tokens,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            beams=self._beams(),
        )

    def _beams(self) -> Beams | None:
        """Return the beam search that was asked for.

        Raises `ApiError` 400 for fields that mean nothing without one, or nothing with one,
        and for numbers that do not go together.
        """
        count, groups = self.num_beams or 1, self.num_beam_groups or 1
        idle = _ONLY_WITHOUT_BEAMS if count > 1 else _ONLY_WITH_BEAMS
        for name, values in idle.items():
            value = getattr(self, name)
            if value is not None and value not in values:
                how = "cannot be had with" if count > 1 else "means nothing without"
                message = f"'{name}' {how} a beam search ('num_beams' above 1); leave it out."
                raise invalid_request(message, param=name)
        if count == 1:
            return None
        self._check_groups(count, groups)
        ends: dict[object, Literal["early", "heuristic", "never"]] = {
            True: "early",
            "never": "never",
        }
        return Beams(
            count=count,
            groups=groups,
            diversity_penalty=self.diversity_penalty or 0.0,
            length_penalty=1.0 if self.length_penalty is None else self.length_penalty,
            ends=ends.get(self.early_stopping, "heuristic"),
            no_repeat_ngram_size=self.no_repeat_ngram_size or None,
        )

    def _check_groups(self, count: int, groups: int) -> None:
        if (self.n or 1) > count:
            message = f"{count} beams give at most {count} answers; lower 'n' or raise 'num_beams'."
            raise invalid_request(message, param="n")
        if count % groups:
            message = f"{count} beams do not make {groups} groups of one size; change one of them."
            raise invalid_request(message, param="num_beam_groups")
        if bool(self.diversity_penalty) != (groups > 1):
            message = (
                "'diversity_penalty' drives groups of beams apart: it needs 'num_beam_groups' "
                "above 1, and those need it."
            )
            raise invalid_request(message, param="diversity_penalty")


_ONLY_WITH_BEAMS: dict[str, tuple[Any, ...]] = {
    "num_beam_groups": (1,),
    "diversity_penalty": (0,),
    "length_penalty": (1,),
    "early_stopping": (False,),
    "no_repeat_ngram_size": (0,),
}
_ONLY_WITHOUT_BEAMS: dict[str, tuple[Any, ...]] = {
    "temperature": (0,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}
"""Fields with the values that ask for nothing."""

UNSUPPORTED_SAMPLING: dict[str, tuple[Any, ...]] = {
    "adapters": ([],),
    "allowed_token_ids": (),
    "apply_chat_template": (),
    "assistant_confidence_threshold": (0,),
    "bad_words": ([],),
    "branching_factor": (1,),
    "do_sample": (True,),
    "dry_multiplier": (0,),
    "eos_token_id": (),
    "grammar": ("",),
    "logit_bias": ({},),
    "lora_alpha": (),
    "lora_path": (),
    "max_length": (),
    "max_new_tokens": (),
    "max_ngram_size": (0,),
    "min_new_tokens": (0,),
    "mirostat": (0,),
    "num_assistant_tokens": (0,),
    "num_return_sequences": (1,),
    "parsers": ([],),
    "prompt_logprobs": (0, False),
    "pruning_ratio": (0,),
    "relevance_weight": (),
    "return_omni_outputs": (False,),
    "rng_seed": (),
    "skip_special_tokens": (True,),
    "stop_criteria": (),
    "stop_strings": ([],),
    "structured_output_config": (),
    "top_n_sigma": (0, -1),
    "tree_depth": (0,),
    "typical_p": (1,),
    "use_beam_search": (False,),
    "xtc_probability": (0,),
}
"""Fields of others that no route can honour by that name, with the values that ask for nothing."""

_NAMES_HERE = {
    "do_sample": "temperature",
    "eos_token_id": "stop_token_ids",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "num_return_sequences": "n",
    "rng_seed": "seed",
    "stop_criteria": "early_stopping",
    "stop_strings": "stop",
    "structured_output_config": "response_format",
}
"""The engine's own names of what requests ask for by another one."""


def refuse_unsupported(
    extra: Mapping[str, Any] | None, refused: Mapping[str, tuple[Any, ...]]
) -> None:
    """Raise 501 for a field of `refused` whose value is not one that asks for nothing."""
    for name, value in (extra or {}).items():
        idle = refused.get(name)
        if idle is not None and value is not None and value not in idle:
            other = _NAMES_HERE.get(name)
            hint = f"'{name}' is not a field of this server; use '{other}'." if other else None
            raise not_supported(name, hint)


def repeated(request: GenerationRequest, count: int) -> list[GenerationRequest]:
    """Ask for `count` answers, alike but for their seeds, which count up from the given one.

    Of a beam search they are the best, the next best, and so on.
    """
    return [
        msgspec.structs.replace(request, sampling=_sampling_of_answer(request.sampling, index))
        for index in range(count)
    ]


def _sampling_of_answer(sampling: Sampling, index: int) -> Sampling:
    if sampling.beams is not None:
        beams = msgspec.structs.replace(sampling.beams, rank=index)
        return msgspec.structs.replace(sampling, beams=beams)
    if sampling.seed is None:
        return sampling
    return msgspec.structs.replace(sampling, seed=(sampling.seed + index) % _SEEDS)
